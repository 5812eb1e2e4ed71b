//! How many bytes a second one core redacts, beside copying them and looking for one byte in them.
//!
//! `cargo bench -p mayfly-redact`. Each text has 1 MiB and comes in chunks of 32 KiB, and also of 64 bytes; the figure is
//! the best of many short rounds, so that neighbours on the machine count as little as may be.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::{hint::black_box, time::Instant};

use mayfly_redact::{Matcher, Redactor, Rules, Secrets};

const BYTES: usize = 1 << 20;
const ROUNDS: usize = 60;

fn main() {
    let secrets: Vec<String> = (0..20)
        .map(|n| format!("s3cret-{n}-{:x}", 0x9E37_79B9_7F4A_7C15_u64.rotate_left(n)))
        .collect();
    let plain = Matcher::new(&Rules::all(), &Secrets::default());
    let with_secrets = Matcher::new(&Rules::all(), &Secrets::new(&secrets).expect("few secrets"));

    println!(
        "{:<40} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "MB/s on one core", "copy", "memchr", "rules", "20 secr.", "by 64 B"
    );
    for (name, text) in texts(&secrets) {
        let copy = rate(&text, |out| {
            text.chunks(32 << 10)
                .for_each(|chunk| out.extend_from_slice(chunk))
        });
        let memchr = rate(&text, |_| {
            black_box(memchr::memchr_iter(0xff, &text).count());
        });
        let redact = |matcher: &Matcher, chunk: usize| {
            rate(&text, |out| {
                let mut redactor = Redactor::new(matcher);
                text.chunks(chunk).for_each(|chunk| redactor.push(chunk, out));
                black_box(redactor.finish(out));
            })
        };
        let (rules, secrets, small) = (
            redact(&plain, 32 << 10),
            redact(&with_secrets, 32 << 10),
            redact(&with_secrets, 64),
        );
        println!("{name:<40} {copy:>9.0} {memchr:>9.0} {rules:>9.0} {secrets:>9.0} {small:>9.0}");
    }
    let started = Instant::now();
    black_box(Matcher::new(
        &Rules::all(),
        &Secrets::new(&secrets).expect("few secrets"),
    ));
    println!(
        "making a matcher of all rules and 20 secrets: {:.1} ms",
        started.elapsed().as_secs_f64() * 1000.0
    );
}

/// The best rate of some rounds, in 10^6 bytes a second.
fn rate(text: &[u8], mut pass: impl FnMut(&mut Vec<u8>)) -> f64 {
    let mut out = Vec::with_capacity(text.len() * 2);
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        out.clear();
        let started = Instant::now();
        pass(black_box(&mut out));
        best = best.min(started.elapsed().as_secs_f64());
    }
    let bytes = u32::try_from(text.len()).expect("a few megabytes");
    f64::from(bytes) / best / 1e6
}

fn repeat(mut line: impl FnMut(usize) -> String) -> Vec<u8> {
    let mut text = String::with_capacity(BYTES + 512);
    for n in 0.. {
        if text.len() >= BYTES {
            break;
        }
        text += &line(n);
    }
    text.into_bytes()
}

fn texts(secrets: &[String]) -> Vec<(&'static str, Vec<u8>)> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut noise = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let random: Vec<u8> = (0..BYTES / 8).flat_map(|_| noise().to_le_bytes()).collect();
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let base64 = random
        .iter()
        .map(|byte| alphabet[usize::from(byte & 63)])
        .collect();
    let hex = random
        .iter()
        .map(|byte| b"0123456789abcdef"[usize::from(byte & 15)])
        .collect();
    let log = |n: usize| {
        format!(
            "2026-11-30T07:{:02}:{:02}.{:03}Z  INFO worker{{id={}}}: task {n} done in {} ms, next checkpoint at step {}\n\
             10.0.{}.{} \"GET https://example.org/v1/items/{n}?page={} HTTP/1.1\" 200 {} \"-\" \"python-requests/2.32\"\n",
            n / 60 % 60,
            n % 60,
            n % 1000,
            n % 32,
            n % 977,
            n * 3,
            n % 256,
            n % 199,
            n % 50,
            n * 17 % 100_000,
        )
    };
    let source = include_str!("../src/redactor.rs");
    vec![
        ("ordinary logs", repeat(log)),
        ("source code", repeat(|_| source.to_owned())),
        ("noise", random),
        ("base64", base64),
        ("hex", hex),
        ("rulers (-----)", vec![b'-'; BYTES]),
        (
            "logs, a secret in each 50th line",
            repeat(|n| {
                if n % 25 == 0 {
                    format!("key {}\n", secrets[n / 25 % 20])
                } else {
                    log(n)
                }
            }),
        ),
        (
            "addresses with passwords",
            repeat(|n| format!("postgres://app:pw{n}@db/x\n")),
        ),
        (
            "begun tokens",
            repeat(|n| format!(" ghp_{n} sk-ant-api03-{n} eyJhbGciOi{n} :AA{n}")),
        ),
        (
            "worst known: anchors within bodies",
            repeat(|_| " eyJ\\neyJsk-ant-api03-sk-ant-api03-%20eyJ://a:A://AKIA".to_owned()),
        ),
        (
            "worst known: begun keys",
            repeat(|_| concat!("-----BEGIN PRIV", "ATE KEY-----").to_owned()),
        ),
    ]
}
