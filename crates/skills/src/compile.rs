//! Compiles a skill. Happens at install, in a child process with limits, and never on the path of a call.
//!
//! Guarantees: whatever the bytes are, the daemon sees either an artifact or an error; a compiler that dies on them takes nothing with it.
//! Does not: start the child, or limit it. The sandbox does. And it does not say what the skill imports: `palyra-package` reads that.

use std::{
    io::{self, Read, Write},
    process::ExitCode,
};

use palyra_package::Metering;
use palyra_types::visible::visible;
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
};
use wasmtime::Engine;
use wit_component::ComponentEncoder;

use crate::configuration;

/// What the compiler child is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileRequest {
    /// A component, or a core module that speaks WASI preview 1.
    pub wasm: Vec<u8>,
    /// How its work is to be counted, which is part of the code.
    pub metering: Metering,
}

/// Why nothing was compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// It is no WebAssembly.
    #[error("it is neither a component nor a module")]
    NotWasm,
    /// It is a module that cannot be made a component.
    #[error("the module cannot be made a component: {}", visible(.0))]
    NotAdaptable(String),
    /// The compiler does not take it.
    #[error("it does not compile: {}", visible(.0))]
    Refused(String),
    /// The request is none.
    #[error("the compiler was asked for something else than a compilation")]
    BadRequest,
    /// The compiler ended without an answer: it crashed, or met its limits.
    #[error("the compiler ended without an answer")]
    NoAnswer,
}

impl CompileError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::NotWasm => "build the skill for `wasm32-wasip2` or `wasm32-wasip1`",
            Self::NotAdaptable(_) => "build a command for WASI preview 1 that imports nothing else",
            Self::Refused(_) => {
                "build the skill without threads, shared memory, memory of 64 bits and garbage collection"
            }
            Self::BadRequest => "install the skill again; if it stays so, the programs do not belong together",
            Self::NoAnswer => "make the skill smaller, or give the compiler more memory and time",
        }
    }
}

impl CompileRequest {
    /// For the child's standard input.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut text = REQUEST.to_vec();
        text.push(match self.metering {
            Metering::Epoch => EPOCH,
            Metering::Fuel => FUEL,
        });
        frame(&mut text, &self.wasm);
        text
    }

    /// From the child's standard input.
    ///
    /// # Errors
    /// When it is something else.
    pub fn decode(bytes: &[u8]) -> Result<Self, CompileError> {
        let rest = bytes.strip_prefix(REQUEST).ok_or(CompileError::BadRequest)?;
        let (&metering, rest) = rest.split_first().ok_or(CompileError::BadRequest)?;
        let metering = match metering {
            EPOCH => Metering::Epoch,
            FUEL => Metering::Fuel,
            _ => return Err(CompileError::BadRequest),
        };
        Ok(Self { metering, wasm: unframe(rest).ok_or(CompileError::BadRequest)?.to_vec() })
    }
}

/// Compiles. Only the child does.
///
/// # Errors
/// When it is no skill.
pub fn compile(request: &CompileRequest) -> Result<Vec<u8>, CompileError> {
    let adapted;
    let component = if request.wasm.starts_with(CORE) {
        adapted = componentize(&request.wasm)?;
        &adapted
    } else if request.wasm.starts_with(COMPONENT) {
        &request.wasm
    } else {
        return Err(CompileError::NotWasm);
    };
    let refused = |error: wasmtime::Error| CompileError::Refused(format!("{error:#}"));
    let engine = Engine::new(&configuration::compiling(request.metering)).map_err(refused)?;
    engine.precompile_component(component).map_err(refused)
}

/// Makes a component of a core module that speaks WASI preview 1. It exports `wasi:cli/run`.
///
/// # Errors
/// When it does not speak that.
pub fn componentize(module: &[u8]) -> Result<Vec<u8>, CompileError> {
    ComponentEncoder::default()
        .validate(true)
        .module(module)
        .and_then(|encoder| {
            encoder.adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER)
        })
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| CompileError::NotAdaptable(format!("{error:#}")))
}

/// What a program does that was started as the compiler: reads a request, writes an answer.
pub fn child_main(mut input: impl Read, mut output: impl Write) -> ExitCode {
    let mut answer = ANSWER.to_vec();
    let mut request = Vec::new();
    let compiled = match input.read_to_end(&mut request) {
        Ok(_) => CompileRequest::decode(&request).and_then(|request| compile(&request)),
        Err(_) => Err(CompileError::BadRequest),
    };
    let (kind, content) = match compiled {
        Ok(artifact) => (COMPILED, artifact),
        Err(CompileError::NotWasm) => (NOT_WASM, Vec::new()),
        Err(CompileError::NotAdaptable(why)) => (NOT_ADAPTABLE, why.into_bytes()),
        Err(CompileError::Refused(why)) => (REFUSED, why.into_bytes()),
        Err(CompileError::BadRequest | CompileError::NoAnswer) => (BAD_REQUEST, Vec::new()),
    };
    answer.push(kind);
    frame(&mut answer, &content);
    let written: io::Result<()> = output.write_all(&answer).and_then(|()| output.flush());
    if written.is_ok() && kind == COMPILED { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Reads what the child wrote.
///
/// # Errors
/// When it could not compile, or did not come to the end of its answer.
pub fn read_answer(stdout: &[u8]) -> Result<Vec<u8>, CompileError> {
    let rest = stdout.strip_prefix(ANSWER).ok_or(CompileError::NoAnswer)?;
    let (&kind, rest) = rest.split_first().ok_or(CompileError::NoAnswer)?;
    let content = unframe(rest).ok_or(CompileError::NoAnswer)?;
    let text = || String::from_utf8_lossy(content).into_owned();
    Err(match kind {
        COMPILED => return Ok(content.to_vec()),
        NOT_WASM => CompileError::NotWasm,
        NOT_ADAPTABLE => CompileError::NotAdaptable(text()),
        REFUSED => CompileError::Refused(text()),
        BAD_REQUEST => CompileError::BadRequest,
        _ => CompileError::NoAnswer,
    })
}

fn frame(text: &mut Vec<u8>, content: &[u8]) {
    text.extend_from_slice(&u64::try_from(content.len()).unwrap_or(u64::MAX).to_be_bytes());
    text.extend_from_slice(content);
}

/// The content, if it is all there and nothing follows it.
fn unframe(bytes: &[u8]) -> Option<&[u8]> {
    let (length, content) = bytes.split_first_chunk()?;
    (u64::try_from(content.len()).ok()? == u64::from_be_bytes(*length)).then_some(content)
}

const REQUEST: &[u8] = b"palyra compile 1\n";
const ANSWER: &[u8] = b"palyra compiled 1\n";
const EPOCH: u8 = 0;
const FUEL: u8 = 1;
const COMPILED: u8 = 0;
const NOT_WASM: u8 = 1;
const NOT_ADAPTABLE: u8 = 2;
const REFUSED: u8 = 3;
const BAD_REQUEST: u8 = 4;
const CORE: &[u8] = b"\0asm\x01\0\0\0";
const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";
