//! `palyra:skill/files`: removes a file.

#![no_std]

use component::told;
use palyra::skill::files;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/files-delete", generate_all });

component::probe!(|input: &str| { told(files::delete(input)) });
