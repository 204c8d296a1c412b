//! Files that only this enclosure has, in memory of its own: what is added to files that all enclosures share, and secrets.
//!
//! Guarantees: none of it can be changed by anything that runs inside, and all of it goes with the enclosure. Nothing of a secret is left in
//! the memory of the init.
//! Does not: read or write anything outside of the enclosure.

use alloc::{ffi::CString, format, vec, vec::Vec};
use core::{ffi::CStr, hint::black_box};

use crate::{
    blueprint::SECRETS,
    kernel::{self, Errno, Open},
};

/// Shows each of these files with this text behind what it holds.
pub fn add_to(paths: &[Vec<u8>], text: &[u8]) -> Result<(), Errno> {
    if paths.is_empty() {
        return Ok(());
    }
    // Over a directory that every enclosure has, and that is as it was before anything runs.
    kernel::mount_memory(ASIDE)?;
    let added = paths.iter().enumerate().try_for_each(|(number, path)| {
        let copy = c_string(format!("/tmp/{number}").as_bytes())?;
        let path = c_string(path)?;
        let mut content = read_whole(&path)?;
        content.push(b'\n');
        content.extend_from_slice(text);
        write_new(&copy, READABLE, &content)?;
        kernel::bind_read_only(&copy, &path)
    });
    kernel::unmount(ASIDE)?;
    added
}

/// Puts secrets where only this enclosure finds them, and forgets them.
pub fn put_secrets(secrets: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), Errno> {
    if secrets.is_empty() {
        return Ok(());
    }
    let directory = c_string(SECRETS.as_bytes())?;
    kernel::mount_memory(&directory)?;
    for (name, content) in secrets.iter() {
        let path = c_string(&[SECRETS.as_bytes(), b"/", name].concat())?;
        write_new(&path, OWN, content)?;
    }
    kernel::change_mode(&directory, LISTABLE)?;
    kernel::make_read_only(&directory)?;
    secrets.iter_mut().for_each(|(_, content)| forget(content));
    secrets.clear();
    Ok(())
}

/// Overwrites what holds a secret.
pub fn forget(bytes: &mut [u8]) {
    bytes.fill(0);
    // Otherwise the compiler sees that nobody reads it any more.
    black_box(bytes);
}

fn write_new(path: &CStr, mode: u32, content: &[u8]) -> Result<(), Errno> {
    let file = kernel::create(path, mode)?;
    let written = kernel::write_all(file, content);
    kernel::close(file);
    written
}

fn read_whole(path: &CStr) -> Result<Vec<u8>, Errno> {
    let file = kernel::open(path, Open::Read)?;
    let mut content = vec![0; 256 << 10];
    let mut have = 0;
    let read = loop {
        if have == content.len() {
            content.resize(2 * have, 0);
        }
        match kernel::read(file, content.get_mut(have..).unwrap_or_default()) {
            Ok(0) => break Ok(()),
            Ok(read) => have += read,
            Err(errno) => break Err(errno),
        }
    };
    kernel::close(file);
    content.truncate(have);
    read.map(|()| content)
}

fn c_string(bytes: &[u8]) -> Result<CString, Errno> {
    CString::new(bytes).map_err(|_| Errno(kernel::EINVAL))
}

const ASIDE: &CStr = c"/tmp";
const READABLE: u32 = 0o444;
const OWN: u32 = 0o400;
const LISTABLE: u32 = 0o500;
