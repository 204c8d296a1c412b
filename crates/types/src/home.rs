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
    /// When neither `PALYRA_HOME`, `XDG_DATA_HOME` nor `HOME` names an absolute path.
    pub fn find(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, NoHome> {
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let under = |base: PathBuf, rest: &str| base.join(rest);
        absolute("PALYRA_HOME")
            .or_else(|| absolute("XDG_DATA_HOME").map(|base| under(base, "palyra")))
            .or_else(|| absolute("HOME").map(|base| under(base, ".local/share/palyra")))
            .map(Self)
            .ok_or(NoHome)
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

    /// The configuration file.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.0.join("config.toml")
    }
}

/// No state directory can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("neither PALYRA_HOME, XDG_DATA_HOME nor HOME names an absolute path")]
pub struct NoHome;

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
        assert_eq!(find(&[]), Err(NoHome));
    }

    #[test]
    fn a_relative_home_is_passed_over() {
        assert_eq!(find(&[("PALYRA_HOME", "here"), ("HOME", "/h")]), Ok("/h/.local/share/palyra".into()));
    }
}
