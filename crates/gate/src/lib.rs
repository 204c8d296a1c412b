//! The path of a call: decide, approve, execute, attest.
//!
//! | you look for | read |
//! |---|---|
//! | what a tool is, and what it would do | [`tool`] |
//! | the tools there are, one file each | [`tools`] |
//! | how files are reached | [`workspace`] |

pub mod tool;
pub mod tools;
pub mod workspace;

pub use tool::{
    FileWork, HostPort, IntendError, Intent, Place, ProcessWork, Report, Script, SearchPath, Tool, ToolDefinition, Work,
};
pub use tools::{ArgumentsError, CallError, FileError, OutputCaps, Registry, RegistryError};
pub use workspace::{Workspace, WorkspaceError};
