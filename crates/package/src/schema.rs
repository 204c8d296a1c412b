//! JSON Schemas of tools: what goes in and what comes out.
//!
//! Guarantees: a schema is complete in itself. It compiles, and refers to nothing outside.
//! Does not: hold values to a schema. [`bounded`] does, for whoever calls a tool.

pub mod bounded;
mod extent;

use palyra_types::{
    json::{Json, Limits},
    visible::visible,
};
use serde_json::Value;

pub use self::bounded::{BoundedSchema, Effort, TooMuchWork};
use self::extent::{MOST_LEVELS, MOST_PARTS, MOST_PATTERNS};

/// Reads a schema.
///
/// # Errors
/// When it is no JSON, or JSON that readers disagree about, or no schema.
pub fn parse(bytes: &[u8]) -> Result<Value, SchemaError> {
    let json = Json::parse(bytes, LIMITS).map_err(|error| SchemaError::NotJson(error.to_string()))?;
    checked(json.into_value())
}

/// Takes a schema that was written inside a manifest.
///
/// # Errors
/// When it holds numbers that JSON has no one reading for, or is no schema.
pub fn of(value: Value) -> Result<Value, SchemaError> {
    let json = Json::try_from_value(value, LIMITS).map_err(|error| SchemaError::NotJson(error.to_string()))?;
    checked(json.into_value())
}

fn checked(value: Value) -> Result<Value, SchemaError> {
    if !value.is_object() {
        return Err(SchemaError::NoObject);
    }
    BoundedSchema::compile(&value).map(|_| value)
}

/// Why a schema is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// Not JSON.
    #[error("it is no JSON: {0}")]
    NotJson(String),
    /// Not an object.
    #[error("it is no object")]
    NoObject,
    /// It refers to something outside.
    #[error("it refers to `{}`, which lies outside of it", visible(.0))]
    Foreign(String),
    /// It refers to something in a way that is not followed.
    #[error("its reference `{}` is no pointer to a part of it", visible(.0))]
    Unfollowed(String),
    /// It refers to itself without going any deeper.
    #[error("its reference `{}` leads back to itself at the same place of a value", visible(.0))]
    Circular(String),
    /// Its references multiply.
    #[error(
        "with its references in their places it has more than {MOST_PARTS} parts, or more than {MOST_LEVELS} levels"
    )]
    Unfolds,
    /// Patterns without end.
    #[error("it has {0} patterns, and {MOST_PATTERNS} is the most")]
    TooManyPatterns(usize),
    /// Not a schema.
    #[error("it is no JSON Schema: {}", visible(.0))]
    NoSchema(String),
}

impl SchemaError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::NotJson(_) | Self::NoObject => "write an object, such as `{\"type\": \"object\"}`",
            Self::Foreign(_) => "copy what it refers to into `$defs`, and refer to it by `#/$defs/…`; leave out `$id`",
            Self::Unfollowed(_) => "refer to parts by `#/$defs/…`; anchors and dynamic references are not followed",
            Self::Circular(_) => "let it refer to itself below a property or an item only",
            Self::Unfolds => "refer to fewer things that refer to others in turn",
            Self::TooManyPatterns(_) => "put several into one pattern with `|`",
            Self::NoSchema(_) => {
                "write a JSON Schema of draft 2020-12; patterns are short, and neither look around nor refer back"
            }
        }
    }
}

/// How large a schema may be.
pub const LIMITS: Limits = Limits { bytes: 64 << 10, depth: 32, values: usize::MAX };

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_refers_to_itself_only() {
        let own = json!({"$schema": extent::DIALECT, "$defs": {"n": {"type": "number"}}, "properties": {"a": {"$ref": "#/$defs/n"}}});
        assert_eq!(of(own.clone()), Ok(own));
        for target in ["file:///etc/passwd", "https://example.org/s.json", "other.json", ""] {
            let schema = json!({"properties": {"a": {"anyOf": [{"$ref": target}]}}});
            assert_eq!(of(schema), Err(SchemaError::Foreign(target.to_owned())));
        }
        assert!(matches!(of(json!({"$id": "https://example.org/"})), Err(SchemaError::Foreign(_))));
        assert!(matches!(of(json!({"$schema": "https://example.org/dialect"})), Err(SchemaError::Foreign(_))));
    }

    #[test]
    fn a_schema_whose_references_multiply_is_refused_and_one_that_refers_to_itself_is_not() {
        let level = |next: usize| json!({"allOf": [{"$ref": format!("#/$defs/a{next}")}, {"$ref": format!("#/$defs/a{next}")}]});
        let mut defs: serde_json::Map<String, Value> =
            (0..40).map(|number| (format!("a{number}"), level(number + 1))).collect();
        defs.insert("a40".to_owned(), json!({"type": "object"}));
        assert_eq!(of(json!({"$ref": "#/$defs/a0", "$defs": defs})), Err(SchemaError::Unfolds));
        let tree = json!({"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}});
        assert_eq!(of(tree.clone()), Ok(tree));
    }

    #[test]
    fn a_chain_of_references_that_is_too_deep_for_a_stack_is_refused() {
        let link = |next: usize| json!({"$ref": format!("#/$defs/a{next}")});
        let mut defs: serde_json::Map<String, Value> =
            (0..1_000).map(|number| (format!("a{number}"), link(number + 1))).collect();
        defs.insert("a1000".to_owned(), json!({"type": "object"}));
        assert_eq!(of(json!({"$ref": "#/$defs/a0", "$defs": defs})), Err(SchemaError::Unfolds));
    }

    #[test]
    fn references_that_are_spelt_otherwise_are_refused_and_not_overlooked() {
        for reference in ["#named", "#/%24defs/a", "#/$defs/absent", "#/properties/~2"] {
            let schema = json!({"$defs": {"a": {"$anchor": "named"}}, "properties": {"b": {"$ref": reference}}});
            assert_eq!(of(schema), Err(SchemaError::Unfollowed(reference.to_owned())));
        }
        let dynamic = json!({"$dynamicAnchor": "node", "properties": {"b": {"$dynamicRef": "#node"}}});
        assert_eq!(of(dynamic), Err(SchemaError::Unfollowed("#node".to_owned())));
        let many: serde_json::Map<String, Value> =
            (0..100).map(|number| (format!("^a{number}"), json!(true))).collect();
        assert_eq!(of(json!({ "patternProperties": many })), Err(SchemaError::TooManyPatterns(100)));
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        assert_eq!(of(json!(true)), Err(SchemaError::NoObject));
        assert!(matches!(of(json!({"type": "strnig"})), Err(SchemaError::NoSchema(_))));
        assert!(matches!(of(json!({"pattern": "("})), Err(SchemaError::NoSchema(_))));
        assert!(matches!(parse(b"{\"type\": \"object\", \"type\": \"array\"}"), Err(SchemaError::NotJson(_))));
        assert!(matches!(parse(&[b'['; 100_000]), Err(SchemaError::NotJson(_))));
    }
}
