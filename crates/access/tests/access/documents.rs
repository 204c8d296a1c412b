//! The registry as text: what is written reads back, and what is not whole is refused.

use std::sync::Arc;

use palyra_access::{
    AccessRegistry, Actor, NewToken, OpenError, Scope, StoreError, TokenKind, TokenRotation,
    document::{self, DocumentError},
    state::Inconsistency,
};
use palyra_types::{Sha256Digest, TokenId, WorkspaceRole, clock::ManualClock, entropy::SeededEntropy};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::lab::{Disk, Lab, actor, at, invitation, only, token, user};

/// A registry with something of everything.
async fn rich() -> Lab {
    let lab = Lab::team().await;
    let ada = actor("user:ada@owner");
    lab.change(|state, at| state.invite(&ada, invitation("dan", WorkspaceRole::Operator), at)).await;
    lab.change(|state, _| state.set_workspaces(&ada, &user("cid"), only(["web", "api"]))).await;
    let (key, _) = lab.pair("user:ada@owner", "laptop", "user:ada", Some(WorkspaceRole::Owner)).await;
    lab.pair("user:bea@admin", "robot", "agent:claude", None).await;
    let new =
        NewToken { role: Some(WorkspaceRole::Admin), ..token("user:bea", [Scope::PolicyWrite, Scope::JournalRead]) };
    let (text, id) = lab.mint("user:bea@admin", new).await;
    let (_, fresh) = lab.fresh(TokenKind::User);
    let rotation = TokenRotation { id, overlap: std::time::Duration::from_secs(60), lifetime: None };
    lab.registry.by_token(&text).unwrap();
    lab.registry.by_device_key(&key).unwrap();
    lab.change(|state, at| state.rotate(&actor("user:bea@admin"), rotation, fresh, at)).await;
    lab.change(|state, at| state.remove_member(&ada, &user("bea"), at)).await;
    lab
}

