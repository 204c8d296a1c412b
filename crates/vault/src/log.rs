//! The bytes of the vault's file: a header, and one frame for each thing that was added.
//!
//! ```text
//! header   magic, length, JSON: which vault, whose key, since which generation, and a proof that the key made it
//! frame    generation, lengths, sealed description, sealed value, SHA-256 of all that and of the head before
//! frame    …
//! ```
//!
//! Guarantees: every byte is covered by the head of the frame that it is in, and every head by the next one, so that the last head, which the
//! journal knows, vouches for the whole file. Reading never panics and believes no length. Does not: open anything; that takes the key.

use palyra_types::{Sha256Digest, digest::RunningDigest};
use serde::{Deserialize, Serialize};

use crate::{
    backend::BackendKind,
    seal::{About, OVERHEAD},
    value::LONGEST_VALUE,
};

/// How far a vault is: how many things were done to it, and the digest of all that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Counts what was done.
    pub generation: u64,
    /// Vouches for every byte of the file.
    pub digest: Sha256Digest,
}

/// What stands at the beginning of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    /// Which vault it is, in 32 hexadecimal digits.
    pub vault: String,
    /// Who holds its key.
    pub backend: BackendKind,
    /// The how-manieth key.
    pub key: u64,
    /// The generation in which the file was written as a whole.
    pub generation: u64,
    /// How many frames were written with it.
    pub frames: u64,
}

impl Header {
    /// What the proof behind the header is about: everything before it.
    pub(crate) fn about(&self, spelt: &[u8]) -> About {
        About::kind("palyra vault header").and(self.vault.as_bytes()).and(spelt)
    }

    /// The bytes before the proof.
    pub(crate) fn spell(&self) -> Vec<u8> {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let length = u32::try_from(text.len()).unwrap_or_default();
        [MAGIC, &length.to_be_bytes(), &text].concat()
    }
}

/// A header that was read, and where it ends.
pub(crate) struct ReadHeader<'a> {
    pub header: Header,
    pub spelt: &'a [u8],
    pub proof: &'a [u8],
    pub end: usize,
    pub digest: Sha256Digest,
}

/// Reads the header.
pub(crate) fn read_header(bytes: &[u8]) -> Option<ReadHeader<'_>> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok().filter(|&length| length <= LONGEST_HEADER)?;
    let (text, rest) = rest.split_at_checked(length)?;
    let proof = rest.get(..OVERHEAD)?;
    let header: Header = serde_json::from_slice(text).ok()?;
    let is_id = |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let before_proof = MAGIC.len() + 4 + length;
    let spelt = bytes.get(..before_proof)?;
    // What is spelt in another way was not written by this.
    if !is_id(&header.vault) || header.spell() != spelt {
        return None;
    }
    let end = before_proof + OVERHEAD;
    Some(ReadHeader { header, spelt, proof, end, digest: Sha256Digest::of(bytes.get(..end)?) })
}

/// One frame.
pub(crate) struct Frame<'a> {
    pub generation: u64,
    /// The head before it.
    pub before: Sha256Digest,
    pub description: &'a [u8],
    pub value: &'a [u8],
    /// Where the value begins in the file.
    pub value_at: u64,
    /// Where the frame ends.
    pub end: usize,
    pub head: Sha256Digest,
}

/// What is found where a frame could be.
pub(crate) enum Found<'a> {
    Frame(Frame<'a>),
    /// The end of the file.
    Nothing,
    /// Something that is no frame, or not whole.
    Broken,
}

/// Reads the frame at this place.
pub(crate) fn read_frame(bytes: &[u8], at: usize, before: Sha256Digest) -> Found<'_> {
    match bytes.get(at..) {
        None | Some([]) => Found::Nothing,
        Some(rest) => parse(rest, at, before).map_or(Found::Broken, Found::Frame),
    }
}

