//! One open pairing: guesses, time, and the operator's word.

use palyra_types::{clock::ManualClock, entropy::SystemEntropy};

use super::*;
use crate::{
    csr::new_device_key,
    lab::START,
    pairing::{Channel, DaemonSide, DeviceHello, DeviceSide, Message},
};

fn open() -> (Pairing, ManualClock) {
    let clock = ManualClock::at(START);
    (Pairing::open(&clock, &SystemEntropy).unwrap(), clock)
}

/// A device that proved itself, by going through all of it.
fn device(guess: &Guess) -> ProvedDevice {
    let (_, request) = new_device_key().unwrap();
    let (name, os) = (Label::parse("laptop").unwrap(), Label::parse("linux").unwrap());
    let digest = Sha256Digest::of(b"authority");
    let channel = Channel { ca: digest, daemon_key: digest, exporter: [0; 32] };
    let code = guess.code(Method::Pin);
    let (side, hello) = DeviceSide::begin(code.clone(), DeviceHello { request, name, os }, channel.clone());
    let Message::Hello(hello) = hello else { panic!("{hello:?}") };
    let (daemon, challenge) = DaemonSide::begin(&code, hello, &channel).unwrap();
    daemon.on_proof(side.on_challenge(challenge).unwrap().1).unwrap().0
}

/// A pairing where a device waits for the operator, and the key of that device.
fn proved() -> (Pairing, ManualClock, Sha256Digest) {
    let (mut pairing, clock) = open();
    let guess = pairing.begin_attempt(&clock).unwrap();
    let device = device(&guess);
    let key = device.key();
    pairing.proved(guess, device, "192.0.2.9:50000".to_owned(), &clock).unwrap();
    (pairing, clock, key)
}

fn over(why: End) -> PairingState {
    PairingState::Over { why }
}

#[test]
fn a_guess_is_used_when_it_is_made_whatever_becomes_of_it() {
    let (mut pairing, clock) = open();
    assert_eq!(pairing.state(&clock), PairingState::Waiting { guesses_left: 3 });
    drop(pairing.begin_attempt(&clock).unwrap());
    assert_eq!(pairing.state(&clock), PairingState::Waiting { guesses_left: 2 });
    for left in [1, 0] {
        let guess = pairing.begin_attempt(&clock).unwrap();
        assert_eq!(pairing.state(&clock), PairingState::Waiting { guesses_left: left });
        pairing.failed(guess);
    }
    assert_eq!(pairing.begin_attempt(&clock).unwrap_err(), PairingRefusal::Over(End::UsedUp));
}

#[test]
fn three_wrong_guesses_end_it() {
    let (mut pairing, clock) = open();
    for _ in 0..3 {
        let guess = pairing.begin_attempt(&clock).unwrap();
        pairing.failed(guess);
    }
    assert_eq!(pairing.state(&clock), over(End::UsedUp));
    let refusal = pairing.begin_attempt(&clock).unwrap_err();
    assert_eq!((refusal, refusal.code()), (PairingRefusal::Over(End::UsedUp), RefusalCode::UsedUp));
}

#[test]
fn three_guesses_at_once_are_three_guesses_and_the_last_may_be_right() {
    let (mut pairing, clock) = open();
    let [one, two, three] = [(), (), ()].map(|()| pairing.begin_attempt(&clock).unwrap());
    assert!(pairing.begin_attempt(&clock).is_err());
    pairing.failed(one);
    pairing.failed(two);
    assert_eq!(pairing.state(&clock), PairingState::Waiting { guesses_left: 0 });
    let device = device(&three);
    pairing.proved(three, device, "192.0.2.9:1".to_owned(), &clock).unwrap();
    assert!(matches!(pairing.state(&clock), PairingState::Proved { .. }));
}

#[test]
fn only_one_device_proves_itself() {
    let (mut pairing, clock) = open();
    let [first, second] = [(), ()].map(|()| pairing.begin_attempt(&clock).unwrap());
    let (one, other) = (device(&first), device(&second));
    let key = one.key();
    pairing.proved(first, one, "192.0.2.9:1".to_owned(), &clock).unwrap();
    assert_eq!(pairing.proved(second, other, "192.0.2.66:2".to_owned(), &clock), Err(PairingRefusal::Busy));
    assert_eq!(pairing.begin_attempt(&clock).unwrap_err(), PairingRefusal::Busy);
    let waits = PairingState::Proved {
        observed: "192.0.2.9:1".to_owned(),
        name: Label::parse("laptop").unwrap(),
        os: Label::parse("linux").unwrap(),
        key,
    };
    assert_eq!(pairing.state(&clock), waits);
}

#[test]
fn a_guess_of_another_pairing_counts_for_nothing() {
    let ((mut pairing, clock), (mut other, _)) = (open(), open());
    let foreign = other.begin_attempt(&clock).unwrap();
    let device = device(&foreign);
    let refused = pairing.proved(foreign, device, "192.0.2.9:1".to_owned(), &clock);
    assert_eq!(refused, Err(PairingRefusal::OtherPairing));
    let foreign = other.begin_attempt(&clock).unwrap();
    pairing.failed(foreign);
    assert_eq!(pairing.state(&clock), PairingState::Waiting { guesses_left: 3 });
}

