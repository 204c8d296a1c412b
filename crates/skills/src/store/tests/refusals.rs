//! What the store refuses, and that nothing changes then.

use super::*;

#[test]
fn an_older_version_is_refused_also_after_the_skill_was_removed() {
    let mut lab = Lab::trusting();
    lab.install(&Bundle::of("2.0.0", "")).unwrap();
    let refused = |lab: &Lab| match lab.install(&Bundle::of("1.9.9", "")) {
        Err(StoreError::Rollback { version, seen, .. }) => (version.to_string(), seen.to_string()),
        other => panic!("{other:?}"),
    };
    let expected = ("1.9.9".to_owned(), "2.0.0".to_owned());
    assert_eq!(refused(&lab), expected);
    lab.change(SkillChange::Remove { id: tool(), by: ada() }).unwrap();
    lab.again().unwrap();
    assert_eq!(refused(&lab), expected);
    assert!(matches!(lab.install(&Bundle::of("2.0.0-rc.1", "")), Err(StoreError::Rollback { .. })));

    let downgrade = InstallOptions { allow_downgrade: true, ..InstallOptions::default() };
    lab.install(&Bundle::of("1.9.9", "").options(downgrade)).unwrap();
    assert_eq!(lab.store().snapshot().seen(&tool()).unwrap().version, version("2.0.0"), "it was seen, and stays so");
    assert!(matches!(lab.install(&Bundle::of("1.9.10", "")), Err(StoreError::Rollback { .. })));
}

#[test]
fn the_same_version_with_another_content_is_refused() {
    let lab = Lab::trusting();
    let (one, other) = (Bundle::of("1.0.0", ""), Bundle::of("1.0.0", "log = true"));
    lab.install(&one).unwrap();
    lab.install(&one).unwrap();
    assert!(matches!(lab.install(&other), Err(StoreError::SameVersion { .. })));
    let downgrade = InstallOptions { allow_downgrade: true, ..InstallOptions::default() };
    assert!(matches!(lab.install(&other.clone().options(downgrade.clone())), Err(StoreError::SameVersion { .. })));
    lab.change(SkillChange::Remove { id: tool(), by: ada() }).unwrap();
    assert!(matches!(lab.install(&other), Err(StoreError::SameVersion { .. })), "also after it was removed");
    lab.install(&one).unwrap();
}

#[test]
fn what_is_not_signed_is_installed_for_development_only_and_counts_for_no_publisher() {
    let lab = Lab::trusting();
    let bundle = Bundle::of("9.0.0", "log = true");
    assert!(matches!(lab.change(bundle.with(None)), Err(StoreError::Unsigned(_))));
    let developed = bundle.clone().developed().granted(logging());
    // A signature that comes along does not make it more than that.
    let description = lab.change(developed.signed_by(&lab.key)).unwrap();
    assert!(description.development && description.key.is_none());
    assert_eq!((lab.skill().signed_by.clone(), lab.skill().trust_domain()), (None, TrustDomain::Development));
    assert_eq!(lab.store().snapshot().seen(&tool()), None, "a version under development was never published");
    assert!(lab.store().verified_package(&tool()).is_ok());
    // The same version may change, and go back.
    lab.change(Bundle::of("9.0.0", "clock = true").developed().with(None)).unwrap();
    lab.change(Bundle::of("0.1.0", "").developed().with(None)).unwrap();
    assert_eq!(*lab.skill().grants, Grants::default());

    let refused = lab.install(&Bundle::of("1.0.0", "")).unwrap_err();
    assert!(matches!(refused, StoreError::OtherDomain { development: true, .. }), "{refused}");
    lab.change(SkillChange::Remove { id: tool(), by: ada() }).unwrap();
    lab.install(&Bundle::of("1.0.0", "")).unwrap();
    let refused = lab.change(Bundle::of("1.0.1", "").developed().with(None)).unwrap_err();
    assert!(matches!(refused, StoreError::OtherDomain { development: false, .. }), "{refused}");
}

#[test]
fn a_signature_of_something_else_or_somebody_else_is_refused() {
    let lab = Lab::trusting();
    let (bundle, other) = (Bundle::of("1.0.0", ""), SecretSigningKey::generate(None).unwrap());
    assert!(matches!(lab.change(bundle.signed_by(&other)), Err(StoreError::OtherKey { .. })));
    let elsewhere = lab.key.sign(b"something else", "x").unwrap();
    assert!(matches!(lab.change(bundle.with(Some(elsewhere))), Err(StoreError::Signature(SignatureError::DoesNotFit))));
    let no_signature = lab.change(bundle.with(Some("nonsense".to_owned())));
    assert!(matches!(no_signature, Err(StoreError::Signature(SignatureError::NoSignature))));
    // A key that speaks for one publisher does not speak for another.
    let foreign = Bundle::named("other/tool", "1.0.0", "");
    assert!(matches!(lab.install(&foreign), Err(StoreError::UnknownPublisher { .. })));
    // The bytes have to be those of the package.
    let mut mixed = bundle.clone();
    mixed.archive = foreign.archive;
    assert!(matches!(lab.install(&mixed), Err(StoreError::OtherArchive)));
    assert_eq!(lab.store().snapshot().skills().count(), 0);
    assert_eq!(std::fs::read_dir(lab.path().join("packages")).unwrap().count(), 0);
}

