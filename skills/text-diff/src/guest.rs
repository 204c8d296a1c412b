//! What the host calls: the exports of the world `palyra:skill`, handed to [`crate::tools`].

use bindings::{Guest, palyra::skill::types::Failure};

use crate::tools;

#[allow(unsafe_code, unused_qualifications, missing_docs, clippy::all, clippy::restriction, reason = "it is generated")]
mod bindings {
    wit_bindgen::generate!({ path: "../wit", world: "skill", pub_export_macro: true });
}

struct TextDiff;

impl Guest for TextDiff {
    fn run(tool: String, input: String) -> Result<String, Failure> {
        tools::run(&tool, &input)
            .map_err(|refused| Failure { code: refused.code().to_owned(), message: refused.to_string() })
    }
}

#[allow(unsafe_code, reason = "the names of exports are given by the world")]
mod exported {
    use super::{TextDiff, bindings};

    bindings::export!(TextDiff with_types_in bindings);
}
