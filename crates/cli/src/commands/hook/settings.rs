//! The settings of Claude Code, as far as our hook is in them.
//!
//! Guarantees: everything else stays as it is written, in its order; a file that is replaced is there whole or not at all; what is no JSON object is
//! left alone and said so.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

/// A file of settings.
pub(super) struct Settings {
    path: PathBuf,
    members: Members,
}

impl Settings {
    /// Reads them; there may be none yet.
    pub(super) fn read(path: &Path) -> Result<Self, SettingsError> {
        // What stands behind a link is what is meant, and the link stays.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let members = match fs::read_to_string(&path) {
            Ok(text) if text.trim().is_empty() => Members::default(),
            Ok(text) => serde_json::from_str(&text).map_err(|error| unreadable(&path, &error.to_string()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Members::default(),
            Err(error) => return Err(unreadable(&path, &error.to_string())),
        };
        Ok(Self { path, members })
    }

    /// Where they are.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts our hook in, in the place of one that is there.
    pub(super) fn put(&mut self, hook: &Hook<'_>) -> Result<(), SettingsError> {
        self.change(Some(hook)).map(|_| ())
    }

    /// Takes our hook out. Tells whether it was there.
    pub(super) fn take(&mut self) -> Result<bool, SettingsError> {
        self.change(None)
    }

    fn change(&mut self, hook: Option<&Hook<'_>>) -> Result<bool, SettingsError> {
        let odd = |what: &str| unreadable(&self.path, &format!("`{what}` is not what Claude Code takes"));
        let mut hooks: Members = match self.members.get("hooks") {
            Some(raw) => serde_json::from_str(raw.get()).map_err(|_| odd("hooks"))?,
            None => Members::default(),
        };
        let groups: Vec<Box<RawValue>> = match hooks.get(EVENT) {
            Some(raw) => serde_json::from_str(raw.get()).map_err(|_| odd(EVENT))?,
            None => Vec::new(),
        };
        let before = groups.len();
        let mut was_there = false;
        let mut kept = Vec::with_capacity(before + 1);
        for group in groups {
            match without_ours(&group) {
                Left::AsItIs => kept.push(group),
                Left::Fewer(group) => {
                    was_there = true;
                    kept.push(to_raw_value(&group).map_err(|_| odd(EVENT))?);
                }
                Left::Nothing => was_there = true,
            }
        }
        if hook.is_none() && !was_there {
            return Ok(false);
        }
        if let Some(hook) = hook {
            kept.push(to_raw_value(&hook.group()).map_err(|_| odd(EVENT))?);
        }
        if kept.is_empty() {
            hooks.remove(EVENT);
        } else {
            hooks.set(EVENT, to_raw_value(&kept).map_err(|_| odd(EVENT))?);
        }
        if hooks.0.is_empty() {
            self.members.remove("hooks");
        } else {
            let hooks = to_raw_value(&hooks).map_err(|_| odd("hooks"))?;
            self.members.set("hooks", hooks);
        }
        Ok(was_there)
    }

    /// Writes them in the place of what is there.
    pub(super) fn write(&self) -> Result<(), SettingsError> {
        let failed = |error: &dyn std::fmt::Display| SettingsError::Unwritable {
            path: self.path.clone(),
            cause: error.to_string(),
        };
        let mut text = serde_json::to_string_pretty(&self.members).map_err(|error| failed(&error))?;
        text.push('\n');
        replace(&self.path, text.as_bytes()).map_err(|error| failed(&error))
    }
}

/// Our hook.
pub(super) struct Hook<'a> {
    /// What a shell is handed.
    pub(super) command: &'a str,
    /// How many seconds Claude Code gives it.
    pub(super) timeout: u32,
}

impl Hook<'_> {
    /// As it stands among the others of its event. Claude Code that knows `onFailure` blocks, too, if the command cannot even be started.
    pub(super) fn group(&self) -> Value {
        json!({
            "matcher": "*",
            "hooks": [{ "type": "command", "command": self.command, "timeout": self.timeout, "onFailure": "block" }],
        })
    }
}

/// What is left of a group.
enum Left {
    AsItIs,
    Fewer(Value),
    Nothing,
}

fn without_ours(group: &RawValue) -> Left {
    let Ok(mut value) = serde_json::from_str::<Value>(group.get()) else { return Left::AsItIs };
    let Some(hooks) = value.get_mut("hooks").and_then(Value::as_array_mut) else { return Left::AsItIs };
    let before = hooks.len();
    hooks.retain(|hook| !is_ours(hook));
    match hooks.len() {
        after if after == before => Left::AsItIs,
        0 => Left::Nothing,
        _ => Left::Fewer(value),
    }
}

/// Whether a hook runs this command, whichever file that is in.
fn is_ours(hook: &Value) -> bool {
    let command = hook.get("command").and_then(Value::as_str).unwrap_or_default();
    command.split_once(" hook claude-code").is_some_and(|(program, rest)| {
        let name = program.rsplit(['/', ' ']).next().unwrap_or_default();
        name.trim_matches('\'') == "palyra" && (rest.is_empty() || rest.starts_with(' '))
    })
}

