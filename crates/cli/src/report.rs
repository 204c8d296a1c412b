//! How failures, findings and explanations look to people.

use palyra_api::{
    ErrorBody, ErrorDetail,
    policy::{Explanation, NearMiss, Reason},
};
use palyra_policy::Finding;
use palyra_types::visible::{visible, visible_block};
use serde::Serialize;

use crate::{
    failure::Failure,
    terminal::{BAD, BOLD, DIM, Terminal, WAIT, shown},
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
                code: failure.code.clone().into_owned(),
                message: format!("{}: {}", failure.what, failure.cause),
                help: Some(failure.help.clone()),
                request_id: None,
                call: failure.call,
                param: None,
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
    failure_to(failure, &mut |line| terminal.talk(line), terminal);
}

/// The three lines of a failure, wherever they go.
pub(crate) fn failure_to(failure: &Failure, show: &mut dyn FnMut(&str), terminal: &Terminal) {
    show(&format!("{} {}", terminal.paint_err(BAD, "error:"), failure.what));
    show(&format!("{} {}", terminal.paint_err(BOLD, "cause:"), failure.cause));
    if !failure.help.is_empty() {
        show(&format!("{}  {}", terminal.paint_err(BOLD, "help:"), failure.help));
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
    terminal.out(format!(
        "{}  {} {} {}",
        terminal.verdict_word(&explanation.verdict),
        visible(&explanation.principal),
        terminal.paint(BOLD, &visible(&explanation.action)),
        shown(&explanation.resource)
    ));
    for reason in &explanation.reasons {
        self::reason(reason, terminal);
    }
    if !explanation.near_misses.is_empty() {
        terminal.out("    came close:");
        for miss in &explanation.near_misses {
            near_miss(miss, terminal);
        }
    }
    for change in &explanation.change {
        terminal.out(format!("    who can change that: {}", visible(change)));
    }
    if let Some(rule) = &explanation.suggestion {
        terminal.out(match explanation.verdict.as_str() {
            "ask" => "    a rule that stops the asking, for exactly this:",
            _ => "    the smallest rule that would permit exactly this:",
        });
        for line in visible_block(rule).lines() {
            terminal.out(format!("      {line}"));
        }
    }
}

/// One reason, and where it stands.
pub(crate) fn reason(reason: &Reason, terminal: &Terminal) {
    let policy = reason.policy.as_deref().map(|policy| format!(" {}", terminal.paint(BOLD, &visible(policy))));
    let place = reason.location.as_deref().map(|location| format!(" {}", place(location, terminal)));
    let title = shown(&reason.title);
    terminal.out(format!("    {title}{}{}", policy.unwrap_or_default(), place.unwrap_or_default()));
    if let Some(why) = &reason.why {
        terminal.out(format!("      because {}", visible(why)));
    }
}

fn near_miss(miss: &NearMiss, terminal: &Terminal) {
    terminal.out(format!("      {} {}", shown(&miss.policy), place(&miss.location, terminal)));
    terminal.out(format!("        requires  {}", shown(&miss.required)));
    terminal.out(format!("        but       {}", shown(&miss.actual)));
    if let Some(hint) = &miss.hint {
        terminal.out(format!("        so        {}", shown(hint)));
    }
}

fn place(location: &str, terminal: &Terminal) -> String {
    terminal.paint(DIM, &format!("({})", shown(location)))
}

/// Longest line of source that is shown whole.
const MAX_LINE: usize = 160;

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_LINE) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
