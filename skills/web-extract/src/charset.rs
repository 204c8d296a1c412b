//! Turns the bytes of a page into text.
//!
//! Guarantees: what is not valid in UTF-8 becomes the replacement character, never a failure. A mark at the beginning is believed before what
//! the server says, and that before what the page says.
//! Refuses: encodings other than UTF-8, UTF-16 and the western single-byte ones; a page in another would be told as nonsense.

/// The text of a page, and what it was encoded as.
///
/// # Errors
/// When it is encoded as something else. The error is its name.
pub fn decode(body: &[u8], content_type: Option<&str>) -> Result<(String, &'static str), String> {
    if let Some(body) = body.strip_prefix(b"\xef\xbb\xbf") {
        return Ok((String::from_utf8_lossy(body).into_owned(), "utf-8"));
    }
    if let Some(body) = body.strip_prefix(b"\xff\xfe") {
        return Ok((utf_16(body, u16::from_le_bytes), "utf-16le"));
    }
    if let Some(body) = body.strip_prefix(b"\xfe\xff") {
        return Ok((utf_16(body, u16::from_be_bytes), "utf-16be"));
    }
    let named = content_type.and_then(parameter).or_else(|| declared(body));
    match named.as_deref() {
        None | Some("utf-8" | "utf8") => Ok((String::from_utf8_lossy(body).into_owned(), "utf-8")),
        // The standard reads all of these the same way.
        Some("us-ascii" | "ascii" | "iso-8859-1" | "iso8859-1" | "latin1" | "windows-1252" | "cp1252") => {
            Ok((body.iter().copied().map(windows_1252).collect(), "windows-1252"))
        }
        Some(other) => Err(other.to_owned()),
    }
}

/// `charset` of a media type.
fn parameter(content_type: &str) -> Option<String> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| word(value))
    })
}

/// What a page says near its beginning, in either of the two forms: `<meta charset=…>`, or as part of a media type.
fn declared(body: &[u8]) -> Option<String> {
    let start: String = body.iter().take(LOOKED_AT).map(|byte| char::from(byte.to_ascii_lowercase())).collect();
    start.split("<meta").skip(1).find_map(|meta| {
        let (_, rest) = meta.split('>').next()?.split_once("charset")?;
        Some(word(rest.trim_start().strip_prefix('=')?)).filter(|name| !name.is_empty())
    })
}

fn word(text: &str) -> String {
    let text = text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\''));
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | ':')).unwrap_or(text.len());
    text.get(..end.min(LONGEST_NAME)).unwrap_or_default().to_ascii_lowercase()
}

fn utf_16(body: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let (pairs, _) = body.as_chunks();
    char::decode_utf16(pairs.iter().copied().map(unit))
        .map(|decoded| decoded.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}

fn windows_1252(byte: u8) -> char {
    match byte {
        0x80..=0x9f => HIGH_CONTROLS.get(usize::from(byte - 0x80)).copied().unwrap_or(char::REPLACEMENT_CHARACTER),
        _ => char::from(byte),
    }
}

/// What windows-1252 has where Latin-1 has control characters. Five are not assigned.
const HIGH_CONTROLS: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}', '‘', '’',
    '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];
/// As far as the standard looks for a declaration.
const LOOKED_AT: usize = 1024;
const LONGEST_NAME: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(body: &[u8], content_type: Option<&str>) -> Result<(String, &'static str), String> {
        decode(body, content_type)
    }

    #[test]
    fn the_mark_comes_before_the_server_and_the_server_before_the_page() {
        let page = b"<meta charset='windows-1252'>\xe4";
        assert_eq!(decoded(page, None).unwrap().0, "<meta charset='windows-1252'>ä");
        assert_eq!(decoded(page, Some("text/html; charset=utf-8")).unwrap().0, "<meta charset='windows-1252'>\u{fffd}");
        assert_eq!(decoded(b"\xef\xbb\xbf\xc3\xa4", Some("text/html;charset=latin1")), Ok(("ä".to_owned(), "utf-8")));
        assert_eq!(decoded(b"\xff\xfea\0\xe4\0\0", None), Ok(("aä".to_owned(), "utf-16le")));
        assert_eq!(decoded(b"\xfe\xff\0a\xd8\0", None), Ok(("a\u{fffd}".to_owned(), "utf-16be")));
    }

    #[test]
    fn both_forms_of_a_declaration_are_read() {
        let page = b"<META http-equiv=content-type content=\"text/html; charset=ISO-8859-1\">\x80";
        assert_eq!(decoded(page, Some("text/html")).unwrap().1, "windows-1252");
        assert!(decoded(page, None).unwrap().0.ends_with('€'));
    }

    #[test]
    fn other_encodings_are_refused_by_name() {
        assert_eq!(decoded(b"", Some("text/html; charset=\"Shift_JIS\"")), Err("shift_jis".to_owned()));
        assert_eq!(decoded(b"<meta charset=koi8-r>", None), Err("koi8-r".to_owned()));
    }
}
