//! Fetches from servers on loopback that answer as they are told, through a door that notes everything.

mod server;

use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use futures_util::future::BoxFuture;
use palyra_types::host::HostName;
use tokio::sync::watch;

use self::server::{Answer, Server};
use super::*;
use crate::egress::{
    ConnectionOutcome, ConnectionRecord, EgressRefusal, EgressRefusalKind as Kind, Forbidden, Glance, PrivateAddresses,
    Resolve, Ruling, Terms, TlsDemand, Via,
};

/// Lets through what is listed, until it is told otherwise.
struct Door {
    listed: Vec<(String, u16)>,
    private: PrivateAddresses,
    tls: TlsDemand,
    open: Mutex<bool>,
    changes: watch::Sender<u64>,
    noted: Mutex<Vec<ConnectionRecord>>,
}

impl Door {
    fn listing(listed: &[(&str, u16)]) -> Self {
        Self {
            listed: listed.iter().map(|&(host, port)| (host.to_owned(), port)).collect(),
            private: PrivateAddresses::Allow,
            tls: TlsDemand::Any,
            open: Mutex::new(true),
            changes: watch::channel(0).0,
            noted: Mutex::default(),
        }
    }

    fn shut(&self) {
        *self.open.lock().unwrap() = false;
        self.changes.send_modify(|count| *count += 1);
    }

    fn noted(&self) -> MutexGuard<'_, Vec<ConnectionRecord>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outcomes(&self) -> Vec<(String, ConnectionOutcome)> {
        self.noted().iter().map(|one| (format!("{}:{}", one.named, one.port), one.outcome.clone())).collect()
    }
}

impl Doorkeeper for Door {
    fn glance(&self, _: &HostName) -> Glance {
        Glance::MayPass
    }

    fn decide<'a>(&'a self, host: &'a HostName, port: u16) -> BoxFuture<'a, Ruling> {
        let known = self.listed.contains(&(host.to_string(), port));
        Box::pin(async move {
            match known {
                true => Ruling::Allow(Terms { tls: self.tls, private: self.private }),
                false => Ruling::Deny(EgressRefusal::new(Kind::NotListed, format!("no rule names the host `{host}`"))),
            }
        })
    }

    fn still(&self, _: &HostName, _: u16) -> bool {
        *self.open.lock().unwrap()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn note(&self, record: ConnectionRecord) {
        self.noted().push(record);
    }
}

/// Knows a few names. All others are this machine.
struct Names(BTreeMap<&'static str, &'static str>);

impl Resolve for Names {
    fn resolve<'a>(&'a self, host: &'a HostName) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let address = self.0.get(host.as_str()).unwrap_or(&"127.0.0.1");
        Box::pin(async move { Ok(vec![address.parse().unwrap()]) })
    }
}

fn fetcher(authorities: Authorities) -> Fetcher {
    let names = Names(BTreeMap::from([("cloud.example", "169.254.169.254"), ("office.example", "10.1.2.3")]));
    Fetcher::new(Arc::new(Connector::new(Arc::new(names), Forbidden::default())), authorities)
}

fn request(method: FetchMethod, url: &str) -> FetchRequest {
    FetchRequest {
        method,
        url: FetchUrl::parse(url).unwrap(),
        headers: FetchHeaders::default(),
        bound: Vec::new(),
        body: Vec::new(),
        redirects: Redirects::Follow,
        limits: FetchLimits { total: Duration::from_secs(5), ..FetchLimits::default() },
    }
}

fn get(url: &str) -> FetchRequest {
    request(FetchMethod::Get, url)
}

async fn fetch(door: &Door, request: FetchRequest) -> Result<FetchResponse, FetchError> {
    fetcher(Authorities::default()).fetch(door, request, None).await
}

