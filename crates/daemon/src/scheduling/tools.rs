//! `cron.create`, `cron.list`, `cron.pause`, `cron.resume`, `cron.delete`: calls that are proposed later.
//!
//! Guarantees: what is scheduled is a call that its creator could make now, of a tool that there is, with arguments that fit; it schedules nothing
//! itself. Nobody is asked about a schedule that cannot be made, or about one's own that is not there. Policy is asked about the schedule by its
//! owner and its name, and whose it is decides whether it can be touched.
//! Does not: decide about the call that is scheduled. That is decided when it is due.

use std::{collections::BTreeMap, sync::Arc};

use palyra_access::AccessRegistry;
use palyra_gate::{
    Asker, Gate, IntendError, Performed, Performing, Petitioner, Service, ServiceIntent, ServiceOperation,
    ServiceOrder, ServiceWork, ToolProposal,
};
use palyra_policy::Touch;
use palyra_schedule::{CronExpression, Every, Job, Missed, NewJob, Owner, When, Zone, job::MOST_TIMEOUT_SECONDS};
use palyra_types::{
    Action, JsonObject, ObjectId, ObjectKind, Resource, Timestamp, ToolName, json::Limits, visible::visible,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    name::ScheduleName,
    owner::{Held, as_scheduled},
    schedule::{self, Schedule, SchedulingError, UNNAMED},
};
use crate::{
    app::OpenGate,
    keeping::{blocking, read, read_again},
};

/// The tools of schedules.
pub fn operations(schedule: Arc<Schedule>, access: AccessRegistry, gate: OpenGate) -> Vec<ServiceOperation> {
    let service: Arc<dyn Service> = Arc::new(Cron { schedule, access, gate });
    let schemas = [
        ("cron.create", CREATE, create_schema()),
        ("cron.list", LIST, json!({ "type": "object", "properties": {}, "additionalProperties": false })),
        ("cron.pause", PAUSE, named_schema()),
        ("cron.resume", RESUME, named_schema()),
        ("cron.delete", DELETE, named_schema()),
    ];
    let operation = |(tool, description, schema)| {
        let service = Arc::clone(&service);
        ServiceOperation { tool, description, schema, service }
    };
    schemas.map(operation).into()
}

struct Cron {
    schedule: Arc<Schedule>,
    access: AccessRegistry,
    gate: OpenGate,
}

impl Service for Cron {
    fn name(&self) -> &str {
        "schedules"
    }

    fn intend(&self, operation: &str, args: &JsonObject, asker: Asker<'_>) -> Result<ServiceIntent, IntendError> {
        let (action, name, about) = match operation {
            "cron.create" => {
                let create: Create = read(args)?;
                let name =
                    ScheduleName::of(&asker.principal.to_string(), &create.name).map_err(|e| unfit(&e, e.advice()))?;
                let when = self.check(&create, &name, asker)?;
                let about = BTreeMap::from([(WHEN.to_owned(), schedule::when(&when))]);
                (Action::CronCreate, name, about)
            }
            "cron.list" => {
                let daemon = ObjectId::parse("daemon").map_err(|error| unfit(&error, error.advice()))?;
                let resource = Resource::Object(ObjectKind::Daemon, daemon);
                let touches = vec![Touch::Object { action: Action::CronList, resource }];
                return Ok(ServiceIntent { touches, ..ServiceIntent::default() });
            }
            "cron.pause" => (Action::CronPause, self.named(args, asker)?.0, BTreeMap::new()),
            // To let something fire again is to let all of it happen, and nobody approves what they do not see.
            "cron.resume" => {
                let (name, job) = self.named(args, asker)?;
                (Action::CronPause, name, job.as_ref().map(fires).unwrap_or_default())
            }
            "cron.delete" => (Action::CronDelete, self.named(args, asker)?.0, BTreeMap::new()),
            other => return Err(IntendError::Shape(format!("schedules do not know `{other}`"))),
        };
        let about = about.into_iter().chain([(SCHEDULE.to_owned(), name.to_string())]).collect();
        let touches = vec![Touch::Object { action, resource: name.resource() }];
        Ok(ServiceIntent { touches, about, ..ServiceIntent::default() })
    }

