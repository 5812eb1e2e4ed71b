//! Which requests get a credential that the job never has: a host, methods, paths.

use std::fmt;

use crate::name::{Host, HostName, NameFault, Target};

/// The port of `http://` without one: a job asks in clear, and what it asks for goes on by TLS.
const CLEAR_PORT: u16 = 80;
/// Most methods, and most paths, of one rule.
const MOST: usize = 32;
/// Methods that are never passed on, or have no path.
const NEVER: [&str; 4] = ["CONNECT", "PRI", "TRACE", "TRACK"];

/// A host, and the requests to it that get a credential. The credential itself is nowhere in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialRule {
    host: HostName,
    port: u16,
    methods: Vec<String>,
    paths: Vec<Place>,
}

/// Which paths: `/v1/messages` is that path, `/simple/*` is every path that begins with `/simple/`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Exactly(String),
    Below(String),
}

/// Why there is no such rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialRuleFault {
    /// The host is no name.
    #[error("the host is none")]
    Host(#[from] NameFault),
    /// Port 0, or that of requests in clear.
    #[error("port {0} is none that is reached by TLS")]
    Port(u16),
    /// No methods, or too many.
    #[error("it names no method or more than {MOST}")]
    Methods,
    /// A method that gets none.
    #[error("{0:?} is no method in capital letters, or one that is never passed on")]
    Method(String),
    /// No paths, or too many.
    #[error("it names no path or more than {MOST}")]
    Paths,
    /// A path that is none.
    #[error(
        "{0:?} is no path: `/v1/messages` for that alone, `/simple/*` for all below, and nothing that can be read in two ways"
    )]
    Path(String),
}

impl CredentialRule {
    /// A rule for a host, which is reached by TLS at this port.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(
        host: &str,
        port: u16,
        methods: &[impl AsRef<str>],
        paths: &[impl AsRef<str>],
    ) -> Result<Self, CredentialRuleFault> {
        if port == 0 || port == CLEAR_PORT {
            return Err(CredentialRuleFault::Port(port));
        }
        if !(1..=MOST).contains(&methods.len()) {
            return Err(CredentialRuleFault::Methods);
        }
        if !(1..=MOST).contains(&paths.len()) {
            return Err(CredentialRuleFault::Paths);
        }
        Ok(Self {
            host: HostName::parse(host)?,
            port,
            methods: methods
                .iter()
                .map(AsRef::as_ref)
                .map(method)
                .collect::<Result<_, _>>()?,
            paths: paths
                .iter()
                .map(AsRef::as_ref)
                .map(place)
                .collect::<Result<_, _>>()?,
        })
    }

    /// Whether a request for this target is its matter: its host, at the port of `http://` or at its own.
    #[must_use]
    pub fn is_about(&self, target: &Target) -> bool {
        let host = matches!(&target.host, Host::Name(name) if *name == self.host);
        host && (target.port == CLEAR_PORT || target.port == self.port)
    }

    /// Where such a request goes.
    #[must_use]
    pub fn target(&self) -> Target {
        Target {
            host: Host::Name(self.host.clone()),
            port: self.port,
        }
    }

    /// How closely it names this request; nothing, where it does not. Methods have a case.
    #[must_use]
    pub fn names(&self, method: &str, path: &PlainPath<'_>) -> Option<usize> {
        if !self.methods.iter().any(|named| named == method) {
            return None;
        }
        self.paths.iter().filter_map(|place| place.names(path)).max()
    }

    /// Whether two rules can't stand beside one another: a host has two ports, or one request two credentials that are named
    /// equally closely.
    #[must_use]
    pub fn collides_with(&self, other: &Self) -> bool {
        let methods = self.methods.iter().any(|one| other.methods.contains(one));
        let paths = self.paths.iter().any(|one| other.paths.contains(one));
        self.host == other.host && (self.port != other.port || methods && paths)
    }
}

impl Place {
    /// An exact path is closer than any that stands for more.
    fn names(&self, path: &PlainPath<'_>) -> Option<usize> {
        match self {
            Self::Exactly(exact) => (path.0 == exact).then_some(usize::MAX),
            Self::Below(begin) => path.0.starts_with(begin.as_str()).then_some(begin.len()),
        }
    }
}

