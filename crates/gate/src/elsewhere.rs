//! Where else a directory is: the same one, by way of another mount.
//!
//! Guarantees: every path at which a mount of this machine shows the directory now. Does not: know of mounts that come later; reading the
//! configuration again does.

use std::{
    fs,
    path::{Path, PathBuf},
};

use palyra_types::AbsolutePath;

/// The other paths of a directory, which is given by its real path.
pub(crate) fn elsewhere(directory: &AbsolutePath) -> Vec<AbsolutePath> {
    fs::read_to_string("/proc/self/mountinfo").map(|table| listed(&table, directory)).unwrap_or_default()
}

fn listed(table: &str, directory: &AbsolutePath) -> Vec<AbsolutePath> {
    let mounts: Vec<Mount> = table.lines().filter_map(Mount::read).collect();
    let path = Path::new(directory.as_str());
    // Of several mounts at one place the last one shows.
    let holding = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    let Some(own) = holding.max_by_key(|mount| mount.point.components().count()) else { return Vec::new() };
    let Ok(below) = path.strip_prefix(&own.point) else { return Vec::new() };
    let within = own.root.join(below);
    let shown = |mount: &Mount| {
        let rest = within.strip_prefix(&mount.root).ok().filter(|_| mount.device == own.device)?;
        AbsolutePath::parse(mount.point.join(rest).to_str()?).ok()
    };
    let mut found: Vec<AbsolutePath> = mounts.iter().filter_map(shown).filter(|other| other != directory).collect();
    found.sort();
    found.dedup();
    found
}

/// A mount, as the kernel lists it.
struct Mount {
    device: String,
    /// What of the file system is mounted.
    root: PathBuf,
    /// Where.
    point: PathBuf,
}

impl Mount {
    fn read(line: &str) -> Option<Self> {
        let mut fields = line.split(' ').skip(2);
        let (device, root, point) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Self { device: device.to_owned(), root: unescaped(root).into(), point: unescaped(point).into() })
    }
}

/// A path of the list, in which spaces and their like stand as three octal digits.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (code, part.get(3..)) {
            (Some(code), Some(rest)) => {
                plain.push(char::from(code));
                plain.push_str(rest);
            }
            _ => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 8:2 / /home rw - ext4 /dev/sda2 rw
24 22 8:2 /ada /mnt/of\\040ada rw - ext4 /dev/sda2 rw
25 22 8:1 /srv /home/ada/served rw - ext4 /dev/sda1 rw
26 22 0:5 / /proc rw - proc proc rw
";

    fn at(directory: &str) -> Vec<String> {
        let directory = AbsolutePath::parse(directory).unwrap();
        listed(TABLE, &directory).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_directory_is_found_at_every_mount_that_shows_it() {
        assert_eq!(at("/home/ada/state"), ["/mnt/of ada/state"]);
        assert_eq!(at("/mnt/of ada/state"), ["/home/ada/state"]);
        assert_eq!(at("/srv/palyra"), ["/home/ada/served/palyra"]);
        assert_eq!(at("/home/ada/served/palyra"), ["/srv/palyra"]);
        assert_eq!(at("/home/eve/state"), Vec::<String>::new());
        assert_eq!(at("/etc/palyra"), Vec::<String>::new());
    }

    #[test]
    fn this_machine_has_a_list() {
        assert!(fs::read_to_string("/proc/self/mountinfo").unwrap().lines().all(|line| Mount::read(line).is_some()));
    }
}
