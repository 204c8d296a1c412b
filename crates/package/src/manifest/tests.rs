//! Manifests that are taken, and those that are not.

use std::collections::BTreeMap;

use palyra_types::SkillId;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{capability::Destination, capability::KvQuota, limits::Metering};

const WHOLE: &str = r#"
id = "acme/text-diff"
version = "1.2.0"
publisher = "acme"
license = "MIT OR Apache-2.0"
summary = "Compares texts"
description = """
Compares texts line by line.
"""
homepage = "https://example.org/text-diff"
entry = "diff.wasm"
sbom = "sbom.json"

[[tool]]
name = "diff"
summary = "Says what changed"
description = "In unified form."
input = { type = "object", required = ["old", "new"], properties = { old = { type = "string" }, new = { type = "string" } } }
output = "schemas/diff.json"

[[tool]]
name = "words_2"
summary = "Counts words"
input = {}

[capabilities]
log = true
kv = { bytes = 65536, entries = 100 }
http = ["api.example.org:443"]
inert = ["wasi:sockets"]

[capabilities.secrets]
token = "The key of the API"

[capabilities.files]
notes = "write"

[limits]
metering = "fuel"
fuel = 1000

[build]
command = ["cargo", "build", "--release"]
output = "target/wasm32-wasip2/release/text_diff.wasm"
"#;

const SMALL: &str = r#"
id = "acme/small"
version = "0.1.0"
publisher = "acme"
license = "Apache-2.0"
summary = "Little"
[[tool]]
name = "do"
summary = "Does it"
input = { type = "object" }
"#;

