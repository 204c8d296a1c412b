//! Which requests the proxy takes, and what it passes on of them.

use super::*;

fn target(method: &str, uri: &str, headers: &[(&str, &str)]) -> Result<(String, u16), Kind> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let target = target_of(&request.body(()).unwrap());
    target.map(|target| (target.host.to_string(), target.port)).map_err(|refusal| refusal.kind)
}

#[test]
fn a_request_names_its_host() {
    assert_eq!(target("CONNECT", "Example.org:443", &[]), Ok(("example.org".to_owned(), 443)));
    assert_eq!(target("GET", "http://example.org/a", &[]), Ok(("example.org".to_owned(), 80)));
    assert_eq!(target("GET", "http://example.org:8080/", &[]), Ok(("example.org".to_owned(), 8080)));
    assert_eq!(target("GET", "http://[2001:db8::7]/", &[]), Ok(("2001:db8::7".to_owned(), 80)));
}

#[test]
fn a_request_for_nothing_that_the_proxy_does_is_refused() {
    for (method, uri, kind) in [
        ("GET", "/", Kind::NotSupported),
        ("OPTIONS", "*", Kind::NotSupported),
        ("GET", "example.org:443", Kind::NotSupported),
        ("GET", "https://example.org/", Kind::NotSupported),
        ("GET", "ftp://example.org/", Kind::NotSupported),
        ("CONNECT", "http://example.org:443/", Kind::NotSupported),
        ("CONNECT", "/", Kind::NotSupported),
        ("CONNECT", "example.org:80", Kind::NotSupported),
        ("CONNECT", "example.org", Kind::BadRequest),
        ("CONNECT", "example.org:0", Kind::BadRequest),
        ("CONNECT", "user@example.org:443", Kind::NotAHost),
        ("GET", "http://user:pass@example.org/", Kind::NotAHost),
        ("GET", "http://example.org@evil.com/", Kind::NotAHost),
        ("GET", "http://2130706433/", Kind::NotAHost),
        ("GET", "http://0x7f.1/", Kind::NotAHost),
        ("GET", "http://example.org:0/", Kind::BadRequest),
    ] {
        assert_eq!(target(method, uri, &[]), Err(kind), "{method} {uri}");
    }
}

#[test]
fn a_body_has_one_length() {
    let uri = "http://example.org/";
    assert!(target("POST", uri, &[("transfer-encoding", "chunked")]).is_ok());
    assert!(target("POST", uri, &[("content-length", "3")]).is_ok());
    for headers in [
        &[("transfer-encoding", "chunked"), ("content-length", "3")][..],
        &[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
        &[("transfer-encoding", "gzip, chunked")],
        &[("transfer-encoding", "xchunked")],
    ] {
        assert_eq!(target("POST", uri, headers), Err(Kind::BadRequest), "{headers:?}");
    }
    assert_eq!(target("CONNECT", "example.org:443", &[("content-length", "3")]), Err(Kind::BadRequest));
}
