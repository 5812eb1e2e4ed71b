//! What an address is, by the registries of special addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// What kind of address it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum AddressClass {
    /// One on the Internet.
    Public,
    /// Where a cloud tells its machines their credentials.
    Metadata,
    /// The executor's own host.
    Loopback,
    /// No address (RFC 1122, section 3.2.1.3; RFC 4291, section 2.5.2).
    Unspecified,
    /// RFC 3927; RFC 4291, section 2.5.6.
    LinkLocal,
    /// RFC 5771; RFC 4291, section 2.7.
    Multicast,
    /// RFC 1918.
    Private,
    /// RFC 4193.
    UniqueLocal,
    /// RFC 6598: between a provider and its customers.
    CarrierGrade,
    /// An IPv4 address in an IPv6 one: mapped and compatible (RFC 4291, section 2.5.5), NAT64 (RFC 6052, RFC 8215), 6to4
    /// (RFC 3056), Teredo (RFC 4380). Where it ends is not where it seems to.
    Embedded,
    /// For documents (RFC 5737, RFC 3849, RFC 9637).
    Documentation,
    /// For measurements (RFC 2544, RFC 5180).
    Benchmark,
    /// What protocols have for themselves (RFC 6890), and all that nobody has yet.
    Reserved,
}

/// Addresses at which clouds serve credentials, in whatever range they lie. 168.63.129.16 is a public one.
const METADATA_V4: [[u8; 4]; 5] = [
    [169, 254, 169, 254],
    [169, 254, 170, 2],
    [100, 100, 100, 200],
    [192, 0, 0, 192],
    [168, 63, 129, 16],
];
const METADATA_V6: [Ipv6Addr; 1] = [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)];

/// IANA's registry of special IPv4 addresses.
const SPECIAL_V4: [([u8; 4], u32, AddressClass); 16] = [
    ([0, 0, 0, 0], 8, AddressClass::Unspecified),
    ([10, 0, 0, 0], 8, AddressClass::Private),
    ([100, 64, 0, 0], 10, AddressClass::CarrierGrade),
    ([127, 0, 0, 0], 8, AddressClass::Loopback),
    ([169, 254, 0, 0], 16, AddressClass::LinkLocal),
    ([172, 16, 0, 0], 12, AddressClass::Private),
    ([192, 0, 0, 0], 24, AddressClass::Reserved),
    ([192, 0, 2, 0], 24, AddressClass::Documentation),
    // What was the way to a 6to4 relay.
    ([192, 88, 99, 0], 24, AddressClass::Embedded),
    ([192, 168, 0, 0], 16, AddressClass::Private),
    ([198, 18, 0, 0], 15, AddressClass::Benchmark),
    ([198, 51, 100, 0], 24, AddressClass::Documentation),
    ([203, 0, 113, 0], 24, AddressClass::Documentation),
    ([224, 0, 0, 0], 4, AddressClass::Multicast),
    ([240, 0, 0, 0], 4, AddressClass::Reserved),
    ([255, 255, 255, 255], 32, AddressClass::Reserved),
];

/// IANA's registry of special IPv6 addresses; what of the rest is not in 2000::/3 is nobody's.
const SPECIAL_V6: [([u16; 8], u32, AddressClass); 16] = [
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, AddressClass::Unspecified),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, AddressClass::Loopback),
    ([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, AddressClass::Embedded),
    ([0, 0, 0, 0, 0, 0, 0, 0], 96, AddressClass::Embedded),
    ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, AddressClass::Embedded),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, AddressClass::Embedded),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, AddressClass::Embedded),
    ([0x2001, 2, 0, 0, 0, 0, 0, 0], 48, AddressClass::Benchmark),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, AddressClass::Documentation),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, AddressClass::Reserved),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, AddressClass::Embedded),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, AddressClass::Documentation),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, AddressClass::UniqueLocal),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, AddressClass::LinkLocal),
    // Site-local, which RFC 3879 gave up.
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, AddressClass::Reserved),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, AddressClass::Multicast),
];

impl AddressClass {
    /// Says what an address is.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        }
    }

    /// Whether a policy that names a range may open addresses of this kind. The others stay closed whatever is named:
    /// behind them are the executor itself, its neighbours on the link and its cloud's credentials, or nobody knows who.
    #[must_use]
    pub const fn may_be_named(self) -> bool {
        match self {
            Self::Public
            | Self::Private
            | Self::UniqueLocal
            | Self::CarrierGrade
            | Self::Documentation
            | Self::Benchmark => true,
            Self::Metadata
            | Self::Loopback
            | Self::Unspecified
            | Self::LinkLocal
            | Self::Multicast
            | Self::Embedded
            | Self::Reserved => false,
        }
    }
}

