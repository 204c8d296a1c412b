//! One conversation with a server: which tools it has, and calls of them.
//!
//! Guarantees: every request ends within its time; a call that is dropped is cancelled at the server; what the server asks for itself
//! (models, roots, people) is refused as not supported; an error says what the server said, shortened, with what is hidden made
//! visible and without the secrets that requests are sent with.
//! Does not: decide which tool may be called. What a server says of its tools is passed on as it is.

use std::{sync::Arc, time::Duration};

use rmcp::{
    ClientHandler, RoleClient,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig, ContentBlock,
        ElicitRequestParams, ElicitResult, ElicitationCreateRequestMethod, ErrorData, Implementation, JsonObject,
        ListRootsRequestMethod, PaginatedRequestParams, ProtocolVersion, SubscriptionFilter, Tool,
    },
    service::{
        ClientCacheConfig, ClientInitializeError, ClientLifecycleMode, ClientServiceExt, NotificationContext,
        RequestContext, RunningService, ServiceError,
    },
    transport::{DynamicTransportError, Transport, streamable_http_client::StreamableHttpError},
};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::timeout,
};

use crate::{
    fate::{Fate, Trouble},
    guard::Guarded,
    hiding::{Hiding, cut},
    http::{HttpLink, HttpTrouble},
    lines::Lines,
    pace::Pace,
};

/// A conversation with a server.
pub struct Client {
    running: RunningService<RoleClient, Handler>,
    fate: Fate,
    changes: watch::Receiver<u64>,
    about: About,
    hiding: Hiding,
}

/// What a server says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// What it calls itself.
    pub name: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// The version of the protocol that is spoken.
    pub protocol: String,
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What the server says, as it came.
    pub value: Value,
    /// Why it could not do what it was asked to, if it says so.
    pub failed: Option<String>,
}

