//! `palyra mcp serve`: MCP on standard input and output.
//!
//! Guarantees: nothing but messages is written to standard output; the credential is an agent's token and never this device's certificate; a token of a
//! person is refused; the token is shown to nobody while no daemon of this state directory runs. Whoever closes standard input
//! takes back what is under way.

use std::{
    env,
    io::{self, BufRead, Write},
    path::PathBuf,
    thread,
    time::Duration,
};

use clap::Args;
use palyra_client::{Bearer, Endpoint};
use palyra_identity::private_file;
use palyra_types::WorkspaceName;
use tokio::sync::mpsc::{self, Receiver, Sender};
use zeroize::Zeroizing;

use super::bridge::{Bridge, Line, Route};
use crate::{
    Outcome,
    at::At,
    connection::{block_on, home},
    exit::Exit,
    failure::Failure,
};

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// A file with an agent's token, that only its owner reads. Without it the token is in PALYRA_TOKEN.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The configured workspace that calls work in. Where there is only one, it is meant.
    #[arg(long, value_name = "NAME")]
    workspace: Option<WorkspaceName>,
    /// The local listener of the daemon. Without it the daemon of this state directory is asked, if it runs.
    #[arg(long, value_name = "URL", env = "PALYRA_URL", hide_env = true)]
    url: Option<String>,
}

pub(crate) fn run(args: &ServeArgs, at: &At) -> Outcome {
    at.unnamed("serving MCP here")?;
    let bearer = token(args)?;
    let route = match &args.url {
        Some(url) => Route::To(Endpoint::parse(url).map_err(|error| {
            Failure::new(Exit::Usage, "bad_address", "there is no such daemon", error.to_string(), "leave --url out")
        })?),
        None => Route::Of(home()?),
    };
    let (out, written) = printed();
    let outcome = block_on(async {
        let lines = typed();
        let bridge = Bridge::new(route, bearer, args.workspace.clone(), out);
        // A token that is known to be the wrong one ends it here; a daemon that is not there yet may come.
        bridge.introduce().await?;
        bridge.hand_on(lines).await;
        Ok(Exit::Ok)
    });
    // What was said last is still to be written, if anybody reads it.
    let _ = written.recv_timeout(LAST_WORD);
    outcome
}

/// The agent's token.
fn token(args: &ServeArgs) -> Result<Bearer, Failure> {
    let missing = |cause: String| {
        let help = "`palyra mcp connect` makes one for a client, and says where it is";
        Failure::new(Exit::Usage, "no_token", "there is no token to ask with", cause, help)
    };
    let text = match &args.token_file {
        Some(path) => {
            let read = private_file::read(path, LONGEST_TOKEN).map_err(|error| missing(error.to_string()))?;
            Zeroizing::new(String::from_utf8_lossy(&read).trim().to_owned())
        }
        None => match env::var("PALYRA_TOKEN") {
            Ok(text) => Zeroizing::new(text),
            Err(_) => return Err(missing("neither --token-file nor PALYRA_TOKEN says where it is".to_owned())),
        },
    };
    Bearer::parse(&text).map_err(|error| missing(error.to_string()))
}

/// The lines of standard input, read by a thread of its own, because reading cannot be given up.
fn typed() -> Receiver<Line> {
    let (sender, lines) = mpsc::channel(AHEAD);
    thread::spawn(move || {
        let mut input = io::stdin().lock();
        while let Some(line) = next(&mut input) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// The next line. One that is too long is passed over, and told as such.
fn next(input: &mut impl BufRead) -> Option<Line> {
    let (mut line, mut is_too_long) = (Vec::new(), false);
    loop {
        let piece = input.fill_buf().ok()?;
        if piece.is_empty() {
            return if line.is_empty() { None } else { Some(Line::Whole(line)) };
        }
        let end = piece.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(piece.len(), |end| end + 1);
        is_too_long |= line.len().saturating_add(taken) > LONGEST_LINE;
        if !is_too_long {
            line.extend_from_slice(piece.get(..end.unwrap_or(piece.len())).unwrap_or_default());
        }
        input.consume(taken);
        if end.is_some() {
            return Some(if is_too_long { Line::TooLong } else { Line::Whole(line) });
        }
    }
}

/// Standard output, written by a thread of its own: a client that does not read holds up nothing but its answers.
fn printed() -> (Sender<String>, std::sync::mpsc::Receiver<()>) {
    let (sender, mut messages) = mpsc::channel::<String>(AHEAD);
    let (over, written) = std::sync::mpsc::channel();
    thread::spawn(move || {
        // Dropped when all is written.
        let _over: std::sync::mpsc::Sender<()> = over;
        let mut out = io::stdout().lock();
        while let Some(message) = messages.blocking_recv() {
            // Who reads no more has closed standard input as well.
            if out.write_all(message.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()).is_err()
            {
                return;
            }
        }
    });
    (sender, written)
}

/// How long it may take to write what was said last.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Longer than any token.
const LONGEST_TOKEN: u64 = 4_096;

/// The longest message: what the daemon reads of one.
const LONGEST_LINE: usize = 2 << 20;

/// How many messages are ahead of whoever deals with them.
const AHEAD: usize = 64;

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn lines_are_read_whole_and_what_is_too_long_is_passed_over() {
        let text = format!("one\n{}\ntwo\n\nlast", "x".repeat(LONGEST_LINE + 1));
        let mut input = BufReader::with_capacity(7, text.as_bytes());
        let whole = |text: &str| Some(Line::Whole(text.as_bytes().to_vec()));
        let expected = [whole("one"), Some(Line::TooLong), whole("two"), whole(""), whole("last"), None];
        for line in expected {
            assert_eq!(next(&mut input), line);
        }
    }
}
