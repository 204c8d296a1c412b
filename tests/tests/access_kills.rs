//! `kill -9` at any moment of whatever changes who is let in: tokens that are minted, rotated and revoked, devices that are paired, a state
//! directory that is founded. What was acknowledged is kept, what was not is there whole or not at all, and nothing half-made lets anybody in.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on ends"
)]

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use palyra_api::{
    device::{ConfirmPairing, Device, DeviceState, NewPairing, OpenPairing},
    journal::RecordQuery,
    token::{MintedToken, NewToken, RevokeToken, RotateToken, Token, TokenState},
};
use palyra_client::{Client, ClientError};
use palyra_identity::DeviceIdentity;
use palyra_tests::{
    daemon::{DaemonLab, DaemonPlan, program},
    paired::{Candidate, pin},
    until,
};
use palyra_types::{DeviceId, Timestamp, TokenId};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{sync::watch, task::JoinHandle};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_kill_loses_a_token_that_was_acknowledged_or_brings_back_one_that_was_revoked() {
    let mut random = Random::new();
    let mut lab = DaemonLab::new();
    let mut clerks: Vec<_> = (0..CLERKS).map(|number| Clerk::new(number, random.next())).collect();
    let (mut writes, mut kills) = (0, 0);
    while writes < 500 {
        let heard = Arc::new(AtomicUsize::new(0));
        let work = |clerk: Clerk| tokio::spawn(clerk.work(lab.owner(), Arc::clone(&heard)));
        let working: Vec<_> = clerks.drain(..).map(work).collect();
        let enough = usize::try_from(random.below(32)).unwrap();
        while heard.load(Ordering::SeqCst) < enough && working.iter().any(|clerk| !clerk.is_finished()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_micros(random.below(30_000))).await;
        lab.kill();
        for clerk in working {
            clerks.push(clerk.await.unwrap());
        }
        lab.start();
        (writes, kills) = (writes + heard.load(Ordering::SeqCst), kills + 1);
        look_after_a_kill(&lab, &mut clerks, &mut random).await;
    }
    for known in clerks.iter().flat_map(|clerk| &clerk.tokens) {
        known.try_out(&lab).await;
    }
    let all = clerks.iter().map(|clerk| clerk.tokens.len()).sum::<usize>();
    let unheard = clerks.iter().map(|clerk| clerk.in_force_unheard).sum::<usize>();
    println!("{kills} kills, {writes} acknowledged writes of {all} tokens, {unheard} in force that nobody heard of");
    assert!(kills >= 10, "{kills} kills are too few to show anything");
    check_the_journal(&lab.owner(), &clerks).await;
    assert!(lab.stop().success(), "{}", lab.log());
}

/// Compares what a daemon says after a restart with what everybody was told before it.
async fn look_after_a_kill(lab: &DaemonLab, clerks: &mut [Clerk], random: &mut Random) {
    let owner = lab.owner();
    assert_eq!(leftovers(lab.home()), [""; 0]);
    let verification = owner.verify().await.unwrap();
    assert!(verification.ok, "{verification:?}");
    lab.agent().identity().await.unwrap();
    let listed = owner.tokens().await.unwrap().tokens;
    for clerk in clerks.iter_mut() {
        clerk.settle(&owner, &listed).await;
    }
    let listed = owner.tokens().await.unwrap().tokens;
    for known in clerks.iter_mut().flat_map(|clerk| &mut clerk.tokens) {
        assert_eq!(state_of(&listed, &known.id), known.stands, "{}", known.id);
        if std::mem::take(&mut known.is_news) || random.below(16) == 0 {
            known.try_out(lab).await;
        }
    }
    let asked_for = clerks.iter().map(|clerk| clerk.tokens.len()).sum::<usize>();
    assert_eq!(listed.len(), asked_for + 1, "there are tokens that nobody asked for, besides that of agents here");
}

/// Whether all that was acknowledged is on record.
async fn check_the_journal(owner: &Client, clerks: &[Clerk]) {
    let (mut made, mut revoked, mut next) = (BTreeSet::new(), BTreeSet::new(), 0);
    loop {
        let page = owner.records(&RecordQuery { from: Some(next), limit: Some(1_000) }).await.unwrap();
        next += u64::try_from(page.records.len()).unwrap();
        for record in page.records {
            let body = record.body.unwrap_or_default();
            match record.kind.as_str() {
                "token.minted" | "token.rotated" => made.extend(body["id"].as_str().map(str::to_owned)),
                "token.revoked" => {
                    revoked.extend(body["tokens"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()));
                }
                _ => {}
            }
        }
        if next >= page.size {
            break;
        }
    }
    for known in clerks.iter().flat_map(|clerk| &clerk.tokens) {
        assert!(made.contains(known.id.as_str()), "{} was granted without a record", known.id);
        assert!(!known.was_told_revoked || revoked.contains(known.id.as_str()), "{} has no record", known.id);
    }
}

