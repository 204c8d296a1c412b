//! What came of a call, whole, as people see it.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use palyra_api::call::{Call, CallState, Output, Receipt, Stream};
use palyra_types::visible::{visible, visible_block};
use serde_json::Value;

use crate::{
    exit::Exit,
    terminal::{BAD, BOLD, DIM, GOOD, Terminal, WAIT, shown},
};

/// Prints a call: what was proposed, what was decided, and what came of it.
pub(crate) fn call(call: &Call, terminal: &Terminal) {
    terminal.out_rows(headline(call, terminal));
    if let Some(proposed) = &call.proposed {
        let place = proposed.workspace.as_deref().map(|name| format!(" in {}", visible(name)));
        let way = proposed.channel.as_deref().map(|name| format!(" by {}", visible(name)));
        terminal.out(format!(
            "  proposed {} by {}{}{}",
            proposed.at,
            visible(&proposed.principal),
            place.unwrap_or_default(),
            way.unwrap_or_default()
        ));
        block("  arguments", &serde_json::to_string_pretty(&proposed.args).unwrap_or_default(), terminal);
    }
    if let Some(decided) = &call.decided {
        terminal.out_rows(format!(
            "  decided  {}  {}",
            terminal.verdict_word(&decided.verdict),
            shown(&decided.reason)
        ));
        for policy in &decided.policies {
            let place = terminal.paint(DIM, &format!("({})", visible(&policy.location)));
            terminal.out(format!("    {} {place}", terminal.paint(BOLD, &visible(&policy.id))));
        }
    }
    if let Some(approval) = call.approval {
        terminal.out(format!("  asked    {approval}"));
    }
    if let Some(refusal) = &call.refusal {
        terminal.out_rows(format!("  refused  {} ({})", shown(&refusal.message), visible(&refusal.code)));
        if let Some(help) = &refusal.help {
            terminal.out_rows(format!("           {}", shown(help)));
        }
    }
    output(call.output.as_ref(), terminal);
    for (number, line) in call.log.iter().enumerate() {
        let title = if number == 0 { "log" } else { "" };
        terminal.out_rows(format!("  {title:<8} {}: {}", visible(&line.level), shown(&line.message)));
    }
    if let Some(receipt) = &call.receipt {
        self::receipt(receipt, terminal);
    }
}

/// What a call came to, as an exit code.
pub(crate) fn exit(call: &Call) -> Exit {
    match (&call.refusal, &call.receipt) {
        (Some(refusal), _) => Exit::of_refusal(&refusal.code),
        (None, Some(receipt)) => match receipt.ending() {
            "completed" if could_not(receipt) => Exit::Failure,
            "completed" => Exit::Ok,
            "timed_out" => Exit::TimedOut,
            _ => Exit::Failure,
        },
        (None, None) => Exit::Ok,
    }
}

/// The bytes of a stream, as far as they are kept.
pub(crate) fn bytes(stream: &Stream) -> Vec<u8> {
    match stream.encoding.as_str() {
        "base64" => BASE64_STANDARD.decode(&stream.data).unwrap_or_else(|_| stream.data.clone().into_bytes()),
        _ => stream.data.clone().into_bytes(),
    }
}

/// How much of a stream was kept, and where that is set. What is left of a run's budget may be less than a call may keep.
pub(crate) fn kept(kept: u64, total: u64) -> String {
    format!(
        "only the first {kept} of {total} bytes were kept; the limit is `output_bytes` under [sandbox.limits] in config.toml, \
         or under [budget] for a whole run"
    )
}

/// How a process ended, in words.
pub(crate) fn ending(receipt: &Receipt) -> String {
    let how = match (receipt.exit_code(), receipt.signal()) {
        (Some(code), _) => format!(", exit code {code}"),
        (None, Some(signal)) => format!(", signal {signal}"),
        (None, None) => String::new(),
    };
    let detail = receipt.detail().map(|detail| format!(": {}", shown(detail)));
    let word = if could_not(receipt) { "failed" } else { receipt.ending() };
    format!("{}{how}{}", visible(word), detail.unwrap_or_default())
}

/// What proves that a call ran.
pub(crate) fn receipt(receipt: &Receipt, terminal: &Terminal) {
    terminal.out(format!("  receipt  record {}, hash {}", receipt.seq, receipt.hash));
    let text = |key: &str| receipt.attestation.get(key).and_then(|value| value.as_str()).map(visible);
    let layers = receipt.attestation.get("sandbox_enforcement").and_then(|value| value.as_array());
    if let Some(tier) = text("tier") {
        let layers: Vec<String> =
            layers.into_iter().flatten().filter_map(|layer| layer.as_str()).map(visible).collect();
        terminal.out(format!("           tier {tier}: {}", layers.join(", ")));
    }
    if let Some(skill) = receipt.attestation.get("skill").and_then(skill) {
        terminal.out(format!("           {skill}"));
    }
    if let Some(not) = text("not_enforced") {
        terminal.out(format!("           not enforced: {not}"));
    }
    for line in reasons(receipt) {
        terminal.out(format!("           {line}"));
    }
}

