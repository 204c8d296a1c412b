//! `palyra:skill/files`: makes or replaces a file.

#![no_std]

use component::told;
use palyra::skill::files;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/files-write", generate_all });

component::probe!(|input: &str| { told(files::write(input, b"written")) });
