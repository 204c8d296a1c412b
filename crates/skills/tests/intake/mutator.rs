//! Changes bytes a little, from a seed, so that a run can be had again.

/// A source of changes.
pub struct Mutator(u64);

impl Mutator {
    /// The same seed makes the same changes.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// One of the inputs with one to four changes. The others are what is spliced into it.
    pub fn next(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = inputs[self.below(inputs.len())].clone();
        for _ in 0..=self.below(4) {
            let other = &inputs[self.below(inputs.len())];
            self.change(&mut bytes, other);
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        if bytes.is_empty() {
            bytes.extend_from_slice(other);
        }
        let at = self.below(bytes.len());
        match self.below(9) {
            0 => bytes[at] ^= 1 << self.below(8),
            1 => bytes[at] = self.pick(INTERESTING),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(self.range(bytes.len()))),
            4 => {
                let copied = bytes[self.range(bytes.len())].to_vec();
                bytes.splice(at..at, copied);
            }
            5 => {
                let piece = other[self.range(other.len())].to_vec();
                let end = (at + piece.len()).min(bytes.len());
                bytes.splice(at..end, piece);
            }
            // The beginning of one and the end of another.
            6 => {
                let cut = self.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[cut..]);
            }
            _ => self.change_number(bytes, at),
        }
    }

    /// Puts another number where one may be: a length of one byte or several, or digits in octal as headers of archives have.
    fn change_number(&mut self, bytes: &mut Vec<u8>, at: usize) {
        let number = self.pick(&[0, 1, 2, 127, 128, 255, 4096, 65_535, 65_536, 1 << 20, u32::MAX / 2, u32::MAX]);
        let written = match self.below(4) {
            0 => leb128(number),
            1 => number.to_le_bytes().to_vec(),
            2 => number.to_string().into_bytes(),
            _ => format!("{number:011o}").into_bytes(),
        };
        // At a field of a header, half of the time.
        let at = if self.below(2) == 0 { at / 512 * 512 + 124 } else { at };
        let end = (at + written.len()).min(bytes.len());
        if at < end {
            bytes.splice(at..end, written);
        }
    }

    /// Puts the checksums right that headers of an archive carry, so that changes reach what lies behind them.
    pub fn with_checksums(mut archive: Vec<u8>) -> Vec<u8> {
        for block in archive.chunks_exact_mut(512).filter(|block| block[257..].starts_with(b"ustar")) {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        archive
    }

    /// Whether something with these odds happens.
    pub fn one_in(&mut self, odds: usize) -> bool {
        self.below(odds) == 0
    }

    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length.max(1));
        start..(start + self.below(64) + 1).min(length)
    }

    fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len())]
    }

    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).unwrap();
        usize::try_from(self.random() % bound).unwrap()
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn leb128(mut number: u32) -> Vec<u8> {
    let mut written = Vec::new();
    loop {
        let byte = u8::try_from(number & 0x7f).unwrap();
        number >>= 7;
        if number == 0 {
            written.push(byte);
            return written;
        }
        written.push(byte | 0x80);
    }
}

const INTERESTING: &[u8] = &[0, 1, 2, 0x0b, 0x20, 0x41, 0x60, 0x7f, 0x80, 0xff, b'"', b'\n', b'/', b'.'];
