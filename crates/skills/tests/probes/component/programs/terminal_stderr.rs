//! `wasi:cli/terminal-stderr`: whether standard error is a terminal.

#![no_std]

use component::told;
use wasi::cli::terminal_stderr;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/terminal-stderr", generate_all });

component::probe!(|_: &str| { told(terminal_stderr::get_terminal_stderr().is_some()) });
