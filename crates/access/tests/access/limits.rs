//! Paces and slots.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use palyra_access::{
    Bound, FeatureFlag, Limited, NewToken, Pass, Scope, Switch, TokenKind, TokenRotation, limits::burst,
};

use palyra_types::WorkspaceRole;

use super::lab::{Lab, actor, token};

fn paced(per_minute: u32, concurrent: u32) -> NewToken {
    let (per_minute, concurrent) = (Some(per_minute), Some(concurrent));
    NewToken { per_minute, concurrent, ..token("agent:claude", [Scope::CallsCreate]) }
}

impl Lab {
    fn enter(&self, text: &str) -> Result<Pass, Limited> {
        self.registry.by_token(text).unwrap().limits.as_ref().unwrap().enter()
    }

    /// How many requests get in at once, one after the other.
    fn entered(&self, text: &str) -> u32 {
        (0..).find(|_| self.enter(text).is_err()).unwrap()
    }
}

fn limited(limit: u32, millis: u64, what: Bound) -> Limited {
    Limited { limit, retry_after: Duration::from_millis(millis), what }
}

#[test]
fn a_burst_is_a_sixth_of_a_minute_at_least_ten_and_never_more_than_a_minute() {
    let of = |per_minute| burst(NonZeroU32::new(per_minute).unwrap()).get();
    assert_eq!([1, 9, 10, 59, 60, 66, 600, 3_000, 100_000].map(of), [1, 9, 10, 10, 10, 11, 100, 500, 16_666]);
}

#[tokio::test]
async fn a_token_goes_at_its_pace_after_a_burst() {
    let lab = Lab::new();
    let (text, _) = lab.mint("user:ada@owner", paced(60, 32)).await;
    let first = lab.enter(&text).unwrap();
    assert_eq!((first.limit, first.remaining, first.reset_seconds), (60, 9, 1));
    drop(first);
    for left in (0..9).rev() {
        let pass = lab.enter(&text).unwrap();
        assert_eq!((pass.remaining, pass.reset_seconds), (left, 10 - u64::from(left)));
    }
    let over = lab.enter(&text).unwrap_err();
    assert_eq!(over, limited(60, 1_000, Bound::Family));
    assert_eq!(over.to_string(), "this credential makes more than 60 requests a minute");
    assert_eq!(over.advice(), "wait 1 s before the next request");
    lab.clock.advance(999);
    assert_eq!(lab.enter(&text).unwrap_err(), limited(60, 1, Bound::Family));
    lab.clock.advance(1);
    assert_eq!(lab.entered(&text), 1);
    lab.clock.advance(3_000);
    assert_eq!(lab.entered(&text), 3);
    lab.clock.advance(3_600_000 - 4_000 - 1);
    assert_eq!(lab.entered(&text), 10, "no more than a burst, however long the rest");
}

#[tokio::test]
async fn setting_the_wall_clock_makes_nobody_faster() {
    let lab = Lab::new();
    let (text, _) = lab.mint("user:ada@owner", paced(60, 32)).await;
    assert_eq!(lab.entered(&text), 10);
    lab.clock.set_wall(super::lab::at(30));
    assert_eq!(lab.entered(&text), 0);
}

#[tokio::test]
async fn neither_rotating_nor_any_other_change_resets_a_pace() {
    let lab = Lab::new();
    let ada = actor("user:ada@owner");
    let (old, id) = lab.mint("user:ada@owner", paced(60, 1)).await;
    let held = lab.enter(&old).unwrap();
    let (new, fresh) = lab.fresh(TokenKind::Agent);
    let rotation = TokenRotation { id, overlap: Duration::from_secs(600), lifetime: None };
    lab.change(|state, at| state.rotate(&ada, rotation, fresh, at)).await;
    lab.change(|state, _| state.set_feature(&ada, FeatureFlag::CompatApi, Switch::On)).await;
    assert_eq!(lab.enter(&new).unwrap_err(), limited(1, 1_000, Bound::Concurrency), "slots are the family's");
    drop(held);
    assert_eq!(lab.entered(&new), 9);
    assert_eq!(lab.entered(&old), 0, "old and new share one pace");
    lab.registry.flush_use().await.unwrap();
    assert_eq!(lab.entered(&new), 0);
}

