//! `palyra vault bind`: where a secret may go from now on.

use clap::Args;
use palyra_api::vault::NewBinding;
use palyra_client::Client;
use palyra_types::{HostName, SecretRef, ToolName, visible::visible};

use super::secret;
use crate::{
    Outcome,
    exit::Exit,
    terminal::{GOOD, Terminal, WAIT, shown},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BindArgs {
    /// The secret: NAME, which is global, or SCOPE/NAME.
    #[arg(value_parser = secret)]
    name: SecretRef,
    /// The host that it may go to, always by TLS.
    #[arg(long, value_parser = host)]
    host: HostName,
    /// The port of the host. Without it, 443.
    #[arg(long)]
    port: Option<u16>,
    /// In this header. Can be given again. Without --header, --query and --body: in the header authorization.
    #[arg(long = "header", value_name = "NAME")]
    headers: Vec<String>,
    /// As the value of this parameter of the query. Can be given again.
    #[arg(long = "query", value_name = "NAME")]
    queries: Vec<String>,
    /// Anywhere in the body.
    #[arg(long)]
    body: bool,
    /// Only where the path begins with this, such as /v1/. Can be given again.
    #[arg(long = "path", value_name = "PREFIX")]
    paths: Vec<String>,
    /// Only by this tool. Can be given again.
    #[arg(long = "tool", value_name = "TOOL")]
    tools: Vec<ToolName>,
}

pub(super) async fn run(args: &BindArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let headers = args.headers.iter().map(|name| format!("header:{name}"));
    let queries = args.queries.iter().map(|name| format!("query:{name}"));
    let body = args.body.then(|| "body".to_owned());
    let new = NewBinding {
        secret: args.name.clone(),
        host: args.host.clone(),
        port: args.port,
        positions: headers.chain(queries).chain(body).collect(),
        paths: args.paths.clone(),
        tools: args.tools.clone(),
    };
    let bound = daemon.bind_secret(&new).await?;
    if terminal.json {
        terminal.document("vault.bound", &bound);
        return Ok(Exit::Ok);
    }
    let name = visible(&bound.secret.to_string());
    terminal.out_rows(format!(
        "{} from now on {name} may go {}, by calls that policy allows (binding {})",
        terminal.paint(GOOD, "✔"),
        shown(&bound.words),
        bound.id
    ));
    if args.body || !args.queries.is_empty() {
        let place = if args.body { "the body" } else { "the query" };
        let host = visible(&bound.host);
        terminal.talk(terminal.paint_err(
            WAIT,
            &format!(
                "! whoever uses it chooses what else is in {place}: posting to a public page of {host} would publish it"
            ),
        ));
    }
    Ok(Exit::Ok)
}

/// A host as a person writes it, and what to write instead.
fn host(text: &str) -> Result<HostName, String> {
    if text.contains("://") || text.contains('/') {
        return Err("name the host alone, not a URL; --path says where on it".to_owned());
    }
    if text.starts_with('*') {
        return Err("a binding is for one host by its whole name".to_owned());
    }
    match (HostName::parse(text), text.rsplit_once(':')) {
        (Ok(host), _) => Ok(host),
        (Err(_), Some((name, port))) if port.parse::<u16>().is_ok() => {
            Err(format!("say the port on its own: --host {} --port {port}", visible(name)))
        }
        (Err(error), _) => Err(error.to_string()),
    }
}

const EXAMPLES: &str = "\
Examples:
  palyra vault bind github --host api.github.com
  palyra vault bind maps --host maps.example.org --query key --path /v1/
  palyra vault bind github --host api.github.com --tool process.run";
