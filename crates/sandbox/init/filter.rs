//! Filters of system calls: those of an enclosure, which the daemon makes, and one for tools without: limits of other processes stay as
//! they are.
//!
//! Without the latter a program could lower the limits of its own init, which runs as the same user: one that gets neither memory nor
//! descriptors any more, or no processor time, cannot end the tree. Neither Landlock nor being undumpable stops that.
//! Guarantees: no limit of a process can be set but by that process itself, by way of no system call interface of this machine.
//! Does not: hold back anything else, or reading limits. The kernel sees at once which calls are none of its business.

use alloc::vec::Vec;

use crate::{
    blueprint::Blueprint,
    kernel::{self, Errno, FilterStep},
    protocol::layer,
};

/// Puts the calling process under the filter, and returns the layer that is active for it: none where the kernel has no filters.
pub fn keep_limits_of_others() -> u64 {
    let (load, and, equal, answer) = (0x20, 0x54, 0x15, 0x06);
    let step = |code, value, if_equal, otherwise| FilterStep { code, if_equal, otherwise, value };
    // Jumps count from the next step.
    let steps = [
        step(load, ARCHITECTURE, 0, 0),
        step(equal, NATIVE, 0, 3),
        step(load, NUMBER, 0, 0),
        step(and, !X32, 0, 0),
        step(equal, PRLIMIT, 2, 8),
        // Anything else is the interface for 32-bit programs.
        step(load, NUMBER, 0, 0),
        step(equal, PRLIMIT_OF_32_BITS, 0, 6),
        // Without new limits, the call only reads the old ones.
        step(load, NEW_LIMITS, 0, 0),
        step(equal, 0, 0, 2),
        step(load, NEW_LIMITS + 4, 0, 0),
        step(equal, 0, 2, 0),
        // Zero is the calling process.
        step(load, PROCESS, 0, 0),
        step(equal, 0, 0, 1),
        step(answer, ALLOW, 0, 0),
        step(answer, NOT_PERMITTED, 0, 0),
    ];
    kernel::filter_calls(&steps).map_or(0, |()| layer::OWN_LIMITS)
}

/// Puts the calling process under the filters of an enclosure. Returns the layers that are active for it, and where refusals can be heard
/// of.
pub fn install(blueprint: &Blueprint) -> Result<(u64, Option<i32>), Errno> {
    #[cfg(weak)]
    if blueprint.is_without(crate::blueprint::weakness::SECCOMP) {
        return Ok((0, None));
    }
    for filter in &blueprint.filters {
        kernel::filter_calls(&steps(filter)?)?;
    }
    let [noticed, plain] = &blueprint.noticed;
    match kernel::filter_with_notices(&steps(noticed)?) {
        Ok(notices) => Ok((layer::CALL_FILTER | layer::NOTICES, Some(notices))),
        // Somebody else listens already, outside of everything, and there can be only one.
        Err(_) => kernel::filter_calls(&steps(plain)?).map(|()| (layer::CALL_FILTER, None)),
    }
}

/// A filter as the daemon spells it: eight bytes for each step.
fn steps(bytes: &[u8]) -> Result<Vec<FilterStep>, Errno> {
    let (steps, rest) = bytes.as_chunks::<8>();
    if steps.is_empty() || !rest.is_empty() {
        return Err(Errno(kernel::EINVAL));
    }
    let step = |&[c, o, if_equal, otherwise, a, b, d, e]: &[u8; 8]| FilterStep {
        code: u16::from_le_bytes([c, o]),
        if_equal,
        otherwise,
        value: u32::from_le_bytes([a, b, d, e]),
    };
    Ok(steps.iter().map(step).collect())
}

/// Where what the filter looks at lies in `struct seccomp_data`: the call's number, its interface, its first and its third argument.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const PROCESS: u32 = 16;
const NEW_LIMITS: u32 = 32;

/// `SECCOMP_RET_ALLOW`.
const ALLOW: u32 = 0x7fff_0000;
/// `SECCOMP_RET_ERRNO` with `EPERM`.
const NOT_PERMITTED: u32 = 0x0005_0001;

/// The bit of a third interface, which otherwise looks like the native one; no number of another has it.
const X32: u32 = 0x4000_0000;

/// The native interface as the kernel's audit numbers it, and `prlimit64` in it and in the one for 32-bit programs.
#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "x86_64")]
const PRLIMIT: u32 = 302;
#[cfg(target_arch = "x86_64")]
const PRLIMIT_OF_32_BITS: u32 = 340;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7;
#[cfg(target_arch = "aarch64")]
const PRLIMIT: u32 = 261;
#[cfg(target_arch = "aarch64")]
const PRLIMIT_OF_32_BITS: u32 = 369;
