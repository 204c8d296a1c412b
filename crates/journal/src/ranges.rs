//! Sets of record numbers, kept as ranges, because records are erased and sealed in long runs.
//!
//! Guarantees: ranges neither overlap nor touch, and stand in order; in JSON a set is `[[first, last], …]`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A set of record numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds the records from `first` to `last`, both included. Does nothing if there are none.
    pub fn insert(&mut self, first: u64, last: u64) {
        if first > last {
            return;
        }
        let (mut first, mut last) = (first, last);
        // Everything that overlaps or touches becomes one range; those that do start at or before the number behind `last`.
        while let Some((&start, &end)) = self.0.range(..=last.saturating_add(1)).next_back() {
            if end.saturating_add(1) < first {
                break;
            }
            self.0.remove(&start);
            (first, last) = (first.min(start), last.max(end));
        }
        self.0.insert(first, last);
    }

    /// Whether a record is in the set.
    #[must_use]
    pub fn contains(&self, seq: u64) -> bool {
        self.0.range(..=seq).next_back().is_some_and(|(_, &last)| seq <= last)
    }

    /// How many records are in the set.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.iter().fold(0, |count, (first, last)| count.saturating_add((last - first).saturating_add(1)))
    }

    /// Whether no record is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges, in order, each with its first and its last record.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(&first, &last)| (first, last))
    }

    /// The records of this set from `first` on.
    #[must_use]
    pub fn from(&self, first: u64) -> Self {
        let mut kept = Self::default();
        for (start, last) in self.iter() {
            kept.insert(start.max(first), last);
        }
        kept
    }

    /// The first record of this set that is not in the other.
    #[must_use]
    pub fn first_outside(&self, other: &Self) -> Option<u64> {
        self.iter().find_map(|(first, last)| {
            let covered = other.0.range(..=first).next_back().filter(|&(_, &end)| end >= first);
            match covered {
                None => Some(first),
                Some((_, &end)) if end < last => Some(end + 1),
                Some(_) => None,
            }
        })
    }
}

impl FromIterator<u64> for Ranges {
    fn from_iter<T: IntoIterator<Item = u64>>(numbers: T) -> Self {
        let mut ranges = Self::default();
        numbers.into_iter().for_each(|seq| ranges.insert(seq, seq));
        ranges
    }
}

impl Serialize for Ranges {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(|(first, last)| [first, last]))
    }
}

impl<'de> Deserialize<'de> for Ranges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut ranges = Self::default();
        for [first, last] in Vec::<[u64; 2]>::deserialize(deserializer)? {
            if first > last {
                return Err(de::Error::custom("a range ends before it starts"));
            }
            ranges.insert(first, last);
        }
        Ok(ranges)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_are_a_set_of_numbers(
            parts in prop::collection::vec((0_u64..60, 0_u64..8), 0..12),
            others in prop::collection::vec((0_u64..60, 0_u64..20), 0..6),
        ) {
            let build = |parts: &[(u64, u64)]| {
                let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
                for &(first, length) in parts {
                    ranges.insert(first, first + length);
                    set.extend(first..=first + length);
                }
                (ranges, set)
            };
            let ((ranges, set), (other, other_set)) = (build(&parts), build(&others));
            prop_assert_eq!(ranges.iter().flat_map(|(first, last)| first..=last).collect::<BTreeSet<_>>(), set.clone());
            prop_assert_eq!(usize::try_from(ranges.count()).unwrap(), set.len());
            prop_assert_eq!((0..90).filter(|&seq| ranges.contains(seq)).collect::<BTreeSet<_>>(), set.clone());
            prop_assert_eq!(ranges.first_outside(&other), set.difference(&other_set).next().copied());
            prop_assert_eq!(ranges.from(30).iter().flat_map(|(first, last)| first..=last).collect::<Vec<_>>(),
                set.iter().copied().filter(|&seq| seq >= 30).collect::<Vec<_>>());
            prop_assert_eq!(&serde_json::from_str::<Ranges>(&serde_json::to_string(&ranges).unwrap()).unwrap(), &ranges);
            prop_assert_eq!(&set.into_iter().collect::<Ranges>(), &ranges);
        }
    }
}