#[tokio::test]
async fn a_plain_request_says_what_it_was_told_and_nothing_else() {
    let server = Server::plain([Answer::text("200 OK", "x-a: 1\r\n", "hello")]).await;
    let (port, door) = (server.port, Door::listing(&[("a.example", server.port)]));
    let mut posted = request(FetchMethod::Post, &format!("http://a.example:{port}/p?q=1#f"));
    posted.headers = FetchHeaders::parse([("X-Key", "k")]).unwrap();
    posted.body = b"data".to_vec();
    let response = fetch(&door, posted).await.unwrap();
    assert_eq!((response.status, response.body.as_slice(), response.truncated), (200, b"hello".as_slice(), false));
    assert_eq!(response.header("x-a").collect::<Vec<_>>(), [b"1".as_slice()]);
    let asked = server.asked();
    let mut lines: Vec<&str> = asked[0].lines().collect();
    lines.sort_unstable();
    let (host, agent) =
        (format!("host: a.example:{port}"), format!("user-agent: palyra/{}", env!("CARGO_PKG_VERSION")));
    let mut expected = vec![
        "",
        "POST /p?q=1 HTTP/1.1",
        "accept-encoding: identity",
        "accept: */*",
        "connection: close",
        "content-length: 4",
        "data",
        &host,
        &agent,
        "x-key: k",
    ];
    expected.sort_unstable();
    assert_eq!(lines, expected);
    let noted = door.noted().remove(0);
    assert_eq!(
        (noted.via, noted.outcome, noted.sent > 100, noted.received > 30),
        (Via::Fetch, ConnectionOutcome::Closed, true, true)
    );
    assert_eq!(noted.address, Some(format!("127.0.0.1:{port}").parse().unwrap()));
}

#[tokio::test]
async fn an_encrypted_request_reaches_only_who_can_show_the_name() {
    let (server, pem) =
        Server::encrypted("a.example", [Answer::text("200 OK", "", "one"), Answer::text("200 OK", "", "two")]).await;
    let port = server.port;
    let door = Door::listing(&[("a.example", port), ("b.example", port), ("127.0.0.1", port)]);
    let mut trusted = Authorities::default();
    trusted.add_pem(pem.as_bytes()).unwrap();
    let trusting = fetcher(trusted);
    let response = trusting.fetch(&door, get(&format!("https://a.example:{port}/")), None).await.unwrap();
    assert_eq!(response.body, b"one");
    for other in ["b.example", "127.0.0.1"] {
        let refused = trusting.fetch(&door, get(&format!("https://{other}:{port}/")), None).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!("`{other}` cannot be trusted to be `{other}`: its certificate is for another name")
        );
    }
    let refused = fetch(&door, get(&format!("https://a.example:{port}/"))).await.unwrap_err();
    assert_eq!(refused.kind(), FetchErrorKind::Tls);
    // Nothing was asked of anybody who was not verified.
    assert_eq!(server.asked().len(), 1);
    assert_eq!(door.outcomes().len(), 4);
}

#[tokio::test]
async fn a_host_that_is_not_let_through_is_never_reached() {
    let server = Server::plain([Answer::text("200 OK", "", "no")]).await;
    let door = Door::listing(&[]);
    let refused = fetch(&door, get(&format!("http://a.example:{}/", server.port))).await.unwrap_err();
    let FetchError::Refused(target) = &refused else { panic!("{refused}") };
    assert_eq!((target.named.as_str(), target.refusal.kind), ("a.example", Kind::NotListed));
    assert_eq!(server.connections(), 0);
    assert!(matches!(door.outcomes()[0].1, ConnectionOutcome::Refused(_)));
}

#[tokio::test]
async fn private_and_metadata_addresses_are_refused_by_name_and_by_number() {
    let listed =
        [("cloud.example", 80), ("office.example", 80), ("169.254.169.254", 80), ("127.0.0.1", 80), ("::1", 80)];
    let careful = Door { private: PrivateAddresses::Refuse, ..Door::listing(&listed) };
    for host in ["cloud.example", "office.example", "169.254.169.254", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"] {
        let refused = fetch(&careful, get(&format!("http://{host}/"))).await.unwrap_err();
        let FetchError::Refused(target) = &refused else { panic!("{refused}") };
        assert_eq!(target.refusal.kind, Kind::PrivateAddress, "{host}");
    }
    let refused = fetch(&Door::listing(&listed), get("http://cloud.example/")).await.unwrap_err();
    assert!(refused.to_string().contains("169.254.169.254"), "{refused}");
}

#[tokio::test]
async fn a_port_that_demands_tls_is_not_spoken_to_in_the_open() {
    let server = Server::plain([Answer::text("200 OK", "", "no")]).await;
    let door = Door { tls: TlsDemand::ByPort, ..Door::listing(&[("a.example", server.port)]) };
    let url = format!("http://a.example:{}/", server.port);
    let refused = fetch(&door, get(&url)).await.unwrap_err();
    let FetchError::Refused(target) = &refused else { panic!("{refused}") };
    assert_eq!((target.refusal.kind, server.connections()), (Kind::NoTls, 0));
}

