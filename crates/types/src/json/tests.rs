//! JSON in every spelling that must not be read in two ways.

use std::fmt::Write;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn parse(text: &str) -> Result<Json, JsonError> {
    Json::parse(text.as_bytes(), Limits::default())
}

fn refusal(text: &str) -> String {
    parse(text).map_or_else(|error| error.to_string(), |json| panic!("{text} was taken as {}", json.canonical()))
}

fn fault(text: &str) -> JsonFault {
    parse(text).unwrap_err().fault
}

#[test]
fn the_example_of_rfc_8785_is_spelt_as_it_says() {
    let input = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    let expected = r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
    assert_eq!(parse(input).unwrap().canonical(), expected);
}

#[test]
fn keys_are_sorted_by_utf16_code_units_as_in_the_rfc() {
    let input = r#"{
        "\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One",
        "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin Small Letter O With Diaeresis"
    }"#;
    let expected = "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\
        \"\u{f6}\":\"Latin Small Letter O With Diaeresis\",\"\u{20ac}\":\"Euro Sign\",\
        \"\u{1f600}\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}";
    assert_eq!(parse(input).unwrap().canonical(), expected);
}

/// Appendix B of RFC 8785: the bits of a double and its text. Integers beyond 2^53−1 that are written in digits are refused.
#[test]
fn the_numbers_of_rfc_8785_are_spelt_as_it_says_or_refused() {
    let samples = [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "refused"),
        (0xc340_0000_0000_0000, "refused"),
        (0x4430_0000_0000_0000, "refused"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "refused"),
        (0x444b_1ae4_d6e2_ef4f, "refused"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ];
    for (bits, expected) in samples {
        let text = canonical_of(&f64::from_bits(bits)).unwrap_or_else(|_| "refused".to_owned());
        assert_eq!(text, expected, "{bits:016x}");
    }
}

