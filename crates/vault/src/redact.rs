//! Takes the values of secrets out of what comes back: as they are, and as servers and tools usually encode them.
//!
//! Guarantees: a value, or its form in base 64 at any offset or in hexadecimal digits, each with any of its bytes spelt as URLs, JSON or HTML
//! spell them, is replaced by as many asterisks, so that no length changes; also where it is split over pieces. What is kept back of a text
//! that comes in pieces, and what is taken out where it is cut off, depends on the text, and on the lengths of values and on which bytes
//! beyond visible ASCII they have, and on nothing else: otherwise whoever writes the text could guess a value letter by letter.
//! Does not: undo compression or encryption, or find a value of fewer than [`SHORTEST`] bytes, of which every text would be full.

use std::sync::{Arc, PoisonError, RwLock};

use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD, prelude::BASE64_URL_SAFE_NO_PAD};
use zeroize::{Zeroize, Zeroizing};

use crate::{
    needles::{Hit, More, Needle, Needles, Spelling},
    value::SecretValue,
};

/// The values that are taken out. All clones of it, and all streams of them, take out what is added to one.
#[derive(Debug, Clone)]
pub struct Redactor(Arc<RwLock<Arc<Sought>>>);

/// What is looked for.
#[derive(Debug)]
struct Sought {
    values: Vec<Zeroizing<Vec<u8>>>,
    needles: Needles,
    /// No form of a value is longer than this.
    longest: usize,
    /// Which bytes beyond visible ASCII are in a value.
    beyond: Vec<bool>,
}

impl Sought {
    fn new(values: Vec<Zeroizing<Vec<u8>>>) -> Self {
        let long = || values.iter().filter(|value| value.len() >= SHORTEST);
        let mut beyond = vec![false; 256];
        for byte in long().flat_map(|value| value.iter()) {
            if let Some(place) = beyond.get_mut(usize::from(*byte)) {
                *place = true;
            }
        }
        let longest = long().map(|value| value.len()).max().unwrap_or_default();
        // A letter of base 64 holds six bits, and each may be spelt.
        let longest = (longest.saturating_mul(4) / 3).saturating_add(4).saturating_mul(LONGEST_SPELT);
        let needles = Needles::new(long().flat_map(|value| forms(value)));
        Self { needles, longest, beyond, values }
    }

    fn is_in(&self, value: &[u8]) -> bool {
        self.values.iter().any(|one| one.as_slice() == value)
    }

    /// Whether no form of a value goes on over this byte of a text.
    fn separates(&self, bytes: &[u8], at: usize) -> bool {
        match bytes.get(at).copied().unwrap_or(b' ') {
            0x21..=0x7e => false,
            own if self.beyond.get(usize::from(own)).copied().unwrap_or(true) => false,
            b'\r' | b'\n' => !ends_a_full_line(bytes.get(..at).unwrap_or_default()),
            _ => true,
        }
    }

    /// How much of a text can be told, of which more may come.
    fn settled(&self, bytes: &[u8]) -> usize {
        let floor = bytes.len().saturating_sub(self.longest);
        let end = (floor..bytes.len()).rev().find(|at| self.separates(bytes, *at));
        end.map_or(floor, |at| at + 1)
    }
}

/// Whether a line ends here as those of base 64 and hexadecimal digits do: behind many letters.
fn ends_a_full_line(before: &[u8]) -> bool {
    let before = before.strip_suffix(b"\r").unwrap_or(before);
    let line = before.get(before.len().saturating_sub(SHORTEST_LINE)..).unwrap_or_default();
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=');
    line.len() == SHORTEST_LINE && line.iter().all(is_letter)
}