/// Which skill ran, whose it is, and what it used.
fn skill(attested: &Value) -> Option<String> {
    let text = |key: &str| attested.get(key).and_then(Value::as_str).map(visible);
    let signed = text("signed_by").map_or_else(|| "in development".to_owned(), |key| format!("signed with key {key}"));
    let named = format!("skill {} {}, {signed}", text("id")?, text("version")?);
    let Some(usage) = attested.get("usage") else { return Some(named) };
    let number = |key: &str| usage.get(key).and_then(Value::as_u64);
    let fuel = number("fuel").map(|fuel| format!("{fuel} units of fuel"));
    let memory = number("memory_bytes").map(|bytes| format!("{bytes} bytes of memory"));
    let asked = usage.get("host_calls").and_then(Value::as_object).into_iter().flatten();
    let times = |count: &Value| if count.as_u64() == Some(1) { "once".to_owned() } else { format!("{count} times") };
    let asked = asked.map(|(function, count)| format!("{} {}", visible(function), times(count)));
    let used: Vec<String> = fuel.into_iter().chain(memory).chain(asked).collect();
    Some(format!("{named}; used {}", used.join(", ")))
}

/// What the sandbox itself knows about why something did not work, and what to do about it.
pub(crate) fn reasons(receipt: &Receipt) -> Vec<String> {
    let told = receipt.attestation.get("reasons").and_then(|value| value.as_array());
    let text = |reason: &Value, key: &str| reason.get(key)?.as_str().map(shown);
    let line = |reason: &Value| {
        let help = text(reason, "help").filter(|help| !help.is_empty()).map(|help| format!("; {help}"));
        Some(format!("{}{}", text(reason, "message")?, help.unwrap_or_default()))
    };
    told.into_iter().flatten().filter_map(line).collect()
}

/// Whether a call that ran did not do what it was called for. Whoever stopped a call knows why it ended. A program's exit code is its own
/// affair, unless the sandbox knows of something that did not work for it.
pub(crate) fn has_failed(receipt: &Receipt) -> bool {
    let is_ill = receipt.signal().is_some() || receipt.exit_code().is_some_and(|code| code != 0);
    match receipt.ending() {
        "cancelled" => false,
        "completed" => could_not(receipt) || (is_ill && !reasons(receipt).is_empty()),
        _ => true,
    }
}

/// Whether a tool, a skill or a server behind the gateway ran to its end and says why it has not done what it was called for.
fn could_not(receipt: &Receipt) -> bool {
    receipt.ending() == "completed" && receipt.detail().is_some()
}

/// What to do about a call that failed: what the tool itself says, or what its ending calls for.
pub(crate) fn advice(call: &Call, receipt: &Receipt) -> Vec<String> {
    let told = match &call.output {
        Some(Output::Value { value }) => value.get("error").and_then(|error| error.get("help")?.as_str()).map(shown),
        _ => None,
    };
    let skill = receipt.attestation.get("skill").and_then(|skill| skill.get("id")?.as_str()).map(visible);
    let about = skill.as_ref().map(|id| format!("`palyra skills show {id}` shows its limits and what it may use"));
    let by_ending = match receipt.ending() {
        "timed_out" => "give it less to do, or raise `wall_ms` under [sandbox.limits] in config.toml",
        "limit_exceeded" => "give it less to do, or raise [sandbox.limits] in config.toml",
        "budget_spent" => "propose it in another run, or raise [budget] in config.toml",
        "not_started" => "`palyra doctor` shows what is missing here",
        "crashed" | "interrupted" => "look at the daemon's log, then propose it again",
        _ => "`palyra journal show CALL` shows everything about it",
    };
    // The sandbox's own reasons have their advice beside them, in the receipt.
    let is_told = told.is_some() || !reasons(receipt).is_empty();
    let own = (!is_told).then(|| by_ending.replace("CALL", &call.id.to_string()));
    told.into_iter().chain(own).chain(about).collect()
}

