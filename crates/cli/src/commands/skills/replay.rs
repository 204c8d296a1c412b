//! `palyra skills replay`: runs a call of a skill once more, from what was recorded about it.

use clap::Args;
use palyra_api::skill::Replayed;
use palyra_client::Client;
use palyra_types::{id::CallId, visible::visible_block};

use super::words::field;
use crate::{
    Outcome,
    exit::Exit,
    terminal::{BAD, GOOD, Terminal},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplayArgs {
    /// The call, by its id.
    call: CallId,
}

pub(super) async fn run(args: &ReplayArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let replayed = daemon.replay_call(args.call).await?;
    let exit = exit(&replayed);
    if terminal.json {
        terminal.document("skill.replay", &replayed);
        return Ok(exit);
    }
    let asked = match replayed.host_calls {
        0 => "it asked nothing of the host".to_owned(),
        1 => "1 question to the host was answered from the recording".to_owned(),
        count => format!("{count} questions to the host were answered from the recording"),
    };
    match replayed.same {
        true => terminal.out(format!("{} came out; {asked}", terminal.paint(GOOD, "✔ the same"))),
        false => terminal.out(format!("{} came out; {asked}", terminal.paint(BAD, "✖ something else"))),
    }
    field("attested", &replayed.attested.to_string(), terminal);
    let now = replayed.replayed.map_or_else(|| "nothing".to_owned(), |digest| digest.to_string());
    field("now", &now, terminal);
    let output = serde_json::to_string_pretty(&replayed.output).unwrap_or_default();
    visible_block(&output).lines().for_each(|line| terminal.out(format!("    {line}")));
    Ok(exit)
}

/// Whether what was attested then holds.
const fn exit(replayed: &Replayed) -> Exit {
    if replayed.same { Exit::Ok } else { Exit::Unverified }
}

const EXAMPLES: &str = "\
Examples:
  palyra skills replay 01JD2Z0Q7R8M4N6P5S3T1V9W2X
  palyra journal tail                                shows the ids of calls";

#[cfg(test)]
mod tests {
    use palyra_types::Sha256Digest;

    use super::*;

    #[test]
    fn something_else_than_was_attested_is_not_verified() {
        let digest = |text: &str| Sha256Digest::of(text.as_bytes());
        let replayed = |same, now| Replayed {
            same,
            attested: digest("then"),
            replayed: now,
            output: serde_json::Value::Null,
            host_calls: 0,
        };
        assert_eq!(exit(&replayed(true, Some(digest("then")))).code(), 0);
        assert_eq!(exit(&replayed(false, Some(digest("now")))).code(), 7);
        assert_eq!(exit(&replayed(false, None)).code(), 7);
    }
}
