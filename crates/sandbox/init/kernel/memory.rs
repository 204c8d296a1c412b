//! Memory: what lists and strings are made of, and the functions that the compiler expects to exist.
//!
//! Guarantees: what is given back is used again, so that an init which watches a tool for days does not grow.
//! Does not: lock anything. The init and each process it forks have one thread.

use core::{
    alloc::{GlobalAlloc, Layout},
    cell::UnsafeCell,
    ptr,
};

use super::call::{Number, call};

#[global_allocator]
static MEMORY: Memory = Memory { free: UnsafeCell::new([ptr::null_mut(); CLASSES]), rest: UnsafeCell::new((0, 0)) };

/// Blocks of a few sizes, each twice the next smaller one; whatever is larger comes from the kernel directly.
struct Memory {
    /// For each size, the first free block, which holds the address of the next.
    free: UnsafeCell<[*mut u8; CLASSES]>,
    /// What is left of the last piece that the kernel gave: from here to there.
    rest: UnsafeCell<(usize, usize)>,
}

// SAFETY: there is one thread.
unsafe impl Sync for Memory {}

// SAFETY: a block is at least as large as asked for, aligned to its own size or to a page, and given to nobody else meanwhile.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = class_of(layout) else { return pages(layout.size()) };
        // SAFETY: there is one thread, and neither reference is kept.
        let (free, rest) = unsafe { (&mut *self.free.get(), &mut *self.rest.get()) };
        let Some(first) = free.get_mut(class) else { return ptr::null_mut() };
        if !first.is_null() {
            let block = *first;
            // SAFETY: a free block holds the address of the next one, or null.
            *first = unsafe { block.cast::<*mut u8>().read() };
            return block;
        }
        let size = SMALLEST << class;
        let mut from = rest.0.next_multiple_of(size);
        if rest.0 == 0 || from + size > rest.1 {
            from = pages(PIECE).addr();
            if from == 0 {
                return ptr::null_mut();
            }
            rest.1 = from + PIECE;
        }
        rest.0 = from + size;
        ptr::with_exposed_provenance_mut(from)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(class) = class_of(layout) else {
            // SAFETY: the block came from the kernel with this size, and nobody uses it any more.
            let _ = unsafe { call(Number::Munmap, [block.addr(), layout.size()]) };
            return;
        };
        // SAFETY: there is one thread, and the reference is not kept.
        let free = unsafe { &mut *self.free.get() };
        if let Some(first) = free.get_mut(class) {
            // SAFETY: the block is large enough for an address, aligned, and nobody uses it any more.
            unsafe { block.cast::<*mut u8>().write(*first) };
            *first = block;
        }
    }
}

fn class_of(layout: Layout) -> Option<usize> {
    let size = layout.size().max(layout.align()).max(SMALLEST).next_power_of_two();
    let class = (size / SMALLEST).trailing_zeros() as usize;
    (class < CLASSES).then_some(class)
}

/// Pages from the kernel, all zero; null if it has none.
fn pages(size: usize) -> *mut u8 {
    const READ_WRITE: usize = 3;
    const PRIVATE_ANONYMOUS: usize = 0x22;
    const NO_FILE: usize = usize::MAX;
    // SAFETY: the kernel chooses the place, so nothing that exists is touched.
    let place = unsafe { call(Number::Mmap, [0, size, READ_WRITE, PRIVATE_ANONYMOUS, NO_FILE]) };
    place.map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
}

const SMALLEST: usize = 16;
/// Up to blocks of 32 KiB.
const CLASSES: usize = 12;
/// How much is asked for at once; pages that nobody touches cost nothing.
const PIECE: usize = 1 << 20;

/// Copies bytes between places that do not overlap.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    // SAFETY: as the caller says.
    unsafe { copy_up(to, from, count) };
    to
}

/// Copies bytes between places that may overlap.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    if to.addr().wrapping_sub(from.addr()) >= count {
        // SAFETY: as the caller says; what is written lies before what is still to be read.
        unsafe { copy_up(to, from, count) };
    } else {
        for at in (0..count).rev() {
            // SAFETY: as the caller says. Volatile, lest the compiler makes this a call of itself.
            unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
        }
    }
    to
}

/// Fills a place with one byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, count: usize) -> *mut u8 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as the caller says; the direction flag is clear, as the calling convention demands.
    unsafe {
        core::arch::asm!("rep stosb", inout("rcx") count => _, inout("rdi") to => _, in("al") byte.to_le_bytes()[0],
                         options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    for at in 0..count {
        // SAFETY: as the caller says. Volatile, lest the compiler makes this a call of itself.
        unsafe { to.add(at).write_volatile(byte.to_le_bytes()[0]) };
    }
    to
}

/// Compares bytes: the difference of the first two that differ.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
    for at in 0..count {
        // SAFETY: as the caller says. Volatile, lest the compiler makes this a call of itself.
        let (one, other) = unsafe { (one.add(at).read_volatile(), other.add(at).read_volatile()) };
        if one != other {
            return i32::from(one) - i32::from(other);
        }
    }
    0
}

/// Compares bytes for equality.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
    // SAFETY: as the caller says.
    unsafe { memcmp(one, other, count) }
}

/// The length of a string that ends with NUL.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(string: *const u8) -> usize {
    let mut length = 0;
    // SAFETY: the string ends with NUL, as the caller says. Volatile, lest the compiler makes this a call of itself.
    while unsafe { string.add(length).read_volatile() } != 0 {
        length += 1;
    }
    length
}

unsafe fn copy_up(to: *mut u8, from: *const u8, count: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as the caller says; the direction flag is clear, as the calling convention demands.
    unsafe {
        core::arch::asm!("rep movsb", inout("rcx") count => _, inout("rdi") to => _, inout("rsi") from => _,
                         options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    for at in 0..count {
        // SAFETY: as the caller says. Volatile, lest the compiler makes this a call of itself.
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
    }
}
