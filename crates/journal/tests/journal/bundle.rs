//! Bundles, and two verifiers that know nothing of each other: ours, and one in Python that has only the description of the format.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests fail by panicking"
)]

use std::{
    fs,
    io::{BufReader, Cursor},
    path::{Path, PathBuf},
    process::Command,
};

use palyra_journal::{
    Bundle, ExportError, Extent, Failure, Fault, JournalStore, Record, Selection, Trust, export, verify_bundle,
};
use serde_json::{Value, json};

use crate::lab::{Lab, append, commit, record, wait};

/// 700 records, the older in a segment, with bodies erased in both parts.
fn journal() -> Lab {
    let lab = Lab::new();
    let journal = lab.open();
    append(&lab, &journal, 700);
    drop(journal);
    let journal = lab.open_sealing();
    wait(journal.maintain(lab.now())).unwrap();
    for (first, last) in [(5, 9), (650, 650)] {
        wait(journal.erase(Selection::Records { first, last }, "asked for".to_owned())).unwrap();
    }
    commit(&journal, vec![record(&lab, 1), record(&lab, 2)]);
    lab
}

fn bundle(lab: &Lab, first: Option<u64>, last: Option<u64>) -> Vec<Value> {
    let mut out = Vec::new();
    let exported = export(lab.path(), Extent { first, last }, &mut out).unwrap();
    assert_eq!(verify_bundle(&mut Cursor::new(&out), &Trust::default()).as_ref(), Ok(&exported));
    String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ours(lines: &[Value]) -> Result<Bundle, Failure> {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    verify_bundle(&mut BufReader::new(text.as_bytes()), &Trust::default())
}

/// What the other verifier says: how many records, or the first bad one.
fn theirs(lines: &[Value]) -> Result<u64, u64> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    run_python(file.path())
}

