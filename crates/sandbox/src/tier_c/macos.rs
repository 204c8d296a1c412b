//! Tier C on macOS: rules for `sandbox-exec`.
//!
//! Guarantees: everything is denied but what the rules name; paths are quoted so that none can end its rule.
//! Refuses: paths that cannot be written in a rule. Does not: run here; it is planned, and tested as a plan.

use std::fmt::Write;

use palyra_types::path::AbsolutePath;

use super::{
    backend::{BackendPlan, Command, TierCBackend},
    linux::PROXY_PORT,
    profile::{NetworkKind, Profile},
};
use crate::error::{SandboxProcessRunError as Error, SandboxProcessRunErrorKind as Kind};

/// Sandboxes by `sandbox-exec`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MacosSandboxExec;

impl TierCBackend for MacosSandboxExec {
    fn executor(&self) -> &'static str {
        "sandbox_tier_c_macos_sandbox_exec"
    }

    fn platform(&self) -> &'static str {
        "macos"
    }

    fn plan(&self, profile: &Profile, command: &Command) -> Result<BackendPlan, Error> {
        if profile.intercepts || profile.has_secret_files {
            let what = "sandbox-exec cannot give programs an authority or files of their own";
            return Err(Error::new(Kind::Unavailable, what));
        }
        let rules = rules(profile)?;
        let mut args = vec!["sandbox-exec".to_owned(), "-p".to_owned(), rules.clone(), command.program.clone()];
        args.extend(command.args.iter().cloned());
        Ok(BackendPlan::SandboxExec { rules, args })
    }
}

/// The rules of a profile. Later ones come before earlier ones where both match.
fn rules(profile: &Profile) -> Result<String, Error> {
    let mut rules = String::from(BEGINNING);
    for path in SYSTEM.iter().copied().chain(profile.read_only.iter().map(AbsolutePath::as_str)) {
        let _ = writeln!(rules, "(allow file-read* process-exec (subpath {}))", quoted(path)?);
    }
    for path in [profile.workspace.as_str(), "/private/tmp"] {
        let _ = writeln!(rules, "(allow file-read* file-write* process-exec (subpath {}))", quoted(path)?);
    }
    // Files that run as their owner.
    rules.push_str("(deny file-write-setugid)\n");
    for path in &profile.hidden {
        let _ = writeln!(rules, "(deny file-read* file-write* process-exec (subpath {}))", quoted(path.as_str())?);
    }
    match &profile.network {
        NetworkKind::Machine => rules.push_str("(allow network*)\n(allow system-socket)\n"),
        NetworkKind::Own(_) => {
            let _ = writeln!(rules, "(allow network-outbound (remote ip \"localhost:{PROXY_PORT}\"))");
        }
    }
    Ok(rules)
}

/// A path as a string of the rules.
fn quoted(path: &str) -> Result<String, Error> {
    if path.contains(char::is_control) {
        return Err(Error::about(Kind::InvalidInput, "this path cannot be written in a rule:", path));
    }
    Ok(format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\"")))
}

const BEGINNING: &str = "\
(version 1)
(deny default)
(allow process-fork)
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow file-read-metadata)
(allow file-read* file-write-data (literal \"/dev/null\") (literal \"/dev/zero\") (literal \"/dev/random\") (literal \"/dev/urandom\"))
";

const SYSTEM: &[&str] = &["/bin", "/sbin", "/usr", "/System", "/Library/Frameworks", "/private/var/db/dyld"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier_c::profile::example;

    #[test]
    fn the_rules_deny_everything_but_the_profile() {
        let command = Command { program: "/bin/echo".to_owned(), args: vec!["a b".to_owned()] };
        let plan = MacosSandboxExec.plan(&example("/Users/ada/shop"), &command).unwrap();
        let BackendPlan::SandboxExec { rules, args } = plan else { panic!("{plan:?}") };
        assert_eq!(rules, include_str!("golden/macos.sb"));
        assert_eq!(args, ["sandbox-exec", "-p", rules.as_str(), "/bin/echo", "a b"]);
    }

    #[test]
    fn no_path_can_end_its_rule() {
        let rules = rules(&example("/Users/\") (allow default) (\"")).unwrap();
        assert!(rules.contains(r#"(subpath "/Users/\") (allow default) (\"")"#), "{rules}");
        assert!(super::rules(&example("/Users/a\nb")).is_err());
    }

    #[test]
    fn it_says_that_this_is_another_platform() {
        let error = MacosSandboxExec.runs_here().unwrap_err();
        assert_eq!(
            error.detail,
            "not on this platform: sandbox_tier_c_macos_sandbox_exec is for macos, and this is linux"
        );
    }
}
