//! `http.fetch`: what its arguments mean, and what is told about what came.

use palyra_sandbox::egress::fetch::{FetchLimits, FetchMethod, FetchResponse, FetchUrl, Redirects};
use palyra_types::{HostName, Sha256Digest, json::canonical_of};

use super::*;
use crate::tools::http_fetch::{request, tell};

fn fetch(args: Value) -> Result<crate::tool::FetchWork, String> {
    match Lab::new().intend("http.fetch", args)?.work {
        Work::Fetch(work) => Ok(work),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_url_alone_is_read_with_the_careful_choices() {
    let intent = Lab::new().intend("http.fetch", json!({ "url": "HTTPS://Example.org/a/../b#c" })).unwrap();
    let host = HostName::parse("example.org").unwrap();
    assert_eq!(intent.touches, [Touch::Connect(host, 443)]);
    let expected = json!({
        "kind": "fetch", "method": "GET", "url": "https://example.org/b", "host": "example.org", "port": 443, "headers": {},
        "body_sha256": null, "max_bytes": 1_048_576, "timeout_seconds": 30, "follow_redirects": true,
    });
    assert_eq!(serde_json::to_value(&intent.work).unwrap(), expected);
    assert_eq!(serde_json::from_value::<Work>(expected).unwrap(), intent.work);
}

#[test]
fn what_is_sent_is_part_of_the_work_by_its_digest() {
    let text = fetch(json!({ "url": "http://example.org", "method": "POST", "body": "hello" })).unwrap();
    let bytes = fetch(json!({ "url": "http://example.org", "method": "POST", "body_base64": "aGVsbG8=" })).unwrap();
    assert_eq!((&text, text.body_sha256), (&bytes, Some(Sha256Digest::of(b"hello"))));
    let other = fetch(json!({ "url": "http://example.org", "method": "POST", "body": "hello!" })).unwrap();
    assert_ne!(canonical_of(&Work::Fetch(text)).unwrap(), canonical_of(&Work::Fetch(other)).unwrap());
}

#[test]
fn what_means_nothing_is_refused_with_a_reason() {
    for (args, reason) in [
        (json!({ "url": "https://me@example.org/" }), "the URL holds a user name"),
        (json!({ "url": "https://example.org/", "body": "x" }), "a GET request has no body"),
        (
            json!({ "url": "https://example.org/", "method": "PUT", "body": "", "body_base64": "" }),
            "the body is given twice",
        ),
        (json!({ "url": "https://example.org/", "method": "PUT", "body_base64": "a" }), "the content is not base64"),
        (
            json!({ "url": "https://example.org/", "headers": { "Host": "x" } }),
            "the header `host` is not the caller's to set",
        ),
        (json!({ "url": "https://127.1/" }), "in the URL, `127.1` is no host"),
    ] {
        assert_eq!(fetch(args).unwrap_err(), reason);
    }
    let method = fetch(json!({ "url": "https://example.org/", "method": "TRACE" })).unwrap_err();
    assert!(method.contains("`method` must be one of `GET`"), "{method}");
}

#[test]
fn headers_that_may_hold_a_secret_are_for_the_first_host_only() {
    let headers =
        json!({ "X-Api-Key": "k", "Private-Token": "t", "Accept": "text/html", "Content-Type": "text/plain" });
    let work = fetch(json!({ "url": "https://example.org/", "method": "POST", "headers": headers })).unwrap();
    let request = request(work, FetchLimits::default());
    assert_eq!(request.bound, ["private-token", "x-api-key"]);
    assert_eq!((request.method, request.redirects), (FetchMethod::Post, Redirects::Follow));
}

#[test]
fn what_came_is_told_as_text_or_as_base64_with_nothing_hidden() {
    let response = |body: &[u8], truncated| FetchResponse {
        status: 200,
        url: FetchUrl::parse("https://example.org/").unwrap(),
        redirects: Vec::new(),
        headers: vec![("x-a".to_owned(), b"a\xe2\x80\xaeb\xff".to_vec())],
        body: body.to_vec(),
        truncated,
    };
    let told = tell(response(b"gr\xc3\xbc", false));
    assert_eq!((&told["text"], &told["headers"]), (&json!("gr\u{fc}"), &json!([["x-a", "a<U+202E>b\u{fffd}"]])));
    assert_eq!(tell(response(b"gr\xc3", true))["text"], "gr");
    let binary = tell(response(b"\xff\0", false));
    assert_eq!((binary.get("text"), &binary["base64"], &binary["bytes"]), (None, &json!("/wA="), &json!(2)));
    assert_eq!(binary.get("content_encoding"), None);
}