/// Somebody who mints, rotates and revokes tokens, and remembers what they were told.
struct Clerk {
    number: u64,
    random: Random,
    named: u64,
    tokens: Vec<Known>,
    /// What they asked for when nobody answered any more.
    unheard: Option<Asked>,
    /// How often that was done all the same.
    in_force_unheard: usize,
}

/// A token as a clerk knows it.
struct Known {
    id: TokenId,
    /// Unknown if the answer that told it was never heard.
    secret: Option<String>,
    stands: TokenState,
    was_told_revoked: bool,
    /// Whether something was done about it since the last restart.
    is_news: bool,
}

enum Asked {
    Mint(String),
    Rotate(usize),
    Revoke(usize),
}

impl Clerk {
    const fn new(number: u64, seed: u64) -> Self {
        Self { number, random: Random(seed), named: 0, tokens: Vec::new(), unheard: None, in_force_unheard: 0 }
    }

    /// Asks for one thing after the other until nobody answers any more.
    async fn work(mut self, owner: Client, heard: Arc<AtomicUsize>) -> Self {
        while self.unheard.is_none() {
            let asked = self.choose();
            if self.ask(&owner, &asked).await.is_some() {
                heard.fetch_add(1, Ordering::SeqCst);
            } else {
                self.unheard = Some(asked);
            }
        }
        self
    }

    fn choose(&mut self) -> Asked {
        let works = |(_, known): &(usize, &Known)| known.stands == TokenState::Active;
        let working: Vec<_> = self.tokens.iter().enumerate().filter(works).map(|(which, _)| which).collect();
        let any = working.get(usize::try_from(self.random.below(1_000)).unwrap() % working.len().max(1)).copied();
        match (self.random.below(4), any) {
            (0, Some(which)) => Asked::Rotate(which),
            (1, Some(which)) => Asked::Revoke(which),
            _ => {
                self.named += 1;
                Asked::Mint(format!("clerk {} token {}", self.number, self.named))
            }
        }
    }

    /// Nothing if the answer was not heard.
    async fn ask(&mut self, owner: &Client, asked: &Asked) -> Option<()> {
        match asked {
            Asked::Mint(name) => {
                let minted = heard(owner.mint_token(&new_token(name)).await)?;
                self.keep(minted);
            }
            Asked::Rotate(which) => {
                let minted = heard(owner.rotate_token(&self.tokens[*which].id, &WITHOUT_OVERLAP).await)?;
                self.tokens[*which].now(TokenState::Superseded);
                self.keep(minted);
            }
            Asked::Revoke(which) => {
                heard(owner.revoke_token(&self.tokens[*which].id, &RevokeToken::default()).await)?;
                self.tokens[*which].now(TokenState::Revoked);
                self.tokens[*which].was_told_revoked = true;
            }
        }
        Some(())
    }

    /// Finds out what became of what was asked for last.
    async fn settle(&mut self, owner: &Client, listed: &[Token]) {
        match self.unheard.take().expect("a clerk works until nobody answers") {
            Asked::Mint(name) => {
                let mut found = listed.iter().filter(|token| token.name == name);
                if let Some(token) = found.next() {
                    assert_eq!(*token, whole(&name, &token.id, token.created));
                    self.tokens.push(Known::unheard(token.id.clone(), TokenState::Superseded));
                    // Its secret is lost, but what takes over from it works.
                    self.keep(owner.rotate_token(&token.id, &WITHOUT_OVERLAP).await.unwrap());
                    self.in_force_unheard += 1;
                }
                assert!(found.next().is_none(), "one mint, two tokens");
            }
            Asked::Rotate(which) => {
                let id = self.tokens[which].id.clone();
                let mut successors = listed.iter().filter(|token| token.rotated_from_token_id.as_ref() == Some(&id));
                let successor = successors.next().map(|successor| (successor.id.clone(), successor.state));
                match (state_of(listed, &id), successor) {
                    (TokenState::Active, None) => {}
                    (TokenState::Superseded, Some((successor, TokenState::Active))) => {
                        self.tokens[which].now(TokenState::Superseded);
                        self.tokens.push(Known::unheard(successor, TokenState::Active));
                        self.in_force_unheard += 1;
                    }
                    half => panic!("{id} is rotated by half: {half:?}"),
                }
                assert!(successors.next().is_none(), "one rotation, two tokens");
            }
            Asked::Revoke(which) => match state_of(listed, &self.tokens[which].id) {
                TokenState::Active => {}
                TokenState::Revoked => {
                    self.tokens[which].now(TokenState::Revoked);
                    self.in_force_unheard += 1;
                }
                other => panic!("{} is {other:?}", self.tokens[which].id),
            },
        }
    }

