//! Zips: what is taken, and each way in which one is refused.

use mayfly_archive::Format;

use crate::{
    build::{ZipEntry, deflated, end, stored, zip},
    message, problems, read,
};

fn refused(entry: ZipEntry) -> Vec<(Option<String>, &'static str)> {
    problems(
        &zip(&[stored("good", b"1"), entry, stored("last", b"2")]),
        Format::Zip,
    )
}

/// That it is refused for this one reason, and by its name.
fn by_name(entry: ZipEntry, code: &'static str) {
    let name = entry.name.escape_ascii().to_string();
    let found = refused(entry);
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    assert_eq!(found[0].1, code, "{name}");
    assert!(found[0].0.is_some(), "{name}");
}

#[test]
fn files_have_their_content_and_modes() {
    let archive = zip(&[
        ZipEntry {
            attributes: 0o040_755 << 16 | 0x10,
            ..stored("pkg/", b"")
        },
        deflated("pkg/a.py", &b"print(1)\n".repeat(1000)),
        stored("./b", b""),
        deflated("empty", b""),
        ZipEntry {
            attributes: 0o100_755 << 16,
            ..stored("tool", b"x")
        },
        ZipEntry {
            made_by: 20,
            attributes: 0x20,
            ..stored("dos", b"x")
        },
    ]);
    let expanded = read(&archive, Format::Zip);
    assert_eq!(expanded.problems, []);
    let files: Vec<_> = expanded
        .files
        .iter()
        .map(|file| (file.path.as_str(), file.content.len(), file.mode))
        .collect();
    let expected = [
        ("pkg/a.py", 9000, Some(0o644)),
        ("b", 0, Some(0o644)),
        ("empty", 0, Some(0o644)),
        ("tool", 1, Some(0o755)),
        ("dos", 1, None),
    ];
    assert_eq!(files, expected);
}

#[test]
fn every_bad_name_is_listed() {
    let names = [
        "../x",
        "/etc/passwd",
        "a/../b",
        "C:x",
        "c:/x",
        "a\\b",
        "..\\x",
        "a//b",
        "./../x",
        ".",
        "..",
        "a\nb",
        "\u{1b}[2J",
        "a\0b",
    ];
    let mut entries: Vec<_> = names.iter().map(|name| stored(name, b"")).collect();
    entries.push(stored(&"n".repeat(256), b""));
    entries.push(stored(&"n/".repeat(600), b""));
    entries.push(stored("\u{202e}gpj.exe/..", b""));
    let listed = problems(&zip(&entries), Format::Zip);
    let shown: Vec<_> = listed.iter().map(|(name, _)| name.as_deref().unwrap()).collect();
    for name in [
        "../x",
        "/etc/passwd",
        "a/../b",
        "C:x",
        "c:/x",
        "a\\\\b",
        "a//b",
        "./../x",
        ".",
        "..",
        "a\\nb",
        "\\u{1b}[2J",
        "a\\0b",
        "\\u{202e}gpj.exe/..",
    ] {
        assert!(shown.contains(&name), "{name} in {shown:?}");
    }
    assert!(listed.len() >= entries.len(), "{listed:?}");
}

#[test]
fn names_that_are_no_utf8_or_of_unknown_encoding_are_refused() {
    by_name(
        ZipEntry {
            flags: 1 << 11,
            name: b"\xff\xfe".to_vec(),
            ..stored("", b"")
        },
        "bad_path",
    );
    by_name(stored("d\u{e9}j\u{e0}", b""), "bad_path");
    let marked = ZipEntry {
        flags: 1 << 11,
        ..stored("d\u{e9}j\u{e0}", b"")
    };
    assert_eq!(problems(&zip(&[marked]), Format::Zip), []);
}

#[test]
fn a_name_stands_once() {
    by_name(stored("good", b""), "duplicate");
    by_name(stored("./good", b""), "duplicate");
    by_name(stored("good/x", b""), "below_a_file");
    let folder = ZipEntry {
        attributes: 0o040_755 << 16,
        ..stored("good/", b"")
    };
    by_name(folder, "duplicate");
    let both = zip(&[stored("a/b", b""), stored("a", b"")]);
    assert_eq!(
        problems(&both, Format::Zip),
        [(Some("a".to_owned()), "duplicate")]
    );
}

