//! What is no secret comes out as it went in.

use std::{fs, path::Path};

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE, Engine as _};
use mayfly_redact::Counts;
use proptest::prelude::*;

use crate::{in_chunks, matcher};

/// Bytes without a pattern, the same in each run (xorshift).
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn passes(what: &str, text: &[u8]) {
    let (out, counts) = in_chunks(&matcher(&[b"correct-horse-battery"]), text, &[4096, 7]);
    let (at, line) = difference(text, &out);
    assert!(out == text, "{what} at {at}: {line} ({counts:?})");
    assert_eq!(counts, Counts::default(), "{what}");
}

/// Where two texts part, and a little of the second from there on.
fn difference(text: &[u8], out: &[u8]) -> (usize, String) {
    let at = text
        .iter()
        .zip(out)
        .take_while(|(one, other)| one == other)
        .count();
    (
        at,
        String::from_utf8_lossy(&out[at.saturating_sub(40)..out.len().min(at + 60)]).into_owned(),
    )
}

#[test]
fn digests_ids_and_dumps_pass() {
    let mut text = String::new();
    for n in 1..=3000u64 {
        let bytes = noise(n * 77_777, 64);
        let (sha256, sha1, md5) = (hex(&bytes[..32]), hex(&bytes[32..52]), hex(&bytes[..16]));
        let uuid = format!(
            "{}-{}-4{}-a{}-{}",
            &md5[..8],
            &md5[8..12],
            &md5[13..16],
            &md5[17..20],
            &md5[20..]
        );
        text += &format!(
            "sha256:{sha256}\n{sha256}  file-{n}.bin\ncommit {sha1}\nMerge: {} {}\n",
            &sha1[..7],
            &sha1[8..15]
        );
        text += &format!(
            "id={uuid} trace={md5} etag=\"{md5}\" key-{md5} cache-key-{sha256} image@sha256:{sha256}\n"
        );
        text += &format!(
            "checksum = \"{sha256}\"\nindex {}..{} 100644\nSHA256:{}\n",
            &sha1[..10],
            &sha1[10..20],
            BASE64_STANDARD.encode(&bytes[..32]).trim_end_matches('=')
        );
        text += &format!(
            "sha512-{}==\nmac {}\n",
            BASE64_STANDARD.encode(&bytes[..64]).trim_end_matches('='),
            hex(&bytes).to_uppercase()
        );
        text += &format!(
            "{n:08x}  {}  |{}|\n",
            bytes[..16]
                .iter()
                .map(|byte| format!("{byte:02x} "))
                .collect::<String>(),
            "................"
        );
    }
    passes("digests", text.as_bytes());
}

#[test]
fn images_in_base64_pass() {
    for seed in 1..=12 {
        let png = [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &noise(seed, 200_000)].concat();
        for encoded in [BASE64_STANDARD.encode(&png), BASE64_URL_SAFE.encode(&png)] {
            passes(
                "an image",
                format!("<img src=\"data:image/png;base64,{encoded}\">").as_bytes(),
            );
            for width in [64, 76] {
                let lines: Vec<_> = encoded.as_bytes().chunks(width).collect();
                passes("an image in lines", &lines.join(&b'\n'));
            }
        }
    }
}

/// How a line of base64 begins where a small number and zeros are: a Square token has the same first letters.
#[test]
fn zeros_in_base64_pass() {
    for first in 0..=u8::MAX {
        let bytes = [&[first, 0, 0][..], &noise(u64::from(first) + 1, 45)].concat();
        passes(
            "a line",
            format!("\"{}\"\n", BASE64_STANDARD.encode(bytes)).as_bytes(),
        );
    }
}

#[test]
fn every_byte_at_random_passes() {
    for seed in 1..=8 {
        passes("noise", &noise(seed * 1_000_003, 1_000_000));
    }
}

