//! The ways in which a byte is spelt in URLs, forms, JSON and HTML.
//!
//! Which bytes are spelt so differs from one program to the next, so each byte is read in any of these ways. Guarantees: never panics, and
//! reads no further than the longest way. Does not: undo two layers of them.

use crate::needles::Reading;

/// Whether these bytes begin with this byte, in another way than as it is.
pub(crate) fn read(bytes: &[u8], byte: u8) -> Reading {
    match bytes {
        [] => Reading::More,
        [b'%', rest @ ..] => hexadecimal(rest, (2, 3), byte),
        [b'\\', rest @ ..] => backslash(rest, byte),
        [b'&', rest @ ..] => entity(rest, byte),
        [b'+', ..] if byte == b' ' => Reading::Whole(1),
        _ => Reading::No,
    }
}

/// Whether a line ends here, as it is or as JSON spells it.
pub(crate) fn line_end(bytes: &[u8]) -> Reading {
    for end in [&b"\r\n"[..], b"\n", b"\\r\\n", b"\\n"] {
        if bytes.starts_with(end) {
            return Reading::Whole(end.len());
        }
        if end.starts_with(bytes) {
            return Reading::More;
        }
    }
    Reading::No
}

/// The pairs of bytes that the byte may begin with, besides itself.
pub(crate) fn beginnings(byte: u8) -> Vec<[u8; 2]> {
    let digits = [b"0123456789abcdef", b"0123456789ABCDEF"]
        .map(|digits| digits.get(usize::from(byte >> 4)).copied().unwrap_or(b'0'));
    let mut pairs: Vec<[u8; 2]> = digits.map(|high| [b'%', high]).to_vec();
    pairs.extend([[b'\\', b'u'], [b'\\', b'x'], [b'&', b'#']]);
    pairs.extend(SHORT.iter().filter(|(_, means)| *means == byte).map(|(letter, _)| [b'\\', *letter]));
    let named = NAMED.iter().filter(|(_, means)| *means == byte).filter_map(|(name, _)| name.first());
    pairs.extend(named.map(|letter| [b'&', *letter]));
    if byte == b' ' {
        // With whatever follows.
        pairs.extend((0..=u8::MAX).map(|next| [b'+', next]));
    }
    pairs
}

fn backslash(rest: &[u8], byte: u8) -> Reading {
    match rest {
        [] => Reading::More,
        [b'u', digits @ ..] => hexadecimal(digits, (4, 6), byte),
        [b'x', digits @ ..] => hexadecimal(digits, (2, 4), byte),
        [letter, ..] if SHORT.contains(&(*letter, byte)) => Reading::Whole(2),
        _ => Reading::No,
    }
}

fn entity(rest: &[u8], byte: u8) -> Reading {
    let Some(end) = rest.iter().take(LONGEST_ENTITY).position(|&one| one == b';') else {
        return if rest.len() < LONGEST_ENTITY { Reading::More } else { Reading::No };
    };
    let name = rest.get(..end).unwrap_or_default();
    let means = match name {
        [b'#', b'x' | b'X', digits @ ..] => number_of(digits, 16),
        [b'#', digits @ ..] => number_of(digits, 10),
        _ => NAMED.iter().find(|(known, _)| *known == name).map(|(_, means)| u32::from(*means)),
    };
    if means == Some(u32::from(byte)) { Reading::Whole(end + 2) } else { Reading::No }
}

/// The byte as a number of so many digits, and how long that is with what stands before.
fn hexadecimal(bytes: &[u8], (digits, whole): (usize, usize), byte: u8) -> Reading {
    let there = bytes.get(..digits.min(bytes.len())).unwrap_or_default();
    match (there.iter().all(u8::is_ascii_hexdigit), there.len() == digits) {
        (true, false) => Reading::More,
        (true, true) if number_of(there, 16) == Some(u32::from(byte)) => Reading::Whole(whole),
        _ => Reading::No,
    }
}

fn number_of(digits: &[u8], base: u32) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, base).ok()
}

/// What stands behind a backslash, and what it stands for.
const SHORT: [(u8, u8); 9] = [
    (b'n', b'\n'),
    (b'r', b'\r'),
    (b't', b'\t'),
    (b'b', 8),
    (b'f', 12),
    (b'"', b'"'),
    (b'\'', b'\''),
    (b'/', b'/'),
    (b'\\', b'\\'),
];

/// What has a name in HTML.
const NAMED: [(&[u8], u8); 32] = [
    (b"amp", b'&'),
    (b"lt", b'<'),
    (b"gt", b'>'),
    (b"quot", b'"'),
    (b"apos", b'\''),
    (b"sol", b'/'),
    (b"bsol", b'\\'),
    (b"plus", b'+'),
    (b"equals", b'='),
    (b"num", b'#'),
    (b"dollar", b'$'),
    (b"percnt", b'%'),
    (b"excl", b'!'),
    (b"quest", b'?'),
    (b"colon", b':'),
    (b"semi", b';'),
    (b"comma", b','),
    (b"period", b'.'),
    (b"ast", b'*'),
    (b"midast", b'*'),
    (b"lpar", b'('),
    (b"rpar", b')'),
    (b"lsqb", b'['),
    (b"rsqb", b']'),
    (b"lcub", b'{'),
    (b"rcub", b'}'),
    (b"lowbar", b'_'),
    (b"commat", b'@'),
    (b"verbar", b'|'),
    (b"grave", b'`'),
    (b"Hat", b'^'),
    (b"Tab", b'\t'),
];

/// How long what stands between `&` and `;` is, with that.
const LONGEST_ENTITY: usize = 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_read_in_every_way_it_is_spelt_in() {
        for (text, byte) in [
            ("%2d", b'-'),
            ("%2D", b'-'),
            ("\\u002d", b'-'),
            ("\\u002D", b'-'),
            ("\\x2d", b'-'),
            ("&#45;", b'-'),
            ("&#x2d;", b'-'),
            ("\\/", b'/'),
            ("\\\"", b'"'),
            ("\\n", b'\n'),
            ("&amp;", b'&'),
            ("&quot;", b'"'),
            ("+", b' '),
            ("%25", b'%'),
            ("\\\\", b'\\'),
            ("\\u0075", b'u'),
        ] {
            assert_eq!(read(text.as_bytes(), byte), Reading::Whole(text.len()), "{text}");
            for end in 0..text.len() {
                assert_eq!(read(&text.as_bytes()[..end], byte), Reading::More, "{text} cut to {end}");
            }
        }
        for (text, byte) in [("%2e", b'-'), ("&lt;", b'>'), ("%zz", b'-'), ("+", b'-'), ("x", b'x')] {
            assert_eq!(read(text.as_bytes(), byte), Reading::No, "{text}");
        }
    }
}
