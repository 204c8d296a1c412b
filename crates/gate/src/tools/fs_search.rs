//! `fs.search`: lines of the workspace's files that hold a text or match a regular expression.
//!
//! Follows no link, and passes by `.git`, large files and files that are not UTF-8; it tells how many. The expression engine runs in
//! time linear to the text, and the size of the compiled expression and the length of a line are bounded.

use globset::{GlobBuilder, GlobMatcher};
use palyra_policy::Touch;
use palyra_types::{AbsolutePath, JsonError, JsonObject, ToolMetadata};
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    files::{FileError, Heed, Means, read_some},
    read,
    walk::{Met, Next, Walk},
};
use crate::{
    tool::{FileWork, IntendError, Intent, Place, Tool, ToolDefinition, Work},
    workspace::{Kind, Workspace, WorkspaceError},
};

pub(super) struct FsSearch(ToolDefinition);

impl FsSearch {
    pub(super) fn new(metadata: ToolMetadata) -> Result<Self, JsonError> {
        let schema = json!({
            "type": "object",
            "properties": {
                "pattern": { "type": "string", "minLength": 1, "maxLength": 1024, "description": "The text to look for in each line." },
                "regex": { "type": "boolean", "description": "Takes the pattern as a regular expression." },
                "ignore_case": { "type": "boolean", "description": "Takes upper and lower case as the same." },
                "path": { "type": "string", "minLength": 1, "description": "The directory or file, relative to the workspace; the workspace itself if left out." },
                "glob": { "type": "string", "minLength": 1, "maxLength": 256, "description": "Which files to look into, such as *.rs or src/**/*.rs." },
                "limit": { "type": "integer", "minimum": 1, "maximum": 100_000, "description": "The most lines to tell." }
            },
            "required": ["pattern"],
            "additionalProperties": false
        });
        let description = "Searches the files of the workspace line by line. Passes by `.git`, links, files over 4 MiB \
            and files that are not UTF-8. Of a very long line the beginning is searched; `truncated` tells of it.";
        ToolDefinition::new(metadata, description, schema).map(Self)
    }
}

impl Tool for FsSearch {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn intend(&self, args: &JsonObject, place: &Place<'_>) -> Result<Intent, IntendError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Args<'a> {
            pattern: String,
            #[serde(default)]
            regex: bool,
            #[serde(default)]
            ignore_case: bool,
            path: Option<&'a str>,
            glob: Option<String>,
            limit: Option<u32>,
        }
        let Args { pattern, regex, ignore_case, path, glob, limit } = read(args)?;
        compile(&pattern, regex, ignore_case)?;
        glob.as_deref().map(compile_glob).transpose()?;
        let found = place.workspace()?.resolve(path.unwrap_or("."))?;
        let path = match found.kind {
            Kind::Directory => found.path,
            _ => found.file()?,
        };
        Ok(Intent {
            touches: vec![Touch::Read(path.clone())],
            work: Work::Files(FileWork::Search { path, pattern, regex, ignore_case, glob, limit }),
        })
    }
}

pub(super) fn perform(
    work: &FileWork,
    start: &AbsolutePath,
    limit: Option<u32>,
    (workspace, caps, heed): Means<'_>,
) -> Result<Value, FileError> {
    let FileWork::Search { pattern, regex, ignore_case, glob, .. } = work else { return Err(FileError::Pattern) };
    let most = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX).min(caps.entries);
    let mut search = Search {
        workspace,
        heed,
        pattern: compile(pattern, *regex, *ignore_case).map_err(|_| FileError::Pattern)?,
        glob: glob.as_deref().map(compile_glob).transpose().map_err(|_| FileError::Pattern)?,
        matches: Vec::new(),
        most,
        room: caps.bytes,
        left: MOST_BYTES,
        tally: Tally::default(),
    };
    let mut walk = Walk::new(workspace, heed, DEPTH);
    let whole = match walk.from(start, &mut |met| search.visit(met)) {
        // The start was a file when it was judged; if it is none any more, opening it says so.
        Err(FileError::Workspace(WorkspaceError::NotADirectory { .. })) => {
            matches!(search.look_into(start, start.file_name())?, Next::On)
        }
        walked => walked?,
    };
    let Tally { files, binary, large, withheld, unreadable, cut } = search.tally;
    let truncated = !whole || walk.incomplete > 0 || cut > 0;
    Ok(json!({
        "path": start, "matches": search.matches, "files_searched": files, "truncated": truncated,
        "skipped": { "binary": binary, "large": large, "unreadable": unreadable },
        "withheld": withheld + walk.withheld,
    }))
}

struct Search<'a> {
    workspace: &'a Workspace,
    heed: Heed<'a>,
    pattern: Regex,
    glob: Option<GlobMatcher>,
    matches: Vec<Value>,
    /// How many lines are told at most.
    most: usize,
    /// How many bytes of lines may still be told.
    room: u64,
    /// How many bytes of files may still be read.
    left: u64,
    tally: Tally,
}

