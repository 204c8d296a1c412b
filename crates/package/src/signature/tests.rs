//! Keys and signatures that count, and those that do not.

#![allow(clippy::disallowed_methods, reason = "the `minisign` program is the other side")]

use std::{path::Path, process::Command};

use super::*;

const ARCHIVE: &[u8] = b"an archive";

fn key() -> SecretSigningKey {
    SecretSigningKey::generate(None).unwrap()
}

/// Runs the `minisign` program, and says whether it agreed.
fn minisign(directory: &Path, arguments: &[&str]) -> bool {
    let run = Command::new("minisign").args(arguments).current_dir(directory).output();
    run.expect("`minisign` is installed by scripts/setup").status.success()
}

#[test]
fn what_was_signed_is_verified_with_its_comment() {
    let key = key();
    let signature = key.sign(ARCHIVE, "text-diff 1.2.0").unwrap();
    let verified = verify(ARCHIVE, &signature, &key.public()).unwrap();
    assert_eq!((verified.key(), verified.comment()), (&key.public(), "text-diff 1.2.0"));
    assert_eq!(signer_of(&signature).unwrap(), key.public().key_id());
}

#[test]
fn a_changed_archive_comment_or_signature_is_refused() {
    let key = key();
    let signature = key.sign(ARCHIVE, "version 1").unwrap();
    assert_eq!(verify(b"an archivf", &signature, &key.public()), Err(SignatureError::DoesNotFit));
    let comment = signature.replace("version 1", "version 2");
    assert_eq!(verify(ARCHIVE, &comment, &key.public()), Err(SignatureError::DoesNotFit));
    let other = key.sign(b"another", "version 1").unwrap();
    let mixed: Vec<&str> = signature.lines().take(2).chain(other.lines().skip(2)).collect();
    assert_eq!(verify(ARCHIVE, &mixed.join("\n"), &key.public()), Err(SignatureError::DoesNotFit));
    for text in ["", "untrusted comment: x", &"x\n".repeat(10), &signature.repeat(1000)] {
        assert_eq!(verify(ARCHIVE, text, &key.public()), Err(SignatureError::NoSignature));
    }
}

#[test]
fn another_key_is_refused_also_when_it_has_the_same_short_id() {
    let (one, other) = (key(), key());
    let signature = one.sign(ARCHIVE, "x").unwrap();
    let expected = other.public().key_id();
    assert_eq!(verify(ARCHIVE, &signature, &other.public()), Err(SignatureError::OtherKey { expected }));
    let mut forged = other.public();
    forged.0[2..10].copy_from_slice(&one.public().0[2..10]);
    assert_eq!(forged.key_id(), one.public().key_id());
    assert_eq!(verify(ARCHIVE, &signature, &forged), Err(SignatureError::DoesNotFit));
}

#[test]
fn a_public_key_is_read_from_its_line_and_from_its_file() {
    let key = key().public();
    assert_eq!(PublisherKey::parse(&key.to_string()), Ok(key.clone()));
    assert_eq!(PublisherKey::parse(&key.to_file()), Ok(key.clone()));
    assert_eq!(serde_json::from_str::<PublisherKey>(&serde_json::to_string(&key).unwrap()).unwrap(), key);
    let other_algorithm = key.to_string().replacen("RW", "RU", 1);
    for text in ["", "RWQ", "untrusted comment: x\n", &other_algorithm, &format!("{key}\n{key}"), &format!("{key}AAAA")]
    {
        assert_eq!(PublisherKey::parse(text), Err(SignatureError::NoKey), "{text}");
    }
}

#[test]
fn a_secret_key_is_read_back_and_never_printed() {
    let key = key();
    let again = SecretSigningKey::load(key.to_file(), None).unwrap();
    assert_eq!(again.public(), key.public());
    assert_eq!(format!("{key:?}"), format!("SecretSigningKey({})", key.public().key_id()));
    for text in ["", "x", "untrusted comment: x\nnot base64", &key.public().to_file()] {
        assert_eq!(SecretSigningKey::load(text, None).map(|_| ()), Err(SignatureError::NoSecretKey), "{text}");
    }
}