    // All others look into the database first, or at schemas that somebody else made.
    fn glances(&self, operation: &str) -> bool {
        operation == "cron.list"
    }

    fn perform(self: Arc<Self>, order: ServiceOrder) -> Performing {
        Box::pin(async move { self.perform_now(&order.work, &order.proposal).await.unwrap_or_else(|failed| failed) })
    }
}

impl Cron {
    /// Whether there could be this schedule, and whoever asks could make its call, as far as that can be told before it is due. Returns when
    /// that is.
    fn check(&self, create: &Create, name: &ScheduleName, asker: Asker<'_>) -> Result<When, IntendError> {
        let when = create.when()?;
        let gate = self.gate.now().ok_or_else(|| unfit("the daemon is not up", "try again when it is"))?;
        let tool = create.tool()?;
        // SECURITY: a schedule that makes schedules would have no end.
        if tool.as_str() == "cron.create" {
            return Err(unfit("a schedule schedules nothing", "schedule the call that is to be made in the end"));
        }
        could(&gate, &tool, asker.into())?;
        fits(&gate, &tool, &create.args)?;
        self.schedule.could_be(name, (&when, &create.args)).map_err(|error| unfit(&error, error.advice()))?;
        Ok(when)
    }

    /// The schedule that is meant, if it is there. One's own has to be.
    // SECURITY: whether that of somebody else is there is told to nobody before policy has decided. What it does is part of what is decided
    // about, and a refusal by policy tells nothing of that.
    fn named(&self, args: &JsonObject, asker: Asker<'_>) -> Result<(ScheduleName, Option<Job>), IntendError> {
        let name = read::<Named>(args)?.read(asker)?;
        match self.schedule.find(&name) {
            Ok(Some(job)) => Ok((name, Some(job))),
            _ if name.owner != asker.principal.to_string() => Ok((name, None)),
            Ok(None) => Err(unfit(SchedulingError::Unnamed(name.to_string()), UNNAMED)),
            Err(error) => Err(unfit(&error, error.advice())),
        }
    }

    async fn perform_now(&self, work: &ServiceWork, proposal: &ToolProposal) -> Result<Performed, Performed> {
        let (by, subject) = (proposal.principal.to_string(), proposal.subject());
        let done = match work.operation.as_str() {
            "cron.create" => return self.create(proposal).await,
            "cron.list" => {
                let jobs = self.schedule.list(Some(by)).await.map_err(|error| failed(&error))?;
                let schedules: Vec<_> = jobs.iter().map(schedule::told).collect();
                return Ok(Performed::by_the_daemon(json!({ "schedules": schedules })));
            }
            operation => {
                let named = read_again::<Named>(&proposal.args)?;
                let name = ScheduleName::read(&named.job, &proposal.principal)
                    .map_err(|error| Performed::failed(error.to_string(), error.advice()))?;
                let job = self.schedule.named(&name).await.map_err(|error| failed(&error))?;
                // SECURITY: since it was looked at, another one may have taken its name.
                if operation == "cron.resume" && !fires(&job).iter().all(|(what, it)| work.about.get(what) == Some(it))
                {
                    return Err(Performed::failed(
                        format!("the schedule `{name}` is not the one that was decided about any more"),
                        "look at it, and resume it again",
                    ));
                }
                match operation {
                    "cron.pause" => self.schedule.pause(&job, subject, (&by, "paused")).await.map(Some),
                    "cron.resume" => self.schedule.resume(&job, subject, &by).await.map(Some),
                    _ => self.schedule.delete(&job, subject, &by).await.map(|()| None),
                }
                .map(|left| match left {
                    Some(job) => json!({ "schedule": schedule::told(&job) }),
                    None => json!({ "deleted": name.to_string() }),
                })
            }
        };
        done.map(Performed::by_the_daemon).map_err(|error| failed(&error))
    }

