//! Real handshakes in memory: who gets in, who does not, and who says so.

use palyra_types::{Timestamp, clock::ManualClock, entropy::SystemEntropy};
use rcgen::KeyPair;
use rustls::{HandshakeKind, SupportedProtocolVersion, server::ResolvesServerCertUsingSni};

use super::*;
use crate::{
    Peer,
    certificate::issue_server,
    csr::request_for,
    lab::{Failed, Lab, START, Wire},
};

fn connect(daemon: &Lab, device: &DeviceIdentity) -> Result<Wire, Failed> {
    let server = server_config(&daemon.authority, &daemon.server, daemon.clock()).unwrap();
    Wire::connect(server, client_config(device, daemon.clock()).unwrap())
}

fn server_says(error: CertificateError) -> Option<Failed> {
    Some(Failed::Server(Error::InvalidCertificate(error)))
}

fn client_says(error: CertificateError) -> Option<Failed> {
    Some(Failed::Client(Error::InvalidCertificate(error)))
}

/// A client that is made by hand: one version of TLS, with or without a certificate, eager to resume.
fn eager_client(
    lab: &Lab,
    device: &DeviceIdentity,
    version: &'static SupportedProtocolVersion,
    shows_certificate: bool,
) -> ClientConfig {
    let builder = ClientConfig::builder_with_details(provider(), Arc::new(Time(lab.clock())))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots(lab.authority.trusted()).unwrap());
    let mut config = if shows_certificate {
        let own = pem::certificates(&device.certificate).unwrap();
        builder.with_client_auth_cert(own, key(&device.key).unwrap()).unwrap()
    } else {
        builder.with_no_client_auth()
    };
    config.resumption = Resumption::in_memory_sessions(16);
    config
}

#[test]
fn a_device_with_its_certificate_gets_in_and_is_known_by_its_key() {
    let lab = Lab::new();
    let device = lab.device();
    let mut wire = connect(&lab, &device).unwrap();
    let shown = wire.server.peer_certificates().unwrap();
    let peer = Peer::of(&shown[0]).unwrap();
    assert_eq!((shown.len(), peer.key), (1, request_for(&device.key).unwrap().key()));
    assert_eq!((peer.name.as_str(), peer.issuer.as_str()), ("laptop-1", lab.authority.name()));
    assert_eq!((wire.server.alpn_protocol(), wire.client.alpn_protocol()), (Some(ALPN), Some(ALPN)));
    assert_eq!(wire.send_to_server(b"ping"), b"ping");
    assert_eq!(wire.send_to_client(b"pong"), b"pong");
}

#[test]
fn a_device_with_an_ed25519_key_gets_in_too() {
    let lab = Lab::new();
    let key = zeroize::Zeroizing::new(KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem());
    let request = request_for(&key).unwrap();
    let wire = connect(&lab, &lab.device_with(key, &request)).unwrap();
    let shown = wire.server.peer_certificates().unwrap();
    assert_eq!(Peer::of(&shown[0]).unwrap().key, request.key());
}

#[test]
fn nobody_gets_in_without_a_certificate() {
    let lab = Lab::new();
    let server = server_config(&lab.authority, &lab.server, lab.clock()).unwrap();
    for version in [&TLS13, &TLS12] {
        let client = eager_client(&lab, &lab.device(), version, false);
        let failed = Wire::connect(Arc::clone(&server), Arc::new(client)).err();
        assert_eq!(failed, Some(Failed::Server(Error::NoCertificatesPresented)), "{version:?}");
    }
}

#[test]
fn a_certificate_of_another_authority_is_refused_by_either_side() {
    let (lab, other) = (Lab::new(), Lab::new());
    let mut device = other.device();
    assert_eq!(connect(&lab, &device).err(), client_says(CertificateError::UnknownIssuer));
    device.authorities = lab.authority.bundle_pem();
    assert_eq!(connect(&lab, &device).err(), server_says(CertificateError::UnknownIssuer));
}