/// A document of this content, whose digest is right.
pub fn sealed(registry: &Value) -> Vec<u8> {
    let registry = registry.to_string();
    let digest = Sha256Digest::of(registry.as_bytes());
    format!(r#"{{"version":1,"sha256":"{digest}","registry":{registry}}}"#).into_bytes()
}

fn content(document: &[u8]) -> Value {
    serde_json::from_slice::<Value>(document).unwrap()["registry"].clone()
}

fn opened(document: &[u8]) -> OpenError {
    let (clock, entropy) = (Arc::new(ManualClock::at(at(0))), Arc::new(SeededEntropy::new(1)));
    let error = AccessRegistry::open(Disk::holding(document), clock, entropy).unwrap_err();
    assert!(!error.to_string().is_empty() && !error.advice().is_empty());
    error
}

#[tokio::test]
async fn what_is_written_reads_back_the_same() {
    let lab = rich().await;
    let snapshot = lab.registry.snapshot();
    let written = document::encode(snapshot.state(), snapshot.revision()).unwrap();
    assert_eq!(written, lab.disk.document());
    let (state, revision) = document::decode(&written).unwrap();
    assert_eq!((&state, revision), (snapshot.state(), snapshot.revision()));
    assert_eq!(document::encode(&state, revision).unwrap(), written, "there is one spelling");
}

#[tokio::test]
async fn a_token_that_was_minted_with_another_is_written_so_and_one_that_was_not_is_written_as_before() {
    let lab = Lab::new();
    let manager =
        NewToken { role: Some(WorkspaceRole::Owner), ..token("user:ada", [Scope::TokensManage, Scope::CallsCreate]) };
    let (text, id) = lab.mint("user:ada@owner", manager).await;
    let by = Actor::from(&*lab.registry.by_token(&text).unwrap());
    let (_, fresh) = lab.fresh(TokenKind::Agent);
    let child = fresh.id.clone();
    lab.change(|state, at| state.mint(&by, token("agent:claude", [Scope::CallsCreate]), fresh, at)).await;
    assert_eq!(lab.reopened().snapshot().state(), lab.registry.snapshot().state());
    let registry = content(&lab.disk.document());
    let with = |of: &TokenId| {
        let token = registry["tokens"].as_array().unwrap().iter().find(|token| token["id"] == of.as_str()).unwrap();
        token.get("minted_with").cloned()
    };
    assert_eq!((with(&child), with(&id)), (Some(json!(id.as_str())), None));
}

#[tokio::test]
async fn a_document_says_its_version_first_and_holds_no_token() {
    let lab = Lab::new();
    let (text, _) = lab.mint("user:ada@owner", token("agent:claude", [Scope::CallsCreate])).await;
    let document = String::from_utf8(lab.disk.document()).unwrap();
    assert!(document.starts_with(r#"{"version":1,"#) && document.ends_with("}\n"));
    assert!(!document.contains(&text) && document.contains(&Sha256Digest::of(text.as_bytes()).to_hex()));
}

#[test]
fn a_registry_that_is_not_there_is_not_taken_for_an_empty_one() {
    let open = |disk| {
        AccessRegistry::open(disk, Arc::new(ManualClock::at(at(0))), Arc::new(SeededEntropy::new(1))).unwrap_err()
    };
    let missing = open(Arc::<Disk>::default());
    assert!(matches!(missing, OpenError::Missing));
    let broken = Arc::<Disk>::default();
    broken.failing.store(true, std::sync::atomic::Ordering::SeqCst);
    let unreadable = open(broken);
    assert!(matches!(unreadable, OpenError::Store(StoreError::Io { .. })));
    assert_ne!(missing.advice(), unreadable.advice());
}

#[tokio::test]
async fn each_fault_of_a_document_is_told_apart() {
    let document = rich().await.disk.document();
    let of = |document: &[u8]| match opened(document) {
        OpenError::Document(error) => error,
        other => panic!("{other}"),
    };
    assert!(matches!(of(b""), DocumentError::NotJson(_)));
    assert!(matches!(of(b"garbage"), DocumentError::NotJson(_)));
    assert!(matches!(of(&document[..document.len() / 2]), DocumentError::NotJson(_)));
    assert!(matches!(of(b"[]"), DocumentError::Form(_)));
    assert!(matches!(of(b"{}"), DocumentError::Form(_)));
    assert_eq!(of(br#"{"version":2,"whatever":true}"#), DocumentError::Version(2));
    let text = String::from_utf8(document.clone()).unwrap();
    assert_eq!(of(text.replacen("\"ada\"", "\"eve\"", 1).as_bytes()), DocumentError::Altered);
    let more = text.replacen("{\"version\":1,", "{\"version\":1,\"more\":1,", 1);
    assert!(matches!(of(more.as_bytes()), DocumentError::Form(said) if said.contains("unknown field `more`")));
    for (place, field) in [("", "more"), ("/members/0", "more"), ("/devices/0", "more"), ("/tokens/0", "more")] {
        let mut registry = content(&document);
        registry.pointer_mut(place).unwrap()[field] = json!(1);
        let refused = of(&sealed(&registry));
        assert!(matches!(&refused, DocumentError::Form(said) if said.contains("unknown field `more`")), "{refused}");
    }
    let mut registry = content(&document);
    registry["features"]["warp_drive"] = json!("on");
    assert!(
        matches!(of(&sealed(&registry)), DocumentError::Form(said) if said.contains("unknown feature `warp_drive`"))
    );
    registry = content(&document);
    registry["members"] = json!([]);
    assert_eq!(of(&sealed(&registry)), DocumentError::Inconsistent(Inconsistency::NoOwner));
}

#[tokio::test]
async fn a_flipped_byte_or_a_cut_is_refused_or_means_the_same() {
    let document = rich().await.disk.document();
    let whole = document::decode(&document).unwrap();
    let mut survived = 0;
    for place in 0..document.len() {
        for mask in [0x01, 0x20, 0x80] {
            let mut flipped = document.clone();
            flipped[place] ^= mask;
            if let Ok(read) = document::decode(&flipped) {
                assert_eq!(read, whole, "byte {place} ^ {mask}");
                survived += 1;
            }
        }
        if let Ok(read) = document::decode(&document[..place]) {
            assert_eq!(read, whole, "cut at {place}");
            survived += 1;
        }
    }
    assert!(survived <= 3, "only the line break at the end may go or change, but {survived} changes were accepted");
}

proptest! {
    #[test]
    fn no_bytes_whatever_are_too_much(bytes: Vec<u8>, text in r#"\{("version":1,)?("sha256":"[0-9a-f]{64}",)?"registry":.{0,40}\}"#) {
        prop_assert!(document::decode(&bytes).is_err());
        prop_assert!(document::decode(text.as_bytes()).is_err());
    }
}
