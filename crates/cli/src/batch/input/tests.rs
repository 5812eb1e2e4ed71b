use std::{fs, os::unix::ffi::OsStrExt as _};

use mayfly_core::job::{Blob, InputFile};
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// What every item is that says nothing else.
fn base() -> JobSpec {
    serde_json::from_value(json!({
        "image": "python",
        "limits": {"wall": "5s", "memory": "64MiB"},
        "env": {"A": "base", "B": "base"},
        "secrets": {"C": "of base", "D": "of base"},
        "files": [{"path": "shared.txt", "content": "s"}],
        "retry": {"max_attempts": 1},
    }))
    .unwrap()
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    fn open(&self, name: &str) -> Input {
        Input::open(&self.0.path().join(name)).unwrap()
    }

    /// The items of a file of lines.
    fn lines(&self, lines: &[&str]) -> Vec<Result<Item, Wrong>> {
        self.put("jobs.jsonl", lines.join("\n"));
        items(&self.open("jobs.jsonl"))
    }

    /// What is wrong with the one line.
    fn wrong(&self, line: &str) -> String {
        let items = self.lines(&[line]);
        let [Err(wrong)] = &items[..] else {
            panic!("{line}: {items:?}")
        };
        format!("{}: {}", wrong.place, wrong.message)
    }
}

fn items(input: &Input) -> Vec<Result<Item, Wrong>> {
    input.items(&base(), &Policy::default()).unwrap().collect()
}

fn names(input: &Input) -> Vec<String> {
    items(input).into_iter().map(|item| item.unwrap().name).collect()
}

fn check(input: &Input) -> Result<Checked, Failure> {
    input.check(&base(), &Policy::default())
}

fn source(item: &Item) -> (&[u8], Language) {
    let source = item.spec.source.as_ref().unwrap();
    (source.text.as_bytes(), source.language)
}

#[test]
fn a_folder_is_its_programs_in_order_with_links_and_hidden_ones_left_out() {
    let place = Place::new();
    place.put("b.py", "b").put("a/z.sh", "z").put("a.py", "a");
    place
        .put("a/notes.txt", "")
        .put(".git/hook.py", "")
        .put(".x.py", "");
    place.put("outside/secret.py", "");
    let there = |name: &str| place.0.path().join(name);
    std::os::unix::fs::symlink("/etc/passwd", there("link.py")).unwrap();
    std::os::unix::fs::symlink("/", there("everything")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", there("readme")).unwrap();
    let input = place.open("");
    assert_eq!(names(&input), ["a.py", "a/z.sh", "b.py", "outside/secret.py"]);
    assert_eq!(input.left_out(), ["everything", "link.py"]);
    let all = items(&input);
    assert_eq!(source(all[0].as_ref().unwrap()), (&b"a"[..], Language::Python));
    assert_eq!(source(all[1].as_ref().unwrap()), (&b"z"[..], Language::Shell));
    assert_eq!(all[0].as_ref().unwrap().spec.limits, base().limits);
    assert_eq!(check(&input).unwrap().items, 4);
}

#[test]
fn a_name_that_is_no_text_and_a_program_that_is_no_file_are_faults() {
    let place = Place::new();
    place.put("ok.py", "");
    let odd = std::ffi::OsStr::from_bytes(b"odd\xff.py");
    fs::write(place.0.path().join(odd), "").unwrap();
    let socket = std::os::unix::net::UnixListener::bind(place.0.path().join("socket.py")).unwrap();
    let wrong: Vec<_> = items(&place.open(""))
        .into_iter()
        .filter_map(|item| item.err())
        .map(|wrong| (wrong.place, wrong.message))
        .collect();
    drop(socket);
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(
        wrong[0].0.starts_with("odd") && wrong[0].1.contains("UTF-8"),
        "{wrong:?}"
    );
    assert!(wrong[1].1.contains("no regular file"), "{wrong:?}");
    assert!(check(&place.open("")).is_err());
}

#[test]
fn a_line_says_its_program_in_one_of_four_ways() {
    let place = Place::new();
    place
        .put("programs/p.sh", "echo")
        .put("programs/q.txt", "print(1)");
    let items = place.lines(&[
        r#"{"id": "text", "source": "print(1)"}"#,
        r#"{"id": "shell", "source": "echo", "language": "shell"}"#,
        "",
        r#"{"id": "bytes", "source": {"base64": "/w=="}}"#,
        r#"{"id": "spec", "source": {"language": "shell", "text": "echo"}}"#,
        r#"{"id": "file", "file": "programs/p.sh"}"#,
        r#"{"id": "file and language", "file": "./programs/q.txt", "language": "python"}"#,
        r#"{"id": "command", "command": ["python3", "-V"]}"#,
    ]);
    let items: Vec<_> = items.into_iter().map(Result::unwrap).collect();
    let expected = [
        (&b"print(1)"[..], Language::Python),
        (b"echo", Language::Shell),
        (b"\xff", Language::Python),
        (b"echo", Language::Shell),
        (b"echo", Language::Shell),
        (b"print(1)", Language::Python),
    ];
    for (item, expected) in items.iter().zip(expected) {
        assert_eq!(source(item), expected, "{}", item.name);
    }
    assert_eq!(items[6].spec.command.as_deref().unwrap(), ["python3", "-V"]);
    assert_eq!(items.len(), 7);
}

#[test]
fn what_a_line_says_goes_before_the_flags_and_what_it_leaves_out_is_theirs() {
    let place = Place::new();
    let items = place.lines(&[
        r#"{"id": "1", "source": "", "limits": {"memory": "1GiB"}, "env": {"B": "own"}, "secrets": {"D": "its own"}, "args": ["x"], "priority": 3,
            "files": [{"path": "own.txt", "content": "o"}], "retry": {}, "image": "other"}"#
            .replace('\n', "")
            .as_str(),
        r#"{"id": "2", "source": ""}"#,
    ]);
    let [own, bare] = &items.into_iter().map(Result::unwrap).collect::<Vec<_>>()[..] else {
        panic!("two items")
    };
    assert_eq!(own.spec.limits.memory.unwrap().to_string(), "1GiB");
    assert_eq!(own.spec.limits.wall, base().limits.wall);
    assert_eq!(
        [&own.spec.secrets["C"], &own.spec.secrets["D"]],
        [&"of base".to_owned().into(), &"its own".to_owned().into()]
    );
    assert_eq!(
        (own.spec.env["A"].as_str(), own.spec.env["B"].as_str()),
        ("base", "own")
    );
    assert_eq!(own.spec.retry.max_attempts, 3, "it asked for what is usual");
    assert_eq!(
        (own.spec.priority, &own.spec.args[..]),
        (3, &["x".to_owned()][..])
    );
    let file = |path: &str, content| InputFile {
        path: path.to_owned(),
        content: Blob::from(content),
        executable: false,
        mode: None,
    };
    assert_eq!(own.spec.files, [file("own.txt", "o"), file("shared.txt", "s")]);
    assert_eq!(own.spec.image.to_string(), "other");
    assert_eq!(bare.spec.retry.max_attempts, 1);
    let empty = JobSpec {
        source: None,
        ..bare.spec.clone()
    };
    assert_eq!(empty, base());
}