/// Lets nothing but `a.example` have private addresses.
struct Inward(Door);

impl Doorkeeper for Inward {
    fn glance(&self, host: &HostName) -> Glance {
        self.0.glance(host)
    }

    fn decide<'a>(&'a self, host: &'a HostName, _: u16) -> BoxFuture<'a, Ruling> {
        let is_near = host.as_str() == "a.example";
        let private = if is_near { PrivateAddresses::Allow } else { PrivateAddresses::Refuse };
        Box::pin(async move { Ruling::Allow(Terms { tls: TlsDemand::Any, private }) })
    }

    fn still(&self, host: &HostName, port: u16) -> bool {
        self.0.still(host, port)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes()
    }

    fn note(&self, record: ConnectionRecord) {
        self.0.note(record);
    }
}

#[tokio::test]
async fn a_redirect_is_ruled_on_like_the_first_hop() {
    let second = Server::plain([Answer::text("200 OK", "", "there")]).await;
    let to = |url: String| Answer::text("302 Found", &format!("location: {url}\r\n"), "");
    let there = format!("http://b.example:{}/x", second.port);
    let first = Server::plain([
        to(there.clone()),
        to(there.clone()),
        to("http://office.example/".to_owned()),
        to("http://user@b.example/".to_owned()),
    ])
    .await;
    let from = format!("http://a.example:{}/", first.port);
    let door = Door::listing(&[("a.example", first.port), ("b.example", second.port)]);
    let mut keyed = get(&from);
    keyed.headers = FetchHeaders::parse([("authorization", "Bearer x"), ("x-key", "k"), ("accept", "text/*")]).unwrap();
    keyed.bound = vec!["x-key".to_owned()];
    let response = fetch(&door, keyed).await.unwrap();
    assert_eq!(response.redirects, [FetchUrl::parse(&there).unwrap()]);
    assert_eq!(response.url, response.redirects[0]);
    let (asked_first, asked_second) = (first.asked().remove(0), second.asked().remove(0));
    assert!(asked_first.contains("authorization: Bearer x") && asked_first.contains("x-key: k"), "{asked_first}");
    assert!(!asked_second.contains("authorization") && !asked_second.contains("x-key"), "{asked_second}");
    assert!(asked_second.contains("accept: text/*") && asked_second.starts_with("GET /x "), "{asked_second}");
    assert_eq!(door.outcomes().len(), 2);

    let narrow = Door::listing(&[("a.example", first.port)]);
    assert_eq!(fetch(&narrow, get(&from)).await.unwrap_err().kind(), FetchErrorKind::Refused);
    assert_eq!(second.connections(), 1);
    let private = Door::listing(&[("a.example", first.port), ("office.example", 80)]);
    let inward = Inward(private);
    let refused = fetcher(Authorities::default()).fetch(&inward, get(&from), None).await.unwrap_err();
    let FetchError::Refused(target) = &refused else { panic!("{refused}") };
    assert_eq!((target.named.as_str(), target.refusal.kind), ("office.example", Kind::PrivateAddress));
    assert_eq!(fetch(&narrow, get(&from)).await.unwrap_err().kind(), FetchErrorKind::BadUrl);
}

#[tokio::test]
async fn redirects_end() {
    let back = || Answer::text("307 Temporary Redirect", "location: /again\r\n", "");
    let server = Server::plain((0..10).map(|_| back())).await;
    let door = Door::listing(&[("a.example", server.port)]);
    let url = format!("http://a.example:{}/", server.port);
    assert_eq!(fetch(&door, get(&url)).await, Err(FetchError::TooManyRedirects(MOST_REDIRECTS)));
    assert_eq!((server.connections(), door.outcomes().len()), (6, 6));
    let returned = fetch(&door, FetchRequest { redirects: Redirects::Return, ..get(&url) }).await.unwrap();
    assert_eq!((returned.status, returned.redirects.len()), (307, 0));
}

