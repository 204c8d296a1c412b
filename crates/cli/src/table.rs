//! Rows whose columns stand under each other.

use palyra_types::Timestamp;

use crate::terminal::{BOLD, Terminal};

/// Prints rows under a heading. What others said has to be visible already. Without rows there is no heading either.
pub(crate) fn print<const N: usize>(heading: [&str; N], rows: &[[String; N]], terminal: &Terminal) {
    if rows.is_empty() {
        return;
    }
    let widths = widths(&heading, rows);
    terminal.out(terminal.paint(BOLD, &line(&heading, &widths)));
    for row in rows {
        terminal.out_rows(line(row, &widths));
    }
}

/// A moment, as short as a row wants it: to the minute, in UTC.
pub(crate) fn moment(time: Timestamp) -> String {
    let text = time.to_string();
    match text.split_once('T').and_then(|(day, time)| Some((day, time.get(..5)?))) {
        Some((day, minute)) => format!("{day} {minute}Z"),
        None => text,
    }
}

/// The same where there may be none.
pub(crate) fn moment_or(time: Option<Timestamp>, none: &str) -> String {
    time.map_or_else(|| none.to_owned(), moment)
}

fn widths<const N: usize>(heading: &[&str; N], rows: &[[String; N]]) -> [usize; N] {
    let mut widths = heading.map(|cell| cell.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    widths
}

fn line<const N: usize>(cells: &[impl AsRef<str>; N], widths: &[usize; N]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{:<width$}", cell.as_ref()));
    padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other_and_nothing_trails() {
        let rows = [["a".to_owned(), "é".to_owned()], ["long".to_owned(), String::new()]];
        let widths = widths(&["ID", "NAME"], &rows);
        let lines: Vec<String> = rows.iter().map(|row| line(row, &widths)).collect();
        assert_eq!(
            (line(&["ID", "NAME"], &widths).as_str(), lines),
            ("ID    NAME", vec!["a     é".into(), "long".into()])
        );
    }

    #[test]
    fn a_moment_is_told_to_the_minute() {
        assert_eq!(moment(Timestamp::parse("2026-03-02T09:30:59.123Z").unwrap()), "2026-03-02 09:30Z");
        assert_eq!(moment_or(None, "never"), "never");
    }
}
