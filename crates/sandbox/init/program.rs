//! The way from the fork to the program: what the child does to itself before it becomes the program.
//!
//! Guarantees: the program starts with every layer that its report names, or does not start. The report is written to a pipe
//! that closes on exec, so its end without an error means that the program runs.
//! Does not: choose anything. The order does.

use std::{
    ffi::{CStr, CString, OsStr},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
};

use crate::{
    kernel::{self, Errno, Open, Prctl},
    landlock, limits,
    protocol::{Order, Step, Unchanged, layer},
};

/// What the child tells its parent through the pipe.
pub enum Progress {
    /// Every layer is set up; the program comes next.
    Ready { layers: u64, landlock: u32 },
    /// A step failed.
    Failed { step: Step, errno: i32 },
}

impl Progress {
    /// The last that was told, if anything was.
    pub fn last_of(told: &[u8]) -> Option<Self> {
        let numbers: Vec<u64> =
            told.chunks_exact(8).filter_map(|n| Some(u64::from_le_bytes(n.try_into().ok()?))).collect();
        match *numbers.chunks_exact(3).last()? {
            [0, layers, landlock] => Some(Self::Ready { layers, landlock: u32::try_from(landlock).ok()? }),
            [_, step, errno] => Some(Self::Failed { step: Step::from_code(step)?, errno: i32::try_from(errno).ok()? }),
            _ => None,
        }
    }

    fn tell(&self, pipe: i32) {
        let numbers = match *self {
            Self::Ready { layers, landlock } => [0, layers, u64::from(landlock)],
            Self::Failed { step, errno } => [1, step as u64, u64::from(errno.cast_unsigned())],
        };
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        // Without a reader there is no init any more, and the death signal is on its way.
        let _ = kernel::write_all(pipe, &bytes);
    }
}

/// What the child was given when it was forked.
pub struct Program<'a> {
    pub order: &'a Order,
    /// The working directory, standard output, standard error, the program and, if the order says so, standard input; or nothing.
    pub fds: &'a [i32],
    /// Where to tell the progress.
    pub pipe: i32,
    /// The process that forked it.
    pub init: i32,
}

impl Program<'_> {
    /// Becomes the program, or tells why not.
    pub fn run(&self) -> ! {
        let failed = match self.prepare() {
            Ok((layers, landlock)) => {
                Progress::Ready { layers, landlock }.tell(self.pipe);
                match *self.fds {
                    [_, _, _, program, ..] => (Step::Execute, self.execute(program)),
                    _ => kernel::exit(0),
                }
            }
            Err(failed) => failed,
        };
        let (step, Errno(errno)) = failed;
        Progress::Failed { step, errno }.tell(self.pipe);
        kernel::exit(127)
    }

    fn prepare(&self) -> Result<(u64, u32), (Step, Errno)> {
        let at = |step| move |errno| (step, errno);
        kernel::prctl(Prctl::SetParentDeathSignal, kernel::SIGKILL as usize).map_err(at(Step::Session))?;
        if kernel::parent_pid() != self.init {
            kernel::exit(127);
        }
        kernel::setsid().map_err(at(Step::Session))?;
        self.connect().map_err(at(Step::Streams))?;
        self.enter().map_err(at(Step::Directory))?;
        kernel::prctl(Prctl::SetNoNewPrivs, 1).map_err(at(Step::Privileges))?;
        let hidden: Vec<PathBuf> = self.order.hidden.iter().map(|path| OsStr::from_bytes(path).into()).collect();
        let (walls, landlock) = landlock::restrict(&hidden).map_err(at(Step::Landlock))?;
        // Limits come after Landlock, which opens files, and before the descriptors are closed.
        let limits = limits::set(self.order).map_err(at(Step::Limits))?;
        kernel::close_on_exec_from(3).map_err(at(Step::Descriptors))?;
        self.compare().map_err(at(Step::Unchanged))?;
        kernel::release_signals();
        let always = layer::SESSION | layer::NO_NEW_PRIVS | layer::CLOSED_FDS | layer::CLEARED_ENVIRONMENT;
        Ok((always | walls | limits, landlock))
    }

    fn connect(&self) -> Result<(), Errno> {
        if let [_, stdout, stderr, ..] = *self.fds {
            kernel::duplicate(stdout, 1)?;
            kernel::duplicate(stderr, 2)?;
        }
        let stdin = match *self.fds {
            [_, _, _, _, stdin] if self.order.has_stdin => stdin,
            _ => kernel::open(c"/dev/null", Open::Read)?,
        };
        kernel::duplicate(stdin, 0)
    }

    fn enter(&self) -> Result<(), Errno> {
        match self.fds {
            [directory, _, _, _, ..] => kernel::enter(*directory),
            [] => Ok(()),
            _ => Err(Errno(kernel::EINVAL)),
        }
    }

    /// Looks once more at the files that were compared with a decision. The later this is, the less time there is to change one.
    fn compare(&self) -> Result<(), Errno> {
        for Unchanged { path, stamp } in &self.order.unchanged {
            let (file, path) = match (path.is_empty(), self.fds) {
                (true, [_, _, _, program, ..]) => (*program, Some(CString::default())),
                _ => (NO_DIRECTORY, c_string(path)),
            };
            let path = path.ok_or(Errno(kernel::EINVAL))?;
            if kernel::stamp(file, &path)? != *stamp {
                return Err(Errno(kernel::ESTALE));
            }
        }
        Ok(())
    }

    fn execute(&self, program: i32) -> Errno {
        let (Some(args), Some(env)) = (c_strings(&self.order.args), c_strings(&self.order.env)) else {
            return Errno(kernel::EINVAL);
        };
        let args: Vec<&CStr> = args.iter().map(CString::as_c_str).collect();
        let env: Vec<&CStr> = env.iter().map(CString::as_c_str).collect();
        kernel::execute(program, &args, &env)
    }
}

/// In the place of a directory, for paths that are absolute.
const NO_DIRECTORY: i32 = -1;

fn c_string(bytes: &[u8]) -> Option<CString> {
    CString::new(bytes).ok()
}

fn c_strings(list: &[Vec<u8>]) -> Option<Vec<CString>> {
    list.iter().map(|bytes| c_string(bytes)).collect()
}
