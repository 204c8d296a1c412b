//! What can be asked of a daemon about what agents keep, and what is scheduled.

use std::io::Write;

use hyper::Method;
use palyra_api::{
    cron::{Schedule, Schedules},
    memory::{ArtifactQuery, Artifacts, Forgotten, KeptScopes, Memories, MemoryQuery, PurgeMemory},
};

use crate::{
    client::{Ask, Client, Wait},
    error::ClientError,
    query::{segment, with_query},
};

/// # Errors
/// Every method fails when the daemon cannot be asked, refuses, or answers something else than the wire types say.
impl Client {
    /// The notes of a scope.
    ///
    /// # Errors
    /// See above.
    pub async fn memories(&self, query: &MemoryQuery) -> Result<Memories, ClientError> {
        self.ask(Ask::get(with_query("/api/v1/memory", query))).await
    }

    /// Where something is kept, and how much.
    ///
    /// # Errors
    /// See above.
    pub async fn kept_scopes(&self) -> Result<KeptScopes, ClientError> {
        self.ask(Ask::get("/api/v1/memory/scopes")).await
    }

    /// Forgets a note.
    ///
    /// # Errors
    /// See above.
    pub async fn delete_memory(&self, id: &str) -> Result<Forgotten, ClientError> {
        self.ask(Ask::new(Method::DELETE, format!("/api/v1/memory/{}", segment(id)))).await
    }

    /// Forgets every note of a scope.
    ///
    /// # Errors
    /// See above.
    pub async fn purge_memory(&self, scope: &str) -> Result<Forgotten, ClientError> {
        let query = PurgeMemory { scope: scope.to_owned() };
        self.ask(Ask::new(Method::DELETE, with_query("/api/v1/memory", &query)).wait(Wait::Long)).await
    }

    /// The files that were kept in a scope.
    ///
    /// # Errors
    /// See above.
    pub async fn artifacts(&self, query: &ArtifactQuery) -> Result<Artifacts, ClientError> {
        self.ask(Ask::get(with_query("/api/v1/artifacts", query))).await
    }

    /// Writes the content of a file that was kept. Returns its bytes.
    ///
    /// # Errors
    /// See above, and when it cannot be written.
    pub async fn artifact(&self, id: &str, to: &mut dyn Write) -> Result<u64, ClientError> {
        let path = format!("/api/v1/artifacts/{}", segment(id));
        self.copy(Ask::get(path).accept("application/octet-stream, application/json"), to).await
    }

    /// Deletes a file that was kept.
    ///
    /// # Errors
    /// See above.
    pub async fn delete_artifact(&self, id: &str) -> Result<Forgotten, ClientError> {
        self.ask(Ask::new(Method::DELETE, format!("/api/v1/artifacts/{}", segment(id)))).await
    }

    /// What is scheduled.
    ///
    /// # Errors
    /// See above.
    pub async fn schedules(&self) -> Result<Schedules, ClientError> {
        self.ask(Ask::get("/api/v1/cron")).await
    }

    /// Lets a schedule fire no more.
    ///
    /// # Errors
    /// See above.
    pub async fn pause_schedule(&self, id: &str) -> Result<Schedule, ClientError> {
        self.ask(Ask::post(format!("/api/v1/cron/{}/pause", segment(id)))).await
    }

    /// Lets a schedule fire again.
    ///
    /// # Errors
    /// See above.
    pub async fn resume_schedule(&self, id: &str) -> Result<Schedule, ClientError> {
        self.ask(Ask::post(format!("/api/v1/cron/{}/resume", segment(id)))).await
    }

    /// Deletes a schedule.
    ///
    /// # Errors
    /// See above.
    pub async fn delete_schedule(&self, id: &str) -> Result<Schedule, ClientError> {
        self.ask(Ask::new(Method::DELETE, format!("/api/v1/cron/{}", segment(id)))).await
    }
}
