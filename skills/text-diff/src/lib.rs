//! A skill that compares two texts, and applies a unified diff to one.
//!
//! Guarantees: the answer depends on the input alone; what `diff` writes, `patch` applies; a diff that does not fit changes nothing, and the
//! failure names the hunk.
//! Does not: read or write files, or guess. A hunk may have moved, but each of its lines has to be there.
//!
//! | you look for | read |
//! |---|---|
//! | the two tools as JSON | [`tools`] |
//! | how texts are compared | [`compare`] |
//! | how a diff is read | [`hunk`] |
//! | how it is applied | [`apply`] |

pub mod apply;
pub mod compare;
#[cfg(target_arch = "wasm32")]
mod guest;
pub mod hunk;
pub mod line;
pub mod tools;
