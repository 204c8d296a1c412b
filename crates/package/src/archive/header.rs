//! The header of one file in a ustar archive: 512 bytes of text fields.

use std::ops::Range;

use super::ArchiveError;

/// The unit of everything.
pub const BLOCK: usize = 512;

/// What a header says.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    pub name: String,
    pub size: usize,
}

/// Writes the header of a file. The name fits, and so does the size.
pub fn write(name: &str, size: usize) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    put(&mut block, NAME, name.as_bytes());
    put(&mut block, MODE, b"0000644\0");
    put(&mut block, UID, b"0000000\0");
    put(&mut block, GID, b"0000000\0");
    put(&mut block, SIZE, format!("{size:011o}\0").as_bytes());
    put(&mut block, MTIME, b"00000000000\0");
    put(&mut block, KIND, b"0");
    put(&mut block, MAGIC, USTAR);
    put(&mut block, DEVICE_MAJOR, b"0000000\0");
    put(&mut block, DEVICE_MINOR, b"0000000\0");
    let sum = sum(&block);
    put(&mut block, CHECKSUM, format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Reads the header of a file, and refuses everything that is none. That every field is spelt as [`write`] does is seen at the end, for the
/// whole archive.
pub fn read(block: &[u8; BLOCK]) -> Result<Header, ArchiveError> {
    if field(block, MAGIC) != USTAR {
        return Err(ArchiveError::NotAnArchive);
    }
    if octal(field(block, CHECKSUM))? != u64::from(sum(block)) {
        return Err(ArchiveError::Checksum);
    }
    let name = text(field(block, NAME));
    if let Some(what) = not_a_file(field(block, KIND)) {
        return Err(ArchiveError::NotAFile { name, what });
    }
    if field(block, PREFIX).iter().any(|&byte| byte != 0) {
        let whole = format!("{}/{name}", text(field(block, PREFIX)));
        return Err(ArchiveError::Name { name: whole, fault: super::NameFault::TooLong });
    }
    let size = usize::try_from(octal(field(block, SIZE))?).map_err(|_| ArchiveError::Number)?;
    Ok(Header { name, size })
}

fn not_a_file(kind: &[u8]) -> Option<&'static str> {
    Some(match kind {
        b"0" => return None,
        b"1" => "a hard link",
        b"2" => "a symbolic link",
        b"3" | b"4" => "a device",
        b"5" => "a directory",
        b"6" => "a pipe",
        b"x" | b"g" => "a PAX extension",
        b"L" | b"K" | b"N" => "a GNU extension for long names",
        b"S" => "a sparse file",
        _ => "no regular file",
    })
}

/// Digits of base eight that fill their field but for a NUL or a space. Base 256, as GNU tar has it for large numbers, is refused.
fn octal(field: &[u8]) -> Result<u64, ArchiveError> {
    let digits = field.split(|byte| matches!(byte, 0 | b' ')).next().unwrap_or_default();
    if digits.is_empty() {
        return Err(ArchiveError::Number);
    }
    digits.iter().try_fold(0_u64, |number, &digit| match digit {
        b'0'..=b'7' => {
            let next = number.checked_mul(8).and_then(|number| number.checked_add(u64::from(digit - b'0')));
            next.ok_or(ArchiveError::Number)
        }
        _ => Err(ArchiveError::Number),
    })
}

/// The sum of all bytes, those of the checksum taken as spaces.
fn sum(block: &[u8; BLOCK]) -> u32 {
    let counted = |(at, &byte): (usize, &u8)| if CHECKSUM.contains(&at) { u32::from(b' ') } else { u32::from(byte) };
    block.iter().enumerate().map(counted).sum()
}

fn text(field: &[u8]) -> String {
    let text = field.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

fn field(block: &[u8; BLOCK], at: Range<usize>) -> &[u8] {
    block.get(at).unwrap_or_default()
}

fn put(block: &mut [u8; BLOCK], at: Range<usize>, value: &[u8]) {
    for (byte, &value) in block.iter_mut().skip(at.start).take(at.len()).zip(value) {
        *byte = value;
    }
}

const NAME: Range<usize> = 0..100;
const MODE: Range<usize> = 100..108;
const UID: Range<usize> = 108..116;
const GID: Range<usize> = 116..124;
const SIZE: Range<usize> = 124..136;
const MTIME: Range<usize> = 136..148;
const CHECKSUM: Range<usize> = 148..156;
const KIND: Range<usize> = 156..157;
const MAGIC: Range<usize> = 257..265;
const DEVICE_MAJOR: Range<usize> = 329..337;
const DEVICE_MINOR: Range<usize> = 337..345;
const PREFIX: Range<usize> = 345..500;
const USTAR: &[u8] = b"ustar\x0000";
