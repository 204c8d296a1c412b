//! Turns a page into text that can be read: headings, paragraphs, lists and links.
//!
//! Guarantees: one pass over the page and no tree, so that no nesting costs more than its length; every list of the answer is bounded, and
//! `truncated` says when something was left off. Scripts, styles, navigation and what else is not content leave no text.
//! Does not: follow the rules by which browsers mend broken nesting. Text ends up in the right order, if not always in the right list.

mod kept;

use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};
use serde::Serialize;

pub use self::kept::MOST_TEXT;
use self::kept::{Block, Kept};
use crate::link;

/// What a page says.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Page {
    /// What it is called.
    pub title: Option<String>,
    /// Its text. Headings begin with `#`, items of lists with `-` or a number; empty lines stand between paragraphs.
    pub text: String,
    /// Its headings, in order.
    pub headings: Vec<Heading>,
    /// What its text links to, in order, each once.
    pub links: Vec<Link>,
    /// What it says about itself.
    pub metadata: Metadata,
    /// Whether some of it was left off.
    pub truncated: bool,
}

/// A heading.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Heading {
    /// From 1 to 6.
    pub level: u8,
    /// What it says.
    pub text: String,
}

/// A link.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// What it is called.
    pub text: String,
    /// Where it leads.
    pub url: String,
}

/// What a page says about itself.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Metadata {
    /// What it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Who wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// When it was published, in its own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
    /// The site that it is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// The language that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The address that it prefers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canonical: Option<String>,
}

/// Reads a page that came from `url`.
#[must_use]
pub fn read(html: &str, url: &str) -> Page {
    let mut emitter = DefaultEmitter::<()>::default();
    // Within scripts, styles and titles other rules hold.
    emitter.naively_switch_states(true);
    let mut reader = Reader { base: url.to_owned(), ..Reader::default() };
    for token in Tokenizer::new_with_emitter(html, emitter) {
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => reader.open(&tag),
            Token::EndTag(tag) => reader.close(&tag.name),
            Token::String(text) => reader.text(&String::from_utf8_lossy(&text)),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
    }
    reader.finish()
}

#[derive(Default)]
struct Reader {
    base: String,
    based: bool,
    title: Option<String>,
    in_title: bool,
    metadata: Metadata,
    /// The element whose content is passed over, and how often it is open.
    skipped: Option<(Vec<u8>, usize)>,
    /// How often the main part of the page is open.
    main: usize,
    lists: Vec<List>,
    deeper_lists: usize,
    link: Option<(String, String)>,
    kept: Kept,
}

/// A list that is open.
enum List {
    Plain,
    Numbered(usize),
}

impl Reader {
    fn open(&mut self, tag: &StartTag<()>) {
        let name = tag.name.as_slice();
        if let Some((skipped, open)) = &mut self.skipped {
            if name == b"main" || name == b"body" {
                // Whoever forgot to close the navigation did not mean all of the page.
                self.skipped = None;
            } else {
                *open += usize::from(name == skipped.as_slice() && !is_whole(tag));
                return;
            }
        }
        match name {
            b"title" if self.title.is_none() => self.in_title = true,
            b"html" => self.metadata.language = self.metadata.language.take().or(short(attribute(tag, b"lang"))),
            b"base" if !self.based => self.rebase(tag),
            b"meta" => self.meta(tag),
            b"link" => self.relation(tag),
            _ if SKIPPED.contains(&name) && !is_whole(tag) => self.skipped = Some((name.to_vec(), 1)),
            b"main" | b"article" => {
                self.kept.end_block();
                self.main += 1;
                self.kept.in_main = true;
            }
            b"br" => self.kept.break_line(),
            b"hr" => self.kept.end_block(),
            b"img" => self.image(tag),
            b"a" => self.open_link(tag),
            b"pre" => self.kept.begin(Block::Verbatim),
            b"blockquote" => self.kept.begin(Block::Quoted),
            b"ul" | b"menu" => self.open_list(List::Plain),
            b"ol" => self.open_list(List::Numbered(0)),
            b"li" => self.item(),
            b"td" | b"th" => self.kept.cell(),
            [b'h', level @ b'1'..=b'6'] => self.kept.begin(Block::Heading(level - b'0')),
            _ if BLOCKS.contains(&name) => self.kept.end_block(),
            _ => {}
        }
    }

