//! `memory.put`, `memory.search`, `memory.list`, `memory.delete`, `memory.purge`: notes that are found again by their words.
//!
//! Guarantees: a call reaches the entries of the scopes that policy decided about, and no others; any text is a query. What is told at once is
//! bounded, and says where to go on. What somebody else keeps in a scope of both is deleted first, or stays as it is.
//! Does not: keep a history. What is replaced, deleted or purged is gone.

use std::{collections::BTreeSet, sync::Arc};

use palyra_gate::{Asker, IntendError, Performed, Performing, Service, ServiceIntent, ServiceOperation, ServiceOrder};
use palyra_notebook::{
    EntryId, MemoryError, MemoryScope, MemoryStore, NewEntry, Place, Query,
    memory::{MOST_KEY_CHARS, MOST_TAG_CHARS, MOST_TAGS, MOST_TEXT_BYTES, MOST_TITLE_CHARS},
};
use palyra_types::{Action, JsonObject};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{blocking, read, read_again, scope, unknown_operation};

/// The tools of the memory.
pub fn operations(store: Arc<MemoryStore>) -> Vec<ServiceOperation> {
    let service: Arc<dyn Service> = Arc::new(Memory { store });
    let schemas = [
        ("memory.put", PUT, put_schema()),
        ("memory.search", SEARCH, search_schema()),
        ("memory.list", LIST, list_schema()),
        ("memory.delete", DELETE, delete_schema()),
        ("memory.purge", PURGE, purge_schema()),
    ];
    let operation = |(tool, description, schema)| {
        let service = Arc::clone(&service);
        ServiceOperation { tool, description, schema, service }
    };
    schemas.map(operation).into()
}

struct Memory {
    store: Arc<MemoryStore>,
}

impl Service for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn intend(&self, operation: &str, args: &JsonObject, asker: Asker<'_>) -> Result<ServiceIntent, IntendError> {
        let one = |action, said: Option<&str>| scope::intent(action, &[scope::meant(said, asker)?]);
        match operation {
            "memory.put" => {
                let put: Put = read(args)?;
                put.place()?;
                one(Action::MemoryPut, put.scope.as_deref())
            }
            "memory.search" => {
                let Search { scopes, .. } = read(args)?;
                let named: Vec<_> = scopes.iter().flatten().map(|said| scope::meant(Some(said), asker)).collect();
                let scopes = named.into_iter().collect::<Result<Vec<_>, _>>()?;
                scope::intent(Action::MemorySearch, &if scopes.is_empty() { scope::all(asker) } else { scopes })
            }
            "memory.list" => one(Action::MemoryList, read::<List>(args)?.scope.as_deref()),
            "memory.delete" => {
                let delete: Delete = read(args)?;
                let (which, scope) = (delete.which()?, scope::meant(delete.scope.as_deref(), asker)?);
                self.check_is_there(&which, &scope, asker)?;
                scope::intent(Action::MemoryDelete, &[scope])
            }
            "memory.purge" => one(Action::MemoryPurge, Some(&read::<Purge>(args)?.scope)),
            other => Err(IntendError::Shape(format!("the memory does not know `{other}`"))),
        }
    }

    // Deleting looks into the database first.
    fn glances(&self, operation: &str) -> bool {
        operation != "memory.delete"
    }

    fn perform(self: Arc<Self>, order: ServiceOrder) -> Performing {
        Box::pin(async move { blocking(move || self.perform_now(&order)).await.unwrap_or_else(|failed| failed) })
    }
}

impl Memory {
    fn perform_now(&self, order: &ServiceOrder) -> Result<Performed, Performed> {
        let (args, scopes) = (&order.proposal.args, scope::decided(order));
        let [scope, ..] = scopes.as_slice() else {
            return Err(Performed::failed("the call is about no scope", "propose it again"));
        };
        let told = match order.work.operation.as_str() {
            "memory.put" => self.put(read_again(args)?, scope, &order.proposal.principal.to_string()),
            "memory.search" => self.search(read_again(args)?, &scopes),
            "memory.list" => self.list(&read_again(args)?, scope),
            "memory.delete" => self.delete(&read_again(args)?, scope),
            "memory.purge" => self.purge(scope),
            other => return Err(unknown_operation(other)),
        };
        told.map(Performed::by_the_daemon).map_err(|error| Performed::failed(error.to_string(), error.advice()))
    }

