//! What the host calls, and what it is asked: the world `palyra:skill`, joined to [`crate::tools`].

use bindings::{
    Guest,
    palyra::skill::{
        http, log, secrets,
        types::{Failure, Refusal as HostRefusal},
    },
};

use crate::tools::{self, Fetched, Outside, Refusal, Request};

#[allow(unsafe_code, unused_qualifications, missing_docs, clippy::all, clippy::restriction, reason = "it is generated")]
mod bindings {
    wit_bindgen::generate!({ path: "../wit", world: "skill", pub_export_macro: true });
}

struct WebExtract;

impl Guest for WebExtract {
    fn run(tool: String, input: String) -> Result<String, Failure> {
        tools::run(&tool, &input, &mut Host)
            .map_err(|refused| Failure { code: refused.code().to_owned(), message: refused.to_string() })
    }
}

struct Host;

impl Outside for Host {
    fn fetch(&mut self, request: &Request) -> Result<Fetched, Refusal> {
        let request = http::Request {
            method: "GET".to_owned(),
            url: request.url.clone(),
            headers: request.headers.clone(),
            body: None,
            max_bytes: Some(request.max_bytes),
            timeout_ms: Some(request.timeout_ms),
            follow_redirects: true,
        };
        let http::Response { status, url, headers, body, truncated } = http::fetch(&request).map_err(told)?;
        Ok(Fetched { status, url, headers, body, truncated })
    }

    fn handle(&mut self, secret: &str) -> Result<String, Refusal> {
        secrets::handle(secret).map_err(told)
    }

    fn log(&mut self, line: &str) {
        log::write(log::Level::Info, line);
    }
}

fn told(refusal: HostRefusal) -> Refusal {
    let (kind, message) = match refusal {
        HostRefusal::Denied(message) => ("denied", message),
        HostRefusal::Absent(message) => ("absent", message),
        HostRefusal::TooLarge(message) => ("too-large", message),
        HostRefusal::Invalid(message) => ("invalid", message),
        HostRefusal::Failed(message) => ("failed", message),
    };
    Refusal { kind, message }
}

#[allow(unsafe_code, reason = "the names of exports are given by the world")]
mod exported {
    use super::{WebExtract, bindings};

    bindings::export!(WebExtract with_types_in bindings);
}
