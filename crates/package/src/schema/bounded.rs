//! Holds values to schemas that come from elsewhere, with a bounded amount of work.
//!
//! Guarantees: a value is held to a schema in no more steps than its [`Effort`] has, whatever the schema says; what takes more is an error, not an
//! answer. Schemas fetch nothing, and their patterns are matched in linear time.
//! Does not: say in words what does not fit. Whoever holds a value to a schema has its own.
//!
//! A few lines of schema can be work without end: parts that refer to each other in several ways multiply with each level of a value.
//! The library for schemas knows no bound, but reads values through a trait. Here a value counts how often it is looked at; once that
//! was often enough it has neither members nor items nor text any more, so there is nothing left to look at, and the outcome is thrown away.
//! A schema can do much at one place of a value without looking at it, so each place costs more the more parts the schema has; and
//! text that is matched costs by the byte and by the patterns, because no pattern of a bounded size takes longer than that.

use std::{borrow::Cow, cell::Cell, collections::HashSet};

use jsonschema::{
    Draft, ErrorIterator, JsonType, PatternOptions, ValidationError, Validator,
    json::{Array, Json, Node, NodeIdentity, Object, cmp},
};
use palyra_types::json::canonical_of;
use serde_json::{Map, Number, Value};

use super::{SchemaError, extent::Extent};

/// A schema that values can be held to.
pub struct BoundedSchema {
    validator: Validator<Counted>,
    extent: Extent,
    /// What matching a byte costs.
    byte: usize,
    /// Whether it is Palyra's own, so that all that does not fit is told, however much that is.
    is_own: bool,
}

/// How much work holding one value to a schema may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// A few milliseconds at the most, and usually some microseconds: can be spent where others wait.
    Brief,
    /// Less than a second at the most. Belongs on a thread of its own.
    Whole,
}

impl Effort {
    /// The steps that it has.
    #[must_use]
    pub const fn steps(self) -> u64 {
        match self {
            Self::Brief => 20_000,
            Self::Whole => 4_000_000,
        }
    }
}

/// Holding the value to the schema is more work than may be spent on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("holding it to its schema takes more than {} steps", .0.steps())]
pub struct TooMuchWork(pub Effort);

impl BoundedSchema {
    /// Makes a schema of Palyra's own ready.
    ///
    /// # Errors
    /// When it is none.
    pub fn of_our_own(schema: &Value) -> Result<Self, SchemaError> {
        Ok(Self { is_own: true, ..Self::compile(schema)? })
    }

