//! Tars: what is taken, and each way in which one is refused.

use mayfly_archive::Format;

use crate::{
    build::{TarEntry, blocks, file, gzip, pax, sign, special, tar},
    message, problems, read,
};

fn refused(entry: TarEntry) -> Vec<(Option<String>, &'static str)> {
    problems(
        &tar(&[file("good", b"1"), entry, file("last", b"2")]),
        Format::Tar,
    )
}

fn gnu(kind: u8, text: &[u8]) -> TarEntry {
    TarEntry {
        magic: *b"ustar  \0",
        kind,
        ..file("././@LongLink", text)
    }
}

fn paths(archive: &[u8], format: Format) -> Vec<String> {
    let expanded = read(archive, format);
    assert_eq!(expanded.problems, []);
    expanded.files.into_iter().map(|file| file.path).collect()
}

#[test]
fn files_have_their_content_and_modes() {
    let archive = tar(&[
        special(b'5', "./", ""),
        special(b'5', "./pkg/", ""),
        file("./pkg/a.py", &b"print(1)\n".repeat(1000)),
        TarEntry {
            mode: b"0100755".to_vec(),
            ..file("tool", b"x")
        },
        TarEntry {
            kind: 0,
            magic: [0; 8],
            ..file("old", b"")
        },
        TarEntry {
            prefix: b"far/away".to_vec(),
            ..file("name", b"")
        },
    ]);
    for (archive, format) in [(archive.clone(), Format::Tar), (gzip(&archive), Format::TarGz)] {
        let expanded = read(&archive, format);
        assert_eq!(expanded.problems, []);
        let files: Vec<_> = expanded
            .files
            .iter()
            .map(|file| (file.path.as_str(), file.content.len(), file.mode))
            .collect();
        let expected = [
            ("pkg/a.py", 9000, Some(0o644)),
            ("tool", 1, Some(0o755)),
            ("old", 0, Some(0o644)),
            ("far/away/name", 0, Some(0o644)),
        ];
        assert_eq!(files, expected);
        assert_eq!(Format::of(&archive), Some(format));
    }
}

#[test]
fn long_names_come_before_their_files() {
    let long = "n/".repeat(200) + "file";
    let record = format!("path={long}");
    for extension in [
        gnu(b'L', format!("{long}\0").as_bytes()),
        pax(b'x', &[&record, "mtime=1.5"]),
    ] {
        let archive = tar(&[extension.clone(), file("short", b"x"), file("next", b"")]);
        assert_eq!(paths(&archive, Format::Tar), [long.clone(), "next".to_owned()]);
        // For nothing, twice, and together with the other one.
        assert!(message(&tar(&[file("a", b""), extension.clone()]), Format::Tar).contains("for nothing"));
        for other in [gnu(b'L', b"other\0"), pax(b'x', &["path=other"])] {
            let archive = tar(&[extension.clone(), other, file("short", b"")]);
            assert_eq!(problems(&archive, Format::Tar), [(None, "broken")]);
        }
    }
    for text in [&b"no end"[..], b"two\0ends\0", b"\0", b"", b"end\0\0"] {
        let archive = tar(&[gnu(b'L', text), file("short", b"")]);
        assert_eq!(problems(&archive, Format::Tar), [(None, "broken")], "{text:?}");
    }
    let archive = tar(&[gnu(b'L', &[b'n'; 70_000]), file("short", b"")]);
    assert!(message(&archive, Format::Tar).contains("64 KiB"));
}

#[test]
fn every_bad_name_is_listed() {
    let names = [
        "../x",
        "/etc/passwd",
        "a/../b",
        "C:x",
        "a//b",
        ".",
        "..",
        "a\nb",
        "\u{1b}[2J",
        "",
        "./../x",
    ];
    let mut entries: Vec<_> = names.iter().map(|name| file(name, b"")).collect();
    entries.push(TarEntry {
        name: b"\xff".to_vec(),
        ..file("", b"")
    });
    entries.push(pax(b'x', &[&format!("path={}", "n".repeat(256))]));
    entries.push(file("short", b""));
    entries.push(pax(b'x', &[&format!("path={}", "n/".repeat(600) + "n")]));
    entries.push(file("short", b""));
    entries.push(special(b'2', "link", "/etc"));
    entries.push(special(b'1', "hard", "/etc/passwd"));
    let listed = problems(&tar(&entries), Format::Tar);
    assert_eq!(listed.len(), names.len() + 5, "{listed:?}");
    assert_eq!(listed[names.len()], (Some("\\xff".to_owned()), "bad_path"));
    assert_eq!(listed.last(), Some(&(Some("hard".to_owned()), "link")));
}

