//! `palyra tokens scopes`: what tokens can be used for, in sentences.

use palyra_api::token::TokenScope;
use palyra_client::Client;
use palyra_types::visible::visible;

use crate::{
    Outcome,
    exit::Exit,
    terminal::{BOLD, DIM, Terminal},
};

pub(super) async fn run(daemon: &Client, terminal: &Terminal) -> Outcome {
    let scopes = daemon.scopes().await?;
    if terminal.json {
        terminal.document("scopes", &scopes);
        return Ok(Exit::Ok);
    }
    for scope in &scopes.scopes {
        terminal.out(terminal.paint(BOLD, &visible(&scope.name)));
        terminal.out_rows(format!("    {}", visible(&scope.about)));
        terminal.out_rows(terminal.paint(DIM, &format!("    {}", terms(scope))));
    }
    Ok(Exit::Ok)
}

/// Who can hold it, and what it takes.
fn terms(scope: &TokenScope) -> String {
    let suits: Vec<String> = scope.suits.iter().map(|kind| visible(kind)).collect();
    let mut terms = vec![format!("for {}", suits.join(", "))];
    terms.extend(scope.needs.map(|role| format!("minted by {role} or above")));
    terms.extend(scope.feature.as_deref().map(|flag| format!("needs the flag {} to be on", visible(flag))));
    terms.join(" · ")
}
