//! `palyra access members …`: who belongs here, and who is invited.

use std::str::FromStr;

use clap::{Args, Subcommand};
use palyra_api::member::{ChangeMember, Invitation, Member, Members, NewInvitation};
use palyra_client::Client;
use palyra_types::{PrincipalId, WorkspaceName, WorkspaceRole, visible::visible};

use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    lifetime::Lifetime,
    revoked,
    short_id::{Sort, meant},
    table::{self, moment},
    terminal::{GOOD, Terminal},
};

#[derive(Subcommand, Default)]
pub(crate) enum MembersCommand {
    /// List the members, and who is invited.
    #[default]
    List,
    /// Invite somebody. They are a member once a device is paired for them.
    Invite(InviteArgs),
    /// Take an invitation back.
    Uninvite {
        /// Who is invited, or the invitation: its id, or the beginning or the end of it.
        invitation: String,
    },
    /// Give a member another role, or other workspaces.
    Set(SetArgs),
    /// Remove a member, with all their devices and tokens.
    Remove {
        /// Their name.
        name: MemberName,
    },
}

/// A member as people name them: `ada`, or `user:ada` as they are shown elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberName(PrincipalId);

impl FromStr for MemberName {
    type Err = MemberNameError;
    fn from_str(text: &str) -> Result<Self, MemberNameError> {
        if ["agent:", "service:"].iter().any(|kind| text.starts_with(kind)) {
            return Err(MemberNameError::NoPerson);
        }
        let name = text.strip_prefix("user:").unwrap_or(text);
        PrincipalId::parse(name).map(Self).map_err(|error| MemberNameError::Name(error.to_string()))
    }
}

/// Why nobody can be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MemberNameError {
    /// Not a name.
    #[error("{0}")]
    Name(String),
    /// An agent or a service.
    #[error("only people are members; a device is paired for an agent with `palyra devices pair --for agent:NAME`")]
    NoPerson,
}

#[derive(Args)]
pub(crate) struct InviteArgs {
    /// Their name.
    name: MemberName,
    /// The role that they will have: owner, admin or operator.
    #[arg(long)]
    role: WorkspaceRole,
    /// A workspace that they will belong to. Can be given again; without it, all.
    #[arg(long = "workspace", value_name = "NAME")]
    workspaces: Vec<WorkspaceName>,
    /// How long the invitation holds, such as 12h or 7d. Without it, seven days.
    #[arg(long, value_name = "TIME")]
    expires: Option<Lifetime>,
}

#[derive(Args)]
pub(crate) struct SetArgs {
    /// Their name.
    name: MemberName,
    /// Their role from now on: owner, admin or operator.
    #[arg(long, required_unless_present_any = ["workspaces", "all_workspaces"])]
    role: Option<WorkspaceRole>,
    /// A workspace that they belong to from now on, and to no other. Can be given again.
    #[arg(long = "workspace", value_name = "NAME", conflicts_with = "all_workspaces")]
    workspaces: Vec<WorkspaceName>,
    /// They belong to all workspaces from now on.
    #[arg(long)]
    all_workspaces: bool,
}

pub(super) async fn run(command: MembersCommand, daemon: &Client, terminal: &Terminal) -> Outcome {
    match command {
        MembersCommand::List => show(&daemon.members().await?, terminal),
        MembersCommand::Invite(args) => invite(&args, daemon, terminal).await?,
        MembersCommand::Uninvite { invitation } => uninvite(&invitation, daemon, terminal).await?,
        MembersCommand::Set(args) => show(&daemon.change_member(&args.name.0, &args.change()).await?, terminal),
        MembersCommand::Remove { name: MemberName(name) } => {
            revoked::tell(&daemon.remove_member(&name).await?, terminal);
            terminal.talk(format!("user:{name} is no member any more"));
        }
    }
    Ok(Exit::Ok)
}

impl SetArgs {
    fn change(&self) -> ChangeMember {
        let workspaces = (!self.workspaces.is_empty()).then(|| self.workspaces.clone());
        ChangeMember { role: self.role, workspaces, all_workspaces: self.all_workspaces }
    }
}

async fn invite(args: &InviteArgs, daemon: &Client, terminal: &Terminal) -> Result<(), Failure> {
    let new = NewInvitation {
        user: args.name.0.clone(),
        role: args.role,
        workspaces: (!args.workspaces.is_empty()).then(|| args.workspaces.clone()),
        lifetime_seconds: args.expires.map(Lifetime::seconds),
    };
    let invitation = daemon.invite(&new).await?;
    if terminal.json {
        terminal.document("invitation", &invitation);
        return Ok(());
    }
    let Invitation { id, user, role, until, .. } = &invitation;
    let invited = terminal.paint(GOOD, "✔ invited");
    terminal.out(format!("{invited} user:{user} as {role} until {}  {}", moment(*until), visible(id)));
    terminal.talk(format!("pair a device for them before that: `palyra devices pair --for user:{user}`"));
    Ok(())
}

