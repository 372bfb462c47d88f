//! The scheme `ip`: addresses as Java writes them, and ranges of addresses in ACLs.

use std::net::{IpAddr, Ipv6Addr};

/// An address as `InetAddress.getHostAddress` writes it: IPv6 as eight groups without `::`, and
/// an IPv4-mapped address as the IPv4 address that it is to Java.
pub(super) fn java_text(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => address.segments().map(|group| format!("{group:x}")).join(":"),
    }
}

/// Whether an ACL may have this id: an address, with or without `/` and a number of bits
/// (`IPAuthenticationProvider.isValid`).
pub(super) fn is_range(range: &str) -> bool {
    Range::parse(range).is_some()
}

/// Whether a connection's address is in the range of an ACL's entry: same family, same leading
/// bits (`IPAuthenticationProvider.matches`).
pub(super) fn matches(held: &str, range: &str) -> bool {
    let range = Range::parse(range);
    range.zip(parse_address(held)).is_some_and(|(range, address)| range.contains(address))
}

struct Range {
    address: IpAddr,
    bits: u32,
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().ok()?)),
            None => (text, None),
        };
        let address = parse_address(address)?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(bits_max);
        (bits <= bits_max).then_some(Self { address, bits })
    }

    fn contains(&self, address: IpAddr) -> bool {
        let differing = match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                u128::from(ours.to_bits() ^ theirs.to_bits()) << 96
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => ours.to_bits() ^ theirs.to_bits(),
            _ => return false,
        };
        differing.leading_zeros() >= self.bits
    }
}

/// An IPv4 address in four decimal numbers, leading zeros allowed, or an IPv6 address in hex
/// groups only: neither a scope nor an IPv4 address in its tail.
fn parse_address(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        let is_hex_only = !text.contains('.');
        return is_hex_only.then(|| text.parse::<Ipv6Addr>().ok())?.map(IpAddr::V6);
    }
    // Without a list of the parts: an ACL may have as many entries as fit into a request, and each
    // reader of the znode may have to look at all of them.
    let (mut parts, mut numbers) = (text.split('.'), [0_u8; 4]);
    for number in &mut numbers {
        *number = parts.next()?.parse().ok()?;
    }
    parts.next().is_none().then(|| IpAddr::from(numbers))
}