#[test]
fn logs_pass() {
    let mut text = String::new();
    for n in 0..4000 {
        text += &format!(
            "2026-11-30T07:{:02}:{:02}.{n:03}Z  INFO worker[{n}]: GET /v1/jobs/{n}?wait=30s 200 {}ms bytes={}\n",
            n / 60 % 60,
            n % 60,
            n % 97,
            n * 31
        );
        text += &format!(
            "10.0.{}.{} - - [30/Nov/2026:07:00:{:02} +0000] \"POST https://example.org:8443/a/b@{n}?q=1:2@3 HTTP/1.1\" 404 {n} \"-\" \"curl/8.5\"\n",
            n % 256,
            n % 199,
            n % 60
        );
        text += &format!(
            "{{\"level\":\"warn\",\"ts\":{n}.5,\"msg\":\"retry\\nin {n}s\",\"caller\":\"pkg/task-{n}.go:42\",\"sk-id\":\"disk-{n}\"}}\n"
        );
        text += "Traceback (most recent call last):\n  File \"/work/main.py\", line 3, in <module>\nKeyError: 'api_key'\n";
        text += &format!(
            "pip install foo=={n}.0 --hash=sha256:{}\n{}\n",
            hex(&noise(n + 1, 32)),
            "-".repeat(80)
        );
        text += "Authorization: Bearer <token>\nauthorization: Basic auth\npostgres://localhost:5432/db postgres://app@db/x git@github.com:a/b.git ssh://git@host:22/a\n";
        text += "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n";
    }
    passes("logs", text.as_bytes());
}

#[test]
fn source_code_that_speaks_of_tokens_passes() {
    let begin = ["-----BEGIN RSA PRIVATE", " KEY-----"].concat();
    passes(
        "source",
        format!(
            "if (line === \"{begin}\") {{ return parseKey(lines.slice(1)); }}\n\
             PREFIXES = ['ghp_', 'gho_', 'sk-ant-', 'xoxb-', 'glpat-', 'AKIA', 'eyJ', 'npm_', 'hf_', 'SG.', 'sk_live_']\n\
             const r=/^(gh[pousr]_[A-Za-z0-9]{{36,}}|eyJ[\\w-]+\\.eyJ[\\w-]+\\.[\\w-]+)$/;var npm_config_cache=process.env.npm_config_cache\n\
             export GITHUB_TOKEN=$(cat /run/secrets/token) AWS_SECRET_ACCESS_KEY=${{SECRET}} hf_hub_download(repo_id)\n\
             !function(e,t){{\"object\"==typeof exports&&\"undefined\"!=typeof module?module.exports=t():e.sk_test_=t}}(this,(function(){{return a?b:\"https://\"+c+\":\"+d+\"@\"+e}}));\n"
        )
        .as_bytes(),
    );
}

/// This project's own files: source, prose, JSON, lock files. Only passwords in addresses are in them, in examples.
#[test]
fn the_files_of_this_project_pass() {
    fn files(folder: &Path, all: &mut Vec<std::path::PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            let (path, name) = (entry.path(), entry.file_name());
            let hidden = name.to_string_lossy().starts_with('.') || name == "target" || name == "corpus";
            match entry.file_type().unwrap() {
                kind if kind.is_dir() && !hidden => files(&path, all),
                kind if kind.is_file() && !hidden => all.push(path),
                _ => {}
            }
        }
    }
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut all = Vec::new();
    for folder in [
        "crates",
        "docs",
        "deploy",
        "examples",
        "migrations",
        "scripts",
        "tests",
        "config",
    ] {
        files(&root.join(folder), &mut all);
    }
    all.extend(["Cargo.lock", "README.md", "Makefile"].map(|name| root.join(name)));
    assert!(all.len() > 200);
    let matcher = matcher(&[]);
    for path in all {
        let text = fs::read(&path).unwrap();
        let (out, counts) = matcher.redact(&text);
        let (_, line) = difference(&text, &out);
        assert_eq!(
            counts.total(),
            counts.of("url_password"),
            "{}: {line} {counts:?}",
            path.display()
        );
    }
}

proptest! {
    #[test]
    fn any_short_text_without_an_anchor_passes(text in proptest::collection::vec(0u8..=255, 0..300)) {
        let (out, counts) = matcher(&[]).redact(&text);
        prop_assume!(counts.is_empty());
        prop_assert_eq!(out, text);
    }
}
