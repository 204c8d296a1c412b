//! Compares two texts line by line, with the algorithm of Myers, and writes the difference as a unified diff.
//!
//! Guarantees: of equal texts the diff is empty; a last line without a line feed is marked as such.

use std::{collections::BTreeMap, fmt::Write as _, ops::Range};

use serde::Serialize;
use similar::{
    DiffOp,
    algorithms::{Capture, Compact, Replace, myers},
    group_diff_ops,
};

use crate::line::Line;

/// What two texts have in common and what not.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// A unified diff, without the lines that name the two sides if it is empty.
    pub diff: String,
    /// Whether both are the same.
    pub equal: bool,
    /// How much differs.
    pub stats: Stats,
}

/// How much differs, in lines.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Lines that only the second text has.
    pub added: usize,
    /// Lines that only the first text has.
    pub removed: usize,
    /// Lines that both have.
    pub unchanged: usize,
    /// Places at which they differ, as the diff shows them.
    pub hunks: usize,
}

/// What the two texts are called, and how many lines are shown around a change.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// What the first text is called.
    pub before: &'a str,
    /// What the second text is called.
    pub after: &'a str,
    /// Unchanged lines around each change.
    pub context: usize,
}

/// Compares two texts.
#[must_use]
pub fn compare(before: &str, after: &str, shown: Shown<'_>) -> Difference {
    let (old, new) = (Line::all(before), Line::all(after));
    let steps = steps(&old, &new);
    let mut stats = Stats::default();
    for step in &steps {
        match *step {
            DiffOp::Equal { len, .. } => stats.unchanged += len,
            DiffOp::Delete { old_len, .. } => stats.removed += old_len,
            DiffOp::Insert { new_len, .. } => stats.added += new_len,
            DiffOp::Replace { old_len, new_len, .. } => {
                stats.removed += old_len;
                stats.added += new_len;
            }
        }
    }
    let mut diff = String::new();
    if before != after {
        let _ = write!(diff, "--- {}\n+++ {}\n", shown.before, shown.after);
        // More context than there are lines is all of them.
        let context = shown.context.min(old.len());
        for hunk in group_diff_ops(steps, context) {
            stats.hunks += 1;
            write_hunk(&mut diff, &hunk, &old, &new);
        }
    }
    Difference { equal: before == after, diff, stats }
}

/// Each distinct line gets a number, so that the algorithm exists once, for numbers.
fn steps<'a>(old: &[Line<'a>], new: &[Line<'a>]) -> Vec<DiffOp> {
    let mut numbers = BTreeMap::new();
    let mut numbered = |lines: &[Line<'a>]| -> Vec<usize> {
        lines
            .iter()
            .map(|line| {
                let next = numbers.len();
                *numbers.entry((line.content, line.ended)).or_insert(next)
            })
            .collect()
    };
    let (old, new) = (numbered(old), numbered(new));
    let mut found = Compact::new(Replace::new(Capture::new()), &old, &new);
    match myers::diff(&mut found, &old, 0..old.len(), &new, 0..new.len()) {
        Ok(()) => found.into_inner().into_inner().into_ops(),
        Err(never) => match never {},
    }
}

fn write_hunk(diff: &mut String, hunk: &[DiffOp], old: &[Line<'_>], new: &[Line<'_>]) {
    let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { return };
    let before = first.old_range().start..last.old_range().end;
    let after = first.new_range().start..last.new_range().end;
    let _ = writeln!(diff, "@@ -{} +{} @@", range(&before), range(&after));
    for step in hunk {
        if let DiffOp::Equal { .. } = step {
            write_lines(diff, ' ', old, step.old_range());
        } else {
            write_lines(diff, '-', old, step.old_range());
            write_lines(diff, '+', new, step.new_range());
        }
    }
}

fn write_lines(diff: &mut String, mark: char, lines: &[Line<'_>], range: Range<usize>) {
    for line in lines.get(range).unwrap_or_default() {
        diff.push(mark);
        diff.push_str(line.content);
        diff.push_str(if line.ended { "\n" } else { "\n\\ No newline at end of file\n" });
    }
}

/// Lines count from 1. An empty range is named after the line before it, and one line needs no count.
fn range(lines: &Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => (lines.start + 1).to_string(),
        count => format!("{},{count}", lines.start + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: Shown<'_> = Shown { before: "before", after: "after", context: 1 };

    #[test]
    fn changes_stand_between_lines_that_both_have() {
        assert_eq!(
            compare("a\nb\nc\nd\ne\n", "a\nB\nc\nd\ne\nf\n", SHOWN),
            Difference {
                diff: "--- before\n+++ after\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n@@ -5 +5,2 @@\n e\n+f\n".to_owned(),
                equal: false,
                stats: Stats { added: 2, removed: 1, unchanged: 4, hunks: 2 },
            }
        );
    }

    #[test]
    fn of_equal_texts_there_is_no_diff() {
        assert_eq!(
            compare("a\nb", "a\nb", SHOWN),
            Difference {
                diff: String::new(),
                equal: true,
                stats: Stats { added: 0, removed: 0, unchanged: 2, hunks: 0 }
            }
        );
    }

    #[test]
    fn a_missing_line_feed_at_the_end_is_a_difference() {
        assert_eq!(
            compare("a\n", "a", SHOWN).diff,
            "--- before\n+++ after\n@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n"
        );
    }

    #[test]
    fn a_text_that_begins_from_nothing_begins_at_line_zero() {
        assert_eq!(compare("", "a\n", SHOWN).diff, "--- before\n+++ after\n@@ -0,0 +1 @@\n+a\n");
    }

    #[test]
    fn a_carriage_return_alone_ends_no_line() {
        assert_eq!(compare("a\rb\n", "a\rc\n", SHOWN).stats, Stats { added: 1, removed: 1, unchanged: 0, hunks: 1 });
    }
}