fn read(text: &str) -> Result<Manifest, ManifestError> {
    Manifest::parse(text, |name| (name == "schemas/diff.json").then_some(br#"{"type": "object"}"#.as_slice()))
}

/// The small manifest with one line of it replaced, or another one put in front.
fn with(line: &str) -> String {
    let key = line.split('=').next().unwrap_or_default();
    let (head, tools) = SMALL.split_once("[[tool]]").unwrap();
    let kept: Vec<&str> = head.lines().filter(|old| !old.starts_with(key) || key.is_empty()).collect();
    format!("{line}\n{}\n[[tool]]{tools}", kept.join("\n"))
}

fn refused(text: &str) -> ManifestError {
    read(text).unwrap_err()
}

#[test]
fn a_whole_manifest_is_read_with_its_schemas() {
    let manifest = read(WHOLE).unwrap();
    assert_eq!(
        manifest,
        Manifest {
            id: PackageId::parse("acme/text-diff").unwrap(),
            version: Version::new(1, 2, 0),
            publisher: PublisherName::parse("acme").unwrap(),
            license: "MIT OR Apache-2.0".to_owned(),
            summary: "Compares texts".to_owned(),
            description: Some("Compares texts line by line.\n".to_owned()),
            homepage: Some("https://example.org/text-diff".to_owned()),
            entry: "diff.wasm".to_owned(),
            sbom: Some("sbom.json".to_owned()),
            tools: vec![
                SkillTool {
                    name: "diff".to_owned(),
                    summary: "Says what changed".to_owned(),
                    description: Some("In unified form.".to_owned()),
                    input: json!({
                        "type": "object",
                        "required": ["old", "new"],
                        "properties": {"old": {"type": "string"}, "new": {"type": "string"}}
                    }),
                    output: Some(json!({"type": "object"})),
                },
                SkillTool {
                    name: "words_2".to_owned(),
                    summary: "Counts words".to_owned(),
                    description: None,
                    input: json!({}),
                    output: None,
                },
            ],
            capabilities: Capabilities {
                log: true,
                kv: Some(KvQuota { bytes: 65536, entries: 100 }),
                http: [Destination::parse("api.example.org:443").unwrap()].into(),
                secrets: BTreeMap::from([("token".to_owned(), "The key of the API".to_owned())]),
                files: BTreeMap::from([("notes".to_owned(), FileAccess::Write)]),
                inert: ["wasi:sockets".to_owned()].into(),
                ..Capabilities::default()
            },
            limits: SkillLimits { metering: Metering::Fuel, fuel: 1000, ..SkillLimits::default() },
        }
    );
    assert_eq!(manifest.id.skill_id(), &SkillId::parse("acme/text-diff").unwrap());
    assert_eq!(manifest.tool_name(&manifest.tools[1]).unwrap().as_str(), "skill.acme.text-diff.words_2");
    assert_eq!(manifest.tool("diff"), manifest.tools.first());
}

#[test]
fn what_is_not_said_has_a_default_that_allows_nothing() {
    let manifest = read(SMALL).unwrap();
    assert_eq!(manifest.entry, "skill.wasm");
    assert_eq!((manifest.capabilities, manifest.limits), (Capabilities::default(), SkillLimits::default()));
    assert_eq!(BuildRecipe::parse(SMALL), Ok(None));
}

#[test]
fn a_manifest_reads_back_from_its_json() {
    for text in [WHOLE, SMALL] {
        let manifest = read(text).unwrap();
        let json = serde_json::to_string(&manifest).unwrap();
        assert_eq!(serde_json::from_str::<Manifest>(&json).unwrap(), manifest);
        assert!(!json.contains("cargo"), "how it is built is nobody's business but the author's");
    }
}

#[test]
fn how_it_is_built_is_read_for_its_author() {
    assert_eq!(
        BuildRecipe::parse(WHOLE).unwrap(),
        Some(BuildRecipe {
            command: ["cargo", "build", "--release"].map(str::to_owned).to_vec(),
            output: "target/wasm32-wasip2/release/text_diff.wasm".to_owned(),
        })
    );
    for (command, output) in [("[]", "a.wasm"), ("['make']", "/a.wasm"), ("['make']", "../a.wasm"), ("['make']", "")] {
        let text = format!("{SMALL}\n[build]\ncommand = {command}\noutput = '{output}'");
        assert!(matches!(BuildRecipe::parse(&text), Err(ManifestError::Build(_))), "{command} {output}");
    }
}

#[test]
fn capabilities_are_told_in_the_words_of_policies() {
    use ToolCapability::{FilesystemRead, FilesystemWrite, Network, SecretsUse, StateWrite};
    let capabilities = read(WHOLE).unwrap().tool_capabilities();
    assert_eq!(capabilities, [Network, SecretsUse, FilesystemRead, FilesystemWrite, StateWrite].into());
    assert_eq!(read(SMALL).unwrap().tool_capabilities(), BTreeSet::new());
    let files = BTreeMap::from([("a".to_owned(), FileAccess::Read)]);
    let reads = Capabilities { log: true, clock: true, random: true, files, ..Capabilities::default() };
    assert_eq!(reads.tool_capabilities(), [FilesystemRead].into());
}

#[test]
fn an_unknown_key_is_refused_and_the_one_that_was_meant_is_told() {
    for (text, key, nearest) in [
        (with("sumary = 'x'"), "sumary", Some("summary")),
        (with("banana = 1"), "banana", None),
        (format!("{SMALL}\ndescribtion = 'x'"), "tool.describtion", Some("tool.description")),
        (format!("{SMALL}\n[capabilities]\nhtpp = []"), "capabilities.htpp", Some("capabilities.http")),
        (
            format!("{SMALL}\n[capabilities]\nkv = {{ byte = 1, entries = 1 }}"),
            "capabilities.kv.byte",
            Some("capabilities.kv.bytes"),
        ),
        (format!("{SMALL}\n[limits]\nmemory = 1"), "limits.memory", None),
        (format!("{SMALL}\n[build]\ncomand = []"), "build.comand", Some("build.command")),
    ] {
        let nearest = nearest.map(str::to_owned);
        assert_eq!(refused(&text), ManifestError::UnknownKey { key: key.to_owned(), nearest });
    }
    assert_eq!(refused(&with("sumary = 'x'")).to_string(), "`sumary` is not known; did you mean `summary`?");
}

#[test]
fn the_known_keys_are_those_of_the_types() {
    let keys = |value: Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let limits: String = keys(json!(SkillLimits::default())).iter().map(|key| format!("{key} = 'x'\n")).collect();
    // Each of them gets past the check of keys, and fails because its value is none.
    for line in limits.lines().filter(|line| !line.starts_with("metering")) {
        let refused = refused(&format!("{SMALL}\n[limits]\n{line}"));
        assert!(matches!(refused, ManifestError::Toml { .. }), "{line}: {refused}");
    }
    for key in keys(json!(read(WHOLE).unwrap().capabilities)) {
        let refused = refused(&format!("{SMALL}\n[capabilities]\n{key} = 7"));
        assert!(matches!(refused, ManifestError::Toml { .. }), "{key}: {refused}");
    }
}

#[test]
fn what_is_missing_or_of_the_wrong_kind_is_refused_with_its_line() {
    for key in ["id", "version", "publisher", "license", "summary"] {
        let text: String =
            WHOLE.lines().filter(|line| !line.starts_with(key)).map(|line| format!("{line}\n")).collect();
        let ManifestError::Toml { message, .. } = refused(&text) else { panic!("{key}") };
        assert!(message.contains(key), "{message}");
    }
    assert_eq!(
        refused("id = 'a/b'\nversion = 1\n"),
        ManifestError::Toml { line: 2, message: "invalid type: integer `1`, expected a string".to_owned() }
    );
    assert!(matches!(refused("id = 'a/b'\nid = 'a/c'"), ManifestError::Toml { line: 2, .. }));
    assert!(matches!(refused(&with("[[[")), ManifestError::Toml { line: 1, .. }));
    assert!(matches!(refused(&format!("{SMALL}\n[capabilities]\nhttp = ['example.org']")), ManifestError::Toml { .. }));
    assert!(matches!(refused(&format!("{SMALL}\n[capabilities.files]\nx = 'execute'")), ManifestError::Toml { .. }));
}

#[test]
fn an_id_a_version_or_a_publisher_that_is_none_is_refused() {
    assert!(matches!(refused(&with("id = 'acme'")), ManifestError::Id { field: "id", .. }));
    assert!(matches!(refused(&with("publisher = 'Acme'")), ManifestError::Id { field: "publisher", .. }));
    assert!(matches!(refused(&with("publisher = 'other'")), ManifestError::Publisher { .. }));
    for version in ["1", "1.2", "v1.2.3", "1.2.3.4", "", "1.2.3+build", "01.2.3"] {
        assert!(
            matches!(refused(&with(&format!("version = '{version}'"))), ManifestError::Version { .. }),
            "{version}"
        );
    }
    assert_eq!(read(&with("version = '1.2.3-beta.1'")).unwrap().version, Version::parse("1.2.3-beta.1").unwrap());
}

#[test]
fn a_license_looks_like_one() {
    for license in ["MIT", "Apache-2.0 WITH LLVM-exception", "(MIT OR Apache-2.0) AND GPL-3.0+", "LicenseRef-Own"] {
        assert_eq!(read(&with(&format!("license = '{license}'"))).unwrap().license, license);
    }
    for license in ["", "MIT OR", "OR MIT", "MIT Apache-2.0", "(MIT", "MIT)", "my own, ask me", "MIT\u{200b}"] {
        let text = with(&format!("license = '{license}'"));
        assert_eq!(refused(&text), ManifestError::License(license.to_owned()));
    }
}

#[test]
fn a_text_that_hides_something_is_refused() {
    for summary in ["", "  ", "a\\nb", "a\\u202eb", &"x".repeat(301)] {
        let text = with(&format!("summary = \"{summary}\""));
        assert!(matches!(refused(&text), ManifestError::Text { .. }), "{summary}");
    }
    assert!(matches!(refused(&with("description = \"a\\u0007\"")), ManifestError::Text { .. }));
    for homepage in ["example.org", "javascript:alert(1)", "https://", "https://a b", "https://a\\u202e"] {
        let text = with(&format!("homepage = \"{homepage}\""));
        assert!(matches!(refused(&text), ManifestError::Homepage(_)), "{homepage}");
    }
}

#[test]
fn a_file_outside_of_the_package_cannot_be_named() {
    for name in ["../skill.wasm", "/skill.wasm", "", "a b.wasm", "a//b"] {
        for key in ["entry", "sbom"] {
            let text = with(&format!("{key} = '{name}'"));
            let refusal = ManifestError::FileName { field: key.to_owned(), name: name.to_owned() };
            assert_eq!(refused(&text), refusal);
        }
        let text = SMALL.replace("{ type = \"object\" }", &format!("'{name}'"));
        let refusal = ManifestError::FileName { field: "tool.do.input".to_owned(), name: name.to_owned() };
        assert_eq!(refused(&text), refusal);
    }
}

#[test]
fn tools_have_names_of_their_own() {
    let tool = |name: &str| format!("[[tool]]\nname = '{name}'\nsummary = 'x'\ninput = {{}}\n");
    let head: String = SMALL.split("[[tool]]").next().unwrap().to_owned();
    assert_eq!(refused(&head), ManifestError::NoTool);
    assert_eq!(refused(&format!("{SMALL}{}", tool("do"))), ManifestError::DuplicateTool("do".to_owned()));
    for name in ["", "Do", "_do", "-do", "do.it", "do it", "dö"] {
        assert_eq!(refused(&format!("{head}{}", tool(name))), ManifestError::ToolName(name.to_owned()));
    }
    let long = "a".repeat(128 - "skill.acme.small.".len());
    assert_eq!(read(&format!("{head}{}", tool(&long))).unwrap().tools.len(), 1);
    let longer = format!("{long}a");
    assert!(matches!(refused(&format!("{head}{}", tool(&longer))), ManifestError::WholeToolName { .. }));
    let many: String = (0..65).map(|number| tool(&format!("t{number}"))).collect();
    assert_eq!(refused(&format!("{head}{many}")), ManifestError::TooManyTools { count: 65 });
}

#[test]
fn a_schema_that_is_none_is_refused_where_it_stands() {
    let schema = |schema: &str| refused(&SMALL.replace("{ type = \"object\" }", schema));
    let refusal = |source| ManifestError::Schema { tool: "do".to_owned(), which: "input", source };
    assert!(matches!(schema("{ type = 'strnig' }"), ManifestError::Schema { source: SchemaError::NoSchema(_), .. }));
    assert_eq!(
        schema("{ '$ref' = 'file:///etc/passwd' }"),
        refusal(SchemaError::Foreign("file:///etc/passwd".to_owned()))
    );
    assert_eq!(schema("7"), refusal(SchemaError::NoObject));
    assert!(matches!(
        schema("{ const = 9007199254740993 }"),
        ManifestError::Schema { source: SchemaError::NotJson(_), .. }
    ));
    assert_eq!(
        schema("'schemas/absent.json'"),
        ManifestError::NoSchemaFile { tool: "do".to_owned(), file: "schemas/absent.json".to_owned() }
    );
}

#[test]
fn what_is_too_large_is_refused() {
    let text = format!("{SMALL}\n# {}", "x".repeat(MOST_BYTES));
    assert_eq!(refused(&text), ManifestError::TooLarge { bytes: text.len() });
    let large = json!({"description": "x".repeat(60_000)}).to_string();
    let tools: String = (0..20)
        .map(|number| format!("[[tool]]\nname = 't{number}'\nsummary = 'x'\ninput = 'schemas/l.json'\n"))
        .collect();
    let text = format!("{}{tools}", SMALL.split("[[tool]]").next().unwrap());
    assert!(matches!(Manifest::parse(&text, |_| Some(large.as_bytes())), Err(ManifestError::TooMuch(_))));
    let deep = format!("{SMALL}\n[capabilities]\nkv = {}1{}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(matches!(refused(&deep), ManifestError::Toml { .. }));
}

#[test]
fn limits_that_leave_no_room_are_refused() {
    for key in ["fuel", "cpu_ms", "wall_ms", "memory_bytes", "output_bytes", "host_bytes"] {
        let text = format!("{SMALL}\n[limits]\n{key} = 0");
        assert!(matches!(refused(&text), ManifestError::Limits(_)), "{key}");
    }
    assert_eq!(read(&format!("{SMALL}\n[limits]\nhost_calls = 0")).unwrap().limits.host_calls, 0);
    assert!(matches!(refused(&format!("{SMALL}\n[limits]\nfuel = -1")), ManifestError::Toml { .. }));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in any::<String>()) {
        let _ = read(&text);
    }

    #[test]
    fn a_changed_manifest_is_read_or_refused(
        at in any::<prop::sample::Index>(),
        length in 0_usize..40,
        inserted in "[\\[\\]{}='\"a-z0-9. \n]{0,12}",
    ) {
        let chars: Vec<char> = WHOLE.chars().collect();
        let at = at.index(chars.len());
        let text: String =
            chars[..at].iter().copied().chain(inserted.chars()).chain(chars[at..].iter().skip(length).copied()).collect();
        if let Ok(manifest) = read(&text) {
            prop_assert_eq!(manifest.publisher.clone(), manifest.id.publisher());
            for tool in &manifest.tools {
                prop_assert!(manifest.tool_name(tool).is_ok());
            }
            let json = serde_json::to_string(&manifest).unwrap();
            prop_assert_eq!(serde_json::from_str::<Manifest>(&json).unwrap(), manifest);
        } else {
            prop_assert!(!read(&text).unwrap_err().advice().is_empty());
        }
    }
}
