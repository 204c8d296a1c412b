//! Pairing from end to end over TLS in memory, and everybody who tries to get between.

use palyra_types::{DeviceId, Sha256Digest, entropy::SystemEntropy};
use proptest::prelude::*;
use zeroize::Zeroizing;

use super::*;
use crate::{
    Address, DeviceIdentity, client_config,
    csr::new_device_key,
    issue_device,
    lab::{Lab, Wire},
    pairing_client_config, pairing_server_config, server_config,
};

/// A daemon with an open pairing, and a connection of a device to it.
struct Room {
    lab: Lab,
    pairing: Pairing,
    wire: Wire,
}

impl Room {
    fn open() -> Self {
        let lab = Lab::new();
        let pairing = Pairing::open(&*lab.clock, &SystemEntropy).unwrap();
        let wire = connect(&lab);
        Self { lab, pairing, wire }
    }

    fn daemon_channel(&self) -> Channel {
        Channel::of_daemon(&self.wire.server, &self.lab.server).unwrap()
    }

    fn guess(&mut self) -> Guess {
        self.pairing.begin_attempt(&*self.lab.clock).unwrap()
    }

    fn state(&self) -> PairingState {
        self.pairing.state(&*self.lab.clock)
    }

    /// Sends a message of the device through TLS, in a frame.
    fn send_to_daemon(&mut self, message: &Message) -> Message {
        one(&self.wire.send_to_server(&encode(message).unwrap()))
    }

    fn send_to_device(&mut self, message: &Message) -> Message {
        one(&self.wire.send_to_client(&encode(message).unwrap()))
    }
}

fn connect(lab: &Lab) -> Wire {
    let server = pairing_server_config(&lab.server, lab.clock()).unwrap();
    Wire::connect(server, pairing_client_config(lab.clock()).unwrap()).unwrap()
}

fn one(bytes: &[u8]) -> Message {
    let mut frames = Frames::new();
    frames.push(bytes).unwrap();
    let message = frames.pop().unwrap().unwrap();
    assert!(frames.is_empty());
    message
}

fn hello_of(message: Message) -> Hello {
    match message {
        Message::Hello(hello) => hello,
        other => panic!("{other:?}"),
    }
}

fn about() -> (Zeroizing<String>, DeviceHello) {
    let (key, request) = new_device_key().unwrap();
    let (name, os) = (Label::parse("Ada's laptop").unwrap(), Label::parse("Linux 6.12").unwrap());
    (key, DeviceHello { request, name, os })
}

fn code_of(pairing: &Pairing, method: Method) -> Code {
    match method {
        Method::Pin => Code::Pin(Pin::parse(pairing.code().pin().as_str()).unwrap()),
        Method::Qr => {
            let text = pairing.code().qr(Address::parse("192.0.2.7:7443").unwrap(), Sha256Digest::of(b"")).to_text();
            Code::Secret(QrText::parse(&text).unwrap().secret)
        }
    }
}

fn another_pin(pairing: &Pairing) -> Code {
    let right: u32 = pairing.code().pin().as_str().parse().unwrap();
    Code::Pin(Pin::parse(&format!("{:06}", (right + 1) % 1_000_000)).unwrap())
}

/// A channel without a connection, where the connection is not what is tested.
fn channel() -> Channel {
    let [ca, daemon_key] = [&b"ca"[..], b"key"].map(Sha256Digest::of);
    Channel { ca, daemon_key, exporter: [9; 32] }
}

