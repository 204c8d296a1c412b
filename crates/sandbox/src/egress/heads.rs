//! The heads of HTTP messages that are passed on, and of answers that are ours.
//!
//! Guarantees: what concerns one hop goes no further; a body is framed in one way, and its encoding is none but chunks; nobody but the
//! daemon says that the daemon refused something.

use std::net::IpAddr;

use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    body::Bytes,
    header::{self, HeaderMap, HeaderName, HeaderValue},
    http::response,
};
use palyra_types::host::HostName;

use super::{
    opening::sentence,
    refusal::{EgressRefusal, EgressRefusalKind as Kind},
};

/// Whether the body is said to come in chunks.
pub(crate) fn is_chunked(headers: &HeaderMap) -> Result<bool, EgressRefusal> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let has_length = headers.contains_key(header::CONTENT_LENGTH);
    // The library drops a length beside an encoding. Should it not, the two are not left to the host to choose from.
    match (codings.next(), codings.next()) {
        (None, _) => Ok(false),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") && !has_length => Ok(true),
        _ => Err(EgressRefusal::new(Kind::BadRequest, "the body is encoded in another way than by chunks")),
    }
}

/// Removes what concerns one hop only, by its own name or because the Connection header says so.
pub(crate) fn strip_hop(headers: &mut HeaderMap) {
    let listed = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let listed = listed.flat_map(|value| value.split(',')).filter_map(|name| HeaderName::try_from(name.trim()).ok());
    for name in listed.collect::<Vec<_>>() {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Leaves in the head of a host's answer what is meant for the client.
pub(crate) fn pass_back(head: &mut response::Parts) {
    if head.headers.contains_key(header::TRANSFER_ENCODING) {
        head.headers.remove(header::CONTENT_LENGTH);
    }
    strip_hop(&mut head.headers);
    head.headers.remove(REFUSED);
    head.version = hyper::Version::HTTP_11;
    head.extensions.clear();
}

/// How a host is named in requests to it.
pub(crate) fn host_header(host: &HostName, port: u16, default: u16) -> HeaderValue {
    let host = match host.address() {
        Some(IpAddr::V6(address)) => format!("[{address}]"),
        _ => host.to_string(),
    };
    let text = if port == default { host } else { format!("{host}:{port}") };
    // A host is made of letters, digits and dots.
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// What a client is told whose request was refused, or could not be passed on.
pub(crate) fn refused(refusal: &EgressRefusal) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(sentence(refusal))));
    *response.status_mut() = match refusal.kind {
        Kind::Unresolvable | Kind::Unreachable | Kind::Untrusted | Kind::CannotBeRead => StatusCode::BAD_GATEWAY,
        Kind::TooSlow => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::FORBIDDEN,
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(REFUSED, HeaderValue::from_static(refusal.kind.as_str()));
    response
}

const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

const REFUSED: HeaderName = HeaderName::from_static("x-palyra-refused");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_concerns_one_hop_goes_no_further() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Secret"),
            ("connection", "x-other"),
            ("x-secret", "1"),
            ("x-other", "1"),
            ("proxy-authorization", "Basic x"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("accept", "*/*"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        strip_hop(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }
}
