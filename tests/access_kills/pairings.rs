//! Pairings that come to a sudden end: of the daemon, of the connection, of `palyra pair`.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use palyra_api::{
    device::{ConfirmPairing, Device, DeviceState, NewPairing, OpenPairing},
    journal::RecordQuery,
};
use palyra_client::Client;
use palyra_identity::DeviceIdentity;
use palyra_tests::{
    daemon::{DaemonLab, refused},
    paired::{Candidate, pin},
    random::Random,
    strace::killed_before,
    until,
};
use palyra_types::DeviceId;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{sync::watch, task::JoinHandle};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_is_killed_at_any_point_of_a_pairing_lets_the_device_in_whole_or_not_at_all() {
    let mut random = Random::new();
    let mut lab = DaemonLab::new();
    let (mut known, mut ends) = (lab.owner().devices().await.unwrap().devices, Ends::default());
    for number in 0..32 {
        let open = lab.owner().open_pairing(&NewPairing::default()).await.unwrap();
        let device = Candidate::connect(&lab, "phone").await;
        let (far, moment) = (Far::default(), Moment::of(number, &mut random));
        let pid = Pid::from_raw(i32::try_from(lab.pid()).unwrap()).unwrap();
        tokio::join!(attempt(&lab, device, &open, &far), async {
            moment.come(&far).await;
            kill_process(pid, Signal::KILL).unwrap();
        });
        assert!(!lab.ended().success());
        lab.start();
        let (identity, told) = far.outcome().await;
        let (devices, is_in) = look_after_a_pairing(&lab, &known, identity.as_ref()).await;
        known = devices;
        ends.count(told, is_in);
        assert!(lab.owner().verify().await.unwrap().ok);
        assert_eq!(lab.leftovers(), [""; 0]);
    }
    ends.differ();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_hangs_up_at_any_point_of_a_pairing_is_let_in_whole_or_not_at_all() {
    let mut random = Random::new();
    let mut lab = DaemonLab::new();
    let owner = lab.owner();
    let (mut known, mut ends) = (owner.devices().await.unwrap().devices, Ends::default());
    for number in 0..48 {
        let open = owner.open_pairing(&NewPairing::default()).await.unwrap();
        let device = Candidate::connect(&lab, "phone").await;
        let (far, moment) = (Far::default(), Moment::of(number, &mut random));
        tokio::select! {
            () = attempt(&lab, device, &open, &far) => {}
            () = moment.come(&far) => {}
        }
        let (identity, told) = far.outcome().await;
        let _ = owner.end_pairing(&open.id).await;
        until(|| async {
            let devices = owner.devices().await.unwrap().devices;
            devices.iter().all(|device| device.state != DeviceState::Awaiting)
        })
        .await;
        let (devices, is_in) = look_after_a_pairing(&lab, &known, identity.as_ref()).await;
        known = devices;
        ends.count(told, is_in);
    }
    ends.differ();
    lab.kill();
    lab.start();
    let states = |devices: &[Device]| devices.iter().map(|one| (one.id.clone(), one.state)).collect::<Vec<_>>();
    assert_eq!(states(&lab.owner().devices().await.unwrap().devices), states(&known));
}

/// How pairings ended.
#[derive(Default)]
struct Ends {
    told: u32,
    untold: u32,
    out: u32,
}

impl Ends {
    fn count(&mut self, told: bool, is_in: bool) {
        match (told, is_in) {
            (true, true) => self.told += 1,
            (false, true) => self.untold += 1,
            (false, false) => self.out += 1,
            (true, false) => panic!("a device was told that it is let in, and is not"),
        }
    }

    fn differ(&self) {
        let Self { told, untold, out } = self;
        println!("{told} devices were let in and told so, {untold} were not told, {out} were not let in");
        assert!(*told > 0 && *out > 0, "all pairings ended alike, so little is shown");
    }
}

/// How far a pairing came.
struct Far {
    step: watch::Sender<u64>,
    identity: Mutex<Option<DeviceIdentity>>,
    told: AtomicBool,
    confirming: Mutex<Option<JoinHandle<()>>>,
}

impl Default for Far {
    fn default() -> Self {
        let step = watch::channel(0).0;
        Self { step, identity: Mutex::default(), told: AtomicBool::new(false), confirming: Mutex::default() }
    }
}

impl Far {
    /// What the device was granted, and whether it was told that it is let in. Waits until the daemon is done with it.
    async fn outcome(&self) -> (Option<DeviceIdentity>, bool) {
        let confirming = self.confirming.lock().unwrap().take();
        if let Some(confirming) = confirming {
            confirming.await.unwrap();
        }
        (self.identity.lock().unwrap().take(), self.told.load(Ordering::SeqCst))
    }
}

/// How many steps a pairing has: hello, proved, confirmed, granted, done.
const STEPS: u64 = 5;

/// A while after a step of a pairing.
struct Moment {
    step: u64,
    after: Duration,
}

impl Moment {
    /// Each step in turn, so that none is left out; at once the first time, and then after any while.
    fn of(number: u64, random: &mut Random) -> Self {
        let after = if number < STEPS { 0 } else { random.below(25_000) };
        Self { step: number % STEPS, after: Duration::from_micros(after) }
    }

    /// Comes at the latest when the pairing goes no further.
    async fn come(&self, far: &Far) {
        far.step.subscribe().wait_for(|step| *step >= self.step).await.unwrap();
        tokio::time::sleep(self.after).await;
    }
}

/// Pairs a device that is connected, as far as it gets.
async fn attempt(lab: &DaemonLab, device: Candidate, open: &OpenPairing, far: &Far) {
    go_on(lab, device, open, far).await;
    far.step.send_replace(STEPS);
}

async fn go_on(lab: &DaemonLab, mut device: Candidate, open: &OpenPairing, far: &Far) {
    let Ok(proved) = device.prove(pin(&open.pin)).await else { return };
    far.step.send_replace(1);
    let owner = lab.owner();
    let Some(shown) = owner.pairing(&open.id).await.ok().and_then(|pairing| pairing.device) else { return };
    let (id, confirm) = (open.id.clone(), ConfirmPairing { key: shown.observed.key });
    let confirming = async move {
        let _ = owner.confirm_pairing(&id, &confirm).await;
    };
    *far.confirming.lock().unwrap() = Some(tokio::spawn(confirming));
    far.step.send_replace(2);
    let Ok(granted) = device.granted(&proved).await else { return };
    *far.identity.lock().unwrap() = Some(device.identity(lab, &granted));
    far.step.send_replace(3);
    if device.kept().await.is_ok() {
        far.told.store(true, Ordering::SeqCst);
        far.step.send_replace(4);
    }
}

/// Checks that nobody but this device may have come in, and that nothing about it is half done. Returns all devices, and whether it is let in.
async fn look_after_a_pairing(
    lab: &DaemonLab,
    before: &[Device],
    identity: Option<&DeviceIdentity>,
) -> (Vec<Device>, bool) {
    let owner = lab.owner();
    let devices = owner.devices().await.unwrap().devices;
    let is_new = |device: &&Device| before.iter().all(|before| before.id != device.id);
    let new: Vec<_> = devices.iter().filter(is_new).map(|device| (device.id.clone(), device.state)).collect();
    let Some(identity) = identity else {
        assert_eq!(new, [], "a device without a certificate is known");
        return (devices, false);
    };
    let told = lab.of_device(identity).identity().await.map(|told| told.device).map_err(refused);
    match (&told, new.as_slice()) {
        (Ok(device), [(id, DeviceState::Active)]) => assert_eq!((device.as_ref(), id), (Some(id), &identity.device)),
        // It was let in, could not be told so, and is out again.
        (Err((401, code)), [(id, DeviceState::Revoked)]) => {
            assert_eq!((code.as_str(), id), ("revoked", &identity.device));
        }
        (Err((401, code)), []) => assert_eq!(code, "unknown_device"),
        half => panic!("a device is let in by half: {half:?}"),
    }
    // A record comes before what it is about, and may be all that there is.
    let is_recorded = is_recorded_as_paired(&owner, &identity.device).await;
    assert!(new.is_empty() || is_recorded, "{} was let in without a record", identity.device);
    (devices, told.is_ok())
}

async fn is_recorded_as_paired(owner: &Client, device: &DeviceId) -> bool {
    let records = owner.records(&RecordQuery::default()).await.unwrap().records;
    let is_it = |body: Option<serde_json::Value>| body.is_some_and(|body| body["id"] == device.as_str());
    records.into_iter().any(|record| record.kind == "device.paired" && is_it(record.body))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn palyra_pair_that_is_killed_at_any_point_keeps_a_whole_identity_that_works_or_none() {
    let mut random = Random::new();
    let (lab, place) = (DaemonLab::new(), tempfile::tempdir().unwrap());
    let home = place.path().join("state");
    let mut kept = 0;
    for _ in 0..24 {
        let before = identities(&home);
        let ended_well = kill_palyra_pair(&lab, &home, End::AtAnyTime(&mut random)).await;
        let new: Vec<_> = identities(&home).into_iter().filter(|name| !before.contains(name)).collect();
        assert!(new.len() <= 1, "one pairing, several identities: {new:?}");
        assert!(!ended_well || new.len() == 1, "it said that it is paired, and keeps nothing");
        for name in &new {
            works(&lab, &home, name).await;
        }
        kept += new.len();
        let devices = lab.owner().devices().await.unwrap().devices;
        assert!(devices.iter().all(|device| device.state != DeviceState::Awaiting), "{devices:?}");
    }
    println!("{kept} of 24 were paired");
    assert!(kill_palyra_pair(&lab, &home, End::ByItself).await);
    assert_eq!((identities(&home).len(), pending(&home)), (kept + 1, 0), "what was left is tidied up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn palyra_pair_that_is_killed_before_a_step_of_keeping_its_identity_leaves_no_half_of_it() {
    let (lab, place) = (DaemonLab::new(), tempfile::tempdir().unwrap());
    // How many identities there are then, and how many that are not in use.
    for (step, kept, left) in [("mkdir", 0, 0), ("fsync", 0, 1), ("rename", 0, 1), ("linkat", 0, 1), ("unlink", 1, 1)] {
        let home = place.path().join(step);
        assert!(!kill_palyra_pair(&lab, &home, End::Before(step)).await, "{step}");
        let names = identities(&home);
        assert_eq!((names.len(), pending(&home)), (kept, left), "{step}");
        for name in &names {
            works(&lab, &home, name).await;
        }
        assert!(kill_palyra_pair(&lab, &home, End::ByItself).await);
        assert_eq!((identities(&home).len(), pending(&home)), (kept + 1, 0), "{step}: what was left is tidied up");
    }
}

/// Whether the daemon lets in whoever has this identity.
async fn works(lab: &DaemonLab, home: &Path, name: &str) {
    let identity = DeviceIdentity::read(&home.join("paired").join(name)).unwrap();
    let told = lab.of_device(&identity).identity().await.unwrap();
    assert_eq!(told.device, Some(identity.device));
}

/// How `palyra pair` ends.
enum End<'a> {
    ByItself,
    Before(&'a str),
    AtAnyTime(&'a mut Random),
}

/// Runs `palyra pair` to its end, and says whether it is a good one. The daemon is done with it then.
async fn kill_palyra_pair(lab: &DaemonLab, home: &Path, end: End<'_>) -> bool {
    let open = lab.owner().open_pairing(&NewPairing::default()).await.unwrap();
    let mut pairing = match end {
        End::Before(step) => spawn_palyra_pair(killed_before(lab, (step, 1), "palyra"), home, &open),
        End::ByItself | End::AtAnyTime(_) => spawn_palyra_pair(lab.palyra(), home, &open),
    };
    let (steps, mut far) = watch::channel(0);
    let (dead, is_dead) = watch::channel(false);
    let confirming = tokio::spawn(confirm_when_proved(lab.owner(), open.id, steps, is_dead));
    if let End::AtAnyTime(random) = end {
        // Before it has shown that it knows the code, then, or once it is confirmed.
        let (step, after) = (random.below(3), Duration::from_micros(random.below(80_000)));
        let _ = far.wait_for(|far| *far >= step).await;
        tokio::time::sleep(after).await;
        // One that has ended is not killed any more.
        let _ = pairing.kill();
    }
    let status = tokio::task::spawn_blocking(move || pairing.wait().unwrap()).await.unwrap();
    dead.send_replace(true);
    confirming.await.unwrap();
    status.success()
}

fn spawn_palyra_pair(mut command: Command, home: &Path, open: &OpenPairing) -> Child {
    command.args(["pair", &open.address, "--code-file", "-"]).env("PALYRA_HOME", home);
    let pairing = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut pairing = pairing.expect("strace is installed; scripts/setup does that");
    pairing.stdin.take().unwrap().write_all(open.pin.as_bytes()).unwrap();
    pairing
}

/// Says yes to whoever knows the code, and waits until they are paired or not; or until they are dead.
async fn confirm_when_proved(owner: Client, id: String, step: watch::Sender<u64>, is_dead: watch::Receiver<bool>) {
    loop {
        // What was true before the look.
        let was_dead = *is_dead.borrow();
        match owner.pairing(&id).await.unwrap().device {
            Some(shown) => {
                step.send_replace(1);
                let confirm = ConfirmPairing { key: shown.observed.key };
                let confirming = tokio::spawn(async move { owner.confirm_pairing(&id, &confirm).await });
                step.send_replace(2);
                // Refused if they hung up meanwhile.
                let _ = confirming.await.unwrap();
                return;
            }
            None if was_dead => {
                owner.end_pairing(&id).await.unwrap();
                return;
            }
            None => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}

/// The names of the identities that a device keeps.
fn identities(home: &Path) -> Vec<String> {
    let (names, hidden): (Vec<_>, Vec<_>) = paired(home).into_iter().partition(|name| !name.starts_with('.'));
    assert!(names.iter().all(|name| name.ends_with(".json")), "{names:?}");
    assert!(hidden.iter().all(|name| name.contains(".new-")), "{hidden:?}");
    names
}

/// How many identities are there that are not in use.
fn pending(home: &Path) -> usize {
    paired(home).into_iter().filter(|name| name.starts_with('.')).count()
}

fn paired(home: &Path) -> Vec<String> {
    let entries = fs::read_dir(home.join("paired")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}
