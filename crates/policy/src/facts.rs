//! What the configuration says about a request: the facts that go into the Cedar context beside it.
//!
//! Guarantees: pure, and errs towards `true` for `runs_palyra` and `touches_state`.
//! Does not: make these two a boundary. A program can hide what it does from any reading of its arguments; the sandbox and the
//! credentials are the boundary, and this is what makes an honest attempt fail with a clear reason.

use std::sync::OnceLock;

use palyra_types::{
    AbsolutePath, Action, ObjectId, ObjectKind, PrincipalKind, Process, Resource, ToolName, VaultScope, process,
};

use crate::request::{Allowlist, PolicyEvaluationConfig, PolicyRequest, PolicyRequestContext, PrincipalName};

/// What the configuration says about one request, worked out when it is asked for.
pub(crate) struct Facts<'a> {
    pub(crate) request: &'a PolicyRequest,
    pub(crate) context: &'a PolicyRequestContext,
    pub(crate) config: &'a PolicyEvaluationConfig,
    pub(crate) process: &'a ProcessFacts,
}

/// What was read off a process. Its arguments can be long and a call can touch much, so it is read once for all decisions about the same
/// process by the same configuration.
#[derive(Debug, Default)]
pub struct ProcessFacts {
    runs_palyra: OnceLock<bool>,
    reaches_state: OnceLock<bool>,
}

