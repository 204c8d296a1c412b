//! The commands, one file each.

pub(crate) mod access;
pub(crate) mod approvals;
pub(crate) mod call;
pub(crate) mod demo;
pub(crate) mod devices;
pub(crate) mod doctor;
pub(crate) mod grants;
pub(crate) mod journal;
pub(crate) mod mcp;
pub(crate) mod open;
pub(crate) mod pair;
pub(crate) mod paths;
pub(crate) mod policy;
pub(crate) mod posture;
pub(crate) mod reload;
pub(crate) mod run;
pub(crate) mod skills;
pub(crate) mod status;
pub(crate) mod tokens;
pub(crate) mod tools;
pub(crate) mod tour;
pub(crate) mod up;
pub(crate) mod vault;
pub(crate) mod whoami;
pub(crate) mod why;