#[test]
fn what_is_no_file_and_no_folder_is_refused() {
    let with = |attributes: u32| ZipEntry {
        attributes: attributes << 16,
        ..stored("a", b"/etc/passwd")
    };
    by_name(with(0o120_777), "link");
    // Also by a system that should have no links.
    by_name(
        ZipEntry {
            made_by: 20,
            ..with(0o120_777)
        },
        "link",
    );
    by_name(with(0o010_644), "special");
    by_name(with(0o060_644), "special");
    by_name(with(0o140_644), "special");
    by_name(with(0o104_755), "special");
    by_name(with(0o102_755), "special");
    by_name(with(0o101_755), "special");
    by_name(with(0o040_755), "bad_path");
    by_name(
        ZipEntry {
            attributes: 0x10,
            ..stored("a", b"")
        },
        "bad_path",
    );
    by_name(stored("b/", b""), "bad_path");
    by_name(
        ZipEntry {
            attributes: 0,
            ..stored("b/", b"x")
        },
        "broken",
    );
}

#[test]
fn encryption_and_other_methods_are_refused() {
    for flags in [1, 1 << 6, 1 << 13, 1 | 1 << 3] {
        let entry = ZipEntry {
            flags,
            ..stored("a", b"x")
        };
        assert!(refused(entry).contains(&(Some("a".to_owned()), "encrypted")));
    }
    for flags in [1 << 4, 1 << 5, 1 << 7, 1 << 14] {
        by_name(
            ZipEntry {
                flags,
                ..stored("a", b"x")
            },
            "not_supported",
        );
    }
    for (needs, found) in [(63, 0), (64, 1), (255, 1), (3 << 8 | 20, 0)] {
        let entry = ZipEntry {
            needs,
            ..stored("a", b"x")
        };
        assert_eq!(refused(entry).len(), found, "{needs}");
    }
    for method in [1, 6, 9, 12, 14, 93, 95, 98, 99] {
        by_name(
            ZipEntry {
                method,
                ..stored("a", b"x")
            },
            "not_supported",
        );
    }
}

#[test]
fn both_headers_say_the_same() {
    by_name(
        ZipEntry {
            local_name: Some(b"b".to_vec()),
            ..stored("a", b"x")
        },
        "broken",
    );
    // Each field of the header at the data: flags, method, checksum and both sizes.
    for at in [6, 8, 14, 18, 22] {
        let mut archive = zip(&[stored("a", b"xyz")]);
        archive[at] ^= if at == 6 { 2 } else { 8 };
        assert_eq!(
            problems(&archive, Format::Zip),
            [(Some("a".to_owned()), "broken")],
            "{at}"
        );
    }
}

#[test]
fn content_is_as_its_header_says() {
    for entry in [
        ZipEntry {
            crc: 7,
            ..stored("a", b"xyz")
        },
        ZipEntry {
            crc: 7,
            ..deflated("a", b"xyz")
        },
        ZipEntry {
            size: 2,
            ..stored("a", b"xyz")
        },
        ZipEntry {
            size: 2,
            ..deflated("a", b"xyz")
        },
        ZipEntry {
            size: 4,
            ..deflated("a", b"xyz")
        },
        ZipEntry {
            data: [deflated("a", b"xyz").data, b"more".to_vec()].concat(),
            ..deflated("a", b"xyz")
        },
        ZipEntry {
            data: deflated("a", &(0..=255).collect::<Vec<u8>>()).data[..8].to_vec(),
            ..deflated("a", &(0..=255).collect::<Vec<u8>>())
        },
    ] {
        by_name(entry, "broken");
    }
}

#[test]
fn sizes_behind_the_data_are_the_same_too() {
    let behind = |signature: &[u8], crc: u32, size: u32| {
        let sums = [crc, 3, size].map(u32::to_le_bytes).concat();
        ZipEntry {
            flags: 1 << 3,
            behind: [signature, &sums].concat(),
            ..stored("a", b"xyz")
        }
    };
    let crc = crc32fast::hash(b"xyz");
    for signature in [&b"PK\x07\x08"[..], b""] {
        assert_eq!(refused(behind(signature, crc, 3)), []);
        // Zeros in the header before it, as whoever can't go back writes them.
        let mut archive = zip(&[behind(signature, crc, 3)]);
        archive[14..26].fill(0);
        assert_eq!(problems(&archive, Format::Zip), []);
        by_name(behind(signature, crc ^ 1, 3), "broken");
        by_name(behind(signature, crc, 4), "broken");
    }
    by_name(
        ZipEntry {
            behind: Vec::new(),
            ..behind(b"", crc, 3)
        },
        "broken",
    );
}

