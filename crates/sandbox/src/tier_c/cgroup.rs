//! What a tree may use together: a cgroup for each enclosure, of version 2 where it is delegated, else of version 1 where root runs the daemon.
//!
//! Guarantees: an enclosure that has a cgroup is in it before anything of it runs; the cgroup is removed after it. What could not be
//! bounded is not said to be.
//! Does not: keep anything from running where there are no cgroups to be had. Whoever demands them does.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::profile::TreeBounds;

/// The cgroups of this machine in which there is room for enclosures.
#[derive(Debug)]
#[cfg_attr(weak, derive(Default))]
pub struct Cgroups {
    places: Vec<Place>,
    /// Those that could not be removed yet.
    left: Mutex<Vec<PathBuf>>,
}

/// A directory in which cgroups can be made, and what they bound.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    directory: PathBuf,
    controllers: Vec<Controller>,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// Where a process that moves itself in writes.
    ///
    /// The first version also takes single threads, and whoever has one only is moved by that as a whole. Moving a process stops every fork of the
    /// machine until all processors have been idle or in the kernel once: some eleven milliseconds, of all that an enclosure takes the most.
    const fn entrance(self) -> &'static str {
        match self {
            Self::One => "tasks",
            Self::Two => "cgroup.procs",
        }
    }
}

/// What can be bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Controller {
    /// Memory.
    Memory,
    /// The number of processes.
    Processes,
    /// Processor time.
    Processor,
}

impl Controller {
    const ALL: [Self; 3] = [Self::Memory, Self::Processes, Self::Processor];

    /// As the kernel calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Processes => "pids",
            Self::Processor => "cpu",
        }
    }
}

/// The cgroup of one enclosure. Dropping it removes it, once nothing is in it any more.
#[derive(Debug)]
pub struct Cgroup {
    of: Arc<Cgroups>,
    made: Vec<(PathBuf, Place)>,
}

/// What a tree was held back by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exceeded {
    /// How many of its processes were ended for want of memory.
    pub out_of_memory: u64,
    /// How often it could not start another process.
    pub too_many_processes: u64,
}

impl Cgroups {
    /// Looks for cgroups that this process may use.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let is_root = rustix::process::geteuid().is_root();
        let found = candidates(&read("/proc/self/mounts"), &read("/proc/self/cgroup"), is_root);
        Self::among(found)
    }

    /// Those of the candidates in which cgroups can be made, each controller once.
    fn among(candidates: Vec<Place>) -> Self {
        let mut places: Vec<Place> = Vec::new();
        for mut candidate in candidates {
            let known = |controller: &Controller| places.iter().any(|place| place.controllers.contains(controller));
            candidate.controllers.retain(|controller| !known(controller));
            if !candidate.controllers.is_empty() && candidate.make_ready().is_ok() {
                places.push(candidate);
            }
        }
        let cgroups = Self { places, left: Mutex::default() };
        cgroups.remove_forgotten();
        cgroups
    }

    /// What can be bounded here.
    #[must_use]
    pub fn controllers(&self) -> Vec<Controller> {
        self.places.iter().flat_map(|place| place.controllers.iter().copied()).collect()
    }

    /// Makes a cgroup with these bounds, if there are cgroups to be had.
    ///
    /// # Errors
    /// When there are, and one cannot be made.
    pub fn make(self: &Arc<Self>, bounds: &TreeBounds) -> io::Result<Option<Cgroup>> {
        self.remove_left();
        if self.places.is_empty() {
            return Ok(None);
        }
        let name = self.new_name();
        let mut cgroup = Cgroup { of: Arc::clone(self), made: Vec::new() };
        for place in &self.places {
            let directory = place.directory.join(&name);
            fs::create_dir(&directory)?;
            cgroup.made.push((directory.clone(), place.clone()));
            for (file, value) in place.settings(bounds) {
                fs::write(directory.join(file), value)?;
            }
        }
        Ok(Some(cgroup))
    }

    /// A name that none has, of this daemon's earlier configuration neither, or of a daemon that had the same number.
    fn new_name(&self) -> String {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let name = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            if !self.places.iter().any(|place| place.directory.join(&name).exists()) {
                return name;
            }
        }
    }

    /// Removes what daemons left that are gone. One of a daemon that runs may be about to be used.
    fn remove_forgotten(&self) {
        for place in &self.places {
            for entry in fs::read_dir(&place.directory).into_iter().flatten().flatten() {
                if entry.file_name().to_str().is_some_and(is_forgotten) {
                    let _ = fs::remove_dir(entry.path());
                }
            }
        }
    }

    fn remove_left(&self) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.retain(
            |directory| matches!(fs::remove_dir(directory), Err(error) if error.kind() == io::ErrorKind::ResourceBusy),
        );
    }
}

