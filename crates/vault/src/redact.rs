//! Takes the values of secrets out of what comes back: as they are, and as servers and tools usually encode them.
//!
//! Guarantees: a value, or its form in base 64 at any offset or in hexadecimal digits, each with any of its bytes spelt as URLs, JSON or HTML
//! spell them, is replaced by as many asterisks, so that no length changes; also where it is split over pieces. What is not like one of these passes.
//! Does not: undo compression or encryption, or find a value of fewer than [`SHORTEST`] bytes, of which every text would be full.

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD, prelude::BASE64_URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

use crate::{
    needles::{Held, More, Needle, Needles, Spelling, Told},
    value::SecretValue,
};

/// The values that are taken out.
#[derive(Debug, Clone)]
pub struct Redactor(Arc<Needles>);

impl Redactor {
    /// Takes out these values.
    #[must_use]
    pub fn new<'a>(values: impl IntoIterator<Item = &'a SecretValue>) -> Self {
        let long = values.into_iter().map(SecretValue::expose).filter(|value| value.len() >= SHORTEST);
        Self(Arc::new(Needles::new(long.flat_map(forms))))
    }

    /// Whether there is nothing that it would take out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether something of it is in there.
    #[must_use]
    pub fn finds(&self, bytes: &[u8]) -> bool {
        self.0.find(bytes).is_some()
    }

    /// A whole text without the values.
    #[must_use]
    pub fn redact(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut stream = self.stream();
        stream.push(bytes, &mut out);
        stream.finish(&mut out);
        out
    }

    /// A whole text without the values, if they are in there.
    #[must_use]
    pub fn redact_text(&self, text: &str) -> Option<String> {
        let is_there = self.finds(text.as_bytes());
        is_there.then(|| String::from_utf8_lossy(&self.redact(text.as_bytes())).into_owned())
    }

    /// For a text that comes in pieces.
    #[must_use]
    pub fn stream(&self) -> RedactingStream {
        RedactingStream { needles: Arc::clone(&self.0), held: Held::default() }
    }
}

/// A text that comes in pieces, from which values are taken out.
pub struct RedactingStream {
    needles: Arc<Needles>,
    held: Held,
}

impl RedactingStream {
    /// Takes a piece, and gives what is known to be harmless.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        self.go(piece, More::MayCome, out);
    }

    /// Gives the rest.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.go(&[], More::NothingComes, out);
    }

    /// Gives the rest of a text that was cut off here: what may be the beginning of a value is taken for one.
    pub fn finish_cut(&mut self, out: &mut Vec<u8>) {
        let rest = self.held.take();
        out.resize(out.len() + rest.len(), b'*');
    }

    fn go(&mut self, piece: &[u8], more: More, out: &mut Vec<u8>) {
        let Self { needles, held } = self;
        let done: Result<(), std::convert::Infallible> = held.go(needles, piece, more, |told| {
            match told {
                Told::Harmless(bytes) => out.extend_from_slice(bytes),
                Told::Needle(_, length) => out.resize(out.len() + length, b'*'),
            }
            Ok(())
        });
        match done {
            Ok(()) => {}
            Err(never) => match never {},
        }
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
        assert_eq!(redactor(VALUE).redact_text(text), None);
        assert_eq!(redactor("hunter22").redact_text("a hunter22").as_deref(), Some("a ********"));
        let (mut stream, mut out) = (redactor("hunter22").stream(), Vec::new());
        stream.push(b"a hunter22 and a hunter", &mut out);
        stream.finish_cut(&mut out);
        assert_eq!(out, b"a ******** and a ******");
    }

    proptest! {
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
