//! What is different in two texts, line by line, for a person to read.
//!
//! Guarantees: every line of both is accounted for, and the work is bounded: texts that are too different to be compared are shown one
//! after the other.

use std::fmt;

/// A line of a difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiffLine {
    /// A line that both have.
    Same(String),
    /// A line that only the old one has.
    Old(String),
    /// A line that only the new one has.
    New(String),
    /// So many lines that both have.
    Skipped(usize),
}

impl DiffLine {
    /// Whether it is what makes a difference.
    #[must_use]
    pub const fn is_change(&self) -> bool {
        matches!(self, Self::Old(_) | Self::New(_))
    }
}

impl fmt::Display for DiffLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same(line) => write!(f, " {line}"),
            Self::Old(line) => write!(f, "-{line}"),
            Self::New(line) => write!(f, "+{line}"),
            Self::Skipped(count) => write!(f, " … {count} lines that are the same …"),
        }
    }
}

/// What is different.
#[must_use]
pub fn diff(old: &[String], new: &[String]) -> Vec<DiffLine> {
    let before = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (head, old) = old.split_at(before);
    let (_, new) = new.split_at(before);
    let after = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old, tail) = old.split_at(old.len() - after);
    let (new, _) = new.split_at(new.len() - after);
    let mut lines: Vec<DiffLine> = head.iter().cloned().map(DiffLine::Same).collect();
    if old.len().saturating_mul(new.len()) > MOST_COMPARISONS {
        lines.extend(old.iter().cloned().map(DiffLine::Old));
        lines.extend(new.iter().cloned().map(DiffLine::New));
    } else {
        lines.extend(middle(old, new));
    }
    lines.extend(tail.iter().cloned().map(DiffLine::Same));
    shortened(lines)
}

/// The longest common subsequence, and what is not in it.
fn middle(old: &[String], new: &[String]) -> Vec<DiffLine> {
    // For each beginning of the old lines, the lengths for all ends of the new ones.
    let mut table: Vec<Vec<usize>> = vec![vec![0; new.len() + 1]];
    for line in old.iter().rev() {
        let below = table.last().cloned().unwrap_or_default();
        let mut row = vec![0; new.len() + 1];
        let mut right = 0;
        for (at, other) in new.iter().enumerate().rev() {
            let length = |row: &[usize], at: usize| row.get(at).copied().unwrap_or_default();
            let best = if line == other { length(&below, at + 1) + 1 } else { right.max(length(&below, at)) };
            if let Some(cell) = row.get_mut(at) {
                *cell = best;
            }
            right = best;
        }
        table.push(row);
    }
    let length = |i: usize, j: usize| table.get(old.len() - i).and_then(|row| row.get(j)).copied().unwrap_or_default();
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while let (Some(a), Some(b)) = (old.get(i), new.get(j)) {
        if a == b {
            lines.push(DiffLine::Same(a.clone()));
            (i, j) = (i + 1, j + 1);
        } else if length(i + 1, j) >= length(i, j + 1) {
            lines.push(DiffLine::Old(a.clone()));
            i += 1;
        } else {
            lines.push(DiffLine::New(b.clone()));
            j += 1;
        }
    }
    lines.extend(old.iter().skip(i).cloned().map(DiffLine::Old));
    lines.extend(new.iter().skip(j).cloned().map(DiffLine::New));
    lines
}

/// Leaves out what is far from every change.
fn shortened(lines: Vec<DiffLine>) -> Vec<DiffLine> {
    let near: Vec<bool> = (0..lines.len())
        .map(|at| lines.iter().skip(at.saturating_sub(AROUND)).take(2 * AROUND + 1).any(DiffLine::is_change))
        .collect();
    let mut short = Vec::new();
    for (line, is_near) in lines.into_iter().zip(near) {
        match (short.last_mut(), is_near) {
            (_, true) => short.push(line),
            (Some(DiffLine::Skipped(count)), false) => *count += 1,
            (_, false) => short.push(DiffLine::Skipped(1)),
        }
    }
    short
}

/// How many lines around a change are shown.
const AROUND: usize = 3;

const MOST_COMPARISONS: usize = 4_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.chars().map(|c| c.to_string()).collect()
    }

    #[test]
    fn only_what_changed_is_marked() {
        let told: String = diff(&lines("abcxyz"), &lines("abdxyz")).iter().map(|line| format!("{line}|")).collect();
        assert_eq!(told, " a| b|-c|+d| x| y| z|");
    }

    #[test]
    fn what_is_far_from_a_change_is_left_out() {
        let (old, new) = ("a".repeat(20), format!("{}b", "a".repeat(20)));
        let told = diff(&lines(&old), &lines(&new));
        assert_eq!(told.first(), Some(&DiffLine::Skipped(17)));
        assert_eq!(told.last(), Some(&DiffLine::New("b".to_owned())));
        assert_eq!(diff(&lines(&old), &lines(&old)), [DiffLine::Skipped(20)]);
    }

    #[test]
    fn texts_that_are_too_different_are_shown_one_after_the_other() {
        let old: Vec<String> = (0..2_100).map(|n| format!("old {n}")).collect();
        let new: Vec<String> = (0..2_100).map(|n| format!("new {n}")).collect();
        assert_eq!(diff(&old, &new).len(), 4_200);
    }

    proptest! {
        #[test]
        fn both_texts_can_be_had_from_what_is_told(old in "[ab]{0,6}", new in "[ab]{0,6}") {
            let told = diff(&lines(&old), &lines(&new));
            let of = |wanted: fn(&DiffLine) -> Option<&String>| told.iter().filter_map(wanted).cloned().collect::<String>();
            let old_side = of(|line| match line { DiffLine::Same(text) | DiffLine::Old(text) => Some(text), _ => None });
            let new_side = of(|line| match line { DiffLine::Same(text) | DiffLine::New(text) => Some(text), _ => None });
            if !told.iter().any(|line| matches!(line, DiffLine::Skipped(_))) {
                prop_assert_eq!((old_side, new_side), (old, new));
            }
        }
    }
}