    fn close(&mut self, name: &[u8]) {
        if name == b"title" {
            self.in_title = false;
        }
        if let Some((skipped, open)) = &mut self.skipped {
            if name == skipped.as_slice() {
                *open -= 1;
                if *open == 0 {
                    self.skipped = None;
                }
            }
            return;
        }
        match name {
            b"a" => self.close_link(),
            b"main" | b"article" => {
                self.kept.end_block();
                self.main = self.main.saturating_sub(1);
                self.kept.in_main = self.main > 0;
            }
            b"ul" | b"ol" | b"menu" => {
                self.kept.end_block();
                if self.deeper_lists > 0 {
                    self.deeper_lists -= 1;
                } else {
                    self.lists.pop();
                }
            }
            [b'h', b'1'..=b'6'] | b"pre" | b"blockquote" | b"li" => self.kept.end_block(),
            _ if BLOCKS.contains(&name) => self.kept.end_block(),
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        if self.in_title {
            self.title.get_or_insert_default().push_str(text);
        } else if self.skipped.is_none() {
            self.kept.push(text);
            if let Some((_, called)) = &mut self.link {
                called.push_str(text);
                called.truncate(called.floor_char_boundary(4 * SHORT));
            }
        }
    }

    fn rebase(&mut self, tag: &StartTag<()>) {
        if let Some(base) = attribute(tag, b"href").and_then(|href| link::resolve(&self.base, &href)) {
            (self.base, self.based) = (base, true);
        }
    }

    fn meta(&mut self, tag: &StartTag<()>) {
        let Some(name) = attribute(tag, b"name").or_else(|| attribute(tag, b"property")) else { return };
        let field = match name.to_ascii_lowercase().as_str() {
            "description" | "og:description" => &mut self.metadata.description,
            "author" | "article:author" => &mut self.metadata.author,
            "article:published_time" | "date" | "dc.date" => &mut self.metadata.published,
            "og:site_name" | "application-name" => &mut self.metadata.site,
            _ => return,
        };
        if field.is_none() {
            *field = short(attribute(tag, b"content"));
        }
    }

    fn relation(&mut self, tag: &StartTag<()>) {
        let is_canonical = attribute(tag, b"rel").is_some_and(|rel| rel.eq_ignore_ascii_case("canonical"));
        if is_canonical && self.metadata.canonical.is_none() {
            self.metadata.canonical = attribute(tag, b"href").and_then(|href| link::resolve(&self.base, &href));
        }
    }

    fn image(&mut self, tag: &StartTag<()>) {
        if let Some(said) = short(attribute(tag, b"alt")) {
            self.kept.push(&format!(" [{said}] "));
        }
    }

    fn open_link(&mut self, tag: &StartTag<()>) {
        self.close_link();
        let leads = attribute(tag, b"href").filter(|href| !href.trim_start().starts_with('#'));
        if let Some(url) = leads.and_then(|href| link::resolve(&self.base, &href)) {
            self.link = Some((url, String::new()));
        }
    }

    fn close_link(&mut self) {
        if let Some((url, called)) = self.link.take() {
            self.kept.link(short(Some(called)).unwrap_or_default(), url);
        }
    }

    fn open_list(&mut self, list: List) {
        self.kept.end_block();
        if self.lists.len() < DEEPEST_LIST {
            self.lists.push(list);
        } else {
            self.deeper_lists += 1;
        }
    }

    fn item(&mut self) {
        let level = self.lists.len().saturating_sub(1);
        let mark = match self.lists.last_mut() {
            Some(List::Numbered(number)) => {
                *number += 1;
                format!("{number}. ")
            }
            Some(List::Plain) | None => "- ".to_owned(),
        };
        self.kept.begin(Block::Item { level, mark });
    }

    fn finish(mut self) -> Page {
        self.close_link();
        let mut page = Page { title: short(self.title), metadata: self.metadata, ..Page::default() };
        self.kept.finish(&mut page);
        page
    }
}

/// Whether an element ends with its tag. HTML takes a slash for that only in what is not its own; `<script/>` is open.
fn is_whole(tag: &StartTag<()>) -> bool {
    tag.self_closing && [&b"svg"[..], b"math"].contains(&tag.name.as_slice())
}

fn attribute(tag: &StartTag<()>, name: &[u8]) -> Option<String> {
    tag.attributes.get(name).map(|value| String::from_utf8_lossy(value).into_owned())
}

/// A text in one line, if it says anything, and the beginning of it if it is long.
fn short(text: Option<String>) -> Option<String> {
    let mut text = text?.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.len() > SHORT {
        text.truncate(text.floor_char_boundary(SHORT));
        text.push('…');
    }
    (!text.is_empty()).then_some(text)
}

/// What is not content, or cannot be read.
const SKIPPED: &[&[u8]] = &[
    b"script",
    b"style",
    b"noscript",
    b"template",
    b"nav",
    b"aside",
    b"footer",
    b"svg",
    b"math",
    b"canvas",
    b"iframe",
    b"object",
    b"audio",
    b"video",
    b"select",
    b"textarea",
    b"button",
    b"datalist",
    b"dialog",
];
/// What begins on a line of its own.
const BLOCKS: &[&[u8]] = &[
    b"p",
    b"div",
    b"section",
    b"header",
    b"address",
    b"center",
    b"dl",
    b"dt",
    b"dd",
    b"fieldset",
    b"figure",
    b"figcaption",
    b"form",
    b"details",
    b"summary",
    b"table",
    b"caption",
    b"tr",
    b"body",
    b"legend",
    b"optgroup",
];
/// The most bytes of a title, of the text of a link, and of what a page says about itself.
const SHORT: usize = 500;
/// Deeper lists are shown at this level.
const DEEPEST_LIST: usize = 8;

#[cfg(test)]
mod tests;
