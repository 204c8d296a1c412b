//! What becomes of requests and answers.

#![allow(clippy::string_slice, reason = "what is cut here is ASCII")]

use std::sync::Mutex;

use http::{Request, Response};
use palyra_types::{Timestamp, clock::ManualClock, entropy::SystemEntropy};
use tempfile::TempDir;

use super::*;
use crate::{Belief, BindingTerms, Ground, NewSecret, PathPrefix, VaultChange, backend::KeyFile};

const VALUE: &str = "s3cr3t-of/the+host=";

#[derive(Default)]
struct Heard {
    used: Mutex<Vec<Used>>,
    misused: Mutex<Vec<Misuse>>,
}

impl Witness for Heard {
    fn used(&self, used: &Used) {
        self.used.lock().unwrap().push(used.clone());
    }

    fn misused(&self, misuse: &Misuse) {
        self.misused.lock().unwrap().push(misuse.clone());
    }
}

struct Bench {
    _directory: TempDir,
    vault: Arc<Vault>,
    heard: Arc<Heard>,
    injection: Injection,
    placeholder: String,
}

fn secret() -> SecretRef {
    SecretRef::parse("global/github").unwrap()
}

fn host(name: &str) -> HostName {
    HostName::parse(name).unwrap()
}

fn bench(value: &str, positions: &[&str], paths: &[&str]) -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let ground = Ground {
        directory: directory.path().join("vault"),
        backend: Arc::new(KeyFile::new(directory.path().join("keys"))),
        clock: Arc::new(ManualClock::at(Timestamp::from_unix_millis(0))),
        entropy: Arc::new(SystemEntropy),
        keep_versions: 1,
    };
    let vault = Vault::open(ground, Belief::Journal(None)).unwrap().vault;
    put(&vault, value);
    let terms = BindingTerms {
        positions: positions.iter().map(|text| Position::parse(text).unwrap()).collect(),
        paths: paths.iter().map(|text| PathPrefix::parse(text).unwrap()).collect(),
        ..BindingTerms::usual(secret(), host("api.example.org"))
    };
    let change = VaultChange::Add { secrets: Vec::new(), bindings: vec![terms] };
    let bindings = vault.stage(change).unwrap().confirm().bindings;
    let heard = Arc::new(Heard::default());
    let placeholder = Placeholder::generate(&SystemEntropy).unwrap();
    let armed = vec![Armed { secret: secret(), placeholder: placeholder.clone(), bindings }];
    let witness = Arc::<Heard>::clone(&heard);
    let injection = Injection::new(Arc::clone(&vault), armed, Redactor::new([]), witness);
    Bench { _directory: directory, vault, heard, injection, placeholder: placeholder.to_string() }
}

fn put(vault: &Arc<Vault>, value: &str) {
    let value = SecretValue::new(value.as_bytes().to_vec()).unwrap();
    let new = NewSecret { secret: secret(), value, expires: None, rotate_after_days: None, note: None };
    vault.stage(VaultChange::Add { secrets: vec![new], bindings: Vec::new() }).unwrap().confirm();
}

impl Bench {
    /// What becomes of a request: where it leads, its headers, and its body in these pieces.
    fn send(&self, to: &str, uri: &str, headers: &[(&str, &str)], body: &[&str]) -> Result<Sending, Misuse> {
        let fill = |text: &str| text.replace("{}", &self.placeholder);
        let mut request = Request::builder().uri(fill(uri));
        for (name, value) in headers {
            request = request.header(fill(name), fill(value));
        }
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        let mut stream = self.injection.request((&host(to), 443), &mut head)?;
        let mut out = Vec::new();
        for piece in body {
            stream.push(fill(piece).as_bytes(), &mut out)?;
        }
        stream.finish(&mut out)?;
        let text = |value: &HeaderValue| String::from_utf8(value.as_bytes().to_vec()).unwrap();
        let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        Ok(Sending { uri: head.uri.to_string(), headers, body: String::from_utf8(out).unwrap() })
    }

