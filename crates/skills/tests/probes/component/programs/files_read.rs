//! `palyra:skill/files`: the content of a file.

#![no_std]

use component::told;
use palyra::skill::files;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/files-read", generate_all });

component::probe!(|input: &str| { told(files::read(input)) });
