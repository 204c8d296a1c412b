//! What a failed exchange was: reads the chain of causes below an error of the HTTP client.
//!
//! Guarantees: nothing that was sent gets into what is told; what the other side may have chosen is short and shows what it hides.

use std::{error::Error, io};

use hyper_util::client::legacy;
use palyra_types::visible::visible;

use crate::{
    connect::ConnectSlow,
    error::{Phase, ProviderError},
};

/// What went wrong before the head of an answer.
pub(crate) fn before_head(error: &legacy::Error) -> ProviderError {
    let slow = causes(error).find_map(|cause| cause.downcast_ref::<ConnectSlow>());
    if let Some(ConnectSlow { within }) = slow {
        return ProviderError::TimedOut { what: Phase::Connecting, within: *within };
    }
    if error.is_connect() {
        let tls = causes(error).find_map(|cause| cause.downcast_ref::<rustls::Error>());
        return match tls {
            Some(tls) => ProviderError::Tls { reason: told(tls) },
            None => ProviderError::Connect { reason: causes(error).last().map(told).unwrap_or_default() },
        };
    }
    let http = causes(error).find_map(|cause| cause.downcast_ref::<hyper::Error>());
    match http {
        Some(http) if http.is_parse() => {
            ProviderError::BadAnswer { reason: "it is not HTTP/1.1, or its head is too large" }
        }
        _ => ProviderError::BrokenOff { during: Phase::Head },
    }
}

/// What went wrong after the head of an answer.
pub(crate) fn in_body(error: &hyper::Error) -> ProviderError {
    let kind = causes(error).find_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    match kind {
        Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => {
            ProviderError::BadAnswer { reason: "its pieces are cut wrongly" }
        }
        _ => ProviderError::BrokenOff { during: Phase::Body },
    }
}

/// The error, what caused it, and so on. What an I/O error wraps is none of its sources, so that is asked for.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let wrapped: Option<&(dyn Error + 'static)> = wrapped.map(|inner| inner as _);
        wrapped.or_else(|| error.source())
    })
}

fn told<E: Error + ?Sized>(error: &E) -> String {
    let shown = visible(&error.to_string());
    shown.chars().take(LONGEST_REASON).collect()
}

const LONGEST_REASON: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_input_error_wraps_is_found() {
        let inner = io::Error::other(rustls::Error::DecryptError);
        let outer = io::Error::other(inner);
        assert!(causes(&outer).any(|cause| cause.is::<rustls::Error>()));
        assert_eq!(causes(&outer).last().map(told), Some(rustls::Error::DecryptError.to_string()));
    }

    #[test]
    fn what_others_chose_is_short_and_visible() {
        assert_eq!(told(&io::Error::other("a\u{202e}b")), "a<U+202E>b");
        assert_eq!(told(&io::Error::other("x".repeat(999))).len(), LONGEST_REASON);
    }
}
