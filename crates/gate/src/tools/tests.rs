//! The tools, called as the pipeline calls them: arguments in, work out, and the work performed.

mod attacks;
mod fetch;
mod files;
mod process;
mod registry;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use palyra_policy::Touch;
use palyra_types::{
    AbsolutePath, JsonObject, Principal, Timestamp, ToolName, WorkspaceName, id::SessionId, json::Limits,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    Registry,
    files::{FileError, Heed, OutputCaps, perform},
};
use crate::{
    service::Asker,
    tool::{FileWork, Intent, Look, Place, ProcessWork, SearchPath, Work},
    workspace::Workspace,
};

/// Somebody who asks, wherever that does not matter.
fn asker() -> Asker<'static> {
    static SOMEBODY: LazyLock<Principal> = LazyLock::new(|| Principal::parse("agent:claude").unwrap());
    Asker {
        principal: &SOMEBODY,
        device: None,
        token: None,
        member_of: None,
        channel: None,
        session: SessionId::from_parts(Timestamp::from_unix_millis(1), 1),
        workspace: None,
    }
}

/// A workspace with something outside that nobody may see, and every built-in tool.
struct Lab {
    registry: Registry,
    workspace: Workspace,
    programs: SearchPath,
    directory: TempDir,
}

/// What stands in every file outside.
const CANARY: &str = "the canary outside";

impl Lab {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(directory.path()).unwrap();
        for name in ["work", "outside", "work/state", "bin"] {
            fs::create_dir(real.join(name)).unwrap();
        }
        fs::write(real.join("outside/secret"), CANARY).unwrap();
        fs::write(real.join("work/state/key"), CANARY).unwrap();
        let name = WorkspaceName::parse("main").unwrap();
        let workspace =
            Workspace::open(name, &absolute(&real.join("work")), &absolute(&real.join("work/state"))).unwrap();
        let directories =
            vec![absolute(&real.join("bin")), absolute(Path::new("/usr/bin")), absolute(Path::new("/bin"))];
        Self { registry: Registry::bare().unwrap(), workspace, programs: SearchPath::new(directories), directory }
    }

    /// A path inside the workspace, for the test to prepare.
    fn inside(&self, name: &str) -> PathBuf {
        Path::new(self.workspace.root().as_str()).join(name)
    }

    fn outside(&self, name: &str) -> PathBuf {
        self.directory.path().join("outside").join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.inside(name).parent().unwrap()).unwrap();
        fs::write(self.inside(name), content).unwrap();
    }

    fn content(&self, name: &str) -> String {
        fs::read_to_string(self.inside(name)).unwrap()
    }

    fn intend(&self, tool: &str, args: Value) -> Result<Intent, String> {
        let args = JsonObject::try_from_value(args, Limits::default()).unwrap();
        let place = Place {
            workspace: Some(&self.workspace),
            asker: asker(),
            programs: &self.programs,
            look: Look::Whole,
            bindings: &|_, _| Vec::new(),
        };
        self.registry.intend(&ToolName::parse(tool).unwrap(), &args, &place).map_err(|error| error.to_string())
    }

    fn process(&self, args: Value) -> Result<ProcessWork, String> {
        match self.intend("process.run", args)?.work {
            Work::Process(work) => Ok(work),
            other => panic!("{other:?}"),
        }
    }

    fn file_work(&self, tool: &str, args: Value) -> Result<FileWork, String> {
        match self.intend(tool, args)?.work {
            Work::Files(work) => Ok(work),
            other => panic!("{other:?}"),
        }
    }

    fn perform(&self, work: &FileWork) -> Result<Value, FileError> {
        perform(work, &self.workspace, &OutputCaps::default(), Heed { stop: &|| false, may_read: &|_| true })
    }

    /// Proposes and performs at once.
    fn call(&self, tool: &str, args: Value) -> Result<Value, String> {
        self.perform(&self.file_work(tool, args)?).map_err(|error| error.to_string())
    }

    /// The error of a call, with the path of the workspace shortened to `~`.
    fn refusal(&self, tool: &str, args: Value) -> String {
        self.call(tool, args).unwrap_err().replace(self.workspace.root().as_str(), "~")
    }
}

fn absolute(path: &Path) -> AbsolutePath {
    AbsolutePath::parse(path.to_str().unwrap()).unwrap()
}
