//! A loaded policy set: parsed, named, validated and linted once, then only read.
//!
//! Guarantees: the baseline is in it; every policy has a unique id from its `@id`; every policy passed strict validation against
//! the schema and the lints (`approval_lint`, `subject_lint`, `literal_lint`). A set that breaks any of this does not come into being: [`Snapshot::load`] returns
//! everything that is wrong with it.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use cedar_policy::{Policy, PolicySet, pst};
use miette::Diagnostic;
use palyra_types::{PolicyId, Sha256Digest, visible};

use crate::{
    approval_lint::ApprovalUse,
    baseline,
    condition::Condition,
    decision::{Effect, PolicyInfo},
    demand::Demands,
    literal_lint,
    problem::{Finding, LoadError, MAX_TOTAL_SIZE, Problem},
    slice::{Entry, SliceIndex},
    source::{Layer, Location, SourceFile, Statement},
    subject_lint,
    vocabulary::{SCHEMA_SRC, Vocabulary},
};

/// How deep brackets may nest in one policy. Beyond it a parser's stack, not the rule, is being tested.
const MAX_NESTING: usize = 48;
/// How many operators one policy may have, for the same reason.
const MAX_OPERATORS: usize = 500;

/// A policy set in force, or a candidate for it.
pub struct Snapshot {
    pub(crate) vocabulary: Arc<Vocabulary>,
    pub(crate) policies: Vec<LoadedPolicy>,
    pub(crate) index: SliceIndex,
    by_id: HashMap<cedar_policy::PolicyId, usize>,
    digest: Sha256Digest,
    warnings: Vec<Finding>,
}

/// One policy of a set.
pub(crate) struct LoadedPolicy {
    pub(crate) info: Arc<PolicyInfo>,
    pub(crate) cedar: Policy,
    pub(crate) tree: pst::Template,
    /// What it looks at in the context.
    pub(crate) demands: Demands,
    conditions: OnceLock<Box<[Condition]>>,
    text: String,
}

impl LoadedPolicy {
    /// What must hold for it to apply, besides its scope. Taken apart when that is first asked.
    pub(crate) fn conditions(&self) -> &[Condition] {
        self.conditions.get_or_init(|| Condition::all_of(&self.tree))
    }

    /// Whether that was asked yet.
    #[cfg(test)]
    pub(crate) fn is_taken_apart(&self) -> bool {
        self.conditions.get().is_some()
    }
}

impl Snapshot {
    /// Loads the baseline and these operator policies.
    ///
    /// # Errors
    /// With everything that is wrong, if anything is.
    pub fn load(operator: &[SourceFile]) -> Result<Self, LoadError> {
        let vocabulary = vocabulary()?;
        let mut findings = Vec::new();
        let total: u64 = operator.iter().map(|file| u64::try_from(file.text.len()).unwrap_or(u64::MAX)).sum();
        if total > MAX_TOTAL_SIZE {
            let name = operator.first().map_or_else(|| Arc::from("policies"), |file| Arc::clone(&file.name));
            let problem = Problem::TooLarge { size: total, limit: MAX_TOTAL_SIZE };
            return Err(LoadError { findings: vec![Finding { problem, location: Location::file(name) }] });
        }

        let files: Vec<SourceFile> = std::iter::once(baseline::baseline()).chain(operator.iter().cloned()).collect();
        let mut parsed = Vec::new();
        for (number, file) in files.iter().enumerate() {
            if let Err(finding) = file.check_visible() {
                findings.push(finding);
                continue;
            }
            for statement in file.statements() {
                match parse(file, statement) {
                    Ok(policy) => parsed.push(Parsed { policy, file: number, offset: statement.offset }),
                    Err(finding) => findings.push(finding),
                }
            }
        }
        let parsed = refuse_duplicates(parsed, &mut findings);
        let mut warnings = validate(&vocabulary, &files, &parsed, &mut findings);
        // The validator reports in no particular order; people and tests want one.
        let order = |finding: &Finding| {
            let file = files.iter().position(|file| file.name == finding.location.file);
            (file, finding.location.line, finding.location.column, finding.problem.to_string())
        };
        findings.sort_by_cached_key(order);
        warnings.sort_by_cached_key(order);
        // One slip in a policy about every action is told once, not once an action.
        let same_slip =
            |a: &mut Finding, b: &mut Finding| a.location == b.location && a.problem.code() == b.problem.code();
        findings.dedup_by(same_slip);
        if !findings.is_empty() {
            return Err(LoadError { findings });
        }

        let policies: Vec<LoadedPolicy> = parsed.into_iter().map(|parsed| parsed.policy).collect();
        Ok(Self {
            index: SliceIndex::build(policies.iter().map(|policy| &policy.cedar)),
            by_id: policies
                .iter()
                .enumerate()
                .map(|(position, policy)| (policy.cedar.id().clone(), position))
                .collect(),
            digest: digest(&policies),
            vocabulary,
            policies,
            warnings,
        })
    }

