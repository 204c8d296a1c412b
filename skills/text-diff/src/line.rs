//! A line of a text, and whether it is ended.
//!
//! Guarantees: the lines of a text, written one after the other, are the text.

/// A line. A carriage return is part of its content, so that texts from elsewhere come back as they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// What it says.
    pub content: &'a str,
    /// Whether a line feed follows. Only the last line of a text can do without.
    pub ended: bool,
}

impl<'a> Line<'a> {
    /// The lines of a text.
    #[must_use]
    pub fn all(text: &'a str) -> Vec<Self> {
        text.split_inclusive('\n')
            .map(|line| match line.strip_suffix('\n') {
                Some(content) => Self { content, ended: true },
                None => Self { content: line, ended: false },
            })
            .collect()
    }

    /// Adds it to a text.
    pub fn write(self, text: &mut String) {
        text.push_str(self.content);
        if self.ended {
            text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_written_one_after_the_other_are_the_text() {
        for text in ["", "\n", "a", "a\n", "a\n\nb", "\r\na\r\n", "ä\u{2028}b\n"] {
            let mut again = String::new();
            Line::all(text).into_iter().for_each(|line| line.write(&mut again));
            assert_eq!(again, text);
        }
    }

    #[test]
    fn only_a_line_feed_ends_a_line() {
        assert_eq!(
            Line::all("a\r\nb\u{2028}c"),
            [Line { content: "a\r", ended: true }, Line { content: "b\u{2028}c", ended: false }]
        );
    }
}
