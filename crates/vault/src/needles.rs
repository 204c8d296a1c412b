//! Finds texts in a stream, also where they are split over pieces.
//!
//! Guarantees: nothing is told to be harmless before it is known; what may still become one of the texts waits for the next piece, and
//! nothing else does. Memory is wiped. Does not: know what the texts are.

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

use crate::escape;

/// The texts that are looked for.
pub(crate) struct Needles {
    needles: Vec<Needle>,
    /// Which pairs of bytes one of them begins with.
    pairs: Box<[u64; 1024]>,
    /// Which bytes.
    firsts: [bool; 256],
}

/// A text, and how it is spelt where it is looked for.
pub(crate) struct Needle {
    text: Zeroizing<Vec<u8>>,
    spelling: Spelling,
}

/// How a text may be spelt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// As it is.
    Exact,
    /// Each byte as it is, or as URLs, forms, JSON and HTML spell it, whichever of them they spell so.
    Escaped,
    /// The same, broken into lines anywhere.
    Lined,
    /// In hexadecimal digits.
    Hex,
}

impl Needle {
    pub(crate) const fn new(text: Zeroizing<Vec<u8>>, spelling: Spelling) -> Self {
        Self { text, spelling }
    }

    /// What stands at the beginning of these bytes: this, perhaps, or not.
    fn at(&self, bytes: &[u8], more: More) -> Reading {
        match self.spelling {
            Spelling::Exact if bytes.starts_with(&self.text) => Reading::Whole(self.text.len()),
            Spelling::Exact if bytes.len() < self.text.len() && self.text.starts_with(bytes) => Reading::More,
            Spelling::Exact => Reading::No,
            Spelling::Escaped | Spelling::Lined => self.escaped(bytes, more),
            Spelling::Hex => self.hex(bytes),
        }
    }

    /// All ways of reading it at once: a `%25` is one of those three bytes, or of one, and only what follows tells which.
    fn escaped(&self, bytes: &[u8], more: More) -> Reading {
        let (mut ways, mut next, mut is_open) = (vec![0], Vec::new(), false);
        for byte in self.text.iter() {
            for mut way in ways.drain(..) {
                if self.spelling == Spelling::Lined && way > 0 {
                    match escape::line_end(bytes.get(way..).unwrap_or_default()) {
                        Reading::Whole(length) => way += length,
                        Reading::More => is_open = true,
                        Reading::No => {}
                    }
                }
                let rest = bytes.get(way..).unwrap_or_default();
                if rest.first() == Some(byte) {
                    next.push(way + 1);
                }
                match escape::read(rest, *byte) {
                    Reading::Whole(length) => next.push(way + length),
                    Reading::More => is_open = true,
                    Reading::No => {}
                }
            }
            next.dedup();
            std::mem::swap(&mut ways, &mut next);
            if ways.is_empty() {
                break;
            }
        }
        match ways.into_iter().max() {
            _ if is_open && more == More::MayCome => Reading::More,
            Some(length) => Reading::Whole(length),
            None => Reading::No,
        }
    }

    fn hex(&self, bytes: &[u8]) -> Reading {
        let mut at = 0;
        for byte in self.text.iter() {
            if let (1.., Reading::Whole(length)) = (at, escape::line_end(bytes.get(at..).unwrap_or_default())) {
                at += length;
            }
            match hex(bytes.get(at..).unwrap_or_default(), *byte) {
                Reading::Whole(length) => at += length,
                other => return other,
            }
        }
        Reading::Whole(at)
    }

    /// The pairs of bytes that it may begin with.
    fn beginnings(&self) -> Vec<[u8; 2]> {
        let (first, second) = match self.text[..] {
            [first, second, ..] => (first, second),
            _ => return Vec::new(),
        };
        match self.spelling {
            Spelling::Exact => vec![[first, second]],
            Spelling::Hex => {
                let digits = |nibble: u8| [b"0123456789abcdef", b"0123456789ABCDEF"].map(|all| digit(all, nibble));
                digits(first >> 4).into_iter().flat_map(|high| digits(first).map(|low| [high, low])).collect()
            }
            Spelling::Escaped | Spelling::Lined => {
                let plain = [second, b'%', b'\\', b'&', b'+', b'\r', b'\n'].map(|next| [first, next]);
                plain.into_iter().chain(escape::beginnings(first)).collect()
            }
        }
    }
}

