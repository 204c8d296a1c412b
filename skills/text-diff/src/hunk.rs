//! Reads a unified diff of one text.
//!
//! Guarantees: a hunk holds as many lines as its header says, or the diff is refused. Whatever stands before the first hunk, such as the
//! names of the two sides, is passed over.
//! Refuses: a diff of several texts, and one without a hunk.

use crate::line::Line;

/// One place at which a text changes.
#[derive(Debug, PartialEq, Eq)]
pub struct Hunk<'a> {
    /// Which it is, from 1.
    pub number: usize,
    /// Its first line, from `@@` to `@@`.
    pub header: &'a str,
    /// Where it begins in the text that it changes, from 0.
    pub start: usize,
    /// The lines that have to be there.
    pub old: Vec<Line<'a>>,
    /// The lines that take their place.
    pub new: Vec<Line<'a>>,
}

/// Which way a diff is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the first text to the second.
    Forward,
    /// Back again.
    Back,
}

/// Reads the hunks of a diff.
///
/// # Errors
/// When it is none.
pub fn read(diff: &str, way: Way) -> Result<Vec<Hunk<'_>>, BadDiff> {
    let mut hunks: Vec<Hunk<'_>> = Vec::new();
    let mut lines = Line::all(diff).into_iter().map(|line| line.content).enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        if !line.starts_with("@@") {
            // After a hunk comes a hunk, or an empty line that somebody left at the end.
            match hunks.last() {
                None => continue,
                Some(_) if line.trim().is_empty() => continue,
                Some(_) if line.starts_with("--- ") || line.starts_with("diff ") => {
                    return Err(BadDiff::SeveralTexts { line: at + 1 });
                }
                Some(hunk) => return Err(BadDiff::TooLong { number: hunk.number, line: at + 1 }),
            }
        }
        let number = hunks.len() + 1;
        let header = Header::parse(line).ok_or(BadDiff::Header { number, line: at + 1 })?;
        let mut body = Body::default();
        while !body.is_whole(&header) || lines.peek().is_some_and(|(_, line)| line.starts_with('\\')) {
            let (at, line) = lines.next().ok_or(BadDiff::TooShort { number })?;
            body.take(line).ok_or(BadDiff::Line { number, line: at + 1 })?;
        }
        if body.before.len() != header.before.1 || body.after.len() != header.after.1 {
            return Err(BadDiff::Counts { number });
        }
        hunks.push(match way {
            Way::Forward => {
                Hunk { number, header: header.text, start: first(header.before), old: body.before, new: body.after }
            }
            Way::Back => {
                Hunk { number, header: header.text, start: first(header.after), old: body.after, new: body.before }
            }
        });
    }
    if hunks.is_empty() { Err(BadDiff::Empty) } else { Ok(hunks) }
}

/// Why something is no diff that can be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadDiff {
    /// There is nothing to apply.
    #[error("the diff has no hunk; one begins with a line such as `@@ -1,3 +1,4 @@`")]
    Empty,
    /// The first line of a hunk is not as it should be.
    #[error("hunk {number} begins with a header that is none, in line {line} of the diff")]
    Header {
        /// Which hunk.
        number: usize,
        /// Where in the diff.
        line: usize,
    },
    /// A line is neither context, nor removed, nor added.
    #[error("hunk {number} has a line that begins with neither a space nor `-` nor `+`, in line {line} of the diff")]
    Line {
        /// Which hunk.
        number: usize,
        /// Where in the diff.
        line: usize,
    },
    /// A hunk ends before its header says.
    #[error("hunk {number} has fewer lines than its header says")]
    TooShort {
        /// Which hunk.
        number: usize,
    },
    /// A hunk goes on after it is whole.
    #[error("hunk {number} has more lines than its header says, in line {line} of the diff")]
    TooLong {
        /// Which hunk.
        number: usize,
        /// Where in the diff.
        line: usize,
    },
    /// A hunk has more lines of one kind and fewer of the other.
    #[error("hunk {number} has other numbers of lines than its header says")]
    Counts {
        /// Which hunk.
        number: usize,
    },
    /// There is a second text.
    #[error("the diff is of several texts; the second begins in line {line} of the diff")]
    SeveralTexts {
        /// Where in the diff.
        line: usize,
    },
}

/// `@@ -3,4 +3,5 @@ whatever`: on each side the first line, and how many there are.
struct Header<'a> {
    text: &'a str,
    before: (usize, usize),
    after: (usize, usize),
}

impl<'a> Header<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (ranges, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
        let (before, after) = ranges.split_once(" +")?;
        let text = line.get(..ranges.len() + "@@ - @@".len())?;
        Some(Self { text, before: range(before)?, after: range(after)? })
    }
}

fn range(text: &str) -> Option<(usize, usize)> {
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let (start, count) = match text.split_once(',') {
        Some((start, count)) => (number(start)?, number(count)?),
        None => (number(text)?, 1),
    };
    // Line 0 is where an empty text begins, and nothing else.
    (start > 0 || count == 0).then_some((start, count))
}

