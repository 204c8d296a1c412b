//! Policy text and where it came from.
//!
//! A file is cut into its policies before Cedar sees it, so that every policy keeps its own text, file and line, and an error in
//! one does not hide errors in the others.

use std::{path::Path, sync::Arc};

use palyra_types::visible::is_hidden;
use serde::Serialize;

use crate::problem::{Finding, Problem};

/// How strong a policy stands: the baseline is always there and its ids are reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// Ships with Palyra and cannot be removed.
    Baseline,
    /// Written by the operator, presets included.
    Operator,
}

/// One file of policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    pub(crate) name: Arc<str>,
    pub(crate) text: Arc<str>,
    pub(crate) layer: Layer,
    /// Where it was read from. The name is made visible, so it need not be the path.
    pub(crate) path: Option<Arc<Path>>,
    /// Where each line begins, so that places are found without counting from the top.
    line_starts: Arc<[usize]>,
    /// How many characters stand before each [`STRIDE`] of bytes, so that a column on a long line is found the same way.
    characters: Arc<[usize]>,
}

impl SourceFile {
    /// Operator policies from a piece of text. The name is what people see, such as a path or `preset:cautious`.
    #[must_use]
    pub fn operator(name: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Self {
        Self::new(name.into(), text.into(), Layer::Operator)
    }

    pub(crate) fn new(name: Arc<str>, text: Arc<str>, layer: Layer) -> Self {
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(newline, _)| newline + 1)).collect();
        let counts = text.as_bytes().chunks(STRIDE).map(count_characters);
        let characters = std::iter::once(0)
            .chain(counts.scan(0, |before, count| {
                *before += count;
                Some(*before)
            }))
            .collect();
        Self { name, text, layer, path: None, line_starts, characters }
    }

    /// The name that people see.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file it was read from, if it was.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The Cedar text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The place in this file at a byte offset.
    #[must_use]
    pub fn locate(&self, offset: usize, length: usize) -> Location {
        let line = self.line_starts.partition_point(|&start| start <= offset).max(1);
        let line_start = self.line_starts.get(line - 1).copied().unwrap_or(0);
        let column = self.characters_before(offset).saturating_sub(self.characters_before(line_start));
        let line_end = self.line_starts.get(line).map_or(self.text.len(), |next| next - 1);
        let line_text = clip(self.text.get(line_start..line_end).unwrap_or_default().trim_end_matches('\r'));
        let here = clip(self.text.get(offset..offset.saturating_add(length)).unwrap_or_default());
        Location {
            file: Arc::clone(&self.name),
            line,
            column: column + 1,
            width: here.lines().next().map_or(1, |text| text.chars().count().max(1)),
            line_text: line_text.to_owned(),
        }
    }

    fn characters_before(&self, offset: usize) -> usize {
        let counted = offset / STRIDE;
        let rest = self.text.as_bytes().get(counted * STRIDE..offset).map_or(0, count_characters);
        self.characters.get(counted).map_or(rest, |before| before + rest)
    }

    /// Refuses a file with a character that hides what it says, comments included.
    ///
    /// SECURITY: a carriage return alone ends a comment for Cedar and not for [`Self::statements`], so a `forbid` after it would be
    /// lost. It is refused; before a line feed it is part of the line's end and means nothing.
    pub(crate) fn check_visible(&self) -> Result<(), Finding> {
        let hides = |offset: usize, c: char| match c {
            '\n' | '\t' => false,
            '\r' => !self.text.get(offset + 1..).is_some_and(|rest| rest.starts_with('\n')),
            c => is_hidden(c),
        };
        match self.text.char_indices().find(|&(offset, c)| hides(offset, c)) {
            None => Ok(()),
            Some((offset, hidden)) => {
                Err(Finding { problem: Problem::Hidden(hidden), location: self.locate(offset, hidden.len_utf8()) })
            }
        }
    }

    /// Cuts the file into its policies, each with the comments in front of it left out.
    pub(crate) fn statements(&self) -> Vec<Statement<'_>> {
        let mut statements = Vec::new();
        let mut start = None;
        let mut state = State::Code;
        for (offset, c) in self.text.char_indices() {
            state = match (state, c) {
                (State::Comment, '\n') => State::Code,
                (State::Comment, _) => State::Comment,
                (State::Slash, '/') => {
                    // The slash before this one opened the comment; it is no code, unless code stood before it.
                    start = start.filter(|&first| first + 1 != offset);
                    State::Comment
                }
                (State::Escape, _) => State::Text,
                (State::Text, '\\') => State::Escape,
                (State::Text, '"') => State::Code,
                (State::Text, _) => State::Text,
                (State::Code | State::Slash, c) => {
                    if start.is_none() && !c.is_whitespace() {
                        start = Some(offset);
                    }
                    match c {
                        ';' => {
                            let first = start.take().unwrap_or(offset);
                            if let Some(text) = self.text.get(first..=offset) {
                                statements.push(Statement { offset: first, text });
                            }
                            State::Code
                        }
                        '"' => State::Text,
                        '/' => State::Slash,
                        _ => State::Code,
                    }
                }
            };
        }
        if let Some(first) = start
            && let Some(text) = self.text.get(first..)
        {
            statements.push(Statement { offset: first, text });
        }
        statements
    }
}