impl Cgroup {
    /// Where a process writes `0` to be in it.
    ///
    /// # Errors
    /// When that cannot be opened.
    pub fn entrances(&self) -> io::Result<Vec<OwnedFd>> {
        let open = |(directory, place): &(PathBuf, Place)| {
            OpenOptions::new().write(true).open(directory.join(place.version.entrance())).map(OwnedFd::from)
        };
        self.made.iter().map(open).collect()
    }

    /// What it bounds.
    #[must_use]
    pub fn controllers(&self) -> Vec<Controller> {
        self.made.iter().flat_map(|(_, place)| place.controllers.iter().copied()).collect()
    }

    /// What it has held back so far.
    #[must_use]
    pub fn exceeded(&self) -> Exceeded {
        let mut exceeded = Exceeded::default();
        for (directory, place) in &self.made {
            let count = |file: &str, word: &str| {
                let text = fs::read_to_string(directory.join(file)).unwrap_or_default();
                let line = text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
                line.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0)
            };
            for controller in &place.controllers {
                match (controller, place.version) {
                    (Controller::Memory, Version::One) => {
                        exceeded.out_of_memory += count("memory.oom_control", "oom_kill");
                    }
                    (Controller::Memory, Version::Two) => exceeded.out_of_memory += count("memory.events", "oom_kill"),
                    (Controller::Processes, _) => exceeded.too_many_processes += count("pids.events", "max"),
                    (Controller::Processor, _) => {}
                }
            }
        }
        exceeded
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let busy =
            self.made.drain(..).map(|(directory, _)| directory).filter(|directory| fs::remove_dir(directory).is_err());
        let busy: Vec<PathBuf> = busy.collect();
        self.of.left.lock().unwrap_or_else(PoisonError::into_inner).extend(busy);
    }
}

impl Place {
    /// Sees to it that cgroups can be made there.
    fn make_ready(&self) -> io::Result<()> {
        if self.version == Version::Two {
            let above = self.directory.parent().unwrap_or(&self.directory);
            let own = above.join(OWN);
            // Processes may not be where cgroups below bound anything, so this daemon moves into one of its own.
            if !is_top(above) {
                create(&own)?;
                fs::write(own.join("cgroup.procs"), std::process::id().to_string())?;
            }
            let wanted: Vec<String> = self.controllers.iter().map(|one| format!("+{}", one.name())).collect();
            fs::write(above.join("cgroup.subtree_control"), wanted.join(" "))?;
            create(&self.directory)?;
            return fs::write(self.directory.join("cgroup.subtree_control"), wanted.join(" "));
        }
        create(&self.directory)?;
        let trial = self.directory.join(format!("{PREFIX}{}-trial", std::process::id()));
        create(&trial)?;
        let opened = OpenOptions::new().write(true).open(trial.join(self.version.entrance())).map(drop::<File>);
        fs::remove_dir(&trial)?;
        opened
    }

