//! `wasi:cli/environment`: the directory that it was started in.

#![no_std]

use component::told;
use wasi::cli::environment;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/environment-initial-cwd", generate_all });

component::probe!(|_: &str| { told(environment::initial_cwd()) });
