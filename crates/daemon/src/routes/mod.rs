//! The routes, one file for each noun. Handlers translate; they do not think.
//!
//! A route cannot be served without being described: both come from the same line, and the description is `/openapi.json`.

mod approvals;
mod artifacts;
mod authority;
mod bindings;
mod calls;
mod compat;
mod console;
mod cron;
mod devices;
mod events;
mod flags;
mod gateway;
mod grants;
mod health;
mod hooks;
mod identity;
mod journal;
mod mcp;
mod members;
mod memory;
mod page;
mod policy;
mod postures;
mod publishers;
mod runs;
mod secrets;
mod sessions;
mod skills;
mod tokens;
mod tools;
mod vault;
mod workspaces;

pub(crate) use tools::all as all_tools;

use std::sync::Arc;

use axum::{Router, http::Uri, middleware, response::Response, routing::get};
use utoipa::{
    Modify, OpenApi,
    openapi::{
        self,
        security::{Http, HttpAuthScheme, SecurityScheme},
    },
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{app::App, authorise, edge, failure::Failure, reply::Reply};

/// Everything that is served.
pub fn router(app: Arc<App>) -> Router {
    let (router, description) = described();
    let description = Arc::new(description);
    router
        .route("/openapi.json", get(move || std::future::ready(Reply(Arc::clone(&description)))))
        // Everything above has a row in the table of rules, or answers nobody. What follows is the same for everybody.
        .route_layer(middleware::from_fn_with_state(Arc::clone(&app), authorise::pass))
        .merge(page::router())
        .fallback(nothing_there)
        .method_not_allowed_fallback(not_that_way)
        .layer(middleware::from_fn_with_state(Arc::clone(&app), edge::pass))
        .with_state(app)
}

/// The description of the API, as `/openapi.json` has it.
#[must_use]
pub fn description() -> openapi::OpenApi {
    described().1
}

fn described() -> (Router<Arc<App>>, openapi::OpenApi) {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .routes(routes!(identity::identity))
        .routes(routes!(calls::propose, calls::list))
        .routes(routes!(calls::show, calls::cancel))
        .routes(routes!(calls::explain))
        .routes(routes!(calls::replay))
        .routes(routes!(runs::open))
        .routes(routes!(runs::show))
        .routes(routes!(runs::stream))
        .routes(routes!(sessions::transcript))
        .routes(routes!(sessions::list))
        .routes(routes!(sessions::show))
        .routes(routes!(sessions::forget))
        .routes(routes!(approvals::list))
        .routes(routes!(approvals::unlock))
        .routes(routes!(approvals::show))
        .routes(routes!(approvals::approve))
        .routes(routes!(approvals::deny))
        .routes(routes!(grants::list))
        .routes(routes!(grants::end))
        .routes(routes!(tools::list))
        .routes(routes!(workspaces::list))
        .routes(routes!(postures::list, postures::set, postures::clear))
        .routes(routes!(policy::show))
        .routes(routes!(policy::reload))
        .routes(routes!(policy::replay))
        .routes(routes!(journal::head))
        .routes(routes!(journal::records))
        .routes(routes!(journal::record))
        .routes(routes!(journal::proof))
        .routes(routes!(journal::verify))
        .routes(routes!(journal::export))
        .routes(routes!(events::all))
        .routes(routes!(devices::list))
        .routes(routes!(devices::revoke))
        .routes(routes!(devices::pair))
        .routes(routes!(devices::pairing, devices::end_pairing))
        .routes(routes!(devices::confirm))
        .routes(routes!(devices::renew))
        .routes(routes!(authority::show))
        .routes(routes!(authority::rotate))
        .routes(routes!(tokens::list, tokens::mint))
        .routes(routes!(tokens::scopes))
        .routes(routes!(tokens::rotate))
        .routes(routes!(tokens::revoke))
        .routes(routes!(members::list))
        .routes(routes!(members::change, members::remove))
        .routes(routes!(members::invite))
        .routes(routes!(members::uninvite))
        .routes(routes!(members::roles))
        .routes(routes!(flags::list))
        .routes(routes!(flags::set))
        .routes(routes!(vault::status))
        .routes(routes!(secrets::list))
        .routes(routes!(secrets::show, secrets::put, secrets::remove))
        .routes(routes!(bindings::bind))
        .routes(routes!(bindings::unbind))
        .routes(routes!(vault::rotate))
        .routes(routes!(vault::unlock))
        .routes(routes!(vault::adopt))
        .routes(routes!(vault::export))
        .routes(routes!(vault::import))
        .routes(routes!(skills::list, skills::install))
        .routes(routes!(skills::inspect))
        .routes(routes!(skills::show, skills::remove))
        .routes(routes!(skills::grant))
        .routes(routes!(skills::quarantine, skills::release))
        .routes(routes!(publishers::list))
        .routes(routes!(publishers::pin))
        .routes(routes!(publishers::distrust))
        .routes(routes!(hooks::authorize))
        .routes(routes!(hooks::list))
        .routes(routes!(hooks::explain))
        .routes(routes!(hooks::claude_code))
        .routes(routes!(mcp::list))
        .routes(routes!(mcp::show, mcp::add, mcp::remove))
        .routes(routes!(mcp::pin))
        .routes(routes!(memory::list, memory::purge))
        .routes(routes!(memory::scopes))
        .routes(routes!(memory::delete))
        .routes(routes!(artifacts::list))
        .routes(routes!(artifacts::fetch, artifacts::delete))
        .routes(routes!(cron::list))
        .routes(routes!(cron::pause))
        .routes(routes!(cron::resume))
        .routes(routes!(cron::delete))
        .routes(routes!(compat::models))
        .routes(routes!(compat::model))
        .routes(routes!(compat::chat))
        .routes(routes!(compat::responses))
        .routes(routes!(compat::response, compat::delete_response))
        .routes(routes!(compat::input_items))
        .routes(routes!(compat::embeddings))
        .routes(routes!(gateway::listen, gateway::post, gateway::end))
        .routes(routes!(console::link))
        .routes(routes!(console::sign_in, console::sign_out))
        .split_for_parts()
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Palyra", description = "Decides, asks, executes and attests what AI agents propose."),
    modifiers(&Bearer),
    components(schemas(
        palyra_api::event::Event,
        palyra_api::event::OutputPiece,
        palyra_api::schema::ScopeText,
        palyra_api::schema::SecretNameText
    ))
)]
struct Description;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, description: &mut openapi::OpenApi) {
        let components = description.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
        let certificate = SecurityScheme::MutualTls {
            description: Some("The certificate of a paired device, on the control listener.".to_owned()),
            extensions: None,
            deprecated: None,
        };
        components.add_security_scheme("certificate", certificate);
    }
}

async fn nothing_there(uri: Uri) -> Response {
    use axum::response::IntoResponse;
    Failure::not_found(format!("there is nothing at {}", palyra_types::visible::visible(uri.path()))).into_response()
}

async fn not_that_way() -> Failure {
    authorise::not_that_way()
}