    fn refused(&self, to: &str, uri: &str, headers: &[(&str, &str)], body: &[&str]) -> String {
        let misuse = self.send(to, uri, headers, body).unwrap_err();
        assert_eq!(self.heard.misused.lock().unwrap().last(), Some(&misuse), "it is told");
        assert!(!misuse.to_string().contains(VALUE));
        misuse.to_string()
    }

    /// What is left of an answer.
    fn answer(&self, header: &str, body: &[&str]) -> (String, String) {
        let (mut head, ()) = Response::builder().header("x-echo", header).body(()).unwrap().into_parts();
        let (mut stream, mut out) = (self.injection.response(&mut head), Vec::new());
        for piece in body {
            stream.push(piece.as_bytes(), &mut out);
        }
        stream.finish(&mut out);
        (head.headers["x-echo"].to_str().unwrap().to_owned(), String::from_utf8(out).unwrap())
    }
}

#[derive(Debug)]
struct Sending {
    uri: String,
    headers: Vec<(String, String)>,
    body: String,
}

#[test]
fn a_secret_takes_the_place_of_its_placeholder_in_a_bound_header_of_the_bound_host() {
    let bench = bench(VALUE, &["header:authorization"], &[]);
    let sent = bench.send("api.example.org", "/v1", &[("Authorization", "Bearer {}"), ("X-Other", "a")], &["body"]);
    let sent = sent.unwrap();
    let expected = [("authorization".to_owned(), format!("Bearer {VALUE}")), ("x-other".to_owned(), "a".to_owned())];
    assert_eq!((sent.headers.as_slice(), sent.body.as_str()), (&expected[..], "body"));
    let used = bench.heard.used.lock().unwrap().clone();
    assert_eq!(used.len(), 1);
    assert_eq!(
        (used[0].version, used[0].host.as_str(), used[0].position.to_string().as_str()),
        (1, "api.example.org", "header:authorization")
    );
}

#[test]
fn a_password_in_basic_authorization_is_looked_into() {
    let bench = bench(VALUE, &["header:authorization"], &[]);
    let login = BASE64_STANDARD.encode(format!("git:{}", bench.placeholder));
    let sent = bench.send("api.example.org", "/", &[("Authorization", &format!("basic {login}"))], &[]).unwrap();
    let expected = BASE64_STANDARD.encode(format!("git:{VALUE}"));
    assert_eq!(sent.headers, [("authorization".to_owned(), format!("Basic {expected}"))]);
    // The echo of it is taken out, too.
    let (header, body) = bench.answer(&format!("Basic {expected}"), &["you sent ", &expected]);
    assert!(header.contains("******") && body.contains("******"), "{header} {body}");
    assert!(!body.contains(&expected[8..20]));
}

#[test]
fn a_placeholder_anywhere_else_refuses_the_request() {
    let bench = bench(VALUE, &["header:authorization"], &["/v1/"]);
    let bearer = [("Authorization", "Bearer {}")];
    let wrong = [
        bench.refused("evil.example.org", "/v1/", &bearer, &[]),
        bench.refused("api.example.org", "/other", &bearer, &[]),
        bench.refused("api.example.org", "/v1/../other", &bearer, &[]),
        bench.refused("api.example.org", "/v1/{}", &[], &[]),
        bench.refused("api.example.org", "/v1/?key={}", &[], &[]),
        bench.refused("api.example.org", "/v1/?{}=key", &[], &[]),
        bench.refused("api.example.org", "/v1/", &[("X-Other", "{}")], &[]),
        bench.refused("api.example.org", "/v1/", &[("{}", "x")], &[]),
        bench.refused("api.example.org", "/v1/", &bearer, &["text and {} and text"]),
        bench.refused("api.example.org", "/v1/", &bearer, &["{", "}{}"]),
    ];
    let places: Vec<&str> =
        wrong.iter().map(|text| text.split("stands ").nth(1).unwrap().split(", where").next().unwrap()).collect();
    assert_eq!(
        places,
        [
            "in the header `authorization` of a request to `evil.example.org`",
            "in the header `authorization` of a request to `api.example.org`",
            "in the header `authorization` of a request to `api.example.org`",
            "in the path of a request to `api.example.org`",
            "in the parameter `key` of a request to `api.example.org`",
            "in the name of a parameter of a request to `api.example.org`",
            "in the header `x-other` of a request to `api.example.org`",
            "in the name of a header of a request to `api.example.org`",
            "in the body of a request to `api.example.org`",
            "in the body of a request to `api.example.org`",
        ]
    );
}