/// What was read of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// All of it, in so many bytes.
    Whole(usize),
    /// The beginning of it, perhaps.
    More,
    /// Something else.
    No,
}

/// What stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hit {
    /// None of them.
    Nothing,
    /// This one, and how long it is there.
    Whole(usize, usize),
    /// The beginning of one, perhaps.
    Maybe,
}

impl Needles {
    /// Looks for these, which are known by their numbers. Each has at least two bytes, or is never found.
    pub(crate) fn new(needles: impl IntoIterator<Item = Needle>) -> Self {
        let mut all = Self { needles: needles.into_iter().collect(), pairs: Box::new([0; 1024]), firsts: [false; 256] };
        for [first, second] in all.needles.iter().flat_map(Needle::beginnings) {
            let pair = usize::from(u16::from_be_bytes([first, second]));
            if let Some(word) = all.pairs.get_mut(pair / 64) {
                *word |= 1 << (pair % 64);
            }
            if let Some(place) = all.firsts.get_mut(usize::from(first)) {
                *place = true;
            }
        }
        all
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.needles.is_empty()
    }

    /// Where the first place is that is not told to be harmless at once.
    pub(crate) fn candidate(&self, bytes: &[u8]) -> Option<usize> {
        let begins = |pair: &[u8]| match *pair {
            [first, second] => {
                let pair = usize::from(u16::from_be_bytes([first, second]));
                self.pairs.get(pair / 64).is_some_and(|word| word >> (pair % 64) & 1 == 1)
            }
            _ => false,
        };
        bytes.windows(2).position(begins).or_else(|| {
            let last = bytes.last().filter(|&&last| self.firsts.get(usize::from(last)).is_some_and(|&first| first));
            last.map(|_| bytes.len() - 1)
        })
    }

    /// What stands at the beginning of these bytes, of which more may come: the longest of them.
    pub(crate) fn at(&self, bytes: &[u8], more: More) -> Hit {
        let mut best = Hit::Nothing;
        for (number, needle) in self.needles.iter().enumerate().filter(|(_, needle)| needle.text.len() >= 2) {
            match (needle.at(bytes, more), best) {
                (Reading::More, _) if more == More::MayCome => return Hit::Maybe,
                (Reading::Whole(length), Hit::Whole(_, longest)) if length <= longest => {}
                (Reading::Whole(length), _) => best = Hit::Whole(number, length),
                (Reading::More | Reading::No, _) => {}
            }
        }
        best
    }

    /// Whether one of them is in there.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<usize> {
        let mut from = 0;
        while let Some(at) = bytes.get(from..).and_then(|rest| self.candidate(rest)) {
            if let Hit::Whole(number, _) = self.at(bytes.get(from + at..).unwrap_or_default(), More::NothingComes) {
                return Some(number);
            }
            from += at + 1;
        }
        None
    }
}

/// A byte in two hexadecimal digits.
fn hex(bytes: &[u8], byte: u8) -> Reading {
    let is = |digit: &u8, nibble: u8| (*digit as char).to_digit(16) == Some(u32::from(nibble & 15));
    match bytes {
        [] => Reading::More,
        [high] if is(high, byte >> 4) => Reading::More,
        [high, low, ..] if is(high, byte >> 4) && is(low, byte) => Reading::Whole(2),
        _ => Reading::No,
    }
}

fn digit(digits: &[u8; 16], nibble: u8) -> u8 {
    digits.get(usize::from(nibble & 15)).copied().unwrap_or(b'0')
}

/// Whether there may be more bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum More {
    /// There may be.
    MayCome,
    /// There are none.
    NothingComes,
}

impl fmt::Debug for Needles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Needles({})", self.needles.len())
    }
}

/// Bytes that wait until it is known what they are.
#[derive(Default)]
pub(crate) struct Held(Vec<u8>);