    /// The files to write, and what.
    fn settings(&self, bounds: &TreeBounds) -> Vec<(&'static str, String)> {
        let mut settings = Vec::new();
        for controller in &self.controllers {
            match (controller, self.version) {
                (Controller::Memory, Version::One) => {
                    settings.push(("memory.limit_in_bytes", bounds.memory.to_string()));
                }
                (Controller::Memory, Version::Two) => {
                    settings.push(("memory.max", bounds.memory.to_string()));
                    settings.push(("memory.swap.max", "0".to_owned()));
                    settings.push(("memory.oom.group", "1".to_owned()));
                }
                // Bubblewrap and the init are in it, too.
                (Controller::Processes, _) => {
                    settings.push(("pids.max", bounds.processes.saturating_add(SUPERVISORS).to_string()));
                }
                (Controller::Processor, _) if bounds.processor_percent == 0 => {}
                (Controller::Processor, Version::One) => {
                    settings.push(("cpu.cfs_quota_us", quota(bounds).to_string()));
                }
                (Controller::Processor, Version::Two) => {
                    settings.push(("cpu.max", format!("{} {PERIOD_US}", quota(bounds))));
                }
            }
        }
        settings
    }
}

/// Whether a cgroup is one for an enclosure of a daemon that is gone.
fn is_forgotten(name: &str) -> bool {
    let daemon = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')).map(|(daemon, _)| daemon);
    daemon.is_some_and(|daemon| !Path::new("/proc").join(daemon).exists())
}

const fn quota(bounds: &TreeBounds) -> u64 {
    bounds.processor_percent.saturating_mul(PERIOD_US / 100)
}

fn create(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created,
    }
}

/// Whether it is the top of the hierarchy, where processes may be.
fn is_top(directory: &Path) -> bool {
    !directory.join("cgroup.type").exists()
}

/// Where cgroups might be made, version 2 first.
fn candidates(mounts: &str, own: &str, is_root: bool) -> Vec<Place> {
    let mut found = Vec::new();
    let mounted = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (_, at, kind, options) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        Some((at, kind, options))
    });
    for (at, kind, options) in mounted {
        match kind {
            "cgroup2" => {
                // Root has the top for itself; others have what was given to them.
                let own = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
                let above = if is_root { PathBuf::from(at) } else { below(at, own) };
                let offered = fs::read_to_string(above.join("cgroup.controllers")).unwrap_or_default();
                let controllers: Vec<Controller> = Controller::ALL
                    .into_iter()
                    .filter(|one| offered.split_ascii_whitespace().any(|name| name == one.name()))
                    .collect();
                let directory = above.join(NAME);
                found.insert(0, Place { directory, controllers, version: Version::Two });
            }
            "cgroup" => {
                for controller in Controller::ALL {
                    if !options.split(',').any(|option| option == controller.name()) {
                        continue;
                    }
                    let of_it = |line: &&str| {
                        let mut fields = line.splitn(3, ':').skip(1);
                        fields.next().is_some_and(|names| names.split(',').any(|name| name == controller.name()))
                    };
                    let path = own.lines().find(of_it).and_then(|line| line.splitn(3, ':').nth(2)).unwrap_or("/");
                    let directory = below(at, path).join(NAME);
                    found.push(Place { directory, controllers: vec![controller], version: Version::One });
                }
            }
            _ => {}
        }
    }
    found
}

fn below(mount: &str, path: &str) -> PathBuf {
    Path::new(mount).join(path.trim_start_matches('/'))
}

