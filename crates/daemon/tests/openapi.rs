//! The description of the API is part of the API: a change shows up in `openapi.json` of this crate, and is looked at.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::{env, fs, path::Path};

#[test]
fn the_description_is_the_one_that_was_reviewed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let mut text = serde_json::to_string_pretty(&palyra_daemon::routes::description()).unwrap();
    text.push('\n');
    if env::var_os("UPDATE_OPENAPI").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let reviewed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        reviewed == text,
        "openapi.json differs; look at what changes: UPDATE_OPENAPI=1 cargo test -p palyra-daemon --test openapi"
    );
}

#[test]
fn every_route_that_is_served_is_in_the_guide() {
    let guide = include_str!("../../../docs/api.md");
    let description = serde_json::to_value(palyra_daemon::routes::description()).unwrap();
    let paths = description.get("paths").unwrap().as_object().unwrap();
    for path in paths.keys() {
        let short = path.rsplit('/').next().unwrap();
        assert!(
            guide.contains(path.as_str()) || guide.contains(&format!("`…/{short}`")),
            "{path} is not in docs/api.md"
        );
    }
}
