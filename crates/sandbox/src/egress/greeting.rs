//! Passes on the hellos of a TLS connection, one at a time.
//!
//! A host may answer a hello by asking for another one, which names a server in the clear like the first.
//!
//! Guarantees: a host gets no hello that was not judged. Behind a hello nothing goes to it until it has answered; if it
//! asks for another one, that is judged like the first. What is held back meanwhile is bounded in bytes, and a client
//! that is asked again has as long as for its first words.
//! Does not: look at anything, or copy it, once the host has said hello itself.

use palyra_types::host::HostName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    hello::{self, Answer},
    ledger::Stop,
    opening::{Client, MOST_PIECES},
    relay::Counted,
    run::EgressLimits,
};

/// Passes on the hello that was judged, and those that the host asks for. What the client said behind them is left.
pub(crate) async fn greet(
    client: &mut Client,
    host: &mut Counted,
    name: &HostName,
    limits: &EgressLimits,
) -> Result<(), Stop> {
    let mut answer = Vec::with_capacity(LONGEST_ANSWER);
    loop {
        let rest = client.early.split_off(client.judged.min(client.early.len()));
        host.write_all(&client.early).await?;
        client.early = rest;
        let Some(length) = asked_again(client, host, &mut answer, limits.header_bytes).await? else { return Ok(()) };
        answer.drain(..length.min(answer.len()));
        client.hello_again(name, limits).await?;
    }
}

/// Passes on what the host says until it is known whether it asks for another hello, and how many bytes say so.
async fn asked_again(
    client: &mut Client,
    host: &mut Counted,
    answer: &mut Vec<u8>,
    most: usize,
) -> Result<Option<usize>, Stop> {
    let mut pieces = MOST_PIECES;
    loop {
        client.waits_for_an_answer()?;
        match hello::answer(answer) {
            Answer::Again(length) => return Ok(Some(length)),
            Answer::Settled => return Ok(None),
            Answer::More if answer.len() < LONGEST_ANSWER => {}
            // SECURITY: a host that is never done answering gets nothing that was not looked at.
            Answer::More => return Err(Stop::Left),
        }
        let (said, is_heard) = (answer.len(), pieces > 0 && client.early.len() < most);
        tokio::select! {
            read = host.read_buf(answer) => {
                if read? == 0 {
                    return Ok(None);
                }
                client.stream.write_all(answer.get(said..).unwrap_or_default()).await?;
            }
            read = client.read_more(most), if is_heard => {
                pieces -= 1;
                if read? == 0 {
                    // There will be no other hello, so nothing needs to be held back.
                    pieces = 0;
                    host.write_all(&std::mem::take(&mut client.early)).await?;
                    host.shutdown().await?;
                }
            }
        }
    }
}

/// How long an answer may be until it is known what it is.
const LONGEST_ANSWER: usize = 16 << 10;