impl Redactor {
    /// Takes out these values.
    #[must_use]
    pub fn new<'a>(values: impl IntoIterator<Item = &'a SecretValue>) -> Self {
        let values = values.into_iter().map(|value| Zeroizing::new(value.expose().to_vec())).collect();
        Self(Arc::new(RwLock::new(Arc::new(Sought::new(values)))))
    }

    /// Takes out this one from now on, too.
    pub fn add(&self, value: &SecretValue) {
        if self.sought().is_in(value.expose()) {
            return;
        }
        let mut sought = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut values = sought.values.clone();
        values.push(Zeroizing::new(value.expose().to_vec()));
        *sought = Arc::new(Sought::new(values));
    }

    /// Whether there is nothing that it would take out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sought().needles.is_empty()
    }

    /// Whether something of it is in there.
    #[must_use]
    pub fn finds(&self, bytes: &[u8]) -> bool {
        self.sought().needles.find(bytes).is_some()
    }

    /// Whether a value is in there with all its letters made small, as names of headers are.
    #[must_use]
    pub fn finds_made_small(&self, name: &str) -> bool {
        let small = |value: &Zeroizing<Vec<u8>>| Zeroizing::new(value.to_ascii_lowercase());
        let sought = self.sought();
        let mut long = sought.values.iter().filter(|value| value.len() >= SHORTEST).map(small);
        long.any(|value| name.as_bytes().windows(value.len()).any(|window| window == value.as_slice()))
    }

    /// A whole text without the values.
    #[must_use]
    pub fn redact(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut stream = self.stream();
        stream.take_in(bytes);
        stream.finish(&mut out);
        out
    }

    /// A whole text that was cut off at its end, without the values.
    #[must_use]
    pub fn redact_cut(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut stream = self.stream();
        stream.take_in(bytes);
        stream.finish_cut(&mut out);
        out
    }

    /// Takes the values out of a whole text, if they are in there.
    pub fn redact_text(&self, text: &mut String) {
        if self.finds(text.as_bytes()) {
            *text = String::from_utf8_lossy(&self.redact(text.as_bytes())).into_owned();
        }
    }

    /// For a text that comes in pieces.
    #[must_use]
    pub fn stream(&self) -> RedactingStream {
        RedactingStream { redactor: self.clone(), held: Vec::new(), masked: 0 }
    }

    fn sought(&self) -> Arc<Sought> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A text that comes in pieces, from which values are taken out.
pub struct RedactingStream {
    redactor: Redactor,
    /// What may be the beginning of something.
    held: Vec<u8>,
    /// How much of that is the end of a value that has begun before.
    masked: usize,
}

impl RedactingStream {
    /// Takes a piece, and gives what can be told.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        let sought = self.redactor.sought();
        if sought.needles.is_empty() && self.held.is_empty() {
            return out.extend_from_slice(piece);
        }
        self.take_in(piece);
        let settled = sought.settled(&self.held);
        self.give(&sought, settled, out);
    }

    /// Gives the rest.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let sought = self.redactor.sought();
        self.give(&sought, self.held.len(), out);
    }

    /// Gives the rest of a text that was cut off here: whatever could be the beginning of any value is taken for one.
    pub fn finish_cut(&mut self, out: &mut Vec<u8>) {
        let sought = self.redactor.sought();
        if !sought.needles.is_empty() {
            let settled = sought.settled(&self.held);
            self.give(&sought, settled, out);
            self.masked = self.held.len();
        }
        self.give(&sought, self.held.len(), out);
    }

    fn take_in(&mut self, piece: &[u8]) {
        // Not by growing in place: what would be left behind is not wiped.
        let mut joined = Vec::with_capacity(self.held.len() + piece.len());
        joined.extend_from_slice(&self.held);
        joined.extend_from_slice(piece);
        self.held.zeroize();
        self.held = joined;
    }

    /// Gives so much of what is held, without the values that begin in there.
    fn give(&mut self, sought: &Sought, settled: usize, out: &mut Vec<u8>) {
        let begins = out.len();
        let mut masked = self.masked;
        let mut told = 0;
        let mut tell = |until: usize, masked: usize, out: &mut Vec<u8>| {
            let hidden = masked.clamp(told, until);
            out.resize(out.len() + (hidden - told), b'*');
            out.extend_from_slice(self.held.get(hidden..until).unwrap_or_default());
            told = until;
        };
        let mut from = 0;
        while let Some(at) = self.held.get(from..).and_then(|rest| sought.needles.candidate(rest)) {
            let here = from + at;
            if here >= settled {
                break;
            }
            let rest = self.held.get(here..).unwrap_or_default();
            if let Hit::Whole(_, length) = sought.needles.at(rest, More::NothingComes) {
                tell(here, masked, out);
                masked = masked.max(here + length);
            }
            from = here + 1;
        }
        tell(settled, masked, out);
        debug_assert_eq!(out.len() - begins, settled);
        self.masked = masked.saturating_sub(settled);
        let rest = self.held.get(settled..).unwrap_or_default().to_vec();
        self.held.zeroize();
        self.held = rest;
    }
}

impl Drop for RedactingStream {
    fn drop(&mut self) {
        self.held.zeroize();
    }
}

impl std::fmt::Debug for RedactingStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedactingStream")
    }
}