    /// Makes a schema ready.
    ///
    /// # Errors
    /// When it is none.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let extent = Extent::of(schema)?;
        let build = |most: usize| {
            let patterns = PatternOptions::regex().size_limit(most).dfa_size_limit(PATTERN_CACHE_BYTES);
            let options = jsonschema::options_for::<Counted>().with_draft(Draft::Draft202012);
            options.with_pattern_options(patterns).build(schema)
        };
        let [small, middling, large] = PATTERN_SIZES;
        let sizes: &[PatternSize] = if extent.has_patterns { &[small, middling, large] } else { &[large] };
        let mut refusal = SchemaError::Unfolds;
        for size in sizes {
            match build(size.bytes) {
                Ok(validator) => return Ok(Self { validator, extent, byte: size.steps_a_byte, is_own: false }),
                Err(error) => refusal = SchemaError::NoSchema(error.to_string()),
            }
        }
        Err(refusal)
    }

    /// What of a value does not fit, as `tell` puts it; nothing if all fits. Where finding all that does not fit is too much work, though it is known
    /// that something does not, `tell` is given nothing.
    ///
    /// # Errors
    /// When that takes more than the effort.
    pub fn misfit<T>(
        &self,
        value: &Value,
        effort: Effort,
        tell: impl FnOnce(Option<ErrorIterator<'_>>) -> T,
    ) -> Result<Option<T>, TooMuchWork> {
        if self.extent.is_recursive {
            // SECURITY: it goes as deep as the value, several levels for each of the value's, and a stack that is too small ends the process.
            return stacker::grow(DEEP_STACK_BYTES, || self.worked_through(value, effort, tell));
        }
        self.worked_through(value, effort, tell)
    }

    fn worked_through<T>(
        &self,
        value: &Value,
        effort: Effort,
        tell: impl FnOnce(Option<ErrorIterator<'_>>) -> T,
    ) -> Result<Option<T>, TooMuchWork> {
        Work::begin(effort.steps(), self);
        let fits = self.validator.is_valid(Looked(value));
        if Work::is_over() {
            return Err(TooMuchWork(effort));
        }
        if fits {
            return Ok(None);
        }
        // SECURITY: problems are collected before the first is told, and each takes some hundred bytes.
        Work::begin(if self.is_own { effort.steps() } else { TELLING_STEPS }, self);
        let problems = self.validator.iter_errors(Looked(value));
        Ok(Some(tell((!Work::is_over()).then_some(problems))))
    }

    /// The first thing about a value that does not fit, in the words of the library.
    ///
    /// # Errors
    /// When that takes more than the effort.
    pub fn first_misfit(&self, value: &Value, effort: Effort) -> Result<Option<String>, TooMuchWork> {
        let first = |problems: Option<ErrorIterator<'_>>| {
            let first = problems.and_then(|mut problems| problems.next());
            first.as_ref().map_or_else(|| "in more places than can be told".to_owned(), ValidationError::to_string)
        };
        self.misfit(value, effort, first)
    }
}

impl std::fmt::Debug for BoundedSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoundedSchema").finish_non_exhaustive()
    }
}

/// How large patterns may be, and what matching them costs.
#[derive(Clone, Copy)]
struct PatternSize {
    bytes: usize,
    steps_a_byte: usize,
}

thread_local! {
    /// The work that this thread does. The trait hands a value no place of its own to count in: the names of members are looked at as values
    /// that come from nowhere.
    static WORK: Cell<Work> = const { Cell::new(Work { left: 0, place: 1, byte: 0, name_byte: 0 }) };
}

/// Work on this thread: the steps that are left of it, and what things cost.
#[derive(Clone, Copy)]
struct Work {
    left: u64,
    /// What a place of the value costs.
    place: usize,
    /// What a byte of a text costs that is matched.
    byte: usize,
    /// What a byte of a name costs, which is matched with several patterns at once.
    name_byte: usize,
}

impl Work {
    fn begin(left: u64, BoundedSchema { extent, byte, .. }: &BoundedSchema) {
        let place = 1 + extent.parts / PARTS_A_STEP;
        let byte = if extent.has_patterns { *byte } else { 0 };
        WORK.set(Self { left, place, byte, name_byte: byte.saturating_mul(extent.most_patterns) });
    }

    fn is_over() -> bool {
        WORK.get().left == 0
    }

    fn take(steps: impl FnOnce(Self) -> usize) -> bool {
        let work = WORK.get();
        let left = work.left.saturating_sub(u64::try_from(steps(work)).unwrap_or(u64::MAX));
        WORK.set(Self { left, ..work });
        left > 0
    }
}

/// Counts a look at a value. Says whether any more can be taken.
fn look() -> bool {
    Work::take(|_| 1)
}

/// Counts that another place of a value is come to.
fn place() -> bool {
    Work::take(|work| work.place)
}

/// Values that count how often they are looked at.
struct Counted;

impl Json for Counted {
    type Node<'a> = Looked<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(buffer: &mut Value, string: &str, f: impl FnOnce(Looked<'_>) -> T) -> T {
        *buffer = Value::String(string.to_owned());
        f(Looked(buffer))
    }
}

/// A value that is looked at.
#[derive(Clone, Copy)]
struct Looked<'a>(&'a Value);

