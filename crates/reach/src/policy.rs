//! Which hosts, ports and addresses a job may reach.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use ipnet::IpNet;

use crate::{
    address::AddressClass,
    name::{Host, HostName, NameFault, Target, parse_port},
    record::Reason,
};

/// The ports of a rule that names none: HTTP and HTTPS.
const USUAL_PORTS: [u16; 2] = [80, 443];

/// What a job may reach; nothing, where there is no rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    own: Vec<IpNet>,
}

/// One line of a policy. As a text:
///
/// | text | lets through |
/// |---|---|
/// | `pypi.org` | this name, ports 80 and 443 |
/// | `pypi.org:8443` | this name, this port |
/// | `*.example.com` | every name below, and not `example.com` itself |
/// | `10.2.0.0/16:443`, `[fd12::/32]:443` | these addresses, by a name of another rule or by themselves |
/// | `tcp://db.example.com:5432` | whatever is said through CONNECT, not TLS alone |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    what: What,
    ports: Vec<u16>,
    inside: Inside,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Name(HostName),
    Below(HostName),
    Range(IpNet),
}

/// What may go through a CONNECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inside {
    /// TLS that says the name which was asked for.
    Tls,
    /// Anything; nobody looks at it.
    Anything,
}

/// Why a text is no rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// Its name, address or port is none.
    #[error(transparent)]
    Name(#[from] NameFault),
    /// A name beyond ASCII that is none.
    #[error("the name is not one that a domain can have (IDNA 2008)")]
    Idna,
    /// A `*` that stands anywhere else than in `*.` at the beginning.
    #[error("a `*` stands for whole parts of a name, and only as `*.` at its beginning")]
    Wildcard,
    /// `*.com`: everybody's names.
    #[error("a wildcard needs two parts or more behind it, as in `*.example.com`")]
    WildcardTooWide,
    /// An address alone.
    #[error("addresses are named as a range, as in `10.2.0.7/32`")]
    Address,
    /// A range that is none, or has bits behind its prefix.
    #[error("it is no range of addresses, or has bits behind its prefix: `10.2.0.0/16`")]
    Range,
    /// A range of which nothing may ever be reached.
    #[error("nothing in that range can be opened: it is the executor's own host, its link or its cloud's")]
    NeverOpen,
    /// `tcp://` without a port.
    #[error("`tcp://` needs a port: it lets anything through")]
    TcpPort,
}

impl Rule {
    fn of_range(range: &str, ports: Vec<u16>, inside: Inside) -> Result<Self, RuleFault> {
        let range: IpNet = range.parse().map_err(|_| RuleFault::Range)?;
        if range.trunc() != range {
            return Err(RuleFault::Range);
        }
        let ends = [range.network(), range.broadcast()].map(AddressClass::of);
        if !ends[0].may_be_named() && ends[0] == ends[1] {
            return Err(RuleFault::NeverOpen);
        }
        Ok(Self {
            what: What::Range(range),
            ports,
            inside,
        })
    }

    /// Whether whatever the other rule lets through is let through by this one too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let what = match (&self.what, &other.what) {
            (What::Name(ours), What::Name(theirs)) => ours == theirs,
            (What::Below(parent), What::Name(name)) => name.is_below(parent),
            (What::Below(parent), What::Below(theirs)) => theirs == parent || theirs.is_below(parent),
            (What::Range(ours), What::Range(theirs)) => ours.contains(theirs),
            (What::Name(_), What::Below(_) | What::Range(_))
            | (What::Below(_), What::Range(_))
            | (What::Range(_), What::Name(_) | What::Below(_)) => false,
        };
        let ports = other.ports.iter().all(|port| self.ports.contains(port));
        let inside = self.inside == Inside::Anything || other.inside == Inside::Tls;
        what && ports && inside
    }

    fn names(&self, host: &Host) -> bool {
        match (&self.what, host) {
            (What::Name(name), Host::Name(asked)) => name == asked,
            (What::Below(parent), Host::Name(asked)) => asked.is_below(parent),
            (What::Range(range), Host::Address(asked)) => range.contains(asked),
            _ => false,
        }
    }
}

impl FromStr for Rule {
    type Err = RuleFault;