#[test]
fn a_placeholder_that_is_split_over_pieces_of_a_body_is_found() {
    let bench = bench(VALUE, &["header:authorization"], &[]);
    for cut in 1..bench.placeholder.len() {
        let (one, other) = bench.placeholder.split_at(cut);
        let misuse = bench.send("api.example.org", "/", &[], &["x", one, other, "y"]).unwrap_err();
        assert!(matches!(misuse, Misuse::Misplaced { .. }), "{cut}");
    }
    let single: Vec<&str> = (0..bench.placeholder.len()).map(|at| &bench.placeholder[at..=at]).collect();
    assert!(bench.send("api.example.org", "/", &[], &single).is_err());
}

#[test]
fn query_and_body_take_a_secret_where_that_is_bound_spelt_as_it_must_be_there() {
    let quoted = bench("with \"quotes\" inside", &["body"], &[]);
    let bench = bench(VALUE, &["query:key", "body"], &[]);
    let sent = bench.send("api.example.org", "/v1?a=1&key={}&b=2", &[], &["plain {} end"]).unwrap();
    assert_eq!(sent.uri, "/v1?a=1&key=s3cr3t-of%2Fthe%2Bhost%3D&b=2");
    assert_eq!(sent.body, format!("plain {VALUE} end"));
    let media = |media| [("content-type", media)];
    let form = bench.send("api.example.org", "/", &media("application/x-www-form-urlencoded"), &["k={}&l=1"]).unwrap();
    assert_eq!(form.body, "k=s3cr3t-of%2Fthe%2Bhost%3D&l=1");
    assert!(bench.refused("api.example.org", "/v1?other={}", &[], &[]).contains("the parameter `other`"));
    let json = quoted.send("api.example.org", "/", &media("application/json; charset=utf-8"), &["{\"k\":\"{}\"}"]);
    assert_eq!(json.unwrap().body, "{\"k\":\"with \\\"quotes\\\" inside\"}");
    assert!(quoted.send("api.example.org", "/", &[], &[]).is_ok());
}

#[test]
fn what_a_host_sends_back_passes_without_what_was_sent() {
    let bench = bench(VALUE, &["header:authorization"], &[]);
    // Nothing was sent yet, so nothing is taken out.
    assert_eq!(bench.answer("a", &[VALUE]).1, VALUE);
    bench.send("api.example.org", "/", &[("Authorization", "Bearer {}")], &[]).unwrap();
    let (header, body) = bench.answer(VALUE, &["echo: ", &VALUE[..5], &VALUE[5..], " end"]);
    assert_eq!((header.as_str(), body.as_str()), ("*******************", "echo: ******************* end"));
    // Also what was sent before the value was rotated.
    put(&bench.vault, "another-value-of-it");
    bench.send("api.example.org", "/", &[("Authorization", "Bearer {}")], &[]).unwrap();
    let (_, body) = bench.answer("a", &[VALUE, " another-value-of-it"]);
    assert_eq!(body, "******************* *******************");
}