    /// A digest of everything that can change a decision: the schema, and every policy's layer, id and text. It does not depend
    /// on file names or on the order of files.
    #[must_use]
    pub const fn digest(&self) -> Sha256Digest {
        self.digest
    }

    /// What the validator found doubtful, though not wrong.
    #[must_use]
    pub fn warnings(&self) -> &[Finding] {
        &self.warnings
    }

    /// The policies, baseline first, then in the order of files and lines.
    pub fn policies(&self) -> impl ExactSizeIterator<Item = &Arc<PolicyInfo>> {
        self.policies.iter().map(|policy| &policy.info)
    }

    /// The policy of this Cedar id.
    pub(crate) fn loaded(&self, id: &cedar_policy::PolicyId) -> Option<&LoadedPolicy> {
        self.by_id.get(id).and_then(|&position| self.policies.get(position))
    }

    /// What is known about the policy of this Cedar id.
    pub(crate) fn info(&self, id: &cedar_policy::PolicyId) -> Option<&Arc<PolicyInfo>> {
        self.loaded(id).map(|policy| &policy.info)
    }

    /// The policy at a position, as slices want it.
    pub(crate) fn entry(&self, position: usize) -> Option<Entry<'_>> {
        self.policies.get(position).map(|policy| Entry { policy: &policy.cedar, demands: policy.demands })
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({} policies, {:?})", self.policies.len(), self.digest)
    }
}

struct Parsed {
    policy: LoadedPolicy,
    file: usize,
    offset: usize,
}

/// The vocabulary, parsed once per process.
pub(crate) fn vocabulary() -> Result<Arc<Vocabulary>, LoadError> {
    static VOCABULARY: OnceLock<Result<Arc<Vocabulary>, crate::vocabulary::VocabularyError>> = OnceLock::new();
    VOCABULARY.get_or_init(Vocabulary::load).clone().map_err(|error| LoadError {
        findings: vec![Finding {
            problem: Problem::Schema { message: error.to_string(), help: None },
            location: Location::file("palyra.cedarschema"),
        }],
    })
}

/// Parses one policy and gives it its name.
fn parse(file: &SourceFile, statement: Statement<'_>) -> Result<LoadedPolicy, Finding> {
    let at = |problem: Problem, offset: usize, length: usize| Finding {
        problem,
        location: file.locate(statement.offset + offset, length),
    };
    let first_line = statement.text.lines().next().map_or(0, str::len);
    check_shape(statement.text).map_err(|problem| at(problem, 0, first_line))?;

    let policy = Policy::parse(None, statement.text).map_err(|errors| {
        let (offset, length) = span_of(&errors).unwrap_or((0, first_line));
        let message = capped(&errors.to_string());
        if cedar_policy::Template::parse(None, statement.text).is_ok() {
            at(Problem::Template, 0, first_line)
        } else if !statement.text.ends_with(';') {
            at(Problem::Unfinished, 0, first_line)
        } else {
            at(Problem::Syntax { message, help: errors.help().map(|help| capped(&help.to_string())) }, offset, length)
        }
    })?;
    let whole = |problem: Problem| at(problem, 0, first_line);
    let id = name(file, &policy).map_err(whole)?;
    let tree = match policy.to_pst() {
        Ok(pst::Policy::Static(policy)) => policy.body().clone(),
        Ok(_) => return Err(whole(Problem::Template)),
        Err(error) => return Err(whole(Problem::Syntax { message: error.to_string(), help: None })),
    };
    let effect = match policy.effect() {
        cedar_policy::Effect::Permit => Effect::Permit,
        cedar_policy::Effect::Forbid => Effect::Forbid,
    };
    lint(&policy, &tree, effect).map_err(whole)?;
    let annotation = |name: &str| policy.annotation(name).filter(|text| !text.is_empty()).map(str::to_owned);
    Ok(LoadedPolicy {
        info: Arc::new(PolicyInfo {
            effect,
            layer: file.layer,
            location: file.locate(statement.offset, first_line),
            why: annotation("why"),
            change: annotation("change"),
            id: id.clone(),
        }),
        cedar: policy.new_id(cedar_policy::PolicyId::new(id.as_str())),
        demands: Demands::of(&tree),
        conditions: OnceLock::new(),
        tree,
        text: statement.text.to_owned(),
    })
}

