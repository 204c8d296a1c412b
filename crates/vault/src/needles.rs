//! Finds texts in a stream, also where they are split over pieces.
//!
//! Guarantees: nothing is told to be harmless before it is known; what may still become one of the texts waits for the next piece, and
//! nothing else does. Memory is wiped. Does not: know what the texts are.

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

/// The texts that are looked for.
pub(crate) struct Needles {
    /// Longest first.
    texts: Vec<Zeroizing<Vec<u8>>>,
    /// Which pairs of bytes one of them begins with.
    pairs: Box<[u64; 1024]>,
    /// Which bytes.
    firsts: [bool; 256],
}

/// What stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hit {
    /// None of them.
    Nothing,
    /// This one, and how long it is.
    Whole(usize, usize),
    /// The beginning of one, perhaps.
    Maybe,
}

impl Needles {
    /// Looks for these. Each has at least two bytes; others are left out.
    pub(crate) fn new(texts: impl IntoIterator<Item = Zeroizing<Vec<u8>>>) -> Self {
        let mut texts: Vec<_> = texts.into_iter().filter(|text| text.len() >= 2).collect();
        // The order among equals stays, so that whoever numbers them knows which is which.
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        let mut needles = Self { texts, pairs: Box::new([0; 1024]), firsts: [false; 256] };
        for text in &needles.texts {
            if let [first, second, ..] = text[..] {
                let pair = usize::from(u16::from_be_bytes([first, second]));
                if let Some(word) = needles.pairs.get_mut(pair / 64) {
                    *word |= 1 << (pair % 64);
                }
                if let Some(place) = needles.firsts.get_mut(usize::from(first)) {
                    *place = true;
                }
            }
        }
        needles
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// The text of this number.
    pub(crate) fn text(&self, number: usize) -> &[u8] {
        self.texts.get(number).map_or(&[], |text| text.as_slice())
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

    /// What stands at the beginning of these bytes, of which more may come.
    pub(crate) fn at(&self, bytes: &[u8], more: More) -> Hit {
        for (number, text) in self.texts.iter().enumerate() {
            if bytes.starts_with(text) {
                return Hit::Whole(number, text.len());
            }
            if more == More::MayCome && bytes.len() < text.len() && text.starts_with(bytes) {
                return Hit::Maybe;
            }
        }
        Hit::Nothing
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
        write!(f, "Needles({})", self.texts.len())
    }
}

/// Bytes that wait until it is known what they are.
#[derive(Default)]
pub(crate) struct Held(Vec<u8>);

impl Held {
    /// What waits.
    pub(crate) fn take(&mut self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(std::mem::take(&mut self.0))
    }

    /// Goes through what waited and a piece, and keeps what may still become a needle.
    ///
    /// `pass` is given what is harmless, `hit` what is found.
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
        Needles::new(texts.iter().map(|text| Zeroizing::new(text.to_vec())))
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
