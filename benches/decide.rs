//! What a decision costs next to two raw Cedar evaluations, as operator policies grow from none to 10 000.
//!
//! `decide` is measured whole: request, entities and context are built each time, and every question is one that was not answered before.
//! Beside it stands what a question costs that was. The raw evaluations are given a request, a context and entities that are already built.
//! After the figures stands a table of ratios with the targets they must meet, all of them for new questions; a missed target ends the
//! program with an error.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a measurement that cannot be set up ends")]

use std::{collections::BTreeSet, hint::black_box, str::FromStr, time::Duration};

use cedar_policy::{Authorizer, Context, Entities, PolicySet, Request, Schema};
use criterion::{BenchmarkId, Criterion};
use palyra_policy::{
    DEFAULT_POLICY_SRC, Engine, PolicyEvaluationConfig, PolicyRequest, PolicyRequestContext, Preset, SCHEMA_SRC,
    SourceFile, Verdict,
};
use palyra_types::{
    AbsolutePath, Action, Channel, EgressEnforcementMode, Posture, Principal, Process, Resource, SandboxTier,
    Timestamp, ToolCapability, ToolName, WorkspaceName,
};
use serde_json::json;

const SIZES: [usize; 4] = [0, 100, 1_000, 10_000];

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(700))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    for size in SIZES {
        measure(&mut criterion, size);
    }
    criterion.final_summary();
    report();
}

fn measure(criterion: &mut Criterion, size: usize) {
    let mut group = criterion.benchmark_group("decide");
    group.bench_function(BenchmarkId::new("palyra", size), |b| {
        let engine = engine(size);
        let (request, context, config) = palyra_request();
        let requests = from_many_agents(&request);
        let mut requests = requests.iter().cycle();
        b.iter(|| {
            let request = requests.next().expect("it goes round");
            let decision = engine.decide(black_box(request), black_box(&context), &config);
            assert_eq!(decision.verdict, Verdict::Ask);
            decision
        });
    });
    group.bench_function(BenchmarkId::new("known", size), |b| {
        let engine = engine(size);
        let (request, context, config) = palyra_request();
        assert_eq!(engine.decide(&request, &context, &config).verdict, Verdict::Ask);
        b.iter(|| black_box(engine.decide(black_box(&request), black_box(&context), &config)));
    });
    group.bench_function(BenchmarkId::new("two_raw", size), |b| {
        let raw = Raw::new(size);
        assert_eq!(raw.evaluate_twice(), (cedar_policy::Decision::Deny, cedar_policy::Decision::Allow));
        b.iter(|| black_box(raw.evaluate_twice()));
    });
    group.finish();
}

/// The baseline, and `size` operator policies about other tools: half permits, half forbids, with conditions.
fn engine(size: usize) -> Engine {
    Engine::new(&[SourceFile::operator("generated.cedar", operator_policies(size))]).expect("generated policies load")
}

fn operator_policies(size: usize) -> String {
    (0..size)
        .map(|n| {
            let effect = if n % 2 == 0 { "permit" } else { "forbid" };
            format!(
                "@id(\"generated-{n}\") {effect} (principal == Palyra::Agent::\"agent-{}\", \
                 action == Palyra::Action::\"tool.execute\", resource == Palyra::Tool::\"other.tool-{n}\") \
                 when {{ context has channel && context.channel == \"cli\" && context has process && \
                 context.process.name == \"prog-{n}\" }};\n",
                n % 7
            )
        })
        .collect()
}

/// The request of the measurement: an agent wants to run `cargo test` and will be asked.
fn palyra_request() -> (PolicyRequest, PolicyRequestContext, PolicyEvaluationConfig) {
    let tool = ToolName::parse("process.run").expect("a name");
    let request = PolicyRequest {
        principal: Principal::parse("agent:claude").expect("a principal"),
        action: Action::ToolExecute,
        resource: Resource::Tool(tool.clone()),
    };
    let workspace = WorkspaceName::parse("shop").expect("a name");
    let root = AbsolutePath::parse("/home/ada/shop").expect("a path");
    let context = PolicyRequestContext {
        channel: Some(Channel::parse("cli").expect("a name")),
        tool_name: Some(tool),
        capabilities: BTreeSet::from([ToolCapability::ProcessExec]),
        workspace: Some(workspace.clone()),
        process: Some(Process {
            program: AbsolutePath::parse("/usr/bin/cargo").expect("a path"),
            leads_to: None,
            args: ["test", "--workspace"].map(str::to_owned).to_vec(),
            cwd: Some(root.clone()),
        }),
        posture: Posture::AskEachTime,
        tier: Some(SandboxTier::C),
        egress: Some(EgressEnforcementMode::Strict),
        ..PolicyRequestContext::at(Timestamp::from_unix_millis(1_770_000_000_000))
    };
    let config = PolicyEvaluationConfig {
        workspaces: [(workspace, root)].into(),
        state_directory: Some(AbsolutePath::parse("/home/ada/.local/share/palyra").expect("a path")),
        ..Preset::Cautious.config().expect("the built-in presets")
    };
    (request, context, config)
}

