//! Which addresses are public: machines on the Internet, and nothing that is nearer.
//!
//! Guarantees: an address passes only if it lies in space that is assigned to machines on the Internet; one that embeds
//! an IPv4 address is judged by what it embeds. Metadata services of cloud providers are named as such, wherever they
//! lie.
//! Does not: know networks that route public addresses to private machines.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is not public.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotPublic {
    /// `0.0.0.0/8` and `::`, which a kernel takes for this machine.
    #[error("means this machine")]
    Unspecified,
    /// `127.0.0.0/8` and `::1`.
    #[error("is a loopback address")]
    Loopback,
    /// RFC 1918.
    #[error("is private")]
    Private,
    /// `169.254.0.0/16` and `fe80::/10`.
    #[error("is link-local")]
    LinkLocal,
    /// Where a cloud provider keeps credentials of this machine.
    #[error("is a metadata service")]
    Metadata,
    /// `100.64.0.0/10`, behind a carrier's translation.
    #[error("is shared address space")]
    Shared,
    /// `fc00::/7`.
    #[error("is unique local")]
    UniqueLocal,
    /// `fec0::/10`, long deprecated.
    #[error("is site-local")]
    SiteLocal,
    /// `198.18.0.0/15` and `2001:2::/48`. The addresses that programs inside see lie here, too.
    #[error("is for benchmarks")]
    Benchmarking,
    /// Many machines at once.
    #[error("is multicast")]
    Multicast,
    /// `255.255.255.255`.
    #[error("is broadcast")]
    Broadcast,
    /// For examples in texts.
    #[error("is for documentation")]
    Documentation,
    /// `100::/64` and its neighbours, where packets vanish.
    #[error("is for discarding")]
    Discard,
    /// `2002::/16` and its relays: a tunnel to whatever IPv4 address it embeds.
    #[error("is a 6to4 tunnel")]
    SixToFour,
    /// `2001::/32`: a tunnel to whatever IPv4 address it embeds.
    #[error("is a Teredo tunnel")]
    Teredo,
    /// `64:ff9b:1::/48`: a translation of which only the local network knows what it leads to.
    #[error("is a local translation")]
    LocalTranslation,
    /// Assigned to protocols, or to nobody yet.
    #[error("is reserved")]
    Reserved,
}

impl NotPublic {
    /// Whether a rule with `allow_private` lets it through. Metadata services are not private: they hold the machine's
    /// own credentials.
    #[must_use]
    pub const fn is_private(self) -> bool {
        matches!(
            self,
            Self::Loopback
                | Self::Private
                | Self::LinkLocal
                | Self::Shared
                | Self::UniqueLocal
                | Self::SiteLocal
                | Self::Benchmarking
        )
    }
}

/// Whether an address is public.
///
/// # Errors
/// Why it is not.
pub fn is_public(address: IpAddr) -> Result<(), NotPublic> {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// The IPv4 address that an IPv6 address leads to by mapping or by the well-known translation prefix.
#[must_use]
pub(crate) fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else { return None };
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(last_four(address)),
        _ => None,
    }
}

fn is_public_v4(address: Ipv4Addr) -> Result<(), NotPublic> {
    if METADATA_V4.contains(&address) {
        return Err(NotPublic::Metadata);
    }
    match address.octets() {
        [0, ..] => Err(NotPublic::Unspecified),
        [127, ..] => Err(NotPublic::Loopback),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Err(NotPublic::Private),
        [169, 254, ..] => Err(NotPublic::LinkLocal),
        [100, 64..=127, ..] => Err(NotPublic::Shared),
        [198, 18 | 19, ..] => Err(NotPublic::Benchmarking),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Err(NotPublic::Documentation),
        [192, 88, 99, _] => Err(NotPublic::SixToFour),
        [192, 0, 0, _] => Err(NotPublic::Reserved),
        [224..=239, ..] => Err(NotPublic::Multicast),
        [255, 255, 255, 255] => Err(NotPublic::Broadcast),
        [240..=255, ..] => Err(NotPublic::Reserved),
        _ => Ok(()),
    }
}

fn is_public_v6(address: Ipv6Addr) -> Result<(), NotPublic> {
    if METADATA_V6.contains(&address) {
        return Err(NotPublic::Metadata);
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Err(NotPublic::Unspecified),
        [0, 0, 0, 0, 0, 0, 0, 1] => Err(NotPublic::Loopback),
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => is_public_v4(last_four(address)),
        // Nothing routes the old compatible and translated forms, so even a public address in one leads nowhere good.
        [0, 0, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => {
            Err(is_public_v4(last_four(address)).err().unwrap_or(NotPublic::Reserved))
        }
        [0x64, 0xff9b, 1, ..] => Err(NotPublic::LocalTranslation),
        [0x100, 0, 0, 0 | 1, ..] => Err(NotPublic::Discard),
        [0x2001, 0, ..] => Err(NotPublic::Teredo),
        [0x2001, 2, 0, ..] => Err(NotPublic::Benchmarking),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Err(NotPublic::Documentation),
        // The rest of 2001::/23 belongs to protocols.
        [0x2001, 0..=0x1ff, ..] => Err(NotPublic::Reserved),
        [0x2002, ..] => Err(NotPublic::SixToFour),
        [0xfc00..=0xfdff, ..] => Err(NotPublic::UniqueLocal),
        [0xfe80..=0xfebf, ..] => Err(NotPublic::LinkLocal),
        [0xfec0..=0xfeff, ..] => Err(NotPublic::SiteLocal),
        [0xff00..=0xffff, ..] => Err(NotPublic::Multicast),
        [0x2000..=0x3fff, ..] => Ok(()),
        _ => Err(NotPublic::Reserved),
    }
}

fn last_four(address: Ipv6Addr) -> Ipv4Addr {
    let [.., a, b, c, d] = address.octets();
    Ipv4Addr::new(a, b, c, d)
}

/// AWS and nearly everybody; the credentials of its containers, twice; Tencent; Alibaba; Oracle; Azure, whose address
/// looks public.
const METADATA_V4: [Ipv4Addr; 7] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(169, 254, 0, 23),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];

