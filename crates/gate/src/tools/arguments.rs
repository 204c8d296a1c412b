//! Holds the arguments of a call against the schema of its tool, and tells in plain words what does not fit.
//!
//! Guarantees: validators are compiled once; several problems are told at once, though not more than a person reads;
//! text from outside is shown visibly and shortened. Schemas of skills come from elsewhere, so all are worked through with a bounded effort.

use jsonschema::{
    ErrorIterator, JsonType, ValidationError,
    error::{TypeKind, ValidationErrorKind},
    paths::LocationSegment,
};
use palyra_package::schema::{BoundedSchema, Effort, SchemaError, TooMuchWork};
use palyra_types::{JsonObject, ToolName, visible::visible, word::nearest};
use serde_json::Value;

use crate::tool::ToolDefinition;

/// A compiled schema.
pub(crate) struct ArgumentCheck {
    tool: ToolName,
    known: Vec<String>,
    schema: BoundedSchema,
}

impl ArgumentCheck {
    /// Of a tool of our own.
    pub(crate) fn of_our_own(definition: &ToolDefinition) -> Result<Self, String> {
        Self::with(definition, BoundedSchema::of_our_own(definition.input_schema()))
    }

    /// Of a tool that comes from elsewhere.
    pub(crate) fn compile(definition: &ToolDefinition) -> Result<Self, String> {
        Self::with(definition, BoundedSchema::compile(definition.input_schema()))
    }

    fn with(definition: &ToolDefinition, checked: Result<BoundedSchema, SchemaError>) -> Result<Self, String> {
        let schema = definition.input_schema();
        let properties = schema.get("properties").and_then(Value::as_object);
        Ok(Self {
            tool: definition.name().clone(),
            known: properties.map(|properties| properties.keys().cloned().collect()).unwrap_or_default(),
            schema: checked.map_err(|error| error.to_string())?,
        })
    }

    /// What does not fit, if anything does not.
    pub(crate) fn misfit(&self, args: &JsonObject, effort: Effort) -> Result<Option<ArgumentsError>, TooMuchWork> {
        self.schema.misfit(args.value(), effort, |errors| self.told(errors))
    }

    fn told(&self, errors: Option<ErrorIterator<'_>>) -> ArgumentsError {
        let Some(mut errors) = errors else {
            let problems = vec!["there is too much of them to tell where".to_owned()];
            return ArgumentsError { tool: self.tool.clone(), problems, more: 0 };
        };
        let problems = errors.by_ref().take(MOST_PROBLEMS).map(|error| self.describe(&error)).collect();
        ArgumentsError { tool: self.tool.clone(), problems, more: errors.take(COUNTED).count() }
    }

    fn describe(&self, error: &ValidationError<'_>) -> String {
        let place = place(error);
        let subject = if place.is_empty() { "the whole".to_owned() } else { format!("`{place}`") };
        match error.kind() {
            ValidationErrorKind::Required { property } => {
                format!("`{}` is missing", inside(&place, property.as_str().unwrap_or_default()))
            }
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let names = unexpected.iter().take(MOST_PROBLEMS).map(|name| self.unknown(&place, name));
                names.collect::<Vec<_>>().join("; ")
            }
            ValidationErrorKind::Type { kind } => {
                format!("{subject} must be {}, not {}", types(kind), name_of(error.instance()))
            }
            ValidationErrorKind::Enum { options } => {
                let words = options.as_array().map(Vec::as_slice).unwrap_or_default();
                let words: Vec<String> = words.iter().map(|word| format!("`{}`", text_of(word))).collect();
                format!("{subject} must be one of {}, not `{}`", words.join(", "), text_of(error.instance()))
            }
            ValidationErrorKind::Minimum { limit } => format!("{subject} must be at least {limit}"),
            ValidationErrorKind::Maximum { limit } => format!("{subject} must be at most {limit}"),
            ValidationErrorKind::MinItems { limit } => {
                format!("{subject} must have at least {limit} {}", items(*limit))
            }
            ValidationErrorKind::MaxItems { limit } => format!("{subject} must have at most {limit} {}", items(*limit)),
            ValidationErrorKind::MinLength { limit } => format!("{subject} must have at least {limit} characters"),
            ValidationErrorKind::MaxLength { limit } => format!("{subject} must have at most {limit} characters"),
            ValidationErrorKind::MaxProperties { limit } => format!("{subject} must have at most {limit} members"),
            other => format!("{subject} breaks the rule `{}` of the schema", visible(other.keyword())),
        }
    }

    fn unknown(&self, place: &str, name: &str) -> String {
        let known: Vec<&str> = self.known.iter().map(String::as_str).collect();
        let near = nearest(name, &known).filter(|_| place.is_empty());
        let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        format!("`{}` is not known{hint}", inside(place, &shortened(name)))
    }
}

/// The arguments do not fit the schema of the tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the arguments of `{tool}` do not fit: {}{}", .problems.join("; "), and_more(*.more))]
pub struct ArgumentsError {
    /// The tool.
    pub tool: ToolName,
    /// What does not fit, in plain words.
    pub problems: Vec<String>,
    /// How many problems are not told.
    pub more: usize,
}

impl ArgumentsError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        "look at the input schema of the tool"
    }
}

fn and_more(count: usize) -> String {
    match count {
        0 => String::new(),
        COUNTED => "; and many more".to_owned(),
        _ => format!("; and {count} more"),
    }
}

/// The place of a problem, such as `command[3]` or `env.NAME`.
fn place(error: &ValidationError<'_>) -> String {
    error.instance_path().segments().fold(String::new(), |place, segment| match segment {
        LocationSegment::Property(name) => inside(&place, &shortened(&name)),
        LocationSegment::Index(index) => format!("{place}[{index}]"),
    })
}

fn inside(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") }
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(kind) => type_name(*kind).to_owned(),
        TypeKind::Multiple(kinds) => kinds.iter().map(type_name).collect::<Vec<_>>().join(" or "),
    }
}

const fn type_name(kind: JsonType) -> &'static str {
    match kind {
        JsonType::Null => "null",
        JsonType::Boolean => "true or false",
        JsonType::Integer => "an integer",
        JsonType::Number => "a number",
        JsonType::String => "text",
        JsonType::Array => "a list",
        JsonType::Object => "an object",
    }
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => shortened(text),
        other => shortened(&other.to_string()),
    }
}

const fn items(count: u64) -> &'static str {
    if count == 1 { "item" } else { "items" }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        None => visible(text),
        Some((end, _)) => format!("{}…", visible(text.get(..end).unwrap_or_default())),
    }
}

/// How many problems are told.
const MOST_PROBLEMS: usize = 5;

/// How many of the other problems are counted.
const COUNTED: usize = 1000;

/// How many characters of a text from outside are shown.
const SHOWN: usize = 64;