#[tokio::test]
async fn a_body_without_end_is_cut() {
    let server = Server::plain([Answer::Endless("HTTP/1.1 200 OK\r\n\r\n"), Answer::text("200 OK", "", "12345")]).await;
    let door = Door::listing(&[("a.example", server.port)]);
    let small = |most| {
        let mut small = get(&format!("http://a.example:{}/", server.port));
        small.limits.body_bytes = most;
        small
    };
    let cut = fetch(&door, small(100_000)).await.unwrap();
    assert_eq!((cut.body.len(), cut.truncated), (100_000, true));
    let whole = fetch(&door, small(5)).await.unwrap();
    assert_eq!((whole.body.len(), whole.truncated), (5, false));
    // It was closed, not read to nowhere.
    assert!(door.noted()[0].received < 10_000_000);
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let many: String = (0..300).map(|index| format!("x-{index}: y\r\n")).collect();
    let server = Server::plain([
        Answer::Endless("HTTP/1.1 200 OK\r\nx-a: "),
        Answer::text("200 OK", &format!("x-a: {}\r\n", "y".repeat(70_000)), ""),
        Answer::text("200 OK", &many, ""),
    ])
    .await;
    let door = Door::listing(&[("a.example", server.port)]);
    for _ in 0..3 {
        let refused = fetch(&door, get(&format!("http://a.example:{}/", server.port))).await.unwrap_err();
        assert_eq!(refused.kind(), FetchErrorKind::HeadersTooLarge, "{refused}");
    }
}

#[tokio::test]
async fn interim_responses_are_skipped_and_end() {
    let hint = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    let large = format!("HTTP/1.1 103 Early Hints\r\nlink: <{}>\r\n\r\n", "x".repeat(60_000));
    // A chunk of one byte with as much beside it as a chunk may have.
    let padded = format!("1;{}\r\nx\r\n", "y".repeat(10_000));
    let begins = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let server = Server::plain([
        Answer::Text(hint.repeat(16) + "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"),
        Answer::Again(hint.to_owned()),
        Answer::Again(large),
        Answer::Text(begins.to_owned() + &padded.repeat(2_000)),
    ])
    .await;
    let door = Door::listing(&[("a.example", server.port)]);
    let mut asked = get(&format!("http://a.example:{}/", server.port));
    asked.limits.body_bytes = 10_000;
    assert_eq!(fetch(&door, asked.clone()).await.unwrap().body, b"hello");
    let refused = fetch(&door, asked.clone()).await.unwrap_err().to_string();
    assert_eq!(refused, "`a.example` sent more interim responses than are read");
    let refused = fetch(&door, asked.clone()).await.unwrap_err().to_string();
    assert_eq!(refused, "`a.example` sent more than its response may take");
    assert!(fetch(&door, asked).await.is_err());
    assert!(door.noted().iter().all(|noted| noted.received < 1 << 20), "{:?}", door.noted());
}

#[tokio::test]
async fn a_body_in_the_smallest_chunks_is_read_whole() {
    let body = "1\r\nx\r\n".repeat(100_000);
    let text = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{body}0\r\n\r\n");
    let server = Server::plain([Answer::Text(text)]).await;
    let door = Door::listing(&[("a.example", server.port)]);
    let mut asked = get(&format!("http://a.example:{}/", server.port));
    asked.limits.body_bytes = 100_000;
    let response = fetch(&door, asked).await.unwrap();
    assert_eq!((response.body.len(), response.truncated), (100_000, false));
}

#[tokio::test]
async fn what_has_no_body_has_none() {
    let claims = Answer::text("200 OK", "content-length: 100\r\n", "");
    let server =
        Server::plain([claims, Answer::text("204 No Content", "", ""), Answer::text("304 Not Modified", "", "")]).await;
    let door = Door::listing(&[("a.example", server.port)]);
    let url = format!("http://a.example:{}/", server.port);
    let head = fetch(&door, request(FetchMethod::Head, &url)).await.unwrap();
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(fetch(&door, get(&url)).await.unwrap().status, 204);
    assert_eq!(fetch(&door, get(&url)).await.unwrap().status, 304);
}

#[tokio::test]
async fn an_encoding_that_nobody_asked_for_is_told_and_not_undone() {
    let server = Server::plain([Answer::text("200 OK", "content-encoding: gzip\r\n", "\u{1f}x")]).await;
    let door = Door::listing(&[("a.example", server.port)]);
    let response = fetch(&door, get(&format!("http://a.example:{}/", server.port))).await.unwrap();
    assert_eq!((response.encoding().as_deref(), response.body.as_slice()), (Some("gzip"), b"\x1fx".as_slice()));
}

