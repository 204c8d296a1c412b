//! The questions that wait, page by page, oldest first.

use std::collections::BTreeSet;

use palyra_api::approval::{Approval, ApprovalQuery};
use palyra_client::Client;
use palyra_types::id::ApprovalId;

use crate::failure::Failure;

/// The pages that are still to be read.
pub(super) struct Pages<'a> {
    client: &'a Client,
    after: Option<ApprovalId>,
    more: bool,
    seq: u64,
    unreadable: BTreeSet<ApprovalId>,
}

impl<'a> Pages<'a> {
    /// Reads the first page.
    pub(super) const fn new(client: &'a Client) -> Self {
        Self { client, after: None, more: true, seq: 0, unreadable: BTreeSet::new() }
    }

    /// The next page, or nothing after the last one.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Approval>>, Failure> {
        if !self.more {
            return Ok(None);
        }
        let page = self.client.approvals(&ApprovalQuery { after: self.after, limit: None }).await?;
        if self.after.is_none() {
            self.seq = page.seq;
        }
        self.unreadable.extend(page.unreadable);
        let last = page.approvals.last().map(|approval| approval.id);
        // A page that leads nowhere is the last one, whatever it says.
        self.more = page.more && last.is_some() && last != self.after;
        self.after = last;
        Ok(Some(page.approvals))
    }

    /// The questions on the pages so far that wait and cannot be read.
    pub(super) const fn unreadable(&self) -> &BTreeSet<ApprovalId> {
        &self.unreadable
    }

    /// The last record before the first page was read: events after it tell of every later change.
    pub(super) const fn seq(&self) -> u64 {
        self.seq
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use palyra_client::Endpoint;
    use serde_json::{Value, json};

    use super::*;
    use crate::connection::block_on;

    fn approval(id: &str) -> Value {
        json!({
            "id": id, "call": id, "run": id, "session": id, "principal": "agent:local", "tool": "fs.list", "summary": "",
            "args": {}, "plan": { "writes": "nothing", "hosts": [], "secrets": [], "wall_ms": 1 },
            "risk": { "level": "low", "reasons": [] }, "reason": "", "policies": [], "digest": "0".repeat(64),
            "asked_at": "2026-01-01T00:00:00Z", "answer_by": "2026-01-01T00:00:00Z", "answer_within_ms": 1,
            "valid_for_seconds": 1, "waiting": "attached", "state": "pending"
        })
    }

    /// A daemon that has these pages, and what it was asked for.
    fn daemon(pages: Vec<Value>) -> (Client, thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let asked = thread::spawn(move || {
            let answer = |page: Value| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4096];
                let count = stream.read(&mut request).unwrap();
                let body = page.to_string();
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length";
                write!(stream, "{head}: {}\r\n\r\n{body}", body.len()).unwrap();
                String::from_utf8_lossy(&request[..count]).split(' ').nth(1).unwrap().to_owned()
            };
            pages.into_iter().map(answer).collect()
        });
        (Client::local(endpoint), asked)
    }

    #[test]
    fn pages_follow_the_last_question_until_there_are_no_more() {
        let ids = ["01ARZ3NDEKTSV4RRFFQ69G5FA1", "01ARZ3NDEKTSV4RRFFQ69G5FA2", "01ARZ3NDEKTSV4RRFFQ69G5FA3"];
        let (client, asked) = daemon(vec![
            json!({ "seq": 7, "approvals": [approval(ids[0]), approval(ids[1])], "more": true, "unreadable": [ids[1]] }),
            json!({ "seq": 9, "approvals": [approval(ids[2])], "more": false, "unreadable": [ids[1], ids[2]] }),
        ]);
        let (seen, seq) = block_on(async {
            let (mut pages, mut seen) = (Pages::new(&client), Vec::new());
            while let Some(page) = pages.next().await? {
                seen.push(page.iter().map(|approval| approval.id.to_string()).collect::<Vec<_>>());
            }
            let unreadable: Vec<_> = pages.unreadable().iter().map(ToString::to_string).collect();
            assert_eq!(unreadable, ids[1..], "each is named once");
            Ok((seen, pages.seq()))
        })
        .unwrap();
        assert_eq!(seen, [vec![ids[0].to_owned(), ids[1].to_owned()], vec![ids[2].to_owned()]]);
        assert_eq!(seq, 7, "events from the first page on");
        let after = format!("/api/v1/approvals?after={}", ids[1]);
        assert_eq!(asked.join().unwrap(), ["/api/v1/approvals".to_owned(), after]);
    }

    #[test]
    fn a_page_that_leads_nowhere_is_the_last_one() {
        let (client, _) = daemon(vec![json!({ "seq": 7, "approvals": [], "more": true })]);
        let pages = block_on(async {
            let mut pages = Pages::new(&client);
            Ok((pages.next().await?.is_some(), pages.next().await?.is_some()))
        });
        assert_eq!(pages.unwrap(), (true, false));
    }
}
