//! What the programs for WASI preview 1 share: how they begin, and how they tell what came of their one function.
//!
//! Guarantees: a program imports its function and `fd_write`, which it tells with, and nothing else. The answer is
//! `{"errno": n, "seen": …}`.

#![no_std]

use core::fmt::{self, Write};

/// Makes the program.
#[macro_export]
macro_rules! probe {
    ($($body:tt)*) => {
        /// Where the program begins.
        #[unsafe(no_mangle)]
        pub extern "C" fn _start() {
            $($body)*
        }
    };
}

/// A file of the machine that nobody granted. Whoever builds the programs says where one is.
pub const CANARY: &str = match option_env!("PALYRA_PROBE_CANARY") {
    Some(path) => path,
    None => "/etc/hostname",
};

/// The standard streams, and every descriptor that a directory, a file or a socket could have.
pub const DESCRIPTORS: core::ops::Range<u32> = 0..16;

/// Tells an error number and something that was seen, which is JSON.
pub fn tell(errno: i32, seen: impl fmt::Display) {
    let mut text = Text { bytes: [0; 4096], length: 0 };
    let written = write!(text, "{{\"errno\":{errno},\"seen\":{seen}}}");
    let told = text.bytes.get(..text.length).filter(|_| written.is_ok());
    write_out(told.unwrap_or(b"\"too long\""));
}

/// Writes to standard output.
pub fn write_out(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let mut count = 0;
        let vectors = Bytes { start: bytes.as_ptr(), length: bytes.len() };
        // SAFETY: one vector, which is valid, and a place for the count.
        let errno = unsafe { fd_write(1, &vectors, 1, &mut count) };
        match bytes.get(count..) {
            Some(rest) if errno == 0 && count > 0 => bytes = rest,
            _ => core::arch::wasm32::unreachable(),
        }
    }
}

/// Tries all descriptors. The error number is that of the first that is no standard stream; seen are those that worked.
pub fn over(descriptors: impl Iterator<Item = u32>, mut attempt: impl FnMut(u32) -> i32) {
    let (mut errno, mut seen) = (0, Numbers::none());
    for descriptor in descriptors {
        let outcome = attempt(descriptor);
        if descriptor == FIRST_DIRECTORY {
            errno = outcome;
        }
        if outcome == 0 {
            seen.push(descriptor);
        }
    }
    tell(errno, seen);
}

/// Tries a file of the machine below all descriptors, by its whole path, as if they were the root, and by its name.
pub fn over_paths(mut attempt: impl FnMut(u32, &str) -> i32) {
    // By bytes: comparing texts takes a library for C, which would come with imports of its own.
    let last = CANARY.bytes().rposition(|byte| byte == b'/').unwrap_or_default();
    let (from_root, name) = (CANARY.get(1..).unwrap_or_default(), CANARY.get(last + 1..).unwrap_or_default());
    over(DESCRIPTORS, |descriptor| {
        let outcomes = [CANARY, from_root, name, "."].map(|path| attempt(descriptor, path));
        outcomes.into_iter().min().unwrap_or_default()
    });
}

/// Numbers as JSON.
pub struct Numbers {
    held: [u32; 64],
    count: usize,
}

impl Numbers {
    /// None.
    pub const fn none() -> Self {
        Self { held: [0; 64], count: 0 }
    }

    /// One more.
    pub fn push(&mut self, number: u32) {
        if let Some(place) = self.held.get_mut(self.count) {
            *place = number;
            self.count += 1;
        }
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (position, number) in self.held.iter().take(self.count).enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(f, "{comma}{number}")?;
        }
        f.write_str("]")
    }
}

/// Bytes as a JSON string. What is not plain becomes a question mark.
pub struct Quoted<'a>(pub &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for &byte in self.0 {
            let is_plain = (byte.is_ascii_graphic() || byte == b' ') && byte != b'"' && byte != b'\\';
            f.write_char(if is_plain { char::from(byte) } else { '?' })?;
        }
        f.write_str("\"")
    }
}

/// Bytes to be written, as WASI takes them.
#[repr(C)]
pub struct Bytes {
    /// Where they are.
    pub start: *const u8,
    /// How many.
    pub length: usize,
}

/// Room to read into, as WASI takes it.
#[repr(C)]
pub struct Room {
    /// Where it is.
    pub start: *mut u8,
    /// How much.
    pub length: usize,
}

struct Text {
    bytes: [u8; 4096],
    length: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

const FIRST_DIRECTORY: u32 = 3;

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_write(descriptor: u32, vectors: *const Bytes, count: usize, written: *mut usize) -> i32;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
