//! What MCP clients ask, as far as it is described here: the protocol says the rest.

use palyra_types::WorkspaceName;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::schema;

/// A message of JSON-RPC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AskedOfMcp {
    /// `2.0`.
    pub jsonrpc: String,
    /// What is asked for, such as `tools/call`.
    pub method: String,
}

/// Where calls work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct McpQuery {
    /// The configured workspace that calls work in. Where there is only one, it is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::Name>)]
    pub workspace: Option<WorkspaceName>,
}
