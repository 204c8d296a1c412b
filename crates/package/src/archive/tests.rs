//! Archives that have one spelling, and every other one refused.

#![allow(clippy::disallowed_methods, reason = "GNU tar is asked about the archives")]

use std::{io::Read, process::Command};

use proptest::{collection::btree_map, prelude::*};

use super::*;

fn files(list: &[(&str, &[u8])]) -> BTreeMap<String, Vec<u8>> {
    list.iter().map(|(name, content)| ((*name).to_owned(), content.to_vec())).collect()
}

fn sample() -> BTreeMap<String, Vec<u8>> {
    files(&[("skill.toml", b"id = 1\n"), ("skill.wasm", &[7; 700]), ("schemas/in.json", b"{}"), ("empty", b"")])
}

/// Changes one header of an archive, and makes its checksum right again.
fn with_header(archive: &[u8], at: usize, change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut archive = archive.to_vec();
    let header = &mut archive[at..at + BLOCK];
    change(header);
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    archive
}

/// An archive of one file whose header was changed.
fn altered(change: impl Fn(&mut [u8])) -> Result<BTreeMap<String, Vec<u8>>, ArchiveError> {
    unpack(&with_header(&pack(&files(&[("file", b"content")])).unwrap(), 0, change))
}

fn named(name: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, ArchiveError> {
    altered(|header| {
        header[..100].fill(0);
        header[..name.len()].copy_from_slice(name);
    })
}

#[test]
fn what_is_packed_is_unpacked() {
    let archive = pack(&sample()).unwrap();
    assert_eq!(unpack(&archive), Ok(sample()));
    assert_eq!(unpack(&pack(&BTreeMap::new()).unwrap()), Ok(BTreeMap::new()));
}

#[test]
fn another_reader_finds_the_same_files_without_owners_or_times() {
    let archive = pack(&sample()).unwrap();
    let mut found = BTreeMap::new();
    for entry in tar::Archive::new(archive.as_slice()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let header = entry.header();
        assert_eq!(
            (header.mode().unwrap(), header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()),
            (0o644, 0, 0, 0)
        );
        assert_eq!((header.username().unwrap(), header.groupname().unwrap()), (Some(""), Some("")));
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        found.insert(name, content);
    }
    assert_eq!(found, sample());
}

#[test]
fn gnu_tar_lists_it_and_makes_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let ours = pack(&sample()).unwrap();
    let path = directory.path().join("ours.skill");
    std::fs::write(&path, &ours).unwrap();
    let listed = Command::new("tar").arg("-tf").arg(&path).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "empty\nschemas/in.json\nskill.toml\nskill.wasm\n");

    let tree = directory.path().join("tree");
    for (name, content) in sample() {
        let file = tree.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }
    let theirs = Command::new("tar")
        .args(["--format=ustar", "--blocking-factor=1", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"])
        .args(["--mode=0644", "-cf", "-", "empty", "schemas/in.json", "skill.toml", "skill.wasm"])
        .current_dir(&tree)
        .output()
        .unwrap();
    assert!(theirs.status.success(), "{}", String::from_utf8_lossy(&theirs.stderr));
    assert!(theirs.stdout == ours, "GNU tar spells the same files in another way");
}

#[test]
fn every_kind_of_entry_but_a_regular_file_is_refused_by_its_name() {
    for (kind, what) in [
        (b'1', "a hard link"),
        (b'2', "a symbolic link"),
        (b'3', "a device"),
        (b'4', "a device"),
        (b'5', "a directory"),
        (b'6', "a pipe"),
        (b'7', "no regular file"),
        (b'x', "a PAX extension"),
        (b'g', "a PAX extension"),
        (b'L', "a GNU extension for long names"),
        (b'K', "a GNU extension for long names"),
        (b'S', "a sparse file"),
        (0, "no regular file"),
    ] {
        assert_eq!(
            altered(|header| header[156] = kind),
            Err(ArchiveError::NotAFile { name: "file".to_owned(), what }),
            "{kind}"
        );
    }
}

#[test]
fn a_name_that_leads_elsewhere_is_refused() {
    for (name, fault) in [
        ("", NameFault::Empty),
        ("/etc/passwd", NameFault::Absolute),
        ("..", NameFault::Traversal),
        ("../x", NameFault::Traversal),
        ("a/../../x", NameFault::Traversal),
        ("./a", NameFault::Traversal),
        ("a//b", NameFault::EmptyPart),
        ("a/", NameFault::EmptyPart),
        ("a\\b", NameFault::Character),
        ("C:x", NameFault::Character),
        ("a b", NameFault::Character),
        ("a\nb", NameFault::Character),
        ("ä", NameFault::Character),
        ("a\u{202e}b", NameFault::Character),
        ("1/2/3/4/5/6/7/8/9", NameFault::TooDeep),
    ] {
        let refused = ArchiveError::Name { name: name.to_owned(), fault };
        assert_eq!(named(name.as_bytes()), Err(refused.clone()), "{name}");
        assert_eq!(pack(&files(&[(name, b"")])), Err(refused), "{name}");
    }
    let long = "a".repeat(101);
    assert_eq!(pack(&files(&[(&long, b"")])), Err(ArchiveError::Name { name: long, fault: NameFault::TooLong }));
    assert!(pack(&files(&[(&"a".repeat(100), b""), ("1/2/3/4/5/6/7/8", b"")])).is_ok());
    let with_prefix = altered(|header| header[345..350].copy_from_slice(b"../..")).unwrap_err();
    assert_eq!(with_prefix, ArchiveError::Name { name: "../../file".to_owned(), fault: NameFault::TooLong });
}

#[test]
fn two_files_that_could_be_taken_for_each_other_are_refused() {
    let twice = |one: &str, other: &str| {
        let archive = pack(&files(&[("a", b"1"), ("b", b"2")])).unwrap();
        let rename = |archive: &[u8], at, name: &str| {
            with_header(archive, at, |header| {
                header[..100].fill(0);
                header[..name.len()].copy_from_slice(name.as_bytes());
            })
        };
        unpack(&rename(&rename(&archive, 0, one), 2 * BLOCK, other))
    };
    assert_eq!(twice("skill.toml", "skill.toml"), Err(ArchiveError::Duplicate("skill.toml".to_owned())));
    assert_eq!(twice("SKILL.md", "skill.md"), Err(ArchiveError::DuplicateByCase("skill.md".to_owned())));
    assert_eq!(twice("tests", "tests/a.json"), Err(ArchiveError::FileAndDirectory("tests/a.json".to_owned())));
    assert_eq!(twice("Tests", "tests/a.json"), Err(ArchiveError::FileAndDirectory("tests/a.json".to_owned())));
    assert_eq!(twice("b", "a"), Err(ArchiveError::NotCanonical), "the order of names is part of the spelling");
}

#[test]
fn a_second_spelling_of_the_same_content_is_refused() {
    type Spelling = (&'static str, fn(&mut [u8]));
    let spellings: [Spelling; 9] = [
        ("mode", |header| header[100..108].copy_from_slice(b"0000755\0")),
        ("uid", |header| header[108..116].copy_from_slice(b"0001750\0")),
        ("gid", |header| header[116..124].copy_from_slice(b"0001750\0")),
        ("size", |header| header[124..136].copy_from_slice(b"7\0\0\0\0\0\0\0\0\0\0\0")),
        ("time", |header| header[136..148].copy_from_slice(b"14723456701\0")),
        ("link", |header| header[157..161].copy_from_slice(b"else")),
        ("user", |header| header[265..269].copy_from_slice(b"root")),
        ("device", |header| header[329..337].fill(0)),
        ("end of name", |header| header[50] = b'x'),
    ];
    for (what, change) in spellings {
        assert_eq!(altered(change), Err(ArchiveError::NotCanonical), "{what}");
    }
    let mut padding = pack(&files(&[("file", b"content")])).unwrap();
    padding[BLOCK + 7] = 1;
    assert_eq!(unpack(&padding), Err(ArchiveError::NotCanonical));
}

#[test]
fn what_was_cut_or_changed_is_refused() {
    let archive = pack(&sample()).unwrap();
    for length in 0..archive.len() {
        assert_eq!(unpack(&archive[..length]), Err(ArchiveError::Truncated), "{length}");
    }
    let mut more = archive.clone();
    more.extend_from_slice(&[0; 8]);
    assert_eq!(unpack(&more), Err(ArchiveError::BehindTheEnd));
    let mut wrong = archive.clone();
    wrong[0] ^= 1;
    assert_eq!(unpack(&wrong), Err(ArchiveError::Checksum));
    let mut foreign = archive;
    foreign[257] = b'U';
    assert_eq!(unpack(&foreign), Err(ArchiveError::NotAnArchive));
    assert_eq!(unpack(&[b'x'; 2048]), Err(ArchiveError::NotAnArchive));
}

#[test]
fn a_size_that_is_none_or_lies_is_refused() {
    let sized = |size: &[u8; 12]| altered(|header| header[124..136].copy_from_slice(size));
    assert_eq!(sized(b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"), Err(ArchiveError::Number), "base 256");
    assert_eq!(sized(b"-0000000001\0"), Err(ArchiveError::Number));
    assert_eq!(sized(b"00000000009\0"), Err(ArchiveError::Number));
    assert_eq!(sized(b"\0\0\0\0\0\0\0\0\0\0\0\0"), Err(ArchiveError::Number));
    assert_eq!(sized(b"77777777777\0"), Err(ArchiveError::TooLarge), "eight gigabytes are not even looked for");
    assert_eq!(sized(b"00000100000\0"), Err(ArchiveError::Truncated));
}

#[test]
fn too_many_and_too_large_are_refused_both_ways() {
    let many: BTreeMap<String, Vec<u8>> = (0..257).map(|number| (format!("{number:03}"), Vec::new())).collect();
    assert_eq!(pack(&many), Err(ArchiveError::TooManyFiles));
    let mut archive = pack(&many.into_iter().take(256).collect()).unwrap();
    let end = archive.len() - END;
    let again = header::write("999", 0);
    archive.splice(end..end, again);
    assert_eq!(unpack(&archive), Err(ArchiveError::TooManyFiles));
    let large = files(&[("a", &vec![0; MOST_BYTES / 2]), ("b", &vec![0; MOST_BYTES / 2 + 1])]);
    assert_eq!(pack(&large), Err(ArchiveError::TooLarge));
    assert_eq!(unpack(&vec![1; MOST_ARCHIVE_BYTES + 1]), Err(ArchiveError::TooLarge));
}

#[test]
fn a_compressed_archive_is_told_by_its_name() {
    for (magic, kind) in MAGIC {
        let mut bytes = magic.to_vec();
        bytes.resize(4096, 0);
        assert_eq!(unpack(&bytes), Err(ArchiveError::Compressed(kind)));
    }
    let gzip = Command::new("sh").args(["-c", "echo bomb | gzip -c"]).output().unwrap();
    let refused = unpack(&gzip.stdout).unwrap_err();
    assert_eq!(refused.to_string(), "it is compressed with gzip");
    assert!(refused.advice().starts_with("packages are not compressed"));
}

proptest! {
    #[test]
    fn anything_packed_is_unpacked_and_spelt_the_same(
        files in btree_map("[A-Za-z0-9_][A-Za-z0-9._-]{0,20}(/[a-z0-9_][a-z]{0,5}){0,3}", prop::collection::vec(any::<u8>(), 0..1200), 0..8)
    ) {
        if let Ok(archive) = pack(&files) {
            prop_assert_eq!(archive.len() % BLOCK, 0);
            prop_assert_eq!(unpack(&archive), Ok(files));
        }
    }

    #[test]
    fn no_bytes_make_it_panic_or_give_more_than_they_are(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        if let Ok(files) = unpack(&bytes) {
            prop_assert!(files.values().map(Vec::len).sum::<usize>() <= bytes.len());
        }
    }

    #[test]
    fn a_changed_archive_is_refused_or_spelt_as_it_should_be(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        repaired in any::<bool>(),
    ) {
        let mut archive = pack(&sample()).unwrap();
        for (at, value) in changes {
            let at = at.index(archive.len());
            archive[at] = value;
        }
        if repaired {
            archive = with_header(&archive, 0, |_| ());
        }
        if let Ok(files) = unpack(&archive) {
            prop_assert_eq!(pack(&files).unwrap(), archive);
        }
    }
}
