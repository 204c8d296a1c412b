//! What another program would do itself: an agent's own shell, editor or browser, which Palyra decides about and does not run.
//!
//! Guarantees: what is wanted is read into the same touches that a call of the matching tool of ours has, so the same rules speak of both. A
//! path counts as it is written and as where its links lead, also where nothing is yet; one of which nobody can say where it leads is
//! refused. Variables that ours could not be given are refused as well. Whoever asks is told nothing that was found on the way there.
//! Does not: open anything, or hold the program to what it said. Nothing of Palyra contains it, and policy is told so.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs,
    path::{Component, Path, PathBuf},
};

use palyra_policy::Touch;
use palyra_sandbox::egress::fetch::FetchUrl;
use palyra_types::{
    AbsolutePath, JsonError, Process, ToolCapability, ToolMetadata, ToolName,
    path::{MAX_PATH_LENGTH, PathError},
};
use serde::{Deserialize, Serialize};

use crate::{
    settings::Settings,
    tool::{HostPort, IntendError, Intent, SearchPath, ToolDefinition, Work},
    tools::process_run::{check_environment, check_words},
};

/// What another program wants to do, as it says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elsewhere {
    /// What the program calls its tool, such as `Bash`.
    pub tool: String,
    /// Where the program works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// What that would reach.
    #[serde(default)]
    pub wants: Wants,
    /// What the tool needs from the machine, if it is none that is known here.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub needs: BTreeSet<ToolCapability>,
}

/// What is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wants {
    /// A program that is run, and its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The variables that it is given, in addition to the program's own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Files that are read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
    /// Directories that are read with all that lies below.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub searches: Vec<String>,
    /// Files that are written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<String>,
    /// Hosts that are connected to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostPort>,
    /// What is fetched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
}

/// What another program would do, found out. Its JSON goes into the digest that a person approves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElsewhereWork {
    /// What the program calls its tool.
    pub tool: String,
    /// Where the program works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<AbsolutePath>,
    /// What would be run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// The variables that it would be given, in addition to those of the program that runs it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// What would be read, by every path that it has.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub reads: BTreeSet<AbsolutePath>,
    /// What would be written, by every path that it has.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub writes: BTreeSet<AbsolutePath>,
    /// What would be connected to.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hosts: BTreeSet<HostPort>,
}

impl Elsewhere {
    /// How long its texts are, together.
    pub(crate) fn length(&self) -> usize {
        let Wants { command, env, reads, searches, writes, hosts, urls } = &self.wants;
        let variables = env.iter().flat_map(|(name, value)| [name, value]);
        let texts = [command, reads, searches, writes, urls].into_iter().flatten().chain(variables).chain(&self.cwd);
        let hosts = hosts.iter().map(|one| one.host.as_str());
        texts.map(String::as_str).chain(hosts).map(str::len).sum()
    }

    /// Its tool alone, for what is too long to be kept.
    pub(crate) fn brief(&self) -> Self {
        Self { tool: self.tool.clone(), cwd: None, wants: Wants::default(), needs: BTreeSet::new() }
    }

    /// The definition of the tool as it is used elsewhere. One that is known here needs what it needs here if what it would reach is known,
    /// and everything otherwise.
    pub(crate) fn definition(
        &self,
        name: &ToolName,
        known: Option<&ToolMetadata>,
    ) -> Result<ToolDefinition, JsonError> {
        let unknown = |capabilities| ToolMetadata {
            name: name.clone(),
            summary: "a tool of another program".to_owned(),
            capabilities,
        };
        let metadata = match known {
            Some(known) if self.says_what_is_reached_by(name) => known.clone(),
            // SECURITY: no touch stands for what it would reach, so a posture that is meant for ours must not let it through.
            Some(_) => unknown(ToolCapability::ALL.iter().copied().collect()),
            None => unknown(self.needs.clone()),
        };
        let description = "Done by another program, which asks first and which nothing of Palyra contains.";
        ToolDefinition::new(metadata, description, serde_json::json!({ "type": "object" }))
    }

    /// Whether it says what one of our own tools would reach: which file, program or host.
    fn says_what_is_reached_by(&self, tool: &ToolName) -> bool {
        let Wants { command, env: _, reads, searches, writes, hosts: _, urls } = &self.wants;
        match tool.as_str() {
            "process.run" => !command.is_empty(),
            "fs.read" => !reads.is_empty(),
            "fs.list" | "fs.search" => !searches.is_empty(),
            "fs.write" => !writes.is_empty(),
            "http.fetch" => !urls.is_empty(),
            _ => false,
        }
    }

