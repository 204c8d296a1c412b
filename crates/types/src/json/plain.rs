//! Writes what is plain in canonical form (RFC 8785), in one pass.
//!
//! Guarantees: what is written is byte for byte what the library for canonical JSON writes, which tests hold it to. Refuses, without
//! saying why, whatever is not plain: fractions, integers beyond 2^53, equal keys, deep nesting, keys that are no text. The library
//! decides about those; it takes several times as long, and every call is spelt many times.

use std::fmt::{self, Display};

use serde::{
    Serialize, Serializer,
    ser::{
        Impossible, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
        SerializeTupleStruct, SerializeTupleVariant,
    },
};

use super::MAX_INTEGER;

/// The canonical text of a value no deeper than this, if it is plain.
pub(super) fn spelt<T: Serialize + ?Sized>(value: &T, depth: usize) -> Option<String> {
    let mut text = String::with_capacity(512);
    value.serialize(Writer { text: &mut text, room: depth }).ok()?;
    Some(text)
}

/// It is not plain.
#[derive(Debug)]
struct NotPlain;

impl Display for NotPlain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not plain")
    }
}

impl std::error::Error for NotPlain {}

impl serde::ser::Error for NotPlain {
    fn custom<T: Display>(_: T) -> Self {
        Self
    }
}

/// Writes one value.
struct Writer<'a> {
    text: &'a mut String,
    /// How many levels may still be opened.
    room: usize,
}

impl<'a> Writer<'a> {
    fn put(self, text: &str) -> Result<(), NotPlain> {
        self.text.push_str(text);
        Ok(())
    }

    fn list(self, ends: &'static str) -> Result<List<'a>, NotPlain> {
        let room = self.room.checked_sub(1).ok_or(NotPlain)?;
        self.text.push('[');
        Ok(List { text: self.text, room, first: true, ends })
    }

    fn object(self, ends: &'static str) -> Result<Object<'a>, NotPlain> {
        let room = self.room.checked_sub(1).ok_or(NotPlain)?;
        self.text.push('{');
        let begins = self.text.len();
        Ok(Object { text: self.text, room, begins, members: Vec::new(), key: None, ends })
    }

    /// Opens an object of one member, whose value is to follow.
    fn tagged(self, variant: &str) -> Result<Self, NotPlain> {
        let room = self.room.checked_sub(1).ok_or(NotPlain)?;
        self.text.push('{');
        put_text(self.text, variant);
        self.text.push(':');
        Ok(Writer { text: self.text, room })
    }

    fn integer(self, negative: bool, size: u64) -> Result<(), NotPlain> {
        use fmt::Write as _;
        if size > MAX_INTEGER {
            return Err(NotPlain);
        }
        let sign = if negative { "-" } else { "" };
        write!(self.text, "{sign}{size}").map_err(|_| NotPlain)
    }
}

impl<'a> Serializer for Writer<'a> {
    type Ok = ();
    type Error = NotPlain;
    type SerializeSeq = List<'a>;
    type SerializeTuple = List<'a>;
    type SerializeTupleStruct = List<'a>;
    type SerializeTupleVariant = List<'a>;
    type SerializeMap = Object<'a>;
    type SerializeStruct = Object<'a>;
    type SerializeStructVariant = Object<'a>;

    fn serialize_bool(self, value: bool) -> Result<(), NotPlain> {
        self.put(if value { "true" } else { "false" })
    }

    fn serialize_i8(self, value: i8) -> Result<(), NotPlain> {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Result<(), NotPlain> {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Result<(), NotPlain> {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(self, value: i64) -> Result<(), NotPlain> {
        self.integer(value < 0, value.unsigned_abs())
    }

    fn serialize_u8(self, value: u8) -> Result<(), NotPlain> {
        self.serialize_u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Result<(), NotPlain> {
        self.serialize_u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Result<(), NotPlain> {
        self.serialize_u64(value.into())
    }

    fn serialize_u64(self, value: u64) -> Result<(), NotPlain> {
        self.integer(false, value)
    }

    fn serialize_f32(self, _: f32) -> Result<(), NotPlain> {
        Err(NotPlain)
    }

    fn serialize_f64(self, _: f64) -> Result<(), NotPlain> {
        Err(NotPlain)
    }

    fn serialize_char(self, value: char) -> Result<(), NotPlain> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), NotPlain> {
        put_text(self.text, value);
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), NotPlain> {
        value.serialize(self)
    }

    fn serialize_none(self) -> Result<(), NotPlain> {
        self.put("null")
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), NotPlain> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), NotPlain> {
        self.put("null")
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), NotPlain> {
        self.put("null")
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), NotPlain> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), NotPlain> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), NotPlain> {
        let Writer { text, room } = self.tagged(variant)?;
        value.serialize(Writer { text: &mut *text, room })?;
        text.push('}');
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<List<'a>, NotPlain> {
        self.list("]")
    }

    fn serialize_tuple(self, _: usize) -> Result<List<'a>, NotPlain> {
        self.list("]")
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<List<'a>, NotPlain> {
        self.list("]")
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<List<'a>, NotPlain> {
        self.tagged(variant)?.list("]}")
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Object<'a>, NotPlain> {
        self.object("}")
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Object<'a>, NotPlain> {
        // A text that is JSON already, and a number that is a text: both are the library's own affair.
        if name.starts_with("$serde_json::private::") { Err(NotPlain) } else { self.object("}") }
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Object<'a>, NotPlain> {
        self.tagged(variant)?.object("}}")
    }
}

/// Writes a list.
struct List<'a> {
    text: &'a mut String,
    room: usize,
    first: bool,
    ends: &'static str,
}

impl List<'_> {
    fn add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NotPlain> {
        if !std::mem::take(&mut self.first) {
            self.text.push(',');
        }
        value.serialize(Writer { text: self.text, room: self.room })
    }

