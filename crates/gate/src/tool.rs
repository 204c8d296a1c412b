//! What a tool is: a definition that can be told, and a reading of arguments into what would be done.
//!
//! Guarantees: [`Tool::intend`] changes nothing, and the [`Work`] it returns says everything that would be done, because its digest is
//! what a person approves. Reading the same arguments again gives the same work or shows that the machine has changed.
//! Does not: decide, ask or run. Work is performed inside this crate only, by whoever holds a permit.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use palyra_package::{FileAccess, Grants, SkillLimits};
use palyra_policy::Touch;
use palyra_sandbox::{
    Executable, ForbiddenVariable,
    egress::fetch::{FetchHeaders, FetchMethod, FetchUrl, HeaderError, UrlError},
    is_changeable,
};
use palyra_types::{
    AbsolutePath, HostName, Json, JsonError, JsonObject, Process, SandboxTier, SecretRef, Sha256Digest, SkillId,
    ToolCapability, ToolMetadata, ToolName, WorkspaceName,
    host::HostError,
    json::{self, Limits},
    path::PathError,
    vault::SecretRefError,
    visible::visible,
};
use palyra_vault::Binding;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    foreign::ElsewhereWork,
    secret::SecretUse,
    service::{Asker, Service, ServiceWork},
    workspace::{Workspace, WorkspaceError},
};

/// What is told about a tool, and checked before each call.
#[derive(Debug, Clone)]
pub struct ToolDefinition {
    metadata: ToolMetadata,
    description: String,
    input_schema: Json,
    digest: Sha256Digest,
}

impl ToolDefinition {
    /// Makes a definition.
    ///
    /// # Errors
    /// When the schema cannot be part of a digest.
    pub fn new(metadata: ToolMetadata, description: &str, input_schema: Value) -> Result<Self, JsonError> {
        #[derive(Serialize)]
        struct Told<'a> {
            v: u8,
            name: &'a ToolName,
            summary: &'a str,
            description: &'a str,
            capabilities: Vec<ToolCapability>,
            input_schema: &'a Value,
        }
        let input_schema = Json::try_from_value(input_schema, Limits::default())?;
        let digest = json::digest_of(&Told {
            v: 1,
            name: &metadata.name,
            summary: &metadata.summary,
            description,
            capabilities: metadata.capabilities.iter().copied().collect(),
            input_schema: input_schema.value(),
        })?;
        Ok(Self { metadata, description: description.to_owned(), input_schema, digest })
    }

    /// Name, summary and capabilities.
    #[must_use]
    pub const fn metadata(&self) -> &ToolMetadata {
        &self.metadata
    }

    /// The tool's name.
    #[must_use]
    pub const fn name(&self) -> &ToolName {
        &self.metadata.name
    }

    /// What it does, at length, for whoever calls it.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The JSON Schema of its arguments.
    #[must_use]
    pub const fn input_schema(&self) -> &Value {
        self.input_schema.value()
    }

    /// The digest of everything that is told about the tool.
    #[must_use]
    pub const fn digest(&self) -> Sha256Digest {
        self.digest
    }
}

/// Something that can be called.
pub trait Tool: Send + Sync {
    /// What is told about it.
    fn definition(&self) -> &ToolDefinition;

    /// Reads arguments that fit the schema into what would be done. Looks at the file system to resolve names; changes nothing.
    ///
    /// # Errors
    /// When the arguments mean nothing that could be done.
    fn intend(&self, args: &JsonObject, place: &Place<'_>) -> Result<Intent, IntendError>;

    /// Whether it knows what a [`Look::Glance`] is. One that does not is asked for the whole only.
    fn glances(&self) -> bool {
        false
    }

    /// Whether nobody but the daemon itself proposes it, on behalf of a call that runs.
    fn is_internal(&self) -> bool {
        false
    }

    /// The service that performs it, for those that one does.
    fn service(&self) -> Option<Arc<dyn Service>> {
        None
    }

    /// The workspace that it works in wherever it is called, for those that have one of their own.
    fn own_workspace(&self) -> Option<&WorkspaceName> {
        None
    }
}

/// Where a call is to happen.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The workspace of the call, if it has one.
    pub workspace: Option<&'a Workspace>,
    /// Who asks for it.
    pub asker: Asker<'a>,
    /// Where programs are looked for.
    pub programs: &'a SearchPath,
    /// How closely it is looked at.
    pub look: Look,
    /// Where a tool may send a secret, as of now.
    pub bindings: &'a dyn Fn(&SecretRef, &ToolName) -> Vec<Binding>,
}