/// The directory in which the cgroups of enclosures are.
const NAME: &str = "palyra";
/// The cgroup of the daemon itself, where it needs one.
const OWN: &str = "palyra-daemon";
/// What their names begin with.
const PREFIX: &str = "enclosure-";
/// Bubblewrap, the init, and the launcher that is about to be the former.
const SUPERVISORS: u64 = 3;
/// The period in which processor time is counted.
const PERIOD_US: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &str = "\
tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
";

    #[test]
    fn version_two_comes_first_and_each_controller_of_version_one_has_its_own_place() {
        let own = "4:memory:/service\n3:cpu,cpuacct:/\n0::/user.slice\n";
        let found = candidates(MIXED, own, false);
        let place = |directory: &str, controllers: &[Controller], version| Place {
            directory: directory.into(),
            controllers: controllers.to_vec(),
            version,
        };
        let expected = [
            place("/sys/fs/cgroup/unified/user.slice/palyra", &[], Version::Two),
            place("/sys/fs/cgroup/memory/service/palyra", &[Controller::Memory], Version::One),
            place("/sys/fs/cgroup/cpu,cpuacct/palyra", &[Controller::Processor], Version::One),
        ];
        assert_eq!(found, expected);
        assert_eq!(candidates(MIXED, own, true)[0].directory, Path::new("/sys/fs/cgroup/unified/palyra"));
    }

    #[test]
    fn a_delegated_group_of_version_two_is_made_ready_bounded_and_removed() {
        let top = tempfile::tempdir().unwrap();
        let own = top.path().join("session");
        fs::create_dir(&own).unwrap();
        for file in ["cgroup.type", "cgroup.subtree_control"] {
            fs::write(own.join(file), "").unwrap();
        }
        let controllers = Controller::ALL.to_vec();
        let place = Place { directory: own.join(NAME), controllers, version: Version::Two };
        let cgroups = Arc::new(Cgroups::among(vec![place]));
        let read = |path: &str| fs::read_to_string(own.join(path)).unwrap();
        assert_eq!(read("palyra-daemon/cgroup.procs"), std::process::id().to_string());
        assert_eq!(read("cgroup.subtree_control"), "+memory +pids +cpu");
        let bounds = TreeBounds { memory: 1 << 20, processes: 7, processor_percent: 150 };
        let cgroup = cgroups.make(&bounds).unwrap().unwrap();
        let made = cgroup.made[0].0.clone();
        let wrote = |file: &str| fs::read_to_string(made.join(file)).unwrap();
        assert_eq!(wrote("memory.max"), "1048576");
        assert_eq!((wrote("pids.max").as_str(), wrote("cpu.max").as_str()), ("10", "150000 100000"));
        fs::write(made.join("memory.events"), "low 0\noom_kill 2\n").unwrap();
        fs::write(made.join("pids.events"), "max 3\n").unwrap();
        assert_eq!(cgroup.exceeded(), Exceeded { out_of_memory: 2, too_many_processes: 3 });
        // The kernel's own files go with the directory; these have to be removed first.
        fs::remove_dir_all(&made).unwrap();
        drop(cgroup);
        assert!(!made.exists());
    }

    #[test]
    fn where_nothing_can_be_made_nothing_is_claimed() {
        let place =
            Place { directory: "/no/such/place".into(), controllers: vec![Controller::Memory], version: Version::One };
        let cgroups = Arc::new(Cgroups::among(vec![place]));
        assert_eq!(cgroups.controllers(), []);
        let bounds = TreeBounds { memory: 1, processes: 1, processor_percent: 0 };
        assert!(cgroups.make(&bounds).unwrap().is_none());
    }

    #[test]
    fn a_cgroup_is_forgotten_when_its_daemon_is_gone() {
        let own = std::process::id();
        assert!(!is_forgotten(&format!("enclosure-{own}-7")));
        // No process can have this number.
        assert!(is_forgotten("enclosure-4194305-7"));
        assert!(!is_forgotten("somebody-else"));
    }

    #[test]
    fn two_configurations_of_a_daemon_never_name_a_cgroup_alike() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place { directory: directory.path().to_owned(), controllers: Vec::new(), version: Version::One };
        let [one, other] = [place.clone(), place].map(|place| Cgroups { places: vec![place], left: Mutex::default() });
        let taken = one.new_name();
        fs::create_dir(directory.path().join(&taken)).unwrap();
        assert_ne!(other.new_name(), taken);
    }
}
