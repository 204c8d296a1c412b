//! The structures that the kernel reads and writes, as its headers declare them for 64-bit words.

use core::ffi::c_void;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the structures of this module are those of 64-bit Linux");

#[repr(C)]
pub struct PollFd {
    pub fd: i32,
    pub events: i16,
    pub revents: i16,
}

#[repr(C)]
pub struct IoVec {
    pub base: *mut c_void,
    pub length: usize,
}

#[repr(C)]
pub struct Message {
    pub name: *mut c_void,
    pub name_length: u32,
    pub parts: *mut IoVec,
    pub part_count: usize,
    pub control: *mut c_void,
    pub control_length: usize,
    pub flags: i32,
}

/// `cmsghdr` with room for some descriptors behind it.
#[repr(C)]
pub struct Control {
    pub length: usize,
    pub level: i32,
    pub kind: i32,
    pub fds: [i32; Self::MOST],
}

impl Control {
    /// Where the descriptors begin.
    pub const HEADER: usize = size_of::<usize>() + 2 * size_of::<i32>();
    /// How many descriptors there is room for.
    pub const MOST: usize = 253;
    /// Descriptors, among what travels over a socket.
    pub const RIGHTS: (i32, i32) = (1, 1);
}

impl Default for Control {
    fn default() -> Self {
        Self { length: 0, level: 0, kind: 0, fds: [0; Self::MOST] }
    }
}

#[repr(C)]
#[derive(Default)]
pub struct Rusage {
    pub user: [i64; 2],
    pub system: [i64; 2],
    pub max_rss: i64,
    pub rest: [i64; 13],
}

/// `struct statx`, which is the same on every architecture.
#[repr(C)]
#[derive(Default)]
pub struct Statx {
    pub head: [u64; 4],
    pub inode: u64,
    pub size: u64,
    pub blocks_and_attributes: [u64; 2],
    pub accessed: StatxTime,
    pub born: StatxTime,
    pub changed: StatxTime,
    pub modified: StatxTime,
    pub represented: [u32; 2],
    pub device_major: u32,
    pub device_minor: u32,
    pub rest: [u64; 14],
}

#[repr(C)]
#[derive(Default)]
pub struct StatxTime {
    pub seconds: i64,
    pub nanoseconds: u32,
    pub reserved: i32,
}

/// `struct sock_filter`: one step of a filter.
#[repr(C)]
pub struct FilterStep {
    pub code: u16,
    pub if_equal: u8,
    pub otherwise: u8,
    pub value: u32,
}

/// `struct sock_fprog`: a whole one.
#[repr(C)]
pub struct Filter {
    pub count: u16,
    pub steps: *const FilterStep,
}

#[repr(C, packed)]
pub struct PathBeneath {
    pub access: u64,
    pub parent: i32,
}

/// `struct mount_attr`.
#[repr(C)]
pub struct MountAttributes {
    pub set: u64,
    pub clear: u64,
    pub propagation: u64,
    pub user_namespace: u64,
}

/// `struct sockaddr_in`.
#[repr(C)]
pub struct InternetAddress {
    pub family: u16,
    /// In the order of the network.
    pub port: [u8; 2],
    pub address: [u8; 4],
    pub zero: [u8; 8],
}

/// The header of a netlink message, a route's message and the three attributes that a route of the loopback device needs.
#[repr(C)]
pub struct RouteRequest {
    pub length: u32,
    pub kind: u16,
    pub flags: u16,
    pub sequence: u32,
    pub port: u32,
    /// Family, length of the destination, length of the source, type of service, table, protocol, scope, type.
    pub route: [u8; 8],
    pub route_flags: u32,
    pub destination_header: [u16; 2],
    pub destination: [u8; 4],
    pub device_header: [u16; 2],
    pub device: u32,
}

/// `struct seccomp_notif`.
#[repr(C)]
#[derive(Default)]
pub struct Notice {
    pub id: u64,
    pub pid: u32,
    pub flags: u32,
    pub number: i32,
    pub architecture: u32,
    pub instruction: u64,
    pub arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
pub struct NoticeAnswer {
    pub id: u64,
    pub value: i64,
    pub error: i32,
    pub flags: u32,
}