/// How many bytes lie between two counts of characters.
const STRIDE: usize = 1024;

/// Longest part of a line that a place keeps, in bytes. Every policy keeps its place, and a whole file may stand on one line.
const MAX_LINE_TEXT: usize = 1024;

/// The characters that begin in a piece of UTF-8.
fn count_characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte & 0xC0 != 0x80).count()
}

fn clip(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_LINE_TEXT)).unwrap_or(text)
}

/// One policy's text and where it begins in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Statement<'a> {
    pub(crate) offset: usize,
    pub(crate) text: &'a str,
}

/// A place in a file, with the line itself, so that it can be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Location {
    /// The file's name.
    pub file: Arc<str>,
    /// The line, counted from one.
    pub line: usize,
    /// The column, counted in characters from one.
    pub column: usize,
    /// How many characters of the line are meant.
    #[serde(skip)]
    pub width: usize,
    /// The line's text, or the start of it if it is very long.
    #[serde(skip)]
    pub line_text: String,
}

impl Location {
    /// A file as a whole.
    #[must_use]
    pub fn file(name: impl Into<Arc<str>>) -> Self {
        Self { file: name.into(), line: 1, column: 1, width: 0, line_text: String::new() }
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

#[derive(Clone, Copy)]
enum State {
    Code,
    Slash,
    Comment,
    Text,
    Escape,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Vec<String> {
        let file = SourceFile::operator("test", text);
        file.statements().iter().map(|statement| statement.text.to_owned()).collect()
    }

    #[test]
    fn policies_are_cut_at_their_semicolons() {
        assert_eq!(cut("permit(a);\n// a note; with a semicolon\nforbid(b);"), ["permit(a);", "forbid(b);"]);
    }

    #[test]
    fn semicolons_and_slashes_inside_strings_are_text() {
        let policy = r#"@why("a; b // c \" d;") permit(a) when { "https://x;" == x };"#;
        assert_eq!(cut(&format!("{policy} forbid(b);")), [policy, "forbid(b);"]);
    }

    #[test]
    fn a_comment_inside_a_policy_stays_in_it_and_an_unfinished_policy_is_kept() {
        assert_eq!(cut("permit( // why; not\n a);\n// end\nforbid(b)"), ["permit( // why; not\n a);", "forbid(b)"]);
        assert!(cut("// only\n//comments;\n").is_empty());
        assert_eq!(cut(";"), [";"]);
    }

    #[test]
    fn a_place_is_told_in_lines_and_characters() {
        let file = SourceFile::operator("f.cedar", "a\nbé cd\n");
        let place = file.locate("a\nbé ".len(), 2);
        assert_eq!((place.line, place.column, place.width, place.line_text.as_str()), (2, 4, 2, "bé cd"));
    }
    #[test]
    fn the_places_of_a_file_on_one_line_keep_the_line_only_once() {
        let policy = "@id(\"é\")permit(principal,action,resource);";
        let file = SourceFile::operator("f.cedar", policy.repeat(20_000));
        let places: Vec<_> = file.statements().iter().map(|one| file.locate(one.offset, one.text.len())).collect();
        assert_eq!(places[19_999].column, 19_999 * policy.chars().count() + 1);
        assert!(places.iter().all(|place| place.line_text.len() <= 1024));
    }
}
