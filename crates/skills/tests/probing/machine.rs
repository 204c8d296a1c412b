//! What of this machine a program could touch: a file and a directory, a listening port, and the environment of the tests.

use std::{
    fs, io,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Things that nothing may touch.
pub struct Machine {
    before: Seen,
    tcp: TcpListener,
}

#[derive(Debug, PartialEq)]
struct Seen {
    entries: Vec<PathBuf>,
    content: String,
    modified: SystemTime,
    /// Whether something of it is where the tests run.
    is_here: bool,
}

impl Machine {
    /// Lays out the file, and listens.
    pub fn new() -> Self {
        let canary = canary();
        fs::create_dir_all(canary.parent().unwrap()).unwrap();
        if fs::read_to_string(&canary).ok().as_deref() != Some(SONG) {
            // Several tests come here at once, and none may see the file of another half written.
            let beside = tempfile::NamedTempFile::new_in(canary.ancestors().nth(2).unwrap()).unwrap();
            fs::write(beside.path(), SONG).unwrap();
            beside.persist_noclobber(&canary).map(drop).or_else(is_there).unwrap();
        }
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        tcp.set_nonblocking(true).unwrap();
        Self { before: look(), tcp }
    }

    /// The port that is listened on.
    pub fn port(&self) -> u16 {
        self.tcp.local_addr().unwrap().port()
    }

    /// Asserts that the file and its directory are as they were, and that nobody came to the port.
    pub fn is_untouched(&self, program: &str) {
        assert_eq!(look(), self.before, "{program}");
        let nobody = Err(io::ErrorKind::WouldBlock);
        assert_eq!(self.tcp.accept().map(drop).map_err(|error| error.kind()), nobody, "{program}");
    }

    /// Asserts that a text holds nothing of this machine.
    pub fn is_not_in(&self, program: &str, text: &str) {
        let here = std::env::current_dir().unwrap();
        let variables = std::env::vars_os().filter_map(|(_, value)| value.into_string().ok());
        let telling = variables.filter(|value| value.len() > 5).chain([here.display().to_string(), SONG.to_owned()]);
        for value in telling {
            assert!(!text.contains(&value), "{program} saw `{value}`: {text}");
        }
    }
}

/// The file that nothing may touch. The programs know where it is.
pub fn canary() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("probe-canary").join("canary.txt")
}

fn look() -> Seen {
    let canary = canary();
    let directory = canary.parent().unwrap();
    Seen {
        entries: fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect(),
        content: fs::read_to_string(&canary).unwrap(),
        modified: fs::metadata(&canary).unwrap().modified().unwrap(),
        is_here: Path::new("canary.txt").exists() || Path::new("link.txt").exists(),
    }
}

fn is_there(error: tempfile::PersistError) -> io::Result<()> {
    if error.error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error.error) }
}

const SONG: &str = "a canary that nobody hears sing";