fn headline(call: &Call, terminal: &Terminal) -> String {
    let tool = call.proposed.as_ref().map_or("a call that was erased", |proposed| proposed.tool.as_str());
    let (glyph, style, word) = match (call.state, &call.refusal, &call.receipt) {
        (_, Some(_), _) => ("✖", BAD, "refused".to_owned()),
        (_, None, Some(receipt)) if receipt.ending() == "completed" && !could_not(receipt) => {
            ("✔", GOOD, ending(receipt))
        }
        (_, None, Some(receipt)) => ("✖", BAD, ending(receipt)),
        (CallState::Waiting, ..) => ("?", WAIT, "a person is asked".to_owned()),
        (CallState::Started, ..) => ("…", WAIT, "it runs".to_owned()),
        (CallState::Ended, ..) => ("✖", BAD, "it is over".to_owned()),
    };
    format!("{}  {}  {}", terminal.paint(style, &format!("{glyph} {word}")), terminal.paint(BOLD, tool), call.id)
}

/// What a call printed or answered.
pub(crate) fn output(output: Option<&Output>, terminal: &Terminal) {
    match output {
        Some(Output::Process { stdout, stderr, .. }) => {
            for (name, stream) in [("  stdout", stdout), ("  stderr", stderr)] {
                if stream.total == 0 {
                    continue;
                }
                let text = if stream.encoding == "utf-8" {
                    stream.data.clone()
                } else {
                    format!("{} bytes that are no text, in {}:\n{}", stream.total, stream.encoding, stream.data)
                };
                block(name, &text, terminal);
                if stream.truncated {
                    let kept = u64::try_from(bytes(stream).len()).unwrap_or(u64::MAX);
                    terminal.out(format!("    … {}", self::kept(kept, stream.total)));
                }
            }
        }
        Some(Output::Value { value }) => {
            block("  answer", &serde_json::to_string_pretty(value).unwrap_or_default(), terminal);
        }
        Some(Output::Nothing) | None => {}
    }
}

fn block(title: &str, text: &str, terminal: &Terminal) {
    terminal.out(terminal.paint(DIM, title));
    for line in visible_block(text).trim_end_matches('\n').split('\n') {
        terminal.out(format!("    {line}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn receipt(attestation: Value) -> Receipt {
        Receipt { attestation, note: String::new(), seq: 7, hash: palyra_types::Sha256Digest::of(b"record") }
    }

    #[test]
    fn a_call_has_failed_if_it_did_not_do_what_it_was_called_for() {
        let reasons = json!([{ "message": "it may not write there", "help": "write elsewhere" }]);
        for (attestation, expected) in [
            (json!({ "ending": "completed" }), false),
            (json!({ "ending": "cancelled", "detail": "somebody asked for it" }), false),
            (json!({ "ending": "completed", "exit_code": 1 }), false),
            (json!({ "ending": "completed", "exit_code": 0, "reasons": reasons }), false),
            (json!({ "ending": "completed", "exit_code": 1, "reasons": reasons }), true),
            (json!({ "ending": "completed", "signal": 31, "reasons": reasons }), true),
            (json!({ "ending": "completed", "detail": "there is no such file" }), true),
            (json!({ "ending": "limit_exceeded" }), true),
            (json!({ "ending": "interrupted" }), true),
        ] {
            assert_eq!(has_failed(&receipt(attestation.clone())), expected, "{attestation}");
        }
    }

    #[test]
    fn a_call_that_says_why_it_could_not_is_no_success() {
        let ended = |detail: Option<&str>| {
            let attestation = json!({ "ending": "completed", "detail": detail });
            let call = json!({
                "id": ID, "run": ID, "session": ID, "state": "ended", "first_seq": 1, "last_seq": 7,
                "receipt": { "attestation": attestation, "note": "", "seq": 7, "hash": palyra_types::Sha256Digest::of(b"record") },
            });
            let call: Call = serde_json::from_value(call).unwrap();
            let terminal = Terminal::detect(true);
            let headline = headline(&call, &terminal);
            (exit(&call), headline.contains("✔ completed"), headline.contains("✖ failed: no such issue"))
        };
        assert_eq!(ended(None), (Exit::Ok, true, false));
        assert_eq!(ended(Some("no such issue")), (Exit::Failure, false, true));
    }

    const ID: &str = "01J8ZK5V7Q3M4N5P6R7S8T9V0W";

    #[test]
    fn a_receipt_tells_which_skill_ran_and_what_it_used() {
        let usage = json!({ "metering": "fuel", "fuel": 7, "memory_bytes": 65_536, "host_calls": { "clock.now": 2 } });
        let attested = json!({ "id": "acme/hello", "version": "0.1.0", "signed_by": "AB12", "usage": usage });
        let told = "skill acme/hello 0.1.0, signed with key AB12; used 7 units of fuel, 65536 bytes of memory, clock.now 2 times";
        assert_eq!(skill(&attested).as_deref(), Some(told));
        let unsigned = json!({ "id": "acme/hello", "version": "0.1.0" });
        assert_eq!(skill(&unsigned).as_deref(), Some("skill acme/hello 0.1.0, in development"));
        assert_eq!(skill(&Value::Null), None);
    }
}
