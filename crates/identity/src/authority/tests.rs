//! The authority: what it says of itself, its replacement step by step, and documents that are not whole.

use palyra_types::{
    Timestamp,
    clock::ManualClock,
    entropy::{SeededEntropy, SystemEntropy},
};

use super::*;
use crate::lab::{DAY, START};

fn clock() -> ManualClock {
    ManualClock::at(START)
}

fn create() -> Authority {
    Authority::create(&clock(), &SystemEntropy).unwrap()
}

/// One authority in each phase, of one replacement.
fn phases() -> [Authority; 4] {
    let steady = create();
    let announced = steady.announce(&clock(), &SystemEntropy).unwrap();
    let switched = announced.switch().unwrap();
    let finished = switched.finish().unwrap();
    [steady, announced, switched, finished]
}

#[test]
fn an_authority_says_what_it_is_and_for_how_long() {
    let authority = create();
    let (_, x509) = x509_parser::parse_x509_certificate(authority.issuing()).unwrap();
    let constraints = x509.basic_constraints().unwrap().unwrap();
    assert_eq!(
        (constraints.critical, constraints.value.ca, constraints.value.path_len_constraint),
        (true, true, Some(0))
    );
    let usage = x509.key_usage().unwrap().unwrap();
    assert_eq!(usage.value.flags, 0b110_0000, "to sign certificates and lists of revoked ones, and nothing else");
    assert_eq!(x509.subject(), x509.issuer());
    let from = Timestamp::from_unix_millis(START.unix_millis() - DAY);
    let until = Timestamp::from_unix_millis(from.unix_millis() + 3_652 * DAY);
    assert_eq!(authority.validity(), Validity { from, until });
    let key = Sha256Digest::of(x509.tbs_certificate.subject_pki.raw).to_hex();
    assert_eq!(authority.name(), format!("Palyra authority {}", key.get(..8).unwrap()));
    assert_eq!(authority.fingerprint(), Sha256Digest::of(authority.issuing()));
}

#[test]
fn two_authorities_share_nothing_even_where_randomness_repeats() {
    let (one, other) = (
        Authority::create(&clock(), &SeededEntropy::new(1)).unwrap(),
        Authority::create(&clock(), &SeededEntropy::new(1)).unwrap(),
    );
    assert_ne!((one.fingerprint(), one.name()), (other.fingerprint(), other.name()));
}

#[test]
fn every_phase_reads_back_as_it_was_written() {
    for (authority, phase) in phases().iter().zip([Phase::Steady, Phase::Announced, Phase::Switched, Phase::Steady]) {
        let document = authority.to_document().unwrap();
        let read = Authority::parse(&document).unwrap();
        assert_eq!(read.phase(), phase);
        assert_eq!(read.trusted(), authority.trusted());
        assert_eq!(read.fingerprint(), authority.fingerprint());
        assert_eq!(read.to_document().unwrap(), document);
    }
}

#[test]
fn a_replacement_changes_what_is_trusted_and_what_signs_step_by_step() {
    let [steady, announced, switched, finished] = phases();
    let (old, new) = (steady.issuing().clone(), finished.issuing().clone());
    assert_eq!((steady.trusted(), steady.issuing()), (vec![old.clone()], &old));
    assert_eq!((announced.trusted(), announced.issuing()), (vec![new.clone(), old.clone()], &old));
    assert_eq!((switched.trusted(), switched.issuing()), (vec![new.clone(), old.clone()], &new));
    assert_eq!((finished.trusted(), finished.issuing()), (vec![new.clone()], &new));
    let abandoned = announced.abandon().unwrap();
    assert_eq!((abandoned.phase(), abandoned.trusted()), (Phase::Steady, vec![old.clone()]));
    assert_eq!(announced.bundle_fingerprint(), switched.bundle_fingerprint());
    assert_ne!(steady.bundle_fingerprint(), announced.bundle_fingerprint());
    assert_eq!(pem::certificates(&announced.bundle_pem()).unwrap(), [new, old]);
}

#[test]
fn after_the_switch_the_old_key_is_gone() {
    let [steady, _, switched, _] = phases();
    let old_key = steady.current.key_pem.replace('\n', "\\n");
    assert!(steady.to_document().unwrap().contains(&old_key));
    assert!(!switched.to_document().unwrap().contains(&old_key));
}

