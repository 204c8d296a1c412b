//! Runs a call of a skill once more, from what was recorded about it.
//!
//! Guarantees: nothing is touched but the record: the host is not asked, no policy is, and nothing is attested. The same package, arguments, grants
//! and answers come to the same output, and where they do not, it is said.
//! Refuses: a call whose recording is not whole, or was masked or erased.

use std::sync::Arc;

use palyra_journal::{RecordKind, StoredRecord, mask::masked, state::CallRow};
use palyra_package::SkillLimits;
use palyra_skills::{engine::ReplayCall, recording::Recording};
use palyra_types::{JsonObject, Sha256Digest, ToolName, id::CallId, json::Limits};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{administration::SkillRefusal, run::answer, shelf::OpenShelf};
use crate::{
    gate::Gate,
    output::{Kept, Output},
    plan::Plan,
    refusal::Refusal,
};

/// What came of running a call once more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// What was attested then.
    pub attested: Sha256Digest,
    /// What came out now.
    pub replayed: Option<Sha256Digest>,
    /// What came out now, in full.
    pub output: Value,
    /// How many questions to the host were answered from the recording.
    pub host_calls: usize,
}

impl Replayed {
    /// Whether the same came out.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.replayed == Some(self.attested)
    }
}

impl Gate {
    /// Runs a call of a skill once more, from its record.
    ///
    /// # Errors
    /// When there is no such call, it was of no skill, or not enough of it is kept.
    pub async fn replay_skill(&self, call: CallId) -> Result<Replayed, SkillRefusal> {
        let row = self.inner.store.call(call).await.map_err(Refusal::from)?;
        let row = row.ok_or_else(|| no("there is no such call"))?;
        let story = self.story(&row).await?;
        let shelf = self.inner.skills.open()?;
        let ready = shelf.ready_package(&story.skill, story.package, story.plan.limits.metering).await;
        let ready = ready.map_err(|error| no(&format!("its package is not to be had any more: {error}")))?;
        let (host_calls, skill) = (story.recording.calls.len(), story.skill.clone());
        let replay = ReplayCall {
            skill: Arc::clone(&ready.skill),
            id: story.skill,
            tool: story.tool.clone(),
            input: story.input,
            grants: Arc::new(story.plan.grants),
            limits: story.plan.limits,
        };
        // It takes a turn, so that nobody has everything run again at once, and stops with its skill.
        let _turn = shelf.replaying.acquire().await.map_err(|error| no(&error.to_string()))?;
        let run = tokio::select! {
            biased;
            why = self.kept_from_running(&shelf, &skill, (story.package, story.plan.limits)) => return Err(no(why)),
            run = shelf.engine().replay(replay, story.recording) => run,
        };
        let told = match run.answer {
            Ok(text) => answer(text, &ready, &story.tool).await,
            Err(failure) => Err(failure),
        };
        let output = super::run::told(&skill, told);
        let output = Output::Value { value: output };
        let digest = output.digest();
        Ok(Replayed { attested: story.attested, replayed: digest, output: as_kept(&output), host_calls })
    }

    /// Waits until a package may not be run, and says why.
    async fn kept_from_running(
        &self,
        shelf: &OpenShelf,
        skill: &str,
        (package, limits): (Sha256Digest, SkillLimits),
    ) -> &'static str {
        let mut changes = self.inner.policies.subscribe();
        loop {
            changes.borrow_and_update();
            let policy = Arc::clone(&self.inner.settings.load().config);
            if !policy.skills.enabled {
                return "skills are switched off";
            }
            if limits.within(policy.skills.limits) != limits {
                return "it ran with more than `limits` under [skills] leaves a call by now";
            }
            match shelf.store.snapshot().find(skill).filter(|one| one.package == package) {
                None => return "its package is not installed any more",
                Some(one) if one.quarantine.is_some() => return "its skill is in quarantine",
                Some(one) if one.development && !policy.skills.development => {
                    return "nobody signed its skill, and skills are not developed here any more";
                }
                Some(_) => {}
            }
            if changes.changed().await.is_err() {
                return "nothing runs any more";
            }
        }
    }

    async fn story(&self, row: &CallRow) -> Result<Story, SkillRefusal> {
        let mut parts = Parts::default();
        let mut from = row.first_seq;
        while from <= row.last_seq {
            let headings = self.inner.store.subjects(from, PAGE).await.map_err(Refusal::from)?;
            let Some((last, ..)) = headings.last().copied() else { break };
            let own =
                headings.iter().filter(|(seq, _, subject)| subject.call == Some(row.call) && *seq <= row.last_seq);
            for (seq, ..) in own {
                let found = self.inner.store.records(*seq, 1).await.map_err(Refusal::from)?;
                found.first().filter(|one| one.record.seq == *seq).map_or(Ok(()), |one| parts.take(one))?;
            }
            from = last.saturating_add(1);
        }
        parts.story()
    }
}

