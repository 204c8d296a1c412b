//! Text that a person can trust: what is invisible becomes visible.
//!
//! Guarantees: the result holds no control, format (bidirectional, zero-width), private-use or blank-looking character;
//! each such character stands as `<U+202E>`; two different inputs never look the same, because a literal `<U+` is escaped too.
//! Every surface that shows text from outside goes through here. Does not: judge look-alike letters.

use std::fmt::Write;

/// Makes one line of text visible. Line breaks and tabs are escaped as well.
#[must_use]
pub fn visible(text: &str) -> String {
    escape(text, |_| false)
}

/// Makes a block of text visible, keeping its line breaks and tabs.
#[must_use]
pub fn visible_block(text: &str) -> String {
    escape(text, |c| matches!(c, '\n' | '\t'))
}

/// Whether a character cannot be told from nothing, from a plain space, or from its neighbours.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    // Nearly all text is made of these.
    !matches!(c, ' '..='~')
        && (c.is_control()
            || c.is_whitespace()
            || HIDDEN.iter().any(|&(first, last)| (first..=last).contains(&u32::from(c))))
}

fn escape(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let fakes_an_escape = c == '<' && rest.as_str().starts_with("U+");
        if !keep(c) && (fakes_an_escape || is_hidden(c)) {
            // Writing to a String cannot fail.
            let _ = write!(shown, "<U+{:04X}>", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Ranges that hide: format characters, fillers that render as nothing, variation selectors, tags, private use.
const HIDDEN: &[(u32, u32)] = &[
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x0600, 0x0605),
    (0x061C, 0x061C),
    (0x06DD, 0x06DD),
    (0x070F, 0x070F),
    (0x0890, 0x0891),
    (0x08E2, 0x08E2),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xE000, 0xF8FF),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFB),
    (0x1_10BD, 0x1_10BD),
    (0x1_10CD, 0x1_10CD),
    (0x1_3430, 0x1_343F),
    (0x1_BCA0, 0x1_BCA3),
    (0x1_D173, 0x1_D17A),
    (0xE_0000, 0xE_0FFF),
    (0xF_0000, 0x10_FFFF),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_reversed_file_name_shows_its_trick() {
        assert_eq!(visible("rm \u{202e}txt.exe"), "rm <U+202E>txt.exe");
        assert_eq!(visible("a\tb\nc\0"), "a<U+0009>b<U+000A>c<U+0000>");
        assert_eq!(visible_block("a\tb\nc\r"), "a\tb\nc<U+000D>");
    }

    #[test]
    fn a_literal_escape_is_escaped_so_that_it_cannot_pose_as_one() {
        assert_eq!(visible("<U+202E>"), "<U+003C>U+202E>");
        assert_eq!(visible("a < b"), "a < b");
    }

    #[test]
    fn ordinary_text_of_any_script_is_left_alone() {
        for text in ["cargo test", "naïve café", "日本語", "Привет", "שלום"] {
            assert_eq!(visible(text), text);
        }
    }

    proptest! {
        #[test]
        fn nothing_hidden_survives(text in any::<String>()) {
            prop_assert!(!visible(&text).chars().any(is_hidden));
        }

        #[test]
        fn different_texts_look_different(a in "[<U+203E>\u{202e}\u{200b}a]{0,8}", b in "[<U+203E>\u{202e}\u{200b}a]{0,8}") {
            prop_assert_eq!(a == b, visible(&a) == visible(&b));
        }
    }
}