#[tokio::test]
async fn all_tokens_of_a_principal_share_its_pace() {
    let lab = Lab::new();
    let registry = lab.registry.clone().with_principal_per_minute(NonZeroU32::new(60).unwrap());
    let lab = Lab { registry, ..lab };
    let (one, _) = lab.mint("user:ada@owner", paced(600, 32)).await;
    assert_eq!(lab.entered(&one), 10);
    assert_eq!(lab.enter(&one).unwrap_err(), limited(60, 1_000, Bound::Principal));
    let (two, _) = lab.mint("user:ada@owner", paced(600, 32)).await;
    assert_eq!(lab.entered(&two), 0, "minting another resets nothing");
    let other = NewToken { principal: super::lab::principal("agent:other"), ..paced(600, 32) };
    let (other, _) = lab.mint("user:ada@owner", other).await;
    assert_eq!(lab.entered(&other), 10, "somebody else goes at their own pace");
}

#[tokio::test]
async fn the_devices_of_an_agent_share_the_pace_of_its_tokens() {
    let lab = Lab::new();
    let registry = lab.registry.clone().with_principal_per_minute(NonZeroU32::new(60).unwrap());
    let lab = Lab { registry, ..lab };
    let (text, _) = lab.mint("user:ada@owner", paced(600, 32)).await;
    let (key, _) = lab.pair("user:ada@owner", "dev-one", "agent:claude", None).await;
    let enter = |key| lab.registry.by_device_key(&key).unwrap().limits.as_ref().unwrap().enter();
    assert_eq!(lab.entered(&text), 10);
    assert_eq!(enter(key).unwrap_err(), limited(60, 1_000, Bound::Principal));
    let (other, _) = lab.pair("user:ada@owner", "dev-two", "agent:claude", None).await;
    assert_eq!(enter(other).unwrap_err().what, Bound::Principal, "pairing another resets nothing");
    lab.clock.advance(1_000);
    assert!(enter(other).is_ok());
    assert!(enter(key).is_err());
    lab.clock.advance(60_000);
    let held: Vec<_> = (0..10).map(|_| enter(key).unwrap()).collect();
    lab.pair("user:ada@owner", "dev-three", "agent:claude", None).await;
    assert!(enter(key).is_err(), "nor does any other change");
    drop(held);
    let (person, _) = lab.pair("user:ada@owner", "dev-mine", "user:ada", Some(WorkspaceRole::Owner)).await;
    assert!(lab.registry.by_device_key(&person).unwrap().limits.is_none(), "a person is not held up");
}

#[tokio::test]
async fn a_request_that_is_refused_takes_nothing_from_the_other_limits() {
    let lab = Lab::new();
    let registry = lab.registry.clone().with_principal_per_minute(NonZeroU32::new(60).unwrap());
    let lab = Lab { registry, ..lab };
    let (slow, _) = lab.mint("user:ada@owner", paced(1, 32)).await;
    let (fast, _) = lab.mint("user:ada@owner", paced(600, 1)).await;
    assert_eq!(lab.entered(&slow), 1);
    for _ in 0..100 {
        assert_eq!(lab.enter(&slow).unwrap_err().what, Bound::Family);
    }
    assert_eq!(lab.entered(&fast), 9, "the refused took nothing from the principal");
    for _ in 0..200 {
        assert_eq!(lab.enter(&fast).unwrap_err().what, Bound::Principal);
    }
    lab.clock.advance(10_000);
    let held = lab.enter(&fast).unwrap();
    assert_eq!(held.remaining, 9);
    for _ in 0..100 {
        assert_eq!(lab.enter(&fast).unwrap_err().what, Bound::Concurrency);
    }
    drop(held);
    assert_eq!(lab.enter(&fast).unwrap().remaining, 8, "nor did those without a slot");
}

#[tokio::test]
async fn only_so_many_requests_are_under_way_at_once() {
    let lab = Lab::new();
    let (text, _) = lab.mint("user:ada@owner", paced(600, 2)).await;
    let (one, two) = (lab.enter(&text).unwrap(), lab.enter(&text).unwrap());
    let over = lab.enter(&text).unwrap_err();
    assert_eq!(over, limited(2, 1_000, Bound::Concurrency));
    assert_eq!(over.to_string(), "this credential has 2 requests under way, which is the limit");
    drop(one);
    let three = lab.enter(&text).unwrap();
    assert!(lab.enter(&text).is_err());
    drop((two, three));
}

#[tokio::test(flavor = "current_thread")]
async fn many_at_the_same_time_get_no_more_than_there_is() {
    let lab = Lab::new();
    let (text, _) = lab.mint("user:ada@owner", paced(600, 1_000)).await;
    let meter = Arc::clone(lab.registry.by_token(&text).unwrap().limits.as_ref().unwrap());
    let passed: usize = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..8).map(|_| scope.spawn(|| (0..100).filter(|_| meter.enter().is_ok()).count())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(passed, 100);
}