    fn from_str(text: &str) -> Result<Self, RuleFault> {
        let (inside, text) = match text.strip_prefix("tcp://") {
            Some(rest) => (Inside::Anything, rest),
            None => (Inside::Tls, text),
        };
        let is_range = text.contains('/');
        let (host, port) = match (text.strip_prefix('['), text.rsplit_once(':')) {
            (Some(bracketed), _) => match bracketed.split_once(']') {
                Some((host, "")) => (host, None),
                Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or(NameFault::Port)?)),
                None => return Err(NameFault::Brackets.into()),
            },
            // `fd12::/32` has no port; `10.2.0.0/16:443` has one.
            (None, Some((host, port))) if !is_range || host.contains('/') => (host, Some(port)),
            (None, _) => (text, None),
        };
        let ports = match port.map(parse_port).transpose()? {
            Some(port) => vec![port],
            None if inside == Inside::Anything => return Err(RuleFault::TcpPort),
            None => USUAL_PORTS.to_vec(),
        };
        if is_range {
            return Self::of_range(host, ports, inside);
        }
        if host.parse::<IpAddr>().is_ok() {
            return Err(RuleFault::Address);
        }
        let (wildcard, host) = match host.strip_prefix("*.") {
            Some(parent) => (true, parent),
            None => (false, host),
        };
        if host.contains('*') {
            return Err(RuleFault::Wildcard);
        }
        let name = if host.is_ascii() {
            HostName::parse(host)?
        } else {
            let ascii = idna::domain_to_ascii_strict(host).map_err(|_| RuleFault::Idna)?;
            HostName::parse(&ascii)?
        };
        if wildcard && !name.as_str().contains('.') {
            return Err(RuleFault::WildcardTooWide);
        }
        let what = if wildcard {
            What::Below(name)
        } else {
            What::Name(name)
        };
        Ok(Self { what, ports, inside })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.inside == Inside::Anything {
            f.write_str("tcp://")?;
        }
        match &self.what {
            What::Name(name) => name.fmt(f)?,
            What::Below(parent) => write!(f, "*.{parent}")?,
            What::Range(range @ IpNet::V4(_)) => range.fmt(f)?,
            What::Range(range @ IpNet::V6(_)) => write!(f, "[{range}]")?,
        }
        match self.ports.as_slice() {
            [port] => write!(f, ":{port}"),
            _ => Ok(()),
        }
    }
}

/// A host and port that may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admitted {
    /// What may be said through CONNECT.
    pub inside: Inside,
    /// By a wildcard alone.
    pub by_wildcard: bool,
}

/// An address that the policy lets through. Nobody but the policy makes one, so that what is dialled was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckedAddress(SocketAddr);

impl CheckedAddress {
    /// The address and the port.
    #[must_use]
    pub const fn get(self) -> SocketAddr {
        self.0
    }
}

impl Policy {
    /// A policy of these rules. `own` are addresses of services of ours, which no rule opens.
    #[must_use]
    pub const fn new(rules: Vec<Rule>, own: Vec<IpNet>) -> Self {
        Self { rules, own }
    }