#[test]
fn a_device_is_paired_by_either_method_and_gets_in_afterwards() {
    for method in [Method::Pin, Method::Qr] {
        let mut room = Room::open();
        let (key_pem, about) = about();
        let key = about.request.key();
        let device_channel = Channel::of_device(&room.wire.client).unwrap();
        assert_eq!(device_channel, room.daemon_channel());
        let (device, hello) = DeviceSide::begin(code_of(&room.pairing, method), about, device_channel);

        let hello = hello_of(room.send_to_daemon(&hello));
        let guess = room.guess();
        let (daemon, challenge) = DaemonSide::begin(&guess.code(hello.method), hello, &room.daemon_channel()).unwrap();
        let challenge = room.send_to_device(&challenge);
        let (device, proof) = device.on_challenge(challenge).unwrap();
        let proof = room.send_to_daemon(&proof);
        let (proved, proof) = daemon.on_proof(proof).unwrap();
        let clock = std::sync::Arc::clone(&room.lab.clock);
        room.pairing.proved(guess, proved, "192.0.2.9:50000".to_owned(), &*clock).unwrap();
        let proof = room.send_to_device(&proof);
        let device = device.on_proof(proof).unwrap();
        assert_eq!((device.key(), device.authority()), (key, room.lab.authority.fingerprint()));

        let PairingState::Proved { key: shown, .. } = room.state() else { panic!("{:?}", room.state()) };
        let confirmed = room.pairing.confirm(&shown, &*clock).unwrap();
        let granted = grant(&room.lab, &confirmed);
        let granted = room.send_to_device(&granted);
        let granted = device.on_granted(granted).unwrap();
        assert_eq!(room.send_to_daemon(&Message::Kept {}), Message::Kept {});
        assert_eq!(room.send_to_device(&Message::Done {}), Message::Done {});

        let identity = DeviceIdentity {
            name: "home".to_owned(),
            address: Address::parse("192.0.2.7:7443").unwrap(),
            authorities: granted.authorities,
            certificate: granted.certificate,
            key: key_pem,
            device: granted.device_id,
            principal: granted.principal,
            role: granted.role,
        };
        let server = server_config(&room.lab.authority, &room.lab.server, room.lab.clock()).unwrap();
        let wire = Wire::connect(server, client_config(&identity, room.lab.clock()).unwrap()).unwrap();
        let shown = wire.server.peer_certificates().unwrap();
        assert_eq!(crate::Peer::of(&shown[0]).unwrap().key, key);
    }
}

fn grant(lab: &Lab, device: &ProvedDevice) -> Message {
    let id = DeviceId::parse("laptop-1").unwrap();
    let issued = issue_device(&lab.authority, device.request(), &id, &*lab.clock, &SystemEntropy).unwrap();
    Message::Granted(Granted {
        device_id: id,
        certificate: issued.pem,
        authorities: lab.authority.bundle_pem(),
        principal: "user:ada".to_owned(),
        role: Some("owner".to_owned()),
    })
}

#[test]
fn a_wrong_pin_proves_nothing_to_either_side() {
    let mut room = Room::open();
    let channel = Channel::of_device(&room.wire.client).unwrap();
    let (device, hello) = DeviceSide::begin(another_pin(&room.pairing), about().1, channel);
    let guess = room.guess();
    let (daemon, challenge) =
        DaemonSide::begin(&guess.code(Method::Pin), hello_of(hello), &room.daemon_channel()).unwrap();
    let (device, proof) = device.on_challenge(challenge).unwrap();
    let wrong = daemon.on_proof(proof.clone()).unwrap_err();
    assert_eq!((&wrong, wrong.code()), (&PairingError::WrongProof, RefusalCode::WrongCode));
    room.pairing.failed(guess);
    assert_eq!(room.state(), PairingState::Waiting { guesses_left: 2 });
    // A daemon that has no proof of its own cannot send back the device's.
    assert_eq!(device.on_proof(proof), Err(PairingError::WrongProof));
}

/// Mallory ends the device's TLS with a certificate of her own, opens another connection to the daemon, and relays every message as it is.
/// Both ends use the right PIN.
///
/// SECURITY: the key that the exchange gives is the same on both ends, and Mallory does not have it: she saw X = xB + pM and Y = yB + pN,
/// and needs xyB, for which every p is as good as any other. The proofs are made under that key, so they are to her as random, and tell
/// nothing to check a guess of p against, now or later. If she answers in place of the daemon, with one p′ of her own choice, she can check
/// that one p′ against the device's proof and no second one: for any other p the key has a part x(p′ − p)N, which she cannot compute. The
/// same holds towards the daemon, where each p′ costs one of three guesses.
#[test]
fn who_sits_in_the_middle_fails_even_when_the_pin_is_right_on_both_ends() {
    let mut room = Room::open();
    let mallory = Lab::new();
    let mut towards_device = connect(&mallory);
    let device_channel = Channel::of_device(&towards_device.client).unwrap();
    let daemon_channel = room.daemon_channel();
    assert_ne!(device_channel.exporter, daemon_channel.exporter);
    assert_ne!(device_channel.daemon_key, daemon_channel.daemon_key);
    assert_ne!(device_channel.ca, daemon_channel.ca);

    let code = code_of(&room.pairing, Method::Pin);
    let (device, hello) = DeviceSide::begin(code, about().1, device_channel);
    let overheard = one(&towards_device.send_to_server(&encode(&hello).unwrap()));
    let hello = hello_of(room.send_to_daemon(&overheard));
    let guess = room.guess();
    let (daemon, challenge) = DaemonSide::begin(&guess.code(Method::Pin), hello, &daemon_channel).unwrap();
    let overheard = room.send_to_device(&challenge);
    let challenge = one(&towards_device.send_to_client(&encode(&overheard).unwrap()));
    let (device, proof) = device.on_challenge(challenge).unwrap();
    let overheard = one(&towards_device.send_to_server(&encode(&proof).unwrap()));
    let proof = room.send_to_daemon(&overheard);
    assert_eq!(daemon.on_proof(proof.clone()).unwrap_err(), PairingError::WrongProof);
    room.pairing.failed(guess);
    assert_eq!(room.state(), PairingState::Waiting { guesses_left: 2 }, "the guess is used");
    assert_eq!(device.on_proof(proof), Err(PairingError::WrongProof));
}

