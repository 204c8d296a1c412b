//! `/v1/…`: models, chat, responses and embeddings, as clients of other products ask for them.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::Response,
};
use palyra_api::compat::{AskedOfModel, ItemQuery};
use palyra_provider::Endpoint;
use serde_json::{Map, Value, json};

use crate::{
    app::App,
    caller::Caller,
    compat::{
        chat as chats,
        naming::{self, Meant},
        passing, responses as answers,
        standing::{Standing, switched_on},
        stored::{self, Slice},
    },
    extract::{Asked, Heard},
    failure::Failure,
    reply::Reply,
};

/// The models there are: agents, and those of providers.
#[utoipa::path(get, path = "/v1/models", tag = "compat", security(("bearer" = [])),
    responses((status = 200, body = Object), (status = "4XX", body = Object)))]
pub(super) async fn models(State(app): State<Arc<App>>, _: Caller) -> Result<Reply<Value>, Failure> {
    switched_on(&app)?;
    let all: Vec<Value> = naming::all(&app).into_iter().map(|(id, owner)| told(&id, &owner)).collect();
    Ok(Reply(json!({ "object": "list", "data": all })))
}

/// One model.
#[utoipa::path(get, path = "/v1/models/{id}", tag = "compat", security(("bearer" = [])),
    params(("id" = String, Path)),
    responses((status = 200, body = Object), (status = "4XX", body = Object)))]
pub(super) async fn model(
    State(app): State<Arc<App>>,
    _: Caller,
    Path(id): Path<String>,
) -> Result<Reply<Value>, Failure> {
    switched_on(&app)?;
    Meant::by(&app, &id)?;
    let owner = naming::all(&app).into_iter().find(|(name, _)| *name == id).map(|(_, owner)| owner);
    Ok(Reply(told(&id, owner.as_deref().unwrap_or("provider"))))
}

/// A chat with a model or an agent.
#[utoipa::path(post, path = "/v1/chat/completions", tag = "compat", security(("bearer" = [])), request_body = AskedOfModel,
    responses((status = 200, content((Object = "application/json"), (String = "text/event-stream"))),
        (status = "4XX", body = Object), (status = "5XX", body = Object)))]
pub(super) async fn chat(
    State(app): State<Arc<App>>,
    caller: Standing,
    Heard(said): Heard,
) -> Result<Response, Failure> {
    match meant(&app, &said)? {
        Meant::Agent(agent) => chats::answer(&app, &caller, agent, said).await,
        Meant::Model(model) => passing::pass(&app, &caller, (&model, Endpoint::ChatCompletions), said).await,
    }
}

/// A response of a model or an agent.
#[utoipa::path(post, path = "/v1/responses", tag = "compat", security(("bearer" = [])), request_body = AskedOfModel,
    responses((status = 200, content((Object = "application/json"), (String = "text/event-stream"))),
        (status = "4XX", body = Object), (status = "5XX", body = Object)))]
pub(super) async fn responses(
    State(app): State<Arc<App>>,
    caller: Standing,
    Heard(said): Heard,
) -> Result<Response, Failure> {
    match meant(&app, &said)? {
        Meant::Agent(agent) => answers::answer(&app, &caller, agent, said).await,
        Meant::Model(model) => passing::pass(&app, &caller, (&model, Endpoint::Responses), said).await,
    }
}

/// A response of an agent that was kept.
#[utoipa::path(get, path = "/v1/responses/{id}", tag = "compat", security(("bearer" = [])), params(("id" = String, Path)),
    responses((status = 200, body = Object), (status = "4XX", body = Object), (status = "5XX", body = Object)))]
pub(super) async fn response(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Reply<Value>, Failure> {
    switched_on(&app)?;
    Ok(Reply(stored::response(&app, &caller, &id).await?))
}

/// Deletes a response of an agent that was kept.
#[utoipa::path(delete, path = "/v1/responses/{id}", tag = "compat", security(("bearer" = [])), params(("id" = String, Path)),
    responses((status = 200, body = Object), (status = "4XX", body = Object), (status = "5XX", body = Object)))]
pub(super) async fn delete_response(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Reply<Value>, Failure> {
    switched_on(&app)?;
    Ok(Reply(stored::delete(&app, &caller, &id).await?))
}

/// What was sent with a response of an agent that was kept.
#[utoipa::path(get, path = "/v1/responses/{id}/input_items", tag = "compat", security(("bearer" = [])),
    params(("id" = String, Path), ItemQuery),
    responses((status = 200, body = Object), (status = "4XX", body = Object), (status = "5XX", body = Object)))]
pub(super) async fn input_items(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Asked(query): Asked<ItemQuery>,
) -> Result<Reply<Value>, Failure> {
    switched_on(&app)?;
    let limit = match query.limit.unwrap_or(DEFAULT_ITEMS) {
        limit @ 1..=100 => usize::from(limit),
        _ => return Err(Failure::bad_request("`limit` is 1 to 100")),
    };
    let ascends = match query.order.as_deref() {
        None | Some("desc") => false,
        Some("asc") => true,
        Some(_) => return Err(Failure::bad_request("`order` is neither `asc` nor `desc`")),
    };
    Ok(Reply(stored::sent(&app, &caller, (&id, Slice { after: query.after, limit, ascends })).await?))
}

/// Embeddings of a model.
#[utoipa::path(post, path = "/v1/embeddings", tag = "compat", security(("bearer" = [])), request_body = AskedOfModel,
    responses((status = 200, body = Object), (status = "4XX", body = Object), (status = "5XX", body = Object)))]
pub(super) async fn embeddings(
    State(app): State<Arc<App>>,
    caller: Standing,
    Heard(said): Heard,
) -> Result<Response, Failure> {
    match meant(&app, &said)? {
        Meant::Agent(_) => Err(Failure::bad_request("an agent has no embeddings; name a model of a provider")),
        Meant::Model(model) => passing::pass(&app, &caller, (&model, Endpoint::Embeddings), said).await,
    }
}

fn meant(app: &App, said: &Map<String, Value>) -> Result<Meant, Failure> {
    switched_on(app)?;
    match said.get("model").and_then(Value::as_str) {
        Some(name) => Meant::by(app, name),
        None => Err(Failure::bad_request("`model` is missing, or no text")),
    }
}

fn told(id: &str, owner: &str) -> Value {
    json!({ "id": id, "object": "model", "created": 0, "owned_by": owner })
}

/// How many items are told unless a client says.
const DEFAULT_ITEMS: u8 = 20;
