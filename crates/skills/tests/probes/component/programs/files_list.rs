//! `palyra:skill/files`: what is in a directory.

#![no_std]

use component::told;
use palyra::skill::files;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/files-list", generate_all });

component::probe!(|input: &str| { told(files::list(input)) });
