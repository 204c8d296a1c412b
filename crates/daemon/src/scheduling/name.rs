//! What schedules are called: `nightly`, or `agent:claude/nightly` where it is somebody else's.
//!
//! Guarantees: a name is a file-like word without directories, so that owner and name can be told apart, and policy can speak of both.

use std::fmt;

use palyra_types::{ObjectId, ObjectKind, Principal, Resource, visible::visible};

/// A schedule, by whose it is and what it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleName {
    /// Whose, as `kind:name`.
    pub owner: String,
    /// What it is called.
    pub name: String,
    id: ObjectId,
}

impl ScheduleName {
    /// The schedule that somebody calls this.
    ///
    /// # Errors
    /// When nothing can be called that.
    pub fn read(text: &str, asker: &Principal) -> Result<Self, BadName> {
        match text.rsplit_once('/') {
            None => Self::of(&asker.to_string(), text),
            Some((owner, name)) => {
                let owner = Principal::parse(owner).map_err(|_| BadName(text.to_owned()))?;
                Self::of(&owner.to_string(), name)
            }
        }
    }

    /// A schedule of a principal.
    ///
    /// # Errors
    /// When nothing can be called that.
    pub fn of(owner: &str, name: &str) -> Result<Self, BadName> {
        let refused = || BadName(name.to_owned());
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let begins_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if name.len() > MOST_BYTES || !begins_well || !name.chars().all(fits) {
            return Err(refused());
        }
        let id = ObjectId::parse(&format!("{owner}/{name}")).map_err(|_| refused())?;
        Ok(Self { owner: owner.to_owned(), name: name.to_owned(), id })
    }

    /// It, as policy knows it.
    #[must_use]
    pub fn resource(&self) -> Resource {
        Resource::Object(ObjectKind::CronJob, self.id.clone())
    }
}

impl fmt::Display for ScheduleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id.as_str())
    }
}

/// A name that no schedule has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no schedule can be called `{}`", visible(.0))]
pub struct BadName(String);

impl BadName {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        "use up to 64 letters, digits and . _ -, beginning with a letter or a digit, such as `nightly`; that of somebody else \
         is `agent:claude/nightly`"
    }
}

/// The longest name.
const MOST_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let asker = Principal::parse("agent:claude").unwrap();
        ScheduleName::read(text, &asker).map(|name| name.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_bare_name_is_ones_own_and_one_with_an_owner_is_theirs() {
        assert_eq!(read("nightly"), Ok("agent:claude/nightly".to_owned()));
        assert_eq!(read("user:ada@owner/a.b-c_1"), Ok("user:ada/a.b-c_1".to_owned()));
    }

    #[test]
    fn what_looks_like_a_path_or_hides_something_is_no_name() {
        for text in ["", "..", "../x", "/etc/passwd", "a/b", "a b", "a\0", "a\u{202e}b", "-a", &"a".repeat(65)] {
            assert!(read(text).unwrap_err().starts_with("no schedule can be called"), "{text}");
        }
    }
}