fn of_v4(address: Ipv4Addr) -> AddressClass {
    if METADATA_V4.contains(&address.octets()) {
        return AddressClass::Metadata;
    }
    let bits = address.to_bits();
    SPECIAL_V4
        .iter()
        .find(|(net, prefix, _)| (bits ^ Ipv4Addr::from(*net).to_bits()).leading_zeros() >= *prefix)
        .map_or(AddressClass::Public, |(_, _, class)| *class)
}

fn of_v6(address: Ipv6Addr) -> AddressClass {
    if METADATA_V6.contains(&address) {
        return AddressClass::Metadata;
    }
    let bits = address.to_bits();
    let special = SPECIAL_V6
        .iter()
        .find(|(net, prefix, _)| (bits ^ Ipv6Addr::from(*net).to_bits()).leading_zeros() >= *prefix);
    match special {
        Some((_, _, class)) => *class,
        None if bits >> 125 == 1 => AddressClass::Public,
        None => AddressClass::Reserved,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(text: &str) -> AddressClass {
        AddressClass::of(text.parse().unwrap())
    }

    #[test]
    fn each_special_range_is_known_from_its_first_to_its_last_address() {
        for (first, last, expected) in [
            ("0.0.0.0", "0.255.255.255", AddressClass::Unspecified),
            ("10.0.0.0", "10.255.255.255", AddressClass::Private),
            ("100.64.0.0", "100.127.255.255", AddressClass::CarrierGrade),
            ("127.0.0.0", "127.255.255.255", AddressClass::Loopback),
            ("169.254.0.0", "169.254.255.255", AddressClass::LinkLocal),
            ("172.16.0.0", "172.31.255.255", AddressClass::Private),
            ("192.0.0.0", "192.0.0.255", AddressClass::Reserved),
            ("192.0.2.0", "192.0.2.255", AddressClass::Documentation),
            ("192.168.0.0", "192.168.255.255", AddressClass::Private),
            ("198.18.0.0", "198.19.255.255", AddressClass::Benchmark),
            ("224.0.0.0", "239.255.255.255", AddressClass::Multicast),
            ("240.0.0.0", "255.255.255.255", AddressClass::Reserved),
            ("::ffff:0.0.0.0", "::ffff:255.255.255.255", AddressClass::Embedded),
            ("::2", "::255.255.255.255", AddressClass::Embedded),
            ("64:ff9b::", "64:ff9b::ffff:ffff", AddressClass::Embedded),
            (
                "64:ff9b:1::",
                "64:ff9b:1:ffff:ffff:ffff:ffff:ffff",
                AddressClass::Embedded,
            ),
            (
                "2001::",
                "2001:0:ffff:ffff:ffff:ffff:ffff:ffff",
                AddressClass::Embedded,
            ),
            (
                "2001:db8::",
                "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
                AddressClass::Documentation,
            ),
            (
                "2002::",
                "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                AddressClass::Embedded,
            ),
            (
                "fc00::",
                "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                AddressClass::UniqueLocal,
            ),
            (
                "fe80::",
                "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                AddressClass::LinkLocal,
            ),
            (
                "ff00::",
                "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                AddressClass::Multicast,
            ),
            ("4000::", "5fff::", AddressClass::Reserved),
            ("100::", "100::1", AddressClass::Reserved),
        ] {
            assert_eq!(class(first), expected, "{first}");
            assert_eq!(class(last), expected, "{last}");
        }
        assert_eq!(class("::1"), AddressClass::Loopback);
        assert_eq!(class("::"), AddressClass::Unspecified);
    }

    #[test]
    fn the_neighbours_of_special_ranges_are_public() {
        for text in [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "168.63.129.15",
            "2000::",
            "2001:200::",
            "2001:db7:ffff::",
            "2001:db9::",
            "2003::",
            "3ffe::",
        ] {
            assert_eq!(class(text), AddressClass::Public, "{text}");
        }
    }

    #[test]
    fn where_clouds_keep_credentials_is_never_open() {
        for text in [
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "fd00:ec2::254",
        ] {
            assert_eq!(class(text), AddressClass::Metadata, "{text}");
            assert!(!class(text).may_be_named());
        }
    }
}
