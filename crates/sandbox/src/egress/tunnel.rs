//! A connection that carries bytes both ways, once it was allowed: CONNECT, SOCKS5 and direct connections end up here.
//!
//! Guarantees: the host gets nothing before the client's first words were judged, and no TLS hello that was not; a
//! connection that is allowed no more is cut at once, in whatever state it is. A client whose TLS ends here always opens
//! with a hello that names the host.

use std::sync::Arc;

use tokio::net::TcpStream;

use super::{
    conversation::{Conversation, Reader},
    ledger::{Entry, Stop},
    lobby::Seat,
    opening::{Client, reset},
    relay::{Counted, relay},
    rules::Opening,
    run::{Passage, Run, Upstream},
};

/// An allowed connection and its client.
pub(crate) struct Tunnel {
    pub client: Client,
    pub passage: Passage,
    pub entry: Entry,
}

impl Tunnel {
    /// Judges the client's first words, meanwhile waits for the other end, then carries bytes until the end.
    pub(crate) async fn carry(mut self, run: &Arc<Run>, seat: &Arc<Seat>, reached: Reached) {
        let Self { client, passage, entry } = &mut self;
        let (to, live) = (&passage.admitted, &mut passage.live);
        // SECURITY: whether somebody reads along is asked once. Were it asked again, the answer could have changed, and a
        // reader be given what was judged by a rule that lets anything pass.
        let reached = match reached {
            Reached::NotYet => run.reader_of(to).map_or(Reached::NotYet, |one| Reached::Already(Upstream::Reader(one))),
            reached => reached,
        };
        let demand = match &reached {
            Reached::Already(Upstream::Reader(Reader::Inside(_))) => Opening::Tls,
            Reached::Already(_) | Reached::NotYet => to.terms().tls.on(to.port()),
        };
        #[cfg(weak)]
        let demand = if crate::weak::is_off(crate::weak::egress::OPENING) { Opening::Anything } else { demand };
        let opened = tokio::select! {
            biased;
            () = live.revoked(to) => Err(Stop::Revoked),
            opened = async {
                let upstream = async {
                    match reached {
                        Reached::Already(upstream) => Ok(upstream),
                        Reached::NotYet => {
                            let connected = run.net.connect(to).await?;
                            entry.address = Some(connected.address);
                            Ok(Upstream::Host(connected))
                        }
                    }
                };
                tokio::try_join!(upstream, client.open(demand, to, &run.limits, seat))
            } => opened,
        };
        match opened {
            Ok((Upstream::Host(connected), ())) => self.relay(run, connected.stream, demand).await,
            Ok((Upstream::Reader(reader), ())) => {
                let Self { client, passage, entry } = self;
                Conversation { client, passage, entry, reader }.hold(run, seat).await;
            }
            Err(stop) => self.stop(stop).await,
        }
    }

    async fn relay(mut self, run: &Run, stream: TcpStream, demand: Opening) {
        let Self { client, passage, entry } = &mut self;
        let (to, live) = (&passage.admitted, &mut passage.live);
        entry.made();
        let mut host = Counted::new(stream, Arc::clone(entry.traffic()));
        let greets = (demand == Opening::Tls).then(|| to.host());
        let carried = tokio::select! {
            biased;
            () = live.revoked(to) => Err(Stop::Revoked),
            carried = relay(client, &mut host, greets, &run.limits) => carried,
        };
        if let Err(stop) = carried {
            // Neither side may take what it has for everything.
            host.reset();
            drop(host);
            self.stop(stop).await;
        }
    }

    async fn stop(self, stop: Stop) {
        let Self { client, passage, mut entry } = self;
        // Somebody else can have the place while goodbyes are said.
        drop(passage);
        entry.ends(stop.clone().outcome());
        drop(entry);
        match stop {
            Stop::Refused(refusal) => client.reject(&refusal).await,
            Stop::Revoked | Stop::Left => reset(&client.stream),
        }
    }
}

/// Whether the other end is there.
pub(crate) enum Reached {
    Already(Upstream),
    /// It is looked for while the client's first words come.
    NotYet,
}
