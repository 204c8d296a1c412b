//! The compiler child: a request in, an artifact or an error out.

use palyra_package::Metering;
use palyra_skills::compile::{CompileError, CompileRequest, child_main, read_answer};

use crate::guests;

fn answer_to(input: &[u8]) -> Vec<u8> {
    let mut output = Vec::new();
    child_main(input, &mut output);
    output
}

#[test]
fn a_component_and_a_module_become_artifacts() {
    for wasm in [guests::small("", ""), guests::command()] {
        let request = CompileRequest { wasm, metering: Metering::Fuel };
        let artifact = read_answer(&answer_to(&request.encode())).unwrap();
        assert!(wasmtime_knows(&artifact));
    }
}

fn wasmtime_knows(artifact: &[u8]) -> bool {
    artifact.starts_with(b"\x7fELF")
}

#[test]
fn what_is_no_skill_is_refused_with_the_reason() {
    let compile = |wasm: Vec<u8>| read_answer(&answer_to(&CompileRequest { wasm, metering: Metering::Epoch }.encode()));
    assert_eq!(compile(b"#!/bin/sh".to_vec()), Err(CompileError::NotWasm));
    assert_eq!(compile(Vec::new()), Err(CompileError::NotWasm));
    let mut broken = guests::small("", "");
    broken.truncate(broken.len() / 2);
    assert!(matches!(compile(broken), Err(CompileError::Refused(_))));
    let foreign =
        wat::parse_str(r#"(module (import "env" "system" (func (param i32))) (func (export "_start")))"#).unwrap();
    assert!(matches!(compile(foreign), Err(CompileError::NotAdaptable(_))));
    for refused in [
        "(component (core module (memory i64 1)))",
        "(component (core module (memory 1 2 shared)))",
        "(component (core module (type (struct (field i32)))))",
    ] {
        assert!(matches!(compile(wat::parse_str(refused).unwrap()), Err(CompileError::Refused(_))), "{refused}");
    }
}

#[test]
fn a_request_survives_the_pipe_and_anything_else_is_none() {
    let request = CompileRequest { wasm: vec![1, 2, 3], metering: Metering::Fuel };
    let encoded = request.encode();
    assert_eq!(CompileRequest::decode(&encoded), Ok(request));
    for length in 0..encoded.len() {
        assert_eq!(CompileRequest::decode(&encoded[..length]), Err(CompileError::BadRequest), "{length}");
    }
    assert_eq!(CompileRequest::decode(&[encoded, vec![0]].concat()), Err(CompileError::BadRequest));
    assert_eq!(read_answer(&answer_to(b"hello")), Err(CompileError::BadRequest));
}

#[test]
fn an_answer_that_is_cut_short_is_none() {
    let answer = answer_to(&CompileRequest { wasm: guests::small("", ""), metering: Metering::Epoch }.encode());
    assert!(read_answer(&answer).is_ok());
    for length in [0, 5, answer.len() / 2, answer.len() - 1] {
        assert_eq!(read_answer(&answer[..length]), Err(CompileError::NoAnswer), "{length}");
    }
    assert_eq!(read_answer(&[answer, vec![0]].concat()), Err(CompileError::NoAnswer));
}
