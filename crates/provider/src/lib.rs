//! How the daemon talks to servers of models that speak like OpenAI's: OpenAI itself, Ollama, vLLM.
//!
//! Guarantees: a request ends, with an answer or an error, within the times that are configured; what is sent again is sent again only
//! before anything of an answer was passed on; a key goes to the configured address and nowhere else, and is in no message; no
//! redirection is followed; an answer is held in memory only up to a limit.
//! Does not: decide who may ask for which model, read what is asked or answered, or look up keys. The daemon does.
//!
//! | you look for | read |
//! |---|---|
//! | what is configured | [`ProviderSection`], [`BaseUrl`], [`ProviderName`], [`ModelName`] |
//! | which provider a model is at, and who comes next | [`Providers`] |
//! | one request to one provider | [`Provider`], [`Request`], [`Key`] |
//! | what comes back | [`Answer`], [`AnswerBody`] |
//! | why nothing comes back | [`ProviderError`], [`RouteError`] |
//! | what is sent again, and when | [`Backoff`], [`BreakerState`] |
//! | streams of events | [`sse`] |
//! | whose certificates are trusted | [`Trust`] |

mod answer;
mod base_url;
mod breaker;
mod client;
pub mod config;
mod connect;
mod diagnosis;
mod error;
mod key;
mod name;
mod retry;
mod route;
pub mod sse;
mod trust;

pub use answer::{Answer, AnswerBody};
pub use base_url::{BaseUrl, BaseUrlError};
pub use breaker::BreakerState;
pub use client::{Endpoint, Provider, Request, World};
pub use config::{ProviderSection, SectionError, Settings};
pub use error::{Phase, ProviderError, Said};
pub use key::{Key, KeyError};
pub use name::{ModelName, ProviderName, WordError};
pub use retry::Backoff;
pub use route::{AllFailed, Answered, Ask, Candidate, Failure, Keys, Providers, RouteError, Unknown, Unusable};
pub use trust::{Trust, TrustError};
