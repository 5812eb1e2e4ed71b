//! The properties of the fuzz targets (`fuzz/properties`), on their seeds and on changes of these: what a short run
//! can find is found here without a fuzzer.

use std::{fs, path::PathBuf};

use proptest::{prelude::*, sample::Index};
use serde_json::json;

#[path = "../../../fuzz/properties/image_reference.rs"]
mod image_reference;
#[path = "../../../fuzz/properties/job_spec.rs"]
mod job_spec;

use job_spec::Verdict;

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = format!("{}/../../fuzz/seeds/{target}", env!("CARGO_MANIFEST_DIR"));
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).expect("a seed");
        (path, bytes)
    };
    paths.into_iter().map(read).collect()
}

#[test]
fn each_seed_holds() {
    for (_, bytes) in seeds("image_reference") {
        image_reference::check(std::str::from_utf8(&bytes).expect("text"));
    }
    let mut met = Vec::new();
    for (path, bytes) in seeds("job_spec") {
        let verdict = job_spec::check(&bytes);
        assert_ne!(verdict, Verdict::NoJob, "{} is a job", path.display());
        met.push(verdict);
    }
    assert!(
        met.contains(&Verdict::Accepted) && met.contains(&Verdict::Refused),
        "{met:?}"
    );
}

/// What takes the place of some bytes of a seed.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    const WORDS: [&str; 19] = [
        "",
        "\"",
        "{",
        "}",
        "[]",
        ",",
        ":",
        "/",
        "..",
        "@",
        "sha256:",
        "null",
        "-1",
        "1e9",
        "\\u0000",
        "KiB",
        "0",
        "\u{e9}",
        "18446744073709551616",
    ];
    prop_oneof![
        prop::sample::select(WORDS.as_slice()).prop_map(|word| word.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
    ]
}

/// A seed with some places of it changed.
fn changed(target: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let seeds: Vec<Vec<u8>> = seeds(target).into_iter().map(|(_, bytes)| bytes).collect();
    let edits = prop::collection::vec((any::<Index>(), 0usize..6, piece()), 0..4);
    (prop::sample::select(seeds), edits).prop_map(|(mut bytes, edits)| {
        for (at, cut, piece) in edits {
            let start = at.index(bytes.len() + 1);
            let end = (start + cut).min(bytes.len());
            bytes.splice(start..end, piece);
        }
        bytes
    })
}

/// A job near the limits of what is allowed.
fn job() -> impl Strategy<Value = serde_json::Value> {
    let text = || prop_oneof![".{0,12}", "[a-z./]{1,8}", "[\u{1}-\u{1f}]{1,4}"];
    let size = || {
        (0u64..40_000, prop::sample::select(vec!["B", "KiB", "MiB"]))
            .prop_map(|(n, unit)| format!("{n}{unit}"))
    };
    (
        prop::collection::vec((text(), any::<Vec<u8>>()), 0..4),
        (text(), prop_oneof![8 => 0usize..4, 1 => 990usize..1010]),
        (prop::collection::btree_map(text(), text(), 0..4), prop_oneof![8 => Just(0usize), 1 => 890usize..910]),
        prop::option::of(size()),
        prop::option::of(size()),
        prop::option::of(text()),
        0u32..12,
    )
        .prop_map(|(files, (arg, args), (env, more), memory, work, stdin, max_attempts)| {
            let files: Vec<_> = files
                .into_iter()
                .map(|(path, content)| json!({"path": path, "content": mayfly_core::job::Blob::from(content)}))
                .collect();
            let env: serde_json::Map<_, _> = env
                .into_iter()
                .chain((0..more).map(|n| (format!("V{n}"), "\u{1}".to_owned())))
                .map(|(name, value)| (name, value.into()))
                .collect();
            let mut spec = json!({
                "image": "python", "source": {"text": "print()"}, "files": files, "args": vec![arg; args], "env": env,
                "retry": {"max_attempts": max_attempts}, "limits": {},
            });
            for (name, size) in [("memory", memory), ("work", work)] {
                if let Some(size) = size {
                    spec["limits"][name] = size.into();
                }
            }
            if let Some(stdin) = stdin {
                spec["stdin"] = stdin.into();
            }
            spec
        })
}

proptest! {
    #[test]
    fn what_a_changed_reference_is_taken_for(bytes in changed("image_reference")) {
        image_reference::check(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn what_a_changed_job_is_taken_for(bytes in changed("job_spec")) {
        job_spec::check(&bytes);
    }

    #[test]
    fn a_job_near_the_limits_is_refused_or_would_run(spec in job()) {
        job_spec::check(spec.to_string().as_bytes());
    }
}
