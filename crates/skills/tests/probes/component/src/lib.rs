//! What the components share: how they are called, how they tell what came of their one function, and memory to do it with.
//!
//! Guarantees: a component imports the interfaces of its world and nothing else. The standard library would bring more, so it is left out.

#![no_std]

extern crate alloc;

use alloc::{format, string::String};
use core::{
    alloc::{GlobalAlloc, Layout},
    arch::wasm32::{memory_grow, memory_size, unreachable},
    fmt::Debug,
    sync::atomic::{AtomicUsize, Ordering},
};

#[doc(hidden)]
pub use alloc::string::String as Text;

/// Makes the component: takes the input, which is a JSON string, and gives what was [`told`].
#[macro_export]
macro_rules! probe {
    ($attempt:expr) => {
        struct Probe;

        export!(Probe);

        /// Where the host puts what it hands over.
        ///
        /// # Safety
        /// Only the host calls it.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn cabi_realloc(old: *mut u8, held: usize, align: usize, size: usize) -> *mut u8 {
            // SAFETY: the host knows what it holds.
            unsafe { $crate::grow(old, held, align, size) }
        }

        impl Guest for Probe {
            fn run(_: $crate::Text, input: $crate::Text) -> Result<$crate::Text, Failure> {
                let attempt: fn(&str) -> $crate::Text = $attempt;
                Ok(attempt(input.trim_matches('"')))
            }
        }
    };
}

/// Whatever it is, as its debug form in a JSON string.
pub fn told(value: impl Debug) -> String {
    let text = format!("{value:?}");
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Room for the host: what it holds already, and more.
///
/// # Safety
/// `old` has to be something that this gave, of `held` bytes.
pub unsafe fn grow(old: *mut u8, held: usize, align: usize, size: usize) -> *mut u8 {
    let Ok(layout) = Layout::from_size_align(size, align) else { unreachable() };
    if size == 0 {
        return core::ptr::without_provenance_mut(align);
    }
    // SAFETY: it is not empty, and as much is copied as both have.
    unsafe {
        let new = alloc::alloc::alloc(layout);
        if new.is_null() {
            unreachable();
        }
        core::ptr::copy_nonoverlapping(old, new, held.min(size));
        new
    }
}

/// Memory that is never given back. A call is short.
struct Growing(AtomicUsize);

#[global_allocator]
static MEMORY: Growing = Growing(AtomicUsize::new(0));

// SAFETY: what is handed out lies behind everything that was handed out before, in pages that belong to nobody else.
unsafe impl GlobalAlloc for Growing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let free = match self.0.load(Ordering::Relaxed) {
            0 => memory_size(0) * PAGE,
            free => free,
        };
        let start = free.next_multiple_of(layout.align());
        let end = start + layout.size();
        let missing = end.saturating_sub(memory_size(0) * PAGE).div_ceil(PAGE);
        if missing > 0 && memory_grow(0, missing) == usize::MAX {
            return core::ptr::null_mut();
        }
        self.0.store(end, Ordering::Relaxed);
        start as *mut u8
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unreachable()
}

const PAGE: usize = 65_536;
