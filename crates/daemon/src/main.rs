//! `palyrad`: the daemon alone, for service managers. `palyra up` is the same for people.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == "--version" || argument == "-V") {
        println!("palyrad {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    match palyra_daemon::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: the daemon does not start\ncause: {error}\nhelp:  {}", error.advice());
            ExitCode::FAILURE
        }
    }
}
