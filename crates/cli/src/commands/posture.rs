//! `palyra posture …`: how freely tools may be used, by layer.

use clap::{Args, Subcommand};
use palyra_api::tool::{PosturePlace, PostureSetting};
use palyra_types::{Posture, ToolName, visible::visible};

use crate::{
    Outcome,
    at::At,
    connection::meet,
    exit::Exit,
    failure::Failure,
    terminal::{BOLD, Terminal},
};

#[derive(Subcommand)]
pub(crate) enum PostureCommand {
    /// List the postures that are set. What is not set has the default that `palyra tools` shows.
    List,
    /// Set how freely a tool may be used.
    Set {
        /// The tool.
        tool: ToolName,
        /// always_allow, ask_each_time or disabled.
        posture: Posture,
        #[command(flatten)]
        place: Place,
    },
    /// Take a posture away, so that the next layer counts again.
    Clear {
        /// The tool.
        tool: ToolName,
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Args)]
pub(crate) struct Place {
    /// The layer. The innermost that says something counts: session, then agent, workspace, global.
    #[arg(long, default_value = "global", value_parser = ["session", "agent", "workspace", "global"])]
    layer: String,
    /// What of the layer: a session's id, an agent as kind:name, a workspace's name. None for global.
    #[arg(long, default_value = "", hide_default_value = true)]
    key: String,
}

pub(crate) fn run(command: PostureCommand, at: &At, terminal: &Terminal) -> Outcome {
    match command {
        PostureCommand::List => list(at, terminal),
        PostureCommand::Set { tool, posture, place } => {
            let Place { layer, key } = place.checked()?;
            let setting = PostureSetting { layer, key, tool, posture };
            meet(at, terminal, async |daemon| Ok(daemon.set_posture(&setting).await?))?;
            if terminal.json {
                terminal.document("posture", &setting);
            } else {
                show(&setting, terminal);
            }
            Ok(Exit::Ok)
        }
        PostureCommand::Clear { tool, place } => {
            let Place { layer, key } = place.checked()?;
            let place = PosturePlace { layer, key, tool };
            meet(at, terminal, async |daemon| Ok(daemon.remove_posture(&place).await?))?;
            if terminal.json {
                terminal.document("posture.cleared", &place);
            } else {
                terminal.out(format!("cleared  {}  {} {}", place.tool, place.layer, visible(&place.key)));
            }
            Ok(Exit::Ok)
        }
    }
}

impl Place {
    fn checked(self) -> Result<Self, Failure> {
        let global = self.layer == "global";
        if global == self.key.is_empty() {
            return Ok(self);
        }
        let (cause, help) = if global {
            ("the layer global has no key", "leave --key out, or name a layer")
        } else {
            ("this layer needs a key", "add --key: a session's id, an agent as kind:name, or a workspace's name")
        };
        Err(Failure::new(Exit::Usage, "usage", "the posture has no place", cause, help))
    }
}

fn list(at: &At, terminal: &Terminal) -> Outcome {
    let postures = meet(at, terminal, async |daemon| Ok(daemon.postures().await?))?;
    if terminal.json {
        terminal.document("postures", &postures);
        return Ok(Exit::Ok);
    }
    for setting in &postures.postures {
        show(setting, terminal);
    }
    if postures.postures.is_empty() {
        terminal.talk("no posture is set; `palyra tools` shows the defaults");
    }
    Ok(Exit::Ok)
}

fn show(setting: &PostureSetting, terminal: &Terminal) {
    let PostureSetting { layer, key, tool, posture } = setting;
    let place = format!("{} {}", visible(layer), visible(key));
    terminal.out(format!("{:<14}  {}  {}", posture.to_string(), terminal.paint(BOLD, tool.as_str()), place.trim_end()));
}
