//! System calls: the one instruction, and the numbers, for each architecture.
//!
//! There is no C library in between: it would look at the processor and at the environment before the init gets to run, which takes
//! longer than everything that the init does itself.

use core::arch::{asm, global_asm};

use super::{Errno, entry};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the init knows the system calls of x86_64 and of aarch64");

// The kernel starts a program with an aligned stack, on top of it the number of arguments, and nothing to return to.
#[cfg(target_arch = "x86_64")]
global_asm!(".globl _start", "_start:", "xor ebp, ebp", "mov rdi, rsp", "call {entry}", "ud2", entry = sym entry);
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x29, xzr", "mov x30, xzr", "mov x0, sp", "bl {entry}", "brk 1", entry = sym entry);

/// Calls the kernel, with what is missing of six arguments as zeros.
///
/// # Safety
/// Whatever the arguments point to must be as the call expects it, and live until it returns.
pub unsafe fn call<const N: usize>(number: Number, given: [usize; N]) -> Result<usize, Errno> {
    let mut all = [0; 6];
    all.iter_mut().zip(given).for_each(|(place, argument)| *place = argument);
    // SAFETY: as the caller says.
    let answer = unsafe { enter(number as usize, all) };
    // The last page of addresses stands for errors.
    if answer > usize::MAX - 4096 {
        Err(Errno(i32::try_from(answer.wrapping_neg()).unwrap_or(i32::MAX)))
    } else {
        Ok(answer)
    }
}

#[cfg(target_arch = "x86_64")]
unsafe fn enter(number: usize, [a, b, c, d, e, f]: [usize; 6]) -> usize {
    let answer;
    // SAFETY: the kernel changes these registers only, and what the arguments point to.
    unsafe {
        asm!("syscall", inlateout("rax") number => answer, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e,
             in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    answer
}

#[cfg(target_arch = "aarch64")]
unsafe fn enter(number: usize, [a, b, c, d, e, f]: [usize; 6]) -> usize {
    let answer;
    // SAFETY: the kernel changes this register only, and what the arguments point to.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a => answer, in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
             options(nostack));
    }
    answer
}

/// Declares the calls with their numbers on x86_64 and on aarch64.
macro_rules! numbers {
    ($($name:ident $x86_64:literal $aarch64:literal,)+) => {
        /// The calls in use.
        #[derive(Clone, Copy)]
        pub enum Number {
            $(
                #[cfg(target_arch = "x86_64")]
                $name = $x86_64,
                #[cfg(not(target_arch = "x86_64"))]
                $name = $aarch64,
            )+
        }
    };
}

numbers! {
    Read 0 63,
    Write 1 64,
    Close 3 57,
    Mmap 9 222,
    Munmap 11 215,
    RtSigaction 13 134,
    RtSigprocmask 14 135,
    Ioctl 16 29,
    Pread64 17 67,
    Getpid 39 172,
    Socket 41 198,
    Connect 42 203,
    Sendto 44 206,
    Recvfrom 45 207,
    Sendmsg 46 211,
    Recvmsg 47 212,
    Bind 49 200,
    Listen 50 201,
    Socketpair 53 199,
    Clone 56 220,
    Execve 59 221,
    Wait4 61 260,
    Kill 62 129,
    Fcntl 72 25,
    Fchdir 81 50,
    Getrusage 98 165,
    Ptrace 101 117,
    Getuid 102 174,
    Getppid 110 173,
    Setsid 112 157,
    Setgroups 116 159,
    Setresuid 117 147,
    Setresgid 119 149,
    Capset 126 91,
    Prctl 157 167,
    Mount 165 40,
    Umount2 166 39,
    Getdents64 217 61,
    ClockGettime 228 113,
    ExitGroup 231 94,
    Keyctl 250 219,
    Openat 257 56,
    Readlinkat 267 78,
    Fchmodat 268 53,
    Ppoll 271 73,
    Unshare 272 97,
    TimerfdCreate 283 85,
    TimerfdSettime 286 86,
    Signalfd4 289 74,
    Dup3 292 24,
    Prlimit64 302 261,
    Seccomp 317 277,
    Bpf 321 280,
    Execveat 322 281,
    Statx 332 291,
    PidfdSendSignal 424 424,
    IoUringSetup 425 425,
    OpenTree 428 428,
    MoveMount 429 429,
    PidfdOpen 434 434,
    Clone3 435 435,
    CloseRange 436 436,
    MountSetattr 442 442,
    LandlockCreateRuleset 444 444,
    LandlockAddRule 445 445,
    LandlockRestrictSelf 446 446,
}