    /// What it would do. Looks at links, and at nothing that they lead to.
    pub(crate) fn intend(&self, settings: &Settings) -> Result<Intent, IntendError> {
        let map = Map { hidden: &settings.hidden, state: settings.evaluation.state_directory.as_ref() };
        let Wants { command, env, reads, searches, writes, hosts, urls } = &self.wants;
        // SECURITY: `git status` with `BASH_ENV` is another command, and no rule that permits it by its words would notice.
        check_environment(env)?;
        let cwd = self.cwd.as_deref().map(|cwd| directory(cwd, &map)).transpose()?;
        let process = match command.as_slice() {
            [] => None,
            [program, args @ ..] => {
                check_words(command)?;
                Some(process(program, args, cwd.as_ref(), &settings.programs)?)
            }
        };
        let mut read = map.all(reads, cwd.as_ref())?;
        for place in map.all(searches, cwd.as_ref())? {
            // SECURITY: nothing keeps another program's search out of a directory that ours treat as absent.
            read.extend(map.state.filter(|state| state.is_within(&place)).cloned());
            read.insert(place);
        }
        let written = map.all(writes, cwd.as_ref())?;
        let mut hosts: BTreeSet<HostPort> = hosts.iter().cloned().collect();
        for url in urls {
            let url = FetchUrl::parse(url)?;
            hosts.insert(HostPort { host: url.host().clone(), port: url.port() });
        }
        let touches = read.iter().cloned().map(Touch::Read).chain(written.iter().cloned().map(Touch::Write));
        let connections = hosts.iter().map(|HostPort { host, port }| Touch::Connect(host.clone(), *port));
        let touches = touches.chain(connections).collect();
        let (tool, environment) = (self.tool.clone(), env.clone());
        let work = ElsewhereWork { tool, cwd, process, environment, reads: read, writes: written, hosts };
        Ok(Intent { touches, work: Work::Elsewhere(work) })
    }
}

/// Where Palyra's own directory is, and where else it shows.
struct Map<'a> {
    hidden: &'a [AbsolutePath],
    state: Option<&'a AbsolutePath>,
}

impl Map<'_> {
    /// Every path that these have.
    fn all(&self, texts: &[String], cwd: Option<&AbsolutePath>) -> Result<BTreeSet<AbsolutePath>, IntendError> {
        let mut all = BTreeSet::new();
        for text in texts {
            all.extend(self.places(&whole(text, cwd)?)?);
        }
        Ok(all)
    }

    /// A path as it is written, as where its links lead, and by its name in Palyra's own directory if it is there by way of another mount.
    fn places(&self, whole: &str) -> Result<Vec<AbsolutePath>, IntendError> {
        let (written, real) = (folded(whole)?, real(whole)?);
        let at_home = |path: &AbsolutePath| {
            let state = self.state?;
            let alias = self.hidden.iter().find(|alias| path.is_within(alias))?;
            state.join(path.as_str().strip_prefix(alias.as_str())?).ok()
        };
        let known: Vec<AbsolutePath> = [&written, &real].into_iter().filter_map(at_home).collect();
        Ok([written, real].into_iter().chain(known).collect())
    }
}

/// A path from the root on.
fn whole(text: &str, cwd: Option<&AbsolutePath>) -> Result<String, IntendError> {
    if text.contains('\0') {
        return Err(PathError::Nul(text.to_owned()).into());
    }
    // A shell would take it for somebody's home, another program for a name.
    if text.is_empty() || text.starts_with('~') || is_padded(text) {
        return Err(IntendError::Unclear(text.to_owned()));
    }
    let whole = match (text.starts_with('/'), cwd) {
        (true, _) => text.to_owned(),
        (false, Some(cwd)) => format!("{cwd}/{text}"),
        (false, None) => return Err(IntendError::Adrift(text.to_owned())),
    };
    if whole.len() > MAX_PATH_LENGTH { Err(PathError::TooLong(whole.len()).into()) } else { Ok(whole) }
}