/// What somebody else puts into a hello.
type Swap<'a> = (&'static str, &'a dyn Fn(&mut Hello));

#[test]
fn each_thing_that_the_proofs_cover_is_covered_alone() {
    let pairing = Room::open().pairing;
    let code = code_of(&pairing, Method::Pin);
    let digest = Sha256Digest::of(b"another");
    let channels = [
        Channel { exporter: [8; 32], ..channel() },
        Channel { ca: digest, ..channel() },
        Channel { daemon_key: digest, ..channel() },
    ];
    for theirs in channels {
        let (device, hello) = DeviceSide::begin(code.clone(), about().1, channel());
        let (daemon, challenge) = DaemonSide::begin(&code, hello_of(hello), &theirs).unwrap();
        let (_, proof) = device.on_challenge(challenge).unwrap();
        assert_eq!(daemon.on_proof(proof).unwrap_err(), PairingError::WrongProof, "{theirs:?}");
    }
    let swaps: [Swap<'_>; 4] = [
        ("csr", &|hello| hello.csr = about().1.request.der().to_vec()),
        ("name", &|hello| hello.name = Label::parse("Adas laptop").unwrap()),
        ("os", &|hello| hello.os = Label::parse("Linux 6.13").unwrap()),
        ("pake", &|hello| hello.pake = hello_of(DeviceSide::begin(code.clone(), about().1, channel()).1).pake),
    ];
    for (what, swap) in swaps {
        let (device, hello) = DeviceSide::begin(code.clone(), about().1, channel());
        let mut hello = hello_of(hello);
        swap(&mut hello);
        let (daemon, challenge) = DaemonSide::begin(&code, hello, &channel()).unwrap();
        let (_, proof) = device.on_challenge(challenge).unwrap();
        assert_eq!(daemon.on_proof(proof).unwrap_err(), PairingError::WrongProof, "{what}");
    }
}

#[test]
fn the_same_exchange_on_two_connections_has_different_proofs() {
    let code = code_of(&Room::open().pairing, Method::Qr);
    let (_, about) = about();
    let (device, hello) = DeviceSide::begin(code.clone(), about.clone(), channel());
    let hello = hello_of(hello);
    let (_, challenge) = DaemonSide::begin(&code, hello.clone(), &channel()).unwrap();
    let Message::Challenge { pake } = &challenge else { panic!("{challenge:?}") };
    let (_, proof) = device.on_challenge(challenge.clone()).unwrap();
    let elsewhere = transcript::Transcript {
        method: Method::Qr,
        device_pake: &hello.pake,
        daemon_pake: pake,
        request: &about.request,
        name: &about.name,
        os: &about.os,
        channel: &Channel { exporter: [8; 32], ..channel() },
    };
    let here = transcript::Transcript { channel: &channel(), ..elsewhere };
    let [here, elsewhere] = [here, elsewhere].map(|transcript| transcript.proofs(&[1; 32]).unwrap());
    assert_ne!(here.of_device(), elsewhere.of_device());
    assert_ne!(here.of_daemon(), elsewhere.of_daemon());
    assert_ne!(here.of_device(), here.of_daemon());
    assert_ne!(proof, Message::Proof { mac: here.of_device() }, "the key counts too");
}

