//! How much a schema is once its references are put in their places.
//!
//! Guarantees: what passes refers to its own parts alone, by pointers that are followed here exactly as they are when values are held to it; it has a
//! bounded number of parts, levels and patterns.

use serde_json::Value;

use super::SchemaError;

/// What is known about the extent of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Whether a part of it refers to what it stands in, so that it is as deep as the values that it is about.
    pub(super) is_recursive: bool,
    /// How many parts it has with its references in their places.
    pub(super) parts: usize,
    /// Whether it matches any text.
    pub(super) has_patterns: bool,
    /// How many patterns a name is matched with at once.
    pub(super) most_patterns: usize,
}

impl Extent {
    /// Measures a schema.
    ///
    /// # Errors
    /// When it refers to something outside or in another way, or is too much.
    pub(super) fn of(schema: &Value) -> Result<Self, SchemaError> {
        let mut beside = 0;
        let all = patterns(schema, &mut beside);
        if all > MOST_PATTERNS {
            return Err(SchemaError::TooManyPatterns(all));
        }
        let mut walk = Walk {
            root: schema,
            within: vec![("#", 0)],
            parts: MOST_PARTS,
            is_recursive: false,
            patterns: 0,
            has_unevaluated: false,
        };
        walk.part(schema, Stand { levels: MOST_LEVELS, crossed: 0, is_map: false })?;
        // What is not evaluated is found out by matching each name with every pattern there is.
        let most_patterns = if walk.has_unevaluated { walk.patterns.max(beside) } else { beside };
        Ok(Self {
            is_recursive: walk.is_recursive,
            parts: MOST_PARTS - walk.parts,
            has_patterns: all > 0,
            most_patterns,
        })
    }
}

/// Goes through a schema and what its parts refer to.
struct Walk<'a> {
    root: &'a Value,
    /// The references that the present part was reached by, and where each was met.
    within: Vec<(&'a str, usize)>,
    /// How many parts may still come.
    parts: usize,
    is_recursive: bool,
    /// How many patterns there are.
    patterns: usize,
    has_unevaluated: bool,
}

/// Where a part stands.
#[derive(Clone, Copy)]
struct Stand {
    /// How many levels may still come.
    levels: usize,
    /// How many levels of the value lie behind.
    crossed: usize,
    /// Whether its members are named as one likes, and are schemas.
    is_map: bool,
}

impl<'a> Walk<'a> {
    // SECURITY: a few lines of references to references are work without end, or deeper than a stack, for whoever holds a value to them.
    fn part(&mut self, value: &'a Value, stand: Stand) -> Result<(), SchemaError> {
        let stand = Stand { levels: stand.levels.checked_sub(1).ok_or(SchemaError::Unfolds)?, ..stand };
        self.parts = self.parts.checked_sub(1).ok_or(SchemaError::Unfolds)?;
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| self.part(item, stand)),
            Value::Object(members) if stand.is_map => {
                members.values().try_for_each(|member| self.part(member, Stand { is_map: false, ..stand }))
            }
            Value::Object(members) => {
                let named = members.get("patternProperties").and_then(Value::as_object);
                self.patterns += named.map_or(0, serde_json::Map::len);
                let is_unevaluated = UNEVALUATED.iter().any(|key| members.contains_key(*key));
                self.has_unevaluated |= is_unevaluated;
                // SECURITY: it builds everything below it once more, so that nested ones multiply.
                for _ in 0..=usize::from(is_unevaluated) {
                    members.iter().try_for_each(|(key, member)| self.keyword(key, member, stand))?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn keyword(&mut self, key: &str, member: &'a Value, stand: Stand) -> Result<(), SchemaError> {
        let below = Stand { crossed: stand.crossed + 1, ..stand };
        match (key, member) {
            ("$ref", Value::String(target)) => self.reference(target, stand),
            ("$dynamicRef" | "$recursiveRef", Value::String(target)) => Err(SchemaError::Unfollowed(target.clone())),
            ("$schema", Value::String(dialect)) if dialect.trim_end_matches('#') != DIALECT => {
                Err(SchemaError::Foreign(dialect.clone()))
            }
            // A base of its own would make `#` mean something else.
            ("$id", Value::String(base)) => Err(SchemaError::Foreign(base.clone())),
            ("properties" | "patternProperties", _) => self.part(member, Stand { is_map: true, ..below }),
            ("dependentSchemas" | "$defs" | "definitions", _) => self.part(member, Stand { is_map: true, ..stand }),
            (key, _) if BELOW.contains(&key) => self.part(member, below),
            _ => self.part(member, stand),
        }
    }

    fn reference(&mut self, target: &'a str, stand: Stand) -> Result<(), SchemaError> {
        let Some(pointer) = target.strip_prefix('#') else { return Err(SchemaError::Foreign(target.to_owned())) };
        // A pointer that is spelt with percent signs would be another one for whoever decodes them.
        let found = Some(pointer).filter(|pointer| !pointer.contains('%')).and_then(|one| self.root.pointer(one));
        let found = found.ok_or_else(|| SchemaError::Unfollowed(target.to_owned()))?;
        if let Some((_, met)) = self.within.iter().rev().find(|(known, _)| *known == target) {
            // SECURITY: what refers to itself about the very same place of a value says nothing, and many such references multiply there.
            if *met == stand.crossed {
                return Err(SchemaError::Circular(target.to_owned()));
            }
            self.is_recursive = true;
            return Ok(());
        }
        self.within.push((target, stand.crossed));
        self.part(found, stand)?;
        self.within.pop();
        Ok(())
    }
}

/// How many patterns a schema has, and the most of them that stand side by side for names.
fn patterns(value: &Value, most_beside: &mut usize) -> usize {
    match value {
        Value::Array(items) => items.iter().map(|item| patterns(item, most_beside)).sum(),
        Value::Object(members) => {
            let beside = members.get("patternProperties").and_then(Value::as_object).map_or(0, serde_json::Map::len);
            *most_beside = beside.max(*most_beside);
            let own = beside + usize::from(members.get("pattern").is_some_and(Value::is_string));
            own + members.values().map(|member| patterns(member, most_beside)).sum::<usize>()
        }
        _ => 0,
    }
}

/// How many parts a schema may have with its references put in their places.
pub(super) const MOST_PARTS: usize = 20_000;
/// How many levels it may have then.
pub(super) const MOST_LEVELS: usize = 64;
/// How many patterns it may have. Each is compiled, and takes its time.
pub(super) const MOST_PATTERNS: usize = 64;
/// Keywords about what lies below a place of a value.
const BELOW: [&str; 8] = [
    "additionalProperties",
    "additionalItems",
    "items",
    "prefixItems",
    "contains",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
];
const UNEVALUATED: [&str; 2] = ["unevaluatedProperties", "unevaluatedItems"];
pub(super) const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