/// Whether there are blanks at an end. Some programs take them away, and then open another file.
fn is_padded(text: &str) -> bool {
    text.trim_matches(|sign: char| sign.is_whitespace() || sign == '\u{feff}') != text
}

/// Where the program works, by its real path.
fn directory(text: &str, map: &Map<'_>) -> Result<AbsolutePath, IntendError> {
    let places = map.places(&whole(text, None)?)?;
    places.last().cloned().ok_or_else(|| IntendError::Unclear(text.to_owned()))
}

/// The process that a command means. A name without `/` is looked up where ours are: whichever the other program would find, it is known by
/// this name.
fn process(
    name: &str,
    args: &[String],
    cwd: Option<&AbsolutePath>,
    programs: &SearchPath,
) -> Result<Process, IntendError> {
    if name.is_empty() {
        return Err(IntendError::NoProgram);
    }
    let program = if name.contains('/') { folded(&whole(name, cwd)?)? } else { found(name, programs)? };
    let leads_to = Some(real(program.as_str())?).filter(|real| *real != program);
    Ok(Process { program, leads_to, args: args.to_vec(), cwd: cwd.cloned() })
}

fn found(name: &str, programs: &SearchPath) -> Result<AbsolutePath, IntendError> {
    let there = |directory: &AbsolutePath| {
        let path = directory.join(name).ok()?;
        Path::new(path.as_str()).symlink_metadata().is_ok().then_some(path)
    };
    programs.directories().iter().find_map(there).ok_or_else(|| {
        let searched = programs.directories().iter().map(AbsolutePath::as_str).collect::<Vec<_>>().join(":");
        IntendError::ProgramNotFound { name: name.to_owned(), searched }
    })
}

/// A path as it is written, with `..` folded away.
fn folded(whole: &str) -> Result<AbsolutePath, IntendError> {
    let mut steps: Vec<&str> = Vec::new();
    for step in whole.split('/').filter(|step| !matches!(*step, "" | ".")) {
        match step {
            ".." => drop(steps.pop()),
            step => steps.push(step),
        }
    }
    Ok(AbsolutePath::parse(&format!("/{}", steps.join("/")))?)
}

/// Where a path leads when every link on the way is followed, as the kernel would. What is not there, or not to be looked at, is no link.
fn real(whole: &str) -> Result<AbsolutePath, IntendError> {
    let unclear = || IntendError::Unclear(whole.to_owned());
    let (mut here, mut links) = (PathBuf::from("/"), 0);
    let mut ahead: VecDeque<PathBuf> = steps(Path::new(whole)).collect();
    while let Some(step) = ahead.pop_front() {
        if step.as_os_str() == ".." {
            here.pop();
            continue;
        }
        here.push(step);
        // SECURITY: these are another directory for each process, and this one is not the one that will look.
        if SELVES.iter().any(|own| here == Path::new(own)) {
            return Err(unclear());
        }
        let Ok(target) = fs::read_link(&here) else { continue };
        links += 1;
        if links > MOST_LINKS {
            return Err(unclear());
        }
        here.pop();
        if target.is_absolute() {
            here = PathBuf::from("/");
        }
        for step in steps(&target).collect::<Vec<_>>().into_iter().rev() {
            ahead.push_front(step);
        }
    }
    AbsolutePath::parse(here.to_str().ok_or_else(unclear)?).map_err(|_| unclear())
}