    fn close(self) -> Result<(), NotPlain> {
        self.text.push_str(self.ends);
        Ok(())
    }
}

/// Serde has a trait for every kind of list, and of object with fields; they are written alike.
macro_rules! written_alike {
    ($writer:ident: $($trait:ident :: $method:ident($($key:ident: $type:ty)?)),*) => {
        $(impl $trait for $writer<'_> {
            type Ok = ();
            type Error = NotPlain;

            fn $method<T: Serialize + ?Sized>(&mut self, $($key: $type,)? value: &T) -> Result<(), NotPlain> {
                self.add($($key.to_owned(),)? value)
            }

            fn end(self) -> Result<(), NotPlain> {
                self.close()
            }
        })*
    };
}

written_alike!(List:
    SerializeSeq::serialize_element(),
    SerializeTuple::serialize_element(),
    SerializeTupleStruct::serialize_field(),
    SerializeTupleVariant::serialize_field());

written_alike!(Object:
    SerializeStruct::serialize_field(key: &'static str),
    SerializeStructVariant::serialize_field(key: &'static str));

/// Writes an object: its members as they come, and at its end in their order.
struct Object<'a> {
    text: &'a mut String,
    room: usize,
    /// Where the first member begins.
    begins: usize,
    members: Vec<Member>,
    /// A key whose value is to follow.
    key: Option<String>,
    ends: &'static str,
}

/// A member as it was written: its key, and where its text ends.
struct Member {
    key: String,
    ends: usize,
}

impl Object<'_> {
    fn add<T: Serialize + ?Sized>(&mut self, key: String, value: &T) -> Result<(), NotPlain> {
        put_text(self.text, &key);
        self.text.push(':');
        value.serialize(Writer { text: &mut *self.text, room: self.room })?;
        self.members.push(Member { key, ends: self.text.len() });
        Ok(())
    }

    fn close(self) -> Result<(), NotPlain> {
        let written = self.text.split_off(self.begins);
        let mut from = 0;
        let mut members: Vec<(&str, &str)> = Vec::with_capacity(self.members.len());
        for Member { key, ends } in &self.members {
            let to = ends.checked_sub(self.begins).ok_or(NotPlain)?;
            members.push((key, written.get(from..to).ok_or(NotPlain)?));
            from = to;
        }
        members.sort_unstable_by(|(a, _), (b, _)| in_order(a, b));
        if members.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b)) {
            return Err(NotPlain);
        }
        for (index, (_, member)) in members.into_iter().enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            self.text.push_str(member);
        }
        self.text.push_str(self.ends);
        Ok(())
    }
}

