//! Applies the hunks of a diff to a text.
//!
//! Guarantees: every hunk is applied, or none. A hunk whose place has moved is applied at the nearest place within reach where all of its
//! lines are, after the hunk before it; the answer says by how far.

use serde::Serialize;

use crate::{hunk::Hunk, line::Line};

/// A text after a diff was applied.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Patched {
    /// The text.
    pub text: String,
    /// Where each hunk was applied, in order.
    pub hunks: Vec<Applied>,
}

/// Where a hunk was applied.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// The line of the text as it was, from 1.
    pub line: usize,
    /// How many lines it has moved, back if negative, beyond what the hunks before it explain.
    pub moved: i64,
}

/// Applies hunks to a text. A hunk may have moved by `reach` lines.
///
/// # Errors
/// When one of them does not fit.
pub fn apply(text: &str, hunks: &[Hunk<'_>], reach: usize) -> Result<Patched, Misfit> {
    let lines = Line::all(text);
    let mut patched = Patched { text: String::with_capacity(text.len()), hunks: Vec::new() };
    let mut done = 0;
    let mut drift = 0;
    for hunk in hunks {
        let expected = hunk.start.saturating_add_signed(drift);
        let place = nearest(&lines, hunk, Search { expected, from: done, reach })
            .ok_or_else(|| misfit(&lines, hunk, expected, done))?;
        lines.get(done..place).unwrap_or_default().iter().for_each(|line| line.write(&mut patched.text));
        hunk.new.iter().for_each(|line| line.write(&mut patched.text));
        done = place + hunk.old.len();
        let moved = place.checked_signed_diff(expected).unwrap_or_default();
        drift += moved;
        patched.hunks.push(Applied { line: place + 1, moved: i64::try_from(moved).unwrap_or_default() });
    }
    lines.get(done..).unwrap_or_default().iter().for_each(|line| line.write(&mut patched.text));
    Ok(patched)
}

/// Why a hunk was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// The text says something else there.
    #[error("hunk {number} (`{header}`) does not fit: line {line} is `{found}` where it wants `{wanted}`")]
    Differs {
        /// Which hunk.
        number: usize,
        /// Its first line.
        header: String,
        /// Where in the text, from 1.
        line: usize,
        /// What the text has.
        found: String,
        /// What the hunk wants.
        wanted: String,
    },
    /// The text ends before the hunk does.
    #[error("hunk {number} (`{header}`) does not fit: the text ends with line {last}")]
    Ends {
        /// Which hunk.
        number: usize,
        /// Its first line.
        header: String,
        /// The last line of the text.
        last: usize,
    },
    /// The text is already as the hunk would make it.
    #[error("hunk {number} (`{header}`) does not fit: what it would write is already there at line {line}")]
    AlreadyThere {
        /// Which hunk.
        number: usize,
        /// Its first line.
        header: String,
        /// Where, from 1.
        line: usize,
    },
    /// It begins before the hunk before it ends.
    #[error("hunk {number} (`{header}`) does not fit: it begins before the end of the one before it")]
    Overlaps {
        /// Which hunk.
        number: usize,
        /// Its first line.
        header: String,
    },
}

#[derive(Clone, Copy)]
struct Search {
    expected: usize,
    from: usize,
    reach: usize,
}

