//! The messages of the name service: reads one question, writes the answer.
//!
//! Guarantees: every length is checked; no compression pointer is followed, as a question has none; the question is
//! echoed byte by byte, case and all. Never panics. Does not: know any name.

use std::net::Ipv4Addr;

use palyra_types::host::HostName;

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Incoming<'a> {
    /// A question.
    Query(Query<'a>),
    /// A message with a header, and this is what is wrong with the rest.
    Wrong(Vec<u8>),
    /// Nothing that could be answered.
    Noise,
}

/// One question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Query<'a> {
    id: [u8; 2],
    is_recursive: bool,
    has_edns: bool,
    /// Name, type and class, as they came.
    question: &'a [u8],
    /// What is asked for.
    pub wanted: Wanted,
    /// The name, or what stands in its place.
    pub name: Result<HostName, String>,
}

/// What is asked about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Its IPv4 address.
    Address,
    /// Anything else.
    Other,
}

/// What is said about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It has this address.
    Address(Ipv4Addr),
    /// It is there and has nothing of what was asked for.
    Empty,
    /// It is not there.
    NoSuchName,
    /// There is no room for it.
    Failure,
}

impl<'a> Incoming<'a> {
    /// Reads a message.
    pub(crate) fn read(bytes: &'a [u8]) -> Self {
        let Some((header, rest)) = bytes.split_first_chunk::<12>() else { return Self::Noise };
        let &[id0, id1, flags, _, questions0, questions1, answers0, answers1, authority0, authority1, more0, more1] =
            header;
        if flags & 0x80 != 0 {
            // An answer. Whoever answered that would be talking to itself.
            return Self::Noise;
        }
        let (id, is_recursive) = ([id0, id1], flags & 1 != 0);
        let wrong = |code| Self::Wrong(head(id, [0x80 | (flags & 0x79), 0x80 | code], [0; 4]).to_vec());
        if flags & 0x78 != 0 {
            return wrong(NOT_IMPLEMENTED);
        }
        let counts = [questions0, questions1, answers0, answers1, authority0, authority1];
        if counts != [0, 1, 0, 0, 0, 0] {
            return wrong(FORMAT_ERROR);
        }
        let Some((name, length)) = read_name(rest) else { return wrong(FORMAT_ERROR) };
        let Some((question, extra)) = rest.split_at_checked(length + 4) else { return wrong(FORMAT_ERROR) };
        let Some(&[kind0, kind1, class0, class1]) = question.last_chunk::<4>() else { return wrong(FORMAT_ERROR) };
        if [class0, class1] != INTERNET {
            return wrong(REFUSED);
        }
        let has_edns = match ([more0, more1], extra) {
            ([0, 0], []) => false,
            // The one additional record that clients send: an option record, of whatever content.
            ([0, 1], [0, 0, OPTIONS, ..]) if extra.len() >= 11 => true,
            _ => return wrong(FORMAT_ERROR),
        };
        let wanted = if [kind0, kind1] == [0, 1] { Wanted::Address } else { Wanted::Other };
        Self::Query(Query { id, is_recursive, has_edns, question, wanted, name })
    }
}

impl Query<'_> {
    /// The message that says this.
    pub(crate) fn answered(&self, answer: Answer) -> Vec<u8> {
        let code = match answer {
            Answer::Address(_) | Answer::Empty => 0,
            Answer::NoSuchName => NAME_ERROR,
            Answer::Failure => SERVER_FAILURE,
        };
        let records = u8::from(matches!(answer, Answer::Address(_)));
        let flags = [0x80 | u8::from(self.is_recursive), 0x80 | code];
        let mut message = head(self.id, flags, [1, records, 0, u8::from(self.has_edns)]).to_vec();
        message.extend_from_slice(self.question);
        if let Answer::Address(address) = answer {
            // A pointer to the question's name, then type, class, seconds to live and the address.
            message.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, SECONDS_TO_LIVE, 0, 4]);
            message.extend_from_slice(&address.octets());
        }
        if self.has_edns {
            message.extend_from_slice(&[0, 0, OPTIONS, 0x04, 0xd0, 0, 0, 0, 0, 0, 0]);
        }
        message
    }
}

fn head(id: [u8; 2], flags: [u8; 2], counts: [u8; 4]) -> [u8; 12] {
    let ([id0, id1], [flags0, flags1], [questions, answers, authority, more]) = (id, flags, counts);
    [id0, id1, flags0, flags1, 0, questions, 0, answers, 0, authority, 0, more]
}

/// The name at the beginning and how many bytes it takes. `None` if it is cut off, compressed or too long.
fn read_name(bytes: &[u8]) -> Option<(Result<HostName, String>, usize)> {
    let mut text: Vec<u8> = Vec::new();
    let mut rest = bytes;
    let mut is_plain = true;
    loop {
        let (&length, behind) = rest.split_first()?;
        if length == 0 {
            rest = behind;
            break;
        }
        if length > 63 {
            return None;
        }
        let (label, behind) = behind.split_at_checked(usize::from(length))?;
        // SECURITY: a label with a dot inside would be read as two.
        is_plain &= !label.contains(&b'.');
        if !text.is_empty() {
            text.push(b'.');
        }
        text.extend_from_slice(label);
        rest = behind;
        if text.len() > 253 {
            return None;
        }
    }
    let taken = bytes.len() - rest.len();
    let text = String::from_utf8_lossy(&text).into_owned();
    let host = HostName::parse(&text).ok().filter(|host| is_plain && host.address().is_none());
    Some((host.ok_or(text), taken))
}