#[test]
fn more_than_was_asked_for_cannot_be_granted() {
    let lab = Lab::trusting();
    let bundle = Bundle::of("1.0.0", "clock = true");
    let refused = lab.install(&bundle.clone().granted(logging())).unwrap_err();
    assert!(matches!(refused, StoreError::Grant(GrantError::NotAsked(_))), "{refused}");
    lab.install(&bundle).unwrap();
    let change = SkillChange::SetGrants { id: tool(), grants: logging(), by: ada() };
    assert!(matches!(lab.change(change), Err(StoreError::Grant(GrantError::NotAsked(_)))));
}

#[test]
fn a_skill_that_is_not_there_cannot_be_changed() {
    let lab = Lab::new();
    for change in [
        SkillChange::SetGrants { id: tool(), grants: Grants::default(), by: ada() },
        SkillChange::Quarantine { id: tool(), reason: "why".to_owned(), by: ada() },
        SkillChange::Release { id: tool(), by: ada() },
        SkillChange::Remove { id: tool(), by: ada() },
    ] {
        assert!(matches!(lab.change(change), Err(StoreError::NotInstalled(_))));
    }
    assert!(matches!(lab.store().verified_package(&tool()), Err(StoreError::NotInstalled(_))));
    assert!(matches!(lab.store().stamp(&tool()), Err(StoreError::NotInstalled(_))));
}

#[test]
fn a_package_that_was_changed_on_the_disk_is_refused() {
    let lab = Lab::trusting();
    let bundle = Bundle::of("1.0.0", "");
    lab.install(&bundle).unwrap();
    let path = lab.package_path(&bundle);
    let signature = path.with_extension("minisig");
    let other = lab.key.sign(b"something else", "x").unwrap();
    let right = std::fs::read(&signature).unwrap();
    std::fs::write(&signature, other).unwrap();
    assert!(matches!(lab.store().verified_package(&tool()), Err(StoreError::Signature(SignatureError::DoesNotFit))));
    std::fs::write(&signature, right).unwrap();
    assert!(lab.store().verified_package(&tool()).is_ok());
    let mut archive = bundle.archive.clone();
    archive[600] ^= 1;
    std::fs::write(&path, archive).unwrap();
    assert!(matches!(lab.store().verified_package(&tool()), Err(StoreError::PackageAltered { .. })));
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    assert!(matches!(lab.store().verified_package(&tool()), Err(StoreError::NotRegular(_))));
}

#[test]
fn a_registry_that_was_changed_cut_or_taken_away_is_an_error_and_never_an_empty_one() {
    let mut lab = Lab::trusting();
    lab.install(&Bundle::of("1.0.0", "")).unwrap();
    let path = lab.path().join("registry.json");
    let whole = std::fs::read(&path).unwrap();
    let mut refused = |document: &[u8]| {
        std::fs::write(&path, document).unwrap();
        match lab.again() {
            Err(StoreError::Registry { source, .. }) => source,
            other => panic!("{other:?}"),
        }
    };
    let text = String::from_utf8(whole.clone()).unwrap();
    assert_eq!(refused(text.replace("1.0.0", "1.0.1").as_bytes()), DocumentError::Altered);
    assert_eq!(refused(text.replacen("\"version\":1", "\"version\":2", 1).as_bytes()), DocumentError::Version(2));
    assert!(matches!(refused(&whole[..whole.len() / 2]), DocumentError::NotJson(_)));
    assert!(matches!(refused(b""), DocumentError::NotJson(_)));
    assert!(matches!(refused(b"{}"), DocumentError::Form(_)));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(lab.again(), Err(StoreError::RegistryGone(_))));
    std::fs::write(&path, whole).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(lab.again(), Err(StoreError::OpenToOthers(_))));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    lab.again().unwrap();
    assert_eq!(lab.skill().version, version("1.0.0"));
}

#[test]
fn one_program_at_a_time_holds_the_store() {
    let lab = Lab::new();
    assert!(matches!(open(lab.directory.path()), Err(StoreError::Held(_))));
}

#[test]
fn a_change_that_cannot_be_written_changes_nothing() {
    let lab = Lab::trusting();
    lab.install(&Bundle::of("1.0.0", "")).unwrap();
    let before = lab.store().snapshot();
    let packages = lab.path().join("packages");
    // A directory where the package would have to be. Permissions would not stop a test that root runs.
    let next = Bundle::of("1.1.0", "");
    std::fs::create_dir(lab.package_path(&next)).unwrap();
    assert!(matches!(lab.install(&next), Err(StoreError::Io { .. })));
    assert_eq!(*lab.store().snapshot(), *before);
    std::fs::remove_dir(lab.package_path(&next)).unwrap();
    assert_eq!(std::fs::read_dir(packages).unwrap().count(), 2, "nothing is left lying around");
    lab.install(&next).unwrap();
}