    fn put(&self, put: Put, scope: &MemoryScope, by: &str) -> Result<Value, MemoryError> {
        let place = put.place().unwrap_or(Place::New);
        let Put { text, title, tags, .. } = put;
        let entry = self.store.put(&NewEntry {
            scope: scope.clone(),
            place,
            title,
            text,
            tags: tags.unwrap_or_default(),
            by: by.to_owned(),
        })?;
        let usage = self.store.usage(scope)?;
        Ok(json!({ "id": entry.id, "scope": scope, "key": entry.key, "updated": entry.updated, "usage": usage }))
    }

    fn search(&self, search: Search, scopes: &[MemoryScope]) -> Result<Value, MemoryError> {
        let query = Query::new(&search.query).with_tags(search.tags.unwrap_or_default());
        let found = self.store.search(scopes, &query, search.limit.unwrap_or(FOUND))?;
        let told = found.into_iter().map(|hit| {
            let entry = hit.entry;
            json!({
                "id": entry.id, "scope": entry.scope, "key": entry.key, "title": entry.title, "tags": entry.tags,
                "snippet": hit.snippet, "bytes": entry.text.len(), "updated": entry.updated, "by": entry.by,
            })
        });
        Ok(json!({ "found": told.collect::<Vec<_>>() }))
    }

    fn list(&self, list: &List, scope: &MemoryScope) -> Result<Value, MemoryError> {
        if let Some(which) = list.which() {
            let found = self.find(&which, scope)?;
            return Ok(json!({ "entries": Vec::from_iter(found), "next": null }));
        }
        let page = self.store.list(scope, list.after, list.limit.unwrap_or(LISTED))?;
        // What does not fit is told to whoever goes on behind the last.
        let (mut bytes, all) = (0, page.items.len());
        let mut entries = page.items;
        let fits = entries.iter().take_while(|entry| {
            bytes += entry.text.len() * 2 + 2_048;
            bytes <= MOST_TOLD
        });
        let fit = fits.count().max(1);
        entries.truncate(fit);
        let next = if fit < all { entries.last().map(|entry| entry.id) } else { page.next };
        Ok(json!({ "entries": entries, "next": next, "usage": self.store.usage(scope)? }))
    }

    fn delete(&self, delete: &Delete, scope: &MemoryScope) -> Result<Value, MemoryError> {
        let which = delete.which().ok();
        let found = which.map(|which| self.find(&which, scope)).transpose()?.flatten();
        let deleted = found.map(|entry| self.store.delete(entry.id).map(|was| was.then_some(entry.id))).transpose()?;
        Ok(json!({ "deleted": deleted.flatten(), "scope": scope }))
    }

    fn purge(&self, scope: &MemoryScope) -> Result<Value, MemoryError> {
        Ok(json!({ "deleted": self.store.purge(scope)?, "scope": scope }))
    }

    /// Refuses what is not there, so that nobody is asked about it.
    // SECURITY: whether it is there is said only of one's own scopes: policy has not decided about the others by now.
    fn check_is_there(&self, which: &Which, scope: &MemoryScope, asker: Asker<'_>) -> Result<(), IntendError> {
        if !scope::is_own(scope, asker) {
            return Ok(());
        }
        let refused = |message: String, help: &'static str| IntendError::Service { message, help };
        match self.find(which, scope) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => {
                Err(refused(format!("there is no such entry in `{scope}`"), "`memory.list` tells which there are"))
            }
            Err(error) => Err(refused(error.to_string(), error.advice())),
        }
    }

    /// An entry of a scope.
    // SECURITY: an id of another scope is as unknown as one that never was.
    fn find(&self, which: &Which, scope: &MemoryScope) -> Result<Option<palyra_notebook::Entry>, MemoryError> {
        match which {
            Which::Id(id) => Ok(self.store.get(*id)?.filter(|entry| entry.scope == *scope)),
            Which::Key(key) => self.store.get_by_key(scope, key),
        }
    }
}

/// One entry, by what it is known by.
enum Which {
    Id(EntryId),
    Key(String),
}

#[derive(Deserialize)]
struct Put {
    text: String,
    title: Option<String>,
    tags: Option<BTreeSet<String>>,
    key: Option<String>,
    id: Option<EntryId>,
    scope: Option<String>,
}

impl Put {
    fn place(&self) -> Result<Place, IntendError> {
        match (&self.key, self.id) {
            (None, None) => Ok(Place::New),
            (Some(key), None) => Ok(Place::Key(key.clone())),
            (None, Some(id)) => Ok(Place::Id(id)),
            (Some(_), Some(_)) => Err(one_of_two()),
        }
    }
}