#[test]
fn the_operator_confirms_the_key_that_was_shown_once() {
    let (mut pairing, clock, key) = proved();
    let other = Sha256Digest::of(b"another");
    assert_eq!(pairing.confirm(&other, &clock), Err(ConfirmError::OtherKey { shown: other, waits: key }));
    assert!(matches!(pairing.state(&clock), PairingState::Proved { .. }), "a mistake costs nothing");
    assert_eq!(pairing.confirm(&key, &clock).unwrap().key(), key);
    assert_eq!(pairing.state(&clock), PairingState::Confirmed);
    assert_eq!(pairing.confirm(&key, &clock), Err(ConfirmError::Already));
    assert_eq!(pairing.begin_attempt(&clock).unwrap_err(), PairingRefusal::Busy, "the code works once");
    clock.advance(600_000);
    assert_eq!(pairing.state(&clock), PairingState::Confirmed);
    pairing.deny();
    assert_eq!(pairing.state(&clock), over(End::Denied), "a yes can be taken back");
}

#[test]
fn there_is_nothing_to_confirm_before_a_device_proves_itself() {
    let (mut pairing, clock) = open();
    assert_eq!(pairing.confirm(&Sha256Digest::of(b"key"), &clock), Err(ConfirmError::NoDevice));
    assert_eq!(pairing.state(&clock), PairingState::Waiting { guesses_left: 3 });
}

#[test]
fn no_ends_it_before_and_after_a_device_proved_itself() {
    let (mut waiting, clock) = open();
    waiting.deny();
    assert_eq!(waiting.begin_attempt(&clock).unwrap_err(), PairingRefusal::Over(End::Denied));
    let (mut pairing, clock, key) = proved();
    pairing.deny();
    assert_eq!(pairing.state(&clock), over(End::Denied));
    assert_eq!(pairing.confirm(&key, &clock), Err(ConfirmError::Over(End::Denied)));
}

#[test]
fn a_device_that_hangs_up_leaves_its_place_to_nobody() {
    let (mut pairing, clock, key) = proved();
    pairing.gone();
    assert_eq!(pairing.state(&clock), over(End::Gone));
    assert_eq!(pairing.begin_attempt(&clock).unwrap_err().code(), RefusalCode::NoPairing);
    assert_eq!(pairing.confirm(&key, &clock), Err(ConfirmError::Over(End::Gone)));
    let (mut waiting, clock) = open();
    waiting.gone();
    assert_eq!(waiting.state(&clock), PairingState::Waiting { guesses_left: 3 });
}

/// What somebody does to a clock.
type Move<'a> = (&'static str, &'a dyn Fn(&ManualClock));

#[test]
fn a_code_is_over_after_two_minutes_whatever_is_done_to_the_clock() {
    let minutes_later = |millis: i64| Timestamp::from_unix_millis(START.unix_millis() + millis);
    let (mut pairing, clock) = open();
    assert_eq!(pairing.until(), minutes_later(120_000));
    clock.advance(119_999);
    let guess = pairing.begin_attempt(&clock).unwrap();
    let device = device(&guess);
    clock.advance(1);
    assert_eq!(pairing.state(&clock), over(End::TooLate));
    let late = pairing.proved(guess, device, "192.0.2.9:1".to_owned(), &clock);
    assert_eq!(late, Err(PairingRefusal::Over(End::TooLate)));
    let moves: [Move<'_>; 3] = [
        ("set back", &|clock| {
            clock.set_wall(minutes_later(-3_600_000));
            clock.advance(120_000);
        }),
        ("set forward", &|clock| clock.set_wall(minutes_later(120_000))),
        ("restarted", &|clock| clock.reboot()),
    ];
    for (what, change) in moves {
        let (mut pairing, clock) = open();
        change(&clock);
        assert_eq!(pairing.begin_attempt(&clock).unwrap_err(), PairingRefusal::Over(End::TooLate), "{what}");
    }
}

#[test]
fn the_operator_has_two_minutes_from_the_proof() {
    let (mut pairing, clock) = open();
    clock.advance(119_000);
    let guess = pairing.begin_attempt(&clock).unwrap();
    let device = device(&guess);
    let key = device.key();
    pairing.proved(guess, device, "192.0.2.9:1".to_owned(), &clock).unwrap();
    clock.advance(119_999);
    assert!(matches!(pairing.state(&clock), PairingState::Proved { .. }));
    clock.advance(1);
    assert_eq!(pairing.state(&clock), over(End::NotConfirmed));
    assert_eq!(pairing.confirm(&key, &clock), Err(ConfirmError::Over(End::NotConfirmed)));
}

#[test]
fn no_code_is_in_debug_output() {
    let (mut pairing, clock) = open();
    let guess = pairing.begin_attempt(&clock).unwrap();
    let shown = format!("{pairing:?} {guess:?}");
    assert_eq!(shown, format!("Pairing(until {}) Guess", pairing.until()));
}
