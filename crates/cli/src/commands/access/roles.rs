//! `palyra access roles`: what each role may do, action by action.

use palyra_api::member::Roles;
use palyra_client::Client;
use palyra_types::visible::visible;

use crate::{
    Outcome,
    exit::Exit,
    terminal::{BOLD, Terminal},
};

pub(super) async fn run(daemon: &Client, terminal: &Terminal) -> Outcome {
    let roles = daemon.roles().await?;
    if terminal.json {
        terminal.document("roles", &roles);
        return Ok(Exit::Ok);
    }
    for role in &roles.roles {
        let name = terminal.paint(BOLD, &format!("{:<8}", role.role.to_string()));
        terminal.out_rows(format!("{name}  {}", visible(&role.about)));
    }
    terminal.out("");
    let mut lines = table(&roles).into_iter();
    terminal.out(terminal.paint(BOLD, &lines.next().unwrap_or_default()));
    lines.for_each(|line| terminal.out(line));
    terminal.talk("policies may forbid more; `palyra explain` says what decided a call");
    Ok(Exit::Ok)
}

/// A line for each action, with a mark under each role that may take it.
fn table(roles: &Roles) -> Vec<String> {
    // In the order in which the roles tell them, so that what belongs together stands together.
    let mut actions: Vec<&str> = Vec::new();
    for action in roles.roles.iter().rev().flat_map(|role| &role.permissions) {
        if !actions.contains(&action.as_str()) {
            actions.push(action);
        }
    }
    let width = actions.iter().map(|action| visible(action).chars().count()).chain([6]).max().unwrap_or_default();
    let names = roles.roles.iter().map(|role| role.role.as_str());
    let mut lines = vec![names.fold(format!("{:<width$}", "action"), |line, name| format!("{line}  {name}"))];
    for action in actions {
        let line = roles.roles.iter().fold(format!("{:<width$}", visible(action)), |line, role| {
            let mark = if role.permissions.iter().any(|allowed| allowed == action) { "✔" } else { "·" };
            let column = role.role.as_str().len();
            format!("{line}  {mark:<column$}")
        });
        lines.push(line.trim_end().to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use palyra_api::member::RolePermissions;
    use palyra_types::WorkspaceRole;

    use super::*;

    #[test]
    fn each_action_has_a_mark_under_each_role_that_may_take_it() {
        let role = |role: WorkspaceRole, permissions: &[&str]| RolePermissions {
            role,
            about: String::new(),
            permissions: permissions.iter().map(|&name| name.to_owned()).collect(),
        };
        let roles = Roles {
            roles: vec![
                role(WorkspaceRole::Owner, &["journal.read", "token.create"]),
                role(WorkspaceRole::Operator, &["journal.read"]),
            ],
        };
        assert_eq!(
            table(&roles),
            ["action        owner  operator", "journal.read  ✔      ✔", "token.create  ✔      ·"]
        );
    }
}