/// How closely the world is looked at to find out what a call would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Only at what root alone could make slow, and never at the content of large files. Where that does not do, it says so.
    Glance,
    /// At whatever it takes.
    Whole,
}

impl<'a> Place<'a> {
    pub(crate) fn workspace(&self) -> Result<&'a Workspace, IntendError> {
        self.workspace.ok_or(IntendError::NoWorkspace)
    }

    /// Goes on only if the whole may be looked at.
    pub(crate) fn whole(&self) -> Result<(), IntendError> {
        match self.look {
            Look::Whole => Ok(()),
            Look::Glance => Err(IntendError::TakesLonger),
        }
    }
}

/// The configured directories that programs are looked for in, first match first. Not the caller's `PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchPath {
    directories: Vec<AbsolutePath>,
    is_roots_alone: bool,
}

impl SearchPath {
    /// A search path of these directories, as they are now.
    #[must_use]
    pub fn new(directories: Vec<AbsolutePath>) -> Self {
        // What is not there yet, only somebody can make who may change what it would be in.
        let there = |directory: &AbsolutePath| {
            let all = std::iter::once(directory.as_str()).chain(directory.ancestors());
            all.map(Path::new).find(|path| path.symlink_metadata().is_ok()).map(Path::to_owned)
        };
        let is_roots_alone = directories.iter().all(|one| there(one).is_some_and(|path| !is_changeable(&path)));
        Self { directories, is_roots_alone }
    }

    /// Whether nobody but root can say what is found there.
    #[must_use]
    pub const fn is_roots_alone(&self) -> bool {
        self.is_roots_alone
    }

    /// The directories, first match first.
    #[must_use]
    pub fn directories(&self) -> &[AbsolutePath] {
        &self.directories
    }
}

/// What a call would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// What policy is asked about, besides the tool itself. Paths are real.
    pub touches: Vec<Touch>,
    /// What would be done.
    pub work: Work,
}

/// What would be done, in full. Its JSON goes into the digest that a person approves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Work {
    /// Runs a program.
    Process(ProcessWork),
    /// Reads or writes files.
    Files(FileWork),
    /// Fetches something from a host.
    Fetch(FetchWork),
    /// Runs a tool of a skill.
    Skill(Box<SkillWork>),
    /// Has a part of the daemon do something.
    Service(ServiceWork),
    /// Lets a call that runs connect to a host.
    Connect(HostPort),
    /// Lets another program do something itself.
    Elsewhere(ElsewhereWork),
    /// Tells something the daemon knows.
    Report {
        /// What is told.
        about: Report,
    },
}

impl Work {
    /// The secrets that it uses.
    #[must_use]
    pub fn secrets(&self) -> &[SecretUse] {
        match self {
            Self::Process(work) => &work.secrets,
            Self::Fetch(work) => &work.secrets,
            Self::Skill(work) => &work.secrets,
            Self::Files(_) | Self::Service(_) | Self::Connect(_) | Self::Elsewhere(_) | Self::Report { .. } => &[],
        }
    }
}

