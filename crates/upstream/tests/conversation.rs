//! Conversations with servers of rmcp's own making, over pipes and over HTTP, and with servers that say whatever they like.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

use std::{sync::Arc, time::Duration};

use palyra_upstream::{Client, ClientError, Credentials, HttpLink, NoCredential, ServerUrl, Trouble};
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
    transport::streamable_http_server::{StreamableHttpService, session::local::LocalSessionManager},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf, split},
    net::TcpListener,
};

const SOON: Duration = Duration::from_secs(10);

/// A server that says what it is told.
#[derive(Clone)]
struct Echo;

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let said = json!({ "name": "echo", "description": "Says it.", "inputSchema": { "type": "object" } });
        let tool: Tool = serde_json::from_value(said).unwrap();
        Ok(ListToolsResult::with_all_items(vec![tool]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let said = Value::Object(request.arguments.unwrap_or_default()).to_string();
        match request.name.as_ref() {
            "echo" => Ok(CallToolResult::success(vec![ContentBlock::text(said)]).into()),
            "fail" => Ok(CallToolResult::error(vec![ContentBlock::text("no \u{202e}luck")]).into()),
            _ => Err(ErrorData::invalid_params("no such tool", None)),
        }
    }
}

fn object(value: Value) -> JsonObject {
    value.as_object().unwrap().clone()
}

async fn echoes(client: &Client) {
    let tools = client.tools(SOON).await.unwrap();
    assert_eq!(tools.iter().map(|tool| tool.name.as_ref()).collect::<Vec<_>>(), ["echo"]);
    let answer = client.call("echo", object(json!({ "text": "hello" })), SOON).await.unwrap();
    assert_eq!(answer.failed, None);
    assert_eq!(answer.value["content"], json!([{ "type": "text", "text": "{\"text\":\"hello\"}" }]));
    let failed = client.call("fail", JsonObject::new(), SOON).await.unwrap();
    assert_eq!(failed.failed.as_deref(), Some("no <U+202E>luck"));
    assert_eq!(failed.value["isError"], true);
    let unknown = client.call("other", JsonObject::new(), SOON).await.unwrap_err();
    assert_eq!(unknown, ClientError::Said("no such tool".to_owned()));
}

#[tokio::test]
async fn a_server_on_pipes_is_spoken_with() {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move { Echo.serve(split(theirs)).await.unwrap().waiting().await });
    let client = Client::over_pipes(split(ours), SOON).await.unwrap();
    assert_eq!(client.about().protocol, "2026-07-28");
    echoes(&client).await;
}

struct Nothing;

impl Credentials for Nothing {
    fn headers(&self) -> Result<Vec<(http::HeaderName, http::HeaderValue)>, NoCredential> {
        Ok(Vec::new())
    }

    fn hide(&self, text: &str) -> String {
        text.to_owned()
    }
}

/// A secret that goes with every request.
struct Key(String);

impl Credentials for Key {
    fn headers(&self) -> Result<Vec<(http::HeaderName, http::HeaderValue)>, NoCredential> {
        Ok(vec![(http::header::AUTHORIZATION, self.0.parse().unwrap())])
    }

    fn hide(&self, text: &str) -> String {
        text.replace(&self.0, &"*".repeat(self.0.len()))
    }
}

fn link(port: u16) -> HttpLink {
    link_with(port, Nothing)
}

fn link_with(port: u16, credentials: impl Credentials + 'static) -> HttpLink {
    let url = ServerUrl::parse(&format!("http://127.0.0.1:{port}/mcp")).unwrap();
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let trust = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    HttpLink::new(url, trust, Arc::new(credentials))
}

#[tokio::test]
async fn a_server_over_http_is_spoken_with() {
    let service = StreamableHttpService::new(
        || Ok(Echo),
        Arc::new(LocalSessionManager::default()),
        rmcp::transport::StreamableHttpServerConfig::default(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = hyper_util::service::TowerToHyperService::new(service.clone());
            let io = hyper_util::rt::TokioIo::new(stream);
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, service));
        }
    });
    let client = Client::over_http(link(port), SOON).await.unwrap();
    echoes(&client).await;
}

