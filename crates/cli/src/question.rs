//! A question to a person, whole: nothing is cut, and nothing is hidden.

use anstyle::Style;
use palyra_api::{
    approval::{Answered, Approval, ApprovalState, Command, Containment, Scope, SkillCall},
    skill::SkillLimits,
};
use palyra_types::visible::{visible, visible_block};
use serde_json::Value;

use crate::terminal::{BAD, BOLD, DIM, GOOD, Terminal, WAIT, shown};

/// How text is painted where the question is shown.
pub(crate) type Paint<'a> = &'a dyn Fn(Style, &str) -> String;

/// The lines of a question.
pub(crate) fn lines(approval: &Approval, paint: Paint<'_>) -> Vec<String> {
    let mut page = Page { lines: Vec::new(), paint };
    let (glyph, style) = risk_style(&approval.risk.level);
    page.lines.push(format!(
        "{} {}  {}",
        paint(WAIT, "?"),
        paint(BOLD, &shown(&approval.summary)),
        paint(DIM, &approval.id.to_string())
    ));
    let behalf = approval.on_behalf_of.as_deref().map(|user| format!(" on behalf of {}", visible(user)));
    page.field("who", &format!("{}{}", visible(&approval.principal), behalf.unwrap_or_default()));
    page.field("tool", approval.tool.as_str());
    page.optional("workspace", approval.workspace.as_deref());
    if let Some(command) = &approval.command {
        page.command(command, &approval.plan);
    }
    page.arguments(&approval.args, approval.command.as_ref());
    if let Some(files) = &approval.files {
        page.json("files", files);
    }
    if let Some(skill) = &approval.skill {
        page.skill(skill);
    }
    page.containment(&approval.plan);
    page.field("risk", &paint(style, &format!("{glyph} {}", visible(&approval.risk.level))));
    for reason in &approval.risk.reasons {
        page.more(&shown(reason));
    }
    page.reason(approval);
    page.clocks(approval);
    page.field("digest", &approval.digest.to_string());
    page.lines
}

/// The lines of a question, for stdout.
pub(crate) fn out(approval: &Approval, terminal: &Terminal) {
    for line in lines(approval, &|style, text| terminal.paint(style, text)) {
        terminal.out_rows(line);
    }
}

/// The lines of a question, for stderr.
pub(crate) fn talk(approval: &Approval, terminal: &Terminal) {
    for line in lines(approval, &|style, text| terminal.paint_err(style, text)) {
        terminal.talk_rows(line);
    }
}

/// What came of a question, in one line.
pub(crate) fn answered(answer: &Answered, paint: Paint<'_>) -> String {
    let (glyph, style) = match answer.state {
        ApprovalState::Approved | ApprovalState::Consumed => ("✔", GOOD),
        ApprovalState::Pending => ("?", WAIT),
        ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Cancelled => ("✖", BAD),
    };
    let mut line = format!("{}  {}", paint(style, &format!("{glyph} {}", state(answer.state))), answer.id);
    let mut add = |word: &str, text: Option<&str>| {
        if let Some(text) = text {
            line.push_str(&format!(", {word}{}", shown(text)));
        }
    };
    add("by ", answer.by.as_deref());
    add("covers ", answer.covers.as_deref());
    let message = answer.message.as_deref().map(visible);
    add("told: ", message.as_deref());
    add("", answer.cause.as_deref());
    let until = answer.valid_until.map(|until| until.to_string());
    add("has to start by ", until.as_deref());
    line
}

/// A state in a word.
pub(crate) const fn state(state: ApprovalState) -> &'static str {
    match state {
        ApprovalState::Pending => "pending",
        ApprovalState::Approved => "approved",
        ApprovalState::Consumed => "approved and used",
        ApprovalState::Denied => "denied",
        ApprovalState::Expired => "expired",
        ApprovalState::Cancelled => "withdrawn",
    }
}

/// How much a yes covers, in words.
pub(crate) fn scope(scope: Scope, minutes: Option<u32>) -> String {
    match (scope, minutes) {
        (Scope::Once, _) => "this call".to_owned(),
        (Scope::Session, _) => "calls like this one, in this session".to_owned(),
        (Scope::Timeboxed, minutes) => {
            format!("calls like this one, in this session, for {} minutes", minutes.unwrap_or_default())
        }
    }
}

/// Milliseconds as people say them.
pub(crate) fn duration(millis: u64) -> String {
    let seconds = millis / 1000;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0) => format!("{millis} ms"),
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, 0) => format!("{minutes} min"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

fn risk_style(level: &str) -> (&'static str, Style) {
    match level {
        "low" => ("·", GOOD),
        "medium" => ("!", WAIT),
        _ => ("!!", BAD),
    }
}

struct Page<'a> {
    lines: Vec<String>,
    paint: Paint<'a>,
}