fn method(text: &str) -> Result<String, CredentialRuleFault> {
    let letters = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    if letters && !NEVER.contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(CredentialRuleFault::Method(text.to_owned()))
    }
}

fn place(text: &str) -> Result<Place, CredentialRuleFault> {
    let (path, make): (_, fn(String) -> Place) = match text.strip_suffix('*') {
        Some(begin) if begin.ends_with('/') => (begin, Place::Below),
        _ => (text, Place::Exactly),
    };
    let plain = !path.contains(['?', '*']) && PlainPath::of(path).is_ok();
    if plain {
        Ok(make(path.to_owned()))
    } else {
        Err(CredentialRuleFault::Path(text.to_owned()))
    }
}

/// A path of a request that every server reads in the same way.
///
/// Servers take out dots, decode once or twice, merge slashes, cut at `;`, turn `\` around; a path to which any of that
/// happens is named by one rule here and is another one there. So there is none of it: no part of dots alone, none that is
/// empty but the last, and behind `%` nothing that could stand as it is or that separates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainPath<'a>(&'a str);

/// A path that could be read in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the path can be read in more than one way")]
pub struct AmbiguousPath;

impl<'a> PlainPath<'a> {
    /// The path of a request's target; a query behind it is no part of it.
    ///
    /// # Errors
    /// [`AmbiguousPath`].
    pub fn of(target: &'a str) -> Result<Self, AmbiguousPath> {
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        let parts = path.strip_prefix('/').ok_or(AmbiguousPath)?;
        let mut parts = parts.split('/').peekable();
        while let Some(part) = parts.next() {
            let is_last = parts.peek().is_none();
            if part.is_empty() && !is_last || !is_plain(part) {
                return Err(AmbiguousPath);
            }
        }
        Ok(Self(path))
    }
}

impl fmt::Display for PlainPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

fn is_plain(part: &str) -> bool {
    // `.` and `..`, also with spaces around, which some file systems take away.
    let bare = part.replace("%20", "");
    if !part.is_empty() && bare.bytes().all(|byte| byte == b'.') {
        return false;
    }
    let mut bytes = part.bytes();
    while let Some(byte) = bytes.next() {
        let fine = match byte {
            b'%' => {
                let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
                match (digit(bytes.next()), digit(bytes.next())) {
                    (Some(high), Some(low)) => may_be_encoded(high * 16 + low),
                    _ => false,
                }
            }
            byte => byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@".contains(&byte),
        };
        if !fine {
            return false;
        }
    }
    true
}

