//! The texts of a manifest: what each may hold.

use palyra_types::visible::is_hidden;

/// Whether a text is one line that shows all of its characters.
pub fn is_line(text: &str, most: usize) -> bool {
    !text.trim().is_empty() && text.len() <= most && !text.chars().any(is_hidden)
}

/// Whether a text shows all of its characters, line breaks and tabs apart.
pub fn is_block(text: &str, most: usize) -> bool {
    let hides = |c: char| is_hidden(c) && !matches!(c, '\n' | '\t');
    !text.trim().is_empty() && text.len() <= most && !text.chars().any(hides)
}

/// Whether a text looks like an SPDX expression. Which licenses there are is not looked up.
pub fn is_license(text: &str) -> bool {
    let is_id = |word: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':');
        let word = word.strip_suffix('+').unwrap_or(word);
        word.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric()) && word.bytes().all(plain)
    };
    let (mut depth, mut wants_id) = (0_i32, true);
    for word in text.replace('(', " ( ").replace(')', " ) ").split_ascii_whitespace() {
        match (word, wants_id) {
            ("(", true) => depth += 1,
            (")", false) if depth > 0 => depth -= 1,
            ("AND" | "OR" | "WITH", false) => wants_id = true,
            ("AND" | "OR" | "WITH", true) => return false,
            (id, true) if is_id(id) => wants_id = false,
            _ => return false,
        }
    }
    text.len() <= 256 && depth == 0 && !wants_id
}

/// Whether a text is the address of a page.
pub fn is_homepage(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'`');
    text.len() <= 512 && rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(is_plain))
}

/// Whether a tool of a skill can be called that.
pub fn is_tool(text: &str) -> bool {
    let first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.bytes().next().is_some_and(first) && text.bytes().all(|byte| first(byte) || matches!(byte, b'_' | b'-'))
}