#[test]
fn a_backslash_is_a_character_like_others() {
    assert_eq!(paths(&tar(&[file("a\\x2db", b"")]), Format::Tar), ["a\\x2db"]);
}

#[test]
fn what_is_no_file_and_no_folder_is_refused() {
    for (kind, code) in [
        (b'1', "link"),
        (b'2', "link"),
        (b'3', "special"),
        (b'4', "special"),
        (b'6', "special"),
        (b'7', "broken"),
        (b'S', "broken"),
        (b'D', "broken"),
        (b'M', "broken"),
        (b'V', "broken"),
        (b'X', "broken"),
        (b'Z', "broken"),
    ] {
        let target = if kind < b'3' { "/etc/passwd" } else { "" };
        assert_eq!(
            refused(special(kind, "a", target)),
            [(Some("a".to_owned()), code)],
            "{}",
            char::from(kind)
        );
    }
    // Through a link to somewhere else.
    let archive = tar(&[special(b'2', "a", "/etc"), file("a/passwd", b"")]);
    let expected = [
        (Some("a".to_owned()), "link"),
        (Some("a/passwd".to_owned()), "below_a_file"),
    ];
    assert_eq!(problems(&archive, Format::Tar), expected);
    for mode in [&b"0004755"[..], b"0002755", b"0001755"] {
        let entry = TarEntry {
            mode: mode.to_vec(),
            ..file("a", b"")
        };
        assert_eq!(refused(entry), [(Some("a".to_owned()), "special")]);
    }
    for entry in [
        file("a/", b""),
        TarEntry {
            kind: 0,
            ..file("a/", b"")
        },
    ] {
        assert!(!refused(entry).is_empty());
    }
    for kind in [b'1', b'2', b'5', b'6'] {
        let entry = TarEntry {
            kind,
            ..file("a", b"content")
        };
        assert!(message(&tar(&[entry]), Format::Tar).contains("has content"));
    }
    for (kind, name) in [(b'0', "a"), (b'5', "a/")] {
        let named = [pax(b'x', &["linkpath=/etc/passwd"]), special(kind, name, "")];
        assert!(message(&tar(&named), Format::Tar).contains("leads somewhere"));
    }
    assert!(message(&tar(&[special(b'0', "a", "b")]), Format::Tar).contains("leads somewhere"));
}

#[test]
fn a_name_stands_once() {
    for (name, code) in [
        ("good", "duplicate"),
        ("./good", "duplicate"),
        ("good/x", "below_a_file"),
    ] {
        assert_eq!(refused(file(name, b"")), [(Some(name.to_owned()), code)]);
    }
    let folder = special(b'5', "good/", "");
    assert_eq!(refused(folder), [(Some("good/".to_owned()), "duplicate")]);
    let twice = tar(&[special(b'5', "a/", ""), special(b'5', "a", ""), file("a/b", b"")]);
    assert_eq!(paths(&twice, Format::Tar), ["a/b"]);
}

#[test]
fn a_size_is_said_in_one_way() {
    let two = |size: &str| {
        tar(&[
            pax(b'x', &[&format!("size={size}")]),
            file("a", b"content"),
            file("b", b""),
        ])
    };
    assert_eq!(paths(&two("7"), Format::Tar), ["a", "b"]);
    for size in ["0", "8", "512", "18446744073709551615"] {
        assert!(
            message(&two(size), Format::Tar).contains("different sizes"),
            "{size}"
        );
    }
    for size in ["-1", "7.0", "", "07", "18446744073709551616"] {
        assert_eq!(problems(&two(size), Format::Tar), [(None, "broken")], "{size}");
    }
    for size in [
        &b"-0000000007"[..],
        b"0000000000x",
        b"\x80\0\0\0\0\0\0\0\0\0\0\x07",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xf9",
        b"7 7",
    ] {
        let entry = TarEntry {
            size: size.to_vec(),
            ..file("a", b"content")
        };
        assert_eq!(refused(entry), [(None, "broken")], "{size:?}");
    }
    let huge = TarEntry {
        size: b"777777777777".to_vec(),
        ..file("a", b"content")
    };
    assert!(message(&tar(&[huge]), Format::Tar).contains("cut off"));
}