/// What has to be written like this to stand in a path at all, or changes nothing in it. Nothing beyond ASCII: too long
/// forms of `/`, and characters that some servers take for one.
fn may_be_encoded(byte: u32) -> bool {
    char::from_u32(byte).is_some_and(|character| " \"<>[]^`{|}!$&'()+,=:@".contains(character))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(paths: &[&str]) -> CredentialRule {
        CredentialRule::new("A.test", 443, &["GET", "POST"], paths).unwrap()
    }

    #[test]
    fn a_path_that_two_servers_could_read_differently_is_none() {
        for bad in [
            "",
            "*",
            "a",
            "//",
            "//a",
            "/a//b",
            "/.",
            "/..",
            "/a/../b",
            "/a/./b",
            "/a/..",
            "/a/.%20",
            "/a/%20..",
            "/a/...",
            "/a/%2e%2e/b",
            "/a/%2E./b",
            "/a/.%2e/b",
            "/a%2fb",
            "/a%2Fb",
            "/a%5cb",
            "/a\\b",
            "/a/..;/b",
            "/a;x=y/b",
            "/a%3bx",
            "/a%3fx",
            "/a%23x",
            "/a%252e%252e",
            "/a%25",
            "/a%00",
            "/a%0d%0a",
            "/a%7f",
            "/a%",
            "/a%2",
            "/a%zz",
            "/%61",
            "/a%41",
            "/%30",
            "/%2d",
            "/%5f",
            "/%7e",
            "/a%c0%af",
            "/a%c0%ae",
            "/%ef%bc%8f",
            "/\u{e9}",
            "/a#b",
            "/a b",
            "/a\"b",
            "/a|b",
            "/a^b",
            "/a[b",
        ] {
            assert_eq!(PlainPath::of(bad), Err(AmbiguousPath), "{bad:?}");
        }
        for (good, path) in [
            ("/", "/"),
            ("/?a=../%2e", "/"),
            ("/a/", "/a/"),
            ("/a/.b/c..d/...e", "/a/.b/c..d/...e"),
            ("/@scope%20x/v1:run,(1)?q", "/@scope%20x/v1:run,(1)"),
        ] {
            assert_eq!(PlainPath::of(good), Ok(PlainPath(path)), "{good:?}");
        }
    }

    #[test]
    fn a_rule_names_its_methods_and_paths_and_no_others() {
        let rule = rule(&["/simple/*", "/v1/messages"]);
        let names = |method, path| rule.names(method, &PlainPath::of(path).unwrap()).is_some();
        for (method, path) in [
            ("GET", "/simple/"),
            ("GET", "/simple/x/y?z"),
            ("POST", "/v1/messages?beta=true"),
        ] {
            assert!(names(method, path), "{method} {path}");
        }
        for (method, path) in [
            ("PUT", "/simple/x"),
            ("get", "/simple/x"),
            ("GET", "/simple"),
            ("GET", "/simpleton"),
            ("GET", "/Simple/x"),
            ("GET", "/"),
            ("POST", "/v1/messages/"),
            ("POST", "/v1/messages/batches"),
            ("GET", "/x?/simple/"),
        ] {
            assert!(!names(method, path), "{method} {path}");
        }
    }

    #[test]
    fn a_rule_is_about_its_host_at_its_port_and_at_that_of_http() {
        let rule = CredentialRule::new("a.test.", 8443, &["GET"], &["/*"]).unwrap();
        for (target, about) in [
            ("a.test:80", true),
            ("A.test.:8443", true),
            ("a.test:443", false),
            ("x.a.test:80", false),
            ("93.184.216.34:80", false),
        ] {
            assert_eq!(
                rule.is_about(&Target::parse(target, None).unwrap()),
                about,
                "{target}"
            );
        }
        assert_eq!(rule.target().to_string(), "a.test:8443");
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        use CredentialRuleFault as Fault;
        let made = |host, port, methods: &[&str], paths: &[&str]| {
            CredentialRule::new(host, port, methods, paths).unwrap_err()
        };
        assert!(matches!(
            made("127.0.0.1", 443, &["GET"], &["/*"]),
            Fault::Host(_)
        ));
        assert_eq!(made("a.test", 80, &["GET"], &["/*"]), Fault::Port(80));
        assert_eq!(made("a.test", 443, &[], &["/*"]), Fault::Methods);
        assert_eq!(made("a.test", 443, &["GET"], &[]), Fault::Paths);
        for method in ["TRACE", "TRACK", "CONNECT", "PRI", "get", "*", ""] {
            assert_eq!(
                made("a.test", 443, &[method], &["/*"]),
                Fault::Method(method.to_owned())
            );
        }
        for path in [
            "",
            "*",
            "x",
            "/a*",
            "/*/b",
            "/a?b",
            "/a/../b",
            "/%2e%2e/*",
            "/a;b",
        ] {
            assert_eq!(
                made("a.test", 443, &["GET"], &[path]),
                Fault::Path(path.to_owned())
            );
        }
    }

    #[test]
    fn the_closer_of_two_paths_counts_and_two_equally_close_ones_collide() {
        let (wide, near) = (rule(&["/*"]), rule(&["/a/*", "/a/b"]));
        let path = PlainPath::of("/a/b").unwrap();
        assert!(near.names("GET", &path) > wide.names("GET", &path));
        assert!(!wide.collides_with(&near) && wide.collides_with(&rule(&["/b", "/*"])));
        let elsewhere = CredentialRule::new("a.test", 8443, &["PUT"], &["/b"]).unwrap();
        assert!(wide.collides_with(&elsewhere), "a host has one port");
        let other = CredentialRule::new("b.test", 8443, &["GET"], &["/*"]).unwrap();
        assert!(!wide.collides_with(&other));
    }
}
