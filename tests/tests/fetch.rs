//! `http.fetch` at a real gate: what it reaches, what it does not, and what is left behind.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on ends"
)]

use std::fs;

use palyra_gate::{
    Answer, Completed, DecisionScope, Ending, GateConfig, OpenError, Output, ToolProposal, plan::Plan as RunPlan,
};
use palyra_journal::RecordKind;
use palyra_policy::SourceFile;
use palyra_tests::{
    Lab, Plan, owner,
    scripted::{Names, Reply, Scripted},
    until,
};
use palyra_types::{AbsolutePath, Principal, id::CallId};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Everything is allowed that the egress allows.
const ALLOW_ALL: &str = "@id(\"lab.all\") permit (principal, action, resource);";

/// Fetching runs unasked; each connection asks.
const ASK_NETWORK: &str = r#"
@id("lab.run") permit (principal, action == Palyra::Action::"tool.execute", resource == Palyra::Tool::"http.fetch");
@id("lab.ask") permit (principal, action == Palyra::Action::"tool.execute", resource == Palyra::Tool::"net.connect")
when { context.approved };
@id("lab.network") permit (principal, action == Palyra::Action::"net.connect", resource) when { context.approved };
"#;

const DENY_ALL: &str = "@id(\"lab.none\") forbid (principal, action, resource);";

/// A gate in a world of a few names.
struct World {
    lab: Lab,
    names: Names,
    _files: TempDir,
}

impl World {
    /// Where these hosts are listed, on this port, and may be on this machine; and where whoever shows this is trusted.
    async fn new(policies: Option<&str>, listed: &[(&str, u16)], certificate: &str) -> Self {
        let rules = listed.iter().map(|(host, port)| {
            format!("[[egress.host]]\nhost = \"{host}\"\nports = [{port}]\ntls = \"any\"\nallow_private = true\n")
        });
        Self::configured(policies, &rules.collect::<String>(), certificate).await
    }

    async fn configured(policies: Option<&str>, rules: &str, certificate: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        let authority = files.path().join("authority.pem");
        fs::write(&authority, certificate).unwrap();
        let trust = match certificate {
            "" => String::new(),
            _ => format!("[egress]\ntrust = [\"{}\"]\n", authority.display()),
        };
        let names = Names::default()
            .with("a.lab.test", "127.0.0.1")
            .with("b.lab.test", "127.0.0.1")
            .with("office.lab.test", "10.1.2.3")
            .with("cloud.lab.test", "169.254.169.254");
        let plan = Plan::default().config(&format!("{trust}{rules}")).net(names.connector());
        let plan = match policies {
            Some(policies) => plan.policies(policies),
            None => plan,
        };
        Self { lab: plan.open().await, names, _files: files }
    }

    fn fetch(&self, args: Value) -> ToolProposal {
        self.lab.call("http.fetch", args)
    }

    async fn run(&self, args: Value) -> Fetched {
        let proposal = self.fetch(args);
        let call = proposal.call;
        Fetched::of(self.lab.gate.run(proposal).await.unwrap(), call)
    }

    /// The connections of a call that are on record, each with how it ended.
    async fn connections(&self, call: CallId) -> Vec<(String, Value)> {
        let records = self.lab.records().await;
        let about = records
            .iter()
            .filter(|one| one.record.kind == RecordKind::EgressConnection && one.record.subject().call == Some(call));
        let read = |text: &String| serde_json::from_str::<Value>(text).unwrap();
        let told = about.map(|one| read(one.body.as_ref().unwrap())).inspect(|body| assert_eq!(body["via"], "fetch"));
        told.map(|body| (format!("{}:{}", body["named"].as_str().unwrap(), body["port"]), body["outcome"].clone()))
            .collect()
    }
}

/// What came of a fetch.
#[derive(Debug)]
struct Fetched {
    call: CallId,
    done: Completed,
}

impl Fetched {
    fn of(done: Completed, call: CallId) -> Self {
        assert_eq!(done.receipt.attestation.executor, "daemon_http_fetch");
        Self { call, done }
    }

    fn value(&self) -> &Value {
        match &self.done.output {
            Output::Value { value } => value,
            other => panic!("{other:?}"),
        }
    }