fn parse(bytes: &[u8], at: usize, before: Sha256Digest) -> Option<Frame<'_>> {
    let (generation, rest) = bytes.split_first_chunk::<8>()?;
    let (description, rest) = rest.split_first_chunk::<4>()?;
    let (value, rest) = rest.split_first_chunk::<4>()?;
    let length = |bytes: &[u8; 4], most: usize| {
        usize::try_from(u32::from_be_bytes(*bytes)).ok().filter(|&length| length <= most)
    };
    let (description, value) = (length(description, LONGEST_DESCRIPTION)?, length(value, LONGEST_VALUE + OVERHEAD)?);
    let (description, rest) = rest.split_at_checked(description)?;
    let (value, rest) = rest.split_at_checked(value)?;
    let told = rest.first_chunk::<32>()?;
    let covered = FRAME_HEAD + description.len() + value.len();
    let head = head_of(before, bytes.get(..covered)?);
    if head.as_bytes() != told {
        return None;
    }
    Some(Frame {
        generation: u64::from_be_bytes(*generation),
        before,
        description,
        value,
        value_at: u64::try_from(at + FRAME_HEAD + description.len()).ok()?,
        end: at + covered + 32,
        head,
    })
}

/// Appends a frame, and tells where its value begins in what was there and the frame together, and the new head.
pub(crate) fn write_frame(
    into: &mut Vec<u8>,
    before: Head,
    generation: u64,
    (description, value): (&[u8], &[u8]),
) -> (usize, Head) {
    let start = into.len();
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes();
    into.extend_from_slice(&generation.to_be_bytes());
    into.extend_from_slice(&length(description));
    into.extend_from_slice(&length(value));
    into.extend_from_slice(description);
    let value_at = into.len();
    into.extend_from_slice(value);
    let digest = head_of(before.digest, into.get(start..).unwrap_or_default());
    into.extend_from_slice(digest.as_bytes());
    (value_at, Head { generation, digest })
}

fn head_of(before: Sha256Digest, frame: &[u8]) -> Sha256Digest {
    let mut digest = RunningDigest::default();
    digest.update(before.as_bytes());
    digest.update(frame);
    digest.finish()
}

const MAGIC: &[u8] = b"palyra vault 1\n";
const FRAME_HEAD: usize = 16;
const LONGEST_HEADER: usize = 4096;

/// How many bytes a sealed description has at most.
pub(crate) const LONGEST_DESCRIPTION: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> Header {
        Header {
            vault: "0123456789abcdef0123456789abcdef".to_owned(),
            backend: BackendKind::KeyFile,
            key: 1,
            generation: 1,
            frames: 0,
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut bytes = header().spell();
        bytes.extend([0; OVERHEAD]);
        let read = read_header(&bytes).unwrap();
        assert_eq!((&read.header, read.end, read.proof), (&header(), bytes.len(), &[0; OVERHEAD][..]));
        let (at, before) = (read.end, Head { generation: 1, digest: read.digest });
        let (value_at, head) = write_frame(&mut bytes, before, 2, (b"description", b"value"));
        assert_eq!(&bytes[value_at..value_at + 5], b"value");
        let Found::Frame(frame) = read_frame(&bytes, at, before.digest) else { panic!() };
        assert_eq!((frame.generation, frame.description, frame.value), (2, &b"description"[..], &b"value"[..]));
        assert_eq!((frame.end, frame.head, frame.value_at), (bytes.len(), head.digest, value_at as u64));
        assert!(matches!(read_frame(&bytes, frame.end, frame.head), Found::Nothing));
    }

    #[test]
    fn no_byte_of_a_frame_can_change_and_none_be_cut_off() {
        let before = Head { generation: 1, digest: Sha256Digest::of(b"before") };
        let mut bytes = Vec::new();
        write_frame(&mut bytes, before, 2, (b"description", b"value"));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(matches!(read_frame(&changed, 0, before.digest), Found::Broken), "byte {at}");
            assert!(at == 0 || matches!(read_frame(&bytes[..at], 0, before.digest), Found::Broken), "cut at {at}");
        }
        assert!(matches!(read_frame(&bytes, 0, Sha256Digest::of(b"other")), Found::Broken));
    }

    proptest! {
        #[test]
        fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_header(&bytes);
            let _ = read_header(&[MAGIC, &bytes].concat());
            let _ = read_frame(&bytes, 0, Sha256Digest::of(b"x"));
        }
    }
}
