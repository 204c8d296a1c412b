//! What can be asked for. Each action has one spelling, the one that Cedar policies use.
//!
//! The schema in `policies/palyra.cedarschema` declares the same actions and puts them into groups; a test in
//! `palyra-policy` keeps the two lists equal.

use crate::word::words;

words! {
    /// An action of the system.
    pub enum Action ("action") {
        /// Run a tool.
        ToolExecute = "tool.execute",
        /// See which tools there are.
        ToolList = "tool.list",
        /// Run a tool of a skill.
        SkillExecute = "skill.execute",
        /// See which skills are installed.
        SkillList = "skill.list",
        /// Install or update a skill.
        SkillInstall = "skill.install",
        /// Grant a skill what it asked for.
        SkillGrant = "skill.grant",
        /// Remove a skill.
        SkillRemove = "skill.remove",
        /// Stop a skill at once, or let it run again.
        SkillQuarantine = "skill.quarantine",
        /// Read a file or a directory. Asked for every path that a call touches.
        FsRead = "fs.read",
        /// Write, create or delete a file. Asked for every path that a call touches.
        FsWrite = "fs.write",
        /// Connect to a host. Asked for every host that a call touches.
        NetConnect = "net.connect",
        /// See that the daemon is there and well.
        DaemonStatus = "daemon.status",
        /// Change the daemon's configuration.
        DaemonConfigure = "daemon.configure",
        /// Stop the daemon.
        DaemonStop = "daemon.stop",
        /// Hand a raw secret to a tool.
        VaultGet = "vault.get",
        /// Use a secret by reference, without seeing it.
        VaultUse = "vault.use",
        /// See the names of secrets.
        VaultList = "vault.list",
        /// Store a secret.
        VaultPut = "vault.put",
        /// Delete a secret.
        VaultDelete = "vault.delete",
        /// Say where a secret may go.
        VaultBind = "vault.bind",
        /// Rotate keys, export or import the vault.
        VaultAdminister = "vault.administer",
        /// Look something up in memory.
        MemorySearch = "memory.search",
        /// List what is in memory.
        MemoryList = "memory.list",
        /// Remember something.
        MemoryPut = "memory.put",
        /// Forget one thing.
        MemoryDelete = "memory.delete",
        /// Forget everything.
        MemoryPurge = "memory.purge",
        /// Look at or delete what anybody remembers or keeps, as somebody who governs.
        MemoryManage = "memory.manage",
        /// Keep an artifact.
        ArtifactPut = "artifact.put",
        /// Fetch an artifact.
        ArtifactGet = "artifact.get",
        /// List artifacts.
        ArtifactList = "artifact.list",
        /// Delete an artifact.
        ArtifactDelete = "artifact.delete",
        /// See what is scheduled.
        CronList = "cron.list",
        /// Schedule calls.
        CronCreate = "cron.create",
        /// Pause or resume a schedule.
        CronPause = "cron.pause",
        /// Delete a schedule.
        CronDelete = "cron.delete",
        /// Stop, resume or delete anybody's schedule, as somebody who governs.
        CronManage = "cron.manage",
        /// See what waits for an answer.
        ApprovalList = "approval.list",
        /// Answer: approve or deny.
        ApprovalAnswer = "approval.answer",
        /// Read the policies that are in force.
        PolicyRead = "policy.read",
        /// Change or reload policies.
        PolicyWrite = "policy.write",
        /// Change the posture of a tool.
        PostureSet = "posture.set",
        /// Read, verify or export the journal.
        JournalRead = "journal.read",
        /// Erase bodies from the journal.
        JournalErase = "journal.erase",
        /// See the paired devices.
        DeviceList = "device.list",
        /// Pair a device.
        DevicePair = "device.pair",
        /// Revoke a device.
        DeviceRevoke = "device.revoke",
        /// See the API tokens.
        TokenList = "token.list",
        /// Mint or rotate a token.
        TokenCreate = "token.create",
        /// Revoke a token.
        TokenRevoke = "token.revoke",
        /// See the members of a workspace.
        MemberList = "member.list",
        /// Add or remove members, or change their roles.
        MemberManage = "member.manage",
        /// See the upstream MCP servers.
        McpList = "mcp.list",
        /// Add, pin or remove an upstream MCP server.
        McpManage = "mcp.manage",
        /// Start a configured MCP server.
        McpStart = "mcp.start",
    }
}

impl Action {
    /// Whether the action is sensitive whatever the configuration says: it destroys or reveals what cannot be had back.
    #[must_use]
    pub const fn is_sensitive(self) -> bool {
        matches!(
            self,
            Self::CronDelete | Self::MemoryDelete | Self::MemoryPurge | Self::ArtifactDelete | Self::VaultGet
        )
    }
}