#[test]
fn zip64_and_second_names_are_refused() {
    let field = |id: u16| {
        [
            id.to_le_bytes(),
            8u16.to_le_bytes(),
            [0; 2],
            [0; 2],
            [0; 2],
            [0; 2],
        ]
        .concat()
    };
    for (id, is_refused) in [(0x0001, true), (0x7075, true), (0x5455, false)] {
        let entry = ZipEntry {
            extra: field(id),
            ..stored("a", b"x")
        };
        assert_eq!(!refused(entry).is_empty(), is_refused, "{id:#x}");
    }
    // In the header at the data alone: the directory's is a field of another kind.
    let mut archive = zip(&[ZipEntry {
        extra: field(0x5455),
        ..stored("a", b"x")
    }]);
    archive[31..33].copy_from_slice(&1u16.to_le_bytes());
    assert_eq!(
        problems(&archive, Format::Zip),
        [(Some("a".to_owned()), "broken")]
    );
    for broken in [&b"\x55"[..], b"\x55\x54\x09\0x"] {
        let entry = ZipEntry {
            extra: broken.to_vec(),
            ..stored("a", b"x")
        };
        assert_eq!(refused(entry).len(), 1);
    }
    // Sizes, an offset, and a count that stand elsewhere.
    let archive = zip(&[stored("a", b"x")]);
    let (directory, end) = (archive.len() - 22 - 47, archive.len() - 22);
    for (at, length) in [
        (directory + 20, 4),
        (directory + 24, 4),
        (directory + 42, 4),
        (end + 8, 4),
        (end + 12, 4),
        (end + 16, 4),
    ] {
        let mut archive = archive.clone();
        archive[at..at + length].fill(0xff);
        assert!(message(&archive, Format::Zip).contains("zip64"), "{at}");
    }
    let mut located = archive[..end].to_vec();
    located.extend(b"PK\x06\x07");
    located.extend([0; 16]);
    located.extend(&archive[end..]);
    assert!(message(&located, Format::Zip).contains("zip64"));
}

#[test]
fn no_byte_is_left_over() {
    let good = zip(&[stored("a", b"x"), stored("b", b"y")]);
    assert_eq!(problems(&good, Format::Zip), []);
    let end_at = good.len() - 22;
    for place in [0, 32, 64, end_at, good.len()] {
        let mut archive = good.clone();
        archive.splice(place..place, *b"extra");
        assert_eq!(problems(&archive, Format::Zip).len(), 1, "at {place}");
    }
    // With offsets that were made to fit.
    let shifted = zip(&[
        ZipEntry {
            behind: b"extra".to_vec(),
            ..stored("a", b"x")
        },
        stored("b", b"y"),
    ]);
    assert!(message(&shifted, Format::Zip).contains("between them"));
    let behind = zip(&[ZipEntry {
        behind: b"extra".to_vec(),
        ..stored("a", b"x")
    }]);
    assert!(message(&behind, Format::Zip).contains("between its last entry and its directory"));
    let mut before = b"MZ".to_vec();
    before.extend(zip(&[ZipEntry {
        offset: Some(2),
        ..stored("a", b"x")
    }]));
    let start = before.len() - 20;
    let at = u32::from_le_bytes(before[start + 14..start + 18].try_into().unwrap()) + 2;
    before[start + 14..start + 18].copy_from_slice(&at.to_le_bytes());
    assert!(!problems(&before, Format::Zip).is_empty());
}

#[test]
fn entries_that_overlap_are_refused() {
    let inner = zip(&[stored("inner", b"x")]);
    let outer = [
        stored("outer", &inner),
        ZipEntry {
            offset: Some(35),
            ..stored("inner", b"x")
        },
    ];
    assert!(!problems(&zip(&outer), Format::Zip).is_empty());
    // Two names for the same data.
    let twice = [
        stored("a", b"x"),
        ZipEntry {
            offset: Some(0),
            ..stored("a2", b"x")
        },
    ];
    assert!(!problems(&zip(&twice), Format::Zip).is_empty());
}

#[test]
fn there_is_one_directory() {
    let good = zip(&[stored("a", b"x")]);
    let mut commented = good.clone();
    commented.extend(b"a comment");
    let at = good.len() - 2;
    commented[at] = 9;
    assert_eq!(problems(&commented, Format::Zip), []);
    // A comment that is an end as well.
    let mut two = good.clone();
    let other = end(0, 0, 0);
    two[at] = 22;
    two.extend(&other);
    assert_eq!(problems(&two, Format::Zip), [(None, "broken")]);
    // More and fewer entries than it counts, and several volumes.
    for (place, value) in [(8, 2), (8, 0), (4, 1), (6, 1)] {
        let mut archive = good.clone();
        let end_at = archive.len() - 22;
        archive[end_at + place] = value;
        if place == 8 {
            archive[end_at + 10] = value;
        }
        assert_eq!(
            problems(&archive, Format::Zip),
            [(None, "broken")],
            "{place} {value}"
        );
    }
    for length in 0..good.len() {
        assert!(
            !problems(&good[..length], Format::Zip).is_empty(),
            "{length} bytes of it"
        );
    }
    assert_eq!(problems(&zip(&[]), Format::Zip), [(None, "empty")]);
}
