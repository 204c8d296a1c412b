//! Who gets through the handshake, and how, as openssl meets it.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    process::Stdio,
};

use palyra_identity::{DeviceIdentity, PAIRING_ALPN};
use palyra_tests::daemon::DaemonLab;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};

use crate::tls::{
    key_files::KeyFiles,
    lax_server::LaxServer,
    program::run,
    s_client::{Met, asked, connected, request, s_client, s_client_of_device},
};

#[tokio::test]
async fn a_device_is_answered_over_the_newest_version_and_the_one_before() {
    let lab = DaemonLab::new();
    let files = KeyFiles::of(&lab.device());
    let identity = serde_json::to_value(lab.owner().identity().await.unwrap()).unwrap();
    assert_eq!(identity["credential"], "device");
    for (options, version) in
        [(vec![], "TLSv1.3"), (vec!["-tls1_2"], "TLSv1.2"), (vec!["-alpn", "http/1.1"], "TLSv1.3")]
    {
        // What the daemon shows is checked, too: its name, its address and its authority.
        for name in [["-verify_hostname", "localhost"], ["-verify_ip", "127.0.0.1"]] {
            let options = [options.as_slice(), &name, &["-verify_return_error"]].concat();
            let request = request(lab.control(), "/api/v1/identity");
            let met = asked(&mut s_client_of_device(lab.control(), &files, &options), &request);
            let expected = Met::Answered { version: version.to_owned(), status: 200, body: identity.clone() };
            assert_eq!(met, expected, "{options:?}");
        }
    }
}

#[test]
fn an_older_version_is_refused() {
    let lab = DaemonLab::new();
    let files = KeyFiles::of(&lab.device());
    // Debian's openssl does not speak SSL 3.0 any more. sslyze brings one that does.
    for version in ["-tls1_1", "-tls1"] {
        let options = [version, "-cipher", "DEFAULT@SECLEVEL=0"];
        let met = connected(&mut s_client_of_device(lab.control(), &files, &options));
        assert!(matches!(met, Met::Alert(HANDSHAKE_FAILURE | PROTOCOL_VERSION)), "{version}: {met:?}");
    }
}

#[test]
fn nobody_gets_in_without_a_certificate() {
    let lab = DaemonLab::new();
    let files = KeyFiles::of(&lab.device());
    for options in [vec![], vec!["-tls1_2"], vec!["-alpn", "http/1.1"]] {
        let met = connected(&mut s_client(lab.control(), &files, &options));
        assert_eq!(met, Met::Alert(CERTIFICATE_REQUIRED), "{options:?}");
    }
}

#[test]
fn a_certificate_that_the_authority_did_not_sign_is_refused() {
    let (lab, other) = (DaemonLab::new(), DaemonLab::new());
    let device = lab.device();
    let own = CertificateParams::new([]).unwrap();
    let key = KeyPair::generate().unwrap();
    let itself = own.self_signed(&key).unwrap();
    for (who, shown, alert) in [
        ("a device of another daemon", other.device(), UNKNOWN_CA),
        // The name and the key's id of the daemon's authority, and another key.
        ("a forged one", signed(&device, &device.authorities, &KeyPair::generate().unwrap()), DECRYPT_ERROR),
        // A device's certificate signs nothing, though its key does.
        (
            "one that a device signed",
            signed(&device, &device.certificate, &KeyPair::from_pem(&device.key).unwrap()),
            CERTIFICATE_UNKNOWN,
        ),
        (
            "one that signed itself",
            DeviceIdentity { certificate: itself.pem(), key: key.serialize_pem().into(), ..lab.device() },
            UNKNOWN_CA,
        ),
    ] {
        let files = KeyFiles::of(&DeviceIdentity { authorities: device.authorities.clone(), ..shown });
        let behind = files.path("behind.pem");
        fs::write(&behind, &device.certificate).unwrap();
        for version in ["-tls1_3", "-tls1_2"] {
            let options = [version, "-cert_chain", behind.to_str().unwrap()];
            let met = connected(&mut s_client_of_device(lab.control(), &files, &options));
            assert_eq!(met, Met::Alert(alert), "{who}, {version}");
        }
    }
}

