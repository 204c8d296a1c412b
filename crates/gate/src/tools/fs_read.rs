//! `fs.read`: a file of the workspace, or a part of it.
//!
//! Text comes back as text if it is UTF-8, and as base64 if not. A part that would end inside a character ends before it.

use std::io::{Seek, SeekFrom};

use base64::{Engine, engine::general_purpose::STANDARD};
use palyra_policy::Touch;
use palyra_types::{AbsolutePath, JsonError, JsonObject, Sha256Digest, ToolMetadata};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    files::{FileError, Means, read_some, tell_size},
    read,
};
use crate::tool::{FileWork, IntendError, Intent, Place, Tool, ToolDefinition, Work};

pub(super) struct FsRead(ToolDefinition);

impl FsRead {
    pub(super) fn new(metadata: ToolMetadata) -> Result<Self, JsonError> {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "description": "The file, relative to the workspace." },
                "offset": { "type": "integer", "minimum": 0, "description": "The first byte to read; 0 if left out." },
                "limit": { "type": "integer", "minimum": 1, "description": "The most bytes to read." }
            },
            "required": ["path"],
            "additionalProperties": false
        });
        let description = "Reads a file of the workspace. Content that is not UTF-8 comes as base64. \
            `truncated` tells that more follows; `next_offset` is where.";
        ToolDefinition::new(metadata, description, schema).map(Self)
    }
}

impl Tool for FsRead {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn intend(&self, args: &JsonObject, place: &Place<'_>) -> Result<Intent, IntendError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Args<'a> {
            path: &'a str,
            #[serde(default)]
            offset: u64,
            limit: Option<u64>,
        }
        let Args { path, offset, limit } = read(args)?;
        let path = place.workspace()?.resolve(path)?.file()?;
        Ok(Intent {
            touches: vec![Touch::Read(path.clone())],
            work: Work::Files(FileWork::Read { path, offset, limit }),
        })
    }
}

pub(super) fn perform(
    path: &AbsolutePath,
    offset: u64,
    limit: Option<u64>,
    (workspace, caps, heed): Means<'_>,
) -> Result<Value, FileError> {
    let (mut file, status) = workspace.open_file(path)?;
    let size = tell_size(u64::try_from(status.st_size).unwrap_or_default());
    file.seek(SeekFrom::Start(offset)).map_err(|error| FileError::io(path, &error))?;
    let most = limit.unwrap_or(u64::MAX).min(caps.bytes);
    // One byte more than is told, to know whether there is more.
    let mut content = read_some(&mut file, most.saturating_add(1), path, heed)?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let truncated = content.len() > most;
    content.truncate(most);
    if truncated {
        end_before_a_cut_character(&mut content);
    }
    let (bytes, sha256) = (content.len(), Sha256Digest::of(&content));
    let next_offset = truncated.then(|| offset.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX)));
    let (content, encoding) = match String::from_utf8(content) {
        Ok(text) => (text, "utf-8"),
        Err(error) => (STANDARD.encode(error.as_bytes()), "base64"),
    };
    Ok(json!({
        "path": path, "offset": offset, "bytes": bytes, "size": size, "truncated": truncated,
        "next_offset": next_offset, "sha256": sha256, "encoding": encoding, "content": content,
    }))
}

/// Text that was cut inside of a character ends before it.
pub(super) fn end_before_a_cut_character(content: &mut Vec<u8>) {
    if let Err(error) = std::str::from_utf8(content)
        && error.error_len().is_none()
        && error.valid_up_to() > 0
    {
        content.truncate(error.valid_up_to());
    }
}