#[test]
fn a_binding_that_was_taken_away_binds_no_more_and_one_that_came_later_was_not_approved() {
    let bench = bench(VALUE, &["header:authorization"], &[]);
    let bearer = [("Authorization", "Bearer {}")];
    bench.send("api.example.org", "/", &bearer, &[]).unwrap();
    let terms = BindingTerms::usual(secret(), host("late.example.org"));
    bench.vault.stage(VaultChange::Add { secrets: Vec::new(), bindings: vec![terms] }).unwrap().confirm();
    assert!(bench.send("late.example.org", "/", &bearer, &[]).is_err());
    let id = bench.vault.describe(&secret()).unwrap().bindings[0].id;
    bench.vault.stage(VaultChange::Unbind(id)).unwrap().confirm();
    assert!(bench.send("api.example.org", "/", &bearer, &[]).is_err());
}

#[test]
fn a_binding_that_is_taken_away_while_a_body_comes_binds_no_more() {
    let bench = bench(VALUE, &["body"], &[]);
    let (mut head, ()) = Request::builder().uri("/").body(()).unwrap().into_parts();
    let mut body = bench.injection.request((&host("api.example.org"), 443), &mut head).unwrap();
    let mut out = Vec::new();
    body.push(b"before ", &mut out).unwrap();
    let id = bench.vault.describe(&secret()).unwrap().bindings[0].id;
    bench.vault.stage(VaultChange::Unbind(id)).unwrap().confirm();
    let misuse = body.push(bench.placeholder.as_bytes(), &mut out).unwrap_err();
    assert!(matches!(misuse, Misuse::Misplaced { .. }), "{misuse}");
    assert_eq!(out, b"before ");
}

#[test]
fn requests_for_parts_of_an_answer_get_all_of_it() {
    let bench = bench(VALUE, &["header:authorization"], &[]);
    let sent = bench.send("api.example.org", "/", &[("Range", "bytes=0-3"), ("If-Range", "x"), ("X-Other", "a")], &[]);
    assert_eq!(sent.unwrap().headers, [("x-other".to_owned(), "a".to_owned())]);
}

#[test]
fn what_cannot_stand_in_a_request_is_told_without_the_value() {
    for (value, why) in [("tiny1", "5 bytes"), ("two\nlines of it", "cannot stand in a header")] {
        let bench = bench(value, &["header:authorization"], &[]);
        let misuse = bench.send("api.example.org", "/", &[("Authorization", "Bearer {}")], &[]).unwrap_err();
        assert!(misuse.to_string().contains(why), "{misuse}");
        assert!(!misuse.to_string().contains(value));
    }
    let bench = bench(VALUE, &["header:authorization"], &[]);
    bench.vault.stage(VaultChange::Remove { secret: secret(), version: None }).unwrap().confirm();
    assert!(bench.send("api.example.org", "/", &[("Authorization", "Bearer {}")], &[]).is_err());
}

#[test]
fn a_plain_request_to_anybody_is_searched() {
    let bench = bench(VALUE, &["header:authorization", "body"], &[]);
    let ask = |uri: &str, header: &str, body: &str| {
        let fill = |text: &str| text.replace("{}", &bench.placeholder);
        let request = Request::builder().uri(fill(uri)).header("authorization", fill(header)).body(()).unwrap();
        let mut stream = bench.injection.elsewhere(&host("api.example.org"), &request.into_parts().0)?;
        assert!(!stream.changes_length());
        let mut out = Vec::new();
        stream.push(fill(body).as_bytes(), &mut out)?;
        stream.finish(&mut out)
    };
    assert_eq!(ask("http://api.example.org/", "a", "b"), Ok(()));
    assert!(ask("http://api.example.org/{}", "a", "b").is_err());
    assert!(ask("http://api.example.org/", "Bearer {}", "b").is_err());
    assert!(ask("http://api.example.org/", "a", "{}").is_err());
    let login = BASE64_STANDARD.encode(format!("a:{}", bench.placeholder));
    assert!(ask("http://api.example.org/", &format!("Basic {login}"), "b").is_err());
    assert!(bench.heard.used.lock().unwrap().is_empty());
}
