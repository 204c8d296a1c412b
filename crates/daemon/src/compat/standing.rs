//! Whether whoever was let in to the facade still is.
//!
//! Guarantees: what goes on for long, the loop of an agent or a stream that is passed on, goes on while the facade is on, the credential
//! counts and has the scope that let it in, and no longer; whoever is stopped learns which of these it was.
//! Does not: let anybody in. [`authorise`] does.

use std::sync::Arc;

use axum::{extract::FromRequestParts, http::request::Parts};
use palyra_access::{FeatureFlag, Scope};

use crate::{app::App, authorise, caller::Caller, failure::Failure, rules::Needs, streams};

/// Somebody who was let in to a route of the facade.
#[derive(Clone)]
pub struct Standing {
    app: Arc<App>,
    caller: Caller,
    /// The scopes of which a token needs one.
    scopes: &'static [Scope],
}

impl FromRequestParts<Arc<App>> for Standing {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let needs = parts.extensions.get::<Needs>();
        let needs =
            needs.ok_or_else(|| Failure::internal("a handler was reached without a rule that lets anybody in"))?;
        Ok(Self { app: Arc::clone(app), caller, scopes: needs.scopes })
    }
}

impl Standing {
    /// Them, as they were let in.
    #[must_use]
    pub const fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Them, as they stand now.
    ///
    /// # Errors
    /// When they would not be let in any more.
    pub fn now(&self) -> Result<Caller, Failure> {
        switched_on(&self.app)?;
        let Some(now) = self.caller.now(&self.app) else {
            let ran_out = self.caller.until.is_some_and(|until| until <= self.app.clock.now());
            let (code, what) =
                if ran_out { ("expired", "has run out") } else { ("revoked", "does not count any more") };
            let message = format!("the {} that this was asked with {what}", self.caller.shown.as_str());
            return Err(Failure::new(code, message, "ask again with another one"));
        };
        authorise::check_scope(&self.app, &now, self.scopes)?;
        Ok(now)
    }

    /// Waits until they would not be let in any more, and says why.
    pub async fn over(&self) -> Failure {
        streams::until_refused(&self.app, || self.now().map(drop)).await
    }
}

/// Nobody is served while the facade is off, whatever they show.
///
/// # Errors
/// When it is off.
pub fn switched_on(app: &App) -> Result<(), Failure> {
    match app.access.snapshot().state().is_on(FeatureFlag::CompatApi) {
        true => Ok(()),
        false => Err(Failure::new(
            "feature_off",
            "the routes for clients of other products are off",
            "an owner or admin switches them on: `palyra access flags set compat_api on`",
        )),
    }
}