/// AWS; the credentials of its containers; Google; OpenStack.
const METADATA_V6: [Ipv6Addr; 4] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(text: &str) -> Result<(), NotPublic> {
        is_public(text.parse().unwrap())
    }

    #[test]
    fn addresses_on_the_internet_are_public() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2606:4700:4700::1111",
            "2a00:1450:4001::1",
            "3ffe::1",
        ] {
            assert_eq!(judge(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused_for_its_reason() {
        use NotPublic as N;
        for (text, reason) in [
            ("0.0.0.0", N::Unspecified),
            ("0.1.2.3", N::Unspecified),
            ("::", N::Unspecified),
            ("127.0.0.1", N::Loopback),
            ("127.255.255.254", N::Loopback),
            ("::1", N::Loopback),
            ("10.0.0.0", N::Private),
            ("10.255.255.255", N::Private),
            ("172.16.0.0", N::Private),
            ("172.31.255.255", N::Private),
            ("192.168.0.0", N::Private),
            ("192.168.255.255", N::Private),
            ("169.254.0.1", N::LinkLocal),
            ("fe80::1", N::LinkLocal),
            ("febf:ffff::1", N::LinkLocal),
            ("169.254.169.254", N::Metadata),
            ("169.254.170.2", N::Metadata),
            ("100.100.100.200", N::Metadata),
            ("192.0.0.192", N::Metadata),
            ("168.63.129.16", N::Metadata),
            ("fd00:ec2::254", N::Metadata),
            ("fd20:ce::254", N::Metadata),
            ("fe80::a9fe:a9fe", N::Metadata),
            ("100.64.0.0", N::Shared),
            ("100.127.255.255", N::Shared),
            ("198.18.0.0", N::Benchmarking),
            ("198.19.255.255", N::Benchmarking),
            ("2001:2::1", N::Benchmarking),
            ("192.0.2.7", N::Documentation),
            ("198.51.100.7", N::Documentation),
            ("203.0.113.7", N::Documentation),
            ("2001:db8::1", N::Documentation),
            ("3fff:fff::1", N::Documentation),
            ("192.0.0.8", N::Reserved),
            ("192.88.99.1", N::SixToFour),
            ("224.0.0.1", N::Multicast),
            ("239.255.255.255", N::Multicast),
            ("ff02::1", N::Multicast),
            ("240.0.0.1", N::Reserved),
            ("255.255.255.255", N::Broadcast),
            ("::ffff:127.0.0.1", N::Loopback),
            ("::ffff:169.254.169.254", N::Metadata),
            ("::ffff:10.1.2.3", N::Private),
            ("::127.0.0.1", N::Loopback),
            ("::10.0.0.1", N::Private),
            ("::8.8.8.8", N::Reserved),
            ("::ffff:0:10.0.0.1", N::Private),
            ("::ffff:0:8.8.8.8", N::Reserved),
            ("64:ff9b::10.0.0.1", N::Private),
            ("64:ff9b::169.254.169.254", N::Metadata),
            ("64:ff9b::127.0.0.1", N::Loopback),
            ("64:ff9b:1::8.8.8.8", N::LocalTranslation),
            ("64:ff9b:2::1", N::Reserved),
            ("100::1", N::Discard),
            ("100:0:0:1::1", N::Discard),
            ("2001::1", N::Teredo),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", N::Teredo),
            ("2001:20::1", N::Reserved),
            ("2001:1ff::1", N::Reserved),
            ("2002:0a00:0001::1", N::SixToFour),
            ("2002:0808:0808::1", N::SixToFour),
            ("fc00::1", N::UniqueLocal),
            ("fdff::1", N::UniqueLocal),
            ("fec0::1", N::SiteLocal),
            ("4000::1", N::Reserved),
            ("5f00::1", N::Reserved),
            ("1::1", N::Reserved),
            ("fe00::1", N::Reserved),
        ] {
            assert_eq!(judge(text), Err(reason), "{text}");
        }
    }

    #[test]
    fn what_a_rule_for_private_addresses_lets_through_is_private() {
        use NotPublic as N;
        for reason in [N::Loopback, N::Private, N::LinkLocal, N::Shared, N::UniqueLocal, N::SiteLocal, N::Benchmarking]
        {
            assert!(reason.is_private(), "{reason:?}");
        }
        for reason in [N::Unspecified, N::Metadata, N::Multicast, N::Broadcast, N::SixToFour, N::Teredo, N::Reserved] {
            assert!(!reason.is_private(), "{reason:?}");
        }
    }
}
