//! `wasi:cli/environment`: the arguments.

#![no_std]

use component::told;
use wasi::cli::environment;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/environment-get-arguments", generate_all });

component::probe!(|_: &str| { told(environment::get_arguments()) });
