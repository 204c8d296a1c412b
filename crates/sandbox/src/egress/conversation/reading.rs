//! What a request has to be on a connection that is read, and whether an answer can be looked through.
//!
//! Guarantees: a request that passes can mean one thing only, for every program that reads it.

use hyper::{
    Method, header,
    http::{request, response},
};

use super::Reader;
use crate::egress::{
    authority,
    door::Admitted,
    heads::is_chunked,
    refusal::{EgressRefusal, EgressRefusalKind as Kind, shown, shown_bytes},
};

/// Whether a request is one for the host of the connection, and nothing else.
pub(super) fn check(head: &request::Parts, to: &Admitted, reader: &Reader) -> Result<(), EgressRefusal> {
    let refused = |kind, detail: &str| Err(EgressRefusal::new(kind, detail));
    if head.method == Method::CONNECT {
        return refused(Kind::NotSupported, "a connection to a host is no proxy");
    }
    if head.headers.contains_key(header::UPGRADE) {
        return refused(Kind::NotSupported, "no other protocol can be switched to where requests are looked at");
    }
    is_chunked(&head.headers)?;
    let names_the_host = |text: &str| {
        let read = authority::parse(text, Some(reader.default_port()));
        read.is_ok_and(|(host, port)| host == *to.host() && port == to.port())
    };
    if let Some(named) = head.uri.authority()
        && (head.uri.scheme_str() != Some(reader.scheme()) || !names_the_host(named.as_str()))
    {
        let named = shown(authority::without_user(named.as_str()));
        let detail = format!("the request is for `{named}` on a connection to `{}`", to.host());
        return refused(Kind::WrongHostHeader, &detail);
    }
    let mut hosts = head.headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(one), None) if one.to_str().is_ok_and(names_the_host) => Ok(()),
        (Some(one), None) => {
            let named = shown_bytes(one.as_bytes());
            refused(Kind::WrongHostHeader, &format!("the request is for `{named}` on a connection to `{}`", to.host()))
        }
        (None, _) => refused(Kind::WrongHostHeader, "the request has no Host header"),
        _ => refused(Kind::WrongHostHeader, "the request has more than one Host header"),
    }
}

/// How the body of an answer is encoded, if it is.
pub(super) fn encoding(head: &response::Parts) -> Option<String> {
    let of = |name| head.headers.get_all(name).iter().map(|value| shown_bytes(value.as_bytes()));
    let encodings = of(header::CONTENT_ENCODING).chain(of(header::TRANSFER_ENCODING));
    let named: Vec<String> = encodings
        .flat_map(|list| list.split(',').map(|one| one.trim().to_ascii_lowercase()).collect::<Vec<_>>())
        .filter(|one| !matches!(one.as_str(), "" | "identity" | "chunked"))
        .collect();
    (!named.is_empty()).then(|| named.join(", "))
}