/// Where a range begins, from 0. An empty one is named after the line before it.
fn first((start, count): (usize, usize)) -> usize {
    if count == 0 { start } else { start.saturating_sub(1) }
}

#[derive(Default)]
struct Body<'a> {
    before: Vec<Line<'a>>,
    after: Vec<Line<'a>>,
    last: Option<Side>,
}

#[derive(Clone, Copy)]
enum Side {
    Both,
    Before,
    After,
}

impl<'a> Body<'a> {
    fn is_whole(&self, header: &Header<'_>) -> bool {
        self.before.len() >= header.before.1 && self.after.len() >= header.after.1
    }

    fn take(&mut self, line: &'a str) -> Option<()> {
        if line.starts_with('\\') {
            return self.unend();
        }
        let side = match line.bytes().next() {
            // Editors cut the space off a context line that says nothing else.
            Some(b' ') | None => Side::Both,
            Some(b'-') => Side::Before,
            Some(b'+') => Side::After,
            Some(_) => return None,
        };
        let line = Line { content: line.get(1..).unwrap_or_default(), ended: true };
        if matches!(side, Side::Both | Side::Before) {
            self.before.push(line);
        }
        if matches!(side, Side::Both | Side::After) {
            self.after.push(line);
        }
        self.last = Some(side);
        Some(())
    }

    /// `\ No newline at end of file`, about the line before.
    fn unend(&mut self) -> Option<()> {
        let side = self.last.take()?;
        if matches!(side, Side::Both | Side::Before) {
            self.before.last_mut()?.ended = false;
        }
        if matches!(side, Side::Both | Side::After) {
            self.after.last_mut()?.ended = false;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(content: &str) -> Line<'_> {
        Line { content, ended: true }
    }

    #[test]
    fn names_of_the_sides_and_of_a_section_are_passed_over() {
        let diff = "diff --git a/x b/x\nindex 1..2\n--- a/x\n+++ b/x\n@@ -3,2 +3 @@ fn main() {\n a\n-b\n";
        let hunk = Hunk {
            number: 1,
            header: "@@ -3,2 +3 @@",
            start: 2,
            old: vec![line("a"), line("b")],
            new: vec![line("a")],
        };
        assert_eq!(read(diff, Way::Forward), Ok(vec![hunk]));
    }

    #[test]
    fn backwards_the_sides_change_places() {
        let hunk = Hunk {
            number: 1,
            header: "@@ -1 +1,2 @@",
            start: 0,
            old: vec![line("a"), line("b")],
            new: vec![line("a")],
        };
        assert_eq!(read("@@ -1 +1,2 @@\n a\n+b\n", Way::Back), Ok(vec![hunk]));
    }

    #[test]
    fn a_last_line_may_lack_its_line_feed_on_either_side() {
        let hunks = read("@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n", Way::Forward).unwrap();
        assert_eq!(hunks[0].old, [Line { content: "a", ended: false }]);
        assert_eq!(hunks[0].new, [line("a")]);
        let hunks = read("@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n", Way::Forward).unwrap();
        assert_eq!(hunks[0].new, [Line { content: "a", ended: false }]);
    }

    #[test]
    fn lines_that_look_like_names_are_lines_inside_a_hunk() {
        let hunks = read("@@ -1,2 +1 @@\n--- a\n-b\n+++ c\n", Way::Forward).unwrap();
        assert_eq!(hunks[0].old, [line("-- a"), line("b")]);
        assert_eq!(hunks[0].new, [line("++ c")]);
    }

    #[test]
    fn what_is_no_diff_is_refused_with_the_place() {
        let cases = [
            ("", BadDiff::Empty),
            ("just text\n", BadDiff::Empty),
            ("@@ nothing @@\n", BadDiff::Header { number: 1, line: 1 }),
            ("@@ -0,2 +1 @@\n", BadDiff::Header { number: 1, line: 1 }),
            ("@@ -99999999999999999999,2 +1 @@\n", BadDiff::Header { number: 1, line: 1 }),
            ("@@ -1,2 +1,2 @@\n a\n", BadDiff::TooShort { number: 1 }),
            ("@@ -1 +1 @@\n a\n+b\n", BadDiff::TooLong { number: 1, line: 3 }),
            ("@@ -1 +1 @@\n+b\n+c\n-d\n", BadDiff::Counts { number: 1 }),
            ("@@ -1 +1 @@\n*b\n", BadDiff::Line { number: 1, line: 2 }),
            ("@@ -1 +1 @@\n\\ No newline at end of file\n a\n", BadDiff::Line { number: 1, line: 2 }),
            ("@@ -1 +1 @@\n-a\n+b\n--- c\n+++ d\n@@ -1 +1 @@\n-a\n+b\n", BadDiff::SeveralTexts { line: 4 }),
        ];
        for (diff, why) in cases {
            assert_eq!(read(diff, Way::Forward), Err(why), "{diff:?}");
        }
    }
}
