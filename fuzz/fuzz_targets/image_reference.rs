//! Any text as the name of an image.
#![no_main]

#[path = "../properties/image_reference.rs"]
mod image_reference;

libfuzzer_sys::fuzz_target!(|text: &str| image_reference::check(text));