#[test]
fn archives_of_a_line_and_of_the_flags_go_together() {
    let archive = |content: &str| json!({"content": content, "into": content});
    let mut base = base();
    base.archives = vec![serde_json::from_value(archive("shared")).unwrap()];
    let place = Place::new();
    let line = json!({"id": "1", "source": "", "archives": [archive("own")]});
    place.put("jobs.jsonl", line.to_string());
    let input = place.open("jobs.jsonl");
    let items: Vec<_> = input.items(&base, &Policy::default()).unwrap().collect();
    let archives = &items[0].as_ref().unwrap().spec.archives;
    assert_eq!(
        serde_json::to_value(archives).unwrap(),
        json!([archive("own"), archive("shared")])
    );
    assert!(
        input.check(&base, &Policy::default()).is_err(),
        "neither is an archive"
    );
}

#[test]
fn a_wrong_line_names_itself_its_item_and_the_field() {
    let place = Place::new();
    place.put("dir/x", "").put("outside.py", "");
    std::os::unix::fs::symlink("outside.py", place.0.path().join("link.py")).unwrap();
    for (line, expected) in [
        ("[]", "line 1: invalid type: sequence, expected a JSON object"),
        (
            "{\"id\": \"a\"",
            "line 1: EOF while parsing an object at column 10",
        ),
        (r#"{"source": ""}"#, "line 1: id: missing"),
        (r#"{"id": 3, "source": ""}"#, "line 1: id: expected a string"),
        (r#"{"id": "a", "id": "b"}"#, "line 1: id: given twice"),
        (
            r#"{"id": "a", "sauce": ""}"#,
            "line 1 (a): sauce: unknown field `sauce`",
        ),
        (
            r#"{"id": "a", "source": "", "limits": {"memory": "1"}}"#,
            "line 1 (a): limits.memory: `1` has no unit",
        ),
        (
            r#"{"id": "a", "source": "", "limits": {"memoy": "1MiB"}}"#,
            "line 1 (a): limits.memoy: unknown field",
        ),
        (r#"{"id": "a", "source": 3}"#, "line 1 (a): source: expected text"),
        (
            r#"{"id": "a", "source": "", "file": "x"}"#,
            "line 1 (a): give `source` or `file`",
        ),
        (
            r#"{"id": "a", "source": "", "language": "perl"}"#,
            "line 1 (a): language: unknown variant",
        ),
        (
            r#"{"id": "a", "language": "shell"}"#,
            "line 1 (a): language: there is no",
        ),
        (
            r#"{"id": "a", "file": "../x.py"}"#,
            "line 1 (a): file: ../x.py: must lie below",
        ),
        (
            r#"{"id": "a", "file": "/etc/passwd"}"#,
            "line 1 (a): file: /etc/passwd: must lie below",
        ),
        (
            r#"{"id": "a", "file": "link.py"}"#,
            "line 1 (a): file: link.py: leads through a link",
        ),
        (
            r#"{"id": "a", "file": "no.py"}"#,
            "line 1 (a): file: no.py: can't be read",
        ),
        (
            r#"{"id": "a", "file": "dir"}"#,
            "line 1 (a): file: dir: is no regular file",
        ),
        (
            r#"{"id": "a", "image": "python:3"}"#,
            "line 1 (a): image: `python:3` names an image by tag",
        ),
    ] {
        let wrong = place.wrong(line);
        assert!(wrong.starts_with(expected), "{line}\n  {wrong}\n  {expected}");
    }
    assert!(items(&place.open("jobs.jsonl"))[0].is_err());
    place.put("jobs.jsonl", b"{\"id\": \"\xff\"}\n");
    assert!(items(&place.open("jobs.jsonl"))[0].is_err());
}

#[test]
fn the_check_counts_every_fault_and_looks_at_names_and_policy_too() {
    let place = Place::new();
    let line = |id: &str| json!({"id": id, "source": ""}).to_string();
    let good = [line("a"), line("b")].join("\n");
    place.put("good.jsonl", format!("{good}\n\n"));
    let checked = check(&place.open("good.jsonl")).unwrap();
    assert_eq!(checked.items, 2);
    assert_eq!(
        checked
            .images
            .into_iter()
            .map(|image| image.to_string())
            .collect::<Vec<_>>(),
        ["python"]
    );
    for (bad, faults) in [
        ([line("a"), line("a")], 1),
        ([line(""), line("a\nb")], 2),
        ([line(&"x".repeat(256)), line(&"x".repeat(255))], 1),
        (
            [
                json!({"id": "a", "source": "", "limits": {"memory": "1TiB", "pids": 1}, "artifacts": ["/x"]})
                    .to_string(),
                "{".to_owned(),
            ],
            4,
        ),
    ] {
        place.put("bad.jsonl", bad.join("\n"));
        let Err(failure) = check(&place.open("bad.jsonl")) else {
            panic!("{bad:?} is accepted")
        };
        let text = format!("{failure:?}");
        assert!(text.contains(&format!("has {faults} fault")), "{bad:?}: {text}");
    }
}

#[test]
fn what_is_no_batch_at_all_is_said_at_once() {
    let place = Place::new();
    place.put("one.py", "");
    assert!(Input::open(&place.0.path().join("one.py")).is_err());
    assert!(Input::open(&place.0.path().join("nothing")).is_err());
}

#[test]
fn a_line_that_is_too_long_is_skipped_and_the_next_one_is_read() {
    let place = Place::new();
    let path = place.0.path().join("long.jsonl");
    let file = File::create(&path).unwrap();
    // A hole: nothing of it is on the disk.
    file.set_len((64 << 20) + 5).unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    io::Write::write_all(&mut file, b"\n{\"id\": \"a\", \"source\": \"\"}\n").unwrap();
    let items = items(&place.open("long.jsonl"));
    assert_eq!(items.len(), 2);
    assert!(items[0].as_ref().unwrap_err().message.contains("longer"));
    assert_eq!(items[1].as_ref().unwrap().name, "a");
}

proptest! {
    /// Whatever bytes there are, they are items or faults with a place, and the second pass finds the same.
    #[test]
    fn any_bytes_are_read_to_their_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let place = Place::new();
        place.put("x.jsonl", &bytes);
        let input = place.open("x.jsonl");
        let seen = |items: Vec<Result<Item, Wrong>>| -> Vec<_> {
            items.into_iter().map(|item| item.map(|item| item.name).map_err(|wrong| wrong.place)).collect()
        };
        prop_assert_eq!(seen(items(&input)), seen(items(&input)));
    }
}