/// A value in all the forms that are looked for.
fn forms(value: &[u8]) -> Vec<Needle> {
    let own = || Zeroizing::new(value.to_vec());
    let mut forms = vec![Needle::new(own(), Spelling::Escaped), Needle::new(own(), Spelling::Hex)];
    forms.extend(by_character(value).into_iter().map(|text| Needle::new(text, Spelling::Escaped)));
    for offset in 0..3 {
        let standard = in_base64(value, offset, |bytes| BASE64_STANDARD_NO_PAD.encode(bytes));
        let for_urls = in_base64(value, offset, |bytes| BASE64_URL_SAFE_NO_PAD.encode(bytes));
        let differs = standard != for_urls;
        for form in std::iter::once(standard).chain(differs.then_some(for_urls)) {
            // Also as URLs and JSON spell it, since some of its letters are spelt so, and in lines, as mail and `base64` write it.
            if form.len() >= SHORTEST {
                forms.push(Needle::new(Zeroizing::new(form), Spelling::Lined));
            }
        }
    }
    forms
}

/// A text in which letters beyond ASCII are spelt by their numbers, not by their bytes, as JSON and HTML do.
fn by_character(value: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let Some(text) = std::str::from_utf8(value).ok().filter(|text| !text.is_ascii()) else { return Vec::new() };
    let units = |letter: char| letter.encode_utf16(&mut [0; 2]).to_vec();
    let ways: [&dyn Fn(char) -> String; 5] = [
        &|letter| units(letter).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
        &|letter| units(letter).iter().map(|unit| format!("\\u{unit:04X}")).collect(),
        &|letter| format!("&#{};", u32::from(letter)),
        &|letter| format!("&#x{:x};", u32::from(letter)),
        &|letter| format!("&#x{:X};", u32::from(letter)),
    ];
    let spelt = |way: &&dyn Fn(char) -> String| {
        let mut out = Zeroizing::new(Vec::with_capacity(value.len() * 6));
        for letter in text.chars() {
            match u8::try_from(letter).ok().filter(u8::is_ascii) {
                Some(byte) => out.push(byte),
                None => out.extend_from_slice(way(letter).as_bytes()),
            }
        }
        out
    };
    ways.iter().map(spelt).collect()
}

/// The part of a text in base 64 that depends on the value alone, if so many bytes stand before it in its group of three.
fn in_base64(value: &[u8], offset: usize, encode: impl Fn(&[u8]) -> String) -> Vec<u8> {
    let padded = Zeroizing::new([vec![0; offset], value.to_vec()].concat());
    let text = Zeroizing::new(encode(&padded).into_bytes());
    // Each letter holds six bits; those that hold bits of something else are left out.
    let first = (offset * 8).div_ceil(6);
    let last = padded.len() * 8 / 6;
    text.get(first..last).unwrap_or_default().to_vec()
}

/// How many bytes a byte takes at most as it is spelt, and what may end a line behind it.
const LONGEST_SPELT: usize = 18;

/// How many letters a line of base 64 or of hexadecimal digits has at least where it is broken: 60, 64, 70 and 76 are usual.
const SHORTEST_LINE: usize = 60;