#[test]
fn a_recorded_session_is_worth_nothing() {
    let code = code_of(&Room::open().pairing, Method::Pin);
    let (device, hello) = DeviceSide::begin(code.clone(), about().1, channel());
    let hello = hello_of(hello);
    let (daemon, challenge) = DaemonSide::begin(&code, hello.clone(), &channel()).unwrap();
    let (device, proof) = device.on_challenge(challenge.clone()).unwrap();
    let (_, daemon_proof) = daemon.on_proof(proof.clone()).unwrap();
    assert!(device.on_proof(daemon_proof.clone()).is_ok());
    // Towards the daemon, though it has the same code and even the connection had the same exporter.
    let (daemon, _) = DaemonSide::begin(&code, hello, &channel()).unwrap();
    assert_eq!(daemon.on_proof(proof).unwrap_err(), PairingError::WrongProof);
    // And towards the device.
    let (device, _) = DeviceSide::begin(code, about().1, channel());
    let (device, _) = device.on_challenge(challenge).unwrap();
    assert_eq!(device.on_proof(daemon_proof), Err(PairingError::WrongProof));
}

#[test]
fn a_hello_that_cannot_be_answered_is_refused_with_a_reason() {
    let code = code_of(&Room::open().pairing, Method::Pin);
    let hello = || hello_of(DeviceSide::begin(code.clone(), about().1, channel()).1);
    let refused = |hello: Hello| DaemonSide::begin(&code, hello, &channel()).unwrap_err();
    assert_eq!(refused(Hello { v: 2, ..hello() }), PairingError::OtherVersion(2));
    assert_eq!(refused(Hello { method: Method::Qr, ..hello() }), PairingError::OtherMethod);
    assert_eq!(refused(Hello { csr: vec![], ..hello() }), PairingError::Request(crate::RequestError::Malformed));
    assert_eq!(refused(Hello { pake: vec![b'A'; 32], ..hello() }), PairingError::BadExchange);
    let message = refused(Hello { v: 2, ..hello() }).to_message();
    let told = "the other side speaks version 2 of pairing; this program speaks 1";
    assert_eq!(message, Message::refused(RefusalCode::BadMessage, told));
}

#[test]
fn a_message_out_of_turn_is_refused_and_a_refusal_is_heard_at_any_time() {
    let code = code_of(&Room::open().pairing, Method::Pin);
    let refusal = Refused { code: RefusalCode::TooLate, message: "two minutes".to_owned() };
    let unexpected = |expected| PairingError::Unexpected { expected, got: "kept" };
    let begin = || DeviceSide::begin(code.clone(), about().1, channel());
    let answer = |hello| DaemonSide::begin(&code, hello_of(hello), &channel()).unwrap();
    for (message, expected) in
        [(Message::Kept {}, None), (Message::Refused(refusal.clone()), Some(PairingError::Refused(refusal.clone())))]
    {
        let error = |what| expected.clone().unwrap_or_else(|| unexpected(what));
        assert_eq!(begin().0.on_challenge(message.clone()).unwrap_err(), error("challenge"));
        let (device, hello) = begin();
        let (daemon, challenge) = answer(hello.clone());
        let (device, proof) = device.on_challenge(challenge).unwrap();
        assert_eq!(device.on_proof(message.clone()), Err(error("proof")));
        let (_, daemon_proof) = daemon.on_proof(proof).unwrap();
        assert_eq!(answer(hello).0.on_proof(message.clone()).unwrap_err(), error("proof"));
        let proved = prove(&code);
        assert_eq!(proved.on_granted(message).unwrap_err(), error("granted"));
        assert_eq!(
            proved.on_granted(daemon_proof),
            Err(PairingError::Unexpected { expected: "granted", got: "proof" })
        );
    }
}

fn prove(code: &Code) -> Proved {
    let (device, hello) = DeviceSide::begin(code.clone(), about().1, channel());
    let (daemon, challenge) = DaemonSide::begin(code, hello_of(hello), &channel()).unwrap();
    let (device, proof) = device.on_challenge(challenge).unwrap();
    device.on_proof(daemon.on_proof(proof).unwrap().1).unwrap()
}

