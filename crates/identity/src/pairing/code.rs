//! What the operator carries from the daemon to the device: a PIN to type, or a QR code to scan.
//!
//! Guarantees: every PIN is as likely as any other; PIN and secret are made together, for one pairing, and are gone from memory with it;
//! neither is ever in debug output; the text of a QR code has one spelling.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use palyra_types::{Entropy, Sha256Digest, entropy::NoEntropy, word::words};
use qrcode::{Color, EcLevel, QrCode};
use zeroize::Zeroizing;

use crate::address::Address;

/// The codes of one pairing. Either proves that whoever has it saw the daemon's screen.
#[derive(Clone)]
pub struct PairingCode {
    pin: Pin,
    secret: Secret,
}

impl PairingCode {
    /// New codes.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn generate(entropy: &dyn Entropy) -> Result<Self, NoEntropy> {
        Ok(Self { pin: Pin::generate(entropy)?, secret: Secret::generate(entropy)? })
    }

    /// To be typed.
    #[must_use]
    pub const fn pin(&self) -> &Pin {
        &self.pin
    }

    /// To be scanned: where the daemon listens, which authority it has, and the secret.
    #[must_use]
    pub fn qr(&self, address: Address, authority: Sha256Digest) -> QrText {
        QrText { address, authority, secret: self.secret.clone() }
    }

    /// What a device that has chosen this method must know.
    #[must_use]
    pub fn of(&self, method: Method) -> Code {
        match method {
            Method::Pin => Code::Pin(self.pin.clone()),
            Method::Qr => Code::Secret(self.secret.clone()),
        }
    }

    /// Tells one pairing from another.
    pub(super) fn digest(&self) -> Sha256Digest {
        Sha256Digest::of_fields([&b"palyra pairing code"[..], self.secret.0.as_slice()])
    }
}

words! {
    /// How the code came to the device.
    pub enum Method ("method of pairing") {
        /// Typed.
        Pin = "pin",
        /// Scanned.
        Qr = "qr",
    }
}

/// What a device knows of the code.
#[derive(Clone)]
pub enum Code {
    /// The PIN.
    Pin(Pin),
    /// The secret of the QR code.
    Secret(Secret),
}

impl Code {
    /// How it came to the device.
    #[must_use]
    pub const fn method(&self) -> Method {
        match self {
            Self::Pin(_) => Method::Pin,
            Self::Secret(_) => Method::Qr,
        }
    }

    /// What both sides of the key exchange put in: the method, then the code, so that neither passes for the other.
    pub(super) fn password(&self) -> Zeroizing<Vec<u8>> {
        let code = match self {
            Self::Pin(pin) => pin.0.as_bytes(),
            Self::Secret(secret) => secret.0.as_slice(),
        };
        let method = self.method().as_str();
        let mut password = Zeroizing::new(Vec::with_capacity(method.len() + 1 + code.len()));
        password.extend_from_slice(method.as_bytes());
        password.push(b':');
        password.extend_from_slice(code);
        password
    }
}

/// Six digits.
#[derive(Clone)]
pub struct Pin(Zeroizing<String>);

impl Pin {
    /// Reads six digits.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn parse(text: &str) -> Result<Self, CodeError> {
        if text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit()) {
            Ok(Self(Zeroizing::new(text.to_owned())))
        } else {
            Err(CodeError::NotAPin)
        }
    }

    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn generate(entropy: &dyn Entropy) -> Result<Self, NoEntropy> {
        loop {
            let mut bytes = Zeroizing::new([0; 4]);
            entropy.fill(bytes.as_mut_slice())?;
            if let Some(pin) = Self::from_number(u32::from_be_bytes(*bytes)) {
                return Ok(pin);
            }
        }
    }

    // SECURITY: numbers past the last whole million are thrown away, because they would make some PINs likelier than others.
    fn from_number(number: u32) -> Option<Self> {
        let whole = u32::MAX - u32::MAX % PINS;
        (number < whole).then(|| Self(Zeroizing::new(format!("{:06}", number % PINS))))
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pin")
    }
}

/// 32 bytes that nobody can guess.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; 32]>);

impl Secret {
    fn generate(entropy: &dyn Entropy) -> Result<Self, NoEntropy> {
        let mut bytes = Zeroizing::new([0; 32]);
        entropy.fill(bytes.as_mut_slice())?;
        Ok(Self(bytes))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({})", self.method())
    }
}

impl fmt::Debug for PairingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairingCode")
    }
}

/// What a QR code says: `palyra://pair?v=1&a=HOST:PORT&f=AUTHORITY&s=SECRET`.
#[derive(Clone)]
pub struct QrText {
    /// Where the daemon listens.
    pub address: Address,
    /// Names its authority: the digest of its certificate.
    pub authority: Sha256Digest,
    /// What proves that the code was seen.
    pub secret: Secret,
}

