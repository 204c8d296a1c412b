//! `wasi:cli/terminal-stdin`: whether standard input is a terminal.

#![no_std]

use component::told;
use wasi::cli::terminal_stdin;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/terminal-stdin", generate_all });

component::probe!(|_: &str| { told(terminal_stdin::get_terminal_stdin().is_some()) });