#[test]
fn a_sealed_secret_key_opens_with_its_password_only() {
    let key = SecretSigningKey::generate(Some("correct horse")).unwrap();
    let opened = SecretSigningKey::load(key.to_file(), Some("correct horse")).unwrap();
    assert_eq!(opened.public(), key.public());
    let load = |password| SecretSigningKey::load(key.to_file(), password).map(|_| ());
    assert_eq!(load(Some("wrong horse")), Err(SignatureError::WrongPassword));
    assert_eq!(load(None), Err(SignatureError::PasswordNeeded));
}

#[test]
fn a_comment_of_two_lines_is_refused() {
    assert_eq!(key().sign(ARCHIVE, "a\nb"), Err(SignatureError::Comment("a\nb".to_owned())));
    assert!(key().sign(ARCHIVE, &"x".repeat(1025)).is_err());
}

#[test]
fn the_minisign_program_verifies_what_is_signed_here() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let key = key();
    std::fs::write(at("a.skill"), ARCHIVE).unwrap();
    std::fs::write(at("a.skill.minisig"), key.sign(ARCHIVE, "a comment").unwrap()).unwrap();
    std::fs::write(at("key.pub"), key.public().to_file()).unwrap();
    assert!(minisign(directory.path(), &["-V", "-p", "key.pub", "-m", "a.skill"]));
    assert!(minisign(directory.path(), &["-V", "-P", &key.public().to_string(), "-m", "a.skill"]));
    std::fs::write(at("key.sec"), key.to_file()).unwrap();
    assert!(minisign(directory.path(), &["-S", "-s", "key.sec", "-m", "a.skill", "-x", "theirs.minisig"]));
    let theirs = std::fs::read_to_string(at("theirs.minisig")).unwrap();
    assert!(verify(ARCHIVE, &theirs, &key.public()).is_ok(), "a secret key of here signs there");
    std::fs::write(at("a.skill"), b"another").unwrap();
    assert!(!minisign(directory.path(), &["-V", "-p", "key.pub", "-m", "a.skill"]));
}

#[test]
fn what_the_minisign_program_signs_is_verified_here_unless_it_is_of_the_old_kind() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let text = |name: &str| std::fs::read_to_string(at(name)).unwrap();
    std::fs::write(at("a.skill"), ARCHIVE).unwrap();
    assert!(minisign(directory.path(), &["-G", "-W", "-f", "-p", "key.pub", "-s", "key.sec"]));
    assert!(minisign(directory.path(), &["-S", "-H", "-s", "key.sec", "-t", "theirs", "-m", "a.skill"]));
    let public = PublisherKey::parse(&text("key.pub")).unwrap();
    assert_eq!(verify(ARCHIVE, &text("a.skill.minisig"), &public).unwrap().comment(), "theirs");
    let shown = text("key.pub").lines().next().and_then(|line| line.rsplit(' ').next().map(str::to_owned)).unwrap();
    assert_eq!(public.key_id(), format!("{shown:0>16}"), "the short id is the one that minisign shows");

    let secret = SecretSigningKey::load(&text("key.sec"), None).unwrap();
    let signature = secret.sign(ARCHIVE, "ours").unwrap();
    assert!(verify(ARCHIVE, &signature, &public).is_ok(), "their secret key signs here");

    assert!(minisign(directory.path(), &["-S", "-l", "-s", "key.sec", "-m", "a.skill", "-x", "old.minisig"]));
    assert_eq!(verify(ARCHIVE, &text("old.minisig"), &public), Err(SignatureError::Legacy));
}

#[test]
fn an_id_that_begins_with_zeros_has_them() {
    let mut bytes = [0; 42];
    bytes[..2].copy_from_slice(b"Ed");
    bytes[2] = 0xa1;
    let key = PublisherKey::parse(&BASE64_STANDARD.encode(bytes)).unwrap();
    assert_eq!(key.key_id(), "00000000000000A1");
}
