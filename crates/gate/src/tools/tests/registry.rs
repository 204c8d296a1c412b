//! The registry: what it knows, and how it refuses.

use std::sync::Arc;

use palyra_policy::builtin_tools;
use palyra_types::{Sha256Digest, ToolMetadata, json::canonical_of};

use super::*;
use crate::{
    service::{Performed, Performing, Service, ServiceIntent, ServiceOperation, ServiceOrder},
    tool::{IntendError, Report},
    tools::RegistryError,
};

#[test]
fn the_registry_is_the_table_that_policy_knows() {
    let registry = Registry::bare().unwrap();
    let known: Vec<_> = registry.definitions().map(|definition| definition.metadata().clone()).collect();
    let own =
        |one: &ToolMetadata| !["memory.", "artifact.", "cron."].iter().any(|of| one.name.as_str().starts_with(of));
    let table = builtin_tools().unwrap().into_values().filter(own);
    let (internal, callable): (Vec<_>, Vec<_>) = table.partition(|one| registry.is_internal(&one.name));
    assert_eq!(known, callable);
    assert_eq!(internal.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["net.connect"]);
}

#[test]
fn a_service_performs_what_the_table_names_and_nothing_is_left_over() {
    assert_eq!(Registry::builtin(Vec::new()).unwrap_err().to_string().matches("there is no such tool").count(), 1);
    let operation = |tool| ServiceOperation { tool, description: "d", schema: json!({}), service: Arc::new(Idle) };
    let refused = Registry::builtin(vec![operation("memory.forge")]).unwrap_err();
    assert_eq!(refused, RegistryError::NotInTable("memory.forge".to_owned()));
    let taken = Registry::builtin(vec![operation("fs.read")]).unwrap_err();
    assert_eq!(taken, RegistryError::NotInTable("fs.read".to_owned()));
}

/// A service that does nothing.
struct Idle;

impl Service for Idle {
    fn name(&self) -> &str {
        "idle"
    }

    fn intend(&self, _: &str, _: &JsonObject, _: Asker<'_>) -> Result<ServiceIntent, IntendError> {
        Ok(ServiceIntent::default())
    }

    fn perform(self: Arc<Self>, _: ServiceOrder) -> Performing {
        Box::pin(std::future::ready(Performed::by_the_daemon(Value::Null)))
    }
}

#[test]
fn what_only_the_daemon_proposes_cannot_be_called() {
    let registry = Registry::bare().unwrap();
    let name = ToolName::parse("net.connect").unwrap();
    let refused = registry.callable(&name).unwrap_err();
    assert_eq!(refused.to_string(), "there is no tool `net.connect`");
}

#[test]
fn no_schema_takes_what_it_does_not_name() {
    for definition in Registry::bare().unwrap().definitions() {
        let schema = definition.input_schema();
        assert_eq!(schema["additionalProperties"], json!(false), "{}", definition.name());
        assert!(!definition.description().is_empty());
        for (name, property) in schema["properties"].as_object().unwrap() {
            assert!(property["description"].is_string(), "{} {name}", definition.name());
        }
    }
}

#[test]
fn the_digest_of_a_definition_covers_what_is_told() {
    let registry = Registry::bare().unwrap();
    let definition = registry.definition(&ToolName::parse("fs.read").unwrap()).unwrap();
    let told = json!({
        "v": 1, "name": "fs.read", "summary": "reads a file of the workspace", "description": definition.description(),
        "capabilities": ["filesystem_read"], "input_schema": definition.input_schema(),
    });
    assert_eq!(definition.digest(), Sha256Digest::of(canonical_of(&told).unwrap().as_bytes()));
}

#[test]
fn an_unknown_tool_is_answered_with_the_nearest_one() {
    let lab = Lab::new();
    assert_eq!(lab.refusal("fs.raed", json!({})), "there is no tool `fs.raed`; did you mean `fs.read`?");
    assert_eq!(lab.refusal("banana", json!({})), "there is no tool `banana`");
}

#[test]
fn arguments_that_do_not_fit_are_told_in_plain_words() {
    let lab = Lab::new();
    let refusal = |tool: &str, args: Value| {
        lab.refusal(tool, args).replace(&format!("the arguments of `{tool}` do not fit: "), "")
    };
    assert_eq!(refusal("fs.read", json!({})), "`path` is missing");
    assert_eq!(refusal("fs.read", json!({"path": 7})), "`path` must be text, not a number");
    assert_eq!(refusal("fs.read", json!({"path": "a", "pth": 1})), "`pth` is not known; did you mean `path`?");
    assert_eq!(refusal("fs.read", json!({"path": "a", "offset": -1})), "`offset` must be at least 0");
    assert_eq!(refusal("fs.read", json!({"path": "a", "limit": 1.5})), "`limit` must be an integer, not a number");
    assert_eq!(refusal("fs.read", json!({"path": ""})), "`path` must have at least 1 characters");
    assert_eq!(
        refusal("fs.write", json!({"path": "a", "content": "", "mode": "delete"})),
        "`mode` must be one of `create`, `replace`, `append`, not `delete`"
    );
    assert_eq!(refusal("process.run", json!({"command": "ls -l"})), "`command` must be a list, not text");
    assert_eq!(refusal("process.run", json!({"command": []})), "`command` must have at least 1 item");
    assert_eq!(refusal("process.run", json!({"command": ["ls", 1]})), "`command[1]` must be text, not a number");
    assert_eq!(
        refusal("process.run", json!({"command": ["ls"], "env": {"A\u{202e}": 1}})),
        "`env.A<U+202E>` must be text, not a number"
    );
    assert_eq!(refusal("tool.list", json!({"x": null})), "`x` is not known");
}

#[test]
fn several_problems_are_told_at_once_but_not_all_of_many() {
    let lab = Lab::new();
    let both = lab.refusal("fs.write", json!({"path": 1}));
    assert!(both.contains("`path` must be text") && both.contains("`content` is missing"), "{both}");
    let many = lab.refusal("process.run", json!({"command": vec![0; 1000]}));
    assert!(many.ends_with("`command[4]` must be text, not a number; and 995 more"), "{many}");
}

#[test]
fn a_tool_that_works_in_a_workspace_refuses_without_one() {
    let lab = Lab::new();
    let place = Place {
        workspace: None,
        asker: asker(),
        programs: &lab.programs,
        look: Look::Whole,
        bindings: &|_, _| Vec::new(),
    };
    let args = JsonObject::try_from_value(json!({"path": "a"}), Limits::default()).unwrap();
    let error = lab.registry.intend(&ToolName::parse("fs.read").unwrap(), &args, &place).unwrap_err();
    assert_eq!(error.to_string(), "the call names no workspace");
    assert_eq!(error.advice(), "name one of the configured workspaces");
}

#[test]
fn a_report_touches_nothing() {
    let lab = Lab::new();
    for (tool, about) in [("tool.list", Report::Tools), ("daemon.status", Report::Status)] {
        assert_eq!(lab.intend(tool, json!({})), Ok(Intent { touches: Vec::new(), work: Work::Report { about } }));
    }
    assert_eq!(canonical_of(&Work::Report { about: Report::Tools }).unwrap(), r#"{"about":"tools","kind":"report"}"#);
}
