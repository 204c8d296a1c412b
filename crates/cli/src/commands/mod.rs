//! The commands, one file each.

pub(crate) mod policy;
pub(crate) mod status;
pub(crate) mod tour;
