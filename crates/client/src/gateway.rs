//! The MCP server of a daemon, for whoever hands messages on and reads none of them.
//!
//! Guarantees: a message is sent once; what is answered comes as it was said, whole or message by message.
//! Does not: know the protocol. What stands in the head is for whoever does.

use std::{collections::VecDeque, fmt, sync::Arc};

use http_body_util::BodyExt;
use hyper::{
    Method,
    body::{Bytes, Incoming},
};
use palyra_types::WorkspaceName;

use crate::{
    client::{Ask, Client, Wait, is_of},
    connection::Connections,
    error::ClientError,
    query::with_query,
    sse::Parser,
};

/// What is said in the head of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpHead {
    /// Where calls work.
    pub workspace: Option<WorkspaceName>,
    /// The headers of the protocol.
    pub headers: Vec<(&'static str, String)>,
}

/// What a message was answered with.
pub struct McpAnswer {
    /// The status.
    pub status: u16,
    /// The session that it began.
    pub session: Option<String>,
    body: Body,
}

enum Body {
    Whole(Option<String>),
    Events { body: Incoming, connections: Arc<Connections>, parser: Parser, come: VecDeque<String> },
}

impl Client {
    /// Sends a message.
    ///
    /// # Errors
    /// When the daemon cannot be asked.
    pub async fn mcp_send(&self, head: &McpHead, message: Vec<u8>) -> Result<McpAnswer, ClientError> {
        self.mcp(Method::POST, head, Some(message.into())).await
    }

    /// Listens to what a session is told besides answers.
    ///
    /// # Errors
    /// When the daemon cannot be asked.
    pub async fn mcp_listen(&self, head: &McpHead) -> Result<McpAnswer, ClientError> {
        self.mcp(Method::GET, head, None).await
    }

    /// Ends a session.
    ///
    /// # Errors
    /// When the daemon cannot be asked.
    pub async fn mcp_end(&self, head: &McpHead) -> Result<McpAnswer, ClientError> {
        self.mcp(Method::DELETE, head, None).await
    }

    async fn mcp(&self, method: Method, head: &McpHead, body: Option<Bytes>) -> Result<McpAnswer, ClientError> {
        #[derive(serde::Serialize)]
        struct Query<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            workspace: Option<&'a WorkspaceName>,
        }
        let path = with_query("/mcp", &Query { workspace: head.workspace.as_ref() });
        let ask = Ask::new(method, path).accept("application/json, text/event-stream").wait(Wait::Long);
        let ask = ask.headers(head.headers.clone());
        let ask = match body {
            Some(body) => ask.bytes(body),
            None => ask,
        };
        let (response, connection) = self.send(ask).await?;
        let status = response.status().as_u16();
        let session = response.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        if is_of(&response, "text/event-stream") {
            let (parser, come) = (Parser::new(MAX_MESSAGE), VecDeque::new());
            let body =
                Body::Events { body: response.into_body(), connections: Arc::clone(&self.connections), parser, come };
            return Ok(McpAnswer { status, session, body });
        }
        let (_, whole) = self.finish(response, connection).await?;
        let whole = String::from_utf8(whole.into()).map_err(|error| ClientError::Protocol(error.to_string()))?;
        Ok(McpAnswer { status, session, body: Body::Whole(Some(whole).filter(|whole| !whole.is_empty())) })
    }
}

impl McpAnswer {
    /// The next message, or nothing once there are no more.
    ///
    /// # Errors
    /// When the connection is lost.
    pub async fn next(&mut self) -> Result<Option<String>, ClientError> {
        match &mut self.body {
            Body::Whole(whole) => Ok(whole.take()),
            Body::Events { body, connections, parser, come } => loop {
                if let Some(message) = come.pop_front() {
                    return Ok(Some(message));
                }
                let Some(frame) = body.frame().await else { return Ok(None) };
                let frame = frame.map_err(|error| connections.lost(&error))?;
                if let Some(data) = frame.data_ref() {
                    let messages = parser.push(data).map_err(|error| ClientError::Protocol(error.to_string()))?;
                    come.extend(messages.into_iter().map(|(message, _)| message.data));
                }
            },
        }
    }
}

impl fmt::Debug for McpAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpAnswer").field("status", &self.status).finish_non_exhaustive()
    }
}

/// How large one message of a stream may be.
const MAX_MESSAGE: usize = 128 * 1024 * 1024;
