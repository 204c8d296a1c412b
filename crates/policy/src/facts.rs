//! What the configuration says about a request: the facts that go into the Cedar context beside it.
//!
//! Guarantees: pure, and errs towards `true` for `runs_palyra` and `touches_state`.
//! Does not: make these two a boundary. A program can hide what it does from any reading of its arguments; the sandbox and the
//! credentials are the boundary, and this is what makes an honest attempt fail with a clear reason.

use palyra_types::{AbsolutePath, Process, Resource, process};

use crate::request::{Allowlist, PolicyEvaluationConfig, PolicyRequest, PolicyRequestContext, PrincipalName};

/// What the configuration says about one request, worked out when it is asked for.
pub(crate) struct Facts<'a> {
    pub(crate) request: &'a PolicyRequest,
    pub(crate) context: &'a PolicyRequestContext,
    pub(crate) config: &'a PolicyEvaluationConfig,
}

impl Facts<'_> {
    pub(crate) const fn allow_sensitive_tools(&self) -> bool {
        self.config.allow_sensitive_tools
    }

    pub(crate) fn sensitive_action(&self) -> bool {
        self.request.action.is_sensitive() || self.config.sensitive_actions.contains(&self.request.action)
    }

    /// The resource says what is run; only where it is neither tool nor skill does the context's tool name count.
    pub(crate) fn allowlisted(&self) -> bool {
        match (&self.request.resource, &self.context.tool_name) {
            (Resource::Tool(tool), _) => self.config.allowlisted_tools.contains(tool),
            (Resource::Skill(skill), _) => self.config.allowlisted_skills.contains(skill),
            (_, Some(tool)) => self.config.allowlisted_tools.contains(tool),
            (_, None) => false,
        }
    }

    pub(crate) fn principal_authorized(&self) -> bool {
        match &self.config.tool_execute_principal_allowlist {
            Allowlist::Any => true,
            only @ Allowlist::Only(_) => only.contains(&PrincipalName::from(&self.request.principal)),
        }
    }

    pub(crate) fn channel_authorized(&self) -> bool {
        match (&self.config.tool_execute_channel_allowlist, &self.context.channel) {
            (Allowlist::Any, _) => true,
            (only @ Allowlist::Only(_), Some(channel)) => only.contains(channel),
            (Allowlist::Only(_), None) => false,
        }
    }

    pub(crate) fn runs_palyra(&self) -> bool {
        self.context.process.as_ref().is_some_and(|process| runs_palyra(process, self.config))
    }

    pub(crate) fn touches_state(&self) -> bool {
        let Some(state) = &self.config.state_directory else { return false };
        let path_is_within = matches!(&self.request.resource, Resource::Path(path) if path.is_within(state));
        path_is_within || self.context.process.as_ref().is_some_and(|process| reaches_into(process, state))
    }
}

fn runs_palyra(process: &Process, config: &PolicyEvaluationConfig) -> bool {
    let name = process.program.file_name();
    if is_palyra(process.program.as_str(), config) {
        return true;
    }
    // SECURITY: `env palyra …`, `bash -c "palyra …"` and `sudo sh -c "palyra …"` run Palyra as surely as `palyra …`. An argument
    // of any other program that merely mentions the word (a commit message, a search) does not.
    (process::is_interpreter(name) || process::is_launcher(name))
        && process.args.iter().any(|arg| is_palyra(arg, config) || words(arg).any(|word| is_palyra(word, config)))
}

fn is_palyra(word: &str, config: &PolicyEvaluationConfig) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    matches!(name, "palyra" | "palyrad") || config.palyra_programs.iter().any(|program| program.as_str() == word)
}

fn reaches_into(process: &Process, state: &AbsolutePath) -> bool {
    process.program.is_within(state)
        || process.cwd.as_ref().is_some_and(|cwd| cwd.is_within(state))
        || process.args.iter().any(|arg| arg_reaches(arg, process.cwd.as_ref(), state))
}