impl<'a> Node<'a, Counted> for Looked<'a> {
    type Object = LookedObject<'a>;
    type Array = LookedArray<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<LookedObject<'a>> {
        look().then_some(self.0)?.as_object().map(LookedObject)
    }

    fn as_array(&self) -> Option<LookedArray<'a>> {
        look().then_some(self.0)?.as_array().map(|items| LookedArray(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = look().then_some(self.0)?.as_str()?;
        Work::take(|work| (text.len() / BYTES_A_STEP).saturating_add(text.len().saturating_mul(work.byte)))
            .then_some(Cow::Borrowed(text))
    }

    fn as_number(&self) -> Option<&'a Number> {
        match look().then_some(self.0)? {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    fn as_boolean(&self) -> Option<bool> {
        look().then_some(self.0)?.as_bool()
    }

    fn is_null(&self) -> bool {
        look() && self.0.is_null()
    }

    fn json_type(&self) -> JsonType {
        look();
        match self.0 {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn string_length(&self) -> Option<u64> {
        let text = look().then_some(self.0)?.as_str()?;
        Work::take(|_| text.len() / BYTES_A_STEP_COUNTED)
            .then_some(u64::try_from(text.chars().count()).unwrap_or(u64::MAX))
    }

    fn equals_value(&self, expected: &Value) -> bool {
        // Comparing ends where the two differ, so the smaller of the two bounds it.
        Work::take(|_| parts(expected)) && cmp::equal(self.0, expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Borrowed(self.0)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        look();
        Some(NodeIdentity::new(std::ptr::from_ref(self.0).addr()))
    }
}

struct LookedObject<'a>(&'a Map<String, Value>);

impl<'a> Object<'a, Counted> for LookedObject<'a> {
    type Node = Looked<'a>;
    type MemberName = &'a str;
    type MembersIter = Members<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<Looked<'a>> {
        // A name that is not there is an answer, too, and may be a problem to be told.
        match self.0.get(key) {
            Some(value) => place().then_some(Looked(value)),
            None => {
                look();
                None
            }
        }
    }

    fn members(&self) -> Members<'a> {
        Members(self.0.iter())
    }
}

struct Members<'a>(serde_json::map::Iter<'a>);

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, Looked<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.0.next()?;
        let is_left = place() && Work::take(|work| name.len().saturating_mul(work.name_byte));
        is_left.then_some((name.as_str(), Looked(value)))
    }
}

struct LookedArray<'a>(&'a [Value]);

impl<'a> Array<'a, Counted> for LookedArray<'a> {
    type Node = Looked<'a>;
    type ElementsIter = Elements<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> Elements<'a> {
        Elements(self.0.iter())
    }

    fn is_unique(&self) -> bool {
        // SECURITY: the library's own test hashes so that nested lists of any shape come to one number, and compares all of them with all.
        let mut known = HashSet::new();
        Work::take(|_| self.0.iter().map(parts).sum()) && self.0.iter().all(|item| known.insert(spelt(item)))
    }
}

struct Elements<'a>(std::slice::Iter<'a, Value>);

impl<'a> Iterator for Elements<'a> {
    type Item = Looked<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let value = self.0.next()?;
        place().then_some(Looked(value))
    }
}

/// A value as a text that equal values have in common: the order of members means nothing.
fn spelt(value: &Value) -> String {
    canonical_of(value).unwrap_or_else(|_| value.to_string())
}

/// How many steps it takes to look at all of a value. As deep as the reader of JSON let it be.
fn parts(value: &Value) -> usize {
    match value {
        Value::String(text) => 1 + text.len() / BYTES_A_STEP,
        Value::Array(items) => items.iter().map(parts).sum::<usize>().saturating_add(1),
        Value::Object(members) => members
            .iter()
            .map(|(name, one)| 1 + name.len() / BYTES_A_STEP + parts(one))
            .sum::<usize>()
            .saturating_add(1),
        _ => 1,
    }
}