    async fn create(&self, proposal: &ToolProposal) -> Result<Performed, Performed> {
        let unread = |error: IntendError| Performed::failed(error.to_string(), error.advice());
        let create: Create = read_again(&proposal.args)?;
        let (tool, when) = (create.tool().map_err(unread)?, create.when().map_err(unread)?);
        let held =
            Held::of(proposal, &self.access.snapshot()).and_then(|held| serde_json::to_value(held).ok()).ok_or_else(
                || Performed::failed("the call was made with no credential", "make it with a token or a device"),
            )?;
        // The tool may be another one by now.
        let gate = self.gate.now().ok_or_else(|| failed(&SchedulingError::Stopped))?;
        let (checked, args) = (tool.clone(), create.args.clone());
        blocking(move || fits(&gate, &checked, &args).map_err(unread)).await?;
        let new = NewJob {
            name: create.name,
            owner: Owner { principal: proposal.principal.to_string(), credential: held },
            workspace: proposal.workspace.clone(),
            session: proposal.session,
            tool,
            args: create.args,
            when,
            missed: create.missed.unwrap_or(Missed::Skip),
            timeout_seconds: create.timeout_seconds.unwrap_or(TIMEOUT_SECONDS),
        };
        let made = self.schedule.create(new, proposal.subject(), &proposal.principal.to_string()).await;
        let job = made.map_err(|error| failed(&error))?;
        Ok(Performed::by_the_daemon(json!({ "schedule": schedule::told(&job) })))
    }
}

/// What happens when a schedule fires, and which one it is: a schedule is never changed, but another one may take its name.
// SECURITY: people read this in the order of the words. What the agent wrote comes last, so that it stands in front of nothing.
fn fires(job: &Job) -> BTreeMap<String, String> {
    let what = &job.what;
    let mut told = BTreeMap::from([
        ("id".to_owned(), job.id.to_string()),
        ("tool".to_owned(), what.tool.to_string()),
        ("with".to_owned(), Value::Object(what.args.clone()).to_string()),
        (WHEN.to_owned(), schedule::when(&what.when)),
        ("missed".to_owned(), what.missed.to_string()),
        ("timeout_seconds".to_owned(), what.timeout_seconds.to_string()),
    ]);
    told.extend(what.workspace.as_ref().map(|workspace| ("in_workspace".to_owned(), workspace.to_string())));
    told
}

/// Whether the arguments fit the tool. A schema that somebody else made can take long.
fn fits(gate: &Gate, tool: &ToolName, args: &Map<String, Value>) -> Result<(), IntendError> {
    let args = JsonObject::try_from_value(Value::Object(args.clone()), Limits::default())
        .map_err(|error| unfit(error, "send arguments that fit the schema of the tool"))?;
    gate.registry().fits(tool, &args).map_err(|error| unfit(&error, error.advice()))
}

/// Whether somebody could have this tool called for them when it is due.
fn could(gate: &Gate, tool: &ToolName, by: Petitioner) -> Result<(), IntendError> {
    let registry = gate.registry();
    let definition = registry.definition(tool).map_err(|error| unfit(&error, error.advice()))?;
    registry.callable(tool).map_err(|error| unfit(&error, error.advice()))?;
    match gate.could(&as_scheduled(by), definition.metadata()) {
        true => Ok(()),
        false => Err(unfit(
            format!("policy would deny every call of `{tool}` that is scheduled like this"),
            "schedule a tool that you may use; `tool.list` tells which there are",
        )),
    }
}

fn unfit(message: impl ToString, help: &'static str) -> IntendError {
    IntendError::Service { message: message.to_string(), help }
}

fn failed(error: &SchedulingError) -> Performed {
    Performed::failed(error.to_string(), &error.advice())
}

