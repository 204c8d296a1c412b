//! What is searched for. Any text is a query, and none of it is syntax.
//!
//! Guarantees: each word is quoted for FTS5, so operators, columns, brackets and quotes in it are words like any other; a query has a bounded
//! number of words and bytes.

use std::collections::BTreeSet;

/// Words and tags to search for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    words: Vec<String>,
    tags: BTreeSet<String>,
}

impl Query {
    /// The words of a text. What is beyond 4 KiB or 32 words is left out.
    #[must_use]
    pub fn new(text: &str) -> Self {
        // SQLite reads an expression up to its first NUL, which would cut a quotation in half.
        let words = up_to(text, MOST_BYTES).split(|c: char| c.is_whitespace() || c == '\0');
        let words = words.filter(|word| !word.is_empty()).take(MOST_WORDS).map(ToOwned::to_owned);
        Self { words: words.collect(), tags: BTreeSet::new() }
    }

    /// The same words, in entries that have all these tags.
    #[must_use]
    pub fn with_tags(mut self, tags: impl IntoIterator<Item = String>) -> Self {
        self.tags = tags.into_iter().collect();
        self
    }

    pub(super) const fn tags(&self) -> &BTreeSet<String> {
        &self.tags
    }

    /// Expressions that match what has all the words, and what has any of them; nothing if there are no words.
    pub(super) fn expressions(&self) -> Option<[String; 2]> {
        let quoted: Vec<String> = self.words.iter().map(|word| format!("\"{}\"", word.replace('"', "\"\""))).collect();
        if quoted.is_empty() { None } else { Some([quoted.join(" "), quoted.join(" OR ")]) }
    }
}

/// The beginning of a text, to show instead of the part around the words.
pub(super) fn beginning(text: &str) -> String {
    let shown = up_to(text, SHOWN_BYTES);
    if shown.len() == text.len() { shown.to_owned() } else { format!("{shown}…") }
}

/// As much of a text as fits into so many bytes.
fn up_to(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default()
}

const MOST_BYTES: usize = 4096;
const MOST_WORDS: usize = 32;
const SHOWN_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_and_nothing_is_an_operator() {
        let query = Query::new("cats AND\t\"dogs\" -NEAR(x) title:y\0z");
        let [all, any] = query.expressions().unwrap();
        assert_eq!(all, r#""cats" "AND" """dogs""" "-NEAR(x)" "title:y" "z""#);
        assert!(any.starts_with(r#""cats" OR "AND" OR "#));
        assert_eq!(Query::new(" \n\0").expressions(), None);
    }

    #[test]
    fn a_query_is_bounded() {
        assert_eq!(Query::new(&"é ".repeat(1000)).words.len(), MOST_WORDS);
        assert_eq!(Query::new(&"é".repeat(10_000)).words, ["é".repeat(MOST_BYTES / 2)]);
    }

    #[test]
    fn the_beginning_of_a_long_text_is_marked_as_such() {
        assert_eq!(beginning("short"), "short");
        assert_eq!(beginning(&"é".repeat(101)), format!("{}…", "é".repeat(100)));
    }
}