#[test]
fn an_authority_of_the_same_name_is_not_the_same_authority() {
    let lab = Lab::new();
    let device = lab.device();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, lab.authority.name());
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer = rcgen::Issuer::new(params, KeyPair::generate().unwrap());
    let own = KeyPair::from_pem(&device.key).unwrap();
    let mut leaf = rcgen::CertificateParams::default();
    leaf.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let forged = DeviceIdentity { certificate: leaf.signed_by(&own, &issuer).unwrap().pem(), ..device };
    // Its signature is looked at, with the key of the authority that has the name.
    assert_eq!(connect(&lab, &forged).err(), server_says(CertificateError::BadSignature));
}

#[test]
fn a_certificate_holds_for_its_time_by_the_clock_that_was_given() {
    let lab = Lab::new();
    let device = lab.device();
    let expired = |failed: Option<Failed>| {
        let reason = match failed {
            Some(Failed::Server(Error::InvalidCertificate(CertificateError::ExpiredContext { .. }))) => "server",
            Some(Failed::Client(Error::InvalidCertificate(CertificateError::ExpiredContext { .. }))) => "client",
            other => panic!("{other:?}"),
        };
        reason.to_owned()
    };
    lab.after(59);
    assert!(connect(&lab, &device).is_ok());
    lab.after(60);
    assert_eq!(expired(connect(&lab, &device).err()), "server", "the device's certificate is over");
    lab.after(90);
    assert_eq!(expired(connect(&lab, &lab.device()).err()), "client", "the daemon's certificate is over");
    let renewed = Lab::with(Arc::clone(&lab.clock), lab.authority.clone());
    assert!(connect(&renewed, &renewed.device()).is_ok());
    lab.clock.set_wall(Timestamp::from_unix_millis(START.unix_millis() - 2 * 60 * 60 * 1_000));
    let early = connect(&lab, &device).err();
    assert!(
        matches!(early, Some(Failed::Client(Error::InvalidCertificate(CertificateError::NotValidYetContext { .. })))),
        "{early:?}"
    );
}

#[test]
fn no_clock_before_1970_lets_anybody_in() {
    let lab = Lab::new();
    let device = lab.device();
    lab.clock.set_wall(Timestamp::from_unix_millis(-1));
    assert_eq!(connect(&lab, &device).err(), Some(Failed::Client(Error::FailedToGetCurrentTime)));
}

#[test]
fn the_daemons_certificate_is_none_of_a_client_and_a_devices_none_of_a_server() {
    let lab = Lab::new();
    let device = lab.device();
    let leaf = pem::of_certificate(&pem::certificates(&lab.server.chain).unwrap()[0]);
    let as_client = DeviceIdentity { certificate: leaf, key: lab.server.key.clone(), ..device.clone() };
    let failed = connect(&lab, &as_client).err();
    assert!(
        matches!(
            failed,
            Some(Failed::Server(Error::InvalidCertificate(CertificateError::InvalidPurposeContext { .. })))
        ),
        "{failed:?}"
    );
    let chain = device.certificate.clone() + &lab.authority.bundle_pem();
    let as_server = ServerCertificate { chain, key: device.key.clone(), ..lab.server.clone() };
    let server = server_config(&lab.authority, &as_server, lab.clock()).unwrap();
    let failed = Wire::connect(server, client_config(&device, lab.clock()).unwrap()).err();
    assert!(
        matches!(
            failed,
            Some(Failed::Client(Error::InvalidCertificate(CertificateError::InvalidPurposeContext { .. })))
        ),
        "{failed:?}"
    );
}

