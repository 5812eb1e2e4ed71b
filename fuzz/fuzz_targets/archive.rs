//! Any bytes as a zip, a tar or a tar.gz, from their headers to the files in them.
#![no_main]

#[path = "../properties/archive.rs"]
mod archive;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    archive::check(bytes);
});