/// The request as so many agents would make it that no answer is remembered until its question comes round again.
fn from_many_agents(request: &PolicyRequest) -> Vec<PolicyRequest> {
    let of = |number| PolicyRequest {
        principal: Principal::parse(&format!("agent:claude-{number}")).expect("a principal"),
        ..request.clone()
    };
    (0..5_000).map(of).collect()
}

/// The same question put to Cedar directly, with everything built beforehand.
struct Raw {
    authorizer: Authorizer,
    policies: PolicySet,
    entities: Entities,
    unapproved: Request,
    approved: Request,
}

impl Raw {
    fn new(size: usize) -> Self {
        let (schema, _) = Schema::from_cedarschema_str(SCHEMA_SRC).expect("the schema");
        let text = format!("{DEFAULT_POLICY_SRC}\n{}", operator_policies(size));
        let entities = json!([
            { "uid": { "type": "Palyra::Agent", "id": "claude" }, "attrs": {}, "parents": [] },
            { "uid": { "type": "Palyra::Tool", "id": "process.run" }, "attrs": {},
              "parents": [{ "type": "Palyra::ToolGroup", "id": "process" }] },
        ]);
        let request = |approved: bool| {
            let uid = |text: &str| text.parse::<cedar_policy::EntityUid>().expect("a name");
            let action = uid("Palyra::Action::\"tool.execute\"");
            let entity = |of: &str, id: &str| json!({ "__entity": { "type": of, "id": id } });
            let context = json!({
                "now": { "__extn": { "fn": "datetime", "arg": "2026-02-02T02:40:00.000Z" } },
                "channel": "cli", "tool_name": "process.run", "approved": approved,
                "capabilities": [entity("Palyra::Capability", "process_exec")],
                "workspace": entity("Palyra::Workspace", "shop"),
                "process": { "program": "/usr/bin/cargo", "name": "cargo", "arg1": "test", "arg2": "--workspace",
                             "args": ["test", "--workspace"], "command": "/usr/bin/cargo test --workspace",
                             "interpreter": false, "cwd": entity("Palyra::Path", "/home/ada/shop") },
                "posture": entity("Palyra::Posture", "ask_each_time"),
                "tier": entity("Palyra::Tier", "c"), "egress": entity("Palyra::Egress", "strict"),
                "allow_sensitive_tools": true, "sensitive_action": false, "allowlisted": true,
                "principal_authorized": true, "channel_authorized": true, "runs_palyra": false, "touches_state": false,
            });
            let context =
                Context::from_json_value(context, Some((&schema, &action))).expect("the context fits the schema");
            let (principal, resource) = (uid("Palyra::Agent::\"claude\""), uid("Palyra::Tool::\"process.run\""));
            Request::new(principal, action, resource, context, Some(&schema)).expect("the request fits the schema")
        };
        Self {
            authorizer: Authorizer::new(),
            policies: PolicySet::from_str(&text).expect("the policies parse"),
            entities: Entities::from_json_value(entities, Some(&schema)).expect("the entities fit the schema"),
            unapproved: request(false),
            approved: request(true),
        }
    }

    fn evaluate_twice(&self) -> (cedar_policy::Decision, cedar_policy::Decision) {
        let ask =
            |request| self.authorizer.is_authorized(black_box(request), &self.policies, &self.entities).decision();
        (ask(&self.unapproved), ask(&self.approved))
    }
}

/// Reads the medians that criterion has just written and holds them against the targets.
fn report() {
    let median = |name: &str, size: usize| -> Option<f64> {
        let root = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
            || std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"),
            std::path::PathBuf::from,
        );
        let file = root.join(format!("criterion/decide/{name}/{size}/new/estimates.json"));
        let estimates: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file).ok()?).ok()?;
        estimates["median"]["point_estimate"].as_f64()
    };
    let figures: Option<Vec<_>> = SIZES
        .into_iter()
        .map(|size| Some((size, [median("palyra", size)?, median("known", size)?, median("two_raw", size)?])))
        .collect();
    let Some(figures) = figures else {
        println!("no figures: the benchmarks were filtered or only tested");
        return;
    };
    println!(
        "\n{:>8}  {:>12}  {:>12}  {:>12}  {:>14}  {:>14}",
        "policies", "decide", "known", "two raw", "decide/raw", "vs baseline"
    );
    let baseline = figures.first().map_or(f64::NAN, |&(_, [palyra, ..])| palyra);
    let mut missed = Vec::new();
    for (size, [palyra, known, raw]) in figures {
        println!(
            "{size:>8}  {:>9.1} us  {:>9.1} us  {:>9.1} us  {:>14.3}  {:>14.2}",
            palyra / 1e3,
            known / 1e3,
            raw / 1e3,
            palyra / raw,
            palyra / baseline
        );
        let mut hold = |met: bool, target: &str| {
            if !met {
                missed.push(format!("+{size} policies: {target}"));
            }
        };
        match size {
            0 => hold(palyra <= 2.0 * raw, "decide costs at most 2 x two raw evaluations"),
            100 => {}
            _ => {
                hold(palyra <= 1.5 * baseline, "decide costs at most 1.5 x the baseline alone");
                hold(raw >= 10.0 * palyra, "decide beats raw Cedar by at least 10 x");
            }
        }
    }
    if !missed.is_empty() {
        eprintln!("missed: {}", missed.join("; "));
        std::process::exit(1);
    }
    println!("every target is met");
}