#[test]
fn extensions_for_all_that_follows_name_nothing() {
    let with = |record: &str| tar(&[pax(b'g', &[record]), file("a", b"")]);
    assert_eq!(paths(&with("comment=0123"), Format::Tar), ["a"]);
    for record in [
        "path=b",
        "size=0",
        "linkpath=b",
        "GNU.sparse.name=b",
        "hdrcharset=BINARY",
    ] {
        assert_eq!(
            problems(&with(record), Format::Tar),
            [(None, "broken")],
            "{record}"
        );
    }
    let flood: Vec<_> = std::iter::repeat_n(pax(b'g', &["comment=1"]), 20)
        .chain([file("a", b"")])
        .collect();
    assert!(message(&tar(&flood), Format::Tar).contains("too many"));
    for record in ["GNU.sparse.major=1", "GNU.sparse.realsize=9", "hdrcharset=BINARY"] {
        assert_eq!(
            problems(&tar(&[pax(b'x', &[record]), file("a", b"")]), Format::Tar),
            [(None, "broken")]
        );
    }
}

#[test]
fn headers_are_whole_and_of_a_known_format() {
    let good = tar(&[file("a", b"content")]);
    for at in [0, 100, 124, 148, 156, 257, 345] {
        let mut archive = good.clone();
        archive[at] ^= 1;
        assert_eq!(problems(&archive, Format::Tar), [(None, "broken")], "{at}");
    }
    for (at, value) in [
        (100, b'x'),
        (108, b'-'),
        (116, b'9'),
        (136, b'x'),
        (257, b'U'),
        (263, b'1'),
        (329, b'x'),
    ] {
        let mut archive = tar(&[file("first", b""), file("a", b"content")]);
        let header = &mut archive[512..1024];
        header[at] = value;
        sign(header);
        assert_eq!(problems(&archive, Format::Tar), [(None, "broken")], "{at}");
    }
    // Times in GNU's format, where POSIX has the rest of a name.
    let times = TarEntry {
        magic: *b"ustar  \0",
        prefix: b"14524770400\0".to_vec(),
        ..file("a", b"")
    };
    assert_eq!(refused(times), [(None, "broken")]);
}

#[test]
fn a_tar_has_one_end() {
    let good = tar(&[file("a", b"content"), file("b", &[7; 600])]);
    for length in 0..good.len() {
        assert!(
            !problems(&good[..length], Format::Tar).is_empty(),
            "{length} bytes of it"
        );
    }
    let mut long = good.clone();
    long.resize(10_240, 0);
    assert_eq!(paths(&long, Format::Tar), ["a", "b"]);
    let mut more = good.clone();
    more.extend(blocks(&file("hidden", b"")));
    more.extend([0; 1024]);
    assert!(message(&more, Format::Tar).contains("follows its end"));
    let mut single = blocks(&file("a", b""));
    single.extend([0; 512]);
    single.extend(blocks(&file("hidden", b"")));
    assert!(message(&single, Format::Tar).contains("follows its end"));
    assert_eq!(
        problems(&tar(&[special(b'5', "a", "")]), Format::Tar),
        [(None, "empty")]
    );
    assert_eq!(problems(&[0; 1024], Format::Tar), [(None, "broken")]);
}

#[test]
fn gzip_is_one_member_and_nothing_else() {
    let good = gzip(&tar(&[file("a", b"content")]));
    assert_eq!(paths(&good, Format::TarGz), ["a"]);
    for length in 0..good.len() {
        assert!(
            !problems(&good[..length], Format::TarGz).is_empty(),
            "{length} bytes of it"
        );
    }
    for more in [good.clone(), gzip(b""), vec![0; 512], b"x".to_vec()] {
        let two = [good.clone(), more].concat();
        assert!(message(&two, Format::TarGz).contains("more than one gzip member"));
    }
    for at in [0, 2, good.len() - 1, good.len() - 8, good.len() / 2] {
        let mut broken = good.clone();
        broken[at] ^= 1;
        assert_eq!(problems(&broken, Format::TarGz), [(None, "broken")], "{at}");
    }
    // Every optional field of the header: extra data, name, comment, checksum; and flags that nobody knows.
    let mut header = b"\x1f\x8b\x08\x1e\0\0\0\0\0\xff\x02\0xyname\0comment\0".to_vec();
    header.extend(&crc32fast::hash(&header).to_le_bytes()[..2]);
    let whole = [&header, &good[10..]].concat();
    assert_eq!(paths(&whole, Format::TarGz), ["a"]);
    let mut wrong = whole.clone();
    wrong[header.len() - 1] ^= 1;
    assert!(message(&wrong, Format::TarGz).contains("gzip header"));
    for length in 0..header.len() {
        assert_eq!(problems(&whole[..length], Format::TarGz), [(None, "broken")]);
    }
    for flag in [0x20, 0x40, 0x80] {
        let mut archive = good.clone();
        archive[3] |= flag;
        assert!(message(&archive, Format::TarGz).contains("no version of the format"));
    }
}
