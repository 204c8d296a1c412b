//! The file tools, attacked: links, swaps, odd files and names.

use std::{
    ffi::OsStr,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
};

use palyra_types::{Sha256Digest, json::canonical_of};

use super::*;

#[test]
fn a_text_file_is_read_as_text_and_in_parts() {
    let lab = Lab::new();
    lab.write("a.txt", "grüße");
    let path = absolute(&lab.inside("a.txt"));
    let whole = lab.call("fs.read", json!({"path": "a.txt"})).unwrap();
    assert_eq!(
        whole,
        json!({
            "path": path, "offset": 0, "bytes": 7, "size": 7, "truncated": false, "next_offset": null,
            "sha256": Sha256Digest::of("grüße".as_bytes()), "encoding": "utf-8", "content": "grüße",
        })
    );
    // Three bytes would end inside the `ü`, so the part ends before it.
    let part = lab.call("fs.read", json!({"path": "a.txt", "limit": 3})).unwrap();
    assert_eq!((&part["content"], &part["truncated"], &part["next_offset"]), (&json!("gr"), &json!(true), &json!(2)));
    let rest = lab.call("fs.read", json!({"path": path, "offset": 2})).unwrap();
    assert_eq!((&rest["content"], &rest["truncated"]), (&json!("üße"), &json!(false)));
    assert_eq!(lab.call("fs.read", json!({"path": "a.txt", "offset": 99})).unwrap()["content"], json!(""));
}

#[test]
fn a_binary_file_is_read_as_base64() {
    let lab = Lab::new();
    lab.write("b", b"\xff\x00");
    let read = lab.call("fs.read", json!({"path": "b"})).unwrap();
    assert_eq!((&read["encoding"], &read["content"]), (&json!("base64"), &json!("/wA=")));
}

#[test]
fn a_huge_file_is_read_only_as_far_as_the_cap() {
    let lab = Lab::new();
    fs::File::create(lab.inside("huge")).unwrap().set_len(1 << 33).unwrap();
    let read = lab.call("fs.read", json!({"path": "huge"})).unwrap();
    assert_eq!(
        (&read["bytes"], &read["size"], &read["truncated"]),
        (&json!(262_144), &json!(1_u64 << 33), &json!(true))
    );
    let search = lab.call("fs.search", json!({"pattern": "x"})).unwrap();
    assert_eq!(search["skipped"]["large"], json!(1));
    assert_eq!(
        lab.refusal("fs.write", json!({"path": "huge", "content": "x", "mode": "append"})),
        "`~/huge` has 8589934592 bytes; only files up to 67108864 bytes are appended to"
    );
}

#[test]
fn a_file_that_claims_more_than_json_can_say_still_has_a_result_that_everybody_reads_alike() {
    let lab = Lab::new();
    let file = fs::File::create(lab.inside("vast")).unwrap();
    // Not every file system holds so large a hole; the largest that this one holds will do.
    let size = (40..62).rev().map(|bits| 1_u64 << bits).find(|size| file.set_len(*size).is_ok()).unwrap();
    let read = lab.call("fs.read", json!({"path": "vast", "limit": 1})).unwrap();
    assert_eq!(read["size"], json!(size.min((1 << 53) - 1)));
    canonical_of(&read).unwrap();
    canonical_of(&lab.call("fs.list", json!({})).unwrap()).unwrap();
}

#[test]
fn a_directory_is_listed_by_name_and_to_the_depth_asked_for() {
    let lab = Lab::new();
    lab.write("src/deep/c.rs", "");
    lab.write("src/a.rs", "abc");
    symlink("a.rs", lab.inside("src/b.rs")).unwrap();
    let shallow = lab.call("fs.list", json!({"path": "src"})).unwrap();
    assert_eq!(
        shallow,
        json!({
            "path": absolute(&lab.inside("src")), "truncated": false, "withheld": 0,
            "entries": [
                {"name": "a.rs", "kind": "file", "size": 3}, {"name": "b.rs", "kind": "link"}, {"name": "deep", "kind": "directory"},
            ],
        })
    );
    let deep = lab.call("fs.list", json!({"depth": 3})).unwrap();
    let names: Vec<&str> =
        deep["entries"].as_array().unwrap().iter().filter_map(|entry| entry["name"].as_str()).collect();
    assert_eq!(names, ["src", "src/a.rs", "src/b.rs", "src/deep", "src/deep/c.rs"]);
    let cut = lab.call("fs.list", json!({"depth": 3, "limit": 2})).unwrap();
    assert_eq!((cut["entries"].as_array().unwrap().len(), &cut["truncated"]), (2, &json!(true)));
}

