//! Reads a question and puts it to data.
//!
//! Guarantees: a question that is none is refused with the place; results come one after the other, so that a question with results without
//! end can be stopped.

use jaq_core::{
    Compiler, Ctx, Vars,
    compile::Undefined,
    data::JustLut,
    load::{self, Arena, File, Loader},
};
use jaq_json::Val;

use crate::{filters, written};

/// A question, and the variables that it can use.
#[derive(Debug)]
pub struct Question<'a> {
    /// In the language of jq.
    pub text: &'a str,
    /// Names, with the `$` before them, and values.
    pub variables: Vec<(String, Val)>,
}

/// Whether there shall be more results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// There shall.
    More,
    /// That was enough.
    Enough,
}

impl Question<'_> {
    /// Puts the question to data, and hands over one result after the other.
    ///
    /// # Errors
    /// When the question is none, or when it fails; or what `each` refuses.
    pub fn put<E: From<Unanswered>>(&self, data: Val, mut each: impl FnMut(&Val) -> Result<Next, E>) -> Result<(), E> {
        let arena = Arena::default();
        let file = File { code: self.text, path: () };
        let modules = Loader::new(filters::definitions()).load(&arena, file).map_err(|errs| self.malformed(errs))?;
        let filter = Compiler::default()
            .with_funs(filters::natives())
            .with_global_vars(self.variables.iter().map(|(name, _)| name.as_str()))
            .compile(modules)
            .map_err(undefined)?;
        let values = self.variables.iter().map(|(_, value)| value.clone());
        let context = Ctx::<JustLut<Val>>::new(&filter.lut, Vars::new(values));
        for result in filter.id.run((context, data)) {
            let result = result.map_err(|exception| match exception.get_err() {
                Ok(err) => Unanswered::Failed(message(&written::cut(&err, MESSAGE))),
                Err(_) => Unanswered::Failed("it ended itself".to_owned()),
            })?;
            if each(&result)? == Next::Enough {
                break;
            }
        }
        Ok(())
    }

    fn malformed(&self, errs: load::Errors<&str, ()>) -> Unanswered {
        let Some((_, err)) = errs.into_iter().next() else { return Unanswered::Modules };
        let (expected, rest) = match err {
            load::Error::Io(_) => return Unanswered::Modules,
            load::Error::Lex(errs) => match errs.into_iter().next() {
                Some((load::lex::Expect::Delim(delimiter), rest)) => (closing(delimiter), rest),
                Some((expected, rest)) => (expected.as_str().to_owned(), rest),
                None => return Unanswered::Modules,
            },
            load::Error::Parse(errs) => match errs.into_iter().next() {
                Some((expected, rest)) => (expected.as_str().to_owned(), rest),
                None => return Unanswered::Modules,
            },
        };
        let start = load::span(self.text, rest).start;
        let character = self.text.get(..start).unwrap_or_default().chars().count() + 1;
        let found = match rest {
            "" => "the end".to_owned(),
            _ => format!("`{}`", written::cut(&rest.escape_debug(), FOUND)),
        };
        Unanswered::Malformed { character, expected, found }
    }
}

/// Why a question has no results, or no more of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// It is not written in the language.
    #[error("the query breaks off at character {character}: expected {expected}, found {found}")]
    Malformed {
        /// Where, from 1.
        character: usize,
        /// What could have stood there.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// It uses what does not exist.
    #[error("the query uses the {kind} `{name}`, which does not exist here")]
    Undefined {
        /// What kind of thing.
        kind: &'static str,
        /// What it calls it, and for a filter with how many arguments.
        name: String,
    },
    /// It wants to import modules.
    #[error("a query cannot import modules")]
    Modules,
    /// It failed while it ran.
    #[error("the query failed: {0}")]
    Failed(String),
}

fn undefined(errs: jaq_core::compile::Errors<&str, ()>) -> Unanswered {
    let first = errs.into_iter().flat_map(|(_, errs)| errs).next();
    match first {
        Some((name, Undefined::Filter(arity))) => {
            Unanswered::Undefined { kind: "filter", name: format!("{}/{arity}", written::cut(&name, FOUND)) }
        }
        Some((name, kind)) => Unanswered::Undefined { kind: kind.as_str(), name: written::cut(&name, FOUND) },
        None => Unanswered::Modules,
    }
}

/// What a query says about its failure is a value, and mostly text. Text is told without its quotes.
fn message(told: &str) -> String {
    serde_json::from_str(told).unwrap_or_else(|_| told.to_owned())
}

fn closing(delimiter: &str) -> String {
    match delimiter {
        "(" => "closing parenthesis",
        "[" => "closing bracket",
        "{" => "closing brace",
        _ => "closing quote",
    }
    .to_owned()
}

