//! Reads JSON text into a value, strictly.
//!
//! A reader of its own, because the refusals must be told apart by kind and place, and because equal keys and integer spellings
//! are gone once a general reader is done. It is held against `serde_json` by property tests.

use serde_json::{Map, Number, Value};

use super::{
    Limits, MAX_INTEGER, OBJECT_WEIGHT,
    error::{JsonError, JsonFault, Position, Step},
    settle_float,
};

pub(super) struct Reader<'a> {
    text: &'a str,
    /// How many bytes are read. Always on a character boundary.
    at: usize,
    limits: Limits,
    /// How many values there may still be.
    left: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn read(bytes: &'a [u8], limits: Limits) -> Result<Value, JsonError> {
        if bytes.len() > limits.bytes {
            return Err(JsonFault::TooLong { length: bytes.len(), limit: limits.bytes }.into());
        }
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let valid = bytes.get(..error.valid_up_to()).and_then(|valid| std::str::from_utf8(valid).ok());
                return Err(JsonError::at(JsonFault::NotUtf8, position_after(valid.unwrap_or_default())));
            }
        };
        let mut reader = Self { text, at: 0, limits, left: limits.values };
        if text.starts_with('\u{feff}') {
            return Err(reader.fail(JsonFault::ByteOrderMark));
        }
        reader.skip_blanks();
        let value = reader.value(limits.depth)?;
        reader.skip_blanks();
        if reader.rest().is_empty() { Ok(value) } else { Err(reader.fail(JsonFault::TrailingData)) }
    }

    fn value(&mut self, room: usize) -> Result<Value, JsonError> {
        let first = self.peek();
        let weight = if first == Some(b'{') { OBJECT_WEIGHT } else { 1 };
        // SECURITY: before anything is made of it, so that a short text of many values does not fill the memory.
        let left = self.left.checked_sub(weight);
        self.left = left.ok_or_else(|| self.fail(JsonFault::TooMany { limit: self.limits.values }))?;
        match first {
            Some(b'{') => self.object(room).map(Value::Object),
            Some(b'[') => self.array(room).map(Value::Array),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
            _ => self.word(),
        }
    }

    fn object(&mut self, room: usize) -> Result<Map<String, Value>, JsonError> {
        let room = self.enter(room)?;
        let mut members = Map::new();
        if self.take_after_blanks(b'}') {
            return Ok(members);
        }
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'"') {
                return Err(self.expected("a key in quotes"));
            }
            let start = self.at;
            let key = self.string()?;
            if members.contains_key(&key) {
                return Err(self.fail_at(start, JsonFault::DuplicateKey(key)));
            }
            if !self.take_after_blanks(b':') {
                return Err(self.expected("`:`"));
            }
            self.skip_blanks();
            match self.value(room) {
                Ok(value) => members.insert(key, value),
                Err(error) => return Err(error.within(Step::Key(key))),
            };
            if self.take_after_blanks(b'}') {
                return Ok(members);
            }
            if !self.take(b',') {
                return Err(self.expected("`,` or `}`"));
            }
        }
    }

    fn array(&mut self, room: usize) -> Result<Vec<Value>, JsonError> {
        let room = self.enter(room)?;
        let mut items = Vec::new();
        if self.take_after_blanks(b']') {
            return Ok(items);
        }
        loop {
            self.skip_blanks();
            match self.value(room) {
                Ok(item) => items.push(item),
                Err(error) => return Err(error.within(Step::Index(items.len()))),
            }
            if self.take_after_blanks(b']') {
                return Ok(items);
            }
            if !self.take(b',') {
                return Err(self.expected("`,` or `]`"));
            }
        }
    }

    /// Steps over an opening bracket, if there is room for one more level.
    fn enter(&mut self, room: usize) -> Result<usize, JsonError> {
        let room = room.checked_sub(1).ok_or_else(|| self.fail(JsonFault::TooDeep { limit: self.limits.depth }))?;
        self.at += 1;
        Ok(room)
    }

    fn string(&mut self) -> Result<String, JsonError> {
        self.at += 1;
        let mut string = String::new();
        loop {
            let stop = self.rest().find(|c| matches!(c, '"' | '\\' | '\0'..='\x1f'));
            let Some((plain, _)) = stop.and_then(|stop| self.rest().split_at_checked(stop)) else {
                self.at = self.text.len();
                return Err(self.fail(JsonFault::UnexpectedEnd));
            };
            string.push_str(plain);
            self.at += plain.len();
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(string);
                }
                Some(b'\\') => string.push(self.escape()?),
                control => {
                    let control = control.map(char::from).unwrap_or_default();
                    return Err(self.fail(JsonFault::RawControlCharacter(control)));
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let start = self.at;
        self.at += 1;
        let plain = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(start),
            Some(_) => return Err(self.fail_at(start, JsonFault::BadEscape)),
            None => return Err(self.fail(JsonFault::UnexpectedEnd)),
        };
        self.at += 1;
        Ok(plain)
    }

    fn unicode_escape(&mut self, start: usize) -> Result<char, JsonError> {
        let first = self.code_unit(start)?;
        if (0xD800..0xDC00).contains(&first) && self.rest().starts_with("\\u") {
            self.at += 1;
            let second = self.code_unit(start)?;
            if let Some(Ok(pair)) = char::decode_utf16([first, second]).next() {
                return Ok(pair);
            }
        }
        char::from_u32(u32::from(first)).ok_or_else(|| self.fail_at(start, JsonFault::LoneSurrogate(first)))
    }

    /// Reads `uXXXX`.
    fn code_unit(&mut self, start: usize) -> Result<u16, JsonError> {
        let digits = self.rest().get(1..5).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()) {
            Some(unit) => {
                self.at += 5;
                Ok(unit)
            }
            None => Err(self.fail_at(start, JsonFault::BadEscape)),
        }
    }

    fn number(&mut self) -> Result<Number, JsonError> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        let mut is_integer = true;
        if self.take(b'.') {
            is_integer = false;
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            is_integer = false;
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        let out_of_range = |reader: &Self| reader.fail_at(start, JsonFault::IntegerOutOfRange(text.to_owned()));
        if is_integer {
            let integer = text.parse::<i64>().ok().filter(|integer| integer.unsigned_abs() <= MAX_INTEGER);
            return integer.map(Number::from).ok_or_else(|| out_of_range(self));
        }
        match text.parse::<f64>() {
            Ok(float) if float.is_finite() => settle_float(float).ok_or_else(|| out_of_range(self)),
            _ => Err(self.fail_at(start, JsonFault::NumberOverflow(text.to_owned()))),
        }
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let length = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        self.at += length;
        if length == 0 { Err(self.expected("a digit")) } else { Ok(()) }
    }

    fn word(&mut self) -> Result<Value, JsonError> {
        for (word, value) in [("null", Value::Null), ("true", Value::Bool(true)), ("false", Value::Bool(false))] {
            if self.rest().starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.expected("a value"))
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn take_after_blanks(&mut self, byte: u8) -> bool {
        self.skip_blanks();
        self.take(byte)
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().bytes().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
    }

    fn expected(&self, what: &'static str) -> JsonError {
        self.fail(match self.rest().chars().next() {
            Some(found) => JsonFault::Expected { what, found },
            None => JsonFault::UnexpectedEnd,
        })
    }

    fn fail(&self, fault: JsonFault) -> JsonError {
        self.fail_at(self.at, fault)
    }

    fn fail_at(&self, at: usize, fault: JsonFault) -> JsonError {
        JsonError::at(fault, position_after(self.text.get(..at).unwrap_or_default()))
    }
}

fn position_after(text: &str) -> Position {
    let line = text.rsplit('\n').next().unwrap_or_default();
    Position { line: text.matches('\n').count() + 1, column: line.chars().count() + 1 }
}
