//! The ways in which programs write a value that they did not mean to hide: base64, percent signs, JSON, source text, hex.

/// Every form of a value but its own; some may be equal to it, or to one another.
pub(super) fn of(value: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![hex(value, b"0123456789abcdef"), hex(value, b"0123456789ABCDEF")];
    for alphabet in [STANDARD, URL_SAFE] {
        all.extend((0..3).map(|before| base64(value, before, alphabet)));
    }
    for unescaped in [UNRESERVED, PYTHON_QUOTE, ENCODE_URI_COMPONENT, ENCODE_URI] {
        all.extend(HEX_CASES.map(|digits| percent(value, unescaped, false, digits)));
    }
    for unescaped in [FORM, UNRESERVED] {
        all.extend(HEX_CASES.map(|digits| percent(value, unescaped, true, digits)));
    }
    for style in JSON_STYLES {
        let once = json(value, &style);
        all.extend([json(&once, &style), once]);
    }
    all.extend(source_text(value));
    all
}

const HEX_CASES: [&[u8; 16]; 2] = [b"0123456789ABCDEF", b"0123456789abcdef"];
const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

// What stays as it is beside letters and digits: RFC 3986; Python's `quote`; ECMAScript's two; forms (WHATWG URL).
const UNRESERVED: &[u8] = b"-._~";
const PYTHON_QUOTE: &[u8] = b"-._~/";
const ENCODE_URI_COMPONENT: &[u8] = b"-._~!'()*";
const ENCODE_URI: &[u8] = b"-._~!'()*;,/?:@&=+$#";
const FORM: &[u8] = b"-._*";

fn digit(byte: u8, high: bool, digits: &[u8; 16]) -> u8 {
    digits[usize::from(if high { byte >> 4 } else { byte & 15 })]
}

fn hex(value: &[u8], digits: &[u8; 16]) -> Vec<u8> {
    value
        .iter()
        .flat_map(|byte| [digit(*byte, true, digits), digit(*byte, false, digits)])
        .collect()
}

/// The characters that stand for this value alone where `before` bytes, modulo 3, stand before it: those that share bits
/// with a neighbour differ with it.
fn base64(value: &[u8], before: usize, alphabet: &[u8; 64]) -> Vec<u8> {
    let bit = |at: usize| match at.checked_sub(8 * before) {
        Some(at) => value[at / 8] >> (7 - at % 8) & 1,
        None => 0,
    };
    let first = (8 * before).div_ceil(6);
    let end = 8 * (before + value.len()) / 6;
    let character = |n: usize| (6 * n..6 * n + 6).fold(0, |bits, at| bits << 1 | bit(at));
    (first..end)
        .map(|n| alphabet[usize::from(character(n))])
        .collect()
}

fn percent(value: &[u8], unescaped: &[u8], plus: bool, digits: &[u8; 16]) -> Vec<u8> {
    let mut made = Vec::new();
    for byte in value {
        match byte {
            b' ' if plus => made.push(b'+'),
            byte if byte.is_ascii_alphanumeric() || unescaped.contains(byte) => made.push(*byte),
            byte => made.extend([b'%', digit(*byte, true, digits), digit(*byte, false, digits)]),
        }
    }
    made
}

/// What an encoder of JSON escapes that it need not.
struct JsonStyle {
    /// Everything beyond ASCII: Python, PHP.
    ascii: bool,
    /// `/`: PHP.
    slash: bool,
    /// `<`, `>` and `&`: Go.
    html: bool,
}

const JSON_STYLES: [JsonStyle; 4] = [
    JsonStyle {
        ascii: false,
        slash: false,
        html: false,
    },
    JsonStyle {
        ascii: true,
        slash: false,
        html: false,
    },
    JsonStyle {
        ascii: true,
        slash: true,
        html: false,
    },
    JsonStyle {
        ascii: false,
        slash: false,
        html: true,
    },
];

fn json(value: &[u8], style: &JsonStyle) -> Vec<u8> {
    let mut made = Vec::new();
    for chunk in value.utf8_chunks() {
        for character in chunk.valid().chars() {
            json_character(character, style, &mut made);
        }
        made.extend(chunk.invalid());
    }
    made
}

fn json_character(character: char, style: &JsonStyle, made: &mut Vec<u8>) {
    let named = match character {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        '/' if style.slash => "\\/",
        _ => "",
    };
    let by_number = match character {
        '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => style.html,
        character => character < ' ' || (style.ascii && character > '\u{7e}'),
    };
    if !named.is_empty() {
        made.extend(named.bytes());
    } else if by_number || (style.ascii && !character.is_ascii()) {
        for unit in character.encode_utf16(&mut [0; 2]) {
            made.extend(format!("\\u{unit:04x}").bytes());
        }
    } else {
        made.extend(character.encode_utf8(&mut [0; 4]).bytes());
    }
}

/// As Python and C write a string between quotes, and as a shell quotes it.
fn source_text(value: &[u8]) -> Vec<Vec<u8>> {
    let escaped = |quote: bool, ascii: bool| {
        let mut made = Vec::new();
        for byte in value {
            match byte {
                b'\\' => made.extend(b"\\\\"),
                b'\n' => made.extend(b"\\n"),
                b'\r' => made.extend(b"\\r"),
                b'\t' => made.extend(b"\\t"),
                b'\'' if quote => made.extend(b"\\'"),
                byte if *byte < b' ' || *byte == 0x7f || (ascii && !byte.is_ascii()) => {
                    made.extend(format!("\\x{byte:02x}").bytes());
                }
                byte => made.push(*byte),
            }
        }
        made
    };
    let replaced =
        |with: &[u8]| -> Vec<u8> { value.split(|byte| *byte == b'\'').collect::<Vec<_>>().join(with) };
    vec![
        escaped(false, false),
        escaped(false, true),
        escaped(true, false),
        escaped(true, true),
        replaced(b"'\\''"),
        replaced(b"'\"'\"'"),
    ]
}

#[cfg(test)]
mod tests;
