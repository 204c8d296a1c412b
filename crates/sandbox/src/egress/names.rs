//! The synthetic addresses: which name stands behind which, for one run.
//!
//! Guarantees: the same name has the same address for the whole run; no address ever changes its name; the table is
//! bounded.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::{Mutex, PoisonError},
};

use palyra_types::host::HostName;

/// Where synthetic addresses are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyntheticRange {
    network: u32,
    size: u32,
}

impl SyntheticRange {
    /// The range that a network namespace has a route for.
    pub const BENCHMARKING: Self = Self { network: u32::from_be_bytes([198, 18, 0, 0]), size: 1 << 17 };

    /// A range in prefix notation.
    ///
    /// # Errors
    /// When the prefix is not from 8 to 30, or the address has bits behind it.
    pub fn new(network: Ipv4Addr, prefix: u8) -> Result<Self, SyntheticRangeError> {
        if !(8..=30).contains(&prefix) {
            return Err(SyntheticRangeError::Prefix(prefix));
        }
        let range = Self { network: network.into(), size: 1 << (32 - u32::from(prefix)) };
        if !range.network.is_multiple_of(range.size) {
            return Err(SyntheticRangeError::Network(network));
        }
        Ok(range)
    }

    /// The address with this number; the first one is left out.
    fn nth(self, number: usize) -> Option<Ipv4Addr> {
        let offset = u32::try_from(number).ok()?.checked_add(1)?;
        (offset < self.size).then(|| Ipv4Addr::from(self.network + offset))
    }

    fn number(self, address: Ipv4Addr) -> Option<usize> {
        let offset = u32::from(address).checked_sub(self.network).filter(|&offset| offset < self.size)?;
        usize::try_from(offset.checked_sub(1)?).ok()
    }
}

/// Why a range was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SyntheticRangeError {
    /// Too short or too long.
    #[error("a prefix of {0} bits is not from 8 to 30")]
    Prefix(u8),
    /// Bits behind the prefix.
    #[error("the network {0} has bits behind its prefix")]
    Network(Ipv4Addr),
}

impl SyntheticRangeError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        "give a network such as 198.18.0.0 with a prefix such as 15"
    }
}

/// The names that have an address.
#[derive(Debug)]
pub(crate) struct Names {
    range: SyntheticRange,
    most: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    numbers: HashMap<HostName, usize>,
    names: Vec<HostName>,
}

impl Names {
    pub(crate) fn new(range: SyntheticRange, most: usize) -> Self {
        Self { range, most, table: Mutex::default() }
    }

    /// The address of a name, a new one if it has none yet; `None` if there is no room.
    pub(crate) fn address_of(&self, name: &HostName) -> Option<Ipv4Addr> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&number) = table.numbers.get(name) {
            return self.range.nth(number);
        }
        let number = table.names.len();
        let address = self.range.nth(number).filter(|_| number < self.most)?;
        table.names.push(name.clone());
        table.numbers.insert(name.clone(), number);
        Some(address)
    }

    /// The name behind an address.
    pub(crate) fn name_of(&self, address: IpAddr) -> Option<HostName> {
        let IpAddr::V4(address) = address.to_canonical() else { return None };
        let number = self.range.number(address)?;
        self.table.lock().unwrap_or_else(PoisonError::into_inner).names.get(number).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> HostName {
        HostName::parse(text).unwrap()
    }

    #[test]
    fn a_name_keeps_its_address_and_an_address_its_name() {
        let names = Names::new(SyntheticRange::BENCHMARKING, 10);
        let a = names.address_of(&host("a.org")).unwrap();
        let b = names.address_of(&host("b.org")).unwrap();
        assert_eq!((a, b), (Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)));
        assert_eq!(names.address_of(&host("A.org")), Some(a));
        assert_eq!(names.name_of(b.into()), Some(host("b.org")));
        assert_eq!(names.name_of("::ffff:198.18.0.1".parse().unwrap()), Some(host("a.org")));
    }

    #[test]
    fn an_address_that_was_not_given_out_has_no_name() {
        let names = Names::new(SyntheticRange::BENCHMARKING, 10);
        let _ = names.address_of(&host("a.org"));
        for text in ["198.18.0.0", "198.18.0.2", "198.17.255.255", "198.20.0.0", "0.0.0.0", "255.255.255.255", "::1"] {
            assert_eq!(names.name_of(text.parse().unwrap()), None, "{text}");
        }
    }

    #[test]
    fn the_table_is_bounded_by_its_limit_and_by_its_range() {
        let names = Names::new(SyntheticRange::BENCHMARKING, 2);
        let given: Vec<_> =
            ["a.org", "b.org", "c.org", "a.org"].map(|name| names.address_of(&host(name)).is_some()).into();
        assert_eq!(given, [true, true, false, true]);
        let narrow = Names::new(SyntheticRange::new(Ipv4Addr::new(127, 18, 0, 0), 30).unwrap(), 10);
        let given: Vec<_> =
            ["a.org", "b.org", "c.org", "d.org"].map(|name| narrow.address_of(&host(name)).is_some()).into();
        assert_eq!(given, [true, true, true, false]);
    }

    #[test]
    fn a_range_is_a_network() {
        assert_eq!(SyntheticRange::new(Ipv4Addr::new(198, 18, 0, 0), 15), Ok(SyntheticRange::BENCHMARKING));
        assert!(SyntheticRange::new(Ipv4Addr::new(198, 18, 0, 1), 15).is_err());
        assert!(SyntheticRange::new(Ipv4Addr::new(198, 18, 0, 0), 31).is_err());
    }
}
