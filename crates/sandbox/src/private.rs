//! What one run is given that is no part of its plan, because a plan is recorded and shown: secrets.
//!
//! Guarantees: none of it is shown by `Debug`, and the daemon's own copies are overwritten when they are dropped.
//! Refuses: what could not arrive as it is, and what an enclosure has no room for.
//! Does not: keep a program from telling what it was given.

use std::{collections::BTreeSet, fmt, ops::Deref};

use zeroize::{Zeroize, Zeroizing};

use crate::{
    blueprint::SECRETS,
    error::{SandboxProcessRunError as Error, SandboxProcessRunErrorKind as Kind},
    plan::ProcessPlan,
    protocol::Order,
};

/// Where an enclosure has the files of [`PrivateFile`], each under its name.
pub const SECRET_FILES: &str = SECRETS;

/// A file that only one run has. It can be read by the user inside, is in memory, and goes with the enclosure.
#[derive(Clone)]
pub struct PrivateFile {
    /// Its name in [`SECRET_FILES`]: letters, digits, `.`, `_` and `-`, the first one of which is no dot.
    pub name: String,
    /// What it holds.
    pub content: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for PrivateFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateFile")
    }
}

/// A variable that only one run has: its name and its value.
pub type PrivateVariable = (String, Zeroizing<String>);

/// The environment of a plan with these variables, which count where the plan has others of their names.
pub(crate) fn environment(plan: &ProcessPlan, private: &[PrivateVariable]) -> Result<Vec<Vec<u8>>, Error> {
    let mut names = BTreeSet::new();
    for (name, value) in private {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(Error::about(Kind::InvalidInput, "this is no name for a variable:", name));
        }
        if value.contains('\0') {
            return Err(Error::about(Kind::InvalidInput, "there is a NUL in the private variable", name));
        }
        if !names.insert(name.as_str()) {
            return Err(Error::about(Kind::InvalidInput, "there are two private variables called", name));
        }
    }
    let public = plan.env.iter().filter(|(name, _)| !names.contains(name.as_str()));
    let public = public.map(|(name, value)| (name.as_str(), value.as_str()));
    let private = private.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let line = |(name, value): (&str, &str)| [name.as_bytes(), b"=", value.as_bytes()].concat();
    Ok(public.chain(private).map(line).collect())
}

/// Whether an enclosure has room for these files.
pub(crate) fn check_files(files: &[PrivateFile]) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    for PrivateFile { name, content } in files {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let is_name = !name.is_empty() && name.len() <= LONGEST_NAME && !name.starts_with('.');
        if !is_name || !name.bytes().all(is_plain) {
            return Err(Error::about(Kind::InvalidInput, "this is no name for a private file:", name));
        }
        if content.len() > LARGEST_FILE {
            let what = format!("a private file has {LARGEST_FILE} bytes at most:");
            return Err(Error::about(Kind::InvalidInput, &what, name));
        }
        if !names.insert(name) {
            return Err(Error::about(Kind::InvalidInput, "there are two private files called", name));
        }
    }
    match files.len() > MOST_FILES {
        true => Err(Error::new(Kind::InvalidInput, format!("there are more than {MOST_FILES} private files"))),
        false => Ok(()),
    }
}

/// An order whose variables are overwritten when it is dropped.
pub(crate) struct Sealed(pub Order);

impl Deref for Sealed {
    type Target = Order;
    fn deref(&self) -> &Order {
        &self.0
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        self.0.env.iter_mut().for_each(Zeroize::zeroize);
    }
}

const MOST_FILES: usize = 64;
const LARGEST_FILE: usize = 64 << 10;
const LONGEST_NAME: usize = 128;