#[test]
fn a_step_out_of_order_is_refused() {
    let [steady, announced, switched, _] = phases();
    let refused = |step, phase| Some(AuthorityError::OutOfOrder { step, phase });
    for (authority, phase, allowed) in [
        (&steady, Phase::Steady, &[Step::Announce][..]),
        (&announced, Phase::Announced, &[Step::Switch, Step::Abandon]),
        (&switched, Phase::Switched, &[Step::Finish]),
    ] {
        let attempts = [
            (Step::Announce, authority.announce(&clock(), &SystemEntropy)),
            (Step::Switch, authority.switch()),
            (Step::Finish, authority.finish()),
            (Step::Abandon, authority.abandon()),
        ];
        for (step, attempt) in attempts {
            let expected = if allowed.contains(&step) { None } else { refused(step, phase) };
            assert_eq!(attempt.err(), expected, "{step} when {phase}");
        }
    }
    let error = steady.switch().unwrap_err();
    assert_eq!(error.to_string(), "cannot switch: the authority is steady");
    assert_eq!(error.advice(), "announce a new authority first");
}

#[test]
fn a_document_that_is_not_whole_is_refused() {
    let [steady, announced, switched, _] = phases();
    let [steady, announced, switched] = [steady, announced, switched].map(|authority| authority.to_document().unwrap());
    let refused = |text: &str| Authority::parse(text).err().unwrap();
    let unreadable = |text: &str| {
        let error = refused(text);
        assert!(matches!(error, AuthorityError::Document(DocumentError::Unreadable { .. })), "{error}");
    };
    unreadable("");
    unreadable("{}");
    unreadable(&steady.replacen('{', "{\"more\": 1,", 1));
    unreadable(&steady.replace("\"steady\"", "\"calm\""));
    unreadable(steady.get(..steady.len() / 2).unwrap());
    let other = DocumentError::OtherVersion { found: 2, known: 1 };
    assert_eq!(refused("{\"v\": 2, \"anything\": []}"), AuthorityError::Document(other));
    assert_eq!(refused(&steady.replace("\"steady\"", "\"announced\"")), AuthorityError::Inconsistent(Phase::Announced));
    assert_eq!(refused(&announced.replace("\"announced\"", "\"steady\"")), AuthorityError::Inconsistent(Phase::Steady));
    assert_eq!(
        refused(&switched.replace("\"switched\"", "\"announced\"")),
        AuthorityError::Inconsistent(Phase::Announced)
    );
}

#[test]
fn a_key_of_another_certificate_and_a_certificate_of_no_authority_are_refused() {
    let (one, other) = (create(), create());
    let escaped = |authority: &Authority| authority.current.key_pem.replace('\n', "\\n");
    let mixed = one.to_document().unwrap().replace(&escaped(&one), &escaped(&other));
    assert_eq!(Authority::parse(&mixed).err(), Some(AuthorityError::ForeignKey));
    let lab = crate::lab::Lab::new();
    let leaf = lab.device();
    let escape = |text: &str| text.replace('\n', "\\n");
    let authority = &lab.authority;
    let no_authority = authority
        .to_document()
        .unwrap()
        .replace(&escape(&pem::of_certificate(authority.issuing())), &escape(&leaf.certificate))
        .replace(&escaped(authority), &escape(&leaf.key));
    assert_eq!(Authority::parse(&no_authority).err(), Some(AuthorityError::NoAuthority));
}

#[test]
fn neither_debug_output_nor_an_error_shows_a_key() {
    let authority = create();
    let shown = format!("{authority:?}");
    assert_eq!(shown, format!("Authority(steady, {})", grouped(&authority.fingerprint())));
    let key = authority.current.key_pem.replace('\n', "\\n");
    let misplaced =
        format!("{{\"v\": 1, \"phase\": \"steady\", \"current\": \"{key}\", \"next\": null, \"previous\": null}}");
    let error = Authority::parse(&misplaced).err().unwrap();
    assert!(!format!("{error} {error:?}").contains("PRIVATE"), "{error}");
}

#[test]
fn a_digest_for_people_has_eight_groups() {
    let digest = Sha256Digest::parse("a1b2c3d4e5f60718293a4b5c6d7e8f90ffffffffffffffffffffffffffffffff").unwrap();
    assert_eq!(grouped(&digest), "a1b2-c3d4-e5f6-0718-293a-4b5c-6d7e-8f90");
}
