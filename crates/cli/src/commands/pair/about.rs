//! What this device says about itself when it is paired. Nobody checks it.

use std::fs;

use palyra_identity::pairing::Label;
use palyra_types::visible::is_hidden;

/// What this machine calls itself.
pub(super) fn name() -> Option<Label> {
    label(&rustix::system::uname().nodename().to_string_lossy(), "device")
}

/// What it runs on.
pub(super) fn system() -> Option<Label> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    label(&pretty_name(&release).unwrap_or_default(), "Linux")
}

/// The name that a system gives itself for people.
fn pretty_name(release: &str) -> Option<String> {
    let value = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?.trim();
    let bare = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let bare = bare.or_else(|| value.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')));
    Some(bare.unwrap_or(value).to_owned())
}

/// What is left of a text when nothing in it hides, else something that says little.
fn label(text: &str, instead: &str) -> Option<Label> {
    let shown: String = text.chars().filter(|&c| !is_hidden(c)).take(LONGEST).collect();
    Label::parse(shown.trim()).or_else(|_| Label::parse(instead)).ok()
}

/// How long a label may be.
const LONGEST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_system_is_read_with_and_without_quotes() {
        let name = |line: &str| pretty_name(&format!("NAME=x\n{line}\nID=y\n"));
        assert_eq!(
            name("PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"").as_deref(),
            Some("Debian GNU/Linux 13 (trixie)")
        );
        assert_eq!(name("PRETTY_NAME='Arch Linux'").as_deref(), Some("Arch Linux"));
        assert_eq!(name("PRETTY_NAME=Void").as_deref(), Some("Void"));
        assert_eq!(name("OTHER=1"), None);
    }

    #[test]
    fn a_label_hides_nothing_and_is_never_empty() {
        let label = |text: &str| label(text, "Linux").unwrap().to_string();
        assert_eq!(label(" lap\u{202e}top "), "laptop");
        assert_eq!(label("\u{200b}"), "Linux");
        assert_eq!(label(&"x".repeat(80)), "x".repeat(64));
    }
}
