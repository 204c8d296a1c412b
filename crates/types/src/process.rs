//! What is run: a resolved program, its arguments and where it starts.
//!
//! Guarantees: [`Process::command`] is unambiguous, so two different argument lists never share a command text, and a rule
//! about a command means exactly one argument list. Does not: resolve programs or run anything.

use serde::{Deserialize, Serialize};

use crate::path::AbsolutePath;

/// A process about to be proposed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// The program, resolved to its absolute path.
    pub program: AbsolutePath,
    /// Where the program really is, if its path is a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leads_to: Option<AbsolutePath>,
    /// The arguments, without the program itself.
    #[serde(default)]
    pub args: Vec<String>,
    /// The working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<AbsolutePath>,
}

impl Process {
    /// The whole command line, each word quoted so that a POSIX shell would read back exactly these words.
    #[must_use]
    pub fn command(&self) -> String {
        let mut command = quote(self.program.as_str());
        for arg in &self.args {
            command.push(' ');
            command.push_str(&quote(arg));
        }
        command
    }

    /// Whether the program runs code given as text or file, so that what it does cannot be read off its name.
    #[must_use]
    pub fn is_interpreter(&self) -> bool {
        self.names().any(is_interpreter)
    }

    /// The file names that the program is known by: its own, and that of what it is a link to.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.program).chain(&self.leads_to).map(AbsolutePath::file_name)
    }
}

/// Whether a program of this file name runs arbitrary code. Version suffixes are ignored: `python3.11` is `python`.
#[must_use]
pub fn is_interpreter(file_name: &str) -> bool {
    INTERPRETERS.contains(&stem(file_name).as_str())
}

/// Whether a program of this file name starts the program named by one of its arguments.
#[must_use]
pub fn is_launcher(file_name: &str) -> bool {
    LAUNCHERS.contains(&stem(file_name).as_str())
}

/// A file name without `.exe` and without its version: `Python3.11` becomes `python`.
fn stem(file_name: &str) -> String {
    let name = file_name.to_ascii_lowercase();
    let name = name.strip_suffix(".exe").unwrap_or(&name);
    name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-')).to_owned()
}

/// Quotes one word for a POSIX shell, leaving plain words alone.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Programs that run code handed to them.
const INTERPRETERS: &[&str] = &[
    "ash",
    "awk",
    "bash",
    "bun",
    "busybox",
    "cmd",
    "csh",
    "dash",
    "deno",
    "elvish",
    "expect",
    "fish",
    "gawk",
    "gdb",
    "guile",
    "irb",
    "ipython",
    "java",
    "jshell",
    "julia",
    "ksh",
    "lua",
    "luajit",
    "mawk",
    "mksh",
    "nawk",
    "node",
    "nodejs",
    "nu",
    "ocaml",
    "osascript",
    "perl",
    "php",
    "powershell",
    "pwsh",
    "pypy",
    "python",
    "r",
    "rscript",
    "ruby",
    "sh",
    "sqlite",
    "tclsh",
    "tcsh",
    "toybox",
    "tsx",
    "ts-node",
    "wish",
    "xonsh",
    "yash",
    "zsh",
];

/// Programs that start another program named in their arguments.
const LAUNCHERS: &[&str] = &[
    "at",
    "batch",
    "bwrap",
    "catchsegv",
    "chroot",
    "chrt",
    "command",
    "daemonize",
    "doas",
    "entr",
    "env",
    "eval",
    "exec",
    "find",
    "firejail",
    "flock",
    "fd",
    "ionice",
    "ltrace",
    "make",
    "nice",
    "nohup",
    "nsenter",
    "parallel",
    "prlimit",
    "run-parts",
    "runuser",
    "screen",
    "script",
    "setarch",
    "setpriv",
    "setsid",
    "ssh",
    "start-stop-daemon",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "systemd-run",
    "taskset",
    "tini",
    "time",
    "timeout",
    "tmux",
    "unshare",
    "valgrind",
    "watch",
    "watchexec",
    "xargs",
    "xvfb-run",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn process(args: &[&str]) -> Process {
        Process {
            program: AbsolutePath::parse("/usr/bin/cargo").unwrap(),
            leads_to: None,
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            cwd: None,
        }
    }

    #[test]
    fn a_command_is_quoted_where_it_must_be() {
        assert_eq!(process(&["test", "-p", "a b", "it's", ""]).command(), r"/usr/bin/cargo test -p 'a b' 'it'\''s' ''");
    }

    #[test]
    fn interpreters_are_known_by_any_version() {
        for name in ["bash", "python3.11", "Python3", "node", "pwsh", "perl5.36.0", "lua5.4", "cmd.exe"] {
            assert!(is_interpreter(name), "{name}");
        }
        for name in ["cargo", "git", "pythonista", "ls", ""] {
            assert!(!is_interpreter(name), "{name}");
        }
    }

    #[test]
    fn the_word_lists_are_in_the_form_that_look_ups_use() {
        for name in INTERPRETERS.iter().chain(LAUNCHERS) {
            assert_eq!(&stem(name), name, "a look-up would never find `{name}`");
        }
    }

    proptest! {
        #[test]
        fn different_argument_lists_have_different_commands(
            a in prop::collection::vec("[ab' \\\\\"\n]{0,3}", 0..4),
            b in prop::collection::vec("[ab' \\\\\"\n]{0,3}", 0..4),
        ) {
            let of = |args: &[String]| Process { args: args.to_vec(), ..process(&[]) }.command();
            prop_assert_eq!(a == b, of(&a) == of(&b));
        }
    }
}