async fn uninvite(text: &str, daemon: &Client, terminal: &Terminal) -> Result<(), Failure> {
    let invitations = daemon.members().await?.invitations;
    let named = text.strip_prefix("user:").unwrap_or(text);
    let Invitation { id, user, .. } = match invitations.iter().find(|invitation| invitation.user.as_str() == named) {
        Some(invitation) => invitation,
        None => match meant(&invitations, |invitation| &invitation.id, text, &INVITATION) {
            Ok(invitation) => invitation,
            Err(failure) => return Err(uninvited(failure, text, &invitations)),
        },
    };
    daemon.withdraw_invitation(id).await?;
    if terminal.json {
        terminal.document("invitation.withdrawn", serde_json::json!({ "id": id, "user": user }));
    } else {
        terminal.out(format!("withdrawn  {}  user:{user}", visible(id)));
    }
    Ok(())
}

/// Why nobody is meant. Whoever gave no part of an id has given a name.
fn uninvited(failure: Failure, text: &str, invitations: &[Invitation]) -> Failure {
    let text = text.trim();
    let lower = text.to_ascii_lowercase();
    if invitations.iter().any(|one| one.id.to_ascii_lowercase().contains(&lower)) {
        return failure;
    }
    let cause = format!("no invitation is for `{}`, or has an id that begins or ends with that", visible(text));
    let help = "`palyra access members` shows who is invited";
    Failure::new(Exit::Failure, INVITATION.code, "nobody of that name is invited", cause, help)
}

fn show(members: &Members, terminal: &Terminal) {
    if terminal.json {
        terminal.document("members", members);
        return;
    }
    let rows: Vec<[String; 6]> = members.members.iter().map(member).collect();
    table::print(["NAME", "ROLE", "WORKSPACES", "DEVICES", "TOKENS", "JOINED"], &rows, terminal);
    if !members.invitations.is_empty() {
        terminal.out("");
        let rows: Vec<[String; 5]> = members.invitations.iter().map(invitation).collect();
        table::print(["INVITATION", "NAME", "ROLE", "WORKSPACES", "UNTIL"], &rows, terminal);
    }
}

fn member(member: &Member) -> [String; 6] {
    [
        member.user.to_string(),
        member.role.to_string(),
        workspaces(member.workspaces.as_deref()),
        member.devices.to_string(),
        member.tokens.to_string(),
        moment(member.joined),
    ]
}

fn invitation(invitation: &Invitation) -> [String; 5] {
    [
        visible(&invitation.id),
        invitation.user.to_string(),
        invitation.role.to_string(),
        workspaces(invitation.workspaces.as_deref()),
        moment(invitation.until),
    ]
}

fn workspaces(names: Option<&[WorkspaceName]>) -> String {
    match names {
        None => "all".to_owned(),
        Some([]) => "none".to_owned(),
        Some(names) => names.iter().map(WorkspaceName::as_str).collect::<Vec<_>>().join(" "),
    }
}

const INVITATION: Sort = Sort {
    one: "invitation",
    many: "invitations",
    code: "unknown_invitation",
    help: "`palyra access members` shows them; at least 4 characters of an id are enough",
};

#[cfg(test)]
mod tests {
    use palyra_types::Timestamp;

    use super::*;

    #[test]
    fn a_member_is_named_with_what_they_are_or_without() {
        let name = |text: &str| MemberName::from_str(text).map(|MemberName(name)| name.to_string());
        assert_eq!((name("bob"), name("user:bob")), (Ok("bob".to_owned()), Ok("bob".to_owned())));
        assert_eq!(name("agent:ci"), Err(MemberNameError::NoPerson));
        assert!(matches!(name(""), Err(MemberNameError::Name(_))));
    }

    #[test]
    fn a_name_that_is_not_invited_is_not_taken_for_a_part_of_an_id() {
        let invitations = [Invitation {
            id: "inv-01AAAA1111".into(),
            user: PrincipalId::parse("ada").unwrap(),
            role: WorkspaceRole::Operator,
            workspaces: None,
            by: "user:owner".into(),
            until: Timestamp::from_unix_millis(0),
        }];
        let told = |text: &str| {
            let failure = meant(&invitations, |invitation| &invitation.id, text, &INVITATION).unwrap_err();
            uninvited(failure, text, &invitations).cause
        };
        assert_eq!(told("bob"), "no invitation is for `bob`, or has an id that begins or ends with that");
        assert_eq!(told("11"), "`11` is too short; give at least 4 characters");
    }
}