/// How many bytes a value has at least to be looked for.
pub const SHORTEST: usize = 4;

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE};
    use proptest::prelude::*;

    use super::*;
    use crate::binding::is_unreserved;

    const VALUE: &str = "k3y/with spaces&\"quotes\"+%~\u{e4}";

    fn redactor(value: &str) -> Redactor {
        Redactor::new([&SecretValue::new(value.as_bytes().to_vec()).unwrap()])
    }

    fn is_gone(text: &str) {
        let out = redactor(VALUE).redact(text.as_bytes());
        assert_eq!(out.len(), text.len());
        let out = String::from_utf8_lossy(&out).into_owned();
        assert!(out.contains("****"), "{out}");
        assert!(!redactor(VALUE).finds(out.as_bytes()), "{out}");
    }

    #[test]
    fn a_value_is_gone_in_every_usual_form() {
        is_gone(&format!("token={VALUE}; path=/"));
        is_gone(&serde_json::to_string(&serde_json::json!({ "echo": VALUE })).unwrap());
        let percent = |upper: bool| {
            let encode = |byte: u8| match byte {
                plain if is_unreserved(plain) => char::from(plain).to_string(),
                other if upper => format!("%{other:02X}"),
                other => format!("%{other:02x}"),
            };
            VALUE.bytes().map(encode).collect::<String>()
        };
        is_gone(&format!("/search?q={}&page=2", percent(true)));
        is_gone(&format!("/search?q={}&page=2", percent(false)));
        is_gone(&percent(true).replace("%20", "+"));
        is_gone(&VALUE.bytes().map(|byte| format!("{byte:02x}")).collect::<String>());
        is_gone(&VALUE.bytes().map(|byte| format!("{byte:02X}")).collect::<String>());
        is_gone("<p>k3y/with spaces&amp;&quot;quotes&quot;+%~\u{e4}</p>");
        is_gone("<p>k3y/with spaces&amp;\"quotes\"+%~\u{e4}</p>");
        is_gone("\"k3y\\/with spaces&\"quotes\"+%~\u{e4}\"");
        // Which bytes are spelt so is up to whoever spells them.
        is_gone(&VALUE.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>());
        is_gone("k3y/with spaces&\\\"quotes\\\"+%~\\u00e4");
        is_gone("k3y/with spaces&amp;\"quotes\"+%~&#228;");
        is_gone("k3y/wit%68 spaces\\u0026\\u0022quotes&#34;+%25~%c3%A4");
    }

    #[test]
    fn a_value_is_gone_in_base64_wherever_it_stands() {
        for before in ["", "a", "ab", "user:", "longer name:"] {
            for after in ["", "z", "zz", ":behind"] {
                let text = format!("{before}{VALUE}{after}");
                for encoded in [BASE64_STANDARD.encode(&text), BASE64_URL_SAFE.encode(&text)] {
                    let out = redactor(VALUE).redact(format!("Basic {encoded} end").as_bytes());
                    let out = String::from_utf8(out).unwrap();
                    let left: String = out.chars().filter(|&c| c != '*').collect();
                    // At most the letters that also hold bits of what stands around it.
                    assert!(left.len() <= "Basic  end".len() + encoded.len() - (VALUE.len() * 8 / 6) + 3, "{out}");
                    assert!(out.contains("*****"), "{out}");
                }
            }
        }
    }

    #[test]
    fn a_value_is_gone_in_base64_that_is_broken_into_lines() {
        let text = BASE64_STANDARD.encode(format!("user:{VALUE}, and more"));
        for end in ["\n", "\r\n", "\\n", "\\r\\n"] {
            for width in 4..text.len() {
                let lines: Vec<&[u8]> = text.as_bytes().chunks(width).collect();
                let lined = lines.join(end.as_bytes());
                let out = redactor(VALUE).redact(&lined);
                assert_eq!(out.len(), lined.len());
                let rest = String::from_utf8(out).unwrap().replace(end, "");
                assert!(!redactor(VALUE).finds(rest.as_bytes()) && rest.contains("*****"), "{width}: {rest}");
            }
        }
    }

    #[test]
    fn what_is_too_short_is_left_alone_and_so_is_everything_else() {
        assert!(redactor("abc").is_empty());
        let text = "nothing in here is like it";
        assert_eq!(redactor(VALUE).redact(text.as_bytes()), text.as_bytes());
        let redacted = |redactor: Redactor, text: &str| {
            let mut text = text.to_owned();
            redactor.redact_text(&mut text);
            text
        };
        assert_eq!(redacted(redactor(VALUE), text), text);
        assert_eq!(redacted(redactor("hunter22"), "a hunter22"), "a ********");
        let (mut stream, mut out) = (redactor("hunter22").stream(), Vec::new());
        stream.push(b"a hunter22 and a hunter", &mut out);
        stream.finish_cut(&mut out);
        assert_eq!(out, b"a ******** and a ******");
        // And so is whatever else is there, so that nobody learns by it which one is the beginning.
        assert_eq!(redactor("hunter22").redact_cut(b"a hunter22 and a tiger!"), b"a ******** and a ******");
    }

    #[test]
    fn whole_lines_and_words_pass_at_once() {
        let (mut stream, mut out) = (redactor("hunter22").stream(), Vec::new());
        let mut push = |piece: &[u8]| {
            stream.push(piece, &mut out);
            String::from_utf8(std::mem::take(&mut out)).unwrap()
        };
        assert_eq!(push(b"event: tick\n\n"), "event: tick\n\n");
        assert_eq!(push(b"compiling one v1.0\n"), "compiling one v1.0\n");
        assert_eq!(push(b"half a wo"), "half a ");
        assert_eq!(push(b"rd\n"), "word\n");
        assert_eq!(push(b"a hunt"), "a ");
        assert_eq!(push(b"er22\n"), "********\n");
    }

    #[test]
    fn a_value_that_is_added_is_gone_from_streams_that_have_begun() {
        let redactor = redactor("hunter22");
        let (mut stream, mut out) = (redactor.stream(), Vec::new());
        stream.push(b"a tig", &mut out);
        redactor.add(&SecretValue::new(b"tiger-33".to_vec()).unwrap());
        stream.push(b"er-33 and a hunter22", &mut out);
        stream.finish(&mut out);
        assert_eq!(out, b"a ******** and a ********");
        assert!(redactor.finds_made_small("x-tiger-33") && !redactor.finds_made_small("x-tiger"));
    }

    #[test]
    fn a_value_is_gone_wherever_one_piece_ends_and_the_next_begins() {
        for text in
            [format!("a {VALUE} b"), BASE64_STANDARD.encode(format!("{}{VALUE}{}", "x".repeat(80), "y".repeat(80)))]
        {
            let lined = text.as_bytes().chunks(76).collect::<Vec<_>>().join(&b'\n');
            let whole = redactor(VALUE).redact(&lined);
            assert!(whole.windows(5).any(|window| window == b"*****"), "{text}");
            for size in 1..lined.len() {
                let (mut stream, mut out) = (redactor(VALUE).stream(), Vec::new());
                lined.chunks(size).for_each(|piece| stream.push(piece, &mut out));
                stream.finish(&mut out);
                assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(&whole), "{size}");
            }
        }
    }

    /// What comes out after each piece, and what is left when the text is cut off there.
    fn told(value: &str, pieces: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut stream = redactor(value).stream();
        let mut told: Vec<Vec<u8>> = Vec::new();
        for piece in pieces {
            let mut out = Vec::new();
            stream.push(piece, &mut out);
            told.push(out);
        }
        let mut out = Vec::new();
        stream.finish_cut(&mut out);
        told.push(out);
        told
    }

    proptest! {
        /// Two values of one length cannot be told apart by a text that has neither, however it comes and wherever it ends.
        #[test]
        fn a_beginning_of_a_value_is_treated_like_anything_else(
            guess in 1_usize..12, pieces in proptest::collection::vec("[ab/ \n]{0,9}", 0..6), place in 0_usize..6
        ) {
            let (right, wrong) = ("s3cr3t-K3y-0123", "x9y8z7-W6v-5432");
            let mut pieces: Vec<Vec<u8>> = pieces.into_iter().map(String::into_bytes).collect();
            let guess = right.as_bytes()[..guess].to_vec();
            pieces.insert(place.min(pieces.len()), guess);
            prop_assert_eq!(told(right, &pieces), told(wrong, &pieces));
        }

        /// Whatever is spelt in whichever way, also a value that looks as if it were spelt already.
        #[test]
        fn a_value_is_gone_whichever_of_its_bytes_are_spelt(
            value in "[%25\\\\&amp;#38u0+ ab]{4,24}", ways in proptest::collection::vec(0_usize..5, 24), cut in 0_usize..200
        ) {
            let spelt: String = value.bytes().zip(ways).map(|(byte, way)| match (way, byte) {
                (0, _) => format!("%{byte:02x}"),
                (1, _) => format!("\\u{byte:04X}"),
                (2, _) => format!("&#{byte};"),
                (3, b' ') => "+".to_owned(),
                (3, b'&') => "&amp;".to_owned(),
                (3, b'\\') => "\\\\".to_owned(),
                _ => char::from(byte).to_string(),
            }).collect();
            let redactor = redactor(&value);
            let text = format!("before {spelt}-after");
            let out = redactor.redact(text.as_bytes());
            prop_assert_eq!(out.len(), text.len());
            prop_assert!(String::from_utf8_lossy(&out).contains("****"), "{:?} in {:?}", value, text);
            let (mut stream, mut piecewise) = (redactor.stream(), Vec::new());
            let cut = cut.min(text.len());
            stream.push(&text.as_bytes()[..cut], &mut piecewise);
            stream.push(&text.as_bytes()[cut..], &mut piecewise);
            stream.finish(&mut piecewise);
            prop_assert_eq!(piecewise, out);
        }

        #[test]
        fn a_value_is_gone_however_its_text_is_cut(
            value in proptest::collection::vec(any::<u8>(), 8..40), cut in 0_usize..60, form in 0_usize..4
        ) {
            let secret = SecretValue::new(value.clone()).unwrap();
            let redactor = Redactor::new([&secret]);
            let text = match form {
                0 => value.clone(),
                1 => BASE64_STANDARD.encode(&value).into_bytes(),
                2 => value.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect(),
                _ => value.iter().flat_map(|byte| format!("{byte:02X}").into_bytes()).collect(),
            };
            let text = [b"<<", text.as_slice(), b">>"].concat();
            let (one, other) = text.split_at(cut.min(text.len()));
            let (mut stream, mut out) = (redactor.stream(), Vec::new());
            stream.push(one, &mut out);
            stream.push(other, &mut out);
            stream.finish(&mut out);
            prop_assert_eq!(out.len(), text.len());
            prop_assert!(!redactor.finds(&out));
            prop_assert_eq!(redactor.redact(&text), out);
        }
    }
}