    /// A policy of rules as texts.
    ///
    /// # Errors
    /// All that are none, by their place.
    pub fn parse<'a>(
        allow: impl IntoIterator<Item = &'a str>,
        own: Vec<IpNet>,
    ) -> Result<Self, Vec<(usize, RuleFault)>> {
        let (mut rules, mut faults) = (Vec::new(), Vec::new());
        for (place, text) in allow.into_iter().enumerate() {
            match text.parse() {
                Ok(rule) => rules.push(rule),
                Err(fault) => faults.push((place, fault)),
            }
        }
        if faults.is_empty() {
            Ok(Self::new(rules, own))
        } else {
            Err(faults)
        }
    }

    /// Whether this host may be asked for at this port. Its addresses are judged by [`Self::check`].
    ///
    /// # Errors
    /// Why not.
    pub fn admit(&self, target: &Target) -> Result<Admitted, Reason> {
        let named = || self.rules.iter().filter(|rule| rule.names(&target.host));
        let mut open = named()
            .filter(|rule| rule.ports.contains(&target.port))
            .peekable();
        if open.peek().is_none() {
            return Err(match target.host {
                _ if named().next().is_some() => Reason::PortNotAllowed,
                Host::Name(_) => Reason::NameNotAllowed,
                Host::Address(_) => Reason::AddressNotAllowed,
            });
        }
        let by_wildcard = open.clone().all(|rule| matches!(rule.what, What::Below(_)));
        let anything = open.any(|rule| rule.inside == Inside::Anything);
        Ok(Admitted {
            inside: if anything { Inside::Anything } else { Inside::Tls },
            by_wildcard,
        })
    }

    /// Whether this address may be dialled at this port: it is public, or a rule names its range, and it is never one
    /// that no rule can open.
    ///
    /// # Errors
    /// Why not, and what kind of address it is.
    pub fn check(&self, address: IpAddr, port: u16) -> Result<CheckedAddress, (Reason, AddressClass)> {
        let class = AddressClass::of(address);
        if self.own.iter().any(|net| net.contains(&address)) {
            return Err((Reason::OwnAddress, class));
        }
        let named = || {
            self.rules.iter().any(|rule| {
                matches!(&rule.what, What::Range(range) if range.contains(&address))
                    && rule.ports.contains(&port)
            })
        };
        if class == AddressClass::Public || class.may_be_named() && named() {
            Ok(CheckedAddress(SocketAddr::new(address, port)))
        } else {
            Err((Reason::AddressRefused, class))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(rules: &[&str]) -> Policy {
        Policy::parse(rules.iter().copied(), vec!["203.0.114.0/24".parse().unwrap()]).unwrap()
    }

    fn admit(policy: &Policy, target: &str) -> Result<Inside, Reason> {
        let target = Target::parse(target, None).unwrap();
        policy.admit(&target).map(|admitted| admitted.inside)
    }

    #[test]
    fn a_name_is_let_through_as_it_is_named_and_at_its_ports() {
        let policy = policy(&["Example.com.", "*.pythonhosted.org:443", "tcp://db.test:5432"]);
        for (target, expected) in [
            ("example.com:443", Ok(Inside::Tls)),
            ("EXAMPLE.COM.:80", Ok(Inside::Tls)),
            ("example.com:22", Err(Reason::PortNotAllowed)),
            ("www.example.com:443", Err(Reason::NameNotAllowed)),
            ("example.com.evil.test:443", Err(Reason::NameNotAllowed)),
            ("files.pythonhosted.org:443", Ok(Inside::Tls)),
            ("a.b.pythonhosted.org:443", Ok(Inside::Tls)),
            ("files.pythonhosted.org:80", Err(Reason::PortNotAllowed)),
            ("pythonhosted.org:443", Err(Reason::NameNotAllowed)),
            ("evilpythonhosted.org:443", Err(Reason::NameNotAllowed)),
            ("db.test:5432", Ok(Inside::Anything)),
            ("93.184.216.34:443", Err(Reason::AddressNotAllowed)),
            ("[2606:2800::1]:443", Err(Reason::AddressNotAllowed)),
        ] {
            assert_eq!(admit(&policy, target), expected, "{target}");
        }
        assert_eq!(
            admit(&Policy::default(), "example.com:443"),
            Err(Reason::NameNotAllowed)
        );
    }

    #[test]
    fn names_beyond_ascii_are_compared_in_the_form_that_requests_have() {
        let policy = policy(&["bücher.example"]);
        assert_eq!(admit(&policy, "xn--bcher-kva.example:443"), Ok(Inside::Tls));
    }

    #[test]
    fn a_range_opens_its_addresses_and_nothing_that_must_stay_closed() {
        let policy = policy(&["10.2.0.0/16:443", "[fd12::/32]:443", "0.0.0.0/0:8080", "::/0"]);
        let check = |address: &str, port| {
            let checked = policy.check(address.parse().unwrap(), port);
            checked.map(|_| ()).map_err(|(reason, _)| reason)
        };
        assert_eq!(check("10.2.3.4", 443), Ok(()));
        assert_eq!(check("10.2.3.4", 80), Err(Reason::AddressRefused));
        assert_eq!(check("10.3.3.4", 443), Err(Reason::AddressRefused));
        assert_eq!(check("fd12::7", 443), Ok(()));
        assert_eq!(check("1.1.1.1", 443), Ok(()));
        assert_eq!(check("203.0.114.9", 443), Err(Reason::OwnAddress));
        for closed in [
            "127.0.0.1",
            "169.254.169.254",
            "0.0.0.0",
            "224.0.0.1",
            "168.63.129.16",
        ] {
            assert_eq!(check(closed, 8080), Err(Reason::AddressRefused), "{closed}");
        }
        for closed in [
            "::1",
            "::ffff:10.2.3.4",
            "64:ff9b::a02:304",
            "2002:a02:304::1",
            "fd00:ec2::254",
        ] {
            assert_eq!(check(closed, 443), Err(Reason::AddressRefused), "{closed}");
        }
        assert_eq!(admit(&policy, "10.2.3.4:443"), Ok(Inside::Tls));
        assert_eq!(admit(&policy, "10.3.3.4:443"), Err(Reason::PortNotAllowed));
    }

    #[test]
    fn a_text_that_is_no_rule_says_why() {
        for (text, fault) in [
            ("", RuleFault::Name(NameFault::Empty)),
            ("*", RuleFault::Wildcard),
            ("*.com", RuleFault::WildcardTooWide),
            ("a.*.example.com", RuleFault::Wildcard),
            ("*example.com", RuleFault::Wildcard),
            ("example.com:0", RuleFault::Name(NameFault::Port)),
            ("example.com:http", RuleFault::Name(NameFault::Port)),
            ("10.2.0.7", RuleFault::Address),
            ("127.1", RuleFault::Name(NameFault::AddressSpelling)),
            ("10.2.0.7/16", RuleFault::Range),
            ("10.2.0.0/33", RuleFault::Range),
            ("127.0.0.0/8", RuleFault::NeverOpen),
            ("169.254.169.254/32", RuleFault::NeverOpen),
            ("[::1/128]:80", RuleFault::NeverOpen),
            ("tcp://example.com", RuleFault::TcpPort),
            ("https://example.com", RuleFault::Range),
        ] {
            assert_eq!(text.parse::<Rule>(), Err(fault), "{text}");
        }
        let faults = Policy::parse(["a.test", "*", "b.test", "*.com"], Vec::new()).unwrap_err();
        assert_eq!(faults.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn a_rule_covers_what_lets_no_more_through() {
        let covers =
            |ours: &str, theirs: &str| ours.parse::<Rule>().unwrap().covers(&theirs.parse().unwrap());
        for (ours, theirs) in [
            ("pypi.org", "PyPI.org."),
            ("pypi.org", "pypi.org:443"),
            ("*.example.com", "a.example.com"),
            ("*.example.com", "*.example.com"),
            ("*.example.com", "*.a.example.com:80"),
            ("10.0.0.0/8:443", "10.2.0.0/16:443"),
            ("[fd12::/32]:443", "[fd12::7/128]:443"),
            ("tcp://db.test:5432", "db.test:5432"),
            ("tcp://db.test:5432", "tcp://db.test:5432"),
        ] {
            assert!(covers(ours, theirs), "{ours} {theirs}");
        }
        for (ours, theirs) in [
            ("pypi.org", "files.pypi.org"),
            ("pypi.org", "*.pypi.org"),
            ("pypi.org", "pypi.org:8443"),
            ("pypi.org:443", "pypi.org"),
            ("*.example.com", "example.com"),
            ("*.a.example.com", "*.example.com"),
            ("*.example.com", "evilexample.com"),
            ("10.2.0.0/16:443", "10.0.0.0/8:443"),
            ("10.2.0.0/16:443", "10.2.0.0/16:80"),
            ("0.0.0.0/0", "pypi.org"),
            ("pypi.org", "10.2.0.0/16"),
            ("db.test:5432", "tcp://db.test:5432"),
        ] {
            assert!(!covers(ours, theirs), "{ours} {theirs}");
        }
    }

    #[test]
    fn a_rule_reads_as_it_is_written() {
        for text in [
            "example.com",
            "example.com:8443",
            "*.example.com",
            "10.2.0.0/16:443",
            "[fd12::/32]:443",
            "tcp://db.test:5432",
        ] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
        assert_eq!("fd12::/32".parse::<Rule>().unwrap().to_string(), "[fd12::/32]");
    }
}
