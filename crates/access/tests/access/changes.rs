//! Changes: prepared, made or dropped, saved before they are in force.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
    mpsc,
};

use palyra_access::{
    AccessRegistry, FeatureFlag, OpenError, Refusal, RegistryStore, Scope, StoreError, Switch, TokenKind,
};
use palyra_types::{WorkspaceRole, clock::ManualClock, entropy::SeededEntropy};

use super::lab::{Disk, Lab, actor, at, invitation, principal, token, user};

#[test]
fn a_registry_is_founded_once() {
    let lab = Lab::new();
    let again = AccessRegistry::create(
        Arc::<Disk>::clone(&lab.disk),
        Arc::new(ManualClock::at(at(0))),
        Arc::new(SeededEntropy::new(1)),
        user("mallory"),
    );
    assert!(matches!(again, Err(OpenError::Exists)));
    assert_eq!(lab.reopened().snapshot().state(), lab.registry.snapshot().state());
    assert_eq!(lab.registry.revision(), 1);
}

#[tokio::test]
async fn a_change_is_in_force_and_on_the_disk_once_it_is_committed_and_not_before() {
    let lab = Lab::new();
    let changes = lab.registry.changes();
    let founded = lab.disk.document();
    let ada = actor("user:ada@owner");
    let switch = |to| lab.registry.prepare(move |state, _| state.set_feature(&ada, FeatureFlag::CompatApi, to));
    let pending = switch(Switch::On).await.unwrap();
    assert_eq!((pending.outcome().to, pending.revision()), (Switch::On, 2));
    assert!(!lab.registry.snapshot().state().is_on(FeatureFlag::CompatApi));
    assert_eq!((lab.disk.document(), lab.registry.revision(), changes.has_changed().unwrap()), (founded, 1, false));
    let done = pending.commit().await.unwrap();
    assert_eq!((done.from, done.to), (Switch::Off, Switch::On));
    assert!(lab.registry.snapshot().state().is_on(FeatureFlag::CompatApi));
    assert_eq!((lab.registry.revision(), *changes.borrow()), (2, 2));
    let reopened = lab.reopened();
    assert_eq!(reopened.revision(), 2);
    assert_eq!(reopened.snapshot().state(), lab.registry.snapshot().state());
}

#[tokio::test]
async fn a_change_that_is_dropped_or_refused_changes_nothing_and_lets_the_next_one_in() {
    let lab = Lab::new();
    let (founded, ada) = (lab.disk.document(), actor("user:ada@owner"));
    let pending =
        lab.registry.prepare(|state, _| state.set_feature(&ada, FeatureFlag::CompatApi, Switch::On)).await.unwrap();
    drop(pending);
    let refused =
        lab.registry.prepare(|state, at| state.invite(&ada, invitation("bea", WorkspaceRole::Admin), at)).await;
    assert_eq!(refused.unwrap_err(), Refusal::FeatureOff(FeatureFlag::TeamMode));
    assert_eq!((lab.disk.document(), lab.registry.revision()), (founded, 1));
    lab.change(|state, _| state.set_feature(&ada, FeatureFlag::McpGateway, Switch::On)).await;
    let state = lab.registry.snapshot();
    assert!(state.state().is_on(FeatureFlag::McpGateway) && !state.state().is_on(FeatureFlag::CompatApi));
}

#[tokio::test]
async fn changes_are_made_one_after_the_other() {
    let lab = Lab::new();
    let ada = actor("user:ada@owner");
    let first =
        lab.registry.prepare(|state, _| state.set_feature(&ada, FeatureFlag::CompatApi, Switch::On)).await.unwrap();
    let second = lab.registry.prepare(|state, _| state.set_feature(&ada, FeatureFlag::McpGateway, Switch::On));
    tokio::pin!(second);
    let waited = tokio::time::timeout(std::time::Duration::from_millis(20), &mut second).await;
    assert!(waited.is_err(), "the second waits for the first");
    first.commit().await.unwrap();
    second.await.unwrap().commit().await.unwrap();
    let snapshot = lab.registry.snapshot();
    assert!(snapshot.state().is_on(FeatureFlag::CompatApi) && snapshot.state().is_on(FeatureFlag::McpGateway));
    assert_eq!(snapshot.revision(), 3);
}