#[derive(Default)]
struct Tally {
    files: usize,
    binary: usize,
    large: usize,
    withheld: usize,
    unreadable: usize,
    /// Lines that were matched in part.
    cut: usize,
}

impl Search<'_> {
    fn visit(&mut self, met: &Met<'_>) -> Result<Next, FileError> {
        match (met.kind, met.path) {
            (Kind::Directory, _) if met.name == b".git" || met.name.ends_with(b"/.git") => Ok(Next::Past),
            (Kind::Directory, _) => Ok(Next::On),
            (Kind::File, None) => {
                self.tally.withheld += 1;
                Ok(Next::Past)
            }
            (Kind::File, Some(path)) => {
                let Ok(name) = std::str::from_utf8(met.name) else { return Ok(Next::Past) };
                if self.glob.as_ref().is_some_and(|glob| !glob.is_match(name)) {
                    return Ok(Next::Past);
                }
                if !(self.heed.may_read)(path) {
                    self.tally.withheld += 1;
                    return Ok(Next::Past);
                }
                if met.size > LARGE {
                    self.tally.large += 1;
                    return Ok(Next::Past);
                }
                match self.look_into(path, name) {
                    // A file that vanished or cannot be read does not end the search.
                    Err(FileError::Workspace(_)) => {
                        self.tally.unreadable += 1;
                        Ok(Next::Past)
                    }
                    next => next,
                }
            }
            _ => Ok(Next::Past),
        }
    }

    fn look_into(&mut self, path: &AbsolutePath, name: &str) -> Result<Next, FileError> {
        let (mut file, _) = self.workspace.open_file(path)?;
        let content = read_some(&mut file, LARGE.saturating_add(1), path, self.heed)?;
        let length = u64::try_from(content.len()).unwrap_or(u64::MAX);
        if length > LARGE {
            self.tally.large += 1;
            return Ok(Next::On);
        }
        if length > self.left {
            return Ok(Next::Enough);
        }
        self.left -= length;
        let Some(text) = String::from_utf8(content).ok().filter(|text| !text.contains('\0')) else {
            self.tally.binary += 1;
            return Ok(Next::On);
        };
        self.tally.files += 1;
        let mut since_a_look = 0;
        for (index, line) in text.lines().enumerate() {
            if since_a_look >= LONGEST_LINE {
                self.heed.go_on()?;
                since_a_look = 0;
            }
            // SECURITY: nothing stops the engine within a line, and the time it takes grows with the line and with the expression.
            let line = match line.get(..line.floor_char_boundary(LONGEST_LINE)) {
                Some(start) if start.len() < line.len() => {
                    self.tally.cut += 1;
                    start
                }
                _ => line,
            };
            since_a_look += line.len().saturating_add(LOOK_COST);
            if self.pattern.is_match(line) && !self.tell(name, index + 1, line) {
                return Ok(Next::Enough);
            }
        }
        Ok(Next::On)
    }

    /// Adds a line to the result, if there is room.
    fn tell(&mut self, name: &str, number: usize, line: &str) -> bool {
        let shown = line.char_indices().nth(LINE).and_then(|(end, _)| line.get(..end));
        let text = shown.unwrap_or(line);
        let cost = u64::try_from(name.len() + text.len()).unwrap_or(u64::MAX).saturating_add(MATCH_COST);
        if self.matches.len() >= self.most || cost > self.room {
            return false;
        }
        self.room -= cost;
        self.matches.push(json!({ "name": name, "line": number, "text": text, "cut": shown.is_some() }));
        true
    }
}

fn compile(pattern: &str, regex: bool, ignore_case: bool) -> Result<Regex, IntendError> {
    let pattern = if regex { pattern.to_owned() } else { regex::escape(pattern) };
    RegexBuilder::new(&pattern)
        .case_insensitive(ignore_case)
        .size_limit(COMPILED)
        .dfa_size_limit(COMPILED)
        .build()
        .map_err(|error| IntendError::Pattern(error.to_string()))
}

/// A glob without a slash is about the last name, at any depth.
fn compile_glob(glob: &str) -> Result<GlobMatcher, IntendError> {
    let anywhere = if glob.contains('/') { glob.to_owned() } else { format!("**/{glob}") };
    GlobBuilder::new(&anywhere)
        .literal_separator(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|error| IntendError::Glob { glob: glob.to_owned(), cause: error.kind().to_string() })
}

/// Files larger than this are passed by.
const LARGE: u64 = 4 << 20;

/// How much is read in one search.
const MOST_BYTES: u64 = 256 << 20;

/// How deep a search goes.
const DEPTH: u32 = 64;

/// How many characters of a line are told.
const LINE: usize = 400;

/// What a match takes besides its name and text.
const MATCH_COST: u64 = 48;

/// How large a compiled expression may be.
const COMPILED: usize = 1 << 20;

/// How many bytes of a line are matched, and about how many between two looks at whether to stop.
const LONGEST_LINE: usize = 64 << 10;

/// What a line counts towards the next look besides its length.
const LOOK_COST: usize = 16;
