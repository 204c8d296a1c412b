//! Where output goes and how it looks there. Colour is never the only sign: a glyph and a word always stand beside it.

use std::{
    env, fmt,
    io::{self, IsTerminal, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use anstyle::{AnsiColor, Style};
use palyra_api::Document;
use palyra_policy::Verdict;
use palyra_types::visible::{is_hidden, visible};
use serde::Serialize;

use crate::rows::{columns, rows};

/// The streams of this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal {
    /// Whether data is printed as JSON.
    pub(crate) json: bool,
    colour_out: bool,
    colour_err: bool,
}

impl Terminal {
    /// Looks at the streams and at `NO_COLOR`.
    pub(crate) fn detect(json: bool) -> Self {
        let colour = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self {
            json,
            colour_out: colour && io::stdout().is_terminal(),
            colour_err: colour && io::stderr().is_terminal(),
        }
    }

    /// Prints a line of data. A reader that went away is no error: `palyra … | head` is fine. A full disk is.
    pub(crate) fn out(&self, line: impl AsRef<str>) {
        match writeln!(io::stdout().lock(), "{}", line.as_ref()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) => {
                if !OUTPUT_FAILED.swap(true, Ordering::Relaxed) {
                    self.talk(format!("error: the output cannot be written: {error}"));
                }
            }
        }
    }

    /// Prints a line of data that holds what others said; on a terminal, in rows of its width.
    pub(crate) fn out_rows(&self, line: impl AsRef<str>) {
        match columns(io::stdout()) {
            Some(columns) => rows(line.as_ref(), columns).iter().for_each(|row| self.out(row)),
            None => self.out(line),
        }
    }

    /// Whether some data could not be written.
    pub(crate) fn failed() -> bool {
        let flushed = io::stdout().lock().flush();
        OUTPUT_FAILED.load(Ordering::Relaxed) || flushed.is_err_and(|error| error.kind() != io::ErrorKind::BrokenPipe)
    }

    /// Prints a line of talk.
    pub(crate) fn talk(&self, line: impl AsRef<str>) {
        let _ = writeln!(io::stderr().lock(), "{}", line.as_ref());
    }

    /// Prints a line of talk that holds what others said; on a terminal, in rows of its width.
    pub(crate) fn talk_rows(&self, line: impl AsRef<str>) {
        match columns(io::stderr()) {
            Some(columns) => rows(line.as_ref(), columns).iter().for_each(|row| self.talk(row)),
            None => self.talk(line),
        }
    }

    /// Prints a document.
    pub(crate) fn document<T: Serialize>(&self, kind: &str, data: T) {
        match serde_json::to_string_pretty(&Document::new(kind, data)) {
            Ok(text) => self.out(escape_hidden(&text)),
            Err(error) => self.talk(format!("error: the document cannot be written: {error}")),
        }
    }

    /// Prints a document on one line, for streams of them.
    pub(crate) fn line<T: Serialize>(&self, kind: &str, data: T) {
        match serde_json::to_string(&Document::new(kind, data)) {
            Ok(text) => self.out(escape_hidden(&text)),
            Err(error) => self.talk(format!("error: the document cannot be written: {error}")),
        }
    }

    /// Text on stdout in a style.
    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        paint(self.colour_out, style, text)
    }

    /// Text on stderr in a style.
    pub(crate) fn paint_err(&self, style: Style, text: &str) -> String {
        paint(self.colour_err, style, text)
    }

    /// A verdict with its glyph, its word and its colour.
    pub(crate) fn verdict(&self, verdict: Verdict) -> String {
        self.verdict_word(&verdict.to_string())
    }

    /// The same for a verdict that came over the wire. One that is unknown counts as a denial, and says its word.
    pub(crate) fn verdict_word(&self, verdict: &str) -> String {
        let (glyph, style) = match verdict {
            "allow" => ("✔", GOOD),
            "ask" => ("?", WAIT),
            _ => ("✖", BAD),
        };
        self.paint(style, &format!("{glyph} {:<5}", visible(verdict)))
    }
}

static OUTPUT_FAILED: AtomicBool = AtomicBool::new(false);

/// Fine.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
/// Wants a person.
pub(crate) const WAIT: Style = AnsiColor::Yellow.on_default().bold();
/// Wrong or refused.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// Beside the point.
pub(crate) const DIM: Style = Style::new().dimmed();
/// A heading.
pub(crate) const BOLD: Style = Style::new().bold();

/// Text that the daemon has made visible already. It is not made visible twice, which would spell out the marks themselves; if it hides
/// something all the same, it is.
pub(crate) fn shown(text: &str) -> String {
    if text.chars().any(is_hidden) { visible(text) } else { text.to_owned() }
}

/// The same for several lines.
pub(crate) fn shown_block(text: &str) -> String {
    text.split('\n').map(shown).collect::<Vec<_>>().join("\n")
}

/// JSON whose hidden characters are spelt as escapes: the same document, and harmless on a terminal.
fn escape_hidden(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        // Line feeds and spaces lay the document out; inside of strings serde has escaped them.
        if c != '\n' && is_hidden(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = fmt::Write::write_fmt(&mut shown, format_args!("\\u{unit:04x}"));
            }
        } else {
            shown.push(c);
        }
    }
    shown
}

fn paint(colour: bool, style: Style, text: &str) -> String {
    if colour { format!("{style}{text}{style:#}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_visible_is_shown_as_it_is_and_nothing_is_hidden() {
        assert_eq!(shown("rm <U+202E> x"), "rm <U+202E> x");
        assert_eq!(shown("rm \u{202e} <U+0020>"), "rm <U+202E> <U+003C>U+0020>");
    }

    #[test]
    fn a_document_hides_nothing_and_says_the_same() {
        let text = "a\u{9b}31m\u{202e}\u{e0001}\n é";
        let json = serde_json::to_string_pretty(&[text]).unwrap();
        let shown = escape_hidden(&json);
        assert!(!shown.chars().any(|c| c != '\n' && is_hidden(c)), "{shown}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&shown).unwrap(), [text]);
    }
}