impl Client {
    /// Begins a conversation over the standard input and output of a program.
    ///
    /// # Errors
    /// When it does not come about within this time.
    pub async fn over_pipes<R, W>((output, input): (R, W), within: Duration) -> Result<Self, ClientError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let fate = Fate::default();
        Self::begin(Lines::new(output, input, fate.clone()), fate, Hiding::default(), within).await
    }

    /// Begins a conversation over Streamable HTTP.
    ///
    /// # Errors
    /// When it does not come about within this time.
    pub async fn over_http(link: HttpLink, within: Duration) -> Result<Self, ClientError> {
        let fate = Fate::default();
        let hiding = link.hiding();
        Self::begin(link.transport(&fate), fate, hiding, within).await
    }

    async fn begin<T>(transport: T, fate: Fate, hiding: Hiding, within: Duration) -> Result<Self, ClientError>
    where
        T: Transport<RoleClient> + Send + 'static,
    {
        let (changed, changes) = watch::channel(0);
        let handler = Handler { changed: changed.clone() };
        let lifecycle = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::V_2025_11_25),
        };
        let transport = Guarded::new(transport, fate.clone());
        let serving = handler.serve_with_lifecycle(transport, lifecycle);
        let running = match timeout(within, serving).await {
            Ok(Ok(running)) => running,
            Ok(Err(error)) => return Err(refused(&error, &fate, &hiding)),
            Err(_) => {
                fate.over(Trouble::GivenUp);
                return Err(ClientError::Slow { what: "an answer to the first message", within });
            }
        };
        // Whether a tool changed must not be answered from what is remembered.
        running.set_response_cache_config(ClientCacheConfig::disabled()).await;
        let info = running.peer_info();
        let server = info.as_ref().and_then(|info| info.server_info.clone());
        let about = About {
            name: server.as_ref().map(|server| hiding.shortened(&server.name, 80)),
            version: server.as_ref().map(|server| hiding.shortened(&server.version, 40)),
            protocol: info
                .as_ref()
                .map(|info| hiding.shortened(&info.protocol_version.to_string(), 40))
                .unwrap_or_default(),
        };
        let client = Self { running, fate, changes, about, hiding };
        client.follow(changed);
        Ok(client)
    }

    /// What the server says about itself.
    #[must_use]
    pub const fn about(&self) -> &About {
        &self.about
    }

    /// Counts how often the server said that its tools have changed.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// Waits until the conversation is over, and tells why.
    pub async fn ended(&self) -> Trouble {
        self.fate.ended().await
    }

    /// Ends it.
    pub fn give_up(&self) {
        self.fate.over(Trouble::GivenUp);
    }

    /// All tools that the server has.
    ///
    /// # Errors
    /// When it does not tell within this time, or has too many, or says too much of them.
    pub async fn tools(&self, within: Duration) -> Result<Vec<Arc<Tool>>, ClientError> {
        let listing = async {
            let (mut tools, mut cursor, mut bytes) = (Vec::new(), None, 0_usize);
            for _ in 0..MOST_PAGES {
                let page = self.running.list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor))).await;
                let page = page.map_err(|error| self.failed(error))?;
                let page_bytes = serde_json::to_vec(&page.tools).map_err(|_| ClientError::Senseless)?.len();
                bytes = bytes.saturating_add(page_bytes);
                if bytes > MOST_LIST_BYTES {
                    return Err(ClientError::LongList);
                }
                tools.extend(page.tools.into_iter().map(Arc::new));
                cursor = page.next_cursor;
                match cursor {
                    None if tools.len() <= MOST_TOOLS => return Ok(tools),
                    Some(_) if tools.len() <= MOST_TOOLS => {}
                    _ => break,
                }
            }
            Err(ClientError::TooManyTools)
        };
        let slow = ClientError::Slow { what: "the list of tools", within };
        timeout(within, listing).await.unwrap_or(Err(slow))
    }

    /// Calls a tool. Whoever drops this cancels the call.
    ///
    /// # Errors
    /// When the server does not answer within this time, says no, or asks for something that nobody gives it.
    pub async fn call(&self, tool: &str, arguments: JsonObject, within: Duration) -> Result<Answer, ClientError> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let slow = ClientError::Slow { what: "an answer to the call", within };
        let response = timeout(within, self.running.call_tool_once(params)).await.map_err(|_| slow)?;
        match response.map_err(|error| self.failed(error))? {
            CallToolResponse::Complete(result) => answer(result, &self.hiding),
            CallToolResponse::InputRequired(_) => Err(ClientError::AsksBack),
            CallToolResponse::Task(_) => Err(ClientError::Later),
            _ => Err(ClientError::Senseless),
        }
    }

    /// Servers of today tell of changes to those who asked, and are asked again when they stop; those of yesterday tell everybody.
    fn follow(&self, changed: watch::Sender<u64>) {
        let Some(info) = self.running.peer_info() else { return };
        let tells = info.capabilities.tools.as_ref().and_then(|tools| tools.list_changed) == Some(true);
        if !tells || info.protocol_version != ProtocolVersion::V_2026_07_28 {
            return;
        }
        let (peer, fate) = (self.running.peer().clone(), self.fate.clone());
        tokio::spawn(async move {
            let following = async {
                let pace = Pace::default();
                let mut is_first = true;
                loop {
                    // SECURITY: a server that ends every subscription at once would have it begun in a loop.
                    pace.turn().await;
                    let filter = SubscriptionFilter::builder().tools_list_changed().build();
                    let Ok(mut subscription) = peer.listen(filter).await else { continue };
                    // What changed while nobody listened was told to nobody.
                    if !std::mem::replace(&mut is_first, false) {
                        changed.send_modify(|count| *count += 1);
                    }
                    while let Ok(Some(_)) = subscription.next().await {
                        changed.send_modify(|count| *count += 1);
                    }
                }
            };
            tokio::select! {
                () = following => {}
                _ = fate.ended() => {}
            }
        });
    }

    fn failed(&self, error: ServiceError) -> ClientError {
        let hiding = &self.hiding;
        match (error, self.fate.known()) {
            (ServiceError::McpError(error), _) => ClientError::Said(hiding.shortened(&error.message, MOST_SAID)),
            (_, Some(trouble)) => ClientError::Over(trouble),
            (ServiceError::TransportSend(error), None) => {
                ClientError::Over(Trouble::Failed(on_the_way(&error, hiding)))
            }
            (ServiceError::TransportClosed, None) => ClientError::Over(Trouble::Closed),
            (ServiceError::UnexpectedResponse, None) => ClientError::Senseless,
            (error, None) => ClientError::Over(Trouble::Failed(hiding.shortened(&error.to_string(), MOST_SAID))),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.fate.over(Trouble::GivenUp);
    }
}