/// What a server is to say to each line that it reads; `$ID` stands for the id of the request.
struct Script {
    read: BufReader<ReadHalf<DuplexStream>>,
    write: WriteHalf<DuplexStream>,
}

impl Script {
    fn new() -> (Self, (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>)) {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (read, write) = split(theirs);
        (Self { read: BufReader::new(read), write }, split(ours))
    }

    async fn request(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.read.read_line(&mut line).await.unwrap() > 0, "the client is gone");
        serde_json::from_str(&line).unwrap()
    }

    async fn say(&mut self, text: &[u8]) {
        // The other side may have had enough.
        let _ = self.write.write_all(text).await;
        let _ = self.write.write_all(b"\n").await;
    }

    async fn answer(&mut self, request: &Value, result: Value) {
        let text = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }).to_string();
        self.say(text.as_bytes()).await;
    }

    async fn refuse(&mut self, request: &Value) {
        let error = json!({ "code": -32601, "message": "Method not found" });
        self.say(json!({ "jsonrpc": "2.0", "id": request["id"], "error": error }).to_string().as_bytes()).await;
    }

    /// Begins as a server of yesterday does.
    async fn begin(&mut self) {
        let discovery = self.request().await;
        assert_eq!(discovery["method"], "server/discover");
        self.refuse(&discovery).await;
        let initialize = self.request().await;
        assert_eq!(
            (&initialize["method"], &initialize["params"]["protocolVersion"]),
            (&json!("initialize"), &json!("2025-11-25"))
        );
        let capabilities = json!({ "tools": { "listChanged": true } });
        let info = json!({ "name": "scripted\u{200b}", "version": "1" });
        let result = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info });
        self.answer(&initialize, result).await;
        assert_eq!(self.request().await["method"], "notifications/initialized");
    }
}

/// A client of a server that began well, and the server.
async fn begun() -> (Client, Script) {
    let (mut script, pipes) = Script::new();
    let (client, ()) = tokio::join!(Client::over_pipes(pipes, SOON), script.begin());
    (client.unwrap(), script)
}

fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

#[tokio::test]
async fn a_server_of_yesterday_is_spoken_with_as_it_speaks() {
    let (client, mut script) = begun().await;
    assert_eq!(
        (client.about().protocol.as_str(), client.about().name.as_deref()),
        ("2025-11-25", Some("scripted<U+200B>"))
    );
    let calling = async {
        let request = script.request().await;
        assert_eq!((&request["method"], &request["params"]["name"]), (&json!("tools/call"), &json!("a")));
        script.answer(&request, text("done")).await;
    };
    let (answer, ()) = tokio::join!(client.call("a", JsonObject::new(), SOON), calling);
    assert_eq!(answer.unwrap().value, text("done"));
}