impl QrText {
    /// Reads what a QR code says.
    ///
    /// # Errors
    /// When it is not the code of a pairing, in its one spelling.
    pub fn parse(text: &str) -> Result<Self, CodeError> {
        if text.len() > LONGEST_QR {
            return Err(CodeError::NotAQrText);
        }
        let query = text.strip_prefix(QR_PREFIX).ok_or(CodeError::NotAQrText)?;
        let (mut version, mut address, mut authority, mut secret) = (None, None, None, None);
        for pair in query.split('&') {
            let (key, value) = pair.split_once('=').ok_or(CodeError::NotAQrText)?;
            let place = match key {
                "v" => &mut version,
                "a" => &mut address,
                "f" => &mut authority,
                "s" => &mut secret,
                _ => return Err(CodeError::UnknownPart),
            };
            if place.replace(value).is_some() {
                return Err(CodeError::Twice);
            }
        }
        let part = |value: Option<_>| value.ok_or(CodeError::NotAQrText);
        if part(version)? != QR_VERSION {
            return Err(CodeError::OtherVersion);
        }
        Ok(Self {
            address: Address::parse(part(address)?).map_err(|_| CodeError::NoAddress)?,
            authority: Sha256Digest::from_bytes(*bytes_of(part(authority)?)?),
            secret: Secret(bytes_of(part(secret)?)?),
        })
    }

    /// The text. It holds the secret.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let authority = URL_SAFE_NO_PAD.encode(self.authority.as_bytes());
        let secret = Zeroizing::new(URL_SAFE_NO_PAD.encode(self.secret.0.as_slice()));
        Zeroizing::new(format!("{QR_PREFIX}v={QR_VERSION}&a={}&f={authority}&s={}", self.address, *secret))
    }
}

impl fmt::Debug for QrText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QrText({})", self.address)
    }
}

/// A QR code as rows of `0` (light) and `1` (dark), without the quiet zone around it, at error correction level M.
///
/// # Errors
/// When the text is too long for one.
pub fn qr_modules(text: &str) -> Result<Vec<String>, CodeError> {
    let code = QrCode::with_error_correction_level(text.as_bytes(), EcLevel::M).map_err(|_| CodeError::TooLongForQr)?;
    let width = code.width();
    let module = |color: &Color| if *color == Color::Dark { '1' } else { '0' };
    Ok(code.to_colors().chunks(width.max(1)).map(|row| row.iter().map(module).collect()).collect())
}

/// 32 bytes in the one spelling that base64url without padding has for them.
fn bytes_of(text: &str) -> Result<Zeroizing<[u8; 32]>, CodeError> {
    let mut bytes = Zeroizing::new([0; 32]);
    match URL_SAFE_NO_PAD.decode_slice(text, bytes.as_mut_slice()) {
        Ok(32) => Ok(bytes),
        _ => Err(CodeError::NotBase64),
    }
}

/// Why a code was refused. What it says is never shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// Not six digits.
    #[error("a PIN is six digits")]
    NotAPin,
    /// Not `palyra://pair?…` with all its parts.
    #[error("this is not the QR code of a pairing")]
    NotAQrText,
    /// From another version.
    #[error("this QR code is for another version of pairing")]
    OtherVersion,
    /// A part that is not known.
    #[error("this QR code has a part that is not known")]
    UnknownPart,
    /// A part that is there twice.
    #[error("this QR code says something twice")]
    Twice,
    /// No host and port.
    #[error("this QR code does not say where the daemon listens")]
    NoAddress,
    /// Not 32 bytes, or not in their one spelling.
    #[error("this QR code has a digest or a secret that is none")]
    NotBase64,
    /// More than a QR code holds.
    #[error("the text is too long for a QR code")]
    TooLongForQr,
}

impl CodeError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::NotAPin => "type the six digits that the daemon shows",
            Self::OtherVersion => "use the same version of the program on both sides",
            Self::TooLongForQr => "use the PIN",
            _ => "scan the code that the daemon shows, or type its PIN",
        }
    }
}

const DIGITS: usize = 6;

/// How many PINs there are.
const PINS: u32 = 1_000_000;

const QR_PREFIX: &str = "palyra://pair?";

const QR_VERSION: &str = "1";

/// The longest host name, twice 43 characters of base64, and what stands around them.
const LONGEST_QR: usize = 512;

#[cfg(test)]
mod tests {
    use palyra_types::entropy::{SeededEntropy, SystemEntropy};
    use proptest::prelude::*;

    use super::*;

    fn text() -> QrText {
        let code = PairingCode::generate(&SeededEntropy::new(7)).unwrap();
        code.qr(Address::parse("palyra.lan:7443").unwrap(), Sha256Digest::of(b"authority"))
    }

