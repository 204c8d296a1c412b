//! Where Palyra keeps its state: `PALYRA_HOME`, else `palyra` in the XDG data directory.
//!
//! The environment is a parameter; nothing here reads it or touches the file system.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// The state directory and what lies where in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateHome(PathBuf);

impl StateHome {
    /// Finds the state directory by the environment.
    ///
    /// # Errors
    /// When `PALYRA_HOME` is set and not an absolute path, or nothing names one.
    pub fn find(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, NoHome> {
        if let Some(home) = variable("PALYRA_HOME").filter(|home| !home.is_empty()) {
            // Whoever names a directory means it; another one would hold other policies.
            return if Path::new(&home).is_absolute() { Ok(Self(home.into())) } else { Err(NoHome::Relative(home)) };
        }
        // The XDG convention: a relative path is as good as none.
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        absolute("XDG_DATA_HOME")
            .map(|base| base.join("palyra"))
            .or_else(|| absolute("HOME").map(|base| base.join(".local/share/palyra")))
            .map(Self)
            .ok_or(NoHome::Unset)
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The operator's policies.
    #[must_use]
    pub fn policies(&self) -> PathBuf {
        self.0.join("policies")
    }

    /// The journal.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.0.join("journal")
    }

    /// The configuration file.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.0.join("config.toml")
    }
}

/// No state directory can be found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoHome {
    /// `PALYRA_HOME` is relative.
    #[error("PALYRA_HOME is `{}`, which is not an absolute path", crate::visible::visible(&.0.to_string_lossy()))]
    Relative(OsString),
    /// Nothing says where it is.
    #[error("neither PALYRA_HOME, XDG_DATA_HOME nor HOME names an absolute path")]
    Unset,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(variables: &[(&str, &str)]) -> Result<PathBuf, NoHome> {
        StateHome::find(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
            .map(|home| home.path().to_owned())
    }

    #[test]
    fn the_most_specific_variable_wins() {
        let (palyra, xdg, home) = (("PALYRA_HOME", "/p"), ("XDG_DATA_HOME", "/x"), ("HOME", "/h"));
        assert_eq!(find(&[palyra, xdg, home]), Ok("/p".into()));
        assert_eq!(find(&[xdg, home]), Ok("/x/palyra".into()));
        assert_eq!(find(&[home]), Ok("/h/.local/share/palyra".into()));
        assert_eq!(find(&[]), Err(NoHome::Unset));
    }

    #[test]
    fn a_relative_palyra_home_is_refused_and_an_empty_one_is_none() {
        assert_eq!(find(&[("PALYRA_HOME", "here"), ("HOME", "/h")]), Err(NoHome::Relative("here".into())));
        assert_eq!(find(&[("PALYRA_HOME", ""), ("HOME", "/h")]), Ok("/h/.local/share/palyra".into()));
        assert_eq!(find(&[("XDG_DATA_HOME", "here"), ("HOME", "/h")]), Ok("/h/.local/share/palyra".into()));
    }
}
