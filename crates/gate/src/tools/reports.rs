//! `tool.list` and `daemon.status`: they tell what the daemon knows. The knowledge comes from whoever performs the call.

use palyra_types::{JsonError, JsonObject, ToolMetadata};
use serde_json::json;

use crate::tool::{IntendError, Intent, Place, Report, Tool, ToolDefinition, Work};

pub(super) struct ToolReport {
    definition: ToolDefinition,
    about: Report,
}

impl ToolReport {
    pub(super) fn tools(metadata: ToolMetadata) -> Result<Self, JsonError> {
        Self::new(metadata, Report::Tools, "Lists the tools there are, with what each needs and how it is called.")
    }

    pub(super) fn status(metadata: ToolMetadata) -> Result<Self, JsonError> {
        Self::new(
            metadata,
            Report::Status,
            "Tells the version of the daemon, how long it runs and whether all is well.",
        )
    }

    fn new(metadata: ToolMetadata, about: Report, description: &str) -> Result<Self, JsonError> {
        let schema = json!({ "type": "object", "properties": {}, "additionalProperties": false });
        Ok(Self { definition: ToolDefinition::new(metadata, description, schema)?, about })
    }
}

impl Tool for ToolReport {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn intend(&self, _: &JsonObject, _: &Place<'_>) -> Result<Intent, IntendError> {
        Ok(Intent { touches: Vec::new(), work: Work::Report { about: self.about } })
    }

    fn glances(&self) -> bool {
        true
    }
}
