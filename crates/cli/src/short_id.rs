//! Ids that people shorten: the beginning or the end of one is enough where it is the only such, with what all begin with or without it.

use palyra_types::visible::visible;

use crate::{exit::Exit, failure::Failure};

/// The one of these that is meant: by its whole id, or by the beginning or the end of it. `dev-` and the like may be left out.
pub(crate) fn meant<'a, T>(all: &'a [T], id: impl Fn(&T) -> &str, text: &str, sort: &Sort) -> Result<&'a T, Failure> {
    let text = text.trim().to_ascii_lowercase();
    let lower = |one: &T| id(one).to_ascii_lowercase();
    if let Some(exactly) = all.iter().find(|one| lower(one) == text) {
        return Ok(exactly);
    }
    let refused =
        |cause: String| Failure::new(Exit::Failure, sort.code, format!("no such {}", sort.one), cause, sort.help);
    // What all of them begin with, such as `dev-`, tells none from another.
    let telling = text.rsplit_once('-').map_or(text.as_str(), |(_, telling)| telling);
    if telling.len() < SHORTEST {
        return Err(refused(format!("`{}` is too short; give at least {SHORTEST} characters", visible(&text))));
    }
    let fits = |id: &str| {
        let begins = id.starts_with(&text) || id.split_once('-').is_some_and(|(_, bare)| bare.starts_with(&text));
        begins || id.ends_with(&text)
    };
    let mut found = all.iter().filter(|one| fits(&lower(one)));
    match (found.next(), found.count()) {
        (Some(one), 0) => Ok(one),
        (None, _) => Err(refused(format!("no {} has an id that begins or ends with `{}`", sort.one, visible(&text)))),
        (Some(_), more) => {
            let count = more + 1;
            Err(refused(format!("{count} {} have an id that begins or ends with `{}`", sort.many, visible(&text))))
        }
    }
}

/// What is looked for, in words.
pub(crate) struct Sort {
    /// One of them.
    pub(crate) one: &'static str,
    /// Several.
    pub(crate) many: &'static str,
    /// A word for programs, if there is none.
    pub(crate) code: &'static str,
    /// How to see them.
    pub(crate) help: &'static str,
}

/// The shortest part of an id that is taken for it.
const SHORTEST: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const SORT: Sort = Sort { one: "device", many: "devices", code: "no_such_device", help: "look" };
    const IDS: &[&str] = &["dev-01AAAA1111", "dev-01AAAA2222", "x"];

    fn cause(text: &str) -> String {
        meant(IDS, |id| id, text, &SORT).unwrap_err().cause
    }

    #[test]
    fn a_whole_id_or_a_part_that_only_one_has_is_meant() {
        let meant = |text: &str| meant(IDS, |id| id, text, &SORT).copied().ok();
        assert_eq!(meant("x"), Some("x"), "a whole id is never too short");
        assert_eq!(meant("1111"), Some("dev-01AAAA1111"));
        assert_eq!(meant(" DEV-01aaaa2222 "), Some("dev-01AAAA2222"));
        assert_eq!(meant("dev-01AAAA1"), Some("dev-01AAAA1111"));
        assert_eq!(meant("01aaaa2"), Some("dev-01AAAA2222"), "what all begin with may be left out");
    }

    #[test]
    fn what_fits_none_or_several_is_refused() {
        assert_eq!(cause("dev-01aa"), "2 devices have an id that begins or ends with `dev-01aa`");
        assert_eq!(cause("01aa"), "2 devices have an id that begins or ends with `01aa`");
        assert_eq!(cause("9999"), "no device has an id that begins or ends with `9999`");
        assert_eq!(cause("1"), "`1` is too short; give at least 4 characters");
        assert_eq!(cause("dev-"), "`dev-` is too short; give at least 4 characters");
        assert_eq!(cause("dev-01a"), "`dev-01a` is too short; give at least 4 characters");
    }
}
