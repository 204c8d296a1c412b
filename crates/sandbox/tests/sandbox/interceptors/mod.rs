//! Interceptors for tests: one that swaps a placeholder for a secret, as a vault would.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

pub mod talk;

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use hyper::{
    header::HeaderValue,
    http::{request, response},
};
use palyra_sandbox::egress::{BodyFilter, EgressRefusal, EgressRefusalKind as Kind, Interceptor};
use palyra_types::HostName;

/// What a program has in the place of the secret.
pub const PLACEHOLDER: &str = "palyra-placeholder-1";

/// What the host gets.
pub const SECRET: &str = "s3cr3t-value";

/// Puts the secret in the place of the placeholder, in `authorization` and, if the head says `x-swap`, in the body. Refuses the placeholder
/// anywhere else. Hides the secret in whatever is answered.
#[derive(Default)]
pub struct Vault {
    hosts: Vec<String>,
    pub asked: AtomicUsize,
    /// The heads of requests to other hosts.
    pub elsewhere: Mutex<Vec<String>>,
}

impl Vault {
    pub fn of(hosts: &[&str]) -> Self {
        Self { hosts: hosts.iter().map(|&host| host.to_owned()).collect(), ..Self::default() }
    }
}

impl Interceptor for Vault {
    fn intercepts(&self, host: &HostName, _: u16) -> bool {
        self.hosts.iter().any(|one| one == host.as_str())
    }

    fn request(&self, _: &HostName, _: u16, head: &mut request::Parts) -> Result<Box<dyn BodyFilter>, EgressRefusal> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if let Some(value) = head.headers.get_mut("authorization") {
            let swapped = value.to_str().unwrap_or_default().replace(PLACEHOLDER, SECRET);
            *value = HeaderValue::try_from(swapped).unwrap();
        }
        refuse_in(head)?;
        let with = head.headers.remove("x-swap").map(|_| SECRET);
        Ok(Box::new(Search::new(PLACEHOLDER, with)))
    }

    fn response(&self, _: &HostName, _: u16, head: &mut response::Parts) -> Result<Box<dyn BodyFilter>, EgressRefusal> {
        if head.headers.contains_key("x-refuse-me") {
            return Err(EgressRefusal::new(Kind::SecretUnavailable, "the answer is refused"));
        }
        head.headers.remove("x-hidden");
        let mask = if head.headers.contains_key("x-longer") { "<hidden by a test>" } else { "************" };
        Ok(Box::new(Search::new(SECRET, Some(mask))))
    }

    fn elsewhere(
        &self,
        host: &HostName,
        port: u16,
        head: &request::Parts,
    ) -> Result<Box<dyn BodyFilter>, EgressRefusal> {
        self.elsewhere.lock().unwrap().push(format!("{} {host}:{port}{}", head.method, head.uri));
        refuse_in(head)?;
        Ok(Box::new(Search::new(PLACEHOLDER, None)))
    }
}

fn misplaced() -> EgressRefusal {
    EgressRefusal::new(Kind::SecretMisplaced, "the placeholder of `one` stands where no binding lets it go")
}

fn refuse_in(head: &request::Parts) -> Result<(), EgressRefusal> {
    let holds = |bytes: &[u8]| bytes.windows(PLACEHOLDER.len()).any(|part| part == PLACEHOLDER.as_bytes());
    let is_there = holds(head.uri.to_string().as_bytes()) || head.headers.values().any(|one| holds(one.as_bytes()));
    if is_there { Err(misplaced()) } else { Ok(()) }
}

/// Looks for something in a body, in whatever pieces it comes.
pub struct Search {
    needle: &'static str,
    /// What is put in its place; without, it is refused.
    with: Option<&'static str>,
    kept: Vec<u8>,
}

impl Search {
    pub fn new(needle: &'static str, with: Option<&'static str>) -> Self {
        Self { needle, with, kept: Vec::new() }
    }
}

impl BodyFilter for Search {
    fn changes_length(&self) -> bool {
        self.with.is_some_and(|with| with.len() != self.needle.len())
    }

    fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), EgressRefusal> {
        self.kept.extend_from_slice(piece);
        let needle = self.needle.as_bytes();
        while let Some(at) = self.kept.windows(needle.len()).position(|part| part == needle) {
            let with = self.with.ok_or_else(misplaced)?;
            out.extend(self.kept.drain(..at));
            self.kept.drain(..needle.len());
            out.extend_from_slice(with.as_bytes());
        }
        let may_begin = |&length: &usize| self.kept.ends_with(&needle[..length]);
        let keep = (1..needle.len()).rev().find(may_begin).unwrap_or(0);
        out.extend(self.kept.drain(..self.kept.len() - keep));
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), EgressRefusal> {
        out.append(&mut self.kept);
        Ok(())
    }
}