#[derive(Deserialize)]
struct Search {
    query: String,
    tags: Option<BTreeSet<String>>,
    scopes: Option<Vec<String>>,
    limit: Option<usize>,
}

#[derive(Deserialize)]
struct List {
    id: Option<EntryId>,
    key: Option<String>,
    scope: Option<String>,
    after: Option<EntryId>,
    limit: Option<usize>,
}

impl List {
    fn which(&self) -> Option<Which> {
        self.id.map(Which::Id).or_else(|| self.key.clone().map(Which::Key))
    }
}

#[derive(Deserialize)]
struct Delete {
    id: Option<EntryId>,
    key: Option<String>,
    scope: Option<String>,
}

impl Delete {
    fn which(&self) -> Result<Which, IntendError> {
        match (self.id, &self.key) {
            (Some(id), None) => Ok(Which::Id(id)),
            (None, Some(key)) => Ok(Which::Key(key.clone())),
            _ => Err(one_of_two()),
        }
    }
}

#[derive(Deserialize)]
struct Purge {
    scope: String,
}

fn one_of_two() -> IntendError {
    let message = "an entry is named by its `id` or by its `key`".to_owned();
    IntendError::Service { message, help: "give one of the two" }
}

fn id_schema(description: &str) -> Value {
    json!({ "type": "string", "pattern": "^[0-9A-HJKMNP-TV-Z]{26}$", "description": description })
}

fn key_schema(description: &str) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": MOST_KEY_CHARS, "description": description })
}

fn tags_schema(description: &str) -> Value {
    let tag = json!({ "type": "string", "minLength": 1, "maxLength": MOST_TAG_CHARS });
    json!({ "type": "array", "items": tag, "maxItems": MOST_TAGS, "description": description })
}

fn limit_schema() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": 100, "description": "The most entries to tell." })
}

fn put_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "text": { "type": "string", "minLength": 1, "maxLength": MOST_TEXT_BYTES, "description": "What to remember." },
            "title": { "type": "string", "maxLength": MOST_TITLE_CHARS, "description": "What it is about, in a line." },
            "tags": tags_schema("Words to find it by."),
            "key": key_schema("A name of your choice. What you kept by it in the scope is replaced."),
            "id": id_schema("The entry to replace, which must be there and your own."),
            "scope": scope::schema(),
        },
        "required": ["text"],
        "additionalProperties": false
    })
}

fn search_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "query": { "type": "string", "maxLength": 4096, "description": "Words to look for; nothing is syntax. Without words: what was changed last." },
            "tags": tags_schema("Tags that an entry must have, all of them."),
            "scopes": { "type": "array", "items": scope::schema(), "minItems": 1, "maxItems": 8, "description": "Where to look; everywhere that you are if left out." },
            "limit": limit_schema(),
        },
        "required": ["query"],
        "additionalProperties": false
    })
}

fn list_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "id": id_schema("Tell this entry alone, whole."),
            "key": key_schema("Tell the entry of this key alone, whole."),
            "scope": scope::schema(),
            "after": id_schema("Go on behind this entry: `next` of the part before."),
            "limit": limit_schema(),
        },
        "additionalProperties": false
    })
}

fn delete_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "id": id_schema("The entry."),
            "key": key_schema("The entry of this key."),
            "scope": scope::schema(),
        },
        "additionalProperties": false
    })
}

fn purge_schema() -> Value {
    json!({
        "type": "object",
        "properties": { "scope": scope::schema() },
        "required": ["scope"],
        "additionalProperties": false
    })
}

const PUT: &str = "Keeps a note that can be searched later, also in other conversations. With `key` or `id` it takes the \
    place of what you kept there.";
const SEARCH: &str = "Finds notes by their words and tags, best first: those with all words, or else those with some. \
    `memory.list` with an `id` tells one whole.";
const LIST: &str = "Lists the notes of a scope, oldest first, or tells one whole. `next` is where to go on.";
const DELETE: &str = "Forgets one note for good. A person is asked each time.";
const PURGE: &str = "Forgets every note of a scope for good. A person is asked each time.";

/// How many hits are told if nobody says how many.
const FOUND: usize = 10;

/// How many entries are told if nobody says how many.
const LISTED: usize = 50;

/// How many bytes of entries are told at once, more or less.
const MOST_TOLD: usize = 512 << 10;
