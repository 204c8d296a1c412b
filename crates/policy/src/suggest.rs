//! Writes the smallest rule that permits exactly one request.
//!
//! Guarantees: the rule is valid Cedar, passes strict validation, and was tried: added to the set it permits the request without
//! asking. It names who and for whom, what, by which channel, the exact command and where it starts, the workspace, the tier, the egress
//! mode and the port; it does not name what changes from call to call (session, run, device, token, time), or it would never match again.

use cedar_policy::{Authorizer, EntityUid, Policy, PolicySet};
use palyra_types::{Sha256Digest, visible::is_hidden};

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
    let mut conditions = Vec::new();
    if let Some(process) = &context.process {
        conditions.push(format!("context has process && context.process.command == {}", literal(&process.command())));
        // Relative arguments mean other files elsewhere.
        if let Some(cwd) = &process.cwd {
            let cwd = uid(&set.vocabulary.path, cwd.as_str());
            conditions.push(format!("context.process has cwd && context.process.cwd == {}", name(&cwd)));
        }
    }
    if let Some(user) = &context.on_behalf_of {
        let user = uid(set.vocabulary.principal(user.kind()), user.id().as_str());
        conditions.push(format!("context has on_behalf_of && context.on_behalf_of == {}", name(&user)));
    }
    if let Some(channel) = &context.channel {
        conditions.push(format!("context has channel && context.channel == {}", literal(channel.as_str())));
    }
    if let Some(workspace) = &context.workspace {
        let workspace = uid(&set.vocabulary.workspace, workspace.as_str());
        conditions.push(format!("context has workspace && context.workspace == {}", name(&workspace)));
    }
    if let Some(tier) = context.tier {
        conditions.push(format!("context has tier && context.tier == Palyra::Tier::\"{tier}\""));
    }
    if let Some(egress) = context.egress {
        conditions.push(format!("context has egress && context.egress == Palyra::Egress::\"{egress}\""));
    }
    if let Some(port) = context.port {
        conditions.push(format!("context has port && context.port == {port}"));
    }
    let when =
        if conditions.is_empty() { String::new() } else { format!("\nwhen {{\n  {}\n}}", conditions.join(" &&\n  ")) };
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
    let mut together = slice.set.clone();
    together.add(rule).ok()?;
    let (context, entities) = (cedar.context(Demands::ALL).ok()?, cedar.entities(Demands::ALL).ok()?);
    let allowed = [false, true].into_iter().all(|approved| {
        cedar.with_approved(&context, approved).is_ok_and(|question| {
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
