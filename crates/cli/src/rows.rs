//! A line laid out in the rows of a terminal.
//!
//! Guarantees: only the first row of a line starts in the first column; each other one starts with a gutter. Nothing is cut.
//
// SECURITY: a terminal wraps a long line to its first column. An argument of spaces and of rows as long as the terminal is wide would
// draw a second question inside of the real one. Behind the gutter it cannot.

use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

/// How wide a terminal is that does not say.
pub(crate) const UNKNOWN: usize = 80;

/// How many columns a terminal has; nothing if it is none.
pub(crate) fn columns(terminal: impl AsFd) -> Option<usize> {
    room(terminal).map(|room| room.columns)
}

/// How much a terminal shows at once; nothing if it is none.
pub(crate) fn room(terminal: impl AsFd) -> Option<Room> {
    let size = tcgetwinsize(terminal).ok()?;
    let or = |count: u16, unknown: usize| if count == 0 { unknown } else { usize::from(count) };
    Some(Room { columns: or(size.ws_col, UNKNOWN), lines: or(size.ws_row, UNKNOWN_LINES) })
}

/// What a terminal shows at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// From left to right.
    pub(crate) columns: usize,
    /// From top to bottom.
    pub(crate) lines: usize,
}

/// The rows of a line. A line break in it starts a row with a gutter as well. Escape sequences take no room: whatever comes from elsewhere
/// was made visible before, so they are this program's own.
pub(crate) fn rows(line: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(NARROWEST);
    let (mut rows, mut row, mut column) = (Vec::new(), String::new(), 0);
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        if c == ESCAPE {
            row.push(c);
            // Styles are all there is, and `m` ends one.
            for c in rest.by_ref() {
                row.push(c);
                if c == 'm' {
                    break;
                }
            }
            continue;
        }
        if c == '\n' || column + width(c, column) > columns {
            rows.push(std::mem::replace(&mut row, GUTTER.to_owned()));
            column = GUTTER_WIDTH;
        }
        if c != '\n' {
            column += width(c, column);
            row.push(c);
        }
    }
    rows.push(row);
    rows
}

/// How many columns a character takes at most, here.
const fn width(c: char, column: usize) -> usize {
    match c {
        '\t' => TAB - column % TAB,
        _ if c.is_ascii() => 1,
        // Too much for most of them, which wraps early; too little would let the terminal wrap.
        _ => 2,
    }
}

/// How high a terminal is that does not say.
const UNKNOWN_LINES: usize = 24;
const ESCAPE: char = '\u{1b}';
const GUTTER: &str = "    │ ";
const GUTTER_WIDTH: usize = 6;
const TAB: usize = 8;
/// A gutter and a tab.
const NARROWEST: usize = GUTTER_WIDTH + TAB;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_line_is_one_row_as_it_is() {
        assert_eq!(rows("", 80), [""]);
        assert_eq!(rows("  who  agent:local", 18), ["  who  agent:local"]);
    }

    #[test]
    fn a_long_line_goes_on_behind_the_gutter_and_nothing_is_cut() {
        assert_eq!(rows("0123456789abcdefghijklmnopq", 16), ["0123456789abcdef", "    │ ghijklmnop", "    │ q"]);
        assert_eq!(rows("one\ntwo", 80), ["one", "    │ two"]);
        assert_eq!(rows("ab\tcdefghijkl", 14), ["ab\tcdefgh", "    │ ijkl"]);
    }

    #[test]
    fn wide_characters_never_reach_over_the_edge() {
        assert_eq!(rows("一二三四五六七八九", 15), ["一二三四五六七", "    │ 八九"]);
        assert_eq!(rows("0123456789abcd一", 15), ["0123456789abcd", "    │ 一"]);
    }

    #[test]
    fn styles_take_no_room() {
        let bold = "\u{1b}[1m0123456789abcd\u{1b}[0m";
        assert_eq!(rows(bold, 14), [bold]);
        assert_eq!(rows(&format!("{bold}e"), 14), [bold, "    │ e"]);
    }

    #[test]
    fn a_question_cannot_be_drawn_inside_of_a_question() {
        let forged =
            format!("  arguments     [{:63}{:<80}{:<80}]", "", "? process.run ls  01J", "  program       [ls]");
        for columns in [20, 79, 80, 81, 200] {
            let rows = rows(&forged, columns);
            let (first, others) = rows.split_first().unwrap();
            assert!(first.starts_with("  arguments     ["), "{first}");
            assert!(others.iter().all(|row| row.starts_with(GUTTER)), "{others:?}");
            let text: String = others.iter().map(|row| row.strip_prefix(GUTTER).unwrap()).collect();
            assert_eq!(format!("{first}{text}"), forged);
            assert!(rows.iter().all(|row| row.chars().count() <= columns), "{rows:?}");
        }
    }
}
