//! Writes the smallest rule that permits exactly one request.
//!
//! Guarantees: the rule is valid Cedar, passes strict validation, and was tried: added to the set it permits the request without
//! asking. It names who and for whom, what, by which channel, tool and skill, the exact command and where it starts, the workspace,
//! the tier, the egress mode and the port, and asks for the absence of each that the request lacks. It does not name what changes from
//! call to call (session, run, device, token, time), or it would never match again.

use cedar_policy::{Authorizer, EntityUid, Policy, PolicySet};
use palyra_types::{Action, Resource, Sha256Digest, visible::is_hidden};

use crate::{
    cedar_request::CedarRequest,
    demand::Demands,
    format::format_policies,
    request::{PolicyRequest, PolicyRequestContext},
    set::Snapshot,
    source::SourceFile,
    vocabulary::uid,
};

/// The rule, or `None` where no rule would help.
pub(crate) fn rule(
    set: &Snapshot,
    cedar: &CedarRequest<'_>,
    request: &PolicyRequest,
    context: &PolicyRequestContext,
) -> Option<String> {
    let text = write(set, cedar, request, context)?;
    permits(set, cedar, &text)?;
    format_policies(&SourceFile::operator("suggestion", text)).ok()
}

fn write(
    set: &Snapshot,
    cedar: &CedarRequest<'_>,
    request: &PolicyRequest,
    context: &PolicyRequestContext,
) -> Option<String> {
    let entity = |of, id: &str| name(&uid(of, id));
    let process = context.process.as_ref();
    let cwd = process.and_then(|process| process.cwd.as_ref());
    let user = context.on_behalf_of.as_ref();
    let mut conditions =
        vec![condition("context", "process", "process.command", process.map(|one| literal(&one.command())))];
    if process.is_some() {
        // Relative arguments mean other files elsewhere.
        let cwd = cwd.map(|cwd| entity(&set.vocabulary.path, cwd.as_str()));
        conditions.push(condition("context.process", "cwd", "cwd", cwd));
    }
    let mut require = |attribute: &str, value: Option<String>| {
        conditions.push(condition("context", attribute, attribute, value));
    };
    require("on_behalf_of", user.map(|user| entity(set.vocabulary.principal(user.kind()), user.id().as_str())));
    require("channel", context.channel.as_ref().map(|channel| literal(channel.as_str())));
    // A tool and a skill that are the resource are named there.
    if !matches!(request.resource, Resource::Tool(_)) {
        require("tool_name", context.tool_name.as_ref().map(|tool| literal(tool.as_str())));
    }
    if !matches!(request.resource, Resource::Skill(_)) {
        require("skill_id", context.skill_id.as_ref().map(|skill| literal(skill.as_str())));
    }
    require("workspace", context.workspace.as_ref().map(|name| entity(&set.vocabulary.workspace, name.as_str())));
    require("tier", context.tier.map(|tier| format!("Palyra::Tier::\"{tier}\"")));
    require("egress", context.egress.map(|egress| format!("Palyra::Egress::\"{egress}\"")));
    if request.action == Action::NetConnect || context.port.is_some() {
        require("port", context.port.map(|port| port.to_string()));
    }
    // A tier stands for what Palyra runs; where there is none, the rule says who does it.
    if context.elsewhere {
        conditions.push("context.elsewhere".to_owned());
    } else if context.tier.is_none() {
        conditions.push("!context.elsewhere".to_owned());
    }
    let when = format!("\nwhen {{\n  {}\n}}", conditions.join(" &&\n  "));
    let scope = format!(
        "permit (\n  principal == {},\n  action == {},\n  resource == {}\n){when};",
        name(&cedar.principal),
        name(&cedar.action.uid),
        name(&cedar.resource)
    );
    let digest = Sha256Digest::of(scope.as_bytes()).to_string();
    let why = literal(&format!("{} may do exactly this unasked", request.principal));
    Some(format!("@id(\"allow-{}-{}\")\n@why({why})\n{scope}", request.action, digest.get(..8)?))
}

/// Holds where the attribute has this value, or is absent as it is here: a rule made for a call without a command must not permit one
/// with any command.
fn condition(of: &str, attribute: &str, place: &str, value: Option<String>) -> String {
    match value {
        Some(value) => format!("{of} has {attribute} && {of}.{place} == {value}"),
        None => format!("!({of} has {attribute})"),
    }
}

/// Something if the rule validates and, beside the policies that matter for the request, permits it with and without approval.
fn permits(set: &Snapshot, cedar: &CedarRequest<'_>, text: &str) -> Option<()> {
    let rule = Policy::parse(None, text).ok()?;
    let id = cedar_policy::PolicyId::new(rule.annotation("id")?);
    let rule = rule.new_id(id);
    let alone = PolicySet::from_policies([rule.clone()]).ok()?;
    if !set.vocabulary.validate(&alone).validation_passed() {
        return None;
    }
    let slice = set.index.slice(cedar, |position| set.entry(position));
    let mut together = slice.together()?;
    together.add(rule).ok()?;
    let (context, entities) = (cedar.context(Demands::ALL).ok()?, cedar.entities(Demands::ALL).ok()?);
    let allowed = [false, true].into_iter().all(|approved| {
        cedar.with_approved(context.clone(), approved).is_ok_and(|question| {
            let response = Authorizer::new().is_authorized(&question, &together, &entities);
            response.decision() == cedar_policy::Decision::Allow && response.diagnostics().errors().next().is_none()
        })
    });
    allowed.then_some(())
}

/// A name as Cedar writes it.
fn name(uid: &EntityUid) -> String {
    format!("{}::{}", uid.type_name(), literal(uid.id().unescaped()))
}

/// A string as Cedar writes it, with every hidden character spelt out: the rule is for people to read.
fn literal(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if is_hidden(c) => quoted.extend(c.escape_unicode()),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
