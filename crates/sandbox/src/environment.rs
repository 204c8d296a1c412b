//! The environment of a process: built from nothing, never inherited.
//!
//! Guarantees: `PATH` is fixed; from the host come only allowed names; no variable that makes a loader, a shell or a runtime
//! run code reaches the process, from either side.
//! Does not: know every such variable. The list is a guard, like that of interpreters.

use std::collections::BTreeMap;

use palyra_types::visible::visible;

/// The search path of every process.
pub const SAFE_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// The names that are taken from the host unless an operator says otherwise.
pub const DEFAULT_ENVIRONMENT: &[&str] = &[
    "HOME",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NUMERIC",
    "LC_TIME",
    "LOGNAME",
    "TERM",
    "TZ",
    "USER",
];

/// The environment for a call: the fixed `PATH`, the allowed names as the host has them, and what the call gives.
///
/// A name that the call gives wins over the host's.
///
/// # Errors
/// When a name is none, a value holds a NUL, or the variable would load code into programs.
pub fn environment<'a>(
    allowlist: impl IntoIterator<Item = &'a str>,
    host: impl Fn(&str) -> Option<String>,
    given: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, EnvironmentError> {
    let inherited = allowlist.into_iter().filter_map(|name| Some((name.to_owned(), host(name)?)));
    let mut built = BTreeMap::new();
    for (name, value) in inherited.chain(given.iter().map(|(name, value)| (name.clone(), value.clone()))) {
        check(&name, &value)?;
        built.insert(name, value);
    }
    built.insert("PATH".to_owned(), SAFE_PATH.to_owned());
    Ok(built)
}

/// Why an environment was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// Empty, or with `=` or a NUL in it.
    #[error("`{}` is no name of a variable", visible(.0))]
    Name(String),
    /// The value holds a NUL.
    #[error("the value of `{}` holds a NUL", visible(.0))]
    Value(String),
    /// The variable makes programs load or run what it names.
    #[error("the variable `{}` makes programs run what it names", visible(.0))]
    LoadsCode(String),
    /// The search path is fixed.
    #[error("`PATH` is fixed to `{SAFE_PATH}`")]
    Path,
}

impl EnvironmentError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Name(_) => "give names without `=` and NUL",
            Self::Value(_) => "give the value without NUL",
            Self::LoadsCode(_) => "leave the variable out; pass what is needed as an argument",
            Self::Path => "give the program by its absolute path",
        }
    }
}

fn check(name: &str, value: &str) -> Result<(), EnvironmentError> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(EnvironmentError::Name(name.to_owned()));
    }
    if value.contains('\0') {
        return Err(EnvironmentError::Value(name.to_owned()));
    }
    if name == "PATH" {
        return Err(EnvironmentError::Path);
    }
    let loads = LOADING.contains(&name) || LOADING_FAMILIES.iter().any(|family| name.starts_with(family));
    if loads { Err(EnvironmentError::LoadsCode(name.to_owned())) } else { Ok(()) }
}

/// Variables whose value some widespread program loads, runs or reads code from.
const LOADING: &[&str] = &[
    "BASHOPTS",
    "BASH_ENV",
    "BROWSER",
    "CDPATH",
    "CLASSPATH",
    "COMSPEC",
    "EDITOR",
    "ENV",
    "GCONV_PATH",
    "GETCONF_DIR",
    "GIT_ASKPASS",
    "GIT_DIR",
    "GIT_EDITOR",
    "GIT_EXEC_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_PROXY_COMMAND",
    "GIT_SEQUENCE_EDITOR",
    "GIT_TEMPLATE_DIR",
    "GLIBC_TUNABLES",
    "HOSTALIASES",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LESSCLOSE",
    "LESSOPEN",
    "LOCALDOMAIN",
    "LOCPATH",
    "MAKEFILES",
    "MAKEFLAGS",
    "MANPAGER",
    "NIS_PATH",
    "NLSPATH",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PAGER",
    "PERL5DB",
    "PERL5LIB",
    "PERL5OPT",
    "PERLLIB",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "PROMPT_COMMAND",
    "PS4",
    "PYTHONBREAKPOINT",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONPATH",
    "PYTHONPLATLIBDIR",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "PYTHONWARNINGS",
    "RESOLV_HOST_CONF",
    "RES_OPTIONS",
    "RUBYLIB",
    "RUBYOPT",
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTDOC",
    "SHELL",
    "SHELLOPTS",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "TZDIR",
    "VISUAL",
    "ZDOTDIR",
    "_JAVA_OPTIONS",
];

/// Beginnings of such names.
const LOADING_FAMILIES: &[&str] = &[
    "BASH_FUNC_",
    "CARGO_TARGET_",
    "CORECLR_",
    "DOTNET_STARTUP_HOOKS",
    "DYLD_",
    "GIT_CONFIG",
    "GIT_SSH",
    "LD_",
    "LUA_CPATH",
    "LUA_INIT",
    "LUA_PATH",
    "MALLOC_",
    "NPM_CONFIG_",
    "npm_config_",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Option<String> {
        ["HOME", "SECRET_TOKEN", "LANG", "LD_PRELOAD", "PATH"].contains(&name).then(|| format!("host's {name}"))
    }

    fn given(name: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(name.to_owned(), value.to_owned())])
    }

    fn pairs(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn only_allowed_names_come_from_the_host() {
        assert_eq!(
            environment(DEFAULT_ENVIRONMENT.iter().copied(), host, &given("LANG", "C")),
            Ok(pairs(&[("HOME", "host's HOME"), ("LANG", "C"), ("PATH", SAFE_PATH)]))
        );
        assert_eq!(environment([], host, &BTreeMap::new()), Ok(pairs(&[("PATH", SAFE_PATH)])));
    }

    #[test]
    fn what_loads_code_is_refused_from_either_side() {
        for name in ["LD_PRELOAD", "LD_AUDIT", "BASH_ENV", "BASH_FUNC_ls%%", "GIT_SSH_COMMAND", "NODE_OPTIONS", "ENV"] {
            let refused = Err(EnvironmentError::LoadsCode(name.to_owned()));
            assert_eq!(environment([], host, &given(name, "x")), refused, "{name}");
        }
        assert_eq!(
            environment(["LD_PRELOAD"], host, &BTreeMap::new()),
            Err(EnvironmentError::LoadsCode("LD_PRELOAD".to_owned()))
        );
        assert_eq!(environment([], host, &given("PATH", "/tmp")), Err(EnvironmentError::Path));
    }

    #[test]
    fn what_is_no_variable_is_refused() {
        for name in ["", "A=B", "A\0"] {
            let refused = Err(EnvironmentError::Name(name.to_owned()));
            assert_eq!(environment([], host, &given(name, "x")), refused);
        }
        assert_eq!(environment([], host, &given("A", "\0")), Err(EnvironmentError::Value("A".to_owned())));
    }
}
