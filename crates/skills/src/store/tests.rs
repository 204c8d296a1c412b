//! What is installed, changed, refused and found again.

use std::{collections::BTreeMap, os::unix::fs::PermissionsExt, path::PathBuf};

use palyra_package::{
    Capabilities, Destination, FileAccess, FileGrant, Grants, KvQuota, Package, PublisherKey, PublisherName,
    SecretSigningKey, SignatureError, TrustOrigin, archive, grants::GrantError,
};
use palyra_types::{Principal, Timestamp, ToolName, clock::ManualClock};
use semver::Version;

use super::*;

mod refusals;
mod speed;

/// A store in a directory of its own, a publisher, and a clock that stands.
struct Lab {
    directory: tempfile::TempDir,
    store: Option<SkillStore>,
    key: SecretSigningKey,
}

impl Lab {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Some(open(directory.path()).unwrap());
        Self { directory, store, key: SecretSigningKey::generate(None).unwrap() }
    }

    /// With the publisher's key pinned.
    fn trusting() -> Self {
        let lab = Self::new();
        let key = lab.key.public();
        lab.change(SkillChange::Trust { publisher: acme(), key, by: ada() }).unwrap();
        lab
    }

    fn store(&self) -> &SkillStore {
        self.store.as_ref().unwrap()
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("skills")
    }

    fn again(&mut self) -> Result<(), StoreError> {
        self.store = None;
        self.store = Some(open(self.directory.path())?);
        Ok(())
    }

    fn change(&self, change: SkillChange) -> Result<ChangeDescription, StoreError> {
        let prepared = self.store().prepare(change)?;
        let description = prepared.describe().clone();
        let outcome = prepared.outcome().clone();
        assert_eq!(*self.store().commit(prepared)?, outcome, "what was prepared is what came of it");
        Ok(description)
    }

    fn install(&self, bundle: &Bundle) -> Result<ChangeDescription, StoreError> {
        self.change(bundle.signed_by(&self.key))
    }

    fn skill(&self) -> Arc<InstalledSkill> {
        Arc::clone(self.store().snapshot().find("acme/tool").unwrap())
    }

    fn package_path(&self, bundle: &Bundle) -> PathBuf {
        self.path().join("packages").join(format!("{}.skill", bundle.package.digest))
    }
}

/// A package, and how it is installed.
#[derive(Clone)]
struct Bundle {
    package: Package,
    archive: Vec<u8>,
    grants: Option<Grants>,
    options: InstallOptions,
}

impl Bundle {
    fn of(version: &str, capabilities: &str) -> Self {
        Self::named("acme/tool", version, capabilities)
    }

    fn named(id: &str, version: &str, capabilities: &str) -> Self {
        let publisher = id.split('/').next().unwrap();
        let manifest = format!(
            "id = '{id}'\nversion = '{version}'\npublisher = '{publisher}'\nlicense = 'MIT'\nsummary = 'x'\n\
             [[tool]]\nname = 'do'\nsummary = 'x'\ninput = {{ type = 'object' }}\n\
             [[tool]]\nname = 'undo'\nsummary = 'y'\ninput = {{}}\n[capabilities]\n{capabilities}\n"
        );
        let wasm = wat::parse_str("(module (memory (export \"memory\") 1) (func (export \"_start\")))").unwrap();
        let files = BTreeMap::from([("skill.toml".to_owned(), manifest.into()), ("skill.wasm".to_owned(), wasm)]);
        let archive = archive::pack(&files).unwrap();
        let package = Package::read(&archive).unwrap();
        Self { package, archive, grants: None, options: InstallOptions::default() }
    }

    fn granted(mut self, grants: Grants) -> Self {
        self.grants = Some(grants);
        self
    }

    fn options(mut self, options: InstallOptions) -> Self {
        self.options = options;
        self
    }

    fn developed(self) -> Self {
        self.options(InstallOptions { development: true, ..InstallOptions::default() })
    }

    fn signed_by(&self, key: &SecretSigningKey) -> SkillChange {
        self.with(Some(key.sign(&self.archive, "test").unwrap()))
    }

    fn with(&self, signature: Option<String>) -> SkillChange {
        SkillChange::Install {
            package: Box::new(self.package.clone()),
            archive: self.archive.clone(),
            signature,
            grants: self.grants.clone(),
            options: self.options.clone(),
            by: ada(),
        }
    }
}