/// A program to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessWork {
    /// What is executed.
    pub program: AbsolutePath,
    /// Where `program` really is, if it is a link in the search path.
    pub leads_to: Option<AbsolutePath>,
    /// The name that the program is called by.
    pub argv0: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Where it starts.
    pub cwd: AbsolutePath,
    /// The variables it gets in addition to the fixed ones.
    pub env: BTreeMap<String, String>,
    /// The digest of what it reads on its standard input.
    pub stdin_sha256: Option<Sha256Digest>,
    /// What it reads on its standard input.
    #[serde(skip)]
    pub stdin: Option<Vec<u8>>,
    /// How long it may run, if the call says so.
    pub timeout_seconds: Option<u32>,
    /// The tier that the call asks for.
    pub tier: Option<SandboxTier>,
    /// The hosts that it may reach.
    pub hosts: Vec<HostPort>,
    /// The digest of the program, if somebody other than the machine's owner could change it.
    pub program_sha256: Option<Sha256Digest>,
    /// The files of the workspace that an interpreter or launcher is told to use, and the interpreters of a script that could change.
    pub scripts: Vec<Script>,
    /// The secrets that it uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretUse>,
    /// The program, as it was found.
    #[serde(skip)]
    pub(crate) opened: Opened,
}

/// The files of a program that were opened when the call was read, so that they are not opened again and again until it runs. They are no
/// part of what would be done: work is equal whether somebody holds them or not.
#[derive(Debug, Clone, Default)]
pub(crate) struct Opened(pub(crate) Option<Executable>);

impl PartialEq for Opened {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Opened {}

impl ProcessWork {
    /// The process as policy sees it.
    #[must_use]
    pub fn process(&self) -> Process {
        Process {
            program: self.program.clone(),
            leads_to: self.leads_to.clone(),
            args: self.args.clone(),
            cwd: Some(self.cwd.clone()),
        }
    }
}

/// A request over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchWork {
    /// How.
    pub method: FetchMethod,
    /// What, as it is sent.
    pub url: FetchUrl,
    /// The host that it leads to.
    pub host: HostName,
    /// Its port.
    pub port: u16,
    /// What is sent along.
    pub headers: FetchHeaders,
    /// The digest of what is sent.
    pub body_sha256: Option<Sha256Digest>,
    /// What is sent.
    #[serde(skip)]
    pub body: Option<Vec<u8>>,
    /// How many bytes of the answer are read.
    pub max_bytes: u64,
    /// How long it may take.
    pub timeout_seconds: u32,
    /// Whether it goes on where it is redirected to.
    pub follow_redirects: bool,
    /// The secrets that it uses, each where its name stands between two braces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretUse>,
}

/// A tool of a skill to run. How much it may use is in its plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillWork {
    /// The skill.
    pub skill: SkillId,
    /// Its version.
    pub version: String,
    /// The digest of its package.
    pub package_sha256: Sha256Digest,
    /// The digest of its program.
    pub component_sha256: Sha256Digest,
    /// The key that its package is signed with; none for one that is being developed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_by: Option<String>,
    /// The tool, by its name in the skill.
    pub tool: String,
    /// The hosts that it may fetch from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostPort>,
    /// The directories that it may use, by the names that it calls them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub directories: BTreeMap<String, SkillDirectory>,
    /// The secrets that it uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretUse>,
    /// What it is granted, and how much it may use, for its plan.
    #[serde(skip)]
    pub(crate) terms: SkillTerms,
    /// The arguments, as the skill is handed them.
    #[serde(skip)]
    pub(crate) input: String,
}

/// A directory that a skill may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillDirectory {
    /// The directory, by its real path.
    pub path: AbsolutePath,
    /// How it may be used.
    pub access: FileAccess,
}

/// What a skill is granted, and how much one call of it may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillTerms {
    /// What it may use, of what it asked for.
    pub grants: Grants,
    /// How much.
    pub limits: SkillLimits,
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostPort {
    /// The host.
    pub host: HostName,
    /// The port.
    pub port: u16,
}

/// A file of the workspace that decides what an interpreter does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// Its real path.
    pub path: AbsolutePath,
    /// The digest of its content; absent if it is too large, or one of too many, or an interpreter that only root can change.
    pub sha256: Option<Sha256Digest>,
    /// For one whose content is not digested: the digest of which file it is, how long it is and when it was last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<Sha256Digest>,
}

