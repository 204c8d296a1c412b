//! `wasi:cli/terminal-stdout`: whether standard output is a terminal.

#![no_std]

use component::told;
use wasi::cli::terminal_stdout;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/terminal-stdout", generate_all });

component::probe!(|_: &str| { told(terminal_stdout::get_terminal_stdout().is_some()) });
