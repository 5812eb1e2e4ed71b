//! Any bytes as a job in JSON, from reading to what would run.
#![no_main]

#[path = "../properties/job_spec.rs"]
mod job_spec;

libfuzzer_sys::fuzz_target!(|json: &[u8]| {
    job_spec::check(json);
});
