//! A skill that fetches a page from a granted host and returns what a person would read of it.
//!
//! Guarantees: it asks for nothing but the page; a token is sent as a handle, whose value this program never sees; whatever the page is made
//! of, the answer is bounded, and the work grows with the length of the page alone.
//! Does not: run scripts, load what the page refers to, or fetch from hosts that were not granted. The host sees to the last.
//!
//! | you look for | read |
//! |---|---|
//! | the tool as JSON | [`tools`] |
//! | how bytes become text | [`charset`] |
//! | how a page becomes readable text | [`page`] |
//! | how links are resolved | [`link`] |

pub mod charset;
#[cfg(target_arch = "wasm32")]
mod guest;
pub mod link;
pub mod page;
pub mod tools;