#[test]
fn names_that_are_not_utf8_are_told_apart_and_not_entered() {
    let lab = Lab::new();
    for name in [&b"a\xff"[..], b"a\xfe"] {
        fs::write(lab.inside("").join(OsStr::from_bytes(name)), "needle").unwrap();
    }
    fs::create_dir(lab.inside("").join(OsStr::from_bytes(b"d\xff"))).unwrap();
    fs::write(lab.inside("").join(OsStr::from_bytes(b"d\xff")).join("x"), "needle").unwrap();
    let listed = lab.call("fs.list", json!({"depth": 2})).unwrap();
    assert_eq!(
        listed["entries"],
        json!([
            {"name_base64": "Yf4=", "kind": "file", "size": 6}, {"name_base64": "Yf8=", "kind": "file", "size": 6},
            {"name_base64": "ZP8=", "kind": "directory"},
        ])
    );
    let found = lab.call("fs.search", json!({"pattern": "needle"})).unwrap();
    assert_eq!((&found["matches"], &found["withheld"]), (&json!([]), &json!(2)));
}

#[test]
fn a_search_finds_lines_and_says_what_it_passed_by() {
    let lab = Lab::new();
    lab.write("src/a.rs", "fn one() {}\r\nfn Two() {}\n");
    lab.write("notes.md", "fn in prose\n");
    lab.write("blob", b"fn \x00");
    lab.write("latin1", b"fn \xe9");
    lab.write(".git/config", "fn");
    let lines = |args: Value| -> Vec<String> {
        let found = lab.call("fs.search", args).unwrap();
        let matches = found["matches"].as_array().unwrap().clone();
        matches
            .iter()
            .map(|m| format!("{}:{}:{}", m["name"].as_str().unwrap(), m["line"], m["text"].as_str().unwrap()))
            .collect()
    };
    assert_eq!(
        lines(json!({"pattern": "fn "})),
        ["notes.md:1:fn in prose", "src/a.rs:1:fn one() {}", "src/a.rs:2:fn Two() {}"]
    );
    assert_eq!(lines(json!({"pattern": "fn ", "glob": "*.md"})), ["notes.md:1:fn in prose"]);
    assert_eq!(lines(json!({"pattern": "two", "ignore_case": true, "glob": "src/**"})), ["src/a.rs:2:fn Two() {}"]);
    assert_eq!(lines(json!({"pattern": "fn .ne", "regex": true, "path": "src"})), ["a.rs:1:fn one() {}"]);
    assert_eq!(lines(json!({"pattern": "one", "path": "src/a.rs"})), ["a.rs:1:fn one() {}"]);
    assert!(lines(json!({"pattern": "f.", "path": "src"})).is_empty());
    let found = lab.call("fs.search", json!({"pattern": "fn", "limit": 1})).unwrap();
    assert_eq!((&found["skipped"]["binary"], &found["truncated"]), (&json!(2), &json!(true)));
}

#[test]
fn a_pattern_or_glob_that_is_none_is_refused_when_proposed() {
    let lab = Lab::new();
    let error = lab.intend("fs.search", json!({"pattern": "(", "regex": true})).unwrap_err();
    assert!(error.starts_with("the pattern is no regular expression: "), "{error}");
    let huge = lab.intend("fs.search", json!({"pattern": r"\w{1000}{1000}", "regex": true})).unwrap_err();
    assert!(huge.contains("size limit"), "{huge}");
    let glob = lab.intend("fs.search", json!({"pattern": "x", "glob": "[a"})).unwrap_err();
    assert!(glob.starts_with("the glob `[a` is none: "), "{glob}");
}

#[test]
fn what_policy_keeps_back_below_the_start_is_skipped_and_counted() {
    let lab = Lab::new();
    lab.write("open/a", "needle");
    lab.write("open/.env", "needle");
    lab.write("closed/b", "needle");
    let may_read = |path: &AbsolutePath| !["closed", ".env"].contains(&path.file_name());
    let work = lab.file_work("fs.search", json!({"pattern": "needle"})).unwrap();
    let heed = Heed { stop: &|| false, may_read: &may_read };
    let found = perform(&work, &lab.workspace, &OutputCaps::default(), heed).unwrap();
    assert_eq!(found["matches"], json!([{"name": "open/a", "line": 1, "text": "needle", "cut": false}]));
    assert_eq!(found["withheld"], json!(2));
    let work = lab.file_work("fs.list", json!({"depth": 2})).unwrap();
    let listed = perform(&work, &lab.workspace, &OutputCaps::default(), heed).unwrap();
    let names: Vec<_> = listed["entries"].as_array().unwrap().iter().map(|entry| entry["name"].clone()).collect();
    assert_eq!(
        (names, &listed["withheld"]),
        (vec![json!("closed"), json!("open"), json!("open/.env"), json!("open/a")], &json!(1))
    );
}

#[test]
fn work_that_is_told_to_stop_stops() {
    let lab = Lab::new();
    lab.write("a", "x");
    for (tool, args) in [
        ("fs.read", json!({"path": "a"})),
        ("fs.list", json!({})),
        ("fs.search", json!({"pattern": "x"})),
        ("fs.write", json!({"path": "b", "content": ""})),
    ] {
        let work = lab.file_work(tool, args).unwrap();
        let heed = Heed { stop: &|| true, may_read: &|_| true };
        assert_eq!(perform(&work, &lab.workspace, &OutputCaps::default(), heed), Err(FileError::Stopped), "{tool}");
    }
    assert!(!lab.inside("b").exists());
}