    /// The kind of error, and the kinds of refusals that the attestation has.
    fn error(&self) -> (&str, Vec<&'static str>) {
        assert_eq!(self.done.receipt.attestation.ending, Ending::Completed);
        let kinds = self.done.receipt.attestation.reasons.iter().map(|told| match &told.reason {
            palyra_gate::Reason::Egress { refusal, .. } => refusal.kind.as_str(),
            other => panic!("{other:?}"),
        });
        (self.value()["error"]["kind"].as_str().unwrap(), kinds.collect())
    }
}

fn plain(port: u16, path: &str) -> String {
    format!("http://a.lab.test:{port}{path}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listed_host_is_fetched_from_and_everything_is_on_record() {
    let server =
        Scripted::encrypted(&["a.lab.test"], |_| Reply::with("200 OK", "x-a: \u{202e}1\r\n", "gr\u{fc}n")).await;
    let world = World::new(Some(ALLOW_ALL), &[("a.lab.test", server.port)], &server.certificate).await;
    let url = format!("https://A.lab.test:{}/x#y", server.port);
    let mut proposal = world.fetch(json!({ "url": url, "method": "POST", "body": "hello" }));
    // It works nowhere.
    proposal.workspace = None;
    let call = proposal.call;
    let fetched = Fetched::of(world.lab.gate.run(proposal).await.unwrap(), call);
    let value = fetched.value();
    let canonical = format!("https://a.lab.test:{}/x", server.port);
    assert_eq!((&value["status"], &value["url"], &value["redirects"]), (&json!(200), &json!(canonical), &json!([])));
    assert_eq!((&value["text"], &value["bytes"], &value["truncated"]), (&json!("gr\u{fc}n"), &json!(5), &json!(false)));
    assert!(value["headers"].as_array().unwrap().contains(&json!(["x-a", "<U+202E>1"])), "{value}");
    let request = server.requests().remove(0);
    assert!(request.starts_with("POST /x HTTP/1.1\r\n") && request.ends_with("\r\n\r\nhello"), "{request}");
    assert_eq!(world.connections(call).await, [(format!("a.lab.test:{}", server.port), json!("closed"))]);
    let attested = &fetched.done.receipt.attestation;
    assert_eq!(attested.sandbox_enforcement, ["egress_strict", "tls_verified"]);
    assert_eq!((attested.tier, attested.egress.map(|mode| mode.as_str())), (None, Some("strict")));
    let network = attested.network.unwrap();
    assert_eq!((network.connections, network.refused), (1, 0));
    assert!(network.sent > 100 && network.received > 100, "{network:?}");
    use RecordKind::{EgressConnection, ToolAttested, ToolDecided, ToolProposed, ToolStarted};
    let story = [ToolProposed, ToolDecided, ToolStarted, EgressConnection, ToolAttested];
    assert_eq!(world.lab.story(call).await, story);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_asks_in_the_default_preset_and_shows_what_would_be_sent_where() {
    let server = Scripted::plain(|_| Reply::ok("hi")).await;
    let world = World::new(None, &[("a.lab.test", server.port)], "").await;
    let proposal = world.fetch(json!({ "url": plain(server.port, "/%7E?q"), "method": "PUT", "body": "secret" }));
    let call = proposal.call;
    let running = world.lab.propose(proposal);
    let question = world.lab.asked(1).await.remove(0);
    let RunPlan::Fetch { egress, wall_ms, .. } = &question.plan else { panic!("{:?}", question.plan) };
    assert_eq!((egress.hosts[0].host.as_str(), egress.hosts[0].port, *wall_ms), ("a.lab.test", server.port, 30_000));
    let work = serde_json::to_value(&question.work).unwrap();
    assert_eq!((&work["kind"], &work["method"]), (&json!("fetch"), &json!("PUT")));
    assert!(work["body_sha256"].is_string() && work.get("body").is_none(), "{work}");
    assert!(question.summary.contains("\"body\":\"secret\""), "{}", question.summary);
    assert_eq!(question.risk.level.as_str(), "high");
    let sends = "it sends 6 bytes to a.lab.test";
    assert!(question.risk.reasons.iter().any(|reason| reason == sends), "{:?}", question.risk);
    assert_eq!((server.connections(), world.names.asked().len()), (0, 0));
    world.lab.approve(question.id, DecisionScope::Once).await.unwrap();
    let fetched = Fetched::of(running.await.unwrap().unwrap(), call);
    assert_eq!(fetched.value()["text"], "hi");
    assert_eq!(fetched.done.receipt.attestation.sandbox_enforcement, ["egress_strict"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_policy_denies_is_neither_resolved_nor_reached() {
    let rules = format!(
        "{ALLOW_ALL}\n@id(\"no\") forbid (principal, action == Palyra::Action::\"net.connect\", \
         resource == Palyra::Host::\"a.lab.test\");"
    );
    let world = World::new(Some(&rules), &[("a.lab.test", 443)], "").await;
    let refused = world.lab.gate.run(world.fetch(json!({ "url": "https://a.lab.test/" }))).await.unwrap_err();
    assert_eq!(refused.code(), "denied_by_policy");
    assert_eq!(world.names.asked(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_nobody_listed_is_refused_where_policy_allows() {
    let world = World::new(Some(ALLOW_ALL), &[("a.lab.test", 443)], "").await;
    for url in ["https://b.lab.test/", "https://a.lab.test:8443/"] {
        let refused = world.lab.gate.run(world.fetch(json!({ "url": url }))).await.unwrap_err();
        assert_eq!(refused.code(), "no_sandbox");
        assert!(refused.to_string().contains("no rule under [[egress.host]] names `"), "{refused}");
        assert!(refused.advice().contains("[[egress.host]]"), "{}", refused.advice());
    }
    assert_eq!(world.names.asked(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_nobody_listed_is_asked_about_where_policy_asks() {
    // By the tool's posture, and by the connection.
    for policies in [None, Some(ASK_NETWORK)] {
        let world = World::new(policies, &[], "").await;
        let proposal = world.fetch(json!({ "url": "https://office.lab.test/" }));
        let call = proposal.call;
        let fetched = Fetched::of(world.lab.approved(proposal, DecisionScope::Once).await.unwrap(), call);
        // It was let through, and is held to what holds for hosts that nobody listed.
        assert_eq!(fetched.error(), ("refused", vec!["private_address"]));
        assert_eq!(world.names.asked(), ["office.lab.test"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_and_metadata_services_are_refused() {
    let rules = "[[egress.host]]\nhost = \"office.lab.test\"\n[[egress.host]]\nhost = \"127.0.0.1\"\n\
        [[egress.host]]\nhost = \"cloud.lab.test\"\nallow_private = true\n";
    let world = World::configured(Some(ALLOW_ALL), rules, "").await;
    for host in ["office.lab.test", "cloud.lab.test", "127.0.0.1", "[::ffff:127.0.0.1]"] {
        let fetched = world.run(json!({ "url": format!("https://{host}/") })).await;
        assert_eq!(fetched.error(), ("refused", vec!["private_address"]), "{host}");
        let (_, outcome) = world.connections(fetched.call).await.remove(0);
        assert_eq!(outcome["refused"]["kind"], "private_address", "{host}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_decided_about_like_the_first_hop() {
    let server = Scripted::plain(|request| match request.split(' ').nth(1).unwrap() {
        "/unlisted" => Reply::to("https://b.lab.test/"),
        "/private" => Reply::to("http://office.lab.test/"),
        "/metadata" => Reply::to("http://169.254.169.254/latest/meta-data/"),
        "/user" => Reply::to("http://me@a.lab.test/"),
        "/file" => Reply::to("file:///etc/passwd"),
        "/odd" => Reply::to("http://0177.0.0.1/"),
        _ => Reply::to("/loop"),
    })
    .await;
    let rules = format!(
        "[[egress.host]]\nhost = \"a.lab.test\"\nports = [{}]\ntls = \"any\"\nallow_private = true\n\
         [[egress.host]]\nhost = \"office.lab.test\"\nports = [80]\n",
        server.port
    );
    let world = World::configured(Some(ALLOW_ALL), &rules, "").await;
    for (path, error, refusals, hops) in [
        ("/unlisted", "refused", vec!["not_listed"], 2),
        ("/private", "refused", vec!["private_address"], 2),
        ("/metadata", "refused", vec!["not_listed"], 2),
        ("/user", "bad_url", vec![], 1),
        ("/file", "bad_url", vec![], 1),
        ("/odd", "bad_url", vec![], 1),
        ("/loop", "too_many_redirects", vec![], 6),
    ] {
        let fetched = world.run(json!({ "url": plain(server.port, path) })).await;
        assert_eq!(fetched.error(), (error, refusals), "{path}");
        assert_eq!(world.connections(fetched.call).await.len(), hops, "{path}");
        assert!(fetched.value()["error"]["help"].is_string());
    }
    assert_eq!(world.names.asked().iter().filter(|name| *name == "b.lab.test").count(), 0);
    let seen = world.run(json!({ "url": plain(server.port, "/unlisted"), "follow_redirects": false })).await;
    assert_eq!(seen.value()["status"], 302);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_is_asked_about_a_redirect_to_another_host() {
    let there = Scripted::plain(|_| Reply::ok("there")).await;
    let location = format!("http://b.lab.test:{}/", there.port);
    let server = Scripted::plain(move |_| Reply::to(&location)).await;
    let listed = [("a.lab.test", server.port), ("b.lab.test", there.port)];
    let world = World::new(Some(ASK_NETWORK), &listed, "").await;
    for is_allowed in [true, false] {
        let headers = json!({ "x-key": "k", "accept": "text/plain" });
        let proposal = world.fetch(json!({ "url": plain(server.port, "/"), "headers": headers }));
        let call = proposal.call;
        let running = world.lab.propose(proposal);
        let first = world.lab.asked(1).await.remove(0);
        assert_eq!(first.call, call);
        world.lab.approve(first.id, DecisionScope::Once).await.unwrap();
        until(async || world.lab.asked(1).await.remove(0).id != first.id).await;
        let second = world.lab.asked(1).await.remove(0);
        assert!(
            second.summary.starts_with(&format!("connect to b.lab.test port {}", there.port)),
            "{}",
            second.summary
        );
        if is_allowed {
            world.lab.approve(second.id, DecisionScope::Once).await.unwrap();
        } else {
            world.lab.gate.answer(second.id, &Answer::Deny(None), &owner()).await.unwrap();
        }
        let fetched = Fetched::of(running.await.unwrap().unwrap(), call);
        if is_allowed {
            assert_eq!(
                (&fetched.value()["text"], fetched.value()["redirects"].as_array().unwrap().len()),
                (&json!("there"), 1)
            );
            assert!(server.requests()[0].contains("x-key: k"));
            assert!(!there.requests()[0].contains("x-key") && there.requests()[0].contains("accept: text/plain"));
        } else {
            assert_eq!(fetched.error(), ("refused", vec!["denied_by_person"]));
        }
    }
    assert_eq!(there.connections(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_leads_from_an_encrypted_connection_into_the_open() {
    let open = Scripted::plain(|_| Reply::ok("read by everybody")).await;
    let location = format!("http://a.lab.test:{}/", open.port);
    let server = Scripted::encrypted(&["a.lab.test"], move |_| Reply::to(&location)).await;
    let listed = [("a.lab.test", server.port), ("a.lab.test", open.port)];
    let world = World::new(Some(ALLOW_ALL), &listed, &server.certificate).await;
    let fetched = world.run(json!({ "url": format!("https://a.lab.test:{}/", server.port) })).await;
    assert_eq!((fetched.error(), open.connections()), (("downgrade", vec![]), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_cannot_show_the_name_is_told_nothing() {
    let server = Scripted::encrypted(&["b.lab.test"], |_| Reply::ok("no")).await;
    let listed = [("a.lab.test", server.port), ("b.lab.test", server.port)];
    let args = |host: &str| json!({ "url": format!("https://{host}:{}/", server.port), "method": "POST", "body": "x" });
    let trusting = World::new(Some(ALLOW_ALL), &listed, &server.certificate).await;
    let another_name = trusting.run(args("a.lab.test")).await;
    assert_eq!(another_name.error(), ("tls", vec![]));
    let message = another_name.value()["error"]["message"].as_str().unwrap();
    assert!(message.ends_with("its certificate is for another name"), "{message}");
    let doubting = World::new(Some(ALLOW_ALL), &listed, "").await;
    assert_eq!(doubting.run(args("b.lab.test")).await.error(), ("tls", vec![]));
    assert_eq!(server.requests(), [""; 0]);
    assert_eq!(trusting.run(args("b.lab.test")).await.value()["text"], "no");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_end_is_cut_or_refused() {
    let server = Scripted::plain(|request| match request.split(' ').nth(1).unwrap() {
        "/body" => Reply::Endless("HTTP/1.1 200 OK\r\n\r\n".to_owned()),
        "/head" => Reply::Endless("HTTP/1.1 200 OK\r\nx-a: ".to_owned()),
        _ => Reply::Stalled("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc".to_owned()),
    })
    .await;
    let world = World::new(Some(ALLOW_ALL), &[("a.lab.test", server.port)], "").await;
    let cut = world.run(json!({ "url": plain(server.port, "/body"), "max_bytes": 100_000 })).await;
    assert_eq!((&cut.value()["bytes"], &cut.value()["truncated"]), (&json!(100_000), &json!(true)));
    let refused = world.run(json!({ "url": plain(server.port, "/head") })).await;
    assert_eq!(refused.error(), ("headers_too_large", vec![]));
    let late = world.run(json!({ "url": plain(server.port, "/slow"), "timeout_seconds": 1 })).await;
    assert_eq!((late.done.receipt.attestation.ending, &late.done.output), (Ending::TimedOut, &Output::Nothing));
    assert_eq!(world.connections(late.call).await[0].1, "failed");
    until(async || server.left() == 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_text_come_as_base64_and_are_not_decoded() {
    let server = Scripted::plain(|_| Reply::with("200 OK", "content-encoding: gzip\r\n", "\u{1f}\u{8b}")).await;
    let world = World::new(Some(ALLOW_ALL), &[("a.lab.test", server.port)], "").await;
    let told = world.run(json!({ "url": plain(server.port, "/") })).await;
    assert_eq!(told.value()["content_encoding"], "gzip");
    // Cut inside of a character, text ends before it.
    let cut = world.run(json!({ "url": plain(server.port, "/"), "max_bytes": 2 })).await;
    assert_eq!((&cut.value()["text"], &cut.value()["bytes"]), (&json!("\u{1f}"), &json!(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_answer_is_kept_and_a_token_in_it_is_not() {
    let token = format!("ghp_{}", "a1".repeat(18));
    let secret = [b"\xff ".as_slice(), token.as_bytes()].concat();
    let server = Scripted::plain(move |request| match request.starts_with("GET /large ") {
        true => Reply::bytes("200 OK", "", &vec![0xff; 9 << 20]),
        false => Reply::bytes("200 OK", "", &secret),
    })
    .await;
    let world = World::new(Some(ALLOW_ALL), &[("a.lab.test", server.port)], "").await;
    let fetched = world.run(json!({ "url": plain(server.port, "/") })).await;
    let records = world.lab.records().await;
    let kept = records.iter().rfind(|one| one.record.subject().call == Some(fetched.call)).unwrap();
    let kept: Value = serde_json::from_str(kept.body.as_ref().unwrap()).unwrap();
    // In base 64: what came, and the same with `[masked github token]`.
    assert_eq!(fetched.value()["base64"], "/yBnaHBfYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWEx");
    assert_eq!(kept.pointer("/output/value/base64").unwrap(), "/yBbbWFza2VkIGdpdGh1YiB0b2tlbl0=");
    let large = world.run(json!({ "url": plain(server.port, "/large"), "max_bytes": 8 << 20 })).await;
    assert_eq!((&large.value()["bytes"], &large.value()["truncated"]), (&json!(8 << 20), &json!(true)));
    assert_eq!(large.done.receipt.attestation.ending, Ending::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_in_one_way_is_refused_before_anybody_is_asked() {
    let world = World::new(None, &[], "").await;
    let url = |url: &str| json!({ "url": url });
    let header = |name: &str, value: &str| json!({ "url": "https://a.lab.test/", "headers": { name: value } });
    for args in [
        url("https://me:pw@a.lab.test/"),
        url("https://127.1/"),
        url("https://0x7f000001/"),
        url("https://2130706433/"),
        url("https://0177.0.0.1/"),
        url("https://a.lab.test\\@evil.test/"),
        url("ftp://a.lab.test/"),
        url("https://a.lab.test:0/"),
        url(&format!("https://a.lab.test/{}", "x".repeat(9_000))),
        header("Host", "evil.test"),
        header("Content-Length", "0"),
        header("Transfer-Encoding", "chunked"),
        header("Proxy-Authorization", "x"),
        header("x-a", "1\r\nHost: evil.test"),
        header("x-a\r\nHost", "evil.test"),
        json!({ "url": "https://a.lab.test/", "headers": { "X-A": "1", "x-a": "2" } }),
        json!({ "url": "https://a.lab.test/", "body": "x" }),
        json!({ "url": "https://a.lab.test/", "method": "POST", "body": "x", "body_base64": "eA==" }),
        json!({ "url": "https://a.lab.test/", "method": "POST", "body_base64": "?" }),
        json!({ "url": "https://a.lab.test/", "method": "CONNECT" }),
        json!({ "url": "https://a.lab.test/", "max_bytes": 9_000_000 }),
        json!({ "url": "https://a.lab.test/", "timeout_seconds": 121 }),
    ] {
        let refused = world.lab.gate.run(world.fetch(args.clone())).await.unwrap_err();
        assert_eq!(refused.code(), "bad_arguments", "{args}: {refused}");
        assert!(!refused.to_string().contains("pw"), "{refused}");
    }
    assert_eq!(world.names.asked(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_ends_when_policy_denies_it_or_somebody_stops_it() {
    let server =
        Scripted::plain(|_| Reply::Stalled("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc".to_owned())).await;
    let world = World::new(Some(ALLOW_ALL), &[("a.lab.test", server.port)], "").await;
    let proposal = world.fetch(json!({ "url": plain(server.port, "/") }));
    let stopped = proposal.call;
    let running = world.lab.propose(proposal);
    until(async || server.requests().len() == 1).await;
    assert!(world.lab.gate.cancel(stopped, &Principal::parse("agent:claude").unwrap().into()).unwrap());
    let done = running.await.unwrap().unwrap();
    assert_eq!((done.receipt.attestation.ending, &done.output), (Ending::Cancelled, &Output::Nothing));
    assert_eq!(world.connections(stopped).await[0].1, "closed");

    let proposal = world.fetch(json!({ "url": plain(server.port, "/") }));
    let revoked = proposal.call;
    let running = world.lab.propose(proposal);
    until(async || server.requests().len() == 2).await;
    world.lab.engine.reload(&[SourceFile::operator("none.cedar", DENY_ALL.to_owned())]).unwrap();
    world.lab.gate.policies_changed("a test").await.unwrap();
    let fetched = Fetched::of(running.await.unwrap().unwrap(), revoked);
    assert_eq!(fetched.error(), ("revoked", vec![]));
    assert_eq!(world.connections(revoked).await[0].1, "revoked");
    until(async || server.left() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_digest_binds_what_is_sent_and_an_answer_covers_nothing_else() {
    let server = Scripted::plain(|_| Reply::ok("ok")).await;
    let world = World::new(None, &[("a.lab.test", server.port)], "").await;
    let args = |path: &str, body: &str| json!({ "url": plain(server.port, path), "method": "POST", "body": body });
    let scope = DecisionScope::Session { pattern: Default::default() };
    let first = world.lab.approved(world.fetch(args("/a", "x")), scope).await.unwrap();
    // The same is covered.
    let again = world.run(args("/a", "x")).await;
    assert_eq!(again.done.receipt.attestation.action_digest, first.receipt.attestation.action_digest);
    // Anything else asks.
    let mut digests = vec![first.receipt.attestation.action_digest];
    for other in [args("/b", "x"), args("/a", "y"), json!({ "url": plain(server.port, "/a") })] {
        let running = world.lab.propose(world.fetch(other));
        let question = world.lab.asked(1).await.remove(0);
        assert!(!digests.contains(&question.digest));
        digests.push(question.digest);
        world.lab.gate.answer(question.id, &Answer::Deny(None), &owner()).await.unwrap();
        assert_eq!(running.await.unwrap().unwrap_err().code(), "denied_by_person");
    }
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_trusts_what_cannot_be_read_is_refused() {
    let world = World::new(None, &[], "").await;
    let file = world.lab.workspace().join("authority.pem");
    let config = |lab: &Lab| {
        let mut config = GateConfig::clone(&lab.gate.config());
        config.egress.trust = vec![AbsolutePath::parse(file.to_str().unwrap()).unwrap()];
        config
    };
    let refused = world.lab.gate.reconfigure(config(&world.lab)).unwrap_err();
    assert!(matches!(refused, OpenError::Trust { .. }) && refused.to_string().contains("No such file"), "{refused}");
    fs::write(&file, "no certificate").unwrap();
    let refused = world.lab.gate.reconfigure(config(&world.lab)).unwrap_err();
    assert!(refused.to_string().ends_with("it holds no certificate"), "{refused}");
}