#[derive(Deserialize)]
struct Create {
    name: String,
    tool: String,
    #[serde(default)]
    args: Map<String, Value>,
    cron: Option<String>,
    zone: Option<String>,
    every_seconds: Option<u32>,
    at: Option<String>,
    missed: Option<Missed>,
    timeout_seconds: Option<u32>,
}

impl Create {
    fn tool(&self) -> Result<ToolName, IntendError> {
        ToolName::parse(&self.tool).map_err(|error| unfit(&error, error.advice()))
    }

    fn when(&self) -> Result<When, IntendError> {
        match (&self.cron, self.every_seconds, &self.at) {
            (Some(cron), None, None) => {
                let expression = CronExpression::parse(cron).map_err(|error| unfit(&error, error.advice()))?;
                let zone = self.zone.as_deref().map(Zone::parse).transpose();
                let zone = zone.map_err(|error| unfit(&error, error.advice()))?.unwrap_or_else(Zone::utc);
                Ok(When::Cron { expression, zone })
            }
            (None, Some(seconds), None) => {
                Every::seconds(seconds).map(When::Every).map_err(|error| unfit(error, error.advice()))
            }
            (None, None, Some(at)) => Timestamp::parse(at)
                .map(When::At)
                .map_err(|_| unfit(format!("`{}` is no time", visible(at)), "write it like 2026-03-02T09:30:00Z")),
            _ => Err(unfit(
                "it is said in no way, or in several, when it is due",
                "give one of `cron`, `every_seconds` and `at`",
            )),
        }
    }
}

#[derive(Deserialize)]
struct Named {
    job: String,
}

impl Named {
    fn read(&self, asker: Asker<'_>) -> Result<ScheduleName, IntendError> {
        ScheduleName::read(&self.job, asker.principal).map_err(|error| unfit(&error, error.advice()))
    }
}

fn create_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "minLength": 1, "maxLength": 64, "description": "What it is called: letters, digits and . _ -" },
            "tool": { "type": "string", "minLength": 1, "maxLength": 128, "description": "The tool that is called." },
            "args": { "type": "object", "description": "Its arguments, as in any call of it." },
            "cron": { "type": "string", "minLength": 1, "maxLength": 256, "description": "When, as five fields: minute, hour, day of the month, month, day of the week; or @hourly, @daily, @weekly, @monthly, @yearly." },
            "zone": { "type": "string", "minLength": 1, "maxLength": 64, "description": "The time zone that `cron` is read in, such as Europe/Prague; UTC if left out." },
            "every_seconds": { "type": "integer", "minimum": 60, "maximum": 31_622_400, "description": "When, as a distance in seconds." },
            "at": { "type": "string", "minLength": 1, "maxLength": 64, "description": "When, as one time: 2026-03-02T09:30:00Z" },
            "missed": { "enum": ["skip", "once", "all"], "description": "What becomes of times that were missed: nothing (the default), one call for all of them, or one for each of the last ten." },
            "timeout_seconds": { "type": "integer", "minimum": 1, "maximum": MOST_TIMEOUT_SECONDS, "description": "How long each call may run; 600 if left out." },
        },
        "required": ["name", "tool"],
        "additionalProperties": false
    })
}

fn named_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "job": { "type": "string", "minLength": 1, "maxLength": 128, "description": "The schedule, by its name." },
        },
        "required": ["job"],
        "additionalProperties": false
    })
}

const CREATE: &str = "Schedules a call. When it is due, it is proposed in your name like any other call: policy decides and a person may be \
    asked then, and nobody waits for it. It is refused once your credential does not count any more.";
const LIST: &str = "Lists your schedules: when each is due, what came of it last, and why one that is paused is.";
const PAUSE: &str = "Lets a schedule fire no more until it is resumed.";
const RESUME: &str = "Lets a schedule that is paused fire again.";
const DELETE: &str = "Deletes a schedule for good. A person is asked each time.";

