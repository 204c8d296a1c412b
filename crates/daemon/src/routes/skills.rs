//! `/api/v1/skills`: which skills are installed and what they may use; installs, grants, stops and removes them.
//!
//! Guarantees: a package is read, and anything changed, for those alone whom policy lets, and for nobody who is bound to some workspaces, because a
//! skill is there in all of them. The names of secrets are told to those who may see the secrets.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use palyra_api::{ErrorBody, schema, skill as told};
use palyra_gate::skills::{InstallOptions, Installation, InstalledSkill, SkillRefusal, SkillSnapshot};
use palyra_package::Grants;
use palyra_types::{Action, ObjectKind};

use crate::{
    app::App,
    caller::Caller,
    extract::{NamedSkill, Packed, Said},
    failure::Failure,
    oversight::{holds_everywhere, object},
    reply::{self, Reply},
    routes::secrets::reaches,
    skills::{self, Schemas},
};

/// The skills that are installed.
#[utoipa::path(get, path = "/api/v1/skills", tag = "skills", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = told::Skills), (status = "4XX", body = ErrorBody)))]
pub(super) async fn list(State(app): State<Arc<App>>, caller: Caller) -> Result<Reply<told::Skills>, Failure> {
    let installed = installed(&app, &caller)?;
    let skills =
        installed.skills().map(|skill| seen(&app, &caller, skill, Schemas::LeftOut)).collect::<Result<_, _>>()?;
    Ok(Reply(told::Skills { skills }))
}

/// One skill, with the schemas of its tools.
#[utoipa::path(get, path = "/api/v1/skills/{publisher}/{name}", tag = "skills",
    security(("bearer" = []), ("certificate" = [])),
    params(("publisher" = schema::PublisherText, Path), ("name" = schema::PublisherText, Path)),
    responses((status = 200, body = told::Skill), (status = "4XX", body = ErrorBody)))]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    NamedSkill(id): NamedSkill,
) -> Result<Reply<told::Skill>, Failure> {
    let installed = installed(&app, &caller)?;
    let skill = installed.get(&id).ok_or(SkillRefusal::Unknown(id))?;
    Ok(Reply(seen(&app, &caller, skill, Schemas::Told)?))
}

