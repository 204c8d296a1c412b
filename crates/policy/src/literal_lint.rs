//! Makes sure that the names in a policy are names that a request can have.
//!
//! A request's paths, hosts and names have one spelling. A policy about `Palyra::Path::"~/.ssh"` or `Palyra::Host::"*.example.org"` can
//! never match one, and a forbid that never matches protects nothing. Such a policy is refused, by the parsers that read requests.

use cedar_policy::{EntityUid, Policy};
use palyra_types::{
    AbsolutePath, HostName, ObjectId, PrincipalId, SecretRef, SkillId, ToolName, VaultScope, WorkspaceName,
};

/// The first name in a policy that no request can have: the name, and why.
pub(crate) fn impossible_name(policy: &Policy) -> Option<(String, String)> {
    policy.entity_literals().iter().find_map(|uid| Some((uid.to_string(), refusal(uid)?)))
}

/// Why no request can have this name; `None` if one can.
fn refusal(uid: &EntityUid) -> Option<String> {
    let id = uid.id().unescaped();
    let spelling = match uid.type_name().basename() {
        "Path" => AbsolutePath::parse(id).map(|path| path.to_string()).map_err(|error| error.to_string()),
        "Host" => HostName::parse(id).map(|host| host.to_string()).map_err(|error| error.to_string()),
        "Tool" => ToolName::parse(id).map(|name| name.to_string()).map_err(|error| error.to_string()),
        "Skill" => SkillId::parse(id).map(|name| name.to_string()).map_err(|error| error.to_string()),
        "Secret" => SecretRef::parse(id).map(|secret| secret.to_string()).map_err(|error| error.to_string()),
        "SecretScope" => VaultScope::parse(id).map(|scope| scope.to_string()).map_err(|error| error.to_string()),
        "Workspace" => WorkspaceName::parse(id).map(|name| name.to_string()).map_err(|error| error.to_string()),
        "User" | "Agent" | "Service" => {
            PrincipalId::parse(id).map(|name| name.to_string()).map_err(|error| error.to_string())
        }
        // The closed lists are checked by the validator.
        "Action" | "Role" | "Tier" | "Egress" | "Posture" | "Capability" => return None,
        _ => ObjectId::parse(id).map(|name| name.to_string()).map_err(|error| error.to_string()),
    };
    match spelling {
        Ok(spelling) if spelling == id => None,
        Ok(spelling) => Some(format!("requests spell it `{spelling}`")),
        Err(error) => Some(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(entity: &str) -> Option<String> {
        let text = format!("permit(principal, action, resource) when {{ resource in {entity} }};");
        impossible_name(&Policy::parse(None, text).unwrap()).map(|(_, why)| why)
    }

    #[test]
    fn a_name_that_no_request_can_have_is_noticed() {
        for entity in [
            r#"Palyra::Path::"~/.ssh""#,
            r#"Palyra::Path::"/home/ada/.ssh/""#,
            r#"Palyra::Path::"home/ada""#,
            r#"Palyra::Path::"/srv/../etc""#,
            r#"Palyra::Host::"*.example.org""#,
            r#"Palyra::Host::"Example.org""#,
            r#"Palyra::Host::"example.org:443""#,
            r#"Palyra::Tool::"process run""#,
            r#"Palyra::User::"ada lovelace""#,
            r#"Palyra::Secret::"github""#,
            r#"Palyra::Secret::"bogus:x/y""#,
            r#"Palyra::Secret::"global/a b""#,
            r#"Palyra::SecretScope::"shop""#,
            r#"Palyra::SecretScope::"bogus:x""#,
            r#"Palyra::SecretScope::"session:one""#,
            r#"Palyra::SecretScope::"global/github""#,
        ] {
            assert!(refused(entity).is_some(), "{entity}");
        }
    }

    #[test]
    fn names_in_their_one_spelling_are_fine() {
        for entity in [
            r#"Palyra::Path::"/""#,
            r#"Palyra::Path::"/home/ada/.ssh""#,
            r#"Palyra::Host::"example.org""#,
            r#"Palyra::Host::"2001:db8::7""#,
            r#"Palyra::ToolGroup::"fs""#,
            r#"Palyra::SecretScope::"global""#,
            r#"Palyra::SecretScope::"workspace:shop""#,
            r#"Palyra::SecretScope::"agent:claude""#,
            r#"Palyra::SecretScope::"skill:acme/markdown""#,
            r#"Palyra::SecretScope::"session:01ARZ3NDEKTSV4RRFFQ69G5FAV""#,
            r#"Palyra::Secret::"skill:acme/markdown/token""#,
            r#"Palyra::Role::"owner""#,
        ] {
            assert_eq!(refused(entity), None, "{entity}");
        }
    }
}
