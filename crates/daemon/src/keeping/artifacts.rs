//! `artifact.put`, `artifact.get`, `artifact.list`, `artifact.delete`: files that were made, kept by content.
//!
//! Guarantees: a call reaches the artifacts of the scope that policy decided about, and no others; what is fetched is what was kept. A content
//! comes and goes in arguments and answers, as text or in base 64, so its size is bounded by theirs; long ones are fetched in parts.
//! Does not: look into a content, or believe its media type.

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_STANDARD};
use palyra_gate::{Asker, IntendError, Performed, Performing, Service, ServiceIntent, ServiceOperation, ServiceOrder};
use palyra_notebook::{
    ArtifactError, ArtifactId, ArtifactStore, Content, MediaType, MemoryScope, NewArtifact, artifacts::MOST_NAME_CHARS,
};
use palyra_types::{Action, JsonObject};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{blocking, read, read_again, scope, unknown_operation};

/// The tools of the artifacts.
pub fn operations(store: Arc<ArtifactStore>) -> Vec<ServiceOperation> {
    let service: Arc<dyn Service> = Arc::new(Artifacts { store });
    let schemas = [
        ("artifact.put", PUT, put_schema()),
        ("artifact.get", GET, get_schema()),
        ("artifact.list", LIST, list_schema()),
        ("artifact.delete", DELETE, delete_schema()),
    ];
    let operation = |(tool, description, schema)| {
        let service = Arc::clone(&service);
        ServiceOperation { tool, description, schema, service }
    };
    schemas.map(operation).into()
}

struct Artifacts {
    store: Arc<ArtifactStore>,
}

impl Service for Artifacts {
    fn name(&self) -> &str {
        "artifacts"
    }

    fn intend(&self, operation: &str, args: &JsonObject, asker: Asker<'_>) -> Result<ServiceIntent, IntendError> {
        let one = |action, said: Option<&str>| scope::intent(action, &[scope::meant(said, asker)?]);
        match operation {
            "artifact.put" => {
                let put: Put = read(args)?;
                put.bytes()?;
                put.media_type()?;
                one(Action::ArtifactPut, put.scope.as_deref())
            }
            "artifact.get" => one(Action::ArtifactGet, read::<Get>(args)?.scope.as_deref()),
            "artifact.list" => one(Action::ArtifactList, read::<List>(args)?.scope.as_deref()),
            "artifact.delete" => {
                let Named { id, scope: said } = read(args)?;
                let scope = scope::meant(said.as_deref(), asker)?;
                self.check_is_there(id, &scope, asker)?;
                scope::intent(Action::ArtifactDelete, &[scope])
            }
            other => Err(IntendError::Shape(format!("the artifacts do not know `{other}`"))),
        }
    }

    // Deleting looks into the database first.
    fn glances(&self, operation: &str) -> bool {
        operation != "artifact.delete"
    }

    fn perform(self: Arc<Self>, order: ServiceOrder) -> Performing {
        Box::pin(async move { blocking(move || self.perform_now(&order)).await.unwrap_or_else(|failed| failed) })
    }
}

impl Artifacts {
    fn perform_now(&self, order: &ServiceOrder) -> Result<Performed, Performed> {
        let (args, scopes) = (&order.proposal.args, scope::decided(order));
        let [scope] = scopes.as_slice() else {
            return Err(Performed::failed("the call is about no scope", "propose it again"));
        };
        match order.work.operation.as_str() {
            "artifact.put" => self.put(&read_again(args)?, scope, &order.proposal.principal.to_string()),
            "artifact.get" => self.get(&read_again(args)?, scope),
            "artifact.list" => self.list(&read_again(args)?, scope),
            "artifact.delete" => self.delete(&read_again(args)?, scope),
            other => Err(unknown_operation(other)),
        }
    }

    fn put(&self, put: &Put, scope: &MemoryScope, by: &str) -> Result<Performed, Performed> {
        let unfit = |error: IntendError| Performed::failed(error.to_string(), error.advice());
        let (bytes, media_type) = (put.bytes().map_err(unfit)?, put.media_type().map_err(unfit)?);
        let new = NewArtifact { scope, name: &put.name, media_type: &media_type, bytes: &bytes, by };
        let artifact = self.store.put(&new).map_err(|error| failed(&error))?;
        Ok(Performed::by_the_daemon(json!(artifact)))
    }

    fn get(&self, get: &Get, scope: &MemoryScope) -> Result<Performed, Performed> {
        self.find(get.id, scope)?;
        let offset = get.offset.unwrap_or_default();
        let end = offset.saturating_add(get.limit.unwrap_or(MOST_FETCHED).min(MOST_FETCHED));
        let found = self.store.get(get.id, Some(offset..end)).map_err(|error| failed(&error))?;
        let Content { artifact, mut bytes } = found.ok_or_else(|| unknown(get.id))?;
        // Text that is cut inside of a character ends before it.
        if let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
            && error.valid_up_to() > 0
        {
            bytes.truncate(error.valid_up_to());
        }
        let next = offset.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let next_offset = (next < artifact.size).then_some(next);
        let (content, encoding) = match String::from_utf8(bytes) {
            Ok(text) => (text, "utf-8"),
            Err(error) => (BASE64_STANDARD.encode(error.as_bytes()), "base64"),
        };
        Ok(Performed::by_the_daemon(json!({
            "artifact": artifact, "offset": offset, "next_offset": next_offset, "encoding": encoding, "content": content,
        })))
    }

