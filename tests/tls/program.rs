//! Programs that others wrote, and what they say.

use std::{
    io::Write,
    process::{Command, Stdio},
};

/// What a program said before it ended.
#[derive(Debug)]
pub struct Ran {
    /// How it ended, if nothing killed it.
    pub code: Option<i32>,
    /// What it said.
    pub out: String,
    /// What it complained about.
    pub err: String,
}

impl Ran {
    /// Both, one behind the other.
    pub fn text(&self) -> String {
        format!("{}\n{}", self.out, self.err)
    }
}

/// Runs a program to its end: it is told this much and no more.
pub fn run(command: &mut Command, told: &str) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = command.spawn();
    let mut child = started.unwrap_or_else(|error| panic!("{command:?}: {error}; run `scripts/setup`"));
    // Who does not want to hear it has ended already.
    let _ = child.stdin.take().unwrap().write_all(told.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}
