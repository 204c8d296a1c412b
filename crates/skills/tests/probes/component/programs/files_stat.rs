//! `palyra:skill/files`: what is at a path.

#![no_std]

use component::told;
use palyra::skill::files;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/files-stat", generate_all });

component::probe!(|input: &str| { told(files::stat(input)) });
