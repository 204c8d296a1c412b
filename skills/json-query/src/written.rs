//! Writes a result as JSON.
//!
//! Guarantees: never more bytes or levels than the bounds; what is no JSON, such as a key that is no text, is refused. Like jq, infinity is
//! written as the largest number and no number at all as `null`.

use std::fmt::{self, Write as _};

use jaq_json::{Num, Val};

/// Adds a result to a text that may be `most` bytes long.
///
/// # Errors
/// When there is no room for it, or it cannot be written.
pub fn write(result: &Val, text: &mut String, most: usize) -> Result<(), Unwritable> {
    write_value(result, text, Bounds { most, levels: LEVELS })
}

/// Something's text, cut off after `most` bytes. A value that is shared within itself is small and has a text without end.
pub fn cut(thing: &impl fmt::Display, most: usize) -> String {
    let mut cut = Cut { text: String::new(), most };
    let whole = write!(cut, "{thing}").is_ok();
    if !whole {
        cut.text.push('…');
    }
    cut.text
}

/// Why a result is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unwritable {
    /// There is no room.
    #[error("the result is larger than {MOST} bytes; ask for less of it, such as with `.[:10]`")]
    TooLarge,
    /// It is nested too deeply to be read again.
    #[error("the result is nested more than {LEVELS} levels deep")]
    TooDeep,
    /// It has a key that is no text.
    #[error("an object of the result has a key that is no text")]
    Key,
    /// It holds bytes.
    #[error("the result holds bytes, which JSON cannot")]
    Bytes,
}

/// The most bytes of all results.
pub const MOST: usize = 512 << 10;

/// The most levels of a result. Many readers of JSON refuse more than 128.
pub const LEVELS: usize = 100;

#[derive(Clone, Copy)]
struct Bounds {
    most: usize,
    levels: usize,
}

fn write_value(value: &Val, text: &mut String, bounds: Bounds) -> Result<(), Unwritable> {
    match value {
        Val::Null => text.push_str("null"),
        Val::Bool(yes) => text.push_str(if *yes { "true" } else { "false" }),
        Val::Num(number) => write_number(number, text),
        Val::TStr(content) => write_text(content, text),
        Val::BStr(_) => return Err(Unwritable::Bytes),
        Val::Arr(items) => {
            let bounds = bounds.inside()?;
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write_value(item, text, bounds)?;
            }
            text.push(']');
        }
        Val::Obj(entries) => {
            let bounds = bounds.inside()?;
            text.push('{');
            for (at, (key, item)) in entries.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                let Val::TStr(key) = key else { return Err(Unwritable::Key) };
                write_text(key, text);
                text.push(':');
                write_value(item, text, bounds)?;
            }
            text.push('}');
        }
    }
    if text.len() > bounds.most { Err(Unwritable::TooLarge) } else { Ok(()) }
}

impl Bounds {
    fn inside(self) -> Result<Self, Unwritable> {
        let levels = self.levels.checked_sub(1).ok_or(Unwritable::TooDeep)?;
        Ok(Self { levels, ..self })
    }
}

fn write_text(content: &[u8], text: &mut String) {
    let content = String::from_utf8_lossy(content);
    // Text always has a form in JSON.
    text.push_str(&serde_json::to_string(&content).unwrap_or_default());
}

fn write_number(number: &Num, text: &mut String) {
    match number {
        Num::Int(number) => _ = write!(text, "{number}"),
        Num::BigInt(number) => _ = write!(text, "{number}"),
        Num::Float(number) => write_float(*number, text),
        // As it was in the data, with as many digits, unless the question wrote it in a way that JSON does not.
        Num::Dec(digits) if serde_json::from_str::<f64>(digits).is_ok() => text.push_str(digits),
        Num::Dec(digits) => write_float(digits.parse().unwrap_or(f64::NAN), text),
    }
}

fn write_float(number: f64, text: &mut String) {
    /// From here on, not every whole number exists.
    const WHOLE: f64 = 9_007_199_254_740_992.0;
    if number.is_nan() {
        text.push_str("null");
    } else if number.fract() == 0.0 && number.abs() < WHOLE {
        let number = if number == 0.0 { 0.0 } else { number };
        _ = write!(text, "{number}");
    } else {
        let number = number.clamp(f64::MIN, f64::MAX);
        text.push_str(&serde_json::to_string(&number).unwrap_or_default());
    }
}

struct Cut {
    text: String,
    most: usize,
}

impl fmt::Write for Cut {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = self.most.saturating_sub(self.text.len());
        if more.len() <= room {
            self.text.push_str(more);
            return Ok(());
        }
        let end = (0..=room).rev().find(|end| more.is_char_boundary(*end)).unwrap_or_default();
        self.text.push_str(more.get(..end).unwrap_or_default());
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jaq_json::read::parse_single;

    fn written(value: &Val) -> Result<String, Unwritable> {
        let mut text = String::new();
        write(value, &mut text, MOST).map(|()| text)
    }

    #[test]
    fn what_was_read_is_written_as_it_was() {
        let all = r#"{"a":[null,true,-1,1.50,123456789012345678901234567890,"ä\n\u0001\"😀"],"b":{}}"#;
        assert_eq!(written(&parse_single(all.as_bytes()).unwrap()).as_deref(), Ok(all));
    }

    #[test]
    fn numbers_that_json_lacks_become_ones_that_it_has() {
        let cases = [
            (f64::NAN, "null"),
            (f64::INFINITY, "1.7976931348623157e+308"),
            (f64::NEG_INFINITY, "-1.7976931348623157e+308"),
            (-0.0, "0"),
            (3.0, "3"),
            (0.1, "0.1"),
            (1e300, "1e+300"),
        ];
        for (number, text) in cases {
            assert_eq!(written(&Val::from(number)).as_deref(), Ok(text));
        }
        assert_eq!(written(&Val::Num(Num::Dec(".5".to_owned().into()))).as_deref(), Ok("0.5"));
    }

    #[test]
    fn a_value_shared_within_itself_ends_at_the_bound() {
        let doubled = (0..60).fold(Val::from(1_isize), |value, _| [value.clone(), value].into_iter().collect());
        assert_eq!(written(&doubled), Err(Unwritable::TooLarge));
        assert_eq!(cut(&doubled, 8), "[[[[[[[[…");
    }

    #[test]
    fn a_value_nested_too_deeply_is_refused() {
        let nested = |levels| (0..levels).fold(Val::Null, |value, _| [value].into_iter().collect());
        assert!(written(&nested(LEVELS)).is_ok());
        assert_eq!(written(&nested(LEVELS + 1)), Err(Unwritable::TooDeep));
    }

    #[test]
    fn what_is_cut_stays_text() {
        assert_eq!(cut(&"aäb", 2), "a…");
        assert_eq!(cut(&"aäb", 4), "aäb");
    }
}