#[test]
fn a_device_keeps_only_what_is_for_its_key_and_from_the_authority_that_was_proved() {
    let (lab, other) = (Lab::new(), Lab::new());
    let code = code_of(&Room::open().pairing, Method::Pin);
    let own = Channel { ca: lab.authority.fingerprint(), ..channel() };
    let (device, hello) = DeviceSide::begin(code.clone(), about().1, own.clone());
    let (daemon, challenge) = DaemonSide::begin(&code, hello_of(hello), &own).unwrap();
    let (device, proof) = device.on_challenge(challenge).unwrap();
    let (proved, proof) = daemon.on_proof(proof).unwrap();
    let device = device.on_proof(proof).unwrap();
    let Message::Granted(granted) = grant(&lab, &proved) else { panic!("granted") };
    assert_eq!(device.on_granted(Message::Granted(granted.clone())), Ok(granted.clone()));
    let foreign = Granted { certificate: lab.device().certificate, ..granted.clone() };
    assert_eq!(device.on_granted(Message::Granted(foreign)), Err(PairingError::ForeignCertificate));
    for certificate in [String::new(), "no certificate".to_owned()] {
        let none = Granted { certificate, ..granted.clone() };
        assert_eq!(device.on_granted(Message::Granted(none)), Err(PairingError::ForeignCertificate));
    }
    for authorities in [other.authority.bundle_pem(), String::new()] {
        let foreign = Granted { authorities, ..granted.clone() };
        assert_eq!(device.on_granted(Message::Granted(foreign)), Err(PairingError::ForeignAuthorities));
    }
}

#[test]
fn a_connection_that_is_not_for_pairing_is_no_channel() {
    let lab = Lab::new();
    let device = lab.device();
    let server = server_config(&lab.authority, &lab.server, lab.clock()).unwrap();
    let wire = Wire::connect(server, client_config(&device, lab.clock()).unwrap()).unwrap();
    assert_eq!(Channel::of_daemon(&wire.server, &lab.server), Err(ChannelError::NotForPairing));
    assert_eq!(Channel::of_device(&wire.client), Err(ChannelError::NotForPairing));
    let server = pairing_server_config(&lab.server, lab.clock()).unwrap();
    let early = rustls::ServerConnection::new(std::sync::Arc::clone(&server)).unwrap();
    assert_eq!(Channel::of_daemon(&early, &lab.server), Err(ChannelError::NotEstablished));
    let mut silent = rustls::ClientConfig::clone(&pairing_client_config(lab.clock()).unwrap());
    silent.alpn_protocols = Vec::new();
    let wire = Wire::connect(server, std::sync::Arc::new(silent)).unwrap();
    assert_eq!(Channel::of_daemon(&wire.server, &lab.server), Err(ChannelError::NotForPairing));
}

#[test]
fn two_connections_to_one_daemon_are_two_channels() {
    let lab = Lab::new();
    let [one, other] = [(), ()].map(|()| Channel::of_device(&connect(&lab).client).unwrap());
    assert_eq!((one.ca, one.daemon_key), (other.ca, other.daemon_key));
    assert_ne!(one.exporter, other.exporter);
}

fn any_message() -> impl Strategy<Value = Message> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..80);
    let part =
        |side: u8| proptest::collection::vec(any::<u8>(), 32).prop_map(move |point| [vec![side], point].concat());
    prop_oneof![
        bytes().prop_map(|pake| Message::Challenge { pake }),
        part(b'B').prop_map(|pake| Message::Challenge { pake }),
        bytes().prop_map(|mac| Message::Proof { mac }),
        any::<String>().prop_map(|text| Message::refused(RefusalCode::Internal, text)),
        (any::<String>(), any::<String>()).prop_map(|(certificate, authorities)| {
            let device_id = DeviceId::parse("d").unwrap();
            Message::Granted(Granted { device_id, certificate, authorities, principal: String::new(), role: None })
        }),
        Just(Message::Kept {}),
        Just(Message::Done {}),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_message_makes_the_device_panic_or_believe(first in any_message(), second in any_message(), third in any_message()) {
        let code = Code::Pin(Pin::parse("123456").unwrap());
        let (device, _) = DeviceSide::begin(code.clone(), about().1, channel());
        if let Ok((device, _)) = device.on_challenge(first) {
            prop_assert!(device.on_proof(second).is_err());
        }
        prop_assert!(prove(&code).on_granted(third).is_err());
    }

    #[test]
    fn no_hello_and_no_proof_makes_the_daemon_panic_or_believe(
        pake in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..80),
            proptest::collection::vec(any::<u8>(), 32).prop_map(|point| [vec![b'A'], point].concat()),
        ],
        csr in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..80)),
        v in 0_u64..3,
        proof in any_message(),
    ) {
        let code = Code::Pin(Pin::parse("123456").unwrap());
        let (_, about) = about();
        let csr = csr.unwrap_or_else(|| about.request.der().to_vec());
        let hello = Hello { v, method: Method::Pin, pake, csr, name: about.name, os: about.os };
        if let Ok((daemon, _)) = DaemonSide::begin(&code, hello, &channel()) {
            prop_assert!(daemon.on_proof(proof).is_err());
        }
    }
}