#[tokio::test]
async fn after_a_save_that_failed_everything_is_as_before() {
    let lab = Lab::new();
    let changes = lab.registry.changes();
    let (before, founded) = (lab.registry.snapshot(), lab.disk.document());
    let ada = actor("user:ada@owner");
    lab.disk.failing.store(true, Ordering::SeqCst);
    let pending =
        lab.registry.prepare(|state, _| state.set_feature(&ada, FeatureFlag::CompatApi, Switch::On)).await.unwrap();
    assert!(matches!(pending.commit().await, Err(StoreError::Io { .. })));
    assert!(Arc::ptr_eq(&before, &lab.registry.snapshot()));
    assert_eq!((lab.disk.document(), changes.has_changed().unwrap()), (founded, false));
    lab.disk.failing.store(false, Ordering::SeqCst);
    lab.change(|state, _| state.set_feature(&ada, FeatureFlag::McpGateway, Switch::On)).await;
    assert_eq!(lab.reopened().revision(), 2);
    assert!(!lab.reopened().snapshot().state().is_on(FeatureFlag::CompatApi));
}

/// A disk that takes its time.
struct SlowDisk {
    disk: Disk,
    slow: AtomicBool,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl RegistryStore for SlowDisk {
    fn load(&self) -> Result<Option<Vec<u8>>, StoreError> {
        self.disk.load()
    }

    fn save(&self, document: &[u8]) -> Result<(), StoreError> {
        if self.slow.load(Ordering::SeqCst) {
            self.go_on.lock().unwrap().recv().unwrap();
        }
        self.disk.save(document)
    }
}

#[tokio::test]
async fn a_commit_that_nobody_waits_for_is_finished_before_the_next_change_begins() {
    let (go, go_on) = mpsc::channel();
    let store = Arc::new(SlowDisk { disk: Disk::default(), slow: AtomicBool::new(false), go_on: Mutex::new(go_on) });
    let (clock, entropy) = (Arc::new(ManualClock::at(at(0))), Arc::new(SeededEntropy::new(1)));
    let registry = AccessRegistry::create(Arc::<SlowDisk>::clone(&store), clock, entropy, user("ada")).unwrap();
    store.slow.store(true, Ordering::SeqCst);
    let ada = actor("user:ada@owner");
    let pending =
        registry.prepare(|state, _| state.set_feature(&ada, FeatureFlag::CompatApi, Switch::On)).await.unwrap();
    let given_up = tokio::time::timeout(std::time::Duration::from_millis(20), pending.commit()).await;
    assert!(given_up.is_err());
    assert_eq!(registry.revision(), 1);
    go.send(()).unwrap();
    go.send(()).unwrap();
    let next = registry.prepare(|state, _| state.set_feature(&ada, FeatureFlag::McpGateway, Switch::On)).await.unwrap();
    assert_eq!(next.revision(), 3, "the first is in force by now");
    next.commit().await.unwrap();
    let snapshot = registry.snapshot();
    assert!(snapshot.state().is_on(FeatureFlag::CompatApi) && snapshot.state().is_on(FeatureFlag::McpGateway));
}

#[tokio::test]
async fn use_is_kept_in_memory_saved_when_it_is_flushed_and_carried_along_by_every_change() {
    let lab = Lab::new();
    let (text, id) = lab.mint("user:ada@owner", token("agent:claude", [Scope::CallsCreate])).await;
    let (key, laptop) = lab.pair("user:ada@owner", "laptop", "user:ada", Some(WorkspaceRole::Owner)).await;
    let recorded = |registry: &AccessRegistry| {
        let snapshot = registry.snapshot();
        (snapshot.state().token(&id).unwrap().last_used, snapshot.state().device(&laptop).unwrap().last_seen)
    };
    let saves = || lab.disk.saves.load(Ordering::SeqCst);
    assert!(!lab.registry.flush_use().await.unwrap(), "nothing was used");
    let before = saves();
    lab.clock.advance(60_000);
    lab.registry.by_token(&text).unwrap();
    lab.registry.by_device_key(&key).unwrap();
    let snapshot = lab.registry.snapshot();
    assert_eq!((snapshot.last_used(&id), snapshot.last_seen(&laptop)), (Some(at(1)), Some(at(1))));
    assert_eq!((recorded(&lab.registry), saves()), ((None, None), before), "no request writes to the disk");
    let (changes, revision) = (lab.registry.changes(), lab.registry.revision());
    assert!(lab.registry.flush_use().await.unwrap());
    assert_eq!((changes.has_changed().unwrap(), lab.registry.revision()), (false, revision), "it is no change");
    assert_eq!(recorded(&lab.reopened()), (Some(at(1)), Some(at(1))));
    assert!(!lab.registry.flush_use().await.unwrap());
    lab.clock.advance(60_000);
    lab.registry.by_token(&text).unwrap();
    lab.change(|state, _| state.set_feature(&actor("user:ada@owner"), FeatureFlag::CompatApi, Switch::On)).await;
    assert_eq!(recorded(&lab.reopened()), (Some(at(2)), Some(at(1))));
    assert!(!lab.registry.flush_use().await.unwrap(), "the change took it along");
    lab.disk.failing.store(true, Ordering::SeqCst);
    lab.clock.advance(60_000);
    lab.registry.by_token(&text).unwrap();
    assert!(lab.registry.flush_use().await.is_err());
    lab.disk.failing.store(false, Ordering::SeqCst);
    assert!(lab.registry.flush_use().await.unwrap(), "what could not be saved is not forgotten");
    assert_eq!(recorded(&lab.reopened()), (Some(at(3)), Some(at(1))));
}

#[tokio::test]
async fn a_clock_that_was_set_absurdly_writes_nothing_that_cannot_be_read() {
    let lab = Lab::new();
    for millis in [i64::MAX, i64::MIN] {
        lab.clock.set_wall(palyra_types::Timestamp::from_unix_millis(millis));
        let (text, _) = lab.mint("user:ada@owner", token("agent:claude", [Scope::CallsCreate])).await;
        let _ = lab.registry.by_token(&text);
        lab.registry.flush_use().await.unwrap();
        assert_eq!(lab.reopened().snapshot().state(), lab.registry.snapshot().state());
    }
}

#[tokio::test]
async fn a_change_can_be_made_by_a_task_that_moves_between_threads() {
    let lab = Lab::new();
    let registry = lab.registry.clone();
    let task = tokio::spawn(async move {
        let ada = actor("user:ada@owner");
        let pending = registry.prepare(|state, _| state.set_feature(&ada, FeatureFlag::CompatApi, Switch::On)).await?;
        tokio::task::yield_now().await;
        Ok::<_, Refusal>(pending.commit().await.unwrap().to)
    });
    assert_eq!(task.await.unwrap(), Ok(Switch::On));
    assert_eq!(lab.registry.revision(), 2);
}

#[test]
fn what_is_made_anew_has_a_name_of_its_own() {
    let lab = Lab::new();
    let (one, other) = (lab.fresh(TokenKind::Agent), lab.fresh(TokenKind::Agent));
    assert!(one.0 != other.0 && one.1.id != other.1.id && one.1.digest != other.1.digest);
    assert!(one.0.starts_with("plr_agent_") && one.1.id.as_str().starts_with("tok-"));
    assert!(lab.registry.fresh_device_id().unwrap().as_str().starts_with("dev-"));
    assert_eq!(lab.registry.fresh_invitation_id().unwrap().as_str().len(), "inv-".len() + 16);
}

#[tokio::test]
async fn nothing_that_is_printed_for_debugging_shows_a_secret() {
    let lab = Lab::new();
    let (text, _) = lab.mint("user:ada@owner", token("agent:claude", [Scope::CallsCreate])).await;
    let holder = lab.registry.by_token(&text).unwrap();
    let shown = format!("{:?} {:?} {holder:?}", lab.registry, lab.registry.snapshot());
    assert!(!shown.contains(&text));
    assert_eq!(holder.minted_by, Some(principal("user:ada")));
}