#[tokio::test]
async fn a_server_that_says_its_tools_have_changed_is_heard() {
    let (client, mut script) = begun().await;
    let mut changes = client.changes();
    changes.mark_unchanged();
    script.say(br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#).await;
    tokio::time::timeout(SOON, changes.changed()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_server_of_today_that_stops_telling_of_changes_is_asked_to_again() {
    let (mut script, pipes) = Script::new();
    let beginning = async {
        let discovery = script.request().await;
        assert_eq!(discovery["method"], "server/discover");
        let info = json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": { "listChanged": true } },
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private" });
        script.answer(&discovery, info).await;
    };
    let (client, ()) = tokio::join!(Client::over_pipes(pipes, SOON), beginning);
    let client = client.unwrap();
    let mut changes = client.changes();
    let mut begun = Vec::new();
    for _ in 0..3 {
        let listening = script.request().await;
        assert_eq!(listening["method"], "subscriptions/listen");
        begun.push(std::time::Instant::now());
        let subscription = json!({ "io.modelcontextprotocol/subscriptionId": listening["id"] });
        let granted = json!({ "notifications": { "toolsListChanged": true }, "_meta": subscription });
        let granted =
            json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": granted });
        script.say(granted.to_string().as_bytes()).await;
        script.answer(&listening, json!({ "_meta": subscription, "resultType": "complete" })).await;
    }
    // What changed in between would have been told to nobody.
    tokio::time::timeout(SOON, changes.changed()).await.unwrap().unwrap();
    assert!(begun[2] - begun[1] >= Duration::from_millis(900), "it is asked in a loop: {begun:?}");
}

#[tokio::test]
async fn garbage_and_answers_to_nothing_are_left_out() {
    let (client, mut script) = begun().await;
    let calling = async {
        let request = script.request().await;
        for garbage in [&b"starting up ..."[..], b"\xff\xfe", b"{", b"[]", b"null", br#"{"jsonrpc":"1.0"}"#] {
            script.say(garbage).await;
        }
        script.answer(&json!({ "id": 4711 }), text("for somebody else")).await;
        script.answer(&json!({ "id": "x" }), text("for nobody")).await;
        script.answer(&request, text("mine")).await;
    };
    let (answer, ()) = tokio::join!(client.call("a", JsonObject::new(), SOON), calling);
    assert_eq!(answer.unwrap().value, text("mine"));
}

#[tokio::test]
async fn what_a_server_asks_for_itself_is_not_supported() {
    let (client, mut script) = begun().await;
    let calling = async {
        let request = script.request().await;
        for (id, method, params) in [
            (1, "roots/list", json!({})),
            (2, "sampling/createMessage", json!({ "messages": [], "maxTokens": 1 })),
            (
                3,
                "elicitation/create",
                json!({ "message": "Password?", "requestedSchema": { "type": "object", "properties": {} } }),
            ),
            (4, "something/else", json!({})),
        ] {
            let asked = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
            script.say(asked.to_string().as_bytes()).await;
            let refused = script.request().await;
            assert_eq!(
                (&refused["id"], &refused["error"]["code"]),
                (&json!(id), &json!(-32601)),
                "{method}: {refused}"
            );
        }
        script.say(br#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#).await;
        assert_eq!(script.request().await["result"], json!({}));
        script.answer(&request, text("done")).await;
    };
    let (answer, ()) = tokio::join!(client.call("a", JsonObject::new(), SOON), calling);
    assert_eq!(answer.unwrap().value, text("done"));
}

#[tokio::test]
async fn a_message_without_an_end_is_given_up() {
    let (client, mut script) = begun().await;
    let calling = async {
        script.request().await;
        let piece = vec![b'a'; 1 << 20];
        for _ in 0..17 {
            if script.write.write_all(&piece).await.is_err() {
                break;
            }
        }
    };
    let (answer, ()) = tokio::join!(client.call("a", JsonObject::new(), SOON), calling);
    assert_eq!(answer.unwrap_err(), ClientError::Over(Trouble::LongMessage(16 << 20)));
}

#[tokio::test]
async fn a_message_that_would_take_too_much_memory_is_given_up() {
    let (client, mut script) = begun().await;
    let calling = async {
        script.request().await;
        script.say(format!("[{}1]", "1,".repeat(600_000)).as_bytes()).await;
    };
    let (answer, ()) = tokio::join!(client.call("a", JsonObject::new(), SOON), calling);
    assert_eq!(answer.unwrap_err(), ClientError::Over(Trouble::WideMessage(500_000)));
}

#[tokio::test]
async fn ten_megabytes_of_text_are_an_answer() {
    let (client, mut script) = begun().await;
    let long = "a".repeat(10 << 20);
    let calling = async {
        let request = script.request().await;
        script.answer(&request, text(&long)).await;
    };
    let (answer, ()) = tokio::join!(client.call("a", JsonObject::new(), SOON), calling);
    assert_eq!(answer.unwrap().value, text(&long));
}

#[tokio::test]
async fn a_flood_of_what_nobody_asked_for_is_given_up() {
    let (client, mut script) = begun().await;
    let calling = async {
        script.request().await;
        let line =
            [&br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#[..], b"\n"]
                .concat();
        for _ in 0..100 {
            if script.write.write_all(&line.repeat(100)).await.is_err() {
                break;
            }
        }
    };
    let (answer, ()) = tokio::join!(client.call("a", JsonObject::new(), SOON), calling);
    assert_eq!(answer.unwrap_err(), ClientError::Over(Trouble::Flood));
}

#[tokio::test]
async fn a_server_that_hangs_is_told_that_nobody_waits_any_more() {
    let (client, mut script) = begun().await;
    let within = Duration::from_millis(50);
    let calling = async {
        let request = script.request().await;
        let cancelled = script.request().await;
        assert_eq!(cancelled["method"], "notifications/cancelled");
        assert_eq!(cancelled["params"]["requestId"], request["id"]);
    };
    let (answer, ()) = tokio::join!(client.call("a", JsonObject::new(), within), calling);
    assert_eq!(answer.unwrap_err(), ClientError::Slow { what: "an answer to the call", within });
}

#[tokio::test]
async fn a_server_that_is_gone_in_the_middle_of_an_answer_is_told_of() {
    let (client, mut script) = begun().await;
    let calling = async {
        script.request().await;
        script.write.write_all(br#"{"jsonrpc":"2.0","id":"#).await.unwrap();
        drop(script);
    };
    let (answer, ()) = tokio::join!(client.call("a", JsonObject::new(), SOON), calling);
    assert_eq!(answer.unwrap_err(), ClientError::Over(Trouble::Closed));
    assert_eq!(client.ended().await, Trouble::Closed);
}

#[tokio::test]
async fn an_answer_that_is_none_is_told_of() {
    let (client, mut script) = begun().await;
    for result in [json!({ "tools": [] }), json!("text"), json!({ "resultType": "task", "taskId": "1" })] {
        let calling = async {
            let request = script.request().await;
            script.answer(&request, result.clone()).await;
        };
        let within = Duration::from_millis(300);
        let (answer, ()) = tokio::join!(client.call("a", JsonObject::new(), within), calling);
        assert!(answer.is_err(), "{result}: {answer:?}");
        if matches!(answer, Err(ClientError::Slow { .. })) {
            script.request().await;
        }
    }
}

#[tokio::test]
async fn a_list_of_tools_without_an_end_is_given_up() {
    let (client, mut script) = begun().await;
    let listing = async {
        loop {
            let mut line = String::new();
            if script.read.read_line(&mut line).await.unwrap() == 0 {
                break;
            }
            let request: Value = serde_json::from_str(&line).unwrap();
            if request["method"] == "tools/list" {
                script.answer(&request, json!({ "tools": [], "nextCursor": "more" })).await;
            }
        }
    };
    let listed = async {
        let listed = client.tools(SOON).await;
        drop(client);
        listed
    };
    let (listed, ()) = tokio::join!(listed, listing);
    assert_eq!(listed.unwrap_err(), ClientError::TooManyTools);
}

#[tokio::test]
async fn a_list_of_tools_is_bounded_by_what_all_its_pages_say() {
    let (client, mut script) = begun().await;
    let mut pages = 0;
    let listing = async {
        let long = "a".repeat(3 << 20);
        loop {
            let mut line = String::new();
            if script.read.read_line(&mut line).await.unwrap() == 0 {
                break;
            }
            let request: Value = serde_json::from_str(&line).unwrap();
            if request["method"] == "tools/list" {
                pages += 1;
                let tool =
                    json!({ "name": format!("t{pages}"), "description": long, "inputSchema": { "type": "object" } });
                script.answer(&request, json!({ "tools": [tool], "nextCursor": "more" })).await;
            }
        }
    };
    let listed = async {
        let listed = client.tools(6 * SOON).await;
        drop(client);
        listed
    };
    let (listed, ()) = tokio::join!(listed, listing);
    assert_eq!((listed.unwrap_err(), pages), (ClientError::LongList, 6));
}

#[tokio::test]
async fn a_server_that_never_begins_is_given_up() {
    let (script, pipes) = Script::new();
    let within = Duration::from_millis(100);
    let client = Client::over_pipes(pipes, within).await;
    assert!(matches!(client, Err(ClientError::Slow { .. })));
    drop(script);
}

#[tokio::test]
async fn a_redirect_and_a_refusal_are_told_and_not_followed() {
    for (answer, wanted) in [
        (
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n",
            "sends requests elsewhere",
        ),
        ("HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno", "answered 401: no"),
        ("HTTP/1.1 500 Oh\r\ncontent-length: 4\r\n\r\n\x1b[1m", "answered 500: <U+001B>[1m"),
        ("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi", "text/html"),
        ("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\nhi", ""),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut line = String::new();
                let mut reader = BufReader::new(&mut stream);
                while reader.read_line(&mut line).await.is_ok_and(|count| count > 2) {
                    line.clear();
                }
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let Err(error) = Client::over_http(link(port), Duration::from_secs(3)).await else { panic!("{answer}") };
        assert!(error.to_string().contains(wanted), "{answer}: {error}");
    }
}

/// A server that answers every request with what is made of its head and its body.
async fn answering(answer: impl Fn(&str, &Value) -> String + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = BufReader::new(stream);
            let mut head = String::new();
            while stream.read_line(&mut head).await.is_ok_and(|count| count > 2) {}
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            if stream.read_exact(&mut body).await.is_ok() {
                let said = answer(&head, &serde_json::from_slice(&body).unwrap_or_default());
                let _ = stream.write_all(said.as_bytes()).await;
            }
        }
    });
    port
}

fn http_answer(status: &str, body: &str) -> String {
    let head = "content-type: application/json\r\nconnection: close";
    format!("HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn no_part_of_a_secret_is_left_where_what_a_server_says_is_cut() {
    let secret = "hunter22".repeat(12);
    let reflected =
        |head: &str| head.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or_default().to_owned();
    let refusing =
        answering(move |head, _| http_answer("401 Unauthorized", &format!("{}{}", "x".repeat(290), reflected(head))));
    let failing = answering(move |head, request| {
        let error = json!({ "code": -32603, "message": format!("{}{}", "x".repeat(450), reflected(head)) });
        let body = json!({ "jsonrpc": "2.0", "id": request["id"], "error": error }).to_string();
        http_answer("200 OK", &body)
    });
    for port in [refusing.await, failing.await] {
        let Err(error) = Client::over_http(link_with(port, Key(secret.clone())), SOON).await else { panic!("{port}") };
        let told = error.to_string();
        assert!(told.contains("x*") && !told.contains("hunter"), "{told}");
    }
}

/// A server of yesterday whose every stream of events ends at once and wants to be begun again at once.
fn restless(head: &str, request: &Value) -> String {
    let info = json!({ "name": "restless", "version": "1" });
    let begun = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} }, "serverInfo": info });
    let unknown = json!({ "code": -32601, "message": "Method not found" });
    let (status, kind, body) = match request["method"].as_str() {
        _ if head.starts_with("GET ") => ("200 OK", "text/event-stream", "retry: 0\n\n".to_owned()),
        Some("initialize") => {
            let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": begun });
            ("200 OK", "application/json\r\nmcp-session-id: one", answer.to_string())
        }
        Some("server/discover") => {
            let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "error": unknown });
            ("200 OK", "application/json", answer.to_string())
        }
        _ => ("202 Accepted", "application/json", String::new()),
    };
    let head = format!("content-type: {kind}\r\nconnection: close");
    format!("HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn streams_that_end_at_once_are_not_begun_again_in_a_loop() {
    let (told, mut streams) = tokio::sync::mpsc::unbounded_channel();
    let port = answering(move |head, request| {
        if head.starts_with("GET ") {
            let _ = told.send(tokio::time::Instant::now());
        }
        restless(head, request)
    });
    let client = Client::over_http(link(port.await), SOON).await.unwrap();
    let mut times = Vec::new();
    for _ in 0..3 {
        times.push(tokio::time::timeout(SOON, streams.recv()).await.unwrap().unwrap());
    }
    // A second, and two; what a request takes on its way is no pause.
    assert!(times[2] - times[0] > Duration::from_millis(2_900), "{times:?}");
    drop(client);
}