impl Page<'_> {
    /// A line with a title. The text is visible already.
    fn field(&mut self, title: &str, text: &str) {
        let title = (self.paint)(DIM, &format!("{title:<13}"));
        self.lines.push(format!("  {title} {text}"));
    }

    fn more(&mut self, text: &str) {
        self.lines.push(format!("  {:13} {text}", ""));
    }

    fn optional(&mut self, title: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.field(title, &visible(text));
        }
    }

    /// Lines under one title; a single `none` if there are none.
    fn list<'t>(&mut self, title: &str, items: impl Iterator<Item = &'t str>) {
        let mut title = title;
        for item in items {
            self.field(std::mem::take(&mut title), &visible(item));
        }
        if !title.is_empty() {
            self.field(title, "none");
        }
    }

    fn command(&mut self, command: &Command, plan: &Containment) {
        self.field("program", &(self.paint)(BOLD, &chip(&command.program)));
        self.optional("leads to", command.leads_to.as_deref());
        // Each word on a line of its own, so that nobody has to guess where one ends.
        let mut title = "arguments";
        for argument in &command.args {
            self.field(std::mem::take(&mut title), &(self.paint)(BOLD, &chip(argument)));
        }
        if !title.is_empty() {
            self.field(title, "none");
        }
        self.field("starts in", &visible(&command.cwd));
        let variables: Vec<String> =
            command.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        match variables.is_empty() {
            // What the agent's own variables are, nobody here knows.
            true if plan.elsewhere => {}
            true => self.field("environment", "none besides the fixed variables"),
            false => self.list("environment", variables.iter().map(String::as_str)),
        }
        if let Some(digest) = &command.stdin_sha256 {
            self.field("stdin", &format!("sha256 {digest}"));
        }
        if !command.scripts.is_empty() {
            self.list("runs code of", command.scripts.iter().map(String::as_str));
        }
    }

    fn skill(&mut self, skill: &SkillCall) {
        let SkillCall { id, version, publisher, tool, .. } = skill;
        let named = format!("{id} {} of {}, its tool {}", visible(version), visible(publisher), visible(tool));
        self.field("skill", &(self.paint)(BOLD, &named));
        match &skill.signed_by {
            Some(key) => self.field("signed by", &format!("key {}", visible(key))),
            None => self.field("signed by", &(self.paint)(WAIT, "nobody: it is being developed")),
        }
        let directories = skill.directories.iter();
        let directories: Vec<_> =
            directories.map(|(name, one)| format!("{} to {}, as `{name}`", one.path, one.access)).collect();
        self.list("directories", directories.iter().map(String::as_str));
        match skill.may.is_empty() {
            true => self.field("it may", "nothing but compute"),
            false => self.list("it may", skill.may.iter().map(String::as_str)),
        }
        let SkillLimits { metering, fuel, cpu_ms, memory_bytes, host_calls, output_bytes, .. } = &skill.limits;
        let work =
            if metering == "fuel" { format!("{fuel} units of fuel") } else { format!("{cpu_ms} ms of computing") };
        let rest =
            format!("{memory_bytes} bytes of memory, {host_calls} calls of the host, {output_bytes} bytes of answer");
        self.field("at the most", &format!("{work}, {rest}"));
        self.field("package", &format!("sha256 {}", skill.package_sha256));
        self.field("program", &format!("sha256 {}", skill.component_sha256));
    }

    /// The arguments as they were given. Those that the command repeats word for word are left out.
    fn arguments(&mut self, args: &Value, command: Option<&Command>) {
        match args {
            Value::Object(fields) => {
                let said = |name: &str, value: &Value| command.is_some_and(|command| repeats(command, name, value));
                for (name, value) in fields.iter().filter(|(name, value)| !said(name, value)) {
                    self.json(&format!("`{}`", visible(name)), value);
                }
            }
            other => self.json("given", other),
        }
    }

    fn json(&mut self, title: &str, value: &Value) {
        let text = match value {
            Value::String(text) => chip_block(text),
            other => serde_json::to_string_pretty(other).unwrap_or_else(|_| other.to_string()),
        };
        let mut title = title;
        for line in visible_block(&text).split('\n') {
            self.field(std::mem::take(&mut title), line);
        }
    }

    fn containment(&mut self, plan: &Containment) {
        let tier = match plan.tier.as_deref() {
            Some(tier) => visible(tier),
            None if plan.elsewhere => ELSEWHERE.to_owned(),
            None => "none; the daemon does it itself".to_owned(),
        };
        let egress = plan.egress.as_deref().map(|egress| format!(", egress {}", visible(egress)));
        self.field("tier", &format!("{tier}{}", egress.unwrap_or_default()));
        self.field("may write", &shown(&plan.writes));
        self.list("hosts", plan.hosts.iter().map(String::as_str));
        if !plan.secrets.is_empty() {
            self.list("secrets", plan.secrets.iter().map(String::as_str));
        }
        if !plan.elsewhere {
            self.field("runs at most", &duration(plan.wall_ms));
        }
    }

    /// Why a person is asked, what each policy behind that says besides, and what would change it.
    fn reason(&mut self, approval: &Approval) {
        self.field("asks because", &shown(&approval.reason));
        for policy in &approval.policies {
            // The reason begins with what the first of them says.
            let is_named = approval.reason.contains(&format!("[{}]", policy.id));
            let why = policy.why.as_deref().map_or_else(|| "the policy gives no `@why`".to_owned(), visible);
            if !is_named {
                self.more(&why);
            }
            let place = (self.paint)(DIM, &format!("({})", visible(&policy.location)));
            self.more(&format!("{} {place}", (self.paint)(BOLD, &visible(&policy.id))));
        }
        let mut title = "to change it";
        for change in &approval.change {
            self.field(std::mem::take(&mut title), &shown(change));
        }
    }

    fn clocks(&mut self, approval: &Approval) {
        if approval.state == ApprovalState::Pending {
            let within = duration(approval.answer_within_ms);
            self.field("answer by", &format!("{} (within {within})", approval.answer_by));
        } else {
            self.field("state", state(approval.state));
        }
        self.field("then valid", &format!("{} s, until the call has to start", approval.valid_for_seconds));
        if approval.waiting == "accepted" {
            self.field("caller", "may leave; the call can go on without it");
        }
    }
}