/// What installing a package would mean: what it is and asks for, who signed it, and what is new about it. Changes nothing.
#[utoipa::path(post, path = "/api/v1/skills/inspect", tag = "skills", security(("bearer" = []), ("certificate" = [])),
    request_body = told::NewSkill,
    responses((status = 200, body = told::SkillInspection), (status = "4XX", body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn inspect(
    State(app): State<Arc<App>>,
    caller: Caller,
    Packed { archive, said, turn }: Packed,
) -> Result<Reply<told::SkillInspection>, Failure> {
    holds_everywhere(&caller)?;
    let (gate, by) = (app.gate.clone(), caller.petitioner());
    let inspection = turn.keep(async move { gate.inspect_skill(archive, said.signature, &by).await }).await??;
    Ok(Reply(skills::inspected(inspection, app.gate.skills()?.publishers())?))
}

/// Installs a skill, or puts another version in its place. What it may use is what is said here, or else what it was granted before and still
/// asks for.
#[utoipa::path(post, path = "/api/v1/skills", tag = "skills", security(("bearer" = []), ("certificate" = [])),
    request_body = told::NewSkill,
    responses((status = 201, body = told::Skill), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn install(
    State(app): State<Arc<App>>,
    caller: Caller,
    Packed { archive, said, turn }: Packed,
) -> Result<Response, Failure> {
    holds_everywhere(&caller)?;
    let first = said.trust_on_first_use.as_deref().map(skills::key).transpose()?;
    let options = InstallOptions {
        trust_on_first_use: first,
        allow_downgrade: said.allow_downgrade,
        development: said.development,
    };
    let grants = said.grants.as_ref().map(skills::grants).transpose()?;
    let installation = Installation { archive, signature: said.signature, grants, options };
    let (gate, by) = (app.gate.clone(), caller.petitioner());
    let skill = turn.keep(async move { gate.install_skill(installation, &by).await }).await??;
    Ok(reply::json(StatusCode::CREATED, &seen(&app, &caller, &skill, Schemas::Told)?))
}

/// Says what a skill may use, instead of what was said before. Calls that wait or run hear of it.
#[utoipa::path(put, path = "/api/v1/skills/{publisher}/{name}/grants", tag = "skills",
    security(("bearer" = []), ("certificate" = [])),
    params(("publisher" = schema::PublisherText, Path), ("name" = schema::PublisherText, Path)),
    request_body = told::SkillGrants,
    responses((status = 200, body = told::Skill), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn grant(
    State(app): State<Arc<App>>,
    caller: Caller,
    NamedSkill(id): NamedSkill,
    Said { said, .. }: Said<told::SkillGrants>,
) -> Result<Reply<told::Skill>, Failure> {
    holds_everywhere(&caller)?;
    let skill = app.gate.grant_skill(&id, skills::grants(&said)?, &caller.petitioner()).await?;
    Ok(Reply(seen(&app, &caller, &skill, Schemas::Told)?))
}

/// Keeps a skill from running until somebody says otherwise, and stops it where it runs.
#[utoipa::path(post, path = "/api/v1/skills/{publisher}/{name}/quarantine", tag = "skills",
    security(("bearer" = []), ("certificate" = [])),
    params(("publisher" = schema::PublisherText, Path), ("name" = schema::PublisherText, Path)),
    request_body = told::QuarantineSkill,
    responses((status = 200, body = told::Skill), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn quarantine(
    State(app): State<Arc<App>>,
    caller: Caller,
    NamedSkill(id): NamedSkill,
    Said { said, .. }: Said<told::QuarantineSkill>,
) -> Result<Reply<told::Skill>, Failure> {
    holds_everywhere(&caller)?;
    let skill = app.gate.quarantine_skill(&id, &said.reason, &caller.petitioner()).await?;
    Ok(Reply(seen(&app, &caller, &skill, Schemas::Told)?))
}

/// Lets a skill run again.
#[utoipa::path(delete, path = "/api/v1/skills/{publisher}/{name}/quarantine", tag = "skills",
    security(("bearer" = []), ("certificate" = [])),
    params(("publisher" = schema::PublisherText, Path), ("name" = schema::PublisherText, Path)),
    responses((status = 200, body = told::Skill), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn release(
    State(app): State<Arc<App>>,
    caller: Caller,
    NamedSkill(id): NamedSkill,
) -> Result<Reply<told::Skill>, Failure> {
    holds_everywhere(&caller)?;
    let skill = app.gate.release_skill(&id, &caller.petitioner()).await?;
    Ok(Reply(seen(&app, &caller, &skill, Schemas::Told)?))
}

/// Removes a skill and everything that it kept, and stops it where it runs.
#[utoipa::path(delete, path = "/api/v1/skills/{publisher}/{name}", tag = "skills",
    security(("bearer" = []), ("certificate" = [])),
    params(("publisher" = schema::PublisherText, Path), ("name" = schema::PublisherText, Path)),
    responses((status = 204), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller,
    NamedSkill(id): NamedSkill,
) -> Result<StatusCode, Failure> {
    holds_everywhere(&caller)?;
    app.gate.remove_skill(&id, &caller.petitioner()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What is installed. Why skills are closed may name files, which is not for agents.
fn installed(app: &App, caller: &Caller) -> Result<Arc<SkillSnapshot>, Failure> {
    app.gate.skills().map_err(|refusal| match refusal {
        SkillRefusal::Closed(_) if caller.is_agent() => {
            Failure::new("skills_closed", "skills are closed", "ask whoever looks after the daemon")
        }
        refusal => refusal.into(),
    })
}

/// A skill as somebody may see it.
// SECURITY: agents see which skills there are, and no secret's name; what a skill is granted names secrets.
fn seen(app: &App, caller: &Caller, skill: &InstalledSkill, schemas: Schemas) -> Result<told::Skill, Failure> {
    let sees_secrets = caller.may(app, Action::VaultList, object(ObjectKind::Daemon)?).is_ok();
    let mut grants = Grants::clone(&skill.grants);
    grants.secrets.retain(|_, secret| sees_secrets && reaches(caller, secret));
    skills::told(skill, &grants, &app.gate.config().skills, schemas)
}