#[test]
fn who_asks_for_a_pairing_reaches_no_route() {
    let lab = DaemonLab::new();
    let files = KeyFiles::of(&lab.device());
    let pairing = std::str::from_utf8(PAIRING_ALPN).unwrap();
    let both = format!("http/1.1,{pairing}");
    for offered in [pairing, &both] {
        for command in [s_client, s_client_of_device] {
            let ran =
                run(&mut command(lab.control(), &files, &["-alpn", offered]), &request(lab.control(), "/healthz"));
            assert!(ran.out.contains(&format!("ALPN protocol: {pairing}")), "{ran:?}");
            // Four letters of the request are read as a length that nothing has.
            assert!(ran.out.contains(r#"{"type":"refused","code":"bad_message""#), "{ran:?}");
            assert!(!ran.text().contains("HTTP/1.1"), "{ran:?}");
        }
    }
    let met = connected(&mut s_client(lab.control(), &files, &["-alpn", pairing, "-tls1_2"]));
    assert_eq!(met, Met::Alert(PROTOCOL_VERSION));
    let met = connected(&mut s_client_of_device(lab.control(), &files, &["-alpn", "h2"]));
    assert_eq!(met, Met::Alert(NO_APPLICATION_PROTOCOL));
}

#[test]
fn nobody_is_pushed_to_an_older_version_unnoticed() {
    let lab = DaemonLab::new();
    let files = KeyFiles::of(&lab.device());
    // It could do better, and tries the older version as if the newer had failed. Whoever notices that first ends it.
    let options = ["-tls1_2", "-fallback_scsv"];
    let ran = run(&mut s_client_of_device(lab.control(), &files, &options), &request(lab.control(), "/healthz"));
    assert!(ran.err.contains("inappropriate fallback") && !ran.out.contains("HTTP/1.1"), "{ran:?}");
}

#[test]
fn a_handshake_is_not_repeated_on_its_connection() {
    let (lab, lax) = (DaemonLab::new(), LaxServer::start());
    let files = KeyFiles::of(&lab.device());
    let refused = ["<<< TLS 1.2, Alert [length 0002], warning no_renegotiation"];
    assert_eq!(heard_to_a_second_hello(lab.control(), &files), refused);
    let repeated = heard_to_a_second_hello(lax.at(), &files);
    assert!(repeated.iter().any(|message| message.ends_with(", ServerHello")), "{repeated:?}");
}

/// What comes when a client says hello once more on its connection.
fn heard_to_a_second_hello(to: SocketAddr, files: &KeyFiles) -> Vec<String> {
    let mut command = s_client_of_device(to, files, &["-tls1_2", "-msg", "-no_ign_eof"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"R\n").unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut messages = said.filter(|line| line.contains(" [length ") && !line.contains(", RecordHeader ["));
    let mut hellos = messages.by_ref().filter(|message| message.ends_with(", ClientHello"));
    assert!(hellos.nth(1).is_some(), "it does not try");
    let mut heard = Vec::new();
    // A handshake that is repeated ends like the first, one that is not with the connection.
    for message in messages.filter(|message| message.starts_with("<<<")) {
        heard.push(message);
        if heard.last().is_some_and(|last| last.ends_with(", Finished")) {
            break;
        }
    }
    let _ = child.kill();
    child.wait().unwrap();
    heard
}

/// A device with this name and another key, certified by this certificate with this key.
fn signed(device: &DeviceIdentity, by: &str, signing: &KeyPair) -> DeviceIdentity {
    let issuer = Issuer::from_ca_cert_pem(by, signing).unwrap();
    let mut params = CertificateParams::new([]).unwrap();
    params.distinguished_name.push(DnType::CommonName, device.device.to_string());
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    DeviceIdentity { certificate, key: key.serialize_pem().into(), ..device.clone() }
}

const HANDSHAKE_FAILURE: u8 = 40;
const CERTIFICATE_UNKNOWN: u8 = 46;
const UNKNOWN_CA: u8 = 48;
const DECRYPT_ERROR: u8 = 51;
const PROTOCOL_VERSION: u8 = 70;
const CERTIFICATE_REQUIRED: u8 = 116;
const NO_APPLICATION_PROTOCOL: u8 = 120;