const INTERNET: [u8; 2] = [0, 1];
const OPTIONS: u8 = 41;
const FORMAT_ERROR: u8 = 1;
const SERVER_FAILURE: u8 = 2;
const NAME_ERROR: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;
const REFUSED: u8 = 5;
/// Short, as an address means nothing once the run is over.
const SECONDS_TO_LIVE: u8 = 30;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn query(labels: &[&[u8]], kind: u16) -> Vec<u8> {
        let mut bytes = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in labels {
            bytes.push(u8::try_from(label.len()).unwrap());
            bytes.extend_from_slice(label);
        }
        bytes.push(0);
        bytes.extend(kind.to_be_bytes());
        bytes.extend([0, 1]);
        bytes
    }

    fn name_in(bytes: &[u8]) -> Result<String, String> {
        match Incoming::read(bytes) {
            Incoming::Query(query) => query.name.map(|host| host.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_question_is_answered_with_its_own_words() {
        let bytes = query(&[b"API", b"Example", b"org"], 1);
        let Incoming::Query(asked) = Incoming::read(&bytes) else { panic!() };
        assert_eq!((asked.wanted, asked.name.as_ref().unwrap().as_str()), (Wanted::Address, "api.example.org"));
        let answer = asked.answered(Answer::Address(Ipv4Addr::new(198, 18, 0, 1)));
        assert_eq!(answer[..12], [0xab, 0xcd, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(answer[12..bytes.len()], bytes[12..]);
        assert_eq!(answer[bytes.len()..], [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 198, 18, 0, 1]);
        assert_eq!(asked.answered(Answer::NoSuchName)[..12], [0xab, 0xcd, 0x81, 0x83, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(asked.answered(Answer::Empty)[2..4], [0x81, 0x80]);
        assert_eq!(asked.answered(Answer::Failure)[2..4], [0x81, 0x82]);
    }

    #[test]
    fn an_option_record_is_tolerated_and_answered() {
        let mut bytes = query(&[b"a", b"org"], 28);
        bytes[11] = 1;
        bytes.extend([0, 0, 41, 0x10, 0, 0, 0, 0x80, 0, 0, 4, 0, 10, 0, 0]);
        let Incoming::Query(asked) = Incoming::read(&bytes) else { panic!() };
        assert_eq!(asked.wanted, Wanted::Other);
        let answer = asked.answered(Answer::Empty);
        assert_eq!(answer[11], 1);
        assert_eq!(answer[answer.len() - 11..], [0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_name_that_is_no_host_is_told_from_one() {
        assert_eq!(name_in(&query(&[b"a", b"org"], 1)), Ok("a.org".to_owned()));
        let not_hosts: [&[&[u8]]; 7] = [
            &[b"a.org"],
            &[b"listed.com", b"evil", b"com"],
            &[b"a\0b", b"org"],
            &[b"\xff\xfe", b"org"],
            &[b"127", b"0", b"0", b"1"],
            &[b"0x7f", b"1"],
            &[],
        ];
        for labels in not_hosts {
            assert!(name_in(&query(labels, 1)).is_err(), "{labels:?}");
        }
    }

    #[test]
    fn what_is_malformed_is_dropped_or_called_so() {
        let good = query(&[b"a", b"org"], 1);
        let changed = |at: usize, to: u8| {
            let mut bytes = good.clone();
            bytes[at] = to;
            bytes
        };
        let code = |bytes: &[u8]| match Incoming::read(bytes) {
            Incoming::Wrong(answer) => Some(answer[3] & 15),
            Incoming::Noise => None,
            Incoming::Query(query) => panic!("{query:?}"),
        };
        assert_eq!(code(&changed(2, 0x81)), None);
        assert_eq!(code(&[]), None);
        assert_eq!(code(&good[..11]), None);
        assert_eq!(code(&changed(2, 0x28)), Some(NOT_IMPLEMENTED));
        assert_eq!(code(&changed(5, 0)), Some(FORMAT_ERROR));
        assert_eq!(code(&changed(5, 2)), Some(FORMAT_ERROR));
        assert_eq!(code(&changed(7, 1)), Some(FORMAT_ERROR));
        assert_eq!(code(&changed(11, 1)), Some(FORMAT_ERROR));
        assert_eq!(code(&changed(12, 0xc0)), Some(FORMAT_ERROR));
        assert_eq!(code(&changed(12, 63)), Some(FORMAT_ERROR));
        assert_eq!(code(&good[..good.len() - 1]), Some(FORMAT_ERROR));
        assert_eq!(code(&[&good[..], &[0]].concat()), Some(FORMAT_ERROR));
        assert_eq!(code(&changed(good.len() - 1, 3)), Some(REFUSED));
        assert_eq!(code(&query(&[&[b'a'; 63][..]; 5], 1)), Some(FORMAT_ERROR));
    }

    proptest! {
        #[test]
        fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = Incoming::read(&bytes);
        }

        #[test]
        fn a_query_with_one_byte_changed_never_panics(at in 0_usize..64, to in any::<u8>()) {
            let mut bytes = query(&[b"api", b"example", b"org"], 1);
            let at = at % bytes.len();
            bytes[at] = to;
            if let Incoming::Query(query) = Incoming::read(&bytes) {
                let _ = query.answered(Answer::Address(Ipv4Addr::LOCALHOST));
            }
        }
    }
}
