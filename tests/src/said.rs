//! What a command said: its exit code, its output and its complaints.

#![allow(clippy::panic, clippy::missing_panics_doc, reason = "a command that says something else ends the test")]

use std::process::Output;

use serde_json::Value;

/// What a command came to.
pub struct Said {
    /// Its exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Said {
    /// Of a command that is over.
    #[must_use]
    pub fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// That it ended with this code.
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        self
    }

    /// The document on its standard output.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {} {}", self.out, self.err))
    }

    /// What that document is about.
    #[must_use]
    pub fn data(&self) -> Value {
        self.json().get("data").cloned().unwrap_or_default()
    }

    /// The three lines of a failure that its standard error ends with.
    pub fn three_lines(&self) -> [&str; 3] {
        let lines: Vec<&str> = self.err.lines().rev().take(3).collect();
        let [help, cause, error] = lines[..] else { panic!("{}", self.err) };
        assert!(
            error.starts_with("error: ") && cause.starts_with("cause: ") && help.starts_with("help:  "),
            "{}",
            self.err
        );
        [error, cause, help]
    }
}