fn steps(path: &Path) -> impl Iterator<Item = PathBuf> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// Where each process finds itself.
const SELVES: &[&str] = &["/proc/self", "/proc/thread-self"];

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn path(text: &str) -> AbsolutePath {
        AbsolutePath::parse(text).unwrap()
    }

    #[test]
    fn a_known_tool_that_does_not_say_what_it_reaches_needs_everything() {
        let texts = || vec!["/x".to_owned()];
        let none = Wants::default;
        let everything: BTreeSet<_> = ToolCapability::ALL.iter().copied().collect();
        let harmless = BTreeSet::from([ToolCapability::StateWrite]);
        for (tool, wants, known, expected) in [
            ("process.run", Wants { command: texts(), ..none() }, true, &harmless),
            ("fs.read", Wants { reads: texts(), ..none() }, true, &harmless),
            ("fs.list", Wants { searches: texts(), ..none() }, true, &harmless),
            ("fs.search", Wants { searches: texts(), ..none() }, true, &harmless),
            ("fs.write", Wants { writes: texts(), ..none() }, true, &harmless),
            ("http.fetch", Wants { urls: texts(), ..none() }, true, &harmless),
            ("fs.read", none(), true, &everything),
            ("fs.write", Wants { reads: texts(), ..none() }, true, &everything),
            ("memory.purge", none(), true, &everything),
            ("mcp.gw.echo", Wants { reads: texts(), ..none() }, true, &everything),
            ("claude-code.Task", none(), false, &BTreeSet::new()),
        ] {
            let name = ToolName::parse(tool).unwrap();
            let ours = ToolMetadata { name: name.clone(), summary: "ours".to_owned(), capabilities: harmless.clone() };
            let elsewhere = Elsewhere { tool: tool.to_owned(), cwd: None, wants, needs: BTreeSet::new() };
            let defined = elsewhere.definition(&name, known.then_some(&ours)).unwrap();
            assert_eq!(&defined.metadata().capabilities, expected, "{tool}");
        }
    }

    #[test]
    fn a_path_counts_as_it_is_written_and_as_where_it_leads() {
        let lab = tempfile::tempdir().unwrap();
        let root = lab.path().canonicalize().unwrap();
        let root = root.to_str().unwrap();
        fs::create_dir_all(format!("{root}/work/deep")).unwrap();
        fs::create_dir(format!("{root}/away")).unwrap();
        symlink("../away", format!("{root}/work/link")).unwrap();
        symlink("/nowhere/at/all", format!("{root}/work/dangling")).unwrap();
        let cwd = path(&format!("{root}/work"));
        let map = Map { hidden: &[], state: None };
        let places = |text: &str| map.places(&whole(text, Some(&cwd)).unwrap()).unwrap();
        let at = |written: &str, real: &str| vec![path(&format!("{root}/{written}")), path(&format!("{root}/{real}"))];
        assert_eq!(places("deep/x"), at("work/deep/x", "work/deep/x"));
        assert_eq!(places("link/x"), at("work/link/x", "away/x"), "through a link, to what is not there yet");
        assert_eq!(places("link/../x"), at("work/x", "x"), "`..` behind a link is above where that leads");
        assert_eq!(places("deep/../../x"), at("x", "x"));
        assert_eq!(places("dangling"), [path(&format!("{root}/work/dangling")), path("/nowhere/at/all")]);
    }

    #[test]
    fn what_is_another_file_for_each_program_is_refused() {
        for text in ["/proc/self/root/etc/passwd", "/dev/fd/3", "/proc/thread-self/cwd", "/proc/../proc/self/environ"] {
            assert_eq!(real(text), Err(IntendError::Unclear(text.to_owned())), "{text}");
        }
        let padded = [" ~/.ssh/id_ed25519", "\t/etc/passwd", "/etc/passwd\n", "x ", "\u{feff}~/x", "\u{a0}~/x", " "];
        for text in ["~/.ssh/id_ed25519", "~root", ""].into_iter().chain(padded) {
            assert_eq!(whole(text, Some(&path("/w"))), Err(IntendError::Unclear(text.to_owned())), "{text}");
        }
        assert_eq!(whole("a", None), Err(IntendError::Adrift("a".to_owned())));
        assert!(matches!(whole("a\0b", Some(&path("/w"))), Err(IntendError::Path(PathError::Nul(_)))));
        assert!(matches!(whole(&"/a".repeat(4096), None), Err(IntendError::Path(PathError::TooLong(_)))));
    }

    #[test]
    fn links_that_lead_in_a_circle_lead_nowhere() {
        let lab = tempfile::tempdir().unwrap();
        let circle = lab.path().join("circle");
        symlink(&circle, &circle).unwrap();
        let circle = circle.to_str().unwrap();
        assert_eq!(real(circle), Err(IntendError::Unclear(circle.to_owned())));
    }

    #[test]
    fn palyras_own_directory_is_known_by_its_name_wherever_it_shows() {
        let (hidden, state) = ([path("/mnt/copy"), path("/srv/state")], path("/srv/state"));
        let map = Map { hidden: &hidden, state: Some(&state) };
        assert!(map.places("/mnt/copy/vault/key").unwrap().contains(&path("/srv/state/vault/key")));
        assert!(!map.places("/mnt/copying").unwrap().iter().any(|one| one.is_within(&state)));
    }
}
