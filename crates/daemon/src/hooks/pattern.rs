//! Patterns of files, such as `src/**/*.rs`: where they are looked for.
//!
//! Guarantees: a pattern of which more than one directory could be meant, or one above where it begins, is refused, whichever of the usual
//! ways of writing patterns the program follows.
//! Does not: look for anything. What links below the directory lead to is not known.

use super::vocabulary::is_padded;
use crate::failure::Failure;

/// The directory that a pattern is looked for in: what stands before its first wildcard.
///
/// # Errors
/// When that does not say where it may lead.
pub(super) fn start(path: Option<&str>, pattern: &str) -> Result<String, Failure> {
    let from = path.unwrap_or(".");
    // Joined, blanks at the ends would look like a part of a name.
    if is_unclear(pattern) || [from, pattern].iter().any(|text| is_padded(text)) {
        return Err(Failure::bad_request("a pattern that can be read in more than one way could mean any directory"));
    }
    let plain: Vec<&str> = pattern.split('/').take_while(|step| !step.contains(WILDCARDS)).collect();
    let mut wild = pattern.split('/').skip(plain.len()).peekable();
    while let Some(step) = wild.next() {
        if may_lead_up(step, wild.peek().is_none()) {
            let message = "a pattern that may step upwards behind a wildcard could mean any directory";
            return Err(Failure::bad_request(message));
        }
    }
    let start = plain.join("/");
    Ok(match start.as_str() {
        _ if pattern.starts_with('/') => format!("/{}", start.trim_start_matches('/')),
        "" => from.to_owned(),
        start => format!("{from}/{start}"),
    })
}

/// Whether a pattern may mean another start than the one that it shows: somebody's home, something quoted, or a choice between directories.
fn is_unclear(pattern: &str) -> bool {
    pattern.contains('\\') || pattern.starts_with('~') || pattern.contains(['{', '(']) && chooses_its_start(pattern)
}

/// Whether what a choice holds may be more than a part of one name, or be nothing where what follows it would then begin at the root.
fn chooses_its_start(pattern: &str) -> bool {
    let begins_at_the_root = |(first, _): (&str, &str)| MAY_BE_NOTHING.iter().any(|sign| first.contains(sign));
    pattern.contains("..")
        || pattern.contains('~')
        || !pattern.split('/').all(holds_its_choices)
        || pattern.split_once('/').is_some_and(begins_at_the_root)
}

/// Whether every choice that begins in this step of a pattern ends in it.
fn holds_its_choices(step: &str) -> bool {
    // In a class a brace stands for itself, so where a choice ends cannot be counted.
    let is_countable = !(step.contains(['{', '(']) && step.contains('['));
    is_countable && is_balanced(step, '{', '}') && is_balanced(step, '(', ')')
}

fn is_balanced(step: &str, open: char, close: char) -> bool {
    let depth = step.chars().try_fold(0_usize, |depth, sign| match sign {
        sign if sign == open => depth.checked_add(1),
        sign if sign == close => depth.checked_sub(1),
        _ => Some(depth),
    });
    depth == Some(0)
}

/// Whether a step of a pattern from its first wildcard on may be `..`, however that is spelt.
fn may_lead_up(step: &str, is_last: bool) -> bool {
    step.contains("..") || step.starts_with("[.") || !is_last && step.contains('.') && step.contains(['[', '{', '('])
}

/// What makes a step of a pattern stand for more than itself.
const WILDCARDS: [char; 6] = ['*', '?', '[', '{', '!', '('];

/// What a choice is written with that may be nothing.
const MAY_BE_NOTHING: [&str; 10] = ["{,", ",,", ",}", "{}", "(|", "||", "|)", "()", "?(", "*("];

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_looked_for_below_what_stands_before_its_first_wildcard() {
        for (path, pattern, expected) in [
            (None, "**/*.rs", "."),
            (Some("/w"), "**/*.rs", "/w"),
            (Some("/w"), "src/deep/*.rs", "/w/src/deep"),
            (None, "../secrets/*", "./../secrets"),
            (Some("/w"), "/etc/**", "/etc"),
            (Some("/w"), "/**", "/"),
            (None, "plain.txt", "./plain.txt"),
            (None, "src/*.{ts,tsx}", "./src"),
            (None, "src/{,deep}/*.rs", "./src"),
            (None, "{a,b}/*.rs", "."),
            (None, "app/(shop)/{a,b}/*.rs", "./app"),
            (None, "v[0-9]/*.rs", "."),
            (None, ".github/**/*.y?ml", "./.github"),
        ] {
            assert_eq!(start(path, pattern).unwrap(), expected, "{pattern}");
        }
    }

    #[test]
    fn a_pattern_that_may_lead_elsewhere_than_it_shows_is_refused() {
        for pattern in [
            "*/../../x",
            "{..,x}/lib/*",
            "{/etc,x}/*",
            "{/etc/ssh/*,x}",
            "src/{a,/etc}/*",
            "{[}],/etc/x}",
            "{x),/etc}/*",
            "}{/etc,x}{",
            "@(..)/lib/*",
            "@(/etc|x)/*",
            ".{.,x}/lib/*",
            "{.,x}{.,x}/lib/*",
            "..*/x",
            ".\\./.\\./lib/*",
            "[.]./lib/*",
            "[.][.]",
            ".[.]/lib/*",
            "{,x}/etc/*",
            "?(x)/etc/*",
            "{~,x}/.ssh/*",
            "~/x/*",
            "~root/*",
            " ~/x/*",
            "src/* ",
        ] {
            assert!(start(None, pattern).is_err(), "{pattern}");
        }
        for path in [" /etc", "/etc ", "\u{feff}/etc"] {
            assert!(start(Some(path), "*").is_err(), "{path:?}");
        }
    }
}