fn open(directory: &Path) -> Result<SkillStore, StoreError> {
    SkillStore::open(&directory.join("skills"), Arc::new(ManualClock::at(now())))
}

fn now() -> Timestamp {
    Timestamp::from_unix_millis(1_700_000_000_000)
}

fn ada() -> Principal {
    Principal::parse("user:ada").unwrap()
}

fn acme() -> PublisherName {
    PublisherName::parse("acme").unwrap()
}

fn tool() -> PackageId {
    PackageId::parse("acme/tool").unwrap()
}

fn version(text: &str) -> Version {
    Version::parse(text).unwrap()
}

fn logging() -> Grants {
    Grants { log: true, ..Grants::default() }
}

#[test]
fn a_signed_skill_is_installed_with_what_it_was_granted_and_survives_a_restart() {
    let mut lab = Lab::trusting();
    let bundle = Bundle::of("1.0.0", "log = true\nclock = true").granted(logging());
    let description = lab.install(&bundle).unwrap();
    let expected = InstalledSkill {
        id: tool(),
        version: version("1.0.0"),
        manifest: Arc::clone(&bundle.package.manifest),
        package: bundle.package.digest,
        component: bundle.package.component_digest,
        signed_by: Some(lab.key.public()),
        grants: Arc::new(logging()),
        quarantine: None,
        installed_by: ada(),
        installed_at: now(),
        development: false,
    };
    assert_eq!(*lab.skill(), expected);
    assert_eq!(
        description,
        ChangeDescription {
            skills: vec![tool()],
            publisher: Some(acme()),
            key: Some(lab.key.public()),
            version: Some(version("1.0.0")),
            package: Some(bundle.package.digest),
            component: Some(bundle.package.component_digest),
            asked: palyra_package::CapabilityDiff::between(
                &Capabilities::default(),
                &bundle.package.manifest.capabilities
            ),
            grants: Some(logging()),
            ..ChangeDescription::new(ChangeKind::Install, "acme/tool 1.0.0 is installed".to_owned(), ada(), now())
        }
    );
    let before = lab.store().snapshot();
    lab.again().unwrap();
    assert_eq!(*lab.store().snapshot(), *before);
    assert_eq!(lab.skill().trust_domain(), TrustDomain::Publisher(lab.key.public()));
    assert_eq!(lab.store().verified_package(&tool()).unwrap().archive, bundle.archive);
}

#[test]
fn a_tool_is_found_by_its_whole_name() {
    let lab = Lab::trusting();
    lab.install(&Bundle::of("1.0.0", "")).unwrap();
    lab.change(Bundle::named("dev/other", "0.1.0", "").developed().with(None)).unwrap();
    let snapshot = lab.store().snapshot();
    let name = ToolName::parse("skill.acme.tool.undo").unwrap();
    let (skill, found) = snapshot.tool(&name).unwrap();
    assert_eq!((skill.id.as_str(), found.name.as_str()), ("acme/tool", "undo"));
    assert!(snapshot.tool(&ToolName::parse("skill.acme.tool.redo").unwrap()).is_none());
    let names: Vec<&str> = snapshot.tools().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["skill.acme.tool.do", "skill.acme.tool.undo", "skill.dev.other.do", "skill.dev.other.undo"]);
    lab.change(SkillChange::Remove { id: tool(), by: ada() }).unwrap();
    assert!(lab.store().snapshot().tool(&name).is_none());
    assert!(snapshot.tool(&name).is_some(), "a snapshot stays as it is");
}

#[test]
fn an_update_keeps_what_was_granted_and_grants_nothing_new() {
    let lab = Lab::trusting();
    let asked = "log = true\nkv = { bytes = 10, entries = 1 }\nhttp = ['a.example.org:443']\n[capabilities.files]\nnotes = 'write'";
    let grants = Grants {
        log: true,
        kv: Some(KvQuota { bytes: 10, entries: 1 }),
        http: [Destination::parse("a.example.org:443").unwrap()].into(),
        files: BTreeMap::from([("notes".to_owned(), FileGrant { path: "n".to_owned(), access: FileAccess::Write })]),
        ..Grants::default()
    };
    lab.install(&Bundle::of("1.0.0", asked).granted(grants)).unwrap();
    let more = "log = true\nclock = true\nkv = { bytes = 99, entries = 9 }\nhttp = ['b.example.org:443']\n[capabilities.files]\nnotes = 'read'";
    let description = lab.install(&Bundle::of("1.1.0", more)).unwrap();
    let kept = Grants {
        log: true,
        kv: Some(KvQuota { bytes: 10, entries: 1 }),
        files: BTreeMap::from([("notes".to_owned(), FileGrant { path: "n".to_owned(), access: FileAccess::Read })]),
        ..Grants::default()
    };
    assert_eq!(*lab.skill().grants, kept);
    assert_eq!(description.kind, ChangeKind::Update);
    assert_eq!(description.replaced, Some(version("1.0.0")));
    assert_eq!(
        description.asked.added,
        [
            "knows the time",
            "keeps up to 99 bytes in 9 entries for later, in each workspace",
            "fetches from b.example.org:443"
        ]
    );
    assert_eq!(description.grants, Some(kept));
    assert_eq!(description.summary, "acme/tool 1.1.0 takes the place of 1.0.0");
}