    fn keep(&mut self, minted: MintedToken) {
        let known = Known::unheard(minted.token.id, TokenState::Active);
        self.tokens.push(Known { secret: Some(minted.secret), ..known });
    }
}

impl Known {
    const fn unheard(id: TokenId, stands: TokenState) -> Self {
        Self { id, secret: None, stands, was_told_revoked: false, is_news: true }
    }

    const fn now(&mut self, stands: TokenState) {
        (self.stands, self.is_news) = (stands, true);
    }

    /// Uses it, and checks that it works or is refused as it should be.
    async fn try_out(&self, lab: &DaemonLab) {
        let Some(secret) = &self.secret else { return };
        let told = lab.holder_of(secret).identity().await;
        match self.stands {
            TokenState::Active => assert_eq!(told.unwrap().token.as_ref(), Some(&self.id)),
            TokenState::Superseded => assert_eq!(refused(told.unwrap_err()), (401, "expired".to_owned())),
            TokenState::Revoked => assert_eq!(refused(told.unwrap_err()), (401, "revoked".to_owned())),
            other => panic!("no token becomes {other:?} here"),
        }
    }
}

fn new_token(name: &str) -> NewToken {
    NewToken {
        name: name.to_owned(),
        principal: "agent:clerk".to_owned(),
        scopes: vec!["calls.read".to_owned()],
        lifetime_seconds: 3_600,
        role: None,
        workspaces: None,
        per_minute: None,
        concurrent: None,
    }
}

/// A token of this name as it is listed if nothing of it is missing.
fn whole(name: &str, id: &TokenId, created: Timestamp) -> Token {
    Token {
        id: id.clone(),
        name: name.to_owned(),
        principal: "agent:clerk".to_owned(),
        role: None,
        scopes: vec!["calls.read".to_owned()],
        workspaces: None,
        state: TokenState::Active,
        minted_by: "user:owner".to_owned(),
        family: id.clone(),
        rotated_from_token_id: None,
        created,
        expires: Timestamp::from_unix_millis(created.unix_millis() + 3_600_000),
        works_until: Timestamp::from_unix_millis(created.unix_millis() + 3_600_000),
        per_minute: 600,
        concurrent: 32,
        last_used: None,
    }
}