#[tokio::test]
async fn whoever_takes_too_long_is_left() {
    let server =
        Server::plain([Answer::Silent, Answer::Begun("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc")]).await;
    let door = Door::listing(&[("a.example", server.port)]);
    for _ in 0..2 {
        let mut short = get(&format!("http://a.example:{}/", server.port));
        short.limits.total = Duration::from_millis(200);
        assert_eq!(fetch(&door, short).await.unwrap_err().kind(), FetchErrorKind::Timeout);
    }
    assert_eq!(door.outcomes().iter().filter(|(_, outcome)| *outcome == ConnectionOutcome::Failed).count(), 2);
    // Nobody answers the hello here.
    let mut mute = get(&format!("https://a.example:{}/", server.port));
    mute.limits.connect = Duration::from_millis(200);
    let refused = fetch(&door, mute).await.unwrap_err();
    assert_eq!(refused.to_string(), "`a.example` did not take the connection in time");
}

#[tokio::test]
async fn nonsense_and_half_a_response_are_errors() {
    let server = Server::plain([
        Answer::Raw("SSH-2.0-OpenSSH\r\n"),
        Answer::Raw("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"),
        Answer::Raw(""),
        Answer::Raw("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"),
        Answer::Raw("HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd"),
        Answer::Raw("HTTP/1.1 200 OK\r\nbad header: x\r\n\r\n"),
    ])
    .await;
    let door = Door::listing(&[("a.example", server.port)]);
    for _ in 0..6 {
        let refused = fetch(&door, get(&format!("http://a.example:{}/", server.port))).await;
        assert_eq!(refused.as_ref().map_err(FetchError::kind).err(), Some(FetchErrorKind::Protocol), "{refused:?}");
    }
}

#[tokio::test]
async fn what_is_allowed_no_more_is_closed() {
    let server = Server::plain([Answer::Begun("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc")]).await;
    let door = Arc::new(Door::listing(&[("a.example", server.port)]));
    let (own, url) = (Arc::clone(&door), format!("http://a.example:{}/", server.port));
    let fetching = tokio::spawn(async move { fetch(&own, get(&url)).await });
    server.was_asked(1).await;
    door.shut();
    assert_eq!(fetching.await.unwrap().unwrap_err().kind(), FetchErrorKind::Revoked);
    assert_eq!(door.outcomes()[0].1, ConnectionOutcome::Revoked);
}

#[tokio::test]
async fn a_fetch_that_is_dropped_is_noted_and_closed() {
    let server = Server::plain([Answer::Silent]).await;
    let door = Door::listing(&[("a.example", server.port)]);
    let url = format!("http://a.example:{}/", server.port);
    tokio::select! {
        ended = fetch(&door, get(&url)) => panic!("{ended:?}"),
        () = server.was_asked(1) => {}
    }
    assert_eq!(door.outcomes(), [(format!("a.example:{}", server.port), ConnectionOutcome::Closed)]);
    server.was_left().await;
}

#[test]
fn every_kind_of_error_has_advice() {
    let url = || Box::new(FetchUrl::parse("https://a.example/").unwrap());
    let host = || HostName::parse("a.example").unwrap();
    let refusal = EgressRefusal::new(Kind::NotListed, "x");
    let target = crate::egress::RefusedTarget { named: String::new(), port: 0, via: Via::Fetch, refusal };
    let all = [
        FetchError::BadUrl { from: url(), cause: UrlError::User },
        FetchError::Refused(Box::new(target)),
        FetchError::Revoked(host()),
        FetchError::Tls { host: host(), cause: String::new() },
        FetchError::TooManyRedirects(5),
        FetchError::Downgrade { from: url(), to: url() },
        FetchError::Timeout { host: host(), late: Late::Answer },
        FetchError::HeadersTooLarge { host: host(), limit: 1 },
        FetchError::Protocol { host: host(), what: "lied" },
    ];
    assert_eq!(all.iter().map(FetchError::kind).collect::<Vec<_>>(), FetchErrorKind::ALL);
    assert!(all.iter().all(|error| !error.advice().is_empty()));
}