#[test]
fn a_first_install_grants_nothing_by_itself() {
    let lab = Lab::trusting();
    lab.install(&Bundle::of("1.0.0", "log = true")).unwrap();
    assert_eq!(*lab.skill().grants, Grants::default());
    lab.change(SkillChange::SetGrants { id: tool(), grants: logging(), by: ada() }).unwrap();
    assert_eq!(*lab.skill().grants, logging());
}

#[test]
fn the_first_key_of_a_publisher_is_taken_only_when_it_is_asked_for() {
    let lab = Lab::new();
    let bundle = Bundle::of("1.0.0", "");
    let refused = lab.install(&bundle).unwrap_err();
    assert!(matches!(refused, StoreError::UnknownPublisher { .. }), "{refused}");
    let taking = |key: PublisherKey| InstallOptions { trust_on_first_use: Some(key), ..InstallOptions::default() };
    let other = SecretSigningKey::generate(None).unwrap();
    let refused = lab.install(&bundle.clone().options(taking(other.public()))).unwrap_err();
    assert!(matches!(refused, StoreError::Signature(SignatureError::OtherKey { .. })), "{refused}");
    assert_eq!(lab.store().snapshot().publishers().iter().count(), 0);

    let description = lab.install(&bundle.options(taking(lab.key.public()))).unwrap();
    assert!(description.first_use);
    let snapshot = lab.store().snapshot();
    let Trust::Trusted(trusted) = snapshot.publishers().allows(&acme(), &lab.key.public()) else { panic!() };
    assert_eq!((trusted.how, trusted.by, trusted.at), (TrustOrigin::FirstUse, ada(), now()));

    let next = Bundle::of("2.0.0", "").options(taking(other.public()));
    let refused = lab.change(next.signed_by(&other)).unwrap_err();
    assert!(matches!(refused, StoreError::OtherKey { .. }), "the second key is not the first: {refused}");
    assert!(!lab.install(&Bundle::of("2.0.0", "")).unwrap().first_use);
}

#[test]
fn quarantine_holds_until_it_is_lifted_and_through_updates() {
    let mut lab = Lab::trusting();
    lab.install(&Bundle::of("1.0.0", "")).unwrap();
    let quarantine = |reason: &str| SkillChange::Quarantine { id: tool(), reason: reason.to_owned(), by: ada() };
    for reason in ["", " ", "a\u{202e}b", "two\nlines"] {
        assert!(matches!(lab.change(quarantine(reason)), Err(StoreError::Reason(_))), "{reason}");
    }
    let description = lab.change(quarantine("it sends things away")).unwrap();
    assert_eq!(description.reason.as_deref(), Some("it sends things away"));
    assert!(matches!(lab.change(quarantine("again")), Err(StoreError::Quarantined(_))));
    lab.install(&Bundle::of("1.0.1", "")).unwrap();
    lab.again().unwrap();
    let expected = Quarantine { reason: "it sends things away".to_owned(), by: ada(), at: now() };
    assert_eq!(lab.skill().quarantine, Some(expected));
    lab.change(SkillChange::Release { id: tool(), by: ada() }).unwrap();
    assert_eq!(lab.skill().quarantine, None);
    assert!(matches!(lab.change(SkillChange::Release { id: tool(), by: ada() }), Err(StoreError::NotQuarantined(_))));
}

