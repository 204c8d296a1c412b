//! The code of a pairing, as it came to this device: a PIN that was typed, or the text of a QR code.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use palyra_identity::{
    Address,
    pairing::{Code, CodeError, Pin, QrText},
};
use palyra_types::Sha256Digest;

use crate::{exit::Exit, failure::Failure, keyboard::Keyboard};

/// What this device knows before it connects.
#[derive(Debug)]
pub(super) struct Known {
    /// Where the daemon is.
    pub(super) address: Address,
    /// What proves that its screen was seen.
    pub(super) code: Code,
    /// The authority that it must have, if a QR code said so.
    pub(super) authority: Option<Sha256Digest>,
}

impl Known {
    /// Reads a code. The text of a QR code says where the daemon is; with a PIN that has to be given.
    pub(super) fn read(text: &str, address: Option<&Address>) -> Result<Self, Failure> {
        let text = text.trim();
        if text.starts_with(QR) {
            let QrText { address: told, authority, secret } = QrText::parse(text).map_err(refused)?;
            if let Some(given) = address.filter(|&given| *given != told) {
                let cause = format!("the QR code is for {told}, and {given} was given");
                return Err(usage(&cause, "leave the address out, or scan the code of that daemon"));
            }
            return Ok(Self { address: told, code: Code::Secret(secret), authority: Some(authority) });
        }
        // As it is shown and said: in groups.
        let digits: String = text.chars().filter(|c| !matches!(c, ' ' | '-')).collect();
        let pin = Pin::parse(&digits).map_err(refused)?;
        let Some(address) = address.cloned() else {
            let cause = "a PIN does not say where the daemon is";
            return Err(usage(cause, "give its address, as it is shown beside the PIN: `palyra pair ADDRESS`"));
        };
        Ok(Self { address, code: Code::Pin(pin), authority: None })
    }
}

/// Reads the file that was named.
// SECURITY: a code is never an argument, which every program of this machine can read.
pub(super) fn from_file(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(LONGEST).read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(LONGEST).read_to_string(&mut text))
    };
    read.map_err(|error| {
        let what = format!("{} cannot be read", path.display());
        Failure::new(Exit::Usage, "unreadable", what, error.to_string(), "check the path")
    })?;
    Ok(text)
}

/// Asks the person at the terminal.
pub(super) async fn ask(address: Option<&Address>) -> Result<String, Failure> {
    let Some(mut keyboard) = Keyboard::open() else {
        return Err(usage("there is no terminal to ask at", "name a file: --code-file FILE, or - for standard input"));
    };
    keyboard.prompt(if address.is_some() { "PIN, or the text of the QR code: " } else { "the text of the QR code: " });
    keyboard.line().await.ok_or_else(|| usage("the terminal is closed", "try again"))
}

fn refused(error: CodeError) -> Failure {
    usage(&error.to_string(), error.advice())
}

fn usage(cause: &str, help: &str) -> Failure {
    Failure::new(Exit::Usage, "no_code", "there is no code to pair with", cause, help)
}

const QR: &str = "palyra://";

/// More than any code has.
const LONGEST: u64 = 4_096;

#[cfg(test)]
mod tests {
    use palyra_identity::pairing::{Method, PairingCode};
    use palyra_types::entropy::SeededEntropy;

    use super::*;

    fn address(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    fn qr() -> String {
        let code = PairingCode::generate(&SeededEntropy::new(1)).unwrap();
        code.qr(address("palyra.lan:7443"), Sha256Digest::of(b"authority")).to_text().to_string()
    }

    #[test]
    fn a_pin_is_read_in_groups_and_needs_an_address() {
        let there = address("palyra.lan:7443");
        for text in ["482913", " 482 913\n", "482-913"] {
            let known = Known::read(text, Some(&there)).unwrap();
            assert_eq!((known.address, known.code.method(), known.authority), (there.clone(), Method::Pin, None));
        }
        assert_eq!(Known::read("482913", None).unwrap_err().cause, "a PIN does not say where the daemon is");
        assert_eq!(Known::read("48291", Some(&there)).unwrap_err().cause, "a PIN is six digits");
        assert_eq!(Known::read("", Some(&there)).unwrap_err().cause, "a PIN is six digits");
    }

    #[test]
    fn a_qr_code_says_where_the_daemon_is_and_which_authority_it_has() {
        let there = address("palyra.lan:7443");
        for given in [None, Some(&there)] {
            let known = Known::read(&format!("{}\n", qr()), given).unwrap();
            let authority = Some(Sha256Digest::of(b"authority"));
            assert_eq!((known.address, known.code.method(), known.authority), (there.clone(), Method::Qr, authority));
        }
        let elsewhere = Known::read(&qr(), Some(&address("192.0.2.7:7443"))).unwrap_err();
        assert_eq!(elsewhere.cause, "the QR code is for palyra.lan:7443, and 192.0.2.7:7443 was given");
    }
}