/// The most bytes of what a question says about its failure.
const MESSAGE: usize = 1000;
/// The most bytes of what is quoted of a question.
const FOUND: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use jaq_json::read::parse_single;

    /// Results one per line, or why there are none.
    fn ask(data: &str, text: &str) -> String {
        let question = Question { text, variables: vec![("$limit".to_owned(), Val::from(2_isize))] };
        let mut lines = String::new();
        let put = question.put::<Unanswered>(parse_single(data.as_bytes()).unwrap(), |result| {
            written::write(result, &mut lines, written::MOST).unwrap();
            lines.push(' ');
            Ok(Next::More)
        });
        match put {
            Ok(()) => lines.trim_end().to_owned(),
            Err(why) => format!("{lines}{why}"),
        }
    }

    #[test]
    fn the_language_is_there() {
        let people = r#"[{"name":"Ada","age":36,"tags":["x","y"]},{"name":"Bob","age":25,"tags":[]},{"name":"Cy","age":36,"tags":["z"]}]"#;
        let cases = [
            (".[0]", r#"{"name":"Ada","age":36,"tags":["x","y"]}"#),
            (".[1].name", r#""Bob""#),
            (".[-1].tags[0]", r#""z""#),
            ("[.[1:3][].name]", r#"["Bob","Cy"]"#),
            (".[].name", r#""Ada" "Bob" "Cy""#),
            ("[.[] | .age, 1]", "[36,1,25,1,36,1]"),
            (".[0].name[0]?", ""),
            ("map({(.name): .age}) | add", r#"{"Ada":36,"Bob":25,"Cy":36}"#),
            ("{a: .[0].age, b: [1, 2]}", r#"{"a":36,"b":[1,2]}"#),
            ("[1 + 2 * 3, 7 / 2, 7 % 4, -1]", "[7,3.5,3,-1]"),
            ("[1 < 2, 1 == 1.0, \"a\" >= \"b\", 1 != 2]", "[true,true,false,true]"),
            ("[(true and false), (null or 1), (1 | not)]", "[false,true,false]"),
            ("[.[] | select(.age > 30) | .name]", r#"["Ada","Cy"]"#),
            ("map(.tags | length)", "[2,0,1]"),
            (".[0] | keys", r#"["age","name","tags"]"#),
            ("[(.[0] | has(\"age\", \"x\")), has(5)]", "[true,false,false]"),
            ("sort_by(.age, .name) | map(.name)", r#"["Bob","Ada","Cy"]"#),
            ("group_by(.age) | map(map(.name))", r#"[["Bob"],["Ada","Cy"]]"#),
            ("unique_by(.age) | length", "2"),
            ("[min_by(.age).name, max_by(.age).name]", r#"["Bob","Cy"]"#),
            ("[any(.[]; .age > 35), all(.[]; .age > 35), ([] | any), ([] | all)]", "[true,false,false,true]"),
            (".[0] | to_entries | map(.key)", r#"["name","age","tags"]"#),
            (r#"[{"key": "a", "value": 1}] | from_entries"#, r#"{"a":1}"#),
            (".[1] | with_entries(select(.key != \"tags\"))", r#"{"name":"Bob","age":25}"#),
            ("[.[].name | test(\"^[a-b]\"; \"i\")]", "[true,true,false]"),
            (r#""a, b,c" | split(", *"; null // ""), split(",")"#, r#"["a","b","c"] ["a"," b","c"]"#),
            ("map(.name) | join(\"-\")", r#""Ada-Bob-Cy""#),
            (r#"[1, "2" | tonumber], ([1] | tostring)"#, r#"[1,2] "[1]""#),
            (".[0].missing // \"none\"", r#""none""#),
            ("[.[] | if .age > 30 then \"old\" elif .age > 20 then \"young\" else 0 end]", r#"["old","young","old"]"#),
            ("reduce .[] as $p (0; . + $p.age)", "97"),
            ("[foreach (1, 2, 3) as $x (0; . + $x)]", "[1,3,6]"),
            (".[0] as {name: $n, tags: [$t]} | [$n, $t]", r#"["Ada","x"]"#),
            ("[limit($limit; .[].name)], first(.[].age), ([.[].age] | first)", r#"["Ada","Bob"] 36 36"#),
            ("[.[2] | .. | numbers, strings]", r#"["Cy",36,"z"]"#),
            ("[3 | recurse(if . > 0 then . - 1 else empty end)]", "[3,2,1,0]"),
            (r#".[0] | "\(.name) is \(.age + 1)""#, r#""Ada is 37""#),
            ("def double: . * 2; .[0].age | double", "72"),
            ("[.[] | try error(.name) catch .]", r#"["Ada","Bob","Cy"]"#),
            (".[0].tags |= map(ascii_upcase) | .[0].tags", r#"["X","Y"]"#),
            ("del(.[0].tags) | .[0]", r#"{"name":"Ada","age":36}"#),
            ("[paths(type == \"number\")] | length", "3"),
            ("[9 | sqrt, pow(.; 2), log10 * 0]", "[3,81,0]"),
            (
                "\"aXbX\" | [match(\"X\"; \"g\").offset], sub(\"X\"; \"-\"), gsub(\"(?<l>[a-z])X\"; \"<\\(.l)>\")",
                r#"[1,3] "a-bX" "<a><b>""#,
            ),
            ("\"äX\" | capture(\"(?<c>X)\"), (match(\"X\") | .offset)", r#"{"c":"X"} 1"#),
            ("[scan(\"[a-z]\"; \"g\")?], ([\"ab\" | scan(\"[a-z]\")])", r#"[] ["a","b"]"#),
            ("\"'\" | @sh, @json, @text", r#""''\\'''" "\"'\"" "'""#),
            ("[splits(\"a\")?] , (\"bab\" | [splits(\"a\")])", r#"[] ["b","b"]"#),
            ("walk(if type == \"object\" then .age else . end)", "[36,25,36]"),
            ("[range(3)], [range(0; 10; 4)]", "[0,1,2] [0,4,8]"),
            (
                "(.[0].tags | index(\"y\")), ([3, 1, 2] | sort, min, max, unique, reverse)",
                "1 [1,2,3] 1 3 [1,2,3] [2,1,3]",
            ),
            ("[.[].tags] | flatten", r#"["x","y","z"]"#),
            ("\"[1]\" | fromjson", "[1]"),
            ("label $out | .[] | .name, break $out", r#""Ada""#),
        ];
        for (text, results) in cases {
            assert_eq!(ask(people, text), results, "{text}");
        }
    }

    #[test]
    fn a_question_that_is_none_is_refused_with_the_place() {
        let cases = [
            (".[", "the query breaks off at character 3: expected closing bracket, found the end"),
            ("", "the query breaks off at character 1: expected term, found the end"),
            (".a |", "the query breaks off at character 5: expected term, found the end"),
            (".a b", "the query breaks off at character 4: expected nothing, found `b`"),
            ("ä", "the query breaks off at character 1: expected token, found `ä`"),
            ("\"a", "the query breaks off at character 3: expected closing quote, found the end"),
            ("if . then 1", "the query breaks off at character 12: expected else or end, found the end"),
            ("foo(1)", "the query uses the filter `foo/1`, which does not exist here"),
            ("$x", "the query uses the variable `$x`, which does not exist here"),
            ("import \"a\" as a; 1", "a query cannot import modules"),
        ];
        for (text, why) in cases {
            assert_eq!(ask("null", text), why, "{text}");
        }
    }

    #[test]
    fn nothing_outside_can_be_asked_about() {
        for filter in [
            "now",
            "env",
            "input",
            "inputs",
            "debug",
            "stderr",
            "halt",
            "halt_error",
            "input_filename",
            "get_search_list",
        ] {
            assert_eq!(
                ask("null", filter),
                format!("the query uses the filter `{filter}/0`, which does not exist here")
            );
        }
        assert_eq!(ask("null", "$ENV"), "the query uses the variable `$ENV`, which does not exist here");
    }

    #[test]
    fn results_before_a_failure_are_handed_over() {
        assert_eq!(ask("[1, {}]", ".[] + 1"), "2 the query failed: cannot calculate {} + 1");
        assert_eq!(ask("null", "error(\"mine\")"), "the query failed: mine");
        let no_pattern = ask("null", "\"a\" | test(\"(\")");
        assert!(no_pattern.starts_with("the query failed: `(` is no pattern: "), "{no_pattern}");
        assert_eq!(ask("null", "\"a\" | test(\"a\"; \"q\")"), "the query failed: `q` is no flag of a pattern");
    }

    #[test]
    fn what_a_failure_says_is_bounded() {
        let told = ask("null", "reduce range(60) as $i (1; [., .]) | error");
        assert!(told.len() < 1100 && told.ends_with('…'), "{}", told.len());
    }

    #[test]
    fn results_without_end_can_be_stopped() {
        let question = Question { text: "repeat(1)", variables: Vec::new() };
        let mut count = 0;
        let put = question.put::<Unanswered>(Val::Null, |_| {
            count += 1;
            Ok(if count == 10 { Next::Enough } else { Next::More })
        });
        assert_eq!((put, count), (Ok(()), 10));
    }
}