/// Something to do with the files of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case")]
pub enum FileWork {
    /// Reads a part of a file.
    Read {
        /// The file, by its real path.
        path: AbsolutePath,
        /// The first byte to read.
        offset: u64,
        /// The most bytes to read, if the call says so.
        limit: Option<u64>,
    },
    /// Lists a directory.
    List {
        /// The directory, by its real path.
        path: AbsolutePath,
        /// How many levels to go down; 1 is the directory alone.
        depth: u32,
        /// The most entries to tell, if the call says so.
        limit: Option<u32>,
    },
    /// Searches files for lines.
    Search {
        /// The directory or file, by its real path.
        path: AbsolutePath,
        /// What to look for.
        pattern: String,
        /// Whether the pattern is a regular expression.
        regex: bool,
        /// Whether upper and lower case are the same.
        ignore_case: bool,
        /// Which files to look into.
        glob: Option<String>,
        /// The most lines to tell, if the call says so.
        limit: Option<u32>,
    },
    /// Writes a file.
    Write {
        /// The file, by its real path.
        path: AbsolutePath,
        /// Whether a file is there already, to be replaced.
        replaces: bool,
        /// Whether the content goes to the end of what is there.
        appends: bool,
        /// Directories to be made first, outermost first.
        directories: Vec<AbsolutePath>,
        /// The digest of the content.
        content_sha256: Sha256Digest,
        /// The content.
        #[serde(skip)]
        content: Vec<u8>,
    },
}

palyra_types::words! {
    /// Something the daemon knows about itself.
    pub enum Report ("report") {
        /// The tools there are.
        Tools = "tools",
        /// How the daemon is.
        Status = "status",
    }
}

