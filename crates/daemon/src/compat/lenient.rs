//! JSON of others, of which each part is what is expected there, or nothing.
//!
//! Guarantees: what is of another kind than expected is as if it were not there, so the oddities of one provider are not errors; it takes no
//! room, and neither does what a list has beyond as many as were asked for.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};

/// An object, or none where something else stands.
#[derive(Debug)]
pub struct Object<T>(pub Option<T>);

/// A text, or none where something else stands.
#[derive(Debug, Default)]
pub struct Text(pub Option<String>);

impl Text {
    /// The text, empty if there is none.
    #[must_use]
    pub fn or_empty(self) -> String {
        self.0.unwrap_or_default()
    }
}

/// A number that counts something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Count {
    /// There is none.
    #[default]
    Absent,
    /// There is one.
    Of(u64),
    /// Something stands there that counts nothing.
    Odd,
}

impl Count {
    /// The number, if there is one.
    #[must_use]
    pub const fn known(self) -> Option<u64> {
        match self {
            Self::Of(count) => Some(count),
            Self::Absent | Self::Odd => None,
        }
    }
}

/// A list, or none where something else stands.
#[derive(Debug)]
pub struct List<T, const MOST: usize>(pub Option<Few<T>>);

/// The beginning of a list.
#[derive(Debug)]
pub struct Few<T> {
    /// As many as were asked for, or all.
    pub first: Vec<T>,
    /// Whether there are more.
    pub goes_on: bool,
}

/// That something failed, where null says that nothing did.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing did.
    #[default]
    None,
    /// Something did, and there may be a word about it.
    Told(Option<String>),
}

impl<T> Default for Object<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T, const MOST: usize> Default for List<T, MOST> {
    fn default() -> Self {
        Self(None)
    }
}

/// What becomes of each kind of JSON. Of what is not said comes what is said of others.
trait Lenient<'de>: Sized {
    fn other() -> Self;

    fn null() -> Self {
        Self::other()
    }

    fn count(_: u64) -> Self {
        Self::other()
    }

    fn text(_: &str) -> Self {
        Self::other()
    }

    fn object<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::other())
    }

    fn list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::other())
    }
}

impl<'de, T: Deserialize<'de>> Lenient<'de> for Object<T> {
    fn other() -> Self {
        Self(None)
    }

    fn object<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|read| Self(Some(read)))
    }
}

impl Lenient<'_> for Text {
    fn other() -> Self {
        Self(None)
    }

    fn text(text: &str) -> Self {
        Self(Some(text.to_owned()))
    }
}

impl Lenient<'_> for Count {
    fn other() -> Self {
        Self::Odd
    }

    fn count(number: u64) -> Self {
        Self::Of(number)
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Lenient<'de> for List<T, MOST> {
    fn other() -> Self {
        Self(None)
    }

    fn list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut first = Vec::new();
        while first.len() < MOST {
            match list.next_element()? {
                Some(one) => first.push(one),
                None => return Ok(Self(Some(Few { first, goes_on: false }))),
            }
        }
        let mut goes_on = false;
        while list.next_element::<IgnoredAny>()?.is_some() {
            goes_on = true;
        }
        Ok(Self(Some(Few { first, goes_on })))
    }
}

impl<'de> Lenient<'de> for Trouble {
    fn other() -> Self {
        Self::Told(None)
    }

    fn null() -> Self {
        Self::None
    }

    fn text(text: &str) -> Self {
        Self::Told(Some(text.to_owned()))
    }

    fn object<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        Message::deserialize(MapAccessDeserializer::new(map)).map(|told| Self::Told(told.message.0))
    }
}

/// Where the word about a failure stands.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Message {
    message: Text,
}

struct Reader<R>(PhantomData<R>);

impl<'de, R: Lenient<'de>> Visitor<'de> for Reader<R> {
    type Value = R;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<R, E> {
        Ok(R::other())
    }

    fn visit_i64<E>(self, number: i64) -> Result<R, E> {
        Ok(u64::try_from(number).map_or_else(|_| R::other(), R::count))
    }

    fn visit_u64<E>(self, number: u64) -> Result<R, E> {
        Ok(R::count(number))
    }

    fn visit_f64<E>(self, _: f64) -> Result<R, E> {
        Ok(R::other())
    }

    fn visit_str<E>(self, text: &str) -> Result<R, E> {
        Ok(R::text(text))
    }

    fn visit_unit<E>(self) -> Result<R, E> {
        Ok(R::null())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<R, A::Error> {
        R::object(map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<R, A::Error> {
        R::list(list)
    }
}

macro_rules! read_leniently {
    ($([$($generics:tt)*] $type:ty;)*) => {$(
        impl<'de, $($generics)*> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_any(Reader::<Self>(PhantomData))
            }
        }
    )*};
}

read_leniently! {
    [T: Deserialize<'de>] Object<T>;
    [T: Deserialize<'de>, const MOST: usize] List<T, MOST>;
    [] Text;
    [] Count;
    [] Trouble;
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [&str; 9] =
        ["null", "true", "7", "-7", "0.5", "\"x\"", "[1]", "{\"message\":\"x\",\"y\":[{}]}", "1e3"];

    fn read<T: for<'de> Deserialize<'de>>() -> Vec<T> {
        KINDS.iter().map(|kind| serde_json::from_str(kind).unwrap()).collect()
    }

    #[test]
    fn whatever_is_of_another_kind_is_nothing() {
        let texts: Vec<_> = read::<Text>().into_iter().map(|text| text.0).collect();
        assert_eq!(texts.iter().flatten().collect::<Vec<_>>(), ["x"]);
        assert_eq!(read::<Object<Message>>().iter().filter(|object| object.0.is_some()).count(), 1);
        assert_eq!(read::<List<Count, 9>>().iter().filter(|list| list.0.is_some()).count(), 1);
        let mut counts = vec![Count::Odd; KINDS.len()];
        counts[2] = Count::Of(7);
        assert_eq!(read::<Count>(), counts);
        let told = |word: Option<&str>| Trouble::Told(word.map(str::to_owned));
        let mut troubles: Vec<_> = KINDS.iter().map(|_| told(None)).collect();
        (troubles[0], troubles[5], troubles[7]) = (Trouble::None, told(Some("x")), told(Some("x")));
        assert_eq!(read::<Trouble>(), troubles);
    }

    #[test]
    fn a_list_is_read_as_far_as_was_asked_for() {
        let read = |text: &str| {
            let few = serde_json::from_str::<List<Count, 2>>(text).unwrap().0.unwrap();
            (few.first.len(), few.goes_on)
        };
        assert_eq!(
            [read("[]"), read("[1]"), read("[1,2]"), read("[1,2,3,[4]]")],
            [(0, false), (1, false), (2, false), (2, true)]
        );
        assert!(serde_json::from_str::<List<Count, 2>>("[1,2,3,").is_err());
    }
}
