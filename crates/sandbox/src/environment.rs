//! Variables that a call may not set, because they make a program run other code than its name says.
//!
//! A rule that trusts `/usr/bin/git` trusts git, not what `GIT_SSH_COMMAND` names. This is the one list of them.
//! Guarantees: a name on the list is refused, with the reason. Does not: know every such variable, or hold a boundary. A program has
//! other ways to be led astray, and a tier that isolates is what contains it; the list keeps rules about programs meaning what they
//! say. A plan may still hold such a variable where the operator passes it on.

use palyra_types::visible::visible;

/// A variable that a call may not set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForbiddenVariable {
    /// It is not the name of a variable.
    #[error("`{}` is no name for a variable", visible(.0))]
    NotAName(String),
    /// The dynamic loader or the C library acts on it.
    #[error("the variable `{}` makes the loader run other code in every program", visible(.0))]
    Loader(String),
    /// Shells act on it before they run anything.
    #[error("the variable `{}` makes shells run other code first", visible(.0))]
    Shell(String),
    /// An interpreter loads code from where it points.
    #[error("the variable `{}` makes an interpreter load other code", visible(.0))]
    Interpreter(String),
    /// A program starts what it names.
    #[error("the variable `{}` names a command that other programs start", visible(.0))]
    Command(String),
    /// The daemon sets it.
    #[error("the variable `{}` is set by the daemon", visible(.0))]
    Fixed(String),
}

/// Checks the name of a variable.
///
/// # Errors
/// When it is none, or one of those above.
pub fn check_variable(name: &str) -> Result<(), ForbiddenVariable> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(ForbiddenVariable::NotAName(name.to_owned()));
    }
    let is_in = |list: &[&str]| {
        list.iter().any(|entry| match entry.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == *entry,
        })
    };
    let kind = if is_in(LOADER) {
        ForbiddenVariable::Loader
    } else if is_in(SHELL) {
        ForbiddenVariable::Shell
    } else if is_in(INTERPRETER) {
        ForbiddenVariable::Interpreter
    } else if is_in(COMMAND) {
        ForbiddenVariable::Command
    } else if is_in(FIXED) {
        ForbiddenVariable::Fixed
    } else {
        return Ok(());
    };
    Err(kind(name.to_owned()))
}

/// A `*` at the end stands for anything.
const LOADER: &[&str] = &[
    "DYLD_*",
    "GCONV_PATH",
    "GETCONF_DIR",
    "GLIBC_TUNABLES",
    "HOSTALIASES",
    "LD_*",
    "LOCALDOMAIN",
    "LOCPATH",
    "MALLOC_*",
    "NIS_PATH",
    "NLSPATH",
    "OPENSSL_CONF",
    "OPENSSL_ENGINES",
    "OPENSSL_MODULES",
    "RESOLV_HOST_CONF",
    "RES_OPTIONS",
    "TZDIR",
];

const SHELL: &[&str] =
    &["BASHOPTS", "BASH_*", "CDPATH", "ENV", "FPATH", "IFS", "PROMPT_COMMAND", "PS4", "SHELLOPTS", "ZDOTDIR"];

const INTERPRETER: &[&str] = &[
    "CLASSPATH",
    "CORECLR_*",
    "DENO_*",
    "DOTNET_*",
    "GEM_HOME",
    "GEM_PATH",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "JULIA_LOAD_PATH",
    "LUA_*",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PERL5*",
    "PERLIO*",
    "PERLLIB",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "PSModulePath",
    "PYTHON*",
    "RUBYLIB",
    "RUBYOPT",
    "R_ENVIRON*",
    "R_PROFILE*",
    "TCLLIBPATH",
    "_JAVA_OPTIONS",
];

const COMMAND: &[&str] = &[
    "BROWSER",
    "CARGO_BUILD_RUSTC*",
    "CARGO_TARGET_*",
    "COMSPEC",
    "EDITOR",
    "GIT_*",
    "GNUMAKEFLAGS",
    "LESSCLOSE",
    "LESSOPEN",
    "MAKEFILES",
    "MAKEFLAGS",
    "MANPAGER",
    "NPM_CONFIG_*",
    "PAGER",
    "RSYNC_RSH",
    "RUSTC",
    "RUSTC_*",
    "RUSTDOC",
    "SHELL",
    "SSH_ASKPASS",
    "SUDO_*",
    "TAR_OPTIONS",
    "VISUAL",
    "npm_config_*",
];

const FIXED: &[&str] = &[
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "PALYRA_*",
    "PATH",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(name: &str) -> String {
        check_variable(name).map_or_else(|error| error.to_string(), |()| "taken".to_owned())
    }

    #[test]
    fn variables_that_change_what_runs_are_refused_and_the_reason_is_told() {
        assert_eq!(answer("LD_PRELOAD"), "the variable `LD_PRELOAD` makes the loader run other code in every program");
        assert_eq!(answer("BASH_ENV"), "the variable `BASH_ENV` makes shells run other code first");
        assert_eq!(answer("PYTHONSTARTUP"), "the variable `PYTHONSTARTUP` makes an interpreter load other code");
        assert_eq!(
            answer("GIT_SSH_COMMAND"),
            "the variable `GIT_SSH_COMMAND` names a command that other programs start"
        );
        assert_eq!(answer("PATH"), "the variable `PATH` is set by the daemon");
        for name in [
            "LD_AUDIT",
            "GCONV_PATH",
            "TZDIR",
            "ENV",
            "SHELL",
            "NPM_CONFIG_PREFIX",
            "PYTHONPATH",
            "PERL5OPT",
            "NODE_OPTIONS",
            "RUBYOPT",
            "RUSTC_WRAPPER",
        ] {
            assert!(check_variable(name).is_err(), "{name}");
        }
    }

    #[test]
    fn ordinary_variables_are_taken_and_nonsense_is_not() {
        for name in ["RUST_LOG", "CI", "LANG", "TZ", "LDFLAGS", "ENVIRONMENT", "CARGO_TERM_COLOR"] {
            assert_eq!(answer(name), "taken", "{name}");
        }
        assert_eq!(answer(""), "`` is no name for a variable");
        assert_eq!(answer("A=B"), "`A=B` is no name for a variable");
        assert_eq!(answer("A\0"), "`A<U+0000>` is no name for a variable");
    }
}
