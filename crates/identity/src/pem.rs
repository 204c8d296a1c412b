//! PEM: certificates and keys as text.

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::pki_types::{CertificateDer, pem::PemObject};

/// A certificate as text.
pub(crate) fn of_certificate(der: &[u8]) -> String {
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for (position, digit) in STANDARD.encode(der).chars().enumerate() {
        if position > 0 && position % 64 == 0 {
            text.push('\n');
        }
        text.push(digit);
    }
    text.push_str("\n-----END CERTIFICATE-----\n");
    text
}

/// Every certificate in a text, in order. None when one cannot be read, or there is none.
pub(crate) fn certificates(text: &str) -> Option<Vec<CertificateDer<'static>>> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<_, _>>().ok()?;
    (!all.is_empty()).then_some(all)
}

/// The one certificate in a text. None when there is none, or more than one.
pub(crate) fn certificate(text: &str) -> Option<CertificateDer<'static>> {
    let mut all = certificates(text)?;
    if all.len() == 1 { all.pop() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_reads_back_as_it_was_written() {
        for length in [1, 47, 48, 49, 96, 700] {
            let der = vec![0x5a; length];
            assert_eq!(certificate(&of_certificate(&der)).unwrap().as_ref(), der, "{length}");
        }
        let two = of_certificate(b"one") + &of_certificate(b"two");
        assert_eq!((certificate(&two), certificates(&two).unwrap().len()), (None, 2));
        assert_eq!((certificates(""), certificates("-----BEGIN CERTIFICATE-----\n!\n")), (None, None));
    }
}
