//! A QR code on a terminal: two modules in each character, dark on light whatever the colours of the terminal are.

use crate::rows::Room;

/// A QR code from its rows of `0` and `1`, if it fits. What is no QR code is not drawn.
pub(super) fn drawn(modules: &[String], room: Room) -> Option<Vec<String>> {
    let size = modules.len();
    let is_square = modules.iter().all(|row| row.len() == size && row.bytes().all(|byte| matches!(byte, b'0' | b'1')));
    let all = size + 2 * MARGIN;
    if !is_square || !SIZES.contains(&size) || all > room.columns || all.div_ceil(2) > room.lines {
        return None;
    }
    let dark = |x: usize, y: usize| {
        let place = |at: usize| at.checked_sub(MARGIN);
        let row = place(y).and_then(|y| modules.get(y)).map(|row| row.as_bytes());
        row.and_then(|row| row.get(place(x)?)) == Some(&b'1')
    };
    let line = |y: usize| {
        let cells = (0..all).map(|x| match (dark(x, y), dark(x, y + 1)) {
            (true, true) => '█',
            (true, false) => '▀',
            (false, true) => '▄',
            (false, false) => ' ',
        });
        format!("{DARK_ON_LIGHT}{}{RESET}", cells.collect::<String>())
    };
    Some((0..all).step_by(2).map(line).collect())
}

/// How many modules a QR code has on a side, from the smallest to the largest.
const SIZES: std::ops::RangeInclusive<usize> = 21..=177;

/// Light modules around it, without which phones do not find it.
const MARGIN: usize = 2;

const DARK_ON_LIGHT: &str = "\u{1b}[30;107m";
const RESET: &str = "\u{1b}[0m";

#[cfg(test)]
mod tests {
    use super::*;

    const fn room(columns: usize, lines: usize) -> Room {
        Room { columns, lines }
    }

    /// A code whose first and last row are dark, and nothing else.
    fn modules() -> Vec<String> {
        (0..21).map(|y| if y == 0 || y == 20 { "1".repeat(21) } else { "0".repeat(21) }).collect()
    }

    #[test]
    fn two_rows_become_one_line_inside_of_a_margin() {
        let lines = drawn(&modules(), room(25, 13)).unwrap();
        let line = |inside: char| format!("{DARK_ON_LIGHT}  {}  {RESET}", inside.to_string().repeat(21));
        assert_eq!(lines.len(), 13);
        assert_eq!((&lines[0], &lines[1], &lines[11]), (&line(' '), &line('▀'), &line('▀')));
        assert_eq!((&lines[2], &lines[12]), (&line(' '), &line(' ')));
    }

    #[test]
    fn what_does_not_fit_or_is_no_code_is_not_drawn() {
        assert_eq!(drawn(&modules(), room(24, 13)), None);
        assert_eq!(drawn(&modules(), room(25, 12)), None);
        assert_eq!(drawn(&[], room(80, 80)), None);
        assert_eq!(drawn(&["1".to_owned()], room(80, 80)), None);
        let mut bent = modules();
        bent[3].push('1');
        assert_eq!(drawn(&bent, room(80, 80)), None);
        let mut other = modules();
        other[3] = "x".repeat(21);
        assert_eq!(drawn(&other, room(80, 80)), None);
    }
}
