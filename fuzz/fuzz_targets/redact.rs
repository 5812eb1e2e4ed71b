//! Any stream, in any chunks, and any secret of the job that printed it.
#![no_main]

#[path = "../properties/redact.rs"]
mod redact;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    redact::check(input);
});
