//! Scopes: what an API token may be used for.
//!
//! Guarantees: each scope names the lowest role of whoever mints or holds it, the feature it belongs to, and the kinds of principal it
//! suits. Agents hold nothing but calls; services never govern.
//! Does not: decide about a request. A scope is necessary, never sufficient.

use palyra_types::{PrincipalKind, WorkspaceRole, word::words};

use crate::feature::FeatureFlag;

words! {
    /// What a token may be used for.
    pub enum Scope ("scope") {
        /// Propose calls.
        CallsCreate = "calls.create",
        /// Read one's own calls.
        CallsRead = "calls.read",
        /// See what waits for an answer.
        ApprovalsRead = "approvals.read",
        /// Answer it.
        ApprovalsDecide = "approvals.decide",
        /// Follow events.
        EventsRead = "events.read",
        /// Read the journal.
        JournalRead = "journal.read",
        /// Read policies.
        PolicyRead = "policy.read",
        /// Change policies.
        PolicyWrite = "policy.write",
        /// See devices.
        DevicesRead = "devices.read",
        /// Pair and revoke devices.
        DevicesManage = "devices.manage",
        /// See tokens.
        TokensRead = "tokens.read",
        /// Mint, rotate and revoke tokens.
        TokensManage = "tokens.manage",
        /// See members.
        MembersRead = "members.read",
        /// Invite, change and remove members.
        MembersManage = "members.manage",
        /// See secrets, never their values.
        VaultRead = "vault.read",
        /// Put, bind and remove secrets, and look after the vault.
        VaultManage = "vault.manage",
        /// See skills and their publishers.
        SkillsRead = "skills.read",
        /// Install, grant, stop and remove skills, and say whose count.
        SkillsManage = "skills.manage",
        /// See the MCP servers behind the gateway.
        McpRead = "mcp.read",
        /// Add, pin and remove MCP servers.
        McpManage = "mcp.manage",
        /// See what agents keep.
        MemoryRead = "memory.read",
        /// Delete what agents keep.
        MemoryManage = "memory.manage",
        /// See schedules.
        CronRead = "cron.read",
        /// Stop, resume and delete schedules.
        CronManage = "cron.manage",
        /// Change the configuration.
        DaemonConfigure = "daemon.configure",
        /// Use the chat route for other products' clients.
        CompatChatCreate = "compat.chat.create",
        /// Use the responses route for other products' clients.
        CompatResponsesCreate = "compat.responses.create",
        /// Use the embeddings route for other products' clients.
        CompatEmbeddingsCreate = "compat.embeddings.create",
        /// List models for other products' clients.
        CompatModelsRead = "compat.models.read",
        /// Use the tools over MCP.
        McpCall = "mcp.call",
    }
}

