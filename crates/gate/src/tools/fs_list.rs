//! `fs.list`: what is in a directory of the workspace, and below it if asked. Links are told, not followed.

use palyra_policy::Touch;
use palyra_types::{AbsolutePath, JsonError, JsonObject, ToolMetadata};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    files::{FileError, Means, tell_name, tell_size},
    read,
    walk::{Next, Walk},
};
use crate::{
    tool::{FileWork, IntendError, Intent, Place, Tool, ToolDefinition, Work},
    workspace::Kind,
};

pub(super) struct FsList(ToolDefinition);

impl FsList {
    pub(super) fn new(metadata: ToolMetadata) -> Result<Self, JsonError> {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "description": "The directory, relative to the workspace; the workspace itself if left out." },
                "depth": { "type": "integer", "minimum": 1, "maximum": 32, "description": "How many levels to list; 1 if left out." },
                "limit": { "type": "integer", "minimum": 1, "maximum": 100_000, "description": "The most entries to tell." }
            },
            "additionalProperties": false
        });
        let description = "Lists a directory of the workspace, sorted by name. Links are told and not followed. \
            Names that are not UTF-8 come as `name_base64`.";
        ToolDefinition::new(metadata, description, schema).map(Self)
    }
}

impl Tool for FsList {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn intend(&self, args: &JsonObject, place: &Place<'_>) -> Result<Intent, IntendError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Args<'a> {
            path: Option<&'a str>,
            depth: Option<u32>,
            limit: Option<u32>,
        }
        let Args { path, depth, limit } = read(args)?;
        let path = place.workspace()?.resolve(path.unwrap_or("."))?.directory()?;
        let depth = depth.unwrap_or(1);
        Ok(Intent {
            touches: vec![Touch::Read(path.clone())],
            work: Work::Files(FileWork::List { path, depth, limit }),
        })
    }
}

pub(super) fn perform(
    path: &AbsolutePath,
    depth: u32,
    limit: Option<u32>,
    (workspace, caps, heed): Means<'_>,
) -> Result<Value, FileError> {
    let most = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX).min(caps.entries);
    let mut entries: Vec<Value> = Vec::new();
    let mut room = caps.bytes;
    let mut walk = Walk::new(workspace, heed, depth);
    let whole = walk.from(path, &mut |met| {
        let cost = u64::try_from(met.name.len()).unwrap_or(u64::MAX).saturating_add(ENTRY_COST);
        if entries.len() >= most || cost > room {
            return Ok(Next::Enough);
        }
        room -= cost;
        let mut entry = Map::new();
        tell_name(&mut entry, "name", met.name);
        entry.insert("kind".to_owned(), met.kind.as_str().into());
        if met.kind == Kind::File {
            entry.insert("size".to_owned(), tell_size(met.size).into());
        }
        entries.push(entry.into());
        Ok(Next::On)
    })?;
    let truncated = !whole || walk.incomplete > 0;
    Ok(json!({ "path": path, "entries": entries, "truncated": truncated, "withheld": walk.withheld }))
}

/// What an entry takes besides its name.
const ENTRY_COST: u64 = 48;