#[test]
fn striking_a_key_off_stops_everything_that_it_signed() {
    let lab = Lab::trusting();
    lab.install(&Bundle::of("1.0.0", "")).unwrap();
    lab.change(Bundle::named("acme/dev", "1.0.0", "").developed().with(None)).unwrap();
    let key = lab.key.public();
    let distrust = || SkillChange::Distrust { publisher: acme(), key: key.clone(), by: ada() };
    let description = lab.change(distrust()).unwrap();
    assert_eq!(description.skills, [tool()]);
    assert!(lab.skill().quarantine.is_some());
    assert_eq!(lab.store().snapshot().find("acme/dev").unwrap().quarantine, None);
    assert!(matches!(lab.store().verified_package(&tool()), Err(StoreError::Distrusted { .. })));
    assert!(matches!(
        lab.change(SkillChange::Release { id: tool(), by: ada() }),
        Err(StoreError::ReleaseOfDistrusted(_))
    ));
    assert!(matches!(lab.install(&Bundle::of("1.1.0", "")), Err(StoreError::Distrusted { .. })));
    assert!(matches!(lab.change(distrust()), Err(StoreError::NotTrusted { .. })));
    let again = InstallOptions { trust_on_first_use: Some(lab.key.public()), ..InstallOptions::default() };
    assert!(matches!(lab.install(&Bundle::of("1.1.0", "").options(again)), Err(StoreError::Distrusted { .. })));

    lab.change(SkillChange::Trust { publisher: acme(), key: lab.key.public(), by: ada() }).unwrap();
    assert!(lab.skill().quarantine.is_some(), "pinning the key again lets nothing run by itself");
    lab.change(SkillChange::Release { id: tool(), by: ada() }).unwrap();
    assert!(lab.store().verified_package(&tool()).is_ok());
}

#[test]
fn files_are_for_their_owner_alone_and_those_that_nobody_needs_go_away() {
    let mut lab = Lab::trusting();
    let (old, new) = (Bundle::of("1.0.0", ""), Bundle::of("1.1.0", ""));
    lab.install(&old).unwrap();
    assert!(lab.package_path(&old).exists());
    lab.install(&new).unwrap();
    assert!(!lab.package_path(&old).exists() && lab.package_path(&new).exists());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let (root, packages) = (lab.path(), lab.path().join("packages"));
    assert_eq!((mode(&root), mode(&packages)), (0o700, 0o700));
    for path in [root.join("registry.json"), lab.package_path(&new), lab.package_path(&new).with_extension("minisig")] {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    std::fs::write(root.join(".new-7"), "cut off").unwrap();
    std::fs::write(packages.join("stray.skill"), "stray").unwrap();
    lab.again().unwrap();
    assert!(!root.join(".new-7").exists() && !packages.join("stray.skill").exists());
    lab.change(SkillChange::Remove { id: tool(), by: ada() }).unwrap();
    assert_eq!(std::fs::read_dir(packages).unwrap().count(), 0);
}

#[test]
fn a_stamp_stays_as_long_as_the_file_does() {
    let lab = Lab::trusting();
    let bundle = Bundle::of("1.0.0", "");
    lab.install(&bundle).unwrap();
    let path = lab.package_path(&bundle);
    let stamp = lab.store().stamp(&tool()).unwrap();
    assert_eq!(lab.store().verified_package(&tool()).unwrap().stamp, stamp);
    assert_eq!(lab.store().stamp(&tool()).unwrap(), stamp);
    // Another file of the same content, length and time in its place.
    let copy = path.with_extension("copy");
    std::fs::copy(&path, &copy).unwrap();
    let times = std::fs::FileTimes::new().set_modified(std::fs::metadata(&path).unwrap().modified().unwrap());
    std::fs::File::options().write(true).open(&copy).unwrap().set_times(times).unwrap();
    std::fs::rename(&copy, &path).unwrap();
    assert_ne!(lab.store().stamp(&tool()).unwrap(), stamp);
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(lab.store().stamp(&tool()), Err(StoreError::Io { .. })));
}

#[test]
fn a_change_that_was_overtaken_is_refused() {
    let lab = Lab::trusting();
    let one = lab.store().prepare(Bundle::of("1.0.0", "").signed_by(&lab.key)).unwrap();
    let other = lab.store().prepare(Bundle::named("acme/other", "1.0.0", "").signed_by(&lab.key)).unwrap();
    lab.store().commit(one).unwrap();
    assert!(matches!(lab.store().commit(other), Err(StoreError::Overtaken)));
    assert_eq!(lab.store().snapshot().skills().count(), 1);
    drop(lab.store().prepare(SkillChange::Remove { id: tool(), by: ada() }).unwrap());
    assert_eq!(lab.store().snapshot().skills().count(), 1, "what is prepared is not yet done");
}
