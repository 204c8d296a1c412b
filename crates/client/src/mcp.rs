//! What can be asked of a daemon about MCP servers behind the gateway.

use hyper::Method;
use palyra_api::mcp::{McpServer, McpServers, McpSettings, PinMcpTools};

use crate::{
    client::{Ask, Client, Wait},
    error::ClientError,
    query::segment,
};

/// # Errors
/// Every method fails when the daemon cannot be asked, refuses, or answers something else than the wire types say.
impl Client {
    /// The servers there are, without what they say of their tools.
    ///
    /// # Errors
    /// See above.
    pub async fn mcp_servers(&self) -> Result<McpServers, ClientError> {
        self.ask(Ask::get("/api/v1/mcp")).await
    }

    /// One server, with what it says of its tools.
    ///
    /// # Errors
    /// See above.
    pub async fn mcp_server(&self, name: &str) -> Result<McpServer, ClientError> {
        self.ask(Ask::get(place(name))).await
    }

    /// Adds a server. It is started, and nothing of it is offered before it is pinned.
    ///
    /// # Errors
    /// See above.
    pub async fn add_mcp_server(&self, name: &str, settings: &McpSettings) -> Result<McpServer, ClientError> {
        self.ask(Ask::new(Method::PUT, place(name)).json(settings)?.wait(Wait::Long)).await
    }

    /// Lets definitions of tools count that somebody has seen.
    ///
    /// # Errors
    /// See above.
    pub async fn pin_mcp_tools(&self, name: &str, pins: &PinMcpTools) -> Result<McpServer, ClientError> {
        self.ask(Ask::post(format!("{}/pins", place(name))).json(pins)?.wait(Wait::Long)).await
    }

    /// Removes a server, and what is pinned of it.
    ///
    /// # Errors
    /// See above.
    pub async fn remove_mcp_server(&self, name: &str) -> Result<(), ClientError> {
        self.tell(Ask::new(Method::DELETE, place(name)).wait(Wait::Long)).await
    }
}

fn place(name: &str) -> String {
    format!("/api/v1/mcp/{}", segment(name))
}
