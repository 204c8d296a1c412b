//! What a server says, shortened for people, without the secrets that it was sent.
//!
//! Guarantees: a text is rid of secrets before it is cut, so that no part of one is left where it is cut.
//! Does not: know any secret. Whoever leases them for requests finds them.

use std::sync::Arc;

use palyra_types::visible::visible;

use crate::http::Credentials;

/// Takes secrets out of what one server says. A server on pipes is sent none.
#[derive(Clone, Default)]
pub(crate) struct Hiding(Option<Arc<dyn Credentials>>);

impl Hiding {
    /// Takes out what requests are sent with.
    pub(crate) fn of(credentials: Arc<dyn Credentials>) -> Self {
        Self(Some(credentials))
    }

    /// The beginning of a text, with what is hidden in it made visible.
    pub(crate) fn shortened(&self, text: &str, most: usize) -> String {
        match &self.0 {
            Some(credentials) => visible(&cut(&credentials.hide(text), most)),
            None => visible(&cut(text, most)),
        }
    }
}

/// The beginning of a text that holds no secret any more.
pub(crate) fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}