impl Facts<'_> {
    pub(crate) const fn allow_sensitive_tools(&self) -> bool {
        self.config.allow_sensitive_tools
    }

    pub(crate) fn sensitive_action(&self) -> bool {
        self.request.action.is_sensitive() || self.config.sensitive_actions.contains(&self.request.action)
    }

    /// The resource says what is run; only where it is neither tool nor skill does the context's tool name count. A tool of a skill is on
    /// the list if its skill is, one of an MCP server if its server is.
    pub(crate) fn allowlisted(&self) -> bool {
        let config = self.config;
        let by_skill = || self.context.skill_id.as_ref().is_some_and(|skill| config.allowlisted_skills.contains(skill));
        let listed = |tool: &ToolName| {
            config.allowlisted_tools.contains(tool)
                || mcp_server(tool).is_some_and(|server| config.allowlisted_mcp.contains(&server))
        };
        match (&self.request.resource, &self.context.tool_name) {
            (Resource::Skill(skill), _) => config.allowlisted_skills.contains(skill),
            (Resource::Tool(tool), _) | (_, Some(tool)) => listed(tool) || by_skill(),
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

    /// Whether the principal belongs to the workspace that the call works in. Who is bound to none belongs to all.
    pub(crate) fn member(&self) -> bool {
        match (&self.context.member_of, &self.context.workspace) {
            (Some(bound), Some(workspace)) => bound.contains(workspace),
            (None, _) | (_, None) => true,
        }
    }

    /// Whether the configuration of an MCP server names what the request is about, and the request is made by that very server.
    pub(crate) fn configured(&self) -> bool {
        let PolicyRequest { principal, resource, .. } = self.request;
        let own = (principal.kind() == PrincipalKind::Service).then(|| principal.id().as_str().strip_prefix("mcp."));
        match (own.flatten(), resource) {
            (None, _) => false,
            (Some(own), Resource::Object(ObjectKind::McpServer, id)) => self.context.configured && id.as_str() == own,
            (Some(_), _) => self.context.configured,
        }
    }

    /// Whether the request is about a secret that a binding lets the call's tool send somewhere.
    pub(crate) fn bound(&self) -> bool {
        matches!(&self.request.resource, Resource::Secret(secret) if self.context.bound_secrets.contains(secret))
    }

    /// Whether the secret, the memory or the schedule that the request is about belongs where the request is made. What is about none of them
    /// is out of no scope.
    pub(crate) fn in_scope(&self) -> bool {
        let (principal, context) = (&self.request.principal, self.context);
        let secret = match &self.request.resource {
            Resource::Secret(secret) => secret,
            Resource::Object(ObjectKind::Memory, id) => return self.remembers(id),
            Resource::Object(ObjectKind::CronJob, id) => return self.scheduled(id),
            _ => return true,
        };
        match secret.scope() {
            VaultScope::Global => true,
            VaultScope::Workspace(name) => context.workspace.as_ref() == Some(name),
            // A user or a service of the same name is somebody else, and so is whoever acts for the agent.
            VaultScope::Agent(name) => principal.kind() == PrincipalKind::Agent && principal.id() == name,
            VaultScope::Skill(id) => context.skill_id.as_ref() == Some(id),
            VaultScope::Session(id) => context.session_id == Some(*id),
        }
    }

    /// Whether a memory is one that the request is made in: everybody's, the workspace's, the conversation's, or the principal's own.
    fn remembers(&self, id: &ObjectId) -> bool {
        match id.as_str().split_once(':') {
            None => id.as_str() == "global",
            Some(("workspace", name)) => self.context.workspace.as_ref().is_some_and(|own| own.as_str() == name),
            Some(("session", session)) => self.context.session_id.is_some_and(|own| own.to_string() == session),
            Some(_) => self.request.principal.to_string() == id.as_str(),
        }
    }

    /// Whether a schedule is the principal's own, by what stands before the name. One without an owner is nobody else's.
    fn scheduled(&self, id: &ObjectId) -> bool {
        id.as_str().rsplit_once('/').is_none_or(|(owner, _)| self.request.principal.to_string() == owner)
    }

    pub(crate) fn runs_palyra(&self) -> bool {
        let read = || self.context.process.as_ref().is_some_and(|process| runs_palyra(process, self.config));
        *self.process.runs_palyra.get_or_init(read)
    }

    pub(crate) fn touches_state(&self) -> bool {
        let Some(state) = &self.config.state_directory else { return false };
        let path_reaches = match &self.request.resource {
            // Writing a directory above it can replace or remove it.
            Resource::Path(path) => {
                path.is_within(state) || (self.request.action == Action::FsWrite && state.is_within(path))
            }
            _ => false,
        };
        let read = || self.context.process.as_ref().is_some_and(|process| reaches_into(process, state));
        path_reaches || *self.process.reaches_state.get_or_init(read)
    }
}

/// The MCP server that a tool is of: `mcp.github.delete` is of `github`.
fn mcp_server(tool: &ToolName) -> Option<ObjectId> {
    let (server, _) = tool.as_str().strip_prefix("mcp.")?.split_once('.')?;
    ObjectId::parse(server).ok()
}

fn runs_palyra(process: &Process, config: &PolicyEvaluationConfig) -> bool {
    let mut paths = std::iter::once(&process.program).chain(&process.leads_to);
    if paths.any(|path| is_palyra(path.as_str(), config)) {
        return true;
    }
    // SECURITY: `env palyra …`, `bash -c "palyra …"` and `sudo sh -c "palyra …"` run Palyra as surely as `palyra …`. A launcher may
    // start an interpreter or be one (`su -c`, `watch`, `ssh`), so both are read alike. An argument of any other program that merely
    // mentions the word (a commit message, a search) does not run it.
    process.names().any(|name| process::is_interpreter(name) || process::is_launcher(name))
        && process.args.iter().any(|arg| is_palyra(arg, config) || words(arg).any(|word| is_palyra(word, config)))
}

fn is_palyra(word: &str, config: &PolicyEvaluationConfig) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    matches!(name, "palyra" | "palyrad") || config.palyra_programs.iter().any(|program| program.as_str() == word)
}

fn reaches_into(process: &Process, state: &AbsolutePath) -> bool {
    let steps: Vec<&str> = components(state.as_str()).collect();
    let root = Walk { state: &steps, depth: 0, shared: 0 };
    let cwd = process.cwd.as_ref().map(|cwd| root.along(cwd.as_str()));
    let mut paths = std::iter::once(&process.program).chain(&process.leads_to);
    paths.any(|path| root.along(path.as_str()).is_inside())
        || cwd.is_some_and(Walk::is_inside)
        || process.args.iter().any(|arg| arg_reaches(arg, cwd, root, state))
}