#[test]
fn a_file_is_created_replaced_and_extended() {
    let lab = Lab::new();
    let created = lab.call("fs.write", json!({"path": "a", "content": "one\n", "mode": "create"})).unwrap();
    assert_eq!(
        created,
        json!({"path": absolute(&lab.inside("a")), "created": true, "bytes_written": 4, "size": 4, "sha256": Sha256Digest::of(b"one\n")})
    );
    lab.call("fs.write", json!({"path": "a", "content": "dHdv", "encoding": "base64", "mode": "append"})).unwrap();
    assert_eq!(lab.content("a"), "one\ntwo");
    lab.call("fs.write", json!({"path": "a", "content": "three"})).unwrap();
    assert_eq!(lab.content("a"), "three");
    assert_eq!(lab.refusal("fs.write", json!({"path": "a", "content": "", "mode": "create"})), "`~/a` exists already");
    assert_eq!(
        lab.refusal("fs.write", json!({"path": "a", "content": "*", "encoding": "base64"})),
        "the content is not base64"
    );
    assert_eq!(fs::read_dir(lab.inside("")).unwrap().count(), 2, "a scratch file stayed behind");
}

#[test]
fn directories_are_made_only_when_asked_for_and_each_is_judged() {
    let lab = Lab::new();
    let args = json!({"path": "x/y/z.txt", "content": "deep"});
    assert_eq!(lab.refusal("fs.write", args.clone()), "the directory of `x/y/z.txt` does not exist");
    let args = json!({"path": "x/y/z.txt", "content": "deep", "make_directories": true});
    let intent = lab.intend("fs.write", args.clone()).unwrap();
    let written: Vec<_> = ["x", "x/y", "x/y/z.txt"].map(|name| Touch::Write(absolute(&lab.inside(name)))).into();
    assert_eq!(intent.touches, written);
    lab.call("fs.write", args).unwrap();
    assert_eq!(lab.content("x/y/z.txt"), "deep");
}

#[test]
fn replacing_keeps_permissions_and_owner_but_no_set_id_bits() {
    let lab = Lab::new();
    lab.write("tool", "old");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(lab.inside("tool"), Some(1234), Some(1234)).unwrap();
    }
    fs::set_permissions(lab.inside("tool"), fs::Permissions::from_mode(0o6751)).unwrap();
    let owner = fs::metadata(lab.inside("tool")).unwrap().uid();
    lab.call("fs.write", json!({"path": "tool", "content": "new"})).unwrap();
    let status = fs::metadata(lab.inside("tool")).unwrap();
    assert_eq!((status.mode() & 0o7777, status.uid()), (0o751, owner));
}

#[test]
fn a_hard_link_is_not_written_through() {
    let lab = Lab::new();
    fs::hard_link(lab.outside("secret"), lab.inside("linked")).unwrap();
    lab.call("fs.write", json!({"path": "linked", "content": "mine"})).unwrap();
    lab.call("fs.write", json!({"path": "linked", "content": "!", "mode": "append"})).unwrap();
    assert_eq!(lab.content("linked"), "mine!");
    assert_eq!(fs::read_to_string(lab.outside("secret")).unwrap(), CANARY);
}

#[test]
fn a_link_that_stays_inside_is_judged_and_written_at_its_real_path() {
    let lab = Lab::new();
    lab.write("real/a", "old");
    symlink("real", lab.inside("link")).unwrap();
    symlink("real/a", lab.inside("shortcut")).unwrap();
    let real = absolute(&lab.inside("real/a"));
    for path in ["link/a", "shortcut"] {
        assert_eq!(lab.intend("fs.read", json!({"path": path})).unwrap().touches, [Touch::Read(real.clone())]);
        let write = lab.intend("fs.write", json!({"path": path, "content": path})).unwrap();
        assert_eq!(write.touches, [Touch::Write(real.clone())]);
        lab.call("fs.write", json!({"path": path, "content": path})).unwrap();
        assert_eq!(lab.content("real/a"), path);
    }
    assert!(fs::symlink_metadata(lab.inside("shortcut")).unwrap().is_symlink());
    let new = lab.intend("fs.write", json!({"path": "link/new", "content": ""})).unwrap();
    assert_eq!(new.touches, [Touch::Write(absolute(&lab.inside("real/new")))]);
}

#[test]
fn the_work_of_a_write_says_everything_but_the_content_itself() {
    let lab = Lab::new();
    let intent = lab.intend("fs.write", json!({"path": "a", "content": "x"})).unwrap();
    let told: Value = serde_json::from_str(&canonical_of(&intent.work).unwrap()).unwrap();
    assert_eq!(
        told,
        json!({
            "kind": "files", "operation": "write", "path": absolute(&lab.inside("a")), "replaces": false, "appends": false,
            "directories": [], "content_sha256": Sha256Digest::of(b"x"),
        })
    );
}