impl Held {
    /// Goes through what waited and a piece, and keeps what may still become a needle.
    ///
    /// `tell` hears what is harmless and what is found, in order.
    pub(crate) fn go<E>(
        &mut self,
        needles: &Needles,
        piece: &[u8],
        more: More,
        mut tell: impl FnMut(Told<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let joined;
        let bytes = if self.0.is_empty() {
            piece
        } else {
            self.0.extend_from_slice(piece);
            joined = Zeroizing::new(std::mem::take(&mut self.0));
            joined.as_slice()
        };
        let mut from = 0;
        let mut harmless = 0;
        while let Some(at) = bytes.get(from..).and_then(|rest| needles.candidate(rest)) {
            let here = from + at;
            match needles.at(bytes.get(here..).unwrap_or_default(), more) {
                Hit::Nothing => from = here + 1,
                Hit::Whole(number, length) => {
                    tell(Told::Harmless(bytes.get(harmless..here).unwrap_or_default()))?;
                    tell(Told::Needle(number))?;
                    from = here + length;
                    harmless = from;
                }
                Hit::Maybe => {
                    tell(Told::Harmless(bytes.get(harmless..here).unwrap_or_default()))?;
                    self.0 = bytes.get(here..).unwrap_or_default().to_vec();
                    return Ok(());
                }
            }
        }
        tell(Told::Harmless(bytes.get(harmless..).unwrap_or_default()))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// What was gone through.
pub(crate) enum Told<'a> {
    /// No needle is in it.
    Harmless(&'a [u8]),
    /// This needle.
    Needle(usize),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn needles(texts: &[&[u8]]) -> Needles {
        Needles::new(texts.iter().map(|text| Needle::new(Zeroizing::new(text.to_vec()), Spelling::Exact)))
    }

    /// What comes out when each needle is replaced by its number in brackets.
    fn through(needles: &Needles, pieces: &[&[u8]]) -> String {
        let (mut held, mut out) = (Held::default(), Vec::new());
        let mut go = |piece: &[u8], more| {
            held.go(needles, piece, more, |told| {
                match told {
                    Told::Harmless(bytes) => out.extend_from_slice(bytes),
                    Told::Needle(number) => out.extend(format!("[{number}]").bytes()),
                }
                Ok::<_, ()>(())
            })
            .unwrap();
        };
        for piece in pieces {
            go(piece, More::MayCome);
        }
        go(b"", More::NothingComes);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_needle_is_found_however_it_is_split() {
        let needles = needles(&[b"secret", b"hidden"]);
        let text = b"a secret and sec ret and a hidden secretsecret se";
        let whole = "a [0] and sec ret and a [1] [0][0] se";
        assert_eq!(through(&needles, &[text]), whole);
        for at in 0..=text.len() {
            for other in at..=text.len() {
                let pieces = [&text[..at], &text[at..other], &text[other..]];
                assert_eq!(through(&needles, &pieces), whole, "{at} {other}");
            }
        }
        let single: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(through(&needles, &single), whole);
    }

    #[test]
    fn only_what_may_become_a_needle_waits() {
        let (needles, mut held, mut out) = (needles(&[b"secret"]), Held::default(), Vec::new());
        let mut push = |piece: &[u8]| {
            held.go(&needles, piece, More::MayCome, |told| {
                if let Told::Harmless(bytes) = told {
                    out.extend_from_slice(bytes);
                }
                Ok::<_, ()>(())
            })
            .unwrap();
            String::from_utf8(std::mem::take(&mut out)).unwrap()
        };
        assert_eq!(push(b"event: tick\n\n"), "event: tick\n\n");
        assert_eq!(push(b"a sec"), "a ");
        assert_eq!(push(b"ond s"), "second ");
        assert_eq!(push(b"tep"), "step");
    }

    proptest! {
        #[test]
        fn what_is_found_does_not_depend_on_the_pieces(
            text in "[ab]{0,40}", cuts in proptest::collection::vec(0_usize..40, 0..5)
        ) {
            let needles = needles(&[b"aab", b"abab", b"bb"]);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]).collect();
            prop_assert_eq!(through(&needles, &pieces), through(&needles, &[text.as_bytes()]));
        }
    }
}