/// Whether an argument names the state directory: spelt out anywhere inside it, or relative to the working directory.
fn arg_reaches(arg: &str, cwd: Option<&AbsolutePath>, state: &AbsolutePath) -> bool {
    // The state directory may itself hold what separates words, so the argument is also searched for it as it stands.
    let spelt_out = arg.match_indices(state.as_str()).any(|(start, found)| {
        let (before, after) = (arg.get(..start), arg.get(start + found.len()..));
        // An option may be glued to its value: `tar -C/state`.
        before.is_some_and(|before| before.is_empty() || before.ends_with(is_separator) || before.starts_with('-'))
            && after.is_some_and(|after| after.is_empty() || after.starts_with(|c| c == '/' || is_separator(c)))
    });
    spelt_out
        || words(arg).any(|word| {
            let path = match (word.starts_with('/'), cwd) {
                (true, _) => fold(word),
                (false, Some(cwd)) => fold(&format!("{cwd}/{word}")),
                (false, None) => return false,
            };
            AbsolutePath::parse(&path).is_ok_and(|path| path.is_within(state))
        })
}

/// Folds `..` away. Only for the question "does this look like it reaches there", where a guess too many is harmless.
fn fold(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for component in path.split('/') {
        match component {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            name => kept.push(name),
        }
    }
    format!("/{}", kept.join("/"))
}

/// Splits text at what separates words in shells and in options.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_separator).filter(|word| !word.is_empty())
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || "\"'`$(){}[];|&<>=,:@".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> PolicyEvaluationConfig {
        PolicyEvaluationConfig {
            state_directory: Some(AbsolutePath::parse("/home/ada/.local/share/palyra").unwrap()),
            ..PolicyEvaluationConfig::default()
        }
    }

    fn process(argv: &[&str]) -> Process {
        let (program, args) = argv.split_first().unwrap();
        Process {
            program: AbsolutePath::parse(program).unwrap(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            cwd: Some(AbsolutePath::parse("/home/ada/shop").unwrap()),
        }
    }

    #[test]
    fn palyra_is_recognised_behind_launchers_and_interpreters() {
        for argv in [
            &["/usr/bin/palyra", "approvals", "approve"][..],
            &["/usr/bin/env", "palyra", "status"],
            &["/usr/bin/sudo", "-u", "ada", "/opt/bin/palyrad"],
            &["/bin/bash", "-c", "cd /tmp && palyra approvals approve $(palyra approvals list)"],
            &["/usr/bin/python3", "-c", "import os; os.system('palyra up')"],
            &["/usr/bin/env", "bash", "-c", "palyra approvals approve 7"],
            &["/usr/bin/sudo", "sh", "-c", "exec palyra up"],
            &["/bin/su", "-c", "palyra up"],
        ] {
            assert!(runs_palyra(&process(argv), &config()), "{argv:?}");
        }
    }

    #[test]
    fn mentioning_palyra_is_not_running_it() {
        for argv in [
            &["/usr/bin/git", "commit", "-m", "describe palyra in the README"][..],
            &["/usr/bin/grep", "palyra", "Cargo.toml"],
            &["/usr/bin/cargo", "test", "-p", "palyra-policy"],
        ] {
            assert!(!runs_palyra(&process(argv), &config()), "{argv:?}");
        }
    }

    #[test]
    fn the_state_directory_is_recognised_in_any_spelling_of_an_argument() {
        let state = config().state_directory.unwrap();
        let reaches = |arg: &str| arg_reaches(arg, process(&["/bin/cat"]).cwd.as_ref(), &state);
        for arg in [
            "/home/ada/.local/share/palyra/vault/key",
            "../.local/share/palyra",
            "--file=/home/ada/.local/share/palyra/config.toml",
            "cat '/home/ada//.local/./share/palyra/x'",
            "/etc/../home/ada/.local/share/palyra",
        ] {
            assert!(reaches(arg), "{arg}");
        }
        assert!(!reaches("/home/ada/.local/share/palyra-notes"));
        assert!(!reaches("src/main.rs"));
    }

    #[test]
    fn a_state_directory_with_a_space_in_its_name_is_recognised_even_glued_to_an_option() {
        let state = AbsolutePath::parse("/home/ada smith/palyra@1").unwrap();
        for arg in [
            "/home/ada smith/palyra@1/key",
            "--file=/home/ada smith/palyra@1",
            "-C/home/ada smith/palyra@1",
            "cat '/home/ada smith/palyra@1/key'",
        ] {
            assert!(arg_reaches(arg, None, &state), "{arg}");
        }
        assert!(!arg_reaches("/home/ada smith/palyra@10", None, &state));
        assert!(!arg_reaches("/srv/home/ada smith/palyra@1", None, &state));
    }
}
