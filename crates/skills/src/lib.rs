//! Tier A: runs skills in WebAssembly, with what they were granted and nothing else.
//!
//! Guarantees: a call has a store of its own and what the host gives it, nothing else of the machine; every limit ends it with an error of its
//! own; what was compiled here, and nobody changed since, is what runs.
//! Does not: decide whether a skill may run, or reach files, hosts and secrets itself. A [`host::SkillHost`] does, which the gate implements.
//!
//! | you look for | read |
//! |---|---|
//! | what a skill can ask of the machine | [`host`] |
//! | how a call ends | [`outcome`] |
//! | how a call runs | [`engine`], then `running` |
//! | where it runs | `pools`, `briefness`, `metered` and `ticker` |
//! | what it can import | `linking` |
//! | how it is compiled and kept | [`compile`], [`artifact`], `configuration` |
//! | how it is run again | [`recording`] |
//! | which skills are installed | [`store`] |
//! | what a skill keeps for later | [`kv`] |

pub mod artifact;
mod briefness;
pub mod compile;
mod configuration;
pub mod engine;
pub mod host;
pub mod kv;
mod ledger;
mod limiter;
mod linking;
mod loading;
mod metered;
pub mod outcome;
mod pools;
pub mod recording;
mod running;
mod state;
pub mod store;
mod task;
mod ticker;
