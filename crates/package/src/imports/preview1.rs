//! The functions of WASI preview 1, and what each takes.
//!
//! Of a module its own function table counts, not what it is wrapped into later. Every program of a C library asks which directories it has and
//! closes and seeks its standard streams, so those functions are free: there is no directory, and the streams are the input and the answer.

use super::Need;

/// The module that they are imported from.
pub const MODULE: &str = "wasi_snapshot_preview1";

/// What a function takes, if it is one.
pub fn need_of(function: &str) -> Option<Need> {
    Some(match function {
        "args_get"
        | "args_sizes_get"
        | "environ_get"
        | "environ_sizes_get"
        | "fd_read"
        | "fd_write"
        | "fd_close"
        | "fd_seek"
        | "fd_fdstat_get"
        | "fd_fdstat_set_flags"
        | "fd_prestat_get"
        | "fd_prestat_dir_name"
        | "proc_exit"
        | "proc_raise"
        | "sched_yield" => Need::Free,
        "clock_res_get" | "clock_time_get" | "poll_oneoff" => Need::Clock,
        "random_get" => Need::Random,
        "fd_advise"
        | "fd_allocate"
        | "fd_datasync"
        | "fd_fdstat_set_rights"
        | "fd_filestat_get"
        | "fd_filestat_set_size"
        | "fd_filestat_set_times"
        | "fd_pread"
        | "fd_pwrite"
        | "fd_readdir"
        | "fd_renumber"
        | "fd_sync"
        | "fd_tell"
        | "path_create_directory"
        | "path_filestat_get"
        | "path_filestat_set_times"
        | "path_link"
        | "path_open"
        | "path_readlink"
        | "path_remove_directory"
        | "path_rename"
        | "path_symlink"
        | "path_unlink_file" => Need::InertFilesystem,
        "sock_accept" | "sock_recv" | "sock_send" | "sock_shutdown" => Need::InertSockets,
        _ => return None,
    })
}
