//! Types that are written as text, in files and on the wire alike.

#[doc(hidden)]
pub use serde;

/// Has types be read by their `parse` and written as they are displayed: `FromStr`, `Serialize` and `Deserialize`.
#[macro_export]
macro_rules! written_as_text {
    ($($name:ty, $error:ty;)+) => { $(
        impl std::str::FromStr for $name {
            type Err = $error;
            fn from_str(text: &str) -> Result<Self, Self::Err> { Self::parse(text) }
        }

        impl $crate::text::serde::Serialize for $name {
            fn serialize<S: $crate::text::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> $crate::text::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::text::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text: std::borrow::Cow<'de, str> = $crate::text::serde::Deserialize::deserialize(deserializer)?;
                Self::parse(&text).map_err($crate::text::serde::de::Error::custom)
            }
        }
    )+ };
}