/// The name of a policy, from its `@id`.
fn name(file: &SourceFile, policy: &Policy) -> Result<PolicyId, Problem> {
    let id = match policy.annotation("id") {
        None | Some("") => return Err(Problem::MissingId),
        Some(id) => PolicyId::parse(id).map_err(Problem::BadId)?,
    };
    // A name that only looks like one of the baseline's would mislead whoever reads a reason.
    if file.layer == Layer::Operator && id.as_str().to_ascii_lowercase().starts_with("baseline.") {
        return Err(Problem::ReservedId(id));
    }
    Ok(id)
}

/// Refuses what validates and still cannot be meant.
fn lint(policy: &Policy, tree: &pst::Template, effect: Effect) -> Result<(), Problem> {
    if !ApprovalUse::of(tree).fits(tree.effect) {
        return Err(Problem::ApprovalInverted(effect));
    }
    if let Some(subject) = subject_lint::fixed_subject(tree) {
        return Err(Problem::FixedSubject(capped(&subject)));
    }
    if let Some((name, reason)) = literal_lint::impossible_name(policy) {
        return Err(Problem::ImpossibleName { name: capped(&name), reason });
    }
    Ok(())
}

/// Refuses policies whose depth would test a stack: nested brackets, nested `if`s, long chains of operators.
pub(crate) fn check_shape(text: &str) -> Result<(), Problem> {
    let (mut depth, mut deepest, mut operators, mut ifs) = (0_usize, 0_usize, 0_usize, 0_usize);
    for (code, word) in code_words(text) {
        match code {
            '(' | '[' | '{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '&' | '|' | '.' | '+' | '-' | '*' | '!' | '<' | '>' | '=' => operators += 1,
            _ => ifs += usize::from(word == "if"),
        }
    }
    if deepest + ifs > MAX_NESTING {
        Err(Problem::TooDeep(MAX_NESTING))
    } else if operators > MAX_OPERATORS {
        Err(Problem::TooLong(MAX_OPERATORS))
    } else {
        Ok(())
    }
}

/// The words and signs of a policy, without strings and comments. Each is told by its first character and, for words, itself.
fn code_words(text: &str) -> impl Iterator<Item = (char, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let first = rest.chars().next()?;
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let end = if rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else if first == '"' {
                end_of_string(rest)
            } else if is_word(first) {
                rest.find(|c: char| !is_word(c)).unwrap_or(rest.len())
            } else {
                first.len_utf8()
            };
            let (token, after) = rest.split_at_checked(end)?;
            rest = after;
            if first != '"' && !token.starts_with("//") && !first.is_whitespace() {
                return Some((first, token));
            }
        }
    })
}

/// Where the string literal at the start of a text ends.
fn end_of_string(text: &str) -> usize {
    let mut escaped = false;
    for (offset, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return offset + 1,
            _ => {}
        }
    }
    text.len()
}

