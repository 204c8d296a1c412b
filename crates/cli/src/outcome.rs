//! What came of a call, whole, as people see it.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use palyra_api::call::{Call, CallState, Output, Receipt, Stream};
use palyra_types::visible::{visible, visible_block};

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
    if let Some(receipt) = &call.receipt {
        self::receipt(receipt, terminal);
    }
}

/// What a call came to, as an exit code.
pub(crate) fn exit(call: &Call) -> Exit {
    match (&call.refusal, &call.receipt) {
        (Some(refusal), _) => Exit::of_refusal(&refusal.code),
        (None, Some(receipt)) => match receipt.ending() {
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
    format!("{}{how}{}", visible(receipt.ending()), detail.unwrap_or_default())
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
    if let Some(not) = text("not_enforced") {
        terminal.out(format!("           not enforced: {not}"));
    }
    for line in reasons(receipt) {
        terminal.out(format!("           {line}"));
    }
}

/// What the sandbox itself knows about why something did not work, and what to do about it.
pub(crate) fn reasons(receipt: &Receipt) -> Vec<String> {
    let told = receipt.attestation.get("reasons").and_then(|value| value.as_array());
    let text = |reason: &serde_json::Value, key: &str| reason.get(key)?.as_str().map(shown);
    let line = |reason: &serde_json::Value| {
        let help = text(reason, "help").filter(|help| !help.is_empty()).map(|help| format!("; {help}"));
        Some(format!("{}{}", text(reason, "message")?, help.unwrap_or_default()))
    };
    told.into_iter().flatten().filter_map(line).collect()
}

fn headline(call: &Call, terminal: &Terminal) -> String {
    let tool = call.proposed.as_ref().map_or("a call that was erased", |proposed| proposed.tool.as_str());
    let (glyph, style, word) = match (call.state, &call.refusal, &call.receipt) {
        (_, Some(_), _) => ("✖", BAD, "refused".to_owned()),
        (_, None, Some(receipt)) if receipt.ending() == "completed" => ("✔", GOOD, ending(receipt)),
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
