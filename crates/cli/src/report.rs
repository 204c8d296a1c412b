//! How failures, findings and explanations look to people.

use palyra_api::{ErrorBody, ErrorDetail};
use palyra_policy::{Cause, Explanation, Finding, PolicyInfo, Verdict};
use palyra_types::visible::{visible, visible_block};
use serde::Serialize;

use crate::{
    failure::Failure,
    terminal::{BAD, BOLD, DIM, Terminal, WAIT},
};

/// A failure: the places first, then what, why and what next.
pub(crate) fn failure(failure: &Failure, terminal: &Terminal) {
    if terminal.json {
        #[derive(Serialize)]
        struct Form<'a> {
            #[serde(flatten)]
            body: ErrorBody,
            #[serde(skip_serializing_if = "<[Finding]>::is_empty")]
            findings: &'a [Finding],
        }
        let body = ErrorBody {
            error: ErrorDetail {
                code: failure.code.to_owned(),
                message: format!("{}: {}", failure.what, failure.cause),
                help: Some(failure.help.clone()),
                request_id: None,
                call: None,
            },
        };
        terminal.document("error", Form { body, findings: &failure.findings });
        return;
    }
    let has_places = failure.findings.iter().any(|finding| !finding.location.line_text.is_empty());
    if has_places || failure.findings.len() > 1 {
        // Each finding brings its own cause and help.
        for finding in &failure.findings {
            self::finding(finding, "error", terminal);
        }
        terminal.talk(format!("{} {}", terminal.paint_err(BAD, "error:"), failure.what));
        return;
    }
    terminal.talk(format!("{} {}", terminal.paint_err(BAD, "error:"), failure.what));
    terminal.talk(format!("{} {}", terminal.paint_err(BOLD, "cause:"), failure.cause));
    if !failure.help.is_empty() {
        terminal.talk(format!("{}  {}", terminal.paint_err(BOLD, "help:"), failure.help));
    }
}

/// A finding with the line it is about.
pub(crate) fn finding(finding: &Finding, severity: &str, terminal: &Terminal) {
    let place = &finding.location;
    let style = if severity == "error" { BAD } else { WAIT };
    terminal.talk(format!(
        "{}:{}:{}: {} {}",
        place.file,
        place.line,
        place.column,
        terminal.paint_err(style, &format!("{severity}:")),
        finding.problem
    ));
    if !place.line_text.is_empty() {
        let (number, text) = (place.line.to_string(), place.line_text.replace('\t', " "));
        let room = text.chars().count().saturating_sub(place.column - 1).max(1);
        let marks = "^".repeat(place.width.clamp(1, room));
        terminal.talk(format!(" {number} | {}", shorten(&visible(&text))));
        if place.column < MAX_LINE {
            let indent = " ".repeat(number.len() + 1);
            terminal.talk(format!(
                "{indent} | {}{}",
                " ".repeat(place.column - 1),
                terminal.paint_err(style, &shorten(&marks))
            ));
        }
    }
    terminal.talk(format!("   help: {}", finding.problem.advice()));
}

/// An explanation of one decision.
pub(crate) fn explanation(explanation: &Explanation, terminal: &Terminal) {
    let decision = &explanation.decision;
    let request = &explanation.request;
    terminal.out(format!(
        "{}  {} {} {}",
        terminal.verdict(decision.verdict),
        request.principal,
        terminal.paint(BOLD, request.action.as_str()),
        visible(&request.resource.to_string())
    ));
    match &decision.cause {
        Cause::Permitted { by } => policies("permitted by", by, terminal),
        Cause::NeedsApproval { by, held_by } => {
            policies("held back by", held_by, terminal);
            policies("permitted once approved by", by, terminal);
        }
        Cause::Forbidden { by } => policies("forbidden by", by, terminal),
        Cause::Contradictory { by } => policies("an approval would take it away", by, terminal),
        Cause::Failed { failures } => {
            for failure in failures {
                policies("could not be evaluated, so it denies", std::slice::from_ref(&failure.policy), terminal);
                terminal.out(format!("      {}", visible(&failure.message)));
            }
        }
        Cause::NotPermitted => terminal.out("    no policy permits it"),
        Cause::Malformed { error } => terminal.out(format!("    {}", visible(&error.to_string()))),
    }
    if !explanation.near_misses.is_empty() {
        terminal.out("    came close:");
        for miss in &explanation.near_misses {
            terminal.out(format!("      {} {}", miss.policy.id, place(&miss.policy, terminal)));
            terminal.out(format!("        requires  {}", miss.required));
            terminal.out(format!("        but       {}", miss.actual));
            if let Some(hint) = &miss.hint {
                terminal.out(format!("        so        {hint}"));
            }
        }
    }
    for change in &explanation.change {
        terminal.out(format!("    who can change that: {}", visible(change)));
    }
    if let Some(rule) = &explanation.suggestion {
        terminal.out(match decision.verdict {
            Verdict::Ask => "    a rule that stops the asking, for exactly this:",
            _ => "    the smallest rule that would permit exactly this:",
        });
        for line in visible_block(rule).lines() {
            terminal.out(format!("      {line}"));
        }
    }
}

fn policies(title: &str, policies: &[std::sync::Arc<PolicyInfo>], terminal: &Terminal) {
    for policy in policies {
        terminal.out(format!("    {title} {} {}", terminal.paint(BOLD, policy.id.as_str()), place(policy, terminal)));
        if let Some(why) = &policy.why {
            terminal.out(format!("      because {}", visible(why)));
        }
    }
}

fn place(policy: &PolicyInfo, terminal: &Terminal) -> String {
    terminal.paint(DIM, &format!("({})", policy.location))
}

/// Longest line of source that is shown whole.
const MAX_LINE: usize = 160;

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_LINE) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
