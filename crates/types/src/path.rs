//! Absolute paths with one spelling.
//!
//! Guarantees: starts at `/`, no `.`, no `..`, no empty component, no trailing slash, no NUL, valid Unicode.
//! Refuses `..` instead of folding it away: with symbolic links in play, folding names another file.
//! Does not: touch the file system. Whether the path exists, or is a link, is for whoever opens it.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::visible::visible;

/// Longest path, in bytes; the kernel's own limit.
pub const MAX_PATH_LENGTH: usize = 4096;

/// An absolute path in its one spelling.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AbsolutePath(Box<str>);

impl AbsolutePath {
    /// Reads an absolute path, folding doubled slashes, `.` and a trailing slash.
    ///
    /// # Errors
    /// When the path is relative, holds `..` or a NUL, or is too long.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if !text.starts_with('/') {
            return Err(PathError::Relative(text.to_owned()));
        }
        Self::root().join(text)
    }

    /// The root directory.
    #[must_use]
    pub fn root() -> Self {
        Self("/".into())
    }

    /// This path extended by a relative one; an absolute `text` is taken relative to this path too.
    ///
    /// # Errors
    /// When `text` holds `..` or a NUL, or the result is too long.
    pub fn join(&self, text: &str) -> Result<Self, PathError> {
        if text.contains('\0') {
            return Err(PathError::Nul(text.to_owned()));
        }
        let mut path = self.0.trim_end_matches('/').to_owned();
        for component in text.split('/').filter(|component| !component.is_empty() && *component != ".") {
            if component == ".." {
                return Err(PathError::ParentComponent(text.to_owned()));
            }
            path.push('/');
            path.push_str(component);
        }
        if path.is_empty() {
            path.push('/');
        }
        if path.len() > MAX_PATH_LENGTH {
            return Err(PathError::TooLong(path.len()));
        }
        Ok(Self(path.into()))
    }

    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last component; empty for the root.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The directories above this path, nearest first, ending with the root.
    pub fn ancestors(&self) -> impl Iterator<Item = &str> {
        let mut rest = (self.0.len() > 1).then_some(&*self.0);
        std::iter::from_fn(move || {
            let (parent, _) = rest?.rsplit_once('/')?;
            rest = (!parent.is_empty()).then_some(parent);
            Some(if parent.is_empty() { "/" } else { parent })
        })
    }

    /// Whether this path is `directory` or lies below it.
    #[must_use]
    pub fn is_within(&self, directory: &Self) -> bool {
        match self.0.strip_prefix(directory.0.trim_end_matches('/')) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

impl fmt::Display for AbsolutePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for AbsolutePath {
    type Err = PathError;
    fn from_str(text: &str) -> Result<Self, PathError> {
        Self::parse(text)
    }
}

impl Serialize for AbsolutePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for AbsolutePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// Why a path was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not start at the root.
    #[error("the path `{}` is not absolute", visible(.0))]
    Relative(String),
    /// It steps upwards.
    #[error("the path `{}` steps upwards with `..`", visible(.0))]
    ParentComponent(String),
    /// It holds a NUL.
    #[error("the path `{}` holds a NUL", visible(.0))]
    Nul(String),
    /// It is longer than the kernel takes.
    #[error("the path is {0} bytes long; the limit is {MAX_PATH_LENGTH}")]
    TooLong(usize),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> AbsolutePath {
        AbsolutePath::parse(text).unwrap()
    }

    #[test]
    fn a_path_has_one_spelling() {
        assert_eq!(path("//a/./b//"), path("/a/b"));
        assert_eq!(path("/").as_str(), "/");
        assert_eq!(path("/a").join("b/c").unwrap(), path("/a/b/c"));
    }

    #[test]
    fn a_path_that_steps_upwards_is_refused_not_folded() {
        assert!(matches!(AbsolutePath::parse("/work/../etc"), Err(PathError::ParentComponent(_))));
        assert!(matches!(AbsolutePath::parse("etc"), Err(PathError::Relative(_))));
        assert!(matches!(AbsolutePath::parse("/a\0b"), Err(PathError::Nul(_))));
        assert!(matches!(AbsolutePath::parse(&"/a".repeat(2049)), Err(PathError::TooLong(4098))));
    }

    #[test]
    fn the_ancestors_are_the_directories_nearest_first() {
        assert_eq!(path("/a/b/c").ancestors().collect::<Vec<_>>(), ["/a/b", "/a", "/"]);
        assert_eq!(path("/a").ancestors().collect::<Vec<_>>(), ["/"]);
        assert_eq!(path("/").ancestors().count(), 0);
    }

    #[test]
    fn a_sibling_with_a_common_prefix_is_not_within() {
        assert!(path("/work/a").is_within(&path("/work")));
        assert!(path("/work").is_within(&path("/work")));
        assert!(path("/work").is_within(&path("/")));
        assert!(!path("/workshop").is_within(&path("/work")));
    }

    proptest! {
        #[test]
        fn parsing_is_idempotent(text in "(/[a-c.]{0,3}){0,6}/?") {
            if let Ok(path) = AbsolutePath::parse(&text) {
                prop_assert_eq!(AbsolutePath::parse(path.as_str()), Ok(path));
            }
        }

        #[test]
        fn being_within_means_being_an_ancestor(a in "(/[ab]){0,4}", b in "(/[ab]){0,4}") {
            let (a, b) = (AbsolutePath::root().join(&a).unwrap(), AbsolutePath::root().join(&b).unwrap());
            let by_ancestors = a == b || a.ancestors().any(|ancestor| ancestor == b.as_str());
            prop_assert_eq!(a.is_within(&b), by_ancestors);
        }
    }
}
