//! A thousand skills: opening the store does not read their packages.

use std::time::Instant;

use super::*;

#[test]
fn a_store_of_a_thousand_skills_opens_without_reading_a_package() {
    let mut lab = Lab::new();
    let mut snapshot = SkillSnapshot::default();
    let template = Bundle::of("1.0.0", "log = true");
    let mut ids = Vec::new();
    for number in 0..1000 {
        let id = PackageId::parse(&format!("acme/skill-{number:04}")).unwrap();
        let mut manifest = palyra_package::Manifest::clone(&template.package.manifest);
        manifest.id = id.clone();
        // About as large as the manifests of real skills are.
        for tool in &mut manifest.tools {
            tool.description = Some("What it does, and how. ".repeat(40));
        }
        let skill = InstalledSkill {
            id: id.clone(),
            version: manifest.version.clone(),
            manifest: Arc::new(manifest),
            package: Sha256Digest::of(id.as_str().as_bytes()),
            component: Sha256Digest::of(b""),
            signed_by: None,
            grants: Arc::new(logging()),
            quarantine: None,
            installed_by: ada(),
            installed_at: now(),
            development: true,
        };
        snapshot.skills.insert(id.clone(), Arc::new(skill));
        ids.push(id);
    }
    snapshot.index();
    lab.store().files.save_registry(&document::encode(&snapshot).unwrap()).unwrap();

    // Not one of the packages is there, so none can be read.
    let started = Instant::now();
    lab.again().unwrap();
    let opened = started.elapsed();
    let found = lab.store().snapshot();
    assert_eq!(found.skills().count(), 1000);
    let started = Instant::now();
    for id in &ids {
        let name = id.tool_name("undo").unwrap();
        assert_eq!(found.tool(&name).unwrap().0.id, *id);
    }
    let looked = started.elapsed() / 1000;
    println!("opened in {opened:?}, each tool found in {looked:?}");
    // Unoptimised, on two cores, it took 0.12 s. The bound only notices when it becomes something else altogether.
    assert!(opened.as_secs() < 3, "{opened:?}");
}