/// Room for as many levels as a value has, times as many as a schema has. Only what is used of it is ever there.
const DEEP_STACK_BYTES: usize = 256 << 20;
/// How much text is one step: where it is compared, and where its characters are counted.
const BYTES_A_STEP: usize = 8;
const BYTES_A_STEP_COUNTED: usize = 256;
/// How large patterns are once they are compiled, and what a byte costs for each that it is matched with. The worst of the largest take tens of
/// microseconds for one.
const PATTERN_SIZES: [PatternSize; 3] = [
    PatternSize { bytes: 8 << 10, steps_a_byte: 16 },
    PatternSize { bytes: 32 << 10, steps_a_byte: 60 },
    PatternSize { bytes: 256 << 10, steps_a_byte: 400 },
];
/// How many parts of a schema are a step at each place of a value.
const PARTS_A_STEP: usize = 8;
/// The steps for finding out what does not fit, once it is known that something does not.
const TELLING_STEPS: u64 = 10_000;
/// What matching a pattern may remember.
const PATTERN_CACHE_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn fits(schema: &Value, value: &Value) -> Result<bool, TooMuchWork> {
        let schema = BoundedSchema::compile(schema).unwrap();
        Ok(schema.first_misfit(value, Effort::Whole)?.is_none())
    }

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!({"leaf": 1}), |inner, _| json!({ "a": inner }))
    }

    #[test]
    fn a_schema_that_refers_to_itself_in_two_ways_ends_at_its_bound() {
        let part = json!({"properties": {"a": {"$ref": "#"}}});
        for (combined, end) in [
            (json!({"allOf": [part, part], "properties": {"leaf": {"type": "string"}}}), "all"),
            (json!({"anyOf": [part, part], "properties": {"leaf": {"type": "string"}}}), "any"),
            (json!({"oneOf": [part, part], "properties": {"leaf": {"type": "string"}}}), "one"),
            (json!({"not": {"allOf": [part, {"not": part}]}, "properties": {"leaf": {"type": "string"}}}), "not"),
        ] {
            let begun = Instant::now();
            let outcome = fits(&combined, &nested(60));
            assert!(begun.elapsed() < Duration::from_secs(5), "{end}: {:?}", begun.elapsed());
            assert!(matches!(outcome, Err(TooMuchWork(Effort::Whole)) | Ok(_)), "{end}");
        }
        // The errors multiply, also where whether there are any is known at once.
        let doubled = json!({"allOf": [part, part], "properties": {"leaf": {"type": "string"}}});
        assert_eq!(fits(&doubled, &nested(60)), Ok(false));
        assert_eq!(fits(&doubled, &nested(3)), Ok(false));
        let told = BoundedSchema::compile(&doubled).unwrap().first_misfit(&nested(60), Effort::Whole);
        assert_eq!(told, Ok(Some("in more places than can be told".to_owned())));
    }

    #[test]
    fn what_refers_to_itself_at_one_place_is_refused_and_below_it_is_not() {
        let circle = json!({"allOf": vec![json!({"$ref": "#/$defs/s"}); 4_000]});
        let own = json!({"additionalProperties": {"$ref": "#/$defs/s"}, "$defs": {"s": circle}});
        assert!(matches!(BoundedSchema::compile(&own), Err(SchemaError::Circular(_))));
        let hidden = json!({"allOf": [{"dependentSchemas": {"items": {"$ref": "#"}}}]});
        assert!(matches!(BoundedSchema::compile(&hidden), Err(SchemaError::Circular(_))));
        let named = json!({"properties": {"allOf": {"$ref": "#"}, "items": {"items": {"$ref": "#"}}}});
        assert!(BoundedSchema::compile(&named).is_ok());
        let children =
            ["a", "b", "c", "d", "e", "f", "g", "h"].map(|name| (name.to_owned(), json!({"$ref": "#/$defs/node"})));
        let children: Map<String, Value> = children.into_iter().collect();
        let tree = json!({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": children}}});
        let leaf = |inner: Value| json!({"a": inner, "h": {}});
        assert_eq!(fits(&tree, &(0..50).fold(json!({}), |inner, _| leaf(inner))), Ok(true));
        assert_eq!(fits(&tree, &(0..50).fold(json!(1), |inner, _| leaf(inner))), Ok(false));
    }

    #[test]
    fn nested_questions_about_what_is_not_evaluated_are_refused() {
        let level =
            |next: usize| json!({"allOf": [{"unevaluatedProperties": false, "$ref": format!("#/$defs/l{next}")}]});
        let mut defs: Map<String, Value> = (0..18).map(|number| (format!("l{number}"), level(number + 1))).collect();
        defs.insert("l18".to_owned(), json!({"allOf": vec![json!({}); 5_000]}));
        let nested = json!({"$ref": "#/$defs/l0", "$defs": defs});
        assert!(matches!(BoundedSchema::compile(&nested), Err(SchemaError::Unfolds)));
    }

    #[test]
    fn what_is_not_there_counts_too_and_no_heap_of_problems_is_made() {
        let names: Vec<String> = (0..4_000).map(|number| format!("{number:x}")).collect();
        let schema = json!({"properties": {"a": {"items": {"required": names}}}});
        let value = json!({"a": vec![json!({}); 100_000]});
        let begun = Instant::now();
        let told = BoundedSchema::compile(&schema).unwrap().first_misfit(&value, Effort::Whole);
        assert_eq!(told, Ok(Some("in more places than can be told".to_owned())));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }

    #[test]
    fn parts_that_do_not_apply_cost_as_much_as_others() {
        let schema = json!({"items": {"allOf": vec![json!({"minLength": 1}); 3_900]}});
        let numbers: Value = vec![1; 100_000].into();
        let begun = Instant::now();
        assert_eq!(fits(&schema, &numbers), Err(TooMuchWork(Effort::Whole)));
        let never = json!({"items": {"anyOf": vec![json!(false); 3_900]}});
        assert!(fits(&never, &numbers) != Ok(true));
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }

    #[test]
    fn patterns_cost_by_the_byte_and_by_how_many_there_are() {
        let patterns: Map<String, Value> =
            (0..8).map(|number| (format!("[ab]*a[ab]{{300}}c{number}"), json!(true))).collect();
        let schema = BoundedSchema::compile(&json!({ "patternProperties": patterns })).unwrap();
        let name: String = (0..8_000_u32).map(|number| if number * number % 7 < 3 { 'a' } else { 'b' }).collect();
        let value = Value::Object([(name, json!(1))].into_iter().collect());
        let begun = Instant::now();
        assert_eq!(schema.first_misfit(&value, Effort::Brief), Err(TooMuchWork(Effort::Brief)));
        assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    }

    #[test]
    fn lists_of_lists_are_compared_by_what_they_say_and_not_all_with_all() {
        let schema = BoundedSchema::compile(&json!({"uniqueItems": true})).unwrap();
        let tree = |shape: u32| {
            (0..15)
                .fold(json!([]), |inner, bit| if shape >> bit & 1 == 1 { json!([inner]) } else { json!([[], inner]) })
        };
        let distinct: Vec<Value> = (0..8_000).map(tree).collect();
        let begun = Instant::now();
        assert_eq!(schema.first_misfit(&distinct.clone().into(), Effort::Whole), Ok(None));
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        let turned = json!([
            serde_json::from_str::<Value>(r#"{"a": 1, "b": 2}"#).unwrap(),
            serde_json::from_str::<Value>(r#"{"b": 2, "a": 1}"#).unwrap()
        ]);
        assert!(schema.first_misfit(&turned, Effort::Whole).unwrap().is_some(), "the order of members means nothing");
        let twice: Value = [distinct.as_slice(), &distinct[7..8]].concat().into();
        assert!(schema.first_misfit(&twice, Effort::Whole).unwrap().is_some());
    }

    #[test]
    fn more_effort_gives_the_answer_that_less_did_not() {
        let schema = BoundedSchema::compile(&json!({"items": {"type": "integer"}})).unwrap();
        let many: Value = (0..100_000).collect::<Vec<u32>>().into();
        assert_eq!(schema.first_misfit(&many, Effort::Brief), Err(TooMuchWork(Effort::Brief)));
        assert_eq!(schema.first_misfit(&many, Effort::Whole), Ok(None));
    }

    #[test]
    fn one_value_takes_nothing_from_the_next() {
        let schema = BoundedSchema::compile(&json!({"items": {"type": "integer"}})).unwrap();
        let many: Value = (0..2_000).collect::<Vec<u32>>().into();
        for _ in 0..20 {
            assert_eq!(schema.first_misfit(&many, Effort::Brief), Ok(None));
        }
    }

    #[test]
    fn patterns_that_no_linear_engine_matches_or_that_are_huge_are_no_schemas() {
        for pattern in ["(a)\\1", "(?=a)b", "(?:a{1000}){1000}"] {
            assert!(matches!(BoundedSchema::compile(&json!({ "pattern": pattern })), Err(SchemaError::NoSchema(_))));
        }
        for pattern in ["^\\w+$", "^[a-z0-9-]{1,63}$", "^\\d{4}-\\d{2}-\\d{2}$", "^\\p{L}[\\p{L}\\s]*$", "^.{1,200}$"] {
            assert!(BoundedSchema::compile(&json!({ "pattern": pattern })).is_ok(), "{pattern}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            any::<f32>().prop_filter("JSON has no others", |one| one.is_finite()).prop_map(Value::from),
            "[a-c]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c]{1,2}", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn any_schema() -> impl Strategy<Value = Value> {
        let kinds = prop::sample::select(vec!["null", "boolean", "integer", "number", "string", "array", "object"]);
        let leaf = prop_oneof![
            kinds.prop_map(|kind| json!({ "type": kind })),
            any_json().prop_map(|value| json!({ "const": value })),
            (0..3_u8).prop_map(|least| json!({ "minItems": least, "minProperties": least, "minLength": least })),
            Just(json!({"uniqueItems": true})),
            Just(json!({"pattern": "^a", "propertyNames": {"maxLength": 1}})),
            Just(json!({"minimum": 3, "multipleOf": 2})),
        ];
        leaf.prop_recursive(3, 24, 3, |inner| {
            let pair = (inner.clone(), inner.clone());
            prop_oneof![
                pair.clone().prop_map(|(one, other)| json!({ "allOf": [one, other] })),
                pair.clone().prop_map(|(one, other)| json!({ "anyOf": [one, other] })),
                pair.clone().prop_map(|(one, other)| json!({ "oneOf": [one, other] })),
                pair.clone().prop_map(|(one, other)| json!({ "if": one, "then": other })),
                pair.clone()
                    .prop_map(|(one, other)| json!({ "properties": {"a": one}, "additionalProperties": other })),
                pair.clone().prop_map(|(one, other)| json!({ "prefixItems": [one], "items": other })),
                pair.prop_map(
                    |(one, other)| json!({ "allOf": [{"properties": {"b": one}}], "unevaluatedProperties": other })
                ),
                inner.clone().prop_map(|one| json!({ "not": one })),
                inner.prop_map(|one| json!({ "contains": one, "patternProperties": {"^b": {"$ref": "#"}} })),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_counted_value_fits_exactly_what_the_plain_one_fits(schema in any_schema(), value in any_json()) {
            let plain = jsonschema::draft202012::new(&schema).unwrap();
            prop_assert_eq!(fits(&schema, &value), Ok(plain.is_valid(&value)));
            let counted = BoundedSchema::compile(&schema).unwrap();
            let places = |errors: ErrorIterator<'_>| errors.map(|one| one.instance_path().to_string()).collect::<Vec<_>>();
            let told = counted.misfit(&value, Effort::Whole, |errors| places(errors.expect("few"))).unwrap();
            prop_assert_eq!(told.unwrap_or_default(), places(plain.iter_errors(&value)));
        }
    }
}