    #[test]
    fn a_pin_is_six_digits_and_every_one_is_as_likely() {
        let pin = |number| Pin::from_number(number).map(|pin| pin.as_str().to_owned());
        assert_eq!(pin(0), Some("000000".to_owned()));
        assert_eq!(pin(1_000_042), Some("000042".to_owned()));
        assert_eq!(pin(4_293_999_999), Some("999999".to_owned()));
        assert_eq!((pin(4_294_000_000), pin(u32::MAX)), (None, None), "each PIN has 4294 numbers");
    }

    #[test]
    fn two_pairings_have_different_codes_and_a_pin_reads_back() {
        let (one, other) =
            (PairingCode::generate(&SystemEntropy).unwrap(), PairingCode::generate(&SystemEntropy).unwrap());
        assert_ne!(one.digest(), other.digest());
        assert_eq!(Pin::parse(one.pin().as_str()).unwrap().as_str(), one.pin().as_str());
        for text in ["", "12345", "1234567", "12345a", "12 456", "１２３４５６", "-12345"] {
            assert_eq!(Pin::parse(text).err(), Some(CodeError::NotAPin), "{text}");
        }
    }

    #[test]
    fn a_pin_never_passes_for_a_secret() {
        let code = PairingCode::generate(&SystemEntropy).unwrap();
        assert_eq!(code.of(Method::Pin).password().as_slice(), format!("pin:{}", code.pin().as_str()).as_bytes());
        assert!(code.of(Method::Qr).password().starts_with(b"qr:"));
    }

    #[test]
    fn the_text_of_a_qr_code_reads_back() {
        let written = text().to_text();
        let read = QrText::parse(&written).unwrap();
        assert_eq!((read.address, read.authority), (text().address, text().authority));
        assert_eq!(read.secret.0.as_slice(), text().secret.0.as_slice());
        assert!(written.starts_with("palyra://pair?v=1&a=palyra.lan:7443&f="), "{}", *written);
    }

    #[test]
    fn a_qr_text_in_any_other_spelling_is_refused() {
        let written = text().to_text();
        let refused = |text: &str| QrText::parse(text).err();
        assert_eq!(refused(&format!("{}&v=1", *written)), Some(CodeError::Twice));
        assert_eq!(refused(&format!("{}&x=1", *written)), Some(CodeError::UnknownPart));
        assert_eq!(refused(&format!("{}&", *written)), Some(CodeError::NotAQrText));
        assert_eq!(refused(&format!("{}=", *written)), Some(CodeError::NotBase64), "padding");
        assert_eq!(refused(&written.replace("v=1", "v=2")), Some(CodeError::OtherVersion));
        assert_eq!(refused(&written.replace("v=1&", "")), Some(CodeError::NotAQrText));
        assert_eq!(refused(&written.replace(":7443", "")), Some(CodeError::NoAddress));
        assert_eq!(refused(&written.replace("palyra:", "PALYRA:")), Some(CodeError::NotAQrText));
        let (front, last) = written.split_at(written.len() - 1);
        let bits = ["A", "B", "C", "D", "E", "F", "G", "H"].map(|digit| format!("{front}{digit}"));
        let accepted = bits.iter().filter(|text| refused(text).is_none()).count();
        assert_eq!(accepted, 2, "43 characters hold 258 bits; two of them must be zero (last was {last})");
    }

    #[test]
    fn no_code_is_in_debug_output() {
        let code = PairingCode::generate(&SystemEntropy).unwrap();
        let shown = format!("{code:?} {:?} {:?} {:?} {:?}", code.pin(), code.secret, code.of(Method::Qr), text());
        assert_eq!(shown, "PairingCode Pin Secret Code(qr) QrText(palyra.lan:7443)");
    }

    #[test]
    fn a_qr_code_is_a_square_with_its_three_marks() {
        let rows = qr_modules(&text().to_text()).unwrap();
        assert!(
            rows.iter().all(|row| row.len() == rows.len() && row.bytes().all(|module| matches!(module, b'0' | b'1')))
        );
        let width = rows.len();
        assert!((21..=177).contains(&width) && width % 4 == 1, "{width}");
        for (row, mark) in [(0, "1111111"), (1, "1000001"), (2, "1011101"), (6, "1111111")] {
            assert!(rows[row].starts_with(mark) && rows[row].ends_with(mark), "{}", rows[row]);
            assert!(rows[width - 7 + row].starts_with(mark), "{}", rows[width - 7 + row]);
        }
        assert_eq!(qr_modules(&"x".repeat(4_000)), Err(CodeError::TooLongForQr));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic_and_what_it_accepts_has_one_meaning(
            text in prop_oneof![any::<String>(), "palyra://pair\\?([vafs]=[a-zA-Z0-9_:.\\[\\]-]{0,50}&?){0,6}"]
        ) {
            if let Ok(read) = QrText::parse(&text) {
                let again = QrText::parse(&read.to_text()).unwrap();
                prop_assert_eq!((again.address, again.authority), (read.address, read.authority));
            }
        }
    }
}