/// The members of a JSON object in the order in which they are written.
#[derive(Default)]
struct Members(Vec<(String, Box<RawValue>)>);

impl Members {
    fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| &**value)
    }

    fn set(&mut self, name: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(own, _)| own == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    fn remove(&mut self, name: &str) {
        self.0.retain(|(own, _)| own != name);
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Members::default();
                while let Some((name, value)) = map.next_entry()? {
                    members.0.push((name, value));
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// Puts a file in the place of another, which may be there, with its permissions.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = directory.join(format!(".{name}.new-{}", std::process::id()));
    let mode = fs::metadata(path).map_or(0o600, |about| about.permissions().mode() & 0o777);
    let _ = fs::remove_file(&beside);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        File::open(directory)?.sync_all()
    })();
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

fn unreadable(path: &Path, cause: &str) -> SettingsError {
    SettingsError::Unreadable { path: path.to_owned(), cause: cause.to_owned() }
}

/// Why settings are not changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SettingsError {
    /// They make no sense.
    #[error("{} cannot be read: {cause}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// The disk does not take them.
    #[error("{} cannot be written: {cause}", .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
}

/// The event that asks before a tool is used.
const EVENT: &str = "PreToolUse";

#[cfg(test)]
mod tests {
    use super::*;

    const HOOK: Hook<'_> = Hook { command: "'/opt/palyra' hook claude-code", timeout: 60 };

    const THEIRS: &str = r#"{
  "model": "opus",
  "hooks": {
    "Stop": [ { "hooks": [ { "type": "command", "command": "say done" } ] } ],
    "PreToolUse": [ { "matcher": "Bash", "hooks": [ { "type": "command",   "command": "mine.sh" } ] } ]
  },
  "env": { "Z": "1", "A": "2" }
}
"#;

    fn changed(text: &str, change: impl Fn(&mut Settings)) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/settings.json");
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let mut settings = Settings::read(&path).unwrap();
        change(&mut settings);
        settings.write().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
        fs::read_to_string(&path).unwrap()
    }

    #[test]
    fn what_is_others_stays_as_it_is_written() {
        let with = changed(THEIRS, |settings| settings.put(&HOOK).unwrap());
        let value: Value = serde_json::from_str(&with).unwrap();
        let theirs: Value = serde_json::from_str(THEIRS).unwrap();
        assert_eq!(value["hooks"]["PreToolUse"], json!([theirs["hooks"]["PreToolUse"][0], HOOK.group()]));
        assert_eq!((&value["hooks"]["Stop"], &value["env"]), (&theirs["hooks"]["Stop"], &theirs["env"]));
        assert!(with.contains(r#"{ "Z": "1", "A": "2" }"#) && with.contains(r#""command",   "command""#));
        assert!(with.find("\"model\"") < with.find("\"hooks\"") && with.find("\"hooks\"") < with.find("\"env\""));
        let without = changed(&with, |settings| assert!(settings.take().unwrap()));
        assert_eq!(serde_json::from_str::<Value>(&without).unwrap(), theirs);
    }

    #[test]
    fn ours_is_there_once_however_often_it_is_put() {
        let once = changed("", |settings| settings.put(&HOOK).unwrap());
        let moved = Hook { command: "'/usr/local/bin/palyra' hook claude-code --on-ask wait", timeout: 600 };
        let twice = changed(&once, |settings| settings.put(&moved).unwrap());
        let value: Value = serde_json::from_str(&twice).unwrap();
        assert_eq!(value, json!({ "hooks": { "PreToolUse": [moved.group()] } }));
        assert_eq!(changed(&twice, |settings| assert!(settings.take().unwrap())), "{}\n");
        assert_eq!(changed(THEIRS, |settings| assert!(!settings.take().unwrap())).len(), {
            changed(THEIRS, |_| {}).len()
        });
    }

    #[test]
    fn a_hook_of_somebody_else_that_mentions_ours_is_not_ours() {
        let is = |command: &str| is_ours(&json!({ "type": "command", "command": command }));
        for command in ["notpalyra hook claude-code", "palyra hook claude-codes", "palyra-like hook claude-code", ""] {
            assert!(!is(command), "{command}");
        }
        for command in [
            "palyra hook claude-code",
            "/usr/bin/palyra hook claude-code --on-ask wait",
            "PALYRA_HOME=/srv/p '/opt/a b/palyra' hook claude-code --token-file /t",
        ] {
            assert!(is(command), "{command}");
        }
    }

    #[test]
    fn what_is_no_settings_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("settings.json");
        for text in ["[]", "{\"hooks\": 3}", "{\"hooks\": {\"PreToolUse\": {}}}", "{ // a comment\n}", "{"] {
            fs::write(&path, text).unwrap();
            let outcome = Settings::read(&path).and_then(|mut settings| settings.put(&HOOK));
            assert!(matches!(outcome, Err(SettingsError::Unreadable { .. })), "{text}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
