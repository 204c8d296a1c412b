//! `net.connect`: a connection that a running call wants and nobody has decided about yet.
//!
//! It is no tool that can be called: the daemon proposes it on behalf of a call in a sandbox with strict egress, so that a person is asked in
//! the same way, and with the same care, as about anything else. What runs when they say yes is nothing but that answer.

use palyra_policy::Touch;
use palyra_types::{HostName, JsonError, JsonObject, ToolMetadata};
use serde::Deserialize;
use serde_json::json;

use super::read;
use crate::tool::{HostPort, IntendError, Intent, Place, Tool, ToolDefinition, Work};

/// Its name.
pub(crate) const NET_CONNECT: &str = "net.connect";

pub(super) struct NetConnect(ToolDefinition);

impl NetConnect {
    pub(super) fn new(metadata: ToolMetadata) -> Result<Self, JsonError> {
        let schema = json!({
            "type": "object",
            "properties": {
                "host": { "type": "string", "minLength": 1, "maxLength": 255 },
                "port": { "type": "integer", "minimum": 1, "maximum": 65535 }
            },
            "required": ["host", "port"],
            "additionalProperties": false
        });
        let description = "Lets a program that runs in a sandbox connect to a host. Asked by the daemon, never called.";
        Ok(Self(ToolDefinition::new(metadata, description, schema)?))
    }
}

#[derive(Deserialize)]
struct Arguments<'a> {
    host: &'a str,
    port: u16,
}

impl Tool for NetConnect {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn intend(&self, args: &JsonObject, _: &Place<'_>) -> Result<Intent, IntendError> {
        let Arguments { host, port } = read(args)?;
        let host = HostName::parse(host)?;
        let touches = vec![Touch::Connect(host.clone(), port)];
        Ok(Intent { touches, work: Work::Connect(HostPort { host, port }) })
    }

    fn glances(&self) -> bool {
        true
    }

    fn is_internal(&self) -> bool {
        true
    }
}
