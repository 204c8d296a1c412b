//! Notices of system calls that a tool is refused: heard, counted, and answered with the same error as without anybody listening.
//!
//! Guarantees: a call that comes here fails, always; only what is counted depends on this. The count says which calls, not with what.
//! Does not: let anything through.

use crate::{
    kernel::{self, Errno},
    protocol::Denied,
};

/// What is heard of refused calls.
pub struct Notices {
    /// Where the notices come from; negative where there are none.
    descriptor: i32,
    error: i32,
    denied: Denied,
    enclosed: bool,
}

impl Notices {
    /// Of a tool that is in no enclosure, of which nothing is heard.
    pub const NONE: Self =
        Self { descriptor: -1, error: 0, denied: Denied { numbers: [0; 8], count: 0 }, enclosed: false };

    /// Waits for the process that becomes the tool to say where its notices can be heard. It may be unable to.
    pub fn from(socket: i32, error: u64) -> Self {
        let mut fds = alloc::vec::Vec::new();
        let mut byte = [0];
        let heard = loop {
            match kernel::receive(socket, &mut byte, &mut fds) {
                Err(Errno(kernel::EINTR)) => {}
                heard => break heard.is_ok_and(|length| length > 0),
            }
        };
        kernel::close(socket);
        let descriptor = fds.first().copied().filter(|_| heard).unwrap_or(-1);
        Self { descriptor, error: i32::try_from(error).unwrap_or(kernel::EPERM), enclosed: true, ..Self::NONE }
    }

    /// What to wait on for the next.
    pub const fn descriptor(&self) -> i32 {
        self.descriptor
    }

    /// Hears the next one and answers it.
    pub fn hear(&mut self) {
        if !kernel::has_input(self.descriptor) {
            // Nobody is left who could be refused anything.
            kernel::close(self.descriptor);
            self.descriptor = -1;
            return;
        }
        // Whoever made the call may be gone meanwhile.
        let Some((id, number)) = kernel::receive_notice(self.descriptor) else { return };
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        if let Some(word) = self.denied.numbers.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
        self.denied.count = self.denied.count.saturating_add(1);
        kernel::answer_notice(self.descriptor, id, self.error);
    }

    /// What was refused so far.
    pub const fn denied(&self) -> Denied {
        self.denied
    }

    /// Whether there is an enclosure at all.
    pub const fn is_enclosed(&self) -> bool {
        self.enclosed
    }
}