#[test]
fn a_key_that_stands_twice_is_refused_at_any_depth_and_however_it_is_escaped() {
    assert_eq!(refusal(r#"{"a":1,"a":1}"#), "the key `a` stands twice (line 1, column 8)");
    assert_eq!(refusal(r#"{"x":[0,{"a":1,"\u0061":2}]}"#), "the key `a` stands twice at `$.x[1]` (line 1, column 16)");
    assert_eq!(refusal("{\"\u{202e}\":1,\"\\u202E\":2}"), "the key `<U+202E>` stands twice (line 1, column 8)");
}

#[test]
fn lone_surrogates_are_refused_and_pairs_are_one_character() {
    assert_eq!(refusal(r#"["\ud800"]"#), r"a string holds the lone surrogate `\ud800` at `$[0]` (line 1, column 3)");
    assert_eq!(fault(r#""\udc00""#), JsonFault::LoneSurrogate(0xdc00));
    assert_eq!(fault(r#""\ud83d\ud83d\ude00""#), JsonFault::LoneSurrogate(0xd83d));
    assert_eq!(fault(r#""\ud83dx""#), JsonFault::LoneSurrogate(0xd83d));
    assert_eq!(fault(r#""\ud83d\u0041""#), JsonFault::LoneSurrogate(0xd83d));
    assert_eq!(fault(r#"{"\udead":1}"#), JsonFault::LoneSurrogate(0xdead));
    assert_eq!(parse(r#""\ud83d\ude00""#).unwrap().canonical(), "\"😀\"");
    assert_eq!(parse(r#""\uffff""#).unwrap().canonical(), "\"\u{ffff}\"");
}

#[test]
fn numbers_that_not_every_reader_takes_exactly_are_refused() {
    let edges = "[9007199254740991,-9007199254740991]";
    assert_eq!(parse(edges).unwrap().canonical(), edges);
    for text in ["9007199254740992", "-9007199254740992", "18446744073709551616", "9007199254740992.0", "1e20"] {
        assert!(matches!(fault(text), JsonFault::IntegerOutOfRange(_)), "{text}");
    }
    let long = "1".repeat(400);
    assert!(matches!(fault(&long), JsonFault::IntegerOutOfRange(_)));
    assert!(matches!(fault(&format!("{long}.5")), JsonFault::NumberOverflow(_)));
    assert_eq!(refusal(r#"{"n":[1e400]}"#), "the number `1e400` is too large at `$.n[0]` (line 1, column 7)");
    assert_eq!(parse("[1e30,1e-400,3.141592653589793238462643]").unwrap().canonical(), "[1e+30,0,3.141592653589793]");
}

#[test]
fn one_number_has_one_representation() {
    for text in ["1", "1.0", "1e0", "10e-1", "0.1e1"] {
        assert_eq!(parse(text).unwrap().value(), &json!(1), "{text}");
    }
    for text in ["0", "-0", "0.0", "-0.0", "0e9", "-1e-999"] {
        assert_eq!(parse(text).unwrap().value(), &json!(0), "{text}");
    }
}

#[test]
fn ten_thousand_levels_are_refused_at_the_sixty_fifth() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(parse(&nested(64)).is_ok());
    let error = parse(&nested(10_000)).unwrap_err();
    assert_eq!(
        (error.fault, error.position),
        (JsonFault::TooDeep { limit: 64 }, Some(Position { line: 1, column: 65 }))
    );
    assert_eq!(fault(&r#"{"a":"#.repeat(10_000)), JsonFault::TooDeep { limit: 64 });
    let mut value = json!(1);
    for _ in 0..65 {
        value = json!([value]);
    }
    assert_eq!(Json::try_from_value(value, Limits::default()).unwrap_err().fault, JsonFault::TooDeep { limit: 64 });
}

#[test]
fn text_that_is_no_json_is_refused_with_its_place() {
    assert_eq!(refusal("{\n \"a\": [1, tru]\n}"), "expected a value, found `t` at `$.a[1]` (line 2, column 11)");
    assert_eq!(refusal("[1,]"), "expected a value, found `]` at `$[1]` (line 1, column 4)");
    assert_eq!(refusal("{\"a\" 1}"), "expected `:`, found `1` (line 1, column 6)");
    assert_eq!(refusal("{a:1}"), "expected a key in quotes, found `a` (line 1, column 2)");
    assert_eq!(refusal("[1 2]"), "expected `,` or `]`, found `2` (line 1, column 4)");
    assert_eq!(refusal("\u{feff}{}"), "the JSON starts with a byte order mark (line 1, column 1)");
    assert_eq!(refusal("{} {}"), "something follows after the JSON value (line 1, column 4)");
    assert_eq!(refusal("01"), "something follows after the JSON value (line 1, column 2)");
    assert_eq!(refusal("\"a\nb\""), "a string holds the control character `<U+000A>` unescaped (line 1, column 3)");
    for text in ["", " ", "[", "{\"a\"", "\"a", "-", "1.", "1e", "\"\\", "[1"] {
        assert_eq!(fault(text), JsonFault::UnexpectedEnd, "{text:?}");
    }
    for text in [r#""\x""#, r#""\u12g4""#, r#""\u+123""#, r#""\u12é""#] {
        assert_eq!(fault(text), JsonFault::BadEscape, "{text:?}");
    }
    for text in [".5", "+1", "NaN", "Infinity", "'a'", "/**/1", "\u{a0}1"] {
        assert!(matches!(fault(text), JsonFault::Expected { what: "a value", .. }), "{text:?}");
    }
}

#[test]
fn bytes_that_are_not_utf8_and_texts_that_are_too_long_are_refused() {
    let error = Json::parse(b"[\"\xff\"]", Limits::default()).unwrap_err();
    assert_eq!(error.to_string(), "the JSON is not valid UTF-8 (line 1, column 3)");
    // A surrogate in UTF-8's own clothes (CESU-8) is not UTF-8.
    assert_eq!(Json::parse(b"\"\xed\xa0\x80\"", Limits::default()).unwrap_err().fault, JsonFault::NotUtf8);
    let limits = Limits { bytes: 4, ..Limits::default() };
    assert_eq!(Json::parse(b"[1,2]", limits).unwrap_err().fault, JsonFault::TooLong { length: 5, limit: 4 });
    assert_eq!(
        Json::try_from_value(json!([1, 2]), limits).unwrap_err().fault,
        JsonFault::TooLong { length: 5, limit: 4 }
    );
}

#[test]
fn a_text_of_more_values_than_may_be_is_refused_where_there_are_too_many() {
    let limits = Limits { values: 11, ..Limits::default() };
    let fault = |text: &str| read(text.as_bytes(), limits).map_err(|error| error.to_string());
    // The array, the object, which counts as eight, and two numbers.
    assert_eq!(fault(r#"[{"a":0},0]"#), Ok(json!([{"a": 0}, 0])));
    let refused = "the JSON holds more than 11 values, of which an object counts as 8";
    assert_eq!(fault(r#"[{"a":0},0,0]"#).unwrap_err(), format!("{refused} at `$[2]` (line 1, column 12)"));
    assert_eq!(fault("[{},{}]").unwrap_err(), format!("{refused} at `$[1]` (line 1, column 5)"));
    // A long text is one value.
    let long = json!("x".repeat(100_000));
    assert_eq!(read(long.to_string().as_bytes(), limits), Ok(long));
    let many = format!("[{}0]", "0,".repeat(400_000));
    assert!(Json::parse(many.as_bytes(), Limits::default()).is_ok());
}

#[test]
fn a_value_built_in_memory_is_held_to_the_same_numbers() {
    let refusal = |value| Json::try_from_value(value, Limits::default()).unwrap_err().to_string();
    assert_eq!(
        refusal(json!({"a": [u64::MAX]})),
        "the number `18446744073709551615` is not between -9007199254740991 and 9007199254740991 at `$.a[0]`"
    );
    assert!(refusal(json!({"a b": i64::MIN})).ends_with("at `$[\"a b\"]`"));
    assert_eq!(Json::try_from_value(json!([1.0, -0.0]), Limits::default()).unwrap().value(), &json!([1, 0]));
}

#[test]
fn two_numbers_that_a_double_cannot_tell_apart_never_share_a_digest() {
    assert!(digest_of(&(1_u64 << 53)).is_err());
    assert!(digest_of(&((1_u64 << 53) + 1)).is_err());
    assert!(digest_of(&(1_u128 << 80)).is_err());
    assert!(digest_of(&f64::NAN).is_err());
    assert_eq!(digest_of(&json!({"b": 1, "a": 2})).unwrap(), Sha256Digest::of(br#"{"a":2,"b":1}"#));
}

#[test]
fn an_object_is_wanted_where_one_is() {
    assert_eq!(JsonObject::parse(b"[]", Limits::default()).unwrap_err().to_string(), "the JSON is not an object");
    assert_eq!(JsonObject::parse(b" {} ", Limits::default()).unwrap(), JsonObject::empty());
    let object = JsonObject::parse(br#"{"a":1}"#, Limits::default()).unwrap();
    assert_eq!((object.get("a"), object.get("b")), (Some(&json!(1)), None));
}

/// A second, simple-minded writer for values without fractions.
fn write_plainly(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => {
            out.push('"');
            for c in text.chars() {
                match c {
                    '"' | '\\' => write!(out, "\\{c}").unwrap(),
                    '\u{8}' => out.push_str("\\b"),
                    '\u{c}' => out.push_str("\\f"),
                    '\n' => out.push_str("\\n"),
                    '\r' => out.push_str("\\r"),
                    '\t' => out.push_str("\\t"),
                    '\0'..='\x1f' => write!(out, "\\u{:04x}", u32::from(c)).unwrap(),
                    _ => out.push(c),
                }
            }
            out.push('"');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                write_plainly(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(key, _)| key.encode_utf16().collect::<Vec<_>>());
            out.push('{');
            for (index, (key, member)) in members.into_iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                write_plainly(&Value::String(key.clone()), out);
                out.push(':');
                write_plainly(member, out);
            }
            out.push('}');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

fn values(numbers: BoxedStrategy<Value>) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        numbers,
        any::<String>().prop_map(Value::String),
        "[a-c\u{e000}\u{10000}\u{ffff}]{0,3}".prop_map(Value::String),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::vec(("[a-c\u{e000}\u{10000}\\n\"]{0,2}", inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn integers() -> BoxedStrategy<Value> {
    (-9_007_199_254_740_991_i64..=9_007_199_254_740_991).prop_map(Value::from).boxed()
}

fn any_numbers() -> BoxedStrategy<Value> {
    prop_oneof![integers(), any::<f64>().prop_map(Value::from), any::<i64>().prop_map(Value::from)].boxed()
}

proptest! {
    #[test]
    fn the_canonical_spelling_reads_back_as_the_same_value_and_is_a_fixed_point(value in values(any_numbers())) {
        if let Ok(json) = Json::try_from_value(value, Limits::default()) {
            let again = parse(json.canonical()).unwrap();
            prop_assert_eq!(again.value(), json.value());
            prop_assert_eq!(again.canonical(), json.canonical());
            prop_assert_eq!(canonical_of(json.value()).unwrap(), json.canonical());
        }
    }

    #[test]
    fn a_second_writer_agrees(value in values(integers())) {
        let mut plainly = String::new();
        write_plainly(&value, &mut plainly);
        let json = Json::try_from_value(value, Limits::default()).unwrap();
        prop_assert_eq!(json.canonical(), plainly);
    }

    #[test]
    fn a_second_reader_agrees(text in r#"[\[\]{}:,"\\ud8c019.eE+\- \ntrl]{0,12}"#) {
        agree(&text)?;
    }

    #[test]
    fn a_second_reader_agrees_about_damaged_json(value in values(any_numbers()), at in any::<prop::sample::Index>(), with in r#"[\[\]{}:,"\\u0.e-]{0,2}"#) {
        let mut text: Vec<char> = value.to_string().chars().collect();
        let at = at.index(text.len());
        text.splice(at..=at, with.chars());
        agree(&text.into_iter().collect::<String>())?;
    }
}

/// What is accepted, `serde_json` reads as the same value; what is refused as no JSON, it refuses too.
fn agree(text: &str) -> Result<(), TestCaseError> {
    let theirs = serde_json::from_str::<Value>(text);
    match parse(text) {
        Ok(json) => {
            let theirs = Json::try_from_value(theirs.unwrap(), Limits::default()).unwrap();
            prop_assert_eq!(json, theirs);
        }
        Err(error) => match error.fault {
            JsonFault::DuplicateKey(_) | JsonFault::IntegerOutOfRange(_) => {}
            _ => prop_assert!(theirs.is_err(), "{error}, but serde_json reads {text:?}"),
        },
    }
    Ok(())
}
