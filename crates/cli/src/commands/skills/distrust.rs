//! `palyra skills distrust`: a key speaks for a publisher no more.

use clap::Args;
use palyra_api::skill::Skill;
use palyra_client::Client;
use palyra_package::PublisherName;
use palyra_types::{SkillId, visible::visible};

use crate::{
    Outcome,
    exit::Exit,
    terminal::{GOOD, Terminal, shown},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DistrustArgs {
    /// The publisher.
    publisher: PublisherName,
    /// The id of the key, as `palyra skills publishers` or `minisign` shows it.
    #[arg(value_parser = whole_id)]
    key_id: String,
}

pub(super) async fn run(args: &DistrustArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    daemon.distrust_key(args.publisher.as_str(), &args.key_id).await?;
    let signed =
        |skill: &Skill| skill.publisher == args.publisher.as_str() && skill.signed_by.as_ref() == Some(&args.key_id);
    let stopped: Vec<SkillId> =
        daemon.skills().await?.skills.into_iter().filter(signed).map(|skill| skill.id).collect();
    if terminal.json {
        let told = serde_json::json!({ "publisher": args.publisher, "key_id": args.key_id, "quarantined": stopped });
        terminal.document("skill.distrusted", told);
        return Ok(Exit::Ok);
    }
    let (publisher, key) = (&args.publisher, visible(&args.key_id));
    terminal.out(format!("{} key {key} speaks for {publisher} no more", terminal.paint(GOOD, "✔")));
    match stopped.as_slice() {
        [] => terminal.talk("nothing that is installed was signed with it"),
        stopped => {
            let ids: Vec<String> = stopped.iter().map(|id| shown(id.as_str())).collect();
            terminal.out(format!("in quarantine now, because the key signed it: {}", ids.join(", ")));
            terminal
                .talk("`palyra skills remove ID` removes it; it can be released only once its key is trusted again");
        }
    }
    Ok(Exit::Ok)
}

/// An id in the one way that it is spelt here. Minisign leaves out zeros at its beginning.
fn whole_id(text: &str) -> Result<String, &'static str> {
    let is_one = (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_one
        .then(|| format!("{:0>16}", text.to_ascii_uppercase()))
        .ok_or("an id of a key is up to 16 digits and letters from A to F")
}

const EXAMPLES: &str = "\
Examples:
  palyra skills publishers
  palyra skills distrust acme E7620F1842B4E81F";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_taken_as_minisign_shows_it() {
        assert_eq!(whole_id("E7620F1842B4E81F").as_deref(), Ok("E7620F1842B4E81F"));
        assert_eq!(whole_id("7620f1842b4e81f").as_deref(), Ok("07620F1842B4E81F"));
        assert!(whole_id("").is_err() && whole_id("acme").is_err() && whole_id("00000000000000000").is_err());
    }
}