    fn list(&self, list: &List, scope: &MemoryScope) -> Result<Performed, Performed> {
        let page = self.store.list(scope, list.after, list.limit.unwrap_or(LISTED)).map_err(|error| failed(&error))?;
        Ok(Performed::by_the_daemon(json!({ "artifacts": page.items, "next": page.next })))
    }

    fn delete(&self, named: &Named, scope: &MemoryScope) -> Result<Performed, Performed> {
        self.find(named.id, scope)?;
        self.store.delete(named.id).map_err(|error| failed(&error))?;
        Ok(Performed::by_the_daemon(json!({ "deleted": named.id, "scope": scope })))
    }

    /// Refuses what is not there, so that nobody is asked about it.
    // SECURITY: whether it is there is said only of one's own scopes: policy has not decided about the others by now.
    fn check_is_there(&self, id: ArtifactId, scope: &MemoryScope, asker: Asker<'_>) -> Result<(), IntendError> {
        if !scope::is_own(scope, asker) {
            return Ok(());
        }
        let refused = |message: String, help: &'static str| IntendError::Service { message, help };
        match self.store.about(id) {
            Ok(Some(artifact)) if artifact.scope == *scope => Ok(()),
            Ok(_) => Err(refused(missing(id), THERE_ARE)),
            Err(error) => Err(refused(error.to_string(), error.advice())),
        }
    }

    // SECURITY: an id of another scope is as unknown as one that never was.
    fn find(&self, id: ArtifactId, scope: &MemoryScope) -> Result<(), Performed> {
        let known = self.store.about(id).map_err(|error| failed(&error))?;
        known.filter(|artifact| artifact.scope == *scope).map(drop).ok_or_else(|| unknown(id))
    }
}

fn failed(error: &ArtifactError) -> Performed {
    Performed::failed(error.to_string(), error.advice())
}

fn unknown(id: ArtifactId) -> Performed {
    Performed::failed(missing(id), THERE_ARE)
}

fn missing(id: ArtifactId) -> String {
    format!("there is no artifact {id} in this scope")
}

#[derive(Deserialize)]
struct Put {
    name: String,
    media_type: Option<String>,
    text: Option<String>,
    base64: Option<String>,
    scope: Option<String>,
}

impl Put {
    fn bytes(&self) -> Result<Vec<u8>, IntendError> {
        match (&self.text, &self.base64) {
            (Some(text), None) => Ok(text.clone().into_bytes()),
            (None, Some(encoded)) => BASE64_STANDARD.decode(encoded).map_err(|_| IntendError::NotBase64),
            _ => Err(IntendError::Service {
                message: "a content is given as `text` or as `base64`".to_owned(),
                help: "give one of the two",
            }),
        }
    }

    fn media_type(&self) -> Result<MediaType, IntendError> {
        let plain = if self.text.is_some() { "text/plain; charset=utf-8" } else { "application/octet-stream" };
        MediaType::parse(self.media_type.as_deref().unwrap_or(plain))
            .map_err(|error| IntendError::Service { message: error.to_string(), help: error.advice() })
    }
}

#[derive(Deserialize)]
struct Get {
    id: ArtifactId,
    scope: Option<String>,
    offset: Option<u64>,
    limit: Option<u64>,
}

#[derive(Deserialize)]
struct List {
    scope: Option<String>,
    after: Option<ArtifactId>,
    limit: Option<usize>,
}

#[derive(Deserialize)]
struct Named {
    id: ArtifactId,
    scope: Option<String>,
}

fn id_schema(description: &str) -> Value {
    json!({ "type": "string", "pattern": "^[0-9A-HJKMNP-TV-Z]{26}$", "description": description })
}

fn put_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "minLength": 1, "maxLength": MOST_NAME_CHARS, "description": "What it is called: the name of a file, without directories." },
            "media_type": { "type": "string", "minLength": 3, "maxLength": 127, "description": "What it is, such as text/markdown." },
            "text": { "type": "string", "description": "The content, as text." },
            "base64": { "type": "string", "description": "The content, in base 64." },
            "scope": scope::schema(),
        },
        "required": ["name"],
        "additionalProperties": false
    })
}

fn get_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "id": id_schema("The artifact."),
            "scope": scope::schema(),
            "offset": { "type": "integer", "minimum": 0, "description": "The first byte to fetch; 0 if left out." },
            "limit": { "type": "integer", "minimum": 1, "description": "The most bytes to fetch; 524288 are the most." },
        },
        "required": ["id"],
        "additionalProperties": false
    })
}

fn list_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "scope": scope::schema(),
            "after": id_schema("Go on behind this artifact: `next` of the part before."),
            "limit": { "type": "integer", "minimum": 1, "maximum": 500, "description": "The most artifacts to tell." },
        },
        "additionalProperties": false
    })
}

fn delete_schema() -> Value {
    json!({
        "type": "object",
        "properties": { "id": id_schema("The artifact."), "scope": scope::schema() },
        "required": ["id"],
        "additionalProperties": false
    })
}

const PUT: &str = "Keeps a file: a report, a picture, a patch. It never changes; equal contents are stored once. A person can \
    download it.";
const GET: &str = "Fetches a file that was kept, or a part of it. Content that is not UTF-8 comes in base 64. `next_offset` \
    tells that more follows, and where.";
const LIST: &str = "Lists the files that were kept in a scope, oldest first. `next` is where to go on.";
const DELETE: &str = "Deletes a file that was kept, for good. A person is asked each time.";

/// How many bytes are fetched at once: in base 64 they fit into an answer.
const MOST_FETCHED: u64 = 512 << 10;

/// How many artifacts are told if nobody says how many.
const LISTED: usize = 100;

/// What to do about an artifact that is not there.
const THERE_ARE: &str = "`artifact.list` tells which there are";