/// Keeps the first policy of each id and reports the others.
fn refuse_duplicates(parsed: Vec<Parsed>, findings: &mut Vec<Finding>) -> Vec<Parsed> {
    let mut seen: HashMap<PolicyId, Location> = HashMap::new();
    let mut kept = Vec::with_capacity(parsed.len());
    for one in parsed {
        let (id, location) = (one.policy.info.id.clone(), one.policy.info.location.clone());
        match seen.get(&id) {
            Some(first) => {
                findings.push(Finding { problem: Problem::DuplicateId { id, first: first.clone() }, location });
            }
            None => {
                seen.insert(id, location);
                kept.push(one);
            }
        }
    }
    kept
}

/// Strict validation. Doubts are errors in the baseline and warnings elsewhere.
fn validate(
    vocabulary: &Vocabulary,
    files: &[SourceFile],
    parsed: &[Parsed],
    findings: &mut Vec<Finding>,
) -> Vec<Finding> {
    let by_id: HashMap<&cedar_policy::PolicyId, &Parsed> =
        parsed.iter().map(|one| (one.policy.cedar.id(), one)).collect();
    let locate = |id: &cedar_policy::PolicyId, diagnostic: &dyn Diagnostic| match by_id.get(id) {
        Some(one) => match (span_of(diagnostic), files.get(one.file)) {
            (Some((offset, length)), Some(file)) => file.locate(one.offset + offset, length),
            _ => one.policy.info.location.clone(),
        },
        None => Location::file("policies"),
    };
    let Ok(set) = PolicySet::from_policies(parsed.iter().map(|one| one.policy.cedar.clone())) else {
        // INVARIANT: ids are unique here. Should that ever break, nothing is loaded.
        findings.push(Finding {
            problem: Problem::Schema { message: "the policies do not form a set".to_owned(), help: None },
            location: Location::file("policies"),
        });
        return Vec::new();
    };
    let result = vocabulary.validate(&set);
    for error in result.validation_errors() {
        findings.push(Finding {
            problem: Problem::Schema {
                message: strip_policy_prefix(&capped(&error.to_string())),
                help: error.help().map(|help| strip_policy_prefix(&capped(&help.to_string()))),
            },
            location: locate(error.policy_id(), error),
        });
    }
    let mut warnings = Vec::new();
    for warning in result.validation_warnings() {
        let in_baseline = by_id.get(warning.policy_id()).is_none_or(|one| one.policy.info.layer == Layer::Baseline);
        let finding = Finding {
            problem: Problem::Doubtful(strip_policy_prefix(&capped(&warning.to_string()))),
            location: locate(warning.policy_id(), warning),
        };
        if in_baseline { findings.push(finding) } else { warnings.push(finding) }
    }
    warnings
}

/// Where a diagnostic points, relative to the text it is about.
fn span_of(diagnostic: &dyn Diagnostic) -> Option<(usize, usize)> {
    diagnostic.labels()?.next().map(|label| (label.offset(), label.len()))
}

/// The validator starts many texts with "for policy `x`"; the location says that already.
fn strip_policy_prefix(message: &str) -> String {
    let rest = message.strip_prefix("for policy `").and_then(|rest| rest.split_once('`')).map(|(_, rest)| rest);
    let rest = rest.and_then(|rest| rest.strip_prefix(", ").or_else(|| rest.strip_prefix(": ")));
    rest.unwrap_or(message).to_owned()
}

/// Messages quote input; input can be long.
fn capped(message: &str) -> String {
    const LIMIT: usize = 400;
    let shown = visible::visible_block(message);
    match shown.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}…", shown.get(..end).unwrap_or_default()),
        None => shown,
    }
}

fn digest(policies: &[LoadedPolicy]) -> Sha256Digest {
    let mut sorted: Vec<&LoadedPolicy> = policies.iter().collect();
    sorted.sort_by(|a, b| a.info.id.cmp(&b.info.id));
    let head: [&[u8]; 2] = [b"palyra.policy-set.v1", SCHEMA_SRC.as_bytes()];
    let layer = |layer: Layer| match layer {
        Layer::Baseline => b"baseline".as_slice(),
        Layer::Operator => b"operator".as_slice(),
    };
    Sha256Digest::of_fields(
        head.into_iter().chain(
            sorted.iter().flat_map(|policy| {
                [layer(policy.info.layer), policy.info.id.as_str().as_bytes(), policy.text.as_bytes()]
            }),
        ),
    )
}
