//! What sslyze finds.
//!
//! It brings a TLS library that still speaks what others have given up. Two of its scans try nothing here, because a server with TLS 1.3 is
//! taken to be free of both: heartbleed and the injection of a change of keys; `records.rs` tries those. Its fallback goes to TLS 1.1, which is
//! refused whatever else it says; `openssl.rs` tries the one from 1.3 to 1.2. Its early data needs a ticket; `resumption.rs` shows that there
//! is none.

use std::{fs, net::SocketAddr, path::PathBuf, process::Command};

use palyra_tests::daemon::DaemonLab;
use serde_json::{Value, json};

use crate::tls::{key_files::KeyFiles, lax_server::LaxServer, program::run};

#[test]
fn a_scan_finds_nothing_weak() {
    let lab = DaemonLab::new();
    let files = KeyFiles::of(&lab.device());
    let (certificate, key, authorities) = (files.certificate(), files.key(), files.authorities());
    let shown = [("--cert", &certificate), ("--key", &key), ("--certinfo_ca_file", &authorities)];
    let scan = Scan::of(lab.control(), &[EVERYTHING, &["--certinfo"]].concat(), &shown);
    assert_eq!(scan.weaknesses(), Vec::<String>::new());
    for tried in sound().as_object().unwrap().keys() {
        assert_eq!(scan.found[tried]["status"], "COMPLETED", "{tried}");
    }
    for version in ["ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"] {
        assert_eq!(scan.suites(version), Vec::<&str>::new(), "{version}");
        assert!(!scan.list(&format!("{version}_cipher_suites"), "rejected_cipher_suites").is_empty(), "{version}");
    }
    assert_eq!(scan.suites("tls_1_3"), TLS_1_3);
    assert_eq!(scan.suites("tls_1_2"), TLS_1_2);
    let curves: Vec<_> = scan.list("elliptic_curves", "supported_curves").iter().map(|one| &one["name"]).collect();
    assert_eq!(curves, ["X25519", "secp256r1", "secp384r1"]);
    // Without the daemon's authority nobody would take its certificate for anything; with it, its chain is sound.
    let chain = &scan.result("certificate_info")["certificate_deployments"][0];
    let trusted: Vec<_> = chain["path_validation_results"].as_array().unwrap().iter().filter_map(trusting).collect();
    assert_eq!(trusted, ["Supplied CA file"]);
}

#[test]
fn a_scan_without_a_certificate_is_told_that_one_is_required() {
    let lab = DaemonLab::new();
    let scan = Scan::of(lab.control(), &["--tlsv1_3"], &[]);
    assert_eq!(scan.connectivity["client_auth_requirement"], "REQUIRED");
}

