//! JSON that everybody reads alike.
//!
//! Guarantees: a [`Json`] came from text, or from a value, that has one reading (I-JSON, RFC 7493), and carries its one
//! spelling (RFC 8785). What policy judges, what a person approves and what is executed are therefore the same thing.
//! Refuses what readers disagree about: a key that stands twice (also when escapes hide it), lone surrogates, a byte order mark,
//! integers beyond ±(2^53−1), numbers that overflow, deep nesting, data after the end.
//!
//! Three decisions that the standards leave open:
//! * A fraction with more digits than a double holds is accepted. It is rounded once, here, and only the rounded number is
//!   ever written again. The same goes for a number too small to be told from zero.
//! * An integer is judged by its canonical spelling too: `1e20` is written `100000000000000000000`, so it is refused as that.
//!   From `1e21` on the canonical spelling has an exponent, nobody takes it for an exact integer, and it is accepted.
//! * Noncharacters such as U+FFFF are accepted although RFC 7493 frowns on them: every reader of UTF-8 agrees on them, and
//!   files hold them.
//!
//! There is no `Deserialize` on purpose: another reader would have dropped the second of two equal keys already.

mod error;
mod plain;
mod reader;

use serde::{Serialize, Serializer};
use serde_json::{Map, Number, Value};

pub use self::error::{JsonError, JsonFault, Position};
use self::{error::Step, reader::Reader};
use crate::digest::Sha256Digest;

/// How much JSON is read at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest text, in bytes.
    pub bytes: usize,
    /// Deepest nesting of arrays and objects.
    pub depth: usize,
    /// Most values in a text, of which an object counts as [`OBJECT_WEIGHT`]: two bytes of text can take fifty of memory, and those of an
    /// object a hundred times as many as they are. What was built in memory is there already, and not counted.
    pub values: usize,
}

impl Default for Limits {
    /// One mebibyte, 64 levels, as many values as there is room for.
    fn default() -> Self {
        Self { bytes: 1 << 20, depth: 64, values: usize::MAX }
    }
}

/// A JSON value with one reading and one spelling.
#[derive(Debug, Clone)]
pub struct Json {
    value: Value,
    canonical: Box<str>,
}

impl Json {
    /// Reads JSON text.
    ///
    /// # Errors
    /// When the text is not JSON, or JSON that readers disagree about; see [this module](self).
    pub fn parse(bytes: &[u8], limits: Limits) -> Result<Self, JsonError> {
        Self::spell(Reader::read(bytes, limits)?)
    }

    /// Takes a value that was built in memory, such as the answer of a library.
    ///
    /// # Errors
    /// When the value holds a number that [`Self::parse`] would refuse, or is too deep or too long.
    pub fn try_from_value(value: Value, limits: Limits) -> Result<Self, JsonError> {
        let json = Self::spell(settle(value, limits.depth, limits)?)?;
        match json.canonical.len() {
            length if length > limits.bytes => Err(JsonFault::TooLong { length, limit: limits.bytes }.into()),
            _ => Ok(json),
        }
    }

    fn spell(value: Value) -> Result<Self, JsonError> {
        if let Some(canonical) = plain::spelt(&value, usize::MAX) {
            return Ok(Self { value, canonical: canonical.into() });
        }
        let canonical = serde_json_canonicalizer::to_string(&value)
            .map_err(|error| JsonFault::Unserializable(error.to_string()))?
            .into();
        Ok(Self { value, canonical })
    }

    /// The value, to look at.
    #[must_use]
    pub const fn value(&self) -> &Value {
        &self.value
    }

    /// The value, to keep.
    #[must_use]
    pub fn into_value(self) -> Value {
        self.value
    }

    /// The one spelling (RFC 8785).
    #[must_use]
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// The digest of the one spelling.
    #[must_use]
    pub fn digest(&self) -> Sha256Digest {
        Sha256Digest::of(self.canonical.as_bytes())
    }

    /// The value as an object.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn into_object(self) -> Result<JsonObject, JsonError> {
        if self.value.is_object() { Ok(JsonObject(self)) } else { Err(JsonFault::NotAnObject.into()) }
    }
}

impl PartialEq for Json {
    /// Two values are equal when they are spelt alike.
    fn eq(&self, other: &Self) -> bool {
        self.canonical == other.canonical
    }
}

impl Eq for Json {}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

/// A JSON object with one reading and one spelling, such as the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonObject(Json);

impl JsonObject {
    /// Reads JSON text that is an object.
    ///
    /// # Errors
    /// When [`Json::parse`] refuses the text, or it is not an object.
    pub fn parse(bytes: &[u8], limits: Limits) -> Result<Self, JsonError> {
        Json::parse(bytes, limits)?.into_object()
    }

    /// Takes an object that was built in memory.
    ///
    /// # Errors
    /// When [`Json::try_from_value`] refuses the value, or it is not an object.
    pub fn try_from_value(value: Value, limits: Limits) -> Result<Self, JsonError> {
        Json::try_from_value(value, limits)?.into_object()
    }

