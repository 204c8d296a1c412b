//! From the bytes of a call to what it would do, with nothing but what the crate offers to others.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;

use palyra_gate::{Asker, FileWork, Look, Place, Registry, SearchPath, Work, Workspace};
use palyra_policy::Touch;
use palyra_types::{
    AbsolutePath, JsonObject, Principal, Timestamp, ToolName, WorkspaceName, id::SessionId, json::Limits,
};

fn intend(bytes: &[u8]) -> Result<Work, String> {
    let place = tempfile::tempdir().unwrap();
    let real = fs::canonicalize(place.path()).unwrap();
    fs::write(real.join("a.txt"), "").unwrap();
    let root = AbsolutePath::parse(real.to_str().unwrap()).unwrap();
    let state = AbsolutePath::parse("/var/lib/palyra-of-this-test").unwrap();
    let workspace = Workspace::open(WorkspaceName::parse("main").unwrap(), &root, &state).unwrap();
    let args = JsonObject::parse(bytes, Limits::default()).map_err(|error| error.to_string())?;
    let programs = SearchPath::new(Vec::new());
    let somebody = Principal::parse("agent:claude").unwrap();
    let session = SessionId::from_parts(Timestamp::from_unix_millis(1), 1);
    let place = Place {
        workspace: Some(&workspace),
        asker: Asker {
            principal: &somebody,
            device: None,
            token: None,
            member_of: None,
            channel: None,
            session,
            workspace: None,
        },
        programs: &programs,
        look: Look::Whole,
        bindings: &|_, _| Vec::new(),
    };
    let tool = ToolName::parse("fs.read").unwrap();
    let intent = Registry::bare().unwrap().intend(&tool, &args, &place).map_err(|error| error.to_string())?;
    assert_eq!(intent.touches, [Touch::Read(root.join("a.txt").unwrap())]);
    Ok(intent.work)
}

#[test]
fn arguments_that_readers_disagree_about_never_reach_a_tool() {
    let nested = format!("{}1{}", r#"{"path":"#.repeat(10_000), "}".repeat(10_000));
    for (bytes, refusal) in [
        (&br#"{"path":"a.txt","path":"/etc/shadow"}"#[..], "the key `path` stands twice (line 1, column 17)"),
        (br#"{"path":"a.txt","p\u0061th":"b"}"#, "the key `path` stands twice (line 1, column 17)"),
        (br#"{"path":"\ud800"}"#, r"a string holds the lone surrogate `\ud800` at `$.path` (line 1, column 10)"),
        (br#"{"path":"a","limit":1e400}"#, "the number `1e400` is too large at `$.limit` (line 1, column 21)"),
        (
            br#"{"path":"a","limit":9007199254740992}"#,
            "the number `9007199254740992` is not between -9007199254740991 and 9007199254740991 at `$.limit` (line 1, column 21)",
        ),
        (b"\xef\xbb\xbf{}", "the JSON starts with a byte order mark (line 1, column 1)"),
        (b"[]", "the JSON is not an object"),
    ] {
        assert_eq!(intend(bytes), Err(refusal.to_owned()));
    }
    assert!(
        intend(nested.as_bytes()).unwrap_err().starts_with("the JSON is nested more than 64 levels deep at `$.path")
    );
}

#[test]
fn spellings_of_the_same_arguments_are_the_same_work() {
    let plain = intend(br#"{"path":"a.txt","limit":10}"#).unwrap();
    assert!(matches!(&plain, Work::Files(FileWork::Read { limit: Some(10), offset: 0, .. })));
    let odd = intend(br#"{ "limit" : 1.0e1, "path" : "./\u0061.txt" }"#).unwrap();
    let shape = |work: &Work| match work {
        Work::Files(FileWork::Read { path, offset, limit }) => (path.file_name().to_owned(), *offset, *limit),
        other => panic!("{other:?}"),
    };
    assert_eq!(shape(&odd), shape(&plain));
}
