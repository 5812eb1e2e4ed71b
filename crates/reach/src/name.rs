//! Names of hosts as requests and rules have them: parsed once, compared in one spelling.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use serde::{Deserialize, Serialize};

/// Most bytes of a name (RFC 1035, section 2.3.4), without a dot at its end.
const MAX_NAME: usize = 253;
/// Most bytes of one of its parts.
const MAX_LABEL: usize = 63;

/// The name of a host in the one spelling in which names are compared: ASCII, lower case, without a dot at its end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(String);

/// What a request asks for: a name, or an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// To be looked up.
    Name(HostName),
    /// An address, in its usual spelling.
    Address(IpAddr),
}

/// A host and a port of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Which host.
    pub host: Host,
    /// Which port, never 0.
    pub port: u16,
}

/// Why a text is no name of a host, or no host and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// Nothing is there.
    #[error("the name is empty")]
    Empty,
    /// More than 253 bytes, or a part of more than 63.
    #[error("the name, or a part of it, is too long")]
    TooLong,
    /// A part is empty, begins or ends with a hyphen, or has another character than letters, digits, `-` and `_`.
    #[error(
        "a part of the name is not made of letters, digits, `-` and `_`; names beyond ASCII go as `xn--…`"
    )]
    Label,
    /// It ends in a number, so that some programs take it for an address: `127.1`, `0x7f000001`, `2130706433`.
    #[error("it is spelled like an address, and is none in the usual spelling")]
    AddressSpelling,
    /// Brackets that hold no IPv6 address, or one with a zone.
    #[error("what stands in brackets is not an IPv6 address without a zone")]
    Brackets,
    /// A port that is none, or none where one must be.
    #[error("the port is missing, or is not a number from 1 to 65535 without zeros before it")]
    Port,
}

impl HostName {
    /// Parses a name: its case does not matter, nor does one dot at its end.
    ///
    /// # Errors
    /// [`NameFault`]; what ends in a number is no name.
    pub fn parse(text: &str) -> Result<Self, NameFault> {
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() {
            return Err(NameFault::Empty);
        }
        if name.len() > MAX_NAME || name.split('.').any(|label| label.len() > MAX_LABEL) {
            return Err(NameFault::TooLong);
        }
        if !name.split('.').all(is_label) {
            return Err(NameFault::Label);
        }
        if ends_in_number(name) {
            return Err(NameFault::AddressSpelling);
        }
        Ok(Self(name.to_ascii_lowercase()))
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is one or more parts before `parent`.
    #[must_use]
    pub fn is_below(&self, parent: &Self) -> bool {
        let rest = self.0.strip_suffix(parent.as_str());
        rest.is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
    }
}

fn is_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
}

/// Whether a resolver may take it for an IPv4 address, as inet_aton(3) does: its last part is decimal, octal or
/// hexadecimal.
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => last.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

impl TryFrom<String> for HostName {
    type Error = NameFault;

