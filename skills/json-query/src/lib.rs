//! A skill that asks questions of JSON in the language of jq.
//!
//! Guarantees: the answer depends on the input alone; it is bounded in results, bytes and depth; a question that has no meaning, or that
//! fails, says where and why.
//! Does not: know the time, the environment or any file. Filters of jq that need one of them, such as `now`, `env` and `input`, do not exist.
//!
//! | you look for | read |
//! |---|---|
//! | the tool as JSON | [`tools`] |
//! | how a question is read and put | [`question`] |
//! | filters beyond those of the language itself | [`filters`] |
//! | how a result becomes JSON again | [`written`] |

pub mod filters;
#[cfg(target_arch = "wasm32")]
mod guest;
pub mod question;
pub mod tools;
pub mod written;
