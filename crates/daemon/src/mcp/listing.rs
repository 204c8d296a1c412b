//! Tools, as MCP clients are told of them.
//!
//! Guarantees: a tool is listed if policy would not refuse it to this caller whatever its arguments, in an order that stays the same, under
//! a name that all clients can spell and that leads back to it alone; what is said about it follows from what it can do. Listing permits
//! nothing: each call is decided on its own.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use palyra_gate::ToolDefinition;
use palyra_types::{Sha256Digest, ToolCapability, ToolName, json::digest_of};
use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

use super::message::RpcError;
use crate::{
    app::App,
    caller::Caller,
    compat::offering::{function_name, is_function_of},
};

/// A page of the tools, behind the one that a cursor names.
///
/// # Errors
/// When the cursor is none of ours.
pub fn page(app: &App, caller: &Caller, cursor: Option<&str>) -> Result<Map<String, Value>, RpcError> {
    let behind = cursor.map(read_cursor).transpose()?;
    let mut tools = offered(app, caller);
    if let Some(behind) = behind {
        tools.retain(|tool| *tool.name > *behind);
    }
    let more = tools.len() > PAGE;
    tools.truncate(PAGE);
    let mut result = Map::new();
    if let (true, Some(last)) = (more, tools.last()) {
        result.insert("nextCursor".to_owned(), json!(BASE64_URL_SAFE_NO_PAD.encode(last.name.as_bytes())));
    }
    result.insert("tools".to_owned(), serde_json::to_value(tools).unwrap_or_default());
    Ok(result)
}

/// The digest of everything that a caller is told about tools, to see whether it has changed.
#[must_use]
pub fn digest(app: &App, caller: &Caller) -> Option<Sha256Digest> {
    digest_of(&offered(app, caller)).ok()
}

/// The tool that a client means: by the name that it was told, or by its own.
#[must_use]
pub fn meant(app: &App, name: &str) -> Option<ToolName> {
    let registry = app.gate.registry();
    let told = registry.definitions().map(ToolDefinition::name).find(|tool| is_function_of(tool, name));
    told.cloned().or_else(|| ToolName::parse(name).ok().filter(|tool| registry.definition(tool).is_ok()))
}

/// The name that is nearest to one that is no tool's.
#[must_use]
pub fn nearest(app: &App, name: &str) -> Option<String> {
    let known: Vec<String> = app.gate.registry().definitions().map(|one| function_name(one.name())).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    palyra_types::word::nearest(name, &known).map(str::to_owned)
}

/// What a caller is offered, by name.
fn offered(app: &App, caller: &Caller) -> Vec<Tool> {
    let petitioner = caller.petitioner();
    let registry = app.gate.registry();
    let open = registry.definitions().filter(|one| app.gate.could(&petitioner, one.metadata()));
    let mut tools: Vec<Tool> = open.map(|one| told(app, one)).collect();
    tools.sort_by(|one, other| one.name.cmp(&other.name));
    tools
}

/// A tool as it is told. Of one that stands behind the gateway, title and output schema are what its server says and somebody has pinned; what it
/// may do is for us to say.
fn told(app: &App, definition: &ToolDefinition) -> Tool {
    let mut schema = definition.input_schema().as_object().cloned().unwrap_or_default();
    without_headers(&mut schema);
    let tool = Tool::new(function_name(definition.name()), definition.description().to_owned(), schema);
    let mut tool = tool.with_annotations(annotations(definition));
    if let Some(pinned) = app.upstreams.told(definition.name()) {
        tool.title.clone_from(&pinned.title);
        tool.output_schema.clone_from(&pinned.output_schema);
    }
    tool
}

/// Takes out which arguments a server elsewhere wants in headers as well: that is between it and the gateway.
fn without_headers(schema: &mut Map<String, Value>) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    for property in properties.values_mut().filter_map(Value::as_object_mut) {
        property.remove("x-mcp-header");
        without_headers(property);
    }
}

/// What a tool may do to its surroundings, from its capabilities. What is not known is said as the worse.
fn annotations(definition: &ToolDefinition) -> ToolAnnotations {
    use ToolCapability::{FilesystemWrite, Network, ProcessExec, StateWrite};
    let has = |one: &ToolCapability| definition.metadata().capabilities.contains(one);
    let reads = ![ProcessExec, Network, FilesystemWrite, StateWrite].iter().any(has);
    let annotations = ToolAnnotations::new().read_only(reads).open_world([ProcessExec, Network].iter().any(has));
    if reads { annotations } else { annotations.destructive(true) }
}

fn read_cursor(cursor: &str) -> Result<String, RpcError> {
    let read = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    read.filter(|name| name.len() <= LONGEST_NAME)
        .ok_or_else(|| RpcError::invalid_params("this cursor was not given out here"))
}

/// How many tools are told at once.
const PAGE: usize = 250;

const LONGEST_NAME: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_name() {
        let cursor = BASE64_URL_SAFE_NO_PAD.encode("fs_read");
        assert_eq!(read_cursor(&cursor), Ok("fs_read".to_owned()));
        for wrong in [
            "?",
            "a b",
            "\u{e4}",
            &BASE64_URL_SAFE_NO_PAD.encode([0xff]),
            &BASE64_URL_SAFE_NO_PAD.encode("x".repeat(65)),
        ] {
            assert!(read_cursor(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn arguments_are_wanted_in_no_header_here() {
        let schema = json!({ "type": "object", "properties": { "a": { "type": "string", "x-mcp-header": "A",
            "properties": { "b": { "x-mcp-header": "B" } } } } });
        let Value::Object(mut schema) = schema else { return };
        without_headers(&mut schema);
        assert_eq!(Value::Object(schema).to_string().matches("x-mcp-header").count(), 0);
    }
}