/// Whether an argument names the state directory: spelt out anywhere inside it, or relative to the working directory.
fn arg_reaches(arg: &str, cwd: Option<Walk<'_>>, root: Walk<'_>, state: &AbsolutePath) -> bool {
    // The state directory may itself hold what separates words, so the argument is also searched for it as it stands.
    let spelt_out = arg.match_indices(state.as_str()).any(|(start, found)| {
        let (before, after) = (arg.get(..start), arg.get(start + found.len()..));
        // An option may be glued to its value: `tar -C/state`.
        before.is_some_and(|before| before.is_empty() || before.ends_with(is_separator) || before.starts_with('-'))
            && after.is_some_and(|after| after.is_empty() || after.starts_with(|c| c == '/' || is_separator(c)))
    });
    spelt_out
        || words(arg).any(|word| {
            let from = if word.starts_with('/') { Some(root) } else { cwd };
            from.is_some_and(|from| from.along(word).is_inside())
        })
}

/// A place in the file tree, told by what it shares with the state directory. `..` is folded away: for the question "does this look like
/// it reaches there" a guess too many is harmless. A step costs the same however deep the place is, because an agent chooses both the
/// working directory and the number of words.
#[derive(Clone, Copy)]
struct Walk<'a> {
    state: &'a [&'a str],
    depth: usize,
    /// How many components, from the root, are those of the state directory.
    shared: usize,
}

impl Walk<'_> {
    fn along(mut self, path: &str) -> Self {
        for component in components(path) {
            if component == ".." {
                self.depth = self.depth.saturating_sub(1);
                self.shared = self.shared.min(self.depth);
            } else {
                let on_the_way = self.shared == self.depth && self.state.get(self.depth) == Some(&component);
                self.shared += usize::from(on_the_way);
                self.depth += 1;
            }
        }
        self
    }

    const fn is_inside(self) -> bool {
        self.shared == self.state.len()
    }
}

fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|component| !matches!(*component, "" | "."))
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
            leads_to: None,
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
            &["/usr/bin/timeout", "5", "sh", "-c", "palyra approvals approve"],
            &["/usr/bin/su", "-c", "/usr/bin/palyra approvals approve"],
            &["/bin/tcsh", "-c", "palyra approvals approve"],
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
        let reaches = |arg: &str| reaches_into(&process(&["/bin/cat", arg]), &state);
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
        let reaches = |arg: &str| reaches_into(&process(&["/bin/cat", arg]), &state);
        for arg in [
            "/home/ada smith/palyra@1/key",
            "--file=/home/ada smith/palyra@1",
            "-C/home/ada smith/palyra@1",
            "cat '/home/ada smith/palyra@1/key'",
        ] {
            assert!(reaches(arg), "{arg}");
        }
        assert!(!reaches("/home/ada smith/palyra@10"));
        assert!(!reaches("/srv/home/ada smith/palyra@1"));
    }

    #[test]
    fn a_link_is_what_it_leads_to() {
        let link = |to: &str, args: &[&str]| Process {
            leads_to: Some(AbsolutePath::parse(to).unwrap()),
            ..process(&[&["/usr/bin/tidy"], args].concat())
        };
        assert!(link("/bin/bash", &[]).is_interpreter());
        assert!(runs_palyra(&link("/bin/bash", &["-c", "palyra policy"]), &config()));
        assert!(runs_palyra(&link("/opt/palyra", &[]), &config()));
        assert!(!runs_palyra(&link("/usr/bin/tidy-5", &["palyra"]), &config()));
    }

    #[test]
    fn many_words_in_a_deep_directory_are_read_in_no_time() {
        let deep = Process {
            cwd: AbsolutePath::parse(&"/a".repeat(2000)).ok(),
            ..process(&["/bin/cat", &"a ".repeat(250_000)])
        };
        let started = std::time::Instant::now();
        assert!(!reaches_into(&deep, &config().state_directory.unwrap()));
        assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
    }
}
