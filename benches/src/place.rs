//! A gate to measure: real directories, a real journal, and everything allowed.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use palyra_gate::{Completed, Connector, Forbidden, SystemResolver, ToolProposal};
use palyra_journal::state::Waiting;
use palyra_tests::{Opened, Setup};
use palyra_types::{
    Channel, JsonObject, Principal, Timestamp, ToolName, WorkspaceName,
    id::{CallId, RunId, SessionId},
    json::Limits,
};
use serde_json::Value;

/// A gate, a run, and the calls in it.
pub struct Place {
    /// What was opened.
    pub opened: Opened,
    session: SessionId,
    run: RunId,
    count: AtomicU64,
}

/// What a place is opened with.
pub struct PlacePlan<'a> {
    /// A directory for its state and its workspace.
    pub directory: &'a Path,
    /// Where its journal is, if not there.
    pub journal: Option<&'a Path>,
    /// More of its configuration.
    pub config: &'a str,
    /// Its way into the world, if that is not the machine's own.
    pub net: Option<Connector>,
}

impl Place {
    /// Opens a gate.
    pub async fn open(plan: PlacePlan<'_>) -> Self {
        let (state, workspace) = (plan.directory.join("state"), plan.directory.join("workspace"));
        fs::create_dir_all(&state).expect("a directory");
        fs::create_dir_all(&workspace).expect("a directory");
        let (usual_journal, config) = (state.join("journal"), format!("[budget]\ncalls = 1000000\n{}", plan.config));
        let setup = Setup {
            journal: plan.journal.unwrap_or(&usual_journal),
            state: &state,
            workspace: &workspace,
            config: &config,
            policies: Some("@id(\"all\") permit (principal, action, resource);"),
            pin: None,
            clock: None,
            faults: None,
        };
        let usual = || Connector::new(Arc::new(SystemResolver::default()), Forbidden::default());
        let opened = setup.open_towards(Arc::new(plan.net.unwrap_or_else(usual))).await;
        let session = SessionId::from_parts(Timestamp::from_unix_millis(1), 1);
        let run = opened.gate.open_run(session, &agent(), None).await.expect("a run");
        Self { opened, session, run, count: AtomicU64::new(0) }
    }

    /// A call that was not made before.
    pub fn proposal(&self, tool: &str, args: Value) -> ToolProposal {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        ToolProposal {
            call: CallId::from_parts(Timestamp::from_unix_millis(1_770_000_000_000), count.into()),
            run: self.run,
            session: self.session,
            principal: agent(),
            on_behalf_of: None,
            channel: Some(Channel::parse("cli").expect("a channel")),
            device: None,
            token: None,
            member_of: None,
            workspace: Some(WorkspaceName::parse("lab").expect("a workspace")),
            tool: ToolName::parse(tool).expect("a tool"),
            args: JsonObject::try_from_value(args, Limits::default()).expect("arguments"),
            waiting: Waiting::Attached,
            key: None,
            within: None,
            elsewhere: None,
        }
    }

    /// Makes a call.
    pub async fn call(&self, tool: &str, args: Value) -> Completed {
        self.opened.gate.run(self.proposal(tool, args)).await.expect("it runs")
    }
}

/// A directory for what is measured. What hides a state directory grows with its neighbours, and temporary directories have many; a home has
/// few.
pub fn directory() -> tempfile::TempDir {
    let home: PathBuf = std::env::var_os("HOME").map_or_else(std::env::temp_dir, Into::into);
    tempfile::Builder::new().prefix("palyra-bench").tempdir_in(home).expect("a directory")
}

fn agent() -> Principal {
    Principal::parse("agent:claude").expect("a principal")
}
