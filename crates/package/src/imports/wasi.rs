//! The interfaces that a component may import, and what each takes.

use semver::Version;

use super::{ImportsError, Need};

/// What an interface takes. Its name is `namespace:package/interface@version`.
pub fn need_of(import: &str) -> Result<Need, ImportsError> {
    let foreign = || ImportsError::Foreign { import: import.to_owned() };
    let (path, version) = import.split_once('@').ok_or_else(foreign)?;
    let (package, interface) = path.split_once('/').ok_or_else(foreign)?;
    let version = Version::parse(version).map_err(|_| foreign())?;
    let need = match (package, interface) {
        ("palyra:skill", "types") | ("wasi:io" | "wasi:cli", _) | ("wasi:random", "insecure" | "insecure-seed") => {
            Need::Free
        }
        ("palyra:skill", "log") => Need::Log,
        ("palyra:skill", "clock") | ("wasi:clocks", _) => Need::Clock,
        ("palyra:skill", "random") | ("wasi:random", "random") => Need::Random,
        ("palyra:skill", "http") => Need::Http,
        ("palyra:skill", "kv") => Need::Kv,
        ("palyra:skill", "secrets") => Need::Secrets,
        ("palyra:skill", "files") => Need::Files,
        ("wasi:filesystem", _) => Need::InertFilesystem,
        ("wasi:sockets", _) => Need::InertSockets,
        ("wasi:http", _) => Need::InertHttp,
        _ => return Err(foreign()),
    };
    let (known, is_known) = match package {
        "palyra:skill" => ("1.0", is_of(&version, 1, 0)),
        _ => ("0.2", is_of(&version, 0, 2)),
    };
    if is_known { Ok(need) } else { Err(ImportsError::ForeignVersion { import: import.to_owned(), known }) }
}

/// Whether an export is the one way into a command.
pub fn is_command_export(name: &str) -> bool {
    let version = name.strip_prefix("wasi:cli/run@").and_then(|version| Version::parse(version).ok());
    version.is_some_and(|version| is_of(&version, 0, 2))
}

fn is_of(version: &Version, major: u64, minor: u64) -> bool {
    version.major == major && version.minor == minor && version.pre.is_empty() && version.build.is_empty()
}