/// Whether a command, as it is shown, says all that an argument says.
fn repeats(command: &Command, name: &str, value: &Value) -> bool {
    match (name, value) {
        // Its words stand there as the program would get them.
        ("command", _) | ("cwd" | "env", Value::Null) => true,
        ("cwd", Value::String(cwd)) => *cwd == command.cwd,
        // SECURITY: whatever there is to hide in a variable must stand somewhere on the page.
        ("env", Value::Object(given)) => {
            let is_shown = |(name, value): (&String, &Value)| {
                command.environment.get(name).is_some_and(|shown| value.as_str() == Some(shown.as_str()))
            };
            given.len() == command.environment.len() && given.iter().all(is_shown)
        }
        _ => false,
    }
}

/// A word with its ends, so that spaces at either show.
fn chip(word: &str) -> String {
    format!("[{}]", visible(word))
}

/// A text of several lines as it is; one line with its ends.
fn chip_block(text: &str) -> String {
    if text.contains('\n') { text.to_owned() } else { format!("\"{text}\"") }
}

/// What is said of a call that another program makes itself.
const ELSEWHERE: &str = "none; the agent's own program does it, with its own environment, and nothing contains it";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What stands of the arguments beside a command.
    fn beside(args: &Value, environment: &[(&str, &str)]) -> Vec<String> {
        let command = Command {
            program: "/usr/bin/make".to_owned(),
            leads_to: None,
            args: Vec::new(),
            cwd: "/w".to_owned(),
            environment: environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            stdin_sha256: None,
            scripts: Vec::new(),
        };
        let mut page = Page { lines: Vec::new(), paint: &|_, text| text.to_owned() };
        page.arguments(args, Some(&command));
        page.lines.iter().map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn an_argument_is_left_out_only_where_the_command_says_the_same() {
        let args = json!({ "command": ["make"], "cwd": "/w", "env": { "A": "1" } });
        assert_eq!(beside(&args, &[("A", "1")]), [""; 0]);
        assert_eq!(beside(&json!({ "command": ["make"], "cwd": null, "env": {} }), &[]), [""; 0]);
        let env = ["`env`         {", "\"A\": \"1\"", "}"];
        for shown in [&[][..], &[("A", "2")], &[("B", "1")], &[("A", "1"), ("B", "1")]] {
            assert_eq!(beside(&args, shown), env, "{shown:?}");
        }
        let elsewhere = json!({ "command": ["make"], "cwd": "sub", "env": "A=1" });
        assert_eq!(beside(&elsewhere, &[]), ["`cwd`         \"sub\"", "`env`         \"A=1\""]);
    }
}
