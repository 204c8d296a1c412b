//! The facade that clients of other products speak: models, chat, responses and embeddings, and the loop behind agent models.
//!
//! Guarantees: a model that is passed through is proxied and nothing else; whatever an agent model wants to do goes through the gate like any
//! call, with the credential that asked and never with more; a refusal is told to the model as final; nobody but a person answers a
//! question, whatever a client sends. What comes from a provider is checked before it is passed on, and bounded.
//! Does not: go on with chats by itself, which clients send whole each time; responses can be continued.
//!
//! | you look for | read |
//! |---|---|
//! | which model a name means | [`naming`] |
//! | proxying | [`passing`], [`upstream`], [`key`] |
//! | what is read of what providers send | [`chunk`], [`lenient`] |
//! | the loop of an agent model | [`looping`], [`turn`], [`offering`] |
//! | how it is told to clients of chats | [`chat`] |
//! | and of responses, and what those ask | [`responses`], [`wanted`] |
//! | responses that are kept | [`stored`] |
//! | errors in their shape | [`failing`] |
//! | how long what goes on may go on | [`standing`] |

pub mod chat;
pub mod chunk;
pub mod failing;
pub mod key;
pub mod lenient;
pub mod looping;
pub mod naming;
pub mod offering;
pub mod passing;
pub mod responses;
pub mod standing;
pub mod stored;
pub mod telling;
pub mod turn;
pub mod upstream;
pub mod wanted;