#[test]
fn while_an_authority_is_replaced_who_follows_stays_connected() {
    let clock = Arc::new(ManualClock::at(START));
    let steady = Authority::create(&*clock, &SystemEntropy).unwrap();
    let announced = steady.announce(&*clock, &SystemEntropy).unwrap();
    let switched = announced.switch().unwrap();
    let finished = switched.finish().unwrap();
    let daemons =
        [&steady, &announced, &switched, &finished].map(|authority| Lab::with(Arc::clone(&clock), authority.clone()));
    // Each device was paired, or renewed its certificate and its authorities, in the phase of the same place.
    let devices = daemons.each_ref().map(Lab::device);
    let (stranger, unknown) =
        (client_says(CertificateError::UnknownIssuer), server_says(CertificateError::UnknownIssuer));
    let expected = [
        // of the steady daemon: trusts the old authority only, and comes from it
        [&None, &None, &stranger, &stranger],
        // of the announced one: trusts both, comes from the old one
        [&None, &None, &None, &unknown],
        // of the switched one: trusts both, comes from the new one
        [&unknown, &None, &None, &None],
        // of the finished one: trusts the new one only
        [&stranger, &stranger, &None, &None],
    ];
    for (device, row) in expected.iter().enumerate() {
        for (daemon, outcome) in row.iter().enumerate() {
            let failed = connect(&daemons[daemon], &devices[device]).err();
            assert_eq!(&failed, *outcome, "device of phase {device}, daemon in phase {daemon}");
        }
    }
    let abandoned = Lab::with(clock, announced.abandon().unwrap());
    for device in &devices[..2] {
        assert_eq!(connect(&abandoned, device).err(), None);
    }
    assert_eq!(connect(&abandoned, &devices[2]).err(), unknown);
}

#[test]
fn no_session_is_ever_resumed() {
    let lab = Lab::new();
    let device = lab.device();
    let server = server_config(&lab.authority, &lab.server, lab.clock()).unwrap();
    for version in [&TLS13, &TLS12] {
        let client = Arc::new(eager_client(&lab, &device, version, true));
        for attempt in 0..3 {
            let mut wire = Wire::connect(Arc::clone(&server), Arc::clone(&client)).unwrap();
            wire.send_to_client(b"anything that a ticket could come with");
            assert_eq!(wire.client.handshake_kind(), Some(HandshakeKind::Full), "{version:?}, {attempt}");
            assert_eq!(wire.server.handshake_kind(), Some(HandshakeKind::Full), "{version:?}, {attempt}");
            assert_eq!(wire.client.tls13_tickets_received(), 0);
        }
    }
    let config = client_config(&device, lab.clock()).unwrap();
    assert!(!server.session_storage.can_cache() && !server.ticketer.enabled());
    assert!(!config.enable_early_data);
}

#[test]
fn a_client_that_resumes_does_so_where_it_is_allowed_to() {
    // What the test above would see if it were otherwise.
    let lab = Lab::new();
    let device = lab.device();
    let server = server_config(&lab.authority, &lab.server, lab.clock()).unwrap();
    let mut careless = ServerConfig::clone(&server);
    careless.session_storage = rustls::server::ServerSessionMemoryCache::new(16);
    careless.send_tls13_tickets = 2;
    let (careless, client) = (Arc::new(careless), Arc::new(eager_client(&lab, &device, &TLS13, true)));
    let kinds = [(), ()].map(|()| {
        let mut wire = Wire::connect(Arc::clone(&careless), Arc::clone(&client)).unwrap();
        wire.send_to_client(b"anything that a ticket could come with");
        wire.client.handshake_kind().unwrap()
    });
    assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed]);
}

#[test]
fn a_device_that_is_about_to_be_paired_connects_without_a_certificate() {
    let lab = Lab::new();
    let server = pairing_server_config(&lab.server, lab.clock()).unwrap();
    let wire = Wire::connect(Arc::clone(&server), pairing_client_config(lab.clock()).unwrap()).unwrap();
    assert_eq!(wire.server.alpn_protocol(), Some(PAIRING_ALPN));
    assert_eq!(wire.client.peer_certificates().unwrap()[1], *lab.authority.issuing());
    // And nobody talks to the wrong listener.
    let known = client_config(&lab.device(), lab.clock()).unwrap();
    assert_eq!(Wire::connect(server, known).err(), Some(Failed::Server(Error::NoApplicationProtocol)));
    let others = server_config(&lab.authority, &lab.server, lab.clock()).unwrap();
    let pairing = pairing_client_config(lab.clock()).unwrap();
    assert_eq!(Wire::connect(others, pairing).err(), Some(Failed::Server(Error::NoApplicationProtocol)));
}