fn nearest(lines: &[Line<'_>], hunk: &Hunk<'_>, search: Search) -> Option<usize> {
    let Search { expected, from, reach } = search;
    let last = lines.len().checked_sub(hunk.old.len())?;
    // Nothing tells one place for lines without neighbours from another.
    let reach = if hunk.old.is_empty() { 0 } else { reach };
    (0..=reach)
        .flat_map(|distance| [expected.checked_sub(distance), expected.checked_add(distance)])
        .flatten()
        .filter(|place| (from..=last).contains(place))
        .find(|place| fits(lines, *place, &hunk.old) && joins(lines, *place, hunk))
}

fn fits(lines: &[Line<'_>], place: usize, wanted: &[Line<'_>]) -> bool {
    lines.get(place..).and_then(|rest| rest.get(..wanted.len())) == Some(wanted)
}

/// Whether every line but the last of the text is ended after the hunk is applied.
fn joins(lines: &[Line<'_>], place: usize, hunk: &Hunk<'_>) -> bool {
    let end = place + hunk.old.len();
    let after_unended = hunk.old.is_empty() && place > 0 && lines.get(place - 1).is_some_and(|line| !line.ended);
    let before_others = hunk.new.last().is_some_and(|line| !line.ended) && end < lines.len();
    (hunk.new.is_empty() || !after_unended) && !before_others
}

fn misfit(lines: &[Line<'_>], hunk: &Hunk<'_>, expected: usize, done: usize) -> Misfit {
    let (number, header) = (hunk.number, hunk.header.to_owned());
    if expected < done {
        return Misfit::Overlaps { number, header };
    }
    if !hunk.new.is_empty() && fits(lines, expected, &hunk.new) {
        return Misfit::AlreadyThere { number, header, line: expected + 1 };
    }
    for (at, wanted) in hunk.old.iter().enumerate() {
        let Some(found) = lines.get(expected + at) else { break };
        if found != wanted {
            return Misfit::Differs {
                number,
                header,
                line: expected + at + 1,
                found: quoted(*found),
                wanted: quoted(*wanted),
            };
        }
    }
    Misfit::Ends { number, header, last: lines.len() }
}

/// The beginning of a line, with nothing in it that a terminal would act on.
fn quoted(line: Line<'_>) -> String {
    const MOST: usize = 60;
    let mut text: String = line.content.chars().take(MOST).flat_map(char::escape_debug).collect();
    if line.content.chars().nth(MOST).is_some() {
        text.push('…');
    }
    if !line.ended {
        text.push_str(" (no line feed)");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        compare::{Shown, compare},
        hunk::{Way, read},
    };

    fn patch(text: &str, diff: &str) -> Result<Patched, Misfit> {
        apply(text, &read(diff, Way::Forward).unwrap(), 10)
    }

    #[test]
    fn what_was_compared_can_be_applied_and_taken_back() {
        let texts = ["", "a\n", "a", "a\nb\nc\nd\ne\nf\ng\nh\n", "x\na\nb\nc\nD\ne\nf\ng\nh", "\n\n\n", "b\r\nc\r\n"];
        for before in texts {
            for after in texts {
                for context in [0, 1, 3] {
                    let diff = compare(before, after, Shown { before: "a", after: "b", context }).diff;
                    if before == after {
                        assert_eq!(diff, "");
                        continue;
                    }
                    let there = apply(before, &read(&diff, Way::Forward).unwrap(), 0).map(|patched| patched.text);
                    assert_eq!(there.as_deref(), Ok(after), "{before:?} to {after:?}:\n{diff}");
                    let back = apply(after, &read(&diff, Way::Back).unwrap(), 0).map(|patched| patched.text);
                    assert_eq!(back.as_deref(), Ok(before), "{after:?} back to {before:?}:\n{diff}");
                }
            }
        }
    }

    #[test]
    fn a_hunk_that_moved_is_applied_where_its_lines_are() {
        assert_eq!(
            patch("new\nnew\na\nb\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"),
            Ok(Patched { text: "new\nnew\na\nB\nc\n".to_owned(), hunks: vec![Applied { line: 3, moved: 2 }] })
        );
    }

    #[test]
    fn later_hunks_follow_the_ones_that_moved() {
        let diff = "@@ -1 +1 @@\n-a\n+A\n@@ -3 +3 @@\n-c\n+C\n";
        let patched = patch("0\na\nb\nc\n", diff).unwrap();
        assert_eq!(patched.text, "0\nA\nb\nC\n");
        assert_eq!(patched.hunks, [Applied { line: 2, moved: 1 }, Applied { line: 4, moved: 0 }]);
    }

    #[test]
    fn a_hunk_out_of_reach_does_not_fit() {
        let text = format!("{}a\nb\n", "x\n".repeat(11));
        let why = patch(&text, "@@ -1 +1 @@\n-a\n+A\n").unwrap_err();
        let told = "hunk 1 (`@@ -1 +1 @@`) does not fit: line 1 is `x` where it wants `a`";
        assert_eq!(why.to_string(), told);
    }

    #[test]
    fn each_misfit_names_the_hunk_and_why() {
        let diff = "@@ -1 +1 @@\n-a\n+A\n@@ -3 +3,2 @@\n-c\n+C\n+D\n";
        let header = "@@ -3 +3,2 @@".to_owned();
        let cases = [
            (
                "a\nb\nx\u{1b}\n",
                Misfit::Differs {
                    number: 2,
                    header: header.clone(),
                    line: 3,
                    found: "x\\u{1b}".to_owned(),
                    wanted: "c".to_owned(),
                },
            ),
            (
                "a\nb\nc",
                Misfit::Differs {
                    number: 2,
                    header: header.clone(),
                    line: 3,
                    found: "c (no line feed)".to_owned(),
                    wanted: "c".to_owned(),
                },
            ),
            ("a\nb\n", Misfit::Ends { number: 2, header: header.clone(), last: 2 }),
            ("a\nb\nC\nD\n", Misfit::AlreadyThere { number: 2, header, line: 3 }),
        ];
        for (text, why) in cases {
            assert_eq!(patch(text, diff), Err(why), "{text:?}");
        }
    }

    #[test]
    fn hunks_out_of_order_overlap() {
        let diff = "@@ -3 +3 @@\n-c\n+C\n@@ -1 +1 @@\n-a\n+A\n";
        assert_eq!(patch("a\nb\nc\n", diff), Err(Misfit::Overlaps { number: 2, header: "@@ -1 +1 @@".to_owned() }));
    }

    #[test]
    fn a_line_without_a_line_feed_stays_the_last_one() {
        assert!(patch("a\nb\n", "@@ -1 +1 @@\n-a\n+A\n\\ No newline at end of file\n").is_err());
        assert!(patch("a", "@@ -1,0 +2 @@\n+b\n").is_err());
    }
}
