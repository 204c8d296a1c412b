//! `palyrad`: the daemon alone, for service managers. `palyra up` is the same for people.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: what it compiles comes from anywhere.
    if let Some(code) = palyra_daemon::compiler_child(std::env::args_os().skip(1)) {
        return code;
    }
    let arguments: Vec<_> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    match arguments.first().map(String::as_str) {
        None => serve(),
        Some("--version" | "-V") => {
            println!("palyrad {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Some("--help" | "-h") => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        Some(_) => {
            eprintln!("error: palyrad takes no arguments\n\n{HELP}");
            ExitCode::from(USAGE)
        }
    }
}

fn serve() -> ExitCode {
    match palyra_daemon::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: the daemon does not start\ncause: {error}\nhelp:  {}", error.advice());
            ExitCode::FAILURE
        }
    }
}

const HELP: &str = "\
The Palyra daemon, for service managers. `palyra up` is the same for people.

Usage: palyrad

It is configured by config.toml in its state directory and by variables such as PALYRA_LISTEN__LOCAL; `palyra paths` shows where
that is. PALYRA_HOME names another state directory. SIGHUP makes it read its configuration and policies again; SIGTERM ends it.

Options:
  -h, --help     Tell this
  -V, --version  Tell the version";

/// What a command line that makes no sense ends with.
const USAGE: u8 = 2;