/// What is needed to run a call once more.
struct Story {
    skill: String,
    tool: String,
    input: String,
    package: Sha256Digest,
    plan: crate::tool::SkillTerms,
    recording: Recording,
    attested: Sha256Digest,
}

/// What was found of it.
#[derive(Default)]
struct Parts {
    proposed: Option<Proposed>,
    plan: Option<Plan>,
    recording: Option<Recording>,
    attested: Option<Attested>,
}

#[derive(Deserialize)]
struct Proposed {
    tool: ToolName,
    args: Value,
}

#[derive(Deserialize)]
struct Started {
    plan: Plan,
}

#[derive(Deserialize)]
struct Recorded {
    #[serde(default)]
    recording: Option<Recording>,
}

#[derive(Deserialize)]
struct Noted {
    note: String,
}

#[derive(Deserialize)]
struct Attested {
    input_sha256: Sha256Digest,
    execution_sha256: Option<Sha256Digest>,
    skill: Option<AttestedSkill>,
}

#[derive(Deserialize)]
struct AttestedSkill {
    id: String,
    package_sha256: Sha256Digest,
    replayable: bool,
}

impl Parts {
    fn take(&mut self, record: &StoredRecord) -> Result<(), SkillRefusal> {
        match record.record.kind {
            RecordKind::ToolProposed => self.proposed = Some(body(record)?),
            RecordKind::ToolStarted => self.plan = Some(body::<Started>(record)?.plan),
            RecordKind::SkillRecorded => self.recording = body::<Recorded>(record)?.recording,
            RecordKind::ToolAttested => {
                let note = body::<Noted>(record)?.note;
                let line = note.lines().next().unwrap_or_default();
                self.attested = serde_json::from_str(line).ok();
            }
            _ => {}
        }
        Ok(())
    }

    fn story(self) -> Result<Story, SkillRefusal> {
        let attested = self.attested.ok_or_else(|| no("it was not attested, or that was erased"))?;
        let skill = attested.skill.ok_or_else(|| no("it was no call of a skill"))?;
        if !skill.replayable {
            return Err(no("what it asked of the host was not recorded whole"));
        }
        let digest = attested.execution_sha256.ok_or_else(|| no("nothing came out of it"))?;
        let Some(Proposed { tool, args }) = self.proposed else { return Err(no("its arguments were erased")) };
        let Some(Plan::Skill { terms, .. }) = self.plan else { return Err(no("how it was run was erased")) };
        let args = JsonObject::try_from_value(args, Limits::default()).map_err(|error| no(&error.to_string()))?;
        if args.digest() != attested.input_sha256 {
            return Err(no("its arguments were masked in the record, so they are not what it was called with"));
        }
        let name = tool.as_str().rsplit('.').next().unwrap_or_default().to_owned();
        Ok(Story {
            skill: skill.id,
            tool: name,
            input: args.canonical().to_owned(),
            package: skill.package_sha256,
            plan: terms,
            recording: self.recording.unwrap_or_default(),
            attested: digest,
        })
    }
}

fn body<T: DeserializeOwned>(record: &StoredRecord) -> Result<T, SkillRefusal> {
    let text = record.body.as_deref().ok_or_else(|| no("a part of its record was erased"))?;
    serde_json::from_str(text).map_err(|error| no(&format!("a part of its record cannot be read: {error}")))
}

/// What came out, with the tokens masked that the record of the call has masked, too.
fn as_kept(output: &Output) -> Value {
    let spelt = serde_json::to_string(&Kept(output)).unwrap_or_default();
    let mut kept: Value = serde_json::from_str(&masked(spelt)).unwrap_or_default();
    kept.get_mut("value").map(Value::take).unwrap_or_default()
}

fn no(why: &str) -> SkillRefusal {
    SkillRefusal::NoReplay(why.to_owned())
}

/// How many records are looked at together.
const PAGE: usize = 1_000;