#[test]
fn a_scan_of_a_lax_server_finds_what_is_weak_there() {
    let lax = LaxServer::start();
    // It serves one connection after the other.
    let versions = Scan::of(lax.at(), &["--slow_connection", "--tlsv1", "--tlsv1_1", "--tlsv1_2"], &[]).weaknesses();
    for (is_found, finding) in [
        (true, "tls_1_0 accepts TLS_RSA_WITH_AES_128_CBC_SHA"),
        (true, "tls_1_1 accepts TLS_RSA_WITH_AES_128_CBC_SHA"),
        (true, "tls_1_2 accepts TLS_RSA_WITH_AES_128_GCM_SHA256"),
        (true, "tls_1_2 accepts TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
        (true, "tls_1_2 accepts TLS_DH_anon_WITH_AES_128_GCM_SHA256"),
        (false, "tls_1_2 accepts TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    ] {
        assert_eq!(versions.iter().any(|one| one == finding), is_found, "{finding}: {versions:#?}");
    }
    let resumption = Scan::of(lax.at(), &["--slow_connection", "--resum"], &[]).weaknesses();
    assert_eq!(resumption, ["session_resumption.tls_ticket_resumption_result is \"FULLY_SUPPORTED\""]);
}

/// What sslyze found.
struct Scan {
    connectivity: Value,
    found: Value,
}

impl Scan {
    /// Scans a server.
    fn of(at: SocketAddr, commands: &[&str], files: &[(&str, &PathBuf)]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let told = scratch.path().join("found.json");
        let mut command = Command::new(sslyze());
        // No profile of somebody else's is what the daemon is held against. The address is given, so that nobody has to be asked for it.
        command.args(["--quiet", "--mozilla_config", "disable", "--json_out"]).arg(&told);
        for (option, path) in files {
            command.arg(option).arg(path);
        }
        let ran = run(command.args(commands).arg(format!("localhost:{}{{{}}}", at.port(), at.ip())), "");
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let mut told: Value = serde_json::from_str(&fs::read_to_string(told).unwrap()).unwrap();
        let mut server = told["server_scan_results"][0].take();
        Self { connectivity: server["connectivity_result"].take(), found: server["scan_result"].take() }
    }

    /// What is weak, or was not tried though it was to be.
    fn weaknesses(&self) -> Vec<String> {
        let mut weak = Vec::new();
        for (scan, found) in self.found.as_object().unwrap() {
            match found["status"].as_str().unwrap() {
                "NOT_SCHEDULED" => continue,
                "COMPLETED" => {}
                other => weak.push(format!("{scan} is {other}: {}", found["error_reason"])),
            }
            if let Some(version) = scan.strip_suffix("_cipher_suites") {
                let suites = self.suites(version).into_iter().filter(|suite| !is_strong(version, suite));
                weak.extend(suites.map(|suite| format!("{version} accepts {suite}")));
            }
            for (key, expected) in sound()[scan].as_object().into_iter().flatten() {
                let value = &found["result"][key];
                if value != expected {
                    weak.push(format!("{scan}.{key} is {value}"));
                }
            }
        }
        weak
    }

    /// The suites that are accepted in a version, in order.
    fn suites(&self, version: &str) -> Vec<&str> {
        let accepted = self.list(&format!("{version}_cipher_suites"), "accepted_cipher_suites");
        let mut names: Vec<_> = accepted.iter().map(|one| one["cipher_suite"]["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        names
    }

    fn list(&self, scan: &str, key: &str) -> &[Value] {
        self.result(scan)[key].as_array().map_or(&[], Vec::as_slice)
    }

    fn result(&self, scan: &str) -> &Value {
        &self.found[scan]["result"]
    }
}

/// The program in the environment that `scripts/setup` makes in the target directory, which this test was built in.
fn sslyze() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let found = test.ancestors().map(|directory| directory.join("tls-venv/bin/sslyze")).find(|path| path.exists());
    found.expect("sslyze is missing: run `scripts/setup`")
}

/// The trust store by which a chain was found to be sound, if it was.
fn trusting(validation: &Value) -> Option<&str> {
    validation["was_validation_successful"]
        .as_bool()
        .unwrap()
        .then(|| validation["trust_store"]["name"].as_str().unwrap())
}

/// Whether a suite encrypts and authenticates in one, with a key that nobody keeps. All suites of TLS 1.3 do.
fn is_strong(version: &str, suite: &str) -> bool {
    let forgets_keys = suite.starts_with("TLS_ECDHE_") || suite.starts_with("TLS_DHE_");
    let authenticates = suite.contains("_GCM_") || suite.contains("_CHACHA20_POLY1305_");
    version == "tls_1_3" || version == "tls_1_2" && forgets_keys && authenticates
}

/// What the scans of a sound server say.
fn sound() -> Value {
    json!({
        // What is compressed together with a secret tells about it by its length (CRIME).
        "tls_compression": { "supports_compression": false },
        // What is sent before the handshake is over can be sent again by others.
        "tls_1_3_early_data": { "supports_early_data": false },
        "openssl_ccs_injection": { "is_vulnerable_to_ccs_injection": false },
        "heartbleed": { "is_vulnerable_to_heartbleed": false },
        "tls_fallback_scsv": { "supports_fallback_scsv": true },
        // Nothing is encrypted to the certificate's key, so nobody is told whether it could be decrypted.
        "robot": { "robot_result": "NOT_VULNERABLE_RSA_NOT_SUPPORTED" },
        // A client cannot have the daemon compute handshakes on one connection, and no handshake is spliced to another's.
        "session_renegotiation": {
            "supports_secure_renegotiation": true,
            "is_vulnerable_to_client_renegotiation_dos": false,
            "client_renegotiations_success_count": 0,
        },
        // Nobody comes back without the certificate.
        "session_resumption": {
            "session_id_resumption_result": "NOT_SUPPORTED",
            "tls_ticket_resumption_result": "NOT_SUPPORTED",
        },
        // The keys of TLS 1.2 depend on the whole handshake, so that two connections never share them.
        "tls_extended_master_secret": { "supports_ems_extension": true },
    })
}

const EVERYTHING: &[&str] = &[
    "--sslv2",
    "--sslv3",
    "--tlsv1",
    "--tlsv1_1",
    "--tlsv1_2",
    "--tlsv1_3",
    "--compression",
    "--early_data",
    "--openssl_ccs",
    "--heartbleed",
    "--fallback",
    "--robot",
    "--reneg",
    "--resum",
    "--ems",
    "--elliptic_curves",
];

const TLS_1_3: [&str; 3] = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

const TLS_1_2: [&str; 3] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
];
