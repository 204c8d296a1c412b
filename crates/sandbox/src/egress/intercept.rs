//! The seam for somebody who looks into the requests of a run to some hosts, such as a vault that puts secrets into them.
//!
//! ```text
//! client ── TLS of the run's own authority ──► conversation ── verified TLS ──► host
//!                                                 │  ▲
//!                                       head, body└──┘ judged and rewritten by the interceptor
//! ```
//!
//! Guarantees: an interceptor is given only requests that a doorkeeper allowed, to hosts that it asked for, on connections whose
//! hello names exactly that host and hides nothing; and what it is given is all that the host gets.
//! Does not: know what an interceptor does, or look into connections of other hosts that are not plain HTTP.

use std::{fmt, sync::Arc};

use hyper::http::{request, response};
use palyra_types::host::HostName;

use super::{fetch::Trust, refusal::EgressRefusal, run_authority::RunAuthority};

/// What happens to the requests of one run to some hosts, and to what they answer.
///
/// None of its methods waits for anybody, and none panics.
pub trait Interceptor: Send + Sync {
    /// Whether requests to this host are its business. TLS is terminated for exactly these. Asked once for each connection.
    fn intercepts(&self, host: &HostName, port: u16) -> bool;

    /// Judges and rewrites the head of a request to such a host, and says what happens to its body.
    ///
    /// What concerns one hop is gone from the head by then, and so is `Expect`; `Accept-Encoding` is `identity`. `Host`, the length of
    /// the body and how it is framed are set afterwards, whatever is written there.
    ///
    /// # Errors
    /// When the request is refused. The host gets nothing of it.
    fn request(
        &self,
        host: &HostName,
        port: u16,
        head: &mut request::Parts,
    ) -> Result<Box<dyn BodyFilter>, EgressRefusal>;

    /// Rewrites the head of the answer, and says what happens to its body, which is never encoded.
    ///
    /// # Errors
    /// When the answer is refused. The client gets nothing of it.
    fn response(
        &self,
        host: &HostName,
        port: u16,
        head: &mut response::Parts,
    ) -> Result<Box<dyn BodyFilter>, EgressRefusal>;

    /// Judges a plain HTTP request to any other host, which it cannot rewrite; the filter can only refuse.
    ///
    /// # Errors
    /// When the request is refused. The host gets nothing of it.
    fn elsewhere(
        &self,
        host: &HostName,
        port: u16,
        head: &request::Parts,
    ) -> Result<Box<dyn BodyFilter>, EgressRefusal>;
}

/// What happens to a body, piece by piece.
pub trait BodyFilter: Send {
    /// Whether what comes out may be of another length than what went in. The body of a request is then collected, up to a bound beyond
    /// which it is refused, and sent with its new length. The body of an answer is sent in chunks then, as it comes.
    fn changes_length(&self) -> bool;

    /// Takes the next piece, and adds to `out` what is passed on by now. What may turn out to be a part of something else is kept back.
    ///
    /// # Errors
    /// When the body is refused. Nothing more of it is passed on.
    fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), EgressRefusal>;

    /// There is no more. Adds to `out` what was kept back.
    ///
    /// # Errors
    /// When the body is refused. The other side never gets it whole.
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), EgressRefusal>;
}

/// Lets a body pass as it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unchanged;

impl BodyFilter for Unchanged {
    fn changes_length(&self) -> bool {
        false
    }

    fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), EgressRefusal> {
        out.extend_from_slice(piece);
        Ok(())
    }

    fn finish(&mut self, _: &mut Vec<u8>) -> Result<(), EgressRefusal> {
        Ok(())
    }
}

/// Who looks into the connections of a run, and how its two ends know whom they talk to.
#[derive(Clone)]
pub struct Interception {
    /// Who looks into them.
    pub interceptor: Arc<dyn Interceptor>,
    /// Who is trusted to say which host is which.
    pub trust: Trust,
    /// Whom the programs of the run trust to say so.
    pub authority: Arc<RunAuthority>,
}

impl fmt::Debug for Interception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interception")
    }
}