impl SerializeMap for Object<'_> {
    type Ok = ();
    type Error = NotPlain;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), NotPlain> {
        self.key = Some(key.serialize(Key)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NotPlain> {
        let key = self.key.take().ok_or(NotPlain)?;
        self.add(key, value)
    }

    fn end(self) -> Result<(), NotPlain> {
        self.close()
    }
}

/// Reads a key, which is a text or not plain.
struct Key;

macro_rules! not_plain {
    ($($method:ident($type:ty)),*) => {
        $(fn $method(self, _: $type) -> Result<String, NotPlain> { Err(NotPlain) })*
    };
}

impl Serializer for Key {
    type Ok = String;
    type Error = NotPlain;
    type SerializeSeq = Impossible<String, NotPlain>;
    type SerializeTuple = Impossible<String, NotPlain>;
    type SerializeTupleStruct = Impossible<String, NotPlain>;
    type SerializeTupleVariant = Impossible<String, NotPlain>;
    type SerializeMap = Impossible<String, NotPlain>;
    type SerializeStruct = Impossible<String, NotPlain>;
    type SerializeStructVariant = Impossible<String, NotPlain>;

    not_plain!(
        serialize_bool(bool),
        serialize_i8(i8),
        serialize_i16(i16),
        serialize_i32(i32),
        serialize_i64(i64),
        serialize_u8(u8),
        serialize_u16(u16),
        serialize_u32(u32),
        serialize_u64(u64),
        serialize_f32(f32),
        serialize_f64(f64),
        serialize_char(char),
        serialize_bytes(&[u8]),
        serialize_unit_struct(&'static str)
    );

    fn serialize_str(self, value: &str) -> Result<String, NotPlain> {
        Ok(value.to_owned())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<String, NotPlain> {
        Ok(variant.to_owned())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<String, NotPlain> {
        value.serialize(self)
    }

    fn serialize_none(self) -> Result<String, NotPlain> {
        Err(NotPlain)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<String, NotPlain> {
        Err(NotPlain)
    }

    fn serialize_unit(self) -> Result<String, NotPlain> {
        Err(NotPlain)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<String, NotPlain> {
        Err(NotPlain)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, NotPlain> {
        Err(NotPlain)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, NotPlain> {
        Err(NotPlain)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeTupleStruct, NotPlain> {
        Err(NotPlain)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, NotPlain> {
        Err(NotPlain)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, NotPlain> {
        Err(NotPlain)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeStruct, NotPlain> {
        Err(NotPlain)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, NotPlain> {
        Err(NotPlain)
    }
}

/// Keys are ordered by their UTF-16 code units. For ASCII, which nearly all are, that is by their bytes.
fn in_order(a: &str, b: &str) -> std::cmp::Ordering {
    if a.is_ascii() && b.is_ascii() { a.cmp(b) } else { a.encode_utf16().cmp(b.encode_utf16()) }
}

/// Writes a text with its quotes. Escaped is only what must be.
fn put_text(out: &mut String, text: &str) {
    use fmt::Write as _;
    out.push('"');
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate().filter(|&(_, byte)| byte < 0x20 || byte == b'"' || byte == b'\\') {
        out.push_str(text.get(plain..at).unwrap_or_default());
        plain = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x08 => out.push_str("\\b"),
            0x0c => out.push_str("\\f"),
            other => drop(write!(out, "\\u{other:04x}")),
        }
    }
    out.push_str(text.get(plain..).unwrap_or_default());
    out.push('"');
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn values() -> impl Strategy<Value = Value> {
        let texts = prop_oneof![
            "[ -~]{0,8}",
            any::<String>(),
            proptest::collection::vec(any::<char>(), 0..4).prop_map(|chars| chars.into_iter().collect()),
            "[\u{0}-\u{1f}\u{7f}\"\\\\/\u{e000}\u{fffd}\u{10000}]{0,6}",
        ];
        let numbers = -9_007_199_254_740_991_i64..=9_007_199_254_740_991;
        let leaves = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            numbers.prop_map(Value::from),
            texts.clone().prop_map(Value::from),
        ];
        leaves.prop_recursive(4, 64, 8, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::btree_map(texts.clone(), inner, 0..8)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_writes_what_the_library_writes(value in values()) {
            prop_assert_eq!(spelt(&value, 64).unwrap(), serde_json_canonicalizer::to_string(&value).unwrap());
        }
    }

    #[derive(Serialize)]
    enum Kind {
        Unit,
        One(u8),
        Two(u8, &'static str),
        Named { z: u8, a: Option<u8> },
    }

    #[derive(Serialize)]
    struct Everything {
        z: (),
        kinds: Vec<Kind>,
        tuple: (i8, char, Option<()>),
        #[serde(flatten)]
        more: BTreeMap<&'static str, Value>,
        bytes: &'static [u8],
    }

    #[test]
    fn every_form_of_a_type_is_written_as_the_library_writes_it() {
        let kinds = vec![Kind::Unit, Kind::One(1), Kind::Two(2, "\u{1}"), Kind::Named { z: 1, a: None }];
        let more = BTreeMap::from([("b", json!({ "y": [], "x": {} })), ("zz", json!("é"))]);
        let value = Everything { z: (), kinds, tuple: (-5, 'ü', None), more, bytes: b"ab" };
        assert_eq!(spelt(&value, 64).unwrap(), serde_json_canonicalizer::to_string(&value).unwrap());
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_library() {
        assert_eq!(spelt(&1.5, 9), None);
        assert_eq!(spelt(&f64::NAN, 9), None);
        assert_eq!(spelt(&(1_u64 << 53), 9), None);
        assert_eq!(spelt(&i64::MIN, 9), None);
        assert_eq!(spelt(&json!([[[]]]), 2), None);
        assert_eq!(spelt(&json!([[]]), 2).as_deref(), Some("[[]]"));
        assert_eq!(spelt(&BTreeMap::from([(1, 2)]), 9), None);
        let raw = serde_json::value::RawValue::from_string("{\"b\":1,\"a\":2}".to_owned()).unwrap();
        assert_eq!(spelt(&raw, 9), None);
        #[derive(Serialize)]
        struct Twice {
            a: u8,
            #[serde(flatten)]
            more: BTreeMap<&'static str, u8>,
        }
        assert_eq!(spelt(&Twice { a: 1, more: BTreeMap::from([("a", 2)]) }, 9), None);
    }
}