fn state_of(listed: &[Token], id: &TokenId) -> TokenState {
    listed.iter().find(|token| token.id == *id).unwrap_or_else(|| panic!("{id} is forgotten")).state
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_is_killed_at_any_point_of_a_pairing_lets_the_device_in_whole_or_not_at_all() {
    let mut random = Random::new();
    let mut lab = DaemonLab::new();
    let (mut known, mut ends) = (lab.owner().devices().await.unwrap().devices, Ends::default());
    for _ in 0..32 {
        let open = lab.owner().open_pairing(&NewPairing::default()).await.unwrap();
        let device = Candidate::connect(&lab, "phone").await;
        let (far, moment) = (Far::default(), Moment::any(&mut random));
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
        assert_eq!(leftovers(lab.home()), [""; 0]);
    }
    ends.differ();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_hangs_up_at_any_point_of_a_pairing_is_let_in_whole_or_not_at_all() {
    let mut random = Random::new();
    let mut lab = DaemonLab::new();
    let owner = lab.owner();
    let (mut known, mut ends) = (owner.devices().await.unwrap().devices, Ends::default());
    for _ in 0..48 {
        let open = owner.open_pairing(&NewPairing::default()).await.unwrap();
        let device = Candidate::connect(&lab, "phone").await;
        let (far, moment) = (Far::default(), Moment::any(&mut random));
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

/// A while after a step of a pairing: hello, proved, confirmed, granted, done.
struct Moment {
    step: u64,
    after: Duration,
}

impl Moment {
    fn any(random: &mut Random) -> Self {
        Self { step: random.below(5), after: Duration::from_micros(random.below(25_000)) }
    }

    async fn come(&self, far: &Far) {
        far.step.subscribe().wait_for(|step| *step >= self.step).await.unwrap();
        tokio::time::sleep(self.after).await;
    }
}

/// Pairs a device that is connected, as far as it gets.
async fn attempt(lab: &DaemonLab, mut device: Candidate, open: &OpenPairing, far: &Far) {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_founding_that_is_killed_at_any_step_is_taken_up_by_the_next() {
    let mut random = Random::new();
    let mut kills = 0;
    for call in ["mkdir", "fchmod", "write", "fsync", "linkat", "unlink", "rename", "renameat"] {
        for which in 1.. {
            let mut lab = DaemonPlan::default().make();
            let config = fs::read(lab.home().join("config.toml")).unwrap();
            fs::remove_dir_all(lab.home()).unwrap();
            if found_and_kill(&lab, (call, which)) {
                break;
            }
            // The registry is there by now, mostly, and is saved twice more.
            let again = [("fchmod", 1), ("fchmod", 2), ("renameat", 1), ("renameat", 2), ("rename", 1), ("rename", 2)];
            let again = again[usize::try_from(random.below(6)).unwrap()];
            kills += 1 + u32::from(!found_and_kill(&lab, again));
            println!("killed before {call} {which}, then before {} {}", again.0, again.1);
            if random.below(2) == 0 {
                let told = lab.palyra().arg("init").output().unwrap();
                assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
            }
            configure(&lab, &config);
            lab.start();
            look_after_a_founding(&lab).await;
        }
    }
    assert!(kills >= 50, "{kills} kills are too few to show anything");
}

/// Says whether it came to its end before it could be killed.
fn found_and_kill(lab: &DaemonLab, step: (&str, u32)) -> bool {
    let told = killed_before(lab, step, "palyra").arg("init").stdin(Stdio::null()).output();
    let told = told.expect("strace is installed; scripts/setup does that");
    assert!(told.status.code().is_none_or(|code| code == 0), "{}", String::from_utf8_lossy(&told.stderr));
    told.status.success()
}

/// Puts the configuration of a lab where another, or none, may be.
fn configure(lab: &DaemonLab, config: &[u8]) {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(lab.home()).unwrap();
    let path = lab.home().join("config.toml");
    fs::write(&path, config).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

async fn look_after_a_founding(lab: &DaemonLab) {
    let owner = lab.owner();
    let own = owner.identity().await.unwrap();
    assert_eq!((own.principal.as_str(), own.roles.as_slice()), ("user:owner", ["owner".to_owned()].as_slice()));
    let devices = owner.devices().await.unwrap().devices;
    let told: Vec<_> = devices.iter().map(|device| (device.name.as_str(), device.state, device.this_one)).collect();
    assert_eq!(told, [("this machine", DeviceState::Active, true)]);
    let agent = lab.agent().identity().await.unwrap();
    let tokens = owner.tokens().await.unwrap().tokens;
    let told: Vec<_> = tokens.iter().map(|token| (token.name.as_str(), token.state, Some(&token.id))).collect();
    assert_eq!(told, [("agents on this machine", TokenState::Active, agent.token.as_ref())]);
    assert_eq!(leftovers(lab.home()), [""; 0]);
}

/// A program of this workspace that is killed before it makes a system call for the so-manieth time.
fn killed_before(lab: &DaemonLab, (call, which): (&str, u32), name: &str) -> Command {
    let mut command = lab.command(Path::new("strace"));
    command.args(["-f", "-o", "/dev/null", "-e", &format!("trace={call}")]);
    command.args(["-e", &format!("inject={call}:signal=KILL:when={which}")]).arg(program(name));
    command
}

/// What interrupted saves of the registry left behind.
fn leftovers(home: &Path) -> Vec<String> {
    let names = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(".access_registry")).collect()
}

/// What was answered, or nothing if nobody answered.
fn heard<T>(answer: Result<T, ClientError>) -> Option<T> {
    match answer {
        Err(ClientError::Refused { status, error }) => panic!("{status} {}: {}", error.code, error.message),
        answer => answer.ok(),
    }
}

fn refused(error: ClientError) -> (u16, String) {
    match error {
        ClientError::Refused { status, error: body } => (status, body.code),
        other => panic!("{other}"),
    }
}

/// Numbers that are the same for the same seed.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let seed = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(std::process::id());
        println!("the seed is {seed:#x}");
        Self(seed)
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 31
    }

    const fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }
}

/// How many change the registry at once.
const CLERKS: u64 = 4;

const WITHOUT_OVERLAP: RotateToken = RotateToken { overlap_seconds: Some(0), lifetime_seconds: None };
