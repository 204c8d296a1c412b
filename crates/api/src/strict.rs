//! Reads what serde would read too freely: an array where an object is described, a number that JSON readers disagree about.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

/// The largest whole number that every reader of JSON reads alike.
pub const LARGEST: u64 = (1 << 53) - 1;

/// An object, if there is one.
pub(crate) fn optional<'de, D: Deserializer<'de>, T: de::DeserializeOwned>(from: D) -> Result<Option<T>, D::Error> {
    Option::<Value>::deserialize(from)?.map(object).transpose().map_err(de::Error::custom)
}

/// A list of objects.
pub(crate) fn each<'de, D: Deserializer<'de>, T: de::DeserializeOwned>(from: D) -> Result<Vec<T>, D::Error> {
    Vec::<Value>::deserialize(from)?.into_iter().map(object).collect::<Result<_, _>>().map_err(de::Error::custom)
}

/// Objects under names.
pub(crate) fn under_names<'de, D: Deserializer<'de>, T: de::DeserializeOwned>(
    from: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    let all = BTreeMap::<String, Value>::deserialize(from)?.into_iter();
    all.map(|(name, value)| Ok((name, object(value)?)))
        .collect::<Result<_, _>>()
        .map_err(|error: serde_json::Error| de::Error::custom(error))
}

/// The number of a record, if there is one.
pub(crate) fn seq<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    match Option::<u64>::deserialize(from)? {
        Some(seq) if seq > LARGEST => Err(de::Error::custom(format!("{seq} is larger than {LARGEST}"))),
        seq => Ok(seq),
    }
}

fn object<T: de::DeserializeOwned>(value: Value) -> serde_json::Result<T> {
    if value.is_object() { serde_json::from_value(value) } else { Err(de::Error::custom("an object is expected")) }
}