impl Scope {
    /// What its holder can do, in a sentence.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::CallsCreate => "Proposes tool calls, which policy and people still judge.",
            Self::CallsRead => "Reads what became of the calls it proposed.",
            Self::ApprovalsRead => "Sees the questions that wait for a person.",
            Self::ApprovalsDecide => "Answers questions: approves or denies calls.",
            Self::EventsRead => "Follows what happens, as it happens.",
            Self::JournalRead => "Reads, verifies and exports the journal.",
            Self::PolicyRead => "Reads the policies that are in force.",
            Self::PolicyWrite => "Changes policies and the postures of tools.",
            Self::DevicesRead => "Sees which devices are paired.",
            Self::DevicesManage => "Pairs devices and revokes them.",
            Self::TokensRead => "Sees which API tokens there are, but not the tokens themselves.",
            Self::TokensManage => "Mints, rotates and revokes API tokens.",
            Self::MembersRead => "Sees who is a member and who is invited.",
            Self::MembersManage => "Invites people, changes their roles and removes them.",
            Self::VaultRead => "Sees which secrets there are and where they may go, but no value.",
            Self::VaultManage => "Puts, binds and removes secrets, and backs the vault up.",
            Self::SkillsRead => "Sees which skills are installed, what they may use, and whose keys count.",
            Self::SkillsManage => {
                "Installs skills, says what they may use and whose keys count, stops and removes them."
            }
            Self::McpRead => "Sees which MCP servers there are, what they say of their tools and what is pinned.",
            Self::McpManage => "Adds MCP servers, says which of their tools count, and removes them.",
            Self::MemoryRead => "Sees the notes and files that agents keep.",
            Self::MemoryManage => "Deletes the notes and files that agents keep, whoever's they are.",
            Self::CronRead => "Sees which calls are scheduled, and what came of them.",
            Self::CronManage => "Stops, resumes and deletes scheduled calls, whoever's they are.",
            Self::DaemonConfigure => "Changes the daemon's configuration and its features.",
            Self::CompatChatCreate => "Uses the chat route that other products' clients speak.",
            Self::CompatResponsesCreate => "Uses the responses route that other products' clients speak.",
            Self::CompatEmbeddingsCreate => "Uses the embeddings route that other products' clients speak.",
            Self::CompatModelsRead => "Lists the models for other products' clients.",
            Self::McpCall => "Uses the tools here over MCP, those of MCP servers included.",
        }
    }

    /// The lowest role of whoever mints or holds it.
    #[must_use]
    pub const fn needs(self) -> Option<WorkspaceRole> {
        match self {
            Self::CallsCreate
            | Self::CallsRead
            | Self::CompatChatCreate
            | Self::CompatResponsesCreate
            | Self::CompatEmbeddingsCreate
            | Self::CompatModelsRead
            | Self::McpCall => None,
            Self::ApprovalsRead
            | Self::ApprovalsDecide
            | Self::EventsRead
            | Self::JournalRead
            | Self::PolicyRead
            | Self::DevicesRead
            | Self::TokensRead
            | Self::MembersRead
            | Self::VaultRead
            | Self::SkillsRead
            | Self::McpRead
            | Self::MemoryRead
            | Self::CronRead => Some(WorkspaceRole::Operator),
            Self::PolicyWrite
            | Self::DevicesManage
            | Self::TokensManage
            | Self::MembersManage
            | Self::VaultManage
            | Self::SkillsManage
            | Self::McpManage
            | Self::MemoryManage
            | Self::CronManage
            | Self::DaemonConfigure => Some(WorkspaceRole::Admin),
        }
    }

    /// The feature that must be on for it to count.
    #[must_use]
    pub const fn feature(self) -> Option<FeatureFlag> {
        match self {
            Self::CompatChatCreate
            | Self::CompatResponsesCreate
            | Self::CompatEmbeddingsCreate
            | Self::CompatModelsRead => Some(FeatureFlag::CompatApi),
            Self::McpCall => Some(FeatureFlag::McpGateway),
            Self::MembersRead | Self::MembersManage => Some(FeatureFlag::TeamMode),
            _ => None,
        }
    }

    /// Whether a principal of this kind may hold it.
    #[must_use]
    pub const fn suits(self, kind: PrincipalKind) -> bool {
        match kind {
            PrincipalKind::User => true,
            // SECURITY: an agent that reads approvals learns what gets through; one that answers them approves itself.
            PrincipalKind::Agent => self.needs().is_none(),
            PrincipalKind::Service => !self.governs(),
        }
    }

    /// Whether its holder decides for others. Only people do.
    #[must_use]
    pub const fn governs(self) -> bool {
        matches!(
            self,
            Self::ApprovalsDecide
                | Self::PolicyWrite
                | Self::DevicesManage
                | Self::TokensManage
                | Self::MembersManage
                | Self::VaultManage
                | Self::SkillsManage
                | Self::McpManage
                | Self::MemoryManage
                | Self::CronManage
                | Self::DaemonConfigure
        )
    }

    /// Whether somebody of this role, or of none, reaches it.
    #[must_use]
    pub const fn is_reached_by(self, role: Option<WorkspaceRole>) -> bool {
        match (self.needs(), role) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(needed), Some(role)) => crate::role::is_within(needed, role),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(of: impl Fn(Scope) -> bool) -> Vec<&'static str> {
        Scope::ALL.iter().filter(|&&scope| of(scope)).map(|scope| scope.as_str()).collect()
    }

    #[test]
    fn an_agent_holds_nothing_but_calls() {
        let calls = [
            "calls.create",
            "calls.read",
            "compat.chat.create",
            "compat.responses.create",
            "compat.embeddings.create",
            "compat.models.read",
            "mcp.call",
        ];
        assert_eq!(words(|scope| scope.suits(PrincipalKind::Agent)), calls);
        assert_eq!(words(|scope| scope.needs().is_none()), calls);
    }

    #[test]
    fn a_service_never_governs_and_a_user_holds_anything() {
        let governing = [
            "approvals.decide",
            "policy.write",
            "devices.manage",
            "tokens.manage",
            "members.manage",
            "vault.manage",
            "skills.manage",
            "mcp.manage",
            "memory.manage",
            "cron.manage",
            "daemon.configure",
        ];
        assert_eq!(words(|scope| !scope.suits(PrincipalKind::Service)), governing);
        assert_eq!(words(|scope| !scope.suits(PrincipalKind::User)), [""; 0]);
    }

    #[test]
    fn what_changes_the_rules_needs_an_admin_and_what_reads_them_an_operator() {
        let of = |role| words(|scope| scope.needs() == Some(role));
        assert_eq!(
            of(WorkspaceRole::Admin),
            [
                "policy.write",
                "devices.manage",
                "tokens.manage",
                "members.manage",
                "vault.manage",
                "skills.manage",
                "mcp.manage",
                "memory.manage",
                "cron.manage",
                "daemon.configure",
            ]
        );
        assert_eq!(
            of(WorkspaceRole::Operator),
            [
                "approvals.read",
                "approvals.decide",
                "events.read",
                "journal.read",
                "policy.read",
                "devices.read",
                "tokens.read",
                "members.read",
                "vault.read",
                "skills.read",
                "mcp.read",
                "memory.read",
                "cron.read",
            ]
        );
        assert!(Scope::PolicyWrite.is_reached_by(Some(WorkspaceRole::Owner)));
        assert!(!Scope::PolicyWrite.is_reached_by(Some(WorkspaceRole::Operator)));
        assert!(!Scope::JournalRead.is_reached_by(None) && Scope::CallsCreate.is_reached_by(None));
    }

    #[test]
    fn a_scope_belongs_to_the_feature_it_is_of_no_use_without() {
        let of = |flag| words(|scope| scope.feature() == Some(flag));
        let compat =
            ["compat.chat.create", "compat.responses.create", "compat.embeddings.create", "compat.models.read"];
        assert_eq!(of(FeatureFlag::CompatApi), compat);
        assert_eq!(of(FeatureFlag::McpGateway), ["mcp.call"]);
        assert_eq!(of(FeatureFlag::TeamMode), ["members.read", "members.manage"]);
        assert_eq!(words(|scope| scope.feature().is_some()).len(), 7);
    }

    #[test]
    fn every_scope_says_what_it_is_in_a_sentence() {
        assert!(Scope::ALL.iter().all(|scope| scope.about().ends_with('.')));
        assert_eq!(Scope::ALL.len(), 30);
    }
}