/// Why arguments mean nothing that could be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IntendError {
    /// A glance does not tell.
    #[error("a glance does not tell what the call would do")]
    TakesLonger,
    /// The tool works in a workspace and the call has none.
    #[error("the call names no workspace")]
    NoWorkspace,
    /// The tool works in a workspace of its own, and whoever asks is bound to others.
    #[error("`{0}` works in a workspace that whoever asks does not belong to")]
    NotTheirs(ToolName),
    /// The arguments do not have the shape that the schema demands.
    #[error("the arguments cannot be read: {}", visible(.0))]
    Shape(String),
    /// A path in the workspace.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// A skill that nobody signed, where nothing is developed.
    #[error("`{0}` is in development, and packages that nobody signed do not run here")]
    NotDeveloping(SkillId),
    /// A directory that a skill was granted.
    #[error("the skill was granted a directory as `{}`, and it cannot be used here: {cause}", visible(.name))]
    GrantedDirectory {
        /// The skill's name for it.
        name: String,
        /// Why not.
        cause: WorkspaceError,
    },
    /// A path that has no good spelling.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A relative path of a program that does not say where it works.
    #[error("`{}` is relative, and nobody says to what", visible(.0))]
    Adrift(String),
    /// A path that does not say which file another program would open.
    #[error("which file another program opens as `{}` cannot be said", visible(.0))]
    Unclear(String),
    /// The file to be created is there.
    #[error("`{}` exists already", visible(.0.as_str()))]
    Exists(AbsolutePath),
    /// The directory of the file to be written is missing.
    #[error("the directory of `{}` does not exist", visible(.0))]
    NoDirectory(String),
    /// A NUL where the kernel ends a text.
    #[error("{what} holds a NUL; the program would see only what stands before it")]
    Nul {
        /// Which text.
        what: String,
    },
    /// An empty program name.
    #[error("the command names no program")]
    NoProgram,
    /// No such program.
    #[error("there is no program `{}` in {}", visible(.name), .searched)]
    ProgramNotFound {
        /// The name.
        name: String,
        /// Where it was looked for.
        searched: String,
    },
    /// A file that is not a program.
    #[error("`{}` cannot be executed", visible(.0))]
    NotExecutable(String),
    /// A program that is too large to be digested.
    #[error("the program `{}` is larger than {limit} bytes, so it cannot be pinned", visible(.path.as_str()))]
    ProgramTooLarge {
        /// The program.
        path: AbsolutePath,
        /// The limit.
        limit: u64,
    },
    /// More text than the kernel takes.
    #[error("{what} take {length} bytes; the limit is {limit}")]
    TooMuch {
        /// Which texts.
        what: &'static str,
        /// Their length.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// A variable that changes what runs.
    #[error(transparent)]
    Variable(#[from] ForbiddenVariable),
    /// A variable that is given twice.
    #[error("the variable `{}` is given twice", visible(.0))]
    VariableTwice(String),
    /// A secret that is none.
    #[error(transparent)]
    Secret(#[from] SecretRefError),
    /// A host that is none.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A host without a port.
    #[error("`{}` is not a host and a port", visible(.0))]
    HostWithoutPort(String),
    /// A URL that cannot be fetched.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// A header that cannot be sent.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// A body where servers expect none.
    #[error("a {0} request has no body")]
    NoBody(FetchMethod),
    /// A body as text and as base64.
    #[error("the body is given twice")]
    TwoBodies,
    /// A secret that the request does not use.
    #[error("`{{{{{0}}}}}` stands nowhere in the URL, the headers or the body")]
    SecretNowhere(String),
    /// A pattern that does not compile.
    #[error("the pattern is no regular expression: {}", visible(.0))]
    Pattern(String),
    /// A glob that does not compile.
    #[error("the glob `{}` is none: {}", visible(.glob), visible(.cause))]
    Glob {
        /// The glob.
        glob: String,
        /// What is wrong with it.
        cause: String,
    },
    /// Content that does not decode.
    #[error("the content is not base64")]
    NotBase64,
    /// Nothing that a service could do.
    #[error("{message}")]
    Service {
        /// Why not, with nothing hidden in it.
        message: String,
        /// What to do about it.
        help: &'static str,
    },
}

impl IntendError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::TakesLonger => "look at the whole",
            Self::NoWorkspace => "name one of the configured workspaces",
            Self::NotTheirs(_) => "an owner or admin adds the workspace to the member or to the token",
            Self::Shape(_) => "look at the input schema of the tool",
            Self::Workspace(error) => error.advice(),
            Self::NotDeveloping(_) => {
                "install it from its publisher, or set `development = true` under [skills] in config.toml and `palyra reload`"
            }
            Self::GrantedDirectory { .. } => {
                "make the directory in this workspace, or grant another with `palyra skills grant`"
            }
            Self::Path(_) => "write the path without `..`",
            Self::Adrift(_) => "send `cwd`, or the path in full",
            Self::Unclear(_) => "send the path of the file itself, in full and without links",
            Self::Exists(_) => "use the mode `replace`, or another name",
            Self::NoDirectory(_) => "set `make_directories`, or create the directory first",
            Self::Nul { .. } => "remove the NUL",
            Self::NoProgram => "give the program as the first item of `command`",
            Self::ProgramNotFound { .. } => "install it, or add its directory to the configured search path",
            Self::NotExecutable(_) => "name an executable file, or run it with its interpreter",
            Self::ProgramTooLarge { .. } => "install it where only root can write",
            Self::TooMuch { .. } => "hand large data over in a file of the workspace or as `stdin`",
            Self::Variable(_) => "leave the variable out; say in the command what is to be run",
            Self::VariableTwice(_) => "give each variable once: in `env`, `secrets`, `secret_values` or `secret_files`",
            Self::Secret(error) => error.advice(),
            Self::Host(error) => error.advice(),
            Self::HostWithoutPort(_) => "write it like example.org:443 or [2001:db8::7]:443",
            Self::Url(error) => error.advice(),
            Self::Header(error) => error.advice(),
            Self::NoBody(_) => "use POST, PUT or PATCH, or put it into the query",
            Self::TwoBodies => "give either `body` or `body_base64`",
            Self::SecretNowhere(_) => {
                "write the name between two braces where the value is to stand, or leave it out of `secrets`"
            }
            Self::Pattern(_) => "correct it, or leave `regex` out to look for the text as it stands",
            Self::Glob { .. } => "write it like *.rs or src/**/*.rs",
            Self::Service { help, .. } => help,
            Self::NotBase64 => "encode with the standard alphabet and padding, or give it as text",
        }
    }
}