    /// The object without members.
    #[must_use]
    pub fn empty() -> Self {
        Self(Json { value: Value::Object(Map::new()), canonical: "{}".into() })
    }

    /// One member.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.value.get(key)
    }

    /// The whole object as a value.
    #[must_use]
    pub const fn value(&self) -> &Value {
        self.0.value()
    }

    /// The one spelling (RFC 8785).
    #[must_use]
    pub fn canonical(&self) -> &str {
        self.0.canonical()
    }

    /// The digest of the one spelling.
    #[must_use]
    pub fn digest(&self) -> Sha256Digest {
        self.0.digest()
    }
}

impl Serialize for JsonObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Reads JSON text as strictly as [`Json::parse`], for whoever has no use for its one spelling.
///
/// # Errors
/// As [`Json::parse`].
pub fn read(bytes: &[u8], limits: Limits) -> Result<Value, JsonError> {
    Reader::read(bytes, limits)
}

/// The one spelling of anything that can be serialised; what digests are made of.
///
/// # Errors
/// When the value has no JSON form, or holds a number that [`Json::parse`] would refuse.
pub fn canonical_of<T: Serialize + ?Sized>(value: &T) -> Result<String, JsonError> {
    if let Some(text) = plain::spelt(value, Limits::default().depth) {
        return Ok(text);
    }
    let unserializable = |error: serde_json::Error| JsonError::from(JsonFault::Unserializable(error.to_string()));
    // SECURITY: the canonical writer turns every integer into a double, so 2^53 and 2^53+1 would share a digest; the check
    // of the value refuses both. The value in turn turns NaN into null and merges equal keys; the writer refuses those.
    settle(serde_json::to_value(value).map_err(unserializable)?, Limits::default().depth, Limits::default())?;
    serde_json_canonicalizer::to_string(&value).map_err(unserializable)
}

/// The digest of the one spelling of anything that can be serialised.
///
/// # Errors
/// As [`canonical_of`].
pub fn digest_of<T: Serialize + ?Sized>(value: &T) -> Result<Sha256Digest, JsonError> {
    canonical_of(value).map(|text| Sha256Digest::of(text.as_bytes()))
}

/// Checks depth and numbers of a value, and gives each number its one representation.
fn settle(value: Value, room: usize, limits: Limits) -> Result<Value, JsonError> {
    let deeper = || room.checked_sub(1).ok_or(JsonError::from(JsonFault::TooDeep { limit: limits.depth }));
    match value {
        Value::Number(number) => settle_number(&number).map(Value::Number).map_err(JsonError::from),
        Value::Array(items) => {
            let room = deeper()?;
            let items = items.into_iter().enumerate();
            let settled =
                items.map(|(index, item)| settle(item, room, limits).map_err(|error| error.within(Step::Index(index))));
            settled.collect::<Result<Vec<_>, _>>().map(Value::Array)
        }
        Value::Object(members) => {
            let room = deeper()?;
            let settled = members.into_iter().map(|(key, member)| match settle(member, room, limits) {
                Ok(member) => Ok((key, member)),
                Err(error) => Err(error.within(Step::Key(key))),
            });
            settled.collect::<Result<Map<_, _>, _>>().map(Value::Object)
        }
        plain @ (Value::Null | Value::Bool(_) | Value::String(_)) => Ok(plain),
    }
}

fn settle_number(number: &Number) -> Result<Number, JsonFault> {
    let beyond = || JsonFault::IntegerOutOfRange(number.to_string());
    if let Some(integer) = number.as_i64() {
        return if integer.unsigned_abs() <= MAX_INTEGER { Ok(integer.into()) } else { Err(beyond()) };
    }
    match number.as_f64() {
        Some(float) if !number.is_u64() => settle_float(float).ok_or_else(beyond),
        _ => Err(beyond()),
    }
}

/// The one representation of a finite double, or nothing if it is spelt as an integer out of range.
fn settle_float(float: f64) -> Option<Number> {
    if float.fract() == 0.0 && float.abs() < FIRST_WITH_EXPONENT {
        // `1.0`, `1e0` and `1` are one number, and so are `-0` and `0`. The text of an integral double below 10^21 has no
        // exponent, so it reads as an integer or is too long for one.
        let integer: i64 = format!("{float:.0}").parse().ok()?;
        return (integer.unsigned_abs() <= MAX_INTEGER).then(|| integer.into());
    }
    Number::from_f64(float)
}

/// The largest integer that every reader takes exactly: 2^53−1.
pub const MAX_INTEGER: u64 = (1 << 53) - 1;

/// How many values an object counts as, for what it takes besides its members.
pub const OBJECT_WEIGHT: usize = 8;

/// From here on the canonical spelling of a number has an exponent.
const FIRST_WITH_EXPONENT: f64 = 1e21;

#[cfg(test)]
mod tests;