/// How long a call that is scheduled may run if nobody says otherwise: ten minutes.
const TIMEOUT_SECONDS: u32 = 600;

/// What a person is shown the schedule as.
const SCHEDULE: &str = "schedule";

/// What a person is shown its times as.
const WHEN: &str = "when";

#[cfg(test)]
mod tests {
    use palyra_access::FileStore;
    use palyra_journal::state::Waiting;
    use palyra_schedule::ScheduleStore;
    use palyra_types::{
        Clock, Entropy, Principal, PrincipalId, StateHome,
        clock::SystemClock,
        entropy::SystemEntropy,
        id::{CallId, RunId, SessionId},
    };

    use super::*;

    /// Schedules in a state directory, with one of the agent's, whose daemon stops: what is done comes as far as its record.
    fn cron(home: &StateHome) -> (Cron, Job, ToolProposal) {
        let (clock, entropy): (Arc<dyn Clock>, Arc<dyn Entropy>) =
            (Arc::new(SystemClock::new()), Arc::new(SystemEntropy));
        let now = clock.now();
        let agent = Principal::parse("agent:claude").unwrap();
        let args = json!({ "job": "nightly" });
        let proposal = ToolProposal {
            call: CallId::generate(now, &SystemEntropy).unwrap(),
            run: RunId::generate(now, &SystemEntropy).unwrap(),
            session: SessionId::generate(now, &SystemEntropy).unwrap(),
            principal: agent.clone(),
            on_behalf_of: None,
            channel: None,
            device: None,
            token: None,
            member_of: None,
            workspace: None,
            tool: ToolName::parse("cron.resume").unwrap(),
            args: JsonObject::try_from_value(args, Limits::default()).unwrap(),
            waiting: Waiting::Attached,
            key: None,
            within: None,
            elsewhere: None,
        };
        let new = NewJob {
            name: "nightly".to_owned(),
            owner: Owner { principal: agent.to_string(), credential: Value::Null },
            workspace: None,
            session: proposal.session,
            tool: ToolName::parse("fs.list").unwrap(),
            args: Map::new(),
            when: Every::seconds(60).map(When::Every).unwrap(),
            missed: Missed::Skip,
            timeout_seconds: TIMEOUT_SECONDS,
        };
        let store = ScheduleStore::open(&home.path().join(schedule::DIRECTORY), Arc::clone(&entropy)).unwrap().store;
        let job = store.create(&new, now).unwrap();
        drop(store);
        let (schedule, _) = Schedule::open(home, OpenGate::default(), (&clock, &entropy)).unwrap();
        let registry = Arc::new(FileStore::open(&home.path().join("access_registry.json")).unwrap());
        let access = AccessRegistry::create(registry, clock, entropy, PrincipalId::parse("ada").unwrap()).unwrap();
        (Cron { schedule: Arc::new(schedule), access, gate: OpenGate::default() }, job, proposal)
    }

    #[tokio::test]
    async fn what_is_resumed_is_what_was_decided_about_and_nothing_that_took_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let home = StateHome::find(|name| (name == "PALYRA_HOME").then(|| directory.path().into())).unwrap();
        let (cron, job, proposal) = cron(&home);
        let why = async |about: BTreeMap<String, String>| {
            let work = json!({ "service": "schedules", "operation": "cron.resume", "about": about });
            let work = serde_json::from_value(work).unwrap();
            cron.perform_now(&work, &proposal).await.unwrap_err().failed.unwrap()
        };
        let decided = fires(&job);
        assert_eq!(why(decided.clone()).await, SchedulingError::Stopped.to_string());
        let other = "the schedule `agent:claude/nightly` is not the one that was decided about any more";
        for what in decided.keys() {
            let mut changed = decided.clone();
            changed.insert(what.clone(), "another".to_owned());
            assert_eq!(why(changed).await, other, "{what}");
        }
        assert_eq!(why(BTreeMap::new()).await, other);
    }
}
