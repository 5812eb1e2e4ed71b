//! `/proc/self/mountinfo`, as proc(5) describes it.

use mayfly_protocol::Mount;

/// Parses the whole file; lines that are not what proc(5) says are left out.
pub(crate) fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, mount_point, options) = (left.next()?, left.next()?, left.next()?);
    let mut right = right.split(' ');
    let (fstype, source, super_options) = (right.next()?, right.next()?, right.next()?);
    let mut super_options = split(super_options);
    if fstype == "overlay" {
        super_options.retain(|option| option == "ro" || option == "rw");
    }
    Some(Mount {
        mount_point: unescape(mount_point),
        root: unescape(root),
        fstype: fstype.to_owned(),
        source: unescape(source),
        options: split(options),
        super_options,
    })
}

fn split(options: &str) -> Vec<String> {
    options.split(',').map(unescape).collect()
}

/// Undoes the octal escapes of space, tab, line feed and backslash.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let escaped = part
            .get(..3)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped.filter(u8::is_ascii) {
            Some(byte) => {
                plain.push(char::from(byte));
                plain.push_str(&part[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_optional_fields_and_escapes_is_read() {
        let line = r"36 35 98:0 /a\040b /work\040dir rw,nosuid shared:1 master:2 - tmpfs tmpfs rw,size=65536k,nr_inodes=4096";
        let mounts = parse(line);
        assert_eq!(
            mounts,
            [Mount {
                mount_point: "/work dir".into(),
                root: "/a b".into(),
                fstype: "tmpfs".into(),
                source: "tmpfs".into(),
                options: vec!["rw".into(), "nosuid".into()],
                super_options: vec!["rw".into(), "size=65536k".into(), "nr_inodes=4096".into()],
            }]
        );
    }

    #[test]
    fn an_overlay_does_not_show_paths_of_the_host() {
        let line = "1 0 0:50 / / ro - overlay overlay rw,lowerdir=/var/lib/x,upperdir=/var/lib/y";
        assert_eq!(parse(line)[0].super_options, ["rw"]);
    }

    #[test]
    fn broken_lines_and_escapes_do_no_harm() {
        assert!(parse("nonsense\n1 2 3 - \n\n - - -").is_empty());
        assert_eq!(unescape(r"a\"), r"a\");
        assert_eq!(unescape(r"a\04"), r"a\04");
        assert_eq!(unescape(r"\134\377é\0é"), r"\\377é\0é");
    }
}
