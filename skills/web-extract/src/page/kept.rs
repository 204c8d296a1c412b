//! What is kept of a page while it is read, block by block.
//!
//! Guarantees: no more bytes, headings and links than the bounds below.

use std::collections::BTreeSet;

use super::{Heading, Link, Page, short};

/// What a run of text is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Block {
    /// A paragraph.
    #[default]
    Paragraph,
    /// A heading, from 1 to 6.
    Heading(u8),
    /// An item of a list.
    Item {
        /// How deep the list is, from 0.
        level: usize,
        /// What stands before it.
        mark: String,
    },
    /// Text whose spaces and lines count.
    Verbatim,
    /// What somebody else said.
    Quoted,
}

/// What is kept.
#[derive(Debug, Default)]
pub struct Kept {
    /// Whether the main part of the page is open.
    pub in_main: bool,
    /// All of the page, and its main part alone.
    all: Part,
    main: Part,
    kind: Block,
    line: String,
}

#[derive(Debug, Default)]
struct Part {
    text: String,
    headings: Vec<Heading>,
    links: Vec<Link>,
    seen: BTreeSet<String>,
    after_item: bool,
    truncated: bool,
}

impl Kept {
    /// Adds text to the block that is open.
    pub fn push(&mut self, text: &str) {
        if self.line.len() > MOST_TEXT {
            return;
        }
        if self.kind == Block::Verbatim {
            self.line.push_str(text);
            return;
        }
        for (at, word) in text.split(|c: char| c.is_whitespace()).enumerate() {
            if at > 0 {
                self.space();
            }
            self.line.push_str(word);
        }
    }

    /// A line ends, and its block goes on.
    pub fn break_line(&mut self) {
        if !self.line.is_empty() {
            self.line.push('\n');
        }
    }

    /// Another cell of a table begins.
    pub fn cell(&mut self) {
        if !self.line.trim().is_empty() {
            self.space();
            self.line.push_str("| ");
        }
    }

    /// Ends the block that is open and begins another.
    pub fn begin(&mut self, kind: Block) {
        self.end_block();
        self.kind = kind;
    }

    /// Ends the block that is open.
    pub fn end_block(&mut self) {
        // A paragraph within an item is still the item, until there is text.
        if self.line.trim().is_empty() {
            self.line.clear();
            if !matches!(self.kind, Block::Item { .. } | Block::Quoted) {
                self.kind = Block::Paragraph;
            }
            return;
        }
        let line = std::mem::take(&mut self.line);
        let kind = std::mem::take(&mut self.kind);
        if self.in_main {
            self.main.add(&kind, &line);
        }
        self.all.add(&kind, &line);
    }

    /// Adds a link.
    pub fn link(&mut self, text: String, url: String) {
        if self.in_main {
            self.main.link(text.clone(), url.clone());
        }
        self.all.link(text, url);
    }

    /// What was kept becomes the page: its main part, if that says enough, and otherwise all.
    pub fn finish(mut self, page: &mut Page) {
        self.end_block();
        let part = if self.main.text.len() >= ENOUGH { self.main } else { self.all };
        page.text = part.text;
        page.headings = part.headings;
        page.links = part.links;
        page.truncated = part.truncated;
    }

    fn space(&mut self) {
        if !self.line.is_empty() && !self.line.ends_with([' ', '\n']) {
            self.line.push(' ');
        }
    }
}

impl Part {
    fn add(&mut self, kind: &Block, line: &str) {
        let line = line.trim_matches(if *kind == Block::Verbatim { &['\n', '\r'][..] } else { &[' ', '\n'][..] });
        let written = match kind {
            Block::Paragraph => lines(line, ""),
            Block::Heading(level) => format!("{} {}", "#".repeat(usize::from(*level)), line.replace('\n', " ")),
            Block::Item { level, mark } => {
                let indent = "  ".repeat(*level);
                let rest = format!("\n{indent}{}", " ".repeat(mark.len()));
                format!("{indent}{mark}{}", lines(line, "").replace('\n', &rest))
            }
            Block::Verbatim => lines(line, "    "),
            Block::Quoted => lines(line, "> "),
        };
        let is_item = matches!(kind, Block::Item { .. });
        let between = match (self.text.is_empty(), is_item && self.after_item) {
            (true, _) => "",
            (false, true) => "\n",
            (false, false) => "\n\n",
        };
        self.after_item = is_item;
        self.text.push_str(between);
        self.text.push_str(&written);
        if self.text.len() > MOST_TEXT {
            self.text.truncate(self.text.floor_char_boundary(MOST_TEXT));
            self.truncated = true;
            return;
        }
        if let (Block::Heading(level), Some(text)) = (kind, short(Some(line.to_owned()))) {
            if self.headings.len() < MOST_HEADINGS {
                self.headings.push(Heading { level: *level, text });
            } else {
                self.truncated = true;
            }
        }
    }

    fn link(&mut self, text: String, url: String) {
        if self.seen.contains(&url) {
            return;
        }
        if self.links.len() == MOST_LINKS {
            self.truncated = true;
            return;
        }
        self.seen.insert(url.clone());
        self.links.push(Link { text, url });
    }
}

/// Lines with something before each, and no space after any.
fn lines(text: &str, before: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("{before}{line}").trim_end().to_owned()).collect();
    lines.join("\n")
}

/// The most bytes of text.
pub const MOST_TEXT: usize = 256 << 10;
const MOST_HEADINGS: usize = 200;
/// The most links.
pub const MOST_LINKS: usize = 300;
/// The least bytes of text in a main part that is taken for the page. Some pages have one that holds a picture.
const ENOUGH: usize = 100;