#[test]
fn a_pairing_device_refuses_a_chain_that_does_not_hold_together() {
    let (lab, other) = (Lab::new(), Lab::new());
    let leaf = pem::of_certificate(&pem::certificates(&lab.server.chain).unwrap()[0]);
    let device = lab.device();
    let unrelated = other.authority.bundle_pem();
    let (authority, server_key) = (lab.authority.bundle_pem(), &lab.server.key);
    for (chain, key, reason) in [
        (leaf.clone(), server_key, "UnknownIssuer"),
        (format!("{leaf}{unrelated}"), server_key, "UnknownIssuer"),
        (format!("{leaf}{authority}{unrelated}"), server_key, "UnknownIssuer"),
        (format!("{leaf}{leaf}"), server_key, "UnknownIssuer"),
        (format!("{}{authority}", device.certificate), &device.key, "InvalidPurposeContext"),
    ] {
        let shown = ServerCertificate { chain, key: key.clone(), ..lab.server.clone() };
        let server = pairing_server_config(&shown, lab.clock()).unwrap();
        let failed = Wire::connect(server, pairing_client_config(lab.clock()).unwrap()).err().unwrap();
        let Failed::Client(Error::InvalidCertificate(error)) = failed else { panic!("{failed:?}") };
        assert!(format!("{error:?}").starts_with(reason), "{error:?}");
    }
    lab.after(90);
    let server = pairing_server_config(&lab.server, lab.clock()).unwrap();
    let failed = Wire::connect(server, pairing_client_config(lab.clock()).unwrap()).err();
    assert!(
        matches!(failed, Some(Failed::Client(Error::InvalidCertificate(CertificateError::ExpiredContext { .. })))),
        "{failed:?}"
    );
}

#[test]
fn who_shows_a_daemons_certificate_without_its_key_is_refused() {
    let (lab, thief) = (Lab::new(), Lab::new());
    let stolen = pem::certificates(&lab.server.chain).unwrap();
    let key = aws_lc_rs::sign::any_ecdsa_type(&key(&thief.server.key).unwrap()).unwrap();
    let mut resolver = ResolvesServerCertUsingSni::new();
    // The library would notice the mismatch; a thief's would not.
    let certified = rustls::sign::CertifiedKey::new(stolen, key);
    assert!(resolver.add(SERVER_NAME, certified.clone()).is_ok());
    let mut config = ServerConfig::clone(&pairing_server_config(&thief.server, thief.clock()).unwrap());
    config.cert_resolver = Arc::new(resolver);
    let failed = Wire::connect(Arc::new(config), pairing_client_config(lab.clock()).unwrap()).err();
    assert_eq!(failed, client_says(CertificateError::BadSignature));
}

#[test]
fn what_is_no_certificate_and_no_key_makes_no_tls() {
    let lab = Lab::new();
    let device = lab.device();
    let refused = |device: DeviceIdentity| client_config(&device, lab.clock()).err();
    assert_eq!(refused(DeviceIdentity { authorities: String::new(), ..device.clone() }), Some(TlsError::NoCertificate));
    assert_eq!(refused(DeviceIdentity { certificate: String::new(), ..device.clone() }), Some(TlsError::NoCertificate));
    assert_eq!(refused(DeviceIdentity { key: "x".to_owned().into(), ..device.clone() }), Some(TlsError::NoKey));
    let foreign = DeviceIdentity { key: lab.device().key, ..device };
    assert!(matches!(refused(foreign), Some(TlsError::Unusable(_))));
    let server = issue_server(&lab.authority, &[], &*lab.clock, &SystemEntropy).unwrap();
    let mixed = ServerCertificate { key: server.key, ..lab.server.clone() };
    assert!(matches!(server_config(&lab.authority, &mixed, lab.clock()), Err(TlsError::Unusable(_))));
}
