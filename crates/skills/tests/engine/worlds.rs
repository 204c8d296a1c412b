//! Each world, and commands, side by side.

use palyra_skills::{
    engine::EngineError,
    host::LogLevel,
    outcome::{LogLine, SkillFailure},
};

use crate::{guests, lab::Lab};

#[tokio::test]
async fn both_worlds_and_a_command_run_in_one_engine() {
    let lab = Lab::new();
    let (new, old, command) =
        (lab.load(&guests::probe()), lab.load(&guests::small("", "")), lab.load(&guests::command()));
    assert_eq!(lab.call(&new).answer("echo", r#"{"a":1}"#).await, Ok(r#"{"a":1}"#.to_owned()));
    assert_eq!(lab.call(&old).answer("any", "{}").await, Ok("{}".to_owned()));
    assert_eq!(
        lab.call(&command).answer("echo", r#"{"a":1}"#).await,
        Ok(r#"{"program":"acme/probe","input":{"a":1}}"#.to_owned())
    );
}

#[test]
fn what_imports_or_exports_something_else_does_not_load() {
    let lab = Lab::new();
    let error = lab.try_load(&guests::beside(r#"(import "wasi:nn/graph@0.2.0" (instance (export "load" (func))))"#));
    assert!(matches!(&error, Err(EngineError::UnknownImport { .. })), "{error:?}");
    let empty = lab.try_load(&wat::parse_str("(component)").unwrap());
    assert!(matches!(&empty, Err(EngineError::NoEntry)), "{empty:?}");
}

#[tokio::test]
async fn a_skill_that_fails_says_why() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let told = SkillFailure::Told { code: "asked-to".to_owned(), message: "so it did".to_owned() };
    assert_eq!(lab.call(&skill).answer("fail", "\"so it did\"").await, Err(told));
}

#[tokio::test]
async fn a_command_that_fails_says_the_end_of_its_standard_error() {
    let lab = Lab::new();
    let skill = lab.load(&guests::command());
    let run = lab.call(&skill).run("fail", "\"late\"").await;
    assert_eq!(run.answer, Err(SkillFailure::Told { code: "exit-1".to_owned(), message: "it is late".to_owned() }));
    assert_eq!(run.log, [LogLine { level: LogLevel::Warn, message: "it is late".to_owned() }]);
    assert_eq!(lab.call(&skill).answer("quiet-fail", "1").await, Err(SkillFailure::Exited { code: 1 }));
    assert_eq!(lab.call(&skill).answer("succeed-early", "1").await, Ok("true".to_owned()));
}