fn run_python(bundle: &Path) -> Result<u64, u64> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/verifier/verify.py");
    #[expect(clippy::disallowed_methods, reason = "a test starts the other verifier")]
    let output = Command::new(python()).arg(script).arg(bundle).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let mut words = said.split(' ');
    let (verdict, number) = (words.next(), words.next().and_then(|number| number.parse().ok()));
    match (verdict, number, output.status.success()) {
        (Some("OK"), Some(records), true) => Ok(records),
        (Some("BAD"), Some(seq), false) => Err(seq),
        _ => panic!("the other verifier failed: {said}{}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// The environment that `scripts/setup` makes in the target directory, which this test was built in.
fn python() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let found = test.ancestors().map(|directory| directory.join("verifier-venv/bin/python")).find(|path| path.exists());
    found.expect("the Python environment of the other verifier is missing: run `scripts/setup`")
}

#[test]
fn any_range_of_a_journal_verifies_in_both_verifiers() {
    let lab = journal();
    let size = 706;
    for (first, last, expected) in [
        (None, None, (0, size)),
        (Some(0), Some(0), (0, 1)),
        (Some(1), Some(255), (1, 255)),
        (Some(255), Some(300), (255, 46)),
        (Some(256), Some(511), (256, 256)),
        (Some(3), None, (3, size - 3)),
        (Some(size - 1), Some(10_000), (size - 1, 1)),
    ] {
        let lines = bundle(&lab, first, last);
        let ours = ours(&lines).unwrap();
        assert_eq!((ours.first, ours.records), expected);
        assert_eq!(theirs(&lines), Ok(expected.1), "{first:?} to {last:?}");
    }
    let nothing = export(lab.path(), Extent { first: Some(size), last: None }, &mut Vec::new());
    assert!(matches!(nothing, Err(ExportError::Empty { first: 0, size: 706 })));
    let backwards = export(lab.path(), Extent { first: Some(7), last: Some(6) }, &mut Vec::new());
    assert!(matches!(backwards, Err(ExportError::Empty { .. })));
}

#[test]
fn a_running_journal_exports_itself() {
    let lab = Lab::new();
    let journal = lab.open();
    append(&lab, &journal, 10);
    let file = lab.path().join("bundle.jsonl");
    let out = Box::new(fs::File::create(&file).unwrap());
    let exported = wait(journal.export(Extent::default(), out)).unwrap();
    assert_eq!((exported.records, exported.erased), (11, 0));
    let read = verify_bundle(&mut BufReader::new(fs::File::open(&file).unwrap()), &Trust::default());
    assert_eq!(read, Ok(exported));
    assert_eq!(run_python(&file), Ok(11));
}

#[test]
fn both_verifiers_find_every_attack_in_the_same_record() {
    let lab = journal();
    let whole = bundle(&lab, None, None);
    let part = bundle(&lab, Some(250), Some(400));
    for (name, lines, expected) in attacks(&whole, &part) {
        let failure = ours(&lines).expect_err(name);
        assert_eq!((failure.seq, &failure.fault), (expected.0, &expected.1), "{name}");
        assert_eq!(theirs(&lines), Err(expected.0), "{name}");
    }
}

type Attack = (&'static str, Vec<Value>, (u64, Fault));

fn attacks(whole: &[Value], part: &[Value]) -> Vec<Attack> {
    let on = |lines: &[Value], harm: &dyn Fn(&mut Vec<Value>)| {
        let mut lines = lines.to_vec();
        harm(&mut lines);
        lines
    };
    let text = |line: &Value| line["record"].as_str().unwrap().to_owned();
    let retell = |lines: &mut Vec<Value>, seq: usize, from: &str, to: &str| {
        let changed = text(&lines[seq + 1]).replace(from, to);
        lines[seq + 1]["record"] = json!(changed);
    };
    let end = whole.len() - 1;
    let size = u64::try_from(end - 1).unwrap();
    vec![
        ("text", on(whole, &|lines| retell(lines, 40, "tool.proposed", "tool.attested")), (40, Fault::Replaced)),
        ("last text", on(whole, &|lines| retell(lines, end - 2, "\"time\":18", "\"time\":19")), (0, Fault::Unproven)),
        (
            "spelling",
            on(whole, &|lines| retell(lines, 41, ",\"seq\"", ", \"seq\"")),
            (41, Fault::Malformed(palyra_journal::record::RecordError::NotCanonical)),
        ),
        (
            "number",
            on(whole, &|lines| retell(lines, 42, "\"seq\":42", "\"seq\":43")),
            (42, Fault::Misplaced { claims: 43 }),
        ),
        (
            "link",
            on(whole, &|lines| {
                let prev = Record::parse(&text(&lines[44])).unwrap().prev.to_hex();
                retell(lines, 43, &prev, &"0".repeat(64));
            }),
            (43, Fault::Unlinked),
        ),
        ("body", on(whole, &|lines| lines[45]["body"] = json!("{}")), (44, Fault::BodyChanged)),
        ("salt", on(whole, &|lines| lines[46]["salt"] = lines[47]["salt"].clone()), (45, Fault::BodyChanged)),
        ("short salt", on(whole, &|lines| lines[46]["salt"] = json!("AAAA")), (45, Fault::BodyChanged)),
        ("no salt", on(whole, &|lines| lines[47]["salt"] = Value::Null), (46, Fault::BodyTorn)),
        (
            "no body",
            on(whole, &|lines| {
                lines[48]["salt"] = Value::Null;
                lines[48]["body"] = Value::Null;
            }),
            (47, Fault::BodyMissing),
        ),
        ("deleted", on(whole, &|lines| drop(lines.remove(50))), (49, Fault::Misplaced { claims: 50 })),
        ("swapped", on(whole, &|lines| lines.swap(60, 61)), (59, Fault::Misplaced { claims: 60 })),
        (
            "doubled",
            on(whole, &|lines| {
                let line = lines[70].clone();
                lines.insert(70, line);
            }),
            (70, Fault::Misplaced { claims: 69 }),
        ),
        ("cut off", on(whole, &|lines| drop(lines.drain(end - 5..end))), (size - 5, Fault::Missing)),
        (
            "cut off and renumbered",
            on(whole, &|lines| {
                lines.drain(end - 5..end);
                let last = lines.len() - 1;
                lines[last]["size"] = json!(size - 5);
            }),
            (0, Fault::Unproven),
        ),
        (
            "no checkpoint",
            on(whole, &|lines| drop(lines.pop())),
            (size, Fault::Bundle("it ends without a checkpoint".to_owned())),
        ),
        (
            "more after it",
            on(whole, &|lines| {
                let line = lines[3].clone();
                lines.push(line);
            }),
            (size, Fault::Bundle("something follows the checkpoint".to_owned())),
        ),
        (
            "signature",
            on(whole, &|lines| {
                let note = lines[end]["checkpoint"].as_str().unwrap().replacen(&size.to_string(), "1", 1);
                lines[end]["checkpoint"] = json!(note);
            }),
            (0, Fault::Unsigned),
        ),
        (
            "origin",
            on(whole, &|lines| lines[0]["origin"] = json!("palyra.local/journal/x")),
            (
                0,
                Fault::OtherJournal {
                    found: "palyra.local/journal/x".to_owned(),
                    expected: whole[0]["origin"].as_str().unwrap().to_owned(),
                },
            ),
        ),
        ("first link", on(whole, &|lines| lines[0]["prev"] = json!("0".repeat(64))), (0, Fault::Boundary)),
        ("link of a part", on(part, &|lines| lines[0]["prev"] = json!("0".repeat(64))), (250, Fault::Unlinked)),
        ("roots of a part", on(part, &|lines| lines[0]["range"][0] = json!("0".repeat(64))), (250, Fault::Unproven)),
        (
            "fewer roots",
            on(part, &|lines| drop(lines[0]["range"].as_array_mut().unwrap().pop())),
            (250, Fault::Boundary),
        ),
        (
            "proof of a part",
            on(part, &|lines| {
                let last = lines.len() - 1;
                lines[last]["consistency"][0] = json!("0".repeat(64));
            }),
            (250, Fault::Unproven),
        ),
        (
            "format",
            on(whole, &|lines| lines[0]["v"] = json!(2)),
            (0, Fault::Bundle("it is of another format or version".to_owned())),
        ),
    ]
}

#[test]
fn a_bundle_of_another_journal_or_of_another_history_is_found() {
    let (lab, other) = (journal(), Lab::new());
    drop(other.open());
    let mut out = Vec::new();
    export(lab.path(), Extent::default(), &mut out).unwrap();
    let check = |trust: &Trust| verify_bundle(&mut Cursor::new(&out), trust);
    assert!(check(&Trust { key: Some(lab.key()), checkpoints: Vec::new() }).is_ok());
    let failure = check(&Trust { key: Some(other.key()), checkpoints: Vec::new() }).unwrap_err();
    assert_eq!(failure, Failure { seq: 0, fault: Fault::OtherKey });
    // The journal goes on; its later checkpoint shows that the bundle is not all there is.
    let journal = lab.open();
    commit(&journal, vec![record(&lab, 9)]);
    let later = wait(journal.checkpoint()).unwrap();
    let failure = check(&Trust { key: None, checkpoints: vec![later] }).unwrap_err();
    assert_eq!(failure, Failure { seq: 706, fault: Fault::CutOff { signed: 707 } });
}
