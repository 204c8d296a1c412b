//! Numbers in base 62, in a fixed width: every value has one spelling, and every spelling at most one value.
//!
//! Guarantees: no allocation; nothing secret is left behind on the stack where it can be helped. Does not: run in constant time.

use std::sync::LazyLock;

use zeroize::Zeroizing;

/// How many digits hold 32 bytes.
pub(crate) const WIDTH_OF_256_BITS: usize = 43;

/// How many digits hold 32 bits.
pub(crate) const WIDTH_OF_32_BITS: usize = 6;

/// Writes 32 bytes, as one big-endian number.
pub(crate) fn spell_256(bytes: &[u8; 32]) -> Zeroizing<[u8; WIDTH_OF_256_BITS]> {
    let mut number = Zeroizing::new(*bytes);
    let mut digits = Zeroizing::new([b'0'; WIDTH_OF_256_BITS]);
    for place in digits.iter_mut().rev() {
        let mut rest = 0_u32;
        for byte in number.iter_mut() {
            let value = rest * 256 + u32::from(*byte);
            *byte = u8::try_from(value / 62).unwrap_or_default();
            rest = value % 62;
        }
        *place = digit(rest);
    }
    digits
}

/// Writes 32 bits.
pub(crate) fn spell_32(mut number: u32) -> [u8; WIDTH_OF_32_BITS] {
    let mut digits = [b'0'; WIDTH_OF_32_BITS];
    for place in digits.iter_mut().rev() {
        *place = digit(number % 62);
        number /= 62;
    }
    digits
}

/// Whether these digits, of which each is one, are what [`spell_256`] writes: their number has no more than 256 bits. The digits stand in the
/// order of their values, so texts of one width compare as their numbers do.
pub(crate) fn fits_256(digits: &[u8]) -> bool {
    digits.iter().copied().all(is_digit) && digits <= MOST.as_slice()
}

/// Whether a byte is a digit.
pub(crate) const fn is_digit(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn digit(value: u32) -> u8 {
    usize::try_from(value).ok().and_then(|value| ALPHABET.get(value)).copied().unwrap_or(b'0')
}

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The largest number of 256 bits.
static MOST: LazyLock<[u8; WIDTH_OF_256_BITS]> = LazyLock::new(|| *spell_256(&[255; 32]));

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn value(digit: u8) -> Option<u8> {
        match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'A'..=b'Z' => Some(digit - b'A' + 10),
            b'a'..=b'z' => Some(digit - b'a' + 36),
            _ => None,
        }
    }

    #[test]
    fn the_ends_of_the_range_have_their_spelling() {
        assert_eq!(spell_256(&[0; 32]).as_slice(), [b'0'; 43]);
        let most = spell_256(&[255; 32]);
        assert!(fits_256(most.as_slice()));
        let mut beyond = *most;
        let last = beyond.iter_mut().rev().find(|digit| **digit != b'z').unwrap();
        *last = ALPHABET[usize::from(value(*last).unwrap()) + 1];
        assert!(!fits_256(&beyond), "one more than 256 bits hold");
        assert!(!fits_256(&[b'z'; 43]));
        assert_eq!((&spell_32(0), &spell_32(62), &spell_32(u32::MAX)), (b"000000", b"000010", b"4gfFC3"));
    }

    #[test]
    fn each_digit_stands_for_its_place_in_the_alphabet() {
        for (place, &letter) in ALPHABET.iter().enumerate() {
            assert_eq!(value(letter).map(usize::from), Some(place));
            assert!(is_digit(letter));
        }
        assert!(!is_digit(b'_') && value(b'-').is_none());
    }

    proptest! {
        #[test]
        fn different_numbers_are_spelt_differently_and_in_order(a: [u8; 32], b: [u8; 32]) {
            prop_assert_eq!(a.cmp(&b), spell_256(&a).as_slice().cmp(spell_256(&b).as_slice()));
            prop_assert!(fits_256(spell_256(&a).as_slice()));
        }
    }
}