fn answer(result: CallToolResult, hiding: &Hiding) -> Result<Answer, ClientError> {
    // Which kind of answer it is, is between the server and this client.
    let mut result = result;
    result.result_type = None;
    let said = || {
        let first = result.content.iter().find_map(ContentBlock::as_text);
        let first = first.map(|text| hiding.shortened(&text.text, MOST_SAID));
        first.unwrap_or_else(|| "the server says that it failed, and no more".to_owned())
    };
    let failed = (result.is_error == Some(true)).then(said);
    let value = serde_json::to_value(&result).map_err(|_| ClientError::Senseless)?;
    Ok(Answer { value, failed })
}

fn refused(error: &ClientInitializeError, fate: &Fate, hiding: &Hiding) -> ClientError {
    match (error, fate.known()) {
        (_, Some(trouble)) if trouble != Trouble::Closed => ClientError::Over(trouble),
        (ClientInitializeError::JsonRpcError(error), _) => {
            ClientError::Said(hiding.shortened(&error.message, MOST_SAID))
        }
        (ClientInitializeError::NoCompatibleProtocolVersion { .. }, _) => ClientError::OtherProtocol,
        (ClientInitializeError::LegacyFallbackFailed { fallback, .. }, _) => refused(fallback, fate, hiding),
        (ClientInitializeError::TransportError { error, .. }, _) => {
            ClientError::Over(Trouble::Failed(on_the_way(error, hiding)))
        }
        (ClientInitializeError::ConnectionClosed(_), _) => ClientError::Over(Trouble::Closed),
        (error, _) => ClientError::Over(Trouble::Failed(hiding.shortened(&chain(error), MOST_SAID))),
    }
}

/// What went wrong on the way, in our own words where there are any.
fn on_the_way(error: &DynamicTransportError, hiding: &Hiding) -> String {
    let error: &(dyn std::error::Error + 'static) = error.error.as_ref();
    let mut next = Some(error);
    while let Some(current) = next {
        if let Some(StreamableHttpError::Client(trouble)) = current.downcast_ref::<StreamableHttpError<HttpTrouble>>() {
            return cut(&trouble.to_string(), MOST_SAID);
        }
        next = current.source();
    }
    hiding.shortened(&chain(error), MOST_SAID)
}

/// An error and what it comes from, in a line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// What the daemon answers to a server that asks for something itself.
struct Handler {
    changed: watch::Sender<u64>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("palyra", env!("CARGO_PKG_VERSION")))
    }

    #[expect(deprecated, reason = "it is refused, not served")]
    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListRootsRequestMethod>())
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Err(ErrorData::method_not_found::<ElicitationCreateRequestMethod>())
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.send_modify(|count| *count += 1);
    }
}

/// Why a server could not be spoken with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The conversation is over.
    #[error(transparent)]
    Over(#[from] Trouble),
    /// Something did not come in time.
    #[error("the server did not send {what} within {} seconds", .within.as_millis().div_ceil(1_000))]
    Slow {
        /// What did not come.
        what: &'static str,
        /// The time it had.
        within: Duration,
    },
    /// The server says no.
    #[error("the server says: {0}")]
    Said(String),
    /// An answer to another question.
    #[error("the server's answer makes no sense")]
    Senseless,
    /// No version of the protocol that both speak.
    #[error("the server speaks no version of the protocol that is spoken here")]
    OtherProtocol,
    /// More tools than anybody could look at.
    #[error("the server has more than {MOST_TOOLS} tools")]
    TooManyTools,
    /// More said of tools than anybody could read.
    #[error("the server's list of tools has more than {MOST_LIST_BYTES} bytes")]
    LongList,
    /// The server wants something from whoever called.
    #[error("the server asks for something before it goes on, which is not supported")]
    AsksBack,
    /// The server wants to be asked again later.
    #[error("the server wants to answer later, which is not supported")]
    Later,
}

impl ClientError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Over(trouble) => trouble.advice(),
            Self::Slow { .. } => {
                "give it more time with `call_seconds` or `start_seconds`, or look at what the server says on its standard error"
            }
            Self::Said(_) => "do what the server says, or look into its documentation",
            Self::Senseless => "ask whoever made the server",
            Self::OtherProtocol => "take a version of the server that speaks 2025-11-25 or 2026-07-28",
            Self::TooManyTools | Self::LongList => "configure the server to have fewer tools",
            Self::AsksBack | Self::Later => "give it everything at once, if the tool's arguments allow that",
        }
    }
}

const MOST_SAID: usize = 500;

const MOST_PAGES: usize = 100;

/// The most tools of a server.
pub const MOST_TOOLS: usize = 1_000;

/// The longest list of tools, all its pages together.
pub const MOST_LIST_BYTES: usize = 16 << 20;
