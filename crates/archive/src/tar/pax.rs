//! The fields of pax extensions (POSIX.1-2001, pax, "pax Extended Header").

/// What matters of them here.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fields<'a> {
    pub(super) name: Option<&'a [u8]>,
    pub(super) size: Option<u64>,
    pub(super) has_target: bool,
}

/// Records `LENGTH KEY=VALUE\n`, of which the length counts all of it.
pub(super) fn read(mut data: &[u8]) -> Result<Fields<'_>, &'static str> {
    const BROKEN: &str = "the records of one of its pax extensions are broken";
    const TWICE: &str = "one of its pax extensions has a field twice";
    let mut fields = Fields::default();
    while !data.is_empty() {
        let space = data
            .iter()
            .take(20)
            .position(|byte| *byte == b' ')
            .ok_or(BROKEN)?;
        let length = usize::try_from(decimal(&data[..space]).ok_or(BROKEN)?).map_err(|_| BROKEN)?;
        let (record, rest) = data.split_at_checked(length).ok_or(BROKEN)?;
        let record = record
            .get(space + 1..)
            .and_then(|record| record.strip_suffix(b"\n"))
            .ok_or(BROKEN)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or(BROKEN)?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        let is_second = match key {
            b"path" if value.is_empty() || value.contains(&0) => return Err(BROKEN),
            b"path" => fields.name.replace(value).is_some(),
            b"size" => fields.size.replace(decimal(value).ok_or(BROKEN)?).is_some(),
            b"linkpath" => std::mem::replace(&mut fields.has_target, true),
            b"hdrcharset" => return Err("one of its pax extensions has names in another encoding"),
            _ if key.starts_with(b"GNU.sparse.") => return Err("it has a sparse file"),
            _ if key.is_empty() => return Err(BROKEN),
            _ => false,
        };
        if is_second {
            return Err(TWICE);
        }
        data = rest;
    }
    Ok(fields)
}

/// A decimal number without a sign and without zeros before it.
fn decimal(digits: &[u8]) -> Option<u64> {
    let has_one_form = matches!(digits, [b'0'] | [b'1'..=b'9', ..]) && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| has_one_form)?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_one_form() {
        let fields = read(b"12 path=a/b\n9 size=7\n20 comment=whatever\n").unwrap();
        assert_eq!((fields.name, fields.size), (Some(&b"a/b"[..]), Some(7)));
        for wrong in [
            &b"12 path=a/b"[..],
            b"11 path=a/b\n",
            b"13 path=a/b\n",
            b"012 path=a/b\n",
            b"+12 path=a/b\n",
            b"8 path=\n",
            b"10 path=a\0\n",
            b"9 path=a\n9 path=b\n",
            b"10 size=-1\n",
            b"11 size=0x1\n",
            b"10 size=07\n",
            b"5 =a\n",
            b"6 path\n",
            b"22 GNU.sparse.major=1\n",
            b"21 hdrcharset=BINARY\n",
            b"99999999999999999999 path=a\n",
            b"3 \n",
            b"0 path=a\n",
        ] {
            assert!(read(wrong).is_err(), "{}", wrong.escape_ascii());
        }
    }
}