    fn try_from(text: String) -> Result<Self, NameFault> {
        Self::parse(&text)
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> Self {
        name.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Host {
    /// Parses a name, an IPv4 address, or an IPv6 address in brackets.
    ///
    /// # Errors
    /// [`NameFault`].
    pub fn parse(text: &str) -> Result<Self, NameFault> {
        if let Some(inside) = text.strip_prefix('[') {
            let address = inside
                .strip_suffix(']')
                .and_then(|inside| inside.parse::<Ipv6Addr>().ok());
            return address
                .map(|address| Self::Address(address.into()))
                .ok_or(NameFault::Brackets);
        }
        match text.parse::<Ipv4Addr>() {
            Ok(address) => Ok(Self::Address(address.into())),
            Err(_) => HostName::parse(text).map(Self::Name),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl Target {
    /// Parses `host:port`, or `host` where there is a usual port.
    ///
    /// # Errors
    /// [`NameFault`]; a user's name and a password before the host are no part of it.
    pub fn parse(text: &str, usual_port: Option<u16>) -> Result<Self, NameFault> {
        let after_host = match text.strip_prefix('[') {
            Some(inside) => inside.find(']').ok_or(NameFault::Brackets)? + 2,
            None => text.find(':').unwrap_or(text.len()),
        };
        let (host, rest) = text.split_at(after_host);
        let port = match rest.strip_prefix(':') {
            Some(port) => parse_port(port)?,
            None if rest.is_empty() => usual_port.ok_or(NameFault::Port)?,
            None => return Err(NameFault::Brackets),
        };
        let host = Host::parse(host)?;
        Ok(Self { host, port })
    }
}

/// A port: 1 to 65535, in decimal digits without zeros before them.
pub(crate) fn parse_port(text: &str) -> Result<u16, NameFault> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| digits).ok_or(NameFault::Port)
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Result<String, NameFault> {
        HostName::parse(text).map(String::from)
    }

    #[test]
    fn case_and_one_dot_at_the_end_make_no_other_name() {
        for text in ["example.com", "EXAMPLE.com", "eXample.Com."] {
            assert_eq!(name(text).as_deref(), Ok("example.com"), "{text}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = "a".repeat(64);
        let longer = "a.".repeat(127) + "com";
        for (text, fault) in [
            ("", NameFault::Empty),
            (".", NameFault::Empty),
            ("example.com..", NameFault::Label),
            (".example.com", NameFault::Label),
            ("a..b", NameFault::Label),
            ("ex ample.com", NameFault::Label),
            ("exa\tmple.com", NameFault::Label),
            ("example.com%00.evil.test", NameFault::Label),
            ("user@example.com", NameFault::Label),
            ("example.com\\@evil.test", NameFault::Label),
            ("*.example.com", NameFault::Label),
            ("-a.com", NameFault::Label),
            ("a-.com", NameFault::Label),
            ("exämple.com", NameFault::Label),
            ("example\u{3002}com", NameFault::Label),
            ("fe80::1%eth0", NameFault::Label),
            (&long, NameFault::TooLong),
            (&longer, NameFault::TooLong),
        ] {
            assert_eq!(name(text), Err(fault), "{text}");
        }
    }

    #[test]
    fn every_other_spelling_of_an_address_is_neither_address_nor_name() {
        for text in [
            "2130706433",
            "0x7f000001",
            "0X7F000001",
            "0x7f.1",
            "017700000001",
            "127.1",
            "127.0.0.01",
            "0",
            "0x",
            "1.2.3.4.5",
            "127.0.0.1.",
            "256.1.1.1",
            "example.0x7f",
            "example.com.1",
        ] {
            assert_eq!(Host::parse(text), Err(NameFault::AddressSpelling), "{text}");
        }
        assert!(matches!(Host::parse("127.0.0.1"), Ok(Host::Address(_))));
        assert!(matches!(Host::parse("1.example.com"), Ok(Host::Name(_))));
        assert!(matches!(Host::parse("0x7f.example"), Ok(Host::Name(_))));
    }

    #[test]
    fn a_target_has_one_host_and_one_port() {
        let target = |text| Target::parse(text, None).map(|target| target.to_string());
        assert_eq!(target("Example.com.:443").as_deref(), Ok("example.com:443"));
        assert_eq!(target("[::1]:443").as_deref(), Ok("[::1]:443"));
        for text in [
            "example.com",
            "example.com:",
            "example.com:0",
            "example.com:080",
            "example.com:+80",
            "example.com:65536",
            "example.com:80:80",
            "[::1]",
        ] {
            assert_eq!(target(text), Err(NameFault::Port), "{text}");
        }
        for text in ["[::1", "[::1%lo]:80", "[::1]80", "[]:80", "[127.0.0.1]:80"] {
            assert_eq!(target(text), Err(NameFault::Brackets), "{text}");
        }
        assert!(target("::1:443").is_err());
        let usual = Target::parse("example.com", Some(80)).unwrap();
        assert_eq!(usual.to_string(), "example.com:80");
    }

    #[test]
    fn a_name_is_below_another_by_whole_parts() {
        let below = |one: &str, other: &str| {
            HostName::parse(one)
                .unwrap()
                .is_below(&HostName::parse(other).unwrap())
        };
        assert!(below("a.example.com", "example.com"));
        assert!(below("a.b.example.com", "example.com"));
        assert!(!below("example.com", "example.com"));
        assert!(!below("badexample.com", "example.com"));
        assert!(!below("example.com.evil.test", "example.com"));
    }
}
