//! Values that must be nowhere: how they could be told, and where they are.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a value that is too short to be looked for ends the test"
)]

use base64::{Engine, prelude::BASE64_STANDARD};

/// What looks for a value from inside of an enclosure, in Python: it takes the address of a [`Site`](crate::site::Site) and reads the file
/// `needles`, which [`backwards`] makes.
pub const LOOK: &str = include_str!("../secrets/look.py");

/// How a value could be told: as it is, in hexadecimal digits, with percent signs, and in base 64 wherever it stands.
#[must_use]
pub fn forms(value: &str) -> Vec<String> {
    let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    let percent: String = value
        .bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    let encoded = (0..3).map(|offset| {
        let text = BASE64_STANDARD.encode(format!("{}{value}", "x".repeat(offset)));
        text.get(4..text.len() - 4).unwrap().to_owned()
    });
    [value.to_owned(), hex.to_uppercase(), hex, percent].into_iter().chain(encoded).collect()
}

/// The form of a value that is in there, if one is.
#[must_use]
pub fn told_in(bytes: &[u8], value: &str) -> Option<String> {
    forms(value).into_iter().find(|form| bytes.windows(form.len()).any(|window| window == form.as_bytes()))
}

/// All forms, each backwards, so that whoever looks for them does not hold them.
#[must_use]
pub fn backwards(value: &str) -> String {
    let reversed: Vec<String> = forms(value).iter().map(|form| form.chars().rev().collect()).collect();
    reversed.join("\n")
}
