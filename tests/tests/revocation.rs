//! What is revoked is out in less than a second: the next request, the stream that is open, the call that runs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

use std::time::{Duration, Instant};

use palyra_api::{
    device::{NewPairing, RevokeDevice},
    token::{NewToken, RevokeToken, RotateToken},
};
use palyra_client::{Client, ClientError, EventStream};
use palyra_tests::{
    daemon::{DaemonLab, DaemonPlan, accepted, asked, command, over, refused},
    paired::pair,
    token::token,
};

/// How long a stream goes on.
async fn ends(stream: &mut EventStream, since: Instant) -> Duration {
    let end = async { while let Ok(Some(_)) = stream.next().await {} };
    tokio::time::timeout(Duration::from_secs(10), end).await.expect("the stream ends");
    since.elapsed()
}

/// How long it takes until somebody is refused, and with which code.
async fn out(client: &Client, since: Instant) -> (Duration, String) {
    loop {
        match client.identity().await {
            Ok(_) => assert!(since.elapsed() < Duration::from_secs(5), "they are still let in"),
            Err(ClientError::Refused { error, .. }) => return (since.elapsed(), error.code),
            // The connection was closed under the request; the next one is refused.
            Err(_) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_device_loses_its_stream_its_console_and_its_next_request_in_less_than_a_second() {
    let lab = DaemonLab::new();
    let phone = pair(&lab, &NewPairing::default()).await;
    let client = lab.of_device(&phone);
    let mut stream = client.events(None).await.unwrap();
    let kept = lab.of_device(&phone);
    kept.identity().await.unwrap();
    let link = client.console_link().await.unwrap();
    let session = lab.holder_of(&lab.sign_in(&link.url).await);
    let mut page = session.events(None).await.unwrap();
    let begun = Instant::now();
    lab.owner().revoke_device(&phone.device, &RevokeDevice::default()).await.unwrap();
    let (next, code) = out(&kept, begun).await;
    let (stream, page) = (ends(&mut stream, begun).await, ends(&mut page, begun).await);
    println!("a device: next request {next:?}, stream {stream:?}, console {page:?}");
    assert_eq!(code, "revoked");
    assert!(next < Duration::from_secs(1) && stream < Duration::from_secs(1) && page < Duration::from_secs(1));
    assert_eq!(refused(session.identity().await.unwrap_err()).1, "revoked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_token_loses_its_stream_its_calls_and_its_next_request_in_less_than_a_second() {
    let lab = DaemonPlan::default()
        .policies("sleep.cedar", r#"@id("sleep") permit (principal, action == Palyra::Action::"tool.execute", resource == Palyra::Tool::"process.run") when { context has process && context.process.name == "sleep" };"#)
        .start();
    let owner = lab.owner();
    let minted = owner.mint_token(&token("agent:ci", &["calls.create", "calls.read"])).await.unwrap();
    let agent = lab.holder_of(&minted.secret);
    let run = agent.open_run(&Default::default()).await.unwrap();
    let mut stream = agent.run_stream(run.id, None).await.unwrap();
    let running = agent.propose(&accepted(command(["sleep", "60"])), None).await.unwrap();
    let waiting = agent.propose(&accepted(command(["true"])), None).await.unwrap();
    asked(&owner, 1).await;
    let begun = Instant::now();
    let revoked = owner.revoke_token(&minted.token.id, &RevokeToken::default()).await.unwrap();
    let (next, code) = out(&agent, begun).await;
    let stream = ends(&mut stream, begun).await;
    println!("a token: next request {next:?}, stream {stream:?}");
    assert_eq!((code.as_str(), revoked.calls), ("revoked", 2));
    assert!(next < Duration::from_secs(1) && stream < Duration::from_secs(1));
    assert_eq!(over(&owner, running.id).await.receipt.unwrap().ending(), "cancelled");
    assert_eq!(over(&owner, waiting.id).await.refusal.unwrap().code, "cancelled");
}

#[tokio::test]
async fn a_token_that_was_rotated_works_beside_the_new_one_for_a_while_and_no_longer() {
    let lab = DaemonPlan::default().own_clock().start();
    let owner = lab.owner();
    let first = owner.mint_token(&token("agent:ci", &["calls.read"])).await.unwrap();
    let how = RotateToken { overlap_seconds: Some(60), lifetime_seconds: None };
    let second = owner.rotate_token(&first.token.id, &how).await.unwrap();
    assert_eq!(second.token.rotated_from_token_id.as_ref(), Some(&first.token.id));
    assert_eq!(second.token.family, first.token.family);
    for secret in [&first.secret, &second.secret] {
        lab.holder_of(secret).identity().await.unwrap();
    }
    lab.set_ahead(Duration::from_secs(61));
    assert_eq!(refused(lab.holder_of(&first.secret).identity().await.unwrap_err()), (401, "expired".to_owned()));
    lab.holder_of(&second.secret).identity().await.unwrap();
    lab.set_ahead(Duration::from_secs(3_601));
    assert_eq!(refused(lab.holder_of(&second.secret).identity().await.unwrap_err()), (401, "expired".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_when_the_time_of_its_token_is_over() {
    let lab = DaemonPlan::default().own_clock().start();
    let minted = lab.owner().mint_token(&token("service:watch", &["events.read"])).await.unwrap();
    let mut stream = lab.holder_of(&minted.secret).events(None).await.unwrap();
    lab.set_ahead(Duration::from_secs(3_601));
    let took = ends(&mut stream, Instant::now()).await;
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test]
async fn a_token_that_goes_too_fast_is_told_when_to_come_back_and_a_new_one_of_the_same_line_does_not_help() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let slow = NewToken { per_minute: Some(10), ..token("agent:slow", &["calls.read"]) };
    let minted = owner.mint_token(&slow).await.unwrap();
    let client = lab.holder_of(&minted.secret);
    let (mut passed, begun) = (0, Instant::now());
    let refusal = loop {
        match client.identity().await {
            Ok(_) => passed += 1,
            Err(error) => break refused(error),
        }
        assert!(passed <= 20, "nobody counts");
    };
    assert_eq!(refusal, (429, "rate_limited".to_owned()));
    // One more for each six seconds that it took.
    let most = 10 + begun.elapsed().as_secs() / 6;
    assert!((10..=most).contains(&passed), "{passed} of {most}");
    let next = owner.rotate_token(&minted.token.id, &RotateToken::default()).await.unwrap();
    assert_eq!(refused(lab.holder_of(&next.secret).identity().await.unwrap_err()).0, 429);
    // Others are not held up.
    lab.agent().identity().await.unwrap();
}

#[tokio::test]
async fn who_is_not_let_in_is_on_record_however_often_they_try() {
    let lab = DaemonLab::new();
    let wrong = lab.holder_of(&lab.agent_token().replace("plr_agent_", "plr_user_"));
    for _ in 0..500 {
        assert_eq!(refused(wrong.identity().await.unwrap_err()).0, 401);
    }
    // A device of another installation gets no further than the handshake.
    assert!(lab.of_device(&DaemonLab::new().device()).identity().await.is_err());
    let mut foreign = DaemonLab::new().device();
    foreign.authorities = lab.device().authorities;
    assert!(matches!(lab.of_device(&foreign).identity().await, Err(ClientError::NotTaken { .. })));
    let owner = lab.owner();
    let told = |count: &mut u64, seen: &mut usize, records: Vec<palyra_api::journal::Record>| {
        for record in records.into_iter().filter(|record| record.kind == "access.refused") {
            *seen += 1;
            let attempts = record.body.unwrap()["attempts"].as_array().unwrap().clone();
            *count += attempts.iter().map(|attempt| attempt["count"].as_u64().unwrap()).sum::<u64>();
        }
    };
    let begun = Instant::now();
    loop {
        let (mut count, mut seen) = (0, 0);
        told(&mut count, &mut seen, owner.records(&Default::default()).await.unwrap().records);
        if count == 501 {
            assert!(seen <= 3, "{seen} records");
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{count} are on record");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
