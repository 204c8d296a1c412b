//! Picks the policies that can matter for a request, so that a decision costs what the relevant policies cost.
//!
//! Cedar evaluates every policy of a set. Here each policy is filed under what its scope demands of resource, action and
//! principal. A request visits the files that its own names and ancestors open, and nothing else is evaluated.
//!
//! Guarantees: a policy that is left out has a scope that is false for the request, so it could neither decide nor fail; decision,
//! reasons and errors are those of the whole set (a property test compares them).
//!
//! Slices are cached by *which files matched*, not by the names in the request. That key says everything about the slice, so
//! hierarchies may differ from request to request, and made-up names cannot grow the cache.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, PoisonError, RwLock},
};

use cedar_policy::{
    ActionConstraint, EntityTypeName, EntityUid, Policy, PolicySet, PrincipalConstraint, ResourceConstraint,
};

use crate::{
    cedar_request::CedarRequest,
    demand::{ContextKey, Demands},
    question::{Decided, LeftOpen},
};

/// Most policies that kept slices may hold together. Beyond it a slice is built for each request, which is slower and just as right.
const MAX_CACHED_POLICIES: usize = 65_536;

/// The policies of a set, filed by their scopes.
pub(crate) struct SliceIndex {
    files: HashMap<Key, HashMap<Key, HashMap<Key, FileId>>>,
    contents: Vec<Vec<usize>>,
    cache: RwLock<Cache>,
}

/// Slices that were needed before, by the files they come from.
#[derive(Default)]
struct Cache {
    slices: HashMap<Box<[FileId]>, Arc<Slice>>,
    /// How many policies they hold together.
    policies: usize,
}

/// The policies that can matter for a request.
pub(crate) struct Slice {
    /// Those that do not look at `context.approved`: what they say, they say once.
    pub(crate) settled: PolicySet,
    /// Those that do, if there are any.
    pub(crate) open: Option<PolicySet>,
    /// What all of them look at.
    pub(crate) demands: Demands,
    /// What they answered.
    pub(crate) answers: Decided,
    /// What they answered where only who asks and for which tool is known.
    pub(crate) left_open: LeftOpen,
}

impl Slice {
    /// All of them in one set.
    pub(crate) fn together(&self) -> Option<PolicySet> {
        let open = self.open.iter().flat_map(PolicySet::policies);
        PolicySet::from_policies(self.settled.policies().chain(open).cloned()).ok()
    }

    fn size(&self) -> usize {
        self.settled.num_of_policies() + self.open.as_ref().map_or(0, PolicySet::num_of_policies)
    }
}

/// What one policy brings to the index.
pub(crate) struct Entry<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) demands: Demands,
}

type FileId = u32;

/// What a scope demands of one of the three.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Any,
    Is(EntityTypeName),
    Eq(EntityUid),
    In(EntityUid),
}

impl SliceIndex {
    /// Files policies by their scopes. Positions in `policies` are what slices name their members by.
    pub(crate) fn build<'a>(policies: impl IntoIterator<Item = &'a Policy>) -> Self {
        let mut index = Self { files: HashMap::new(), contents: Vec::new(), cache: RwLock::default() };
        for (position, policy) in policies.into_iter().enumerate() {
            let resource = match policy.resource_constraint() {
                ResourceConstraint::Any => Key::Any,
                ResourceConstraint::Is(of) => Key::Is(of),
                ResourceConstraint::Eq(uid) => Key::Eq(uid),
                // The type test of `is … in` is left to Cedar; leaving it out only widens the slice.
                ResourceConstraint::In(uid) | ResourceConstraint::IsIn(_, uid) => Key::In(uid),
            };
            let principal = match policy.principal_constraint() {
                PrincipalConstraint::Any => Key::Any,
                PrincipalConstraint::Is(of) => Key::Is(of),
                PrincipalConstraint::Eq(uid) => Key::Eq(uid),
                PrincipalConstraint::In(uid) | PrincipalConstraint::IsIn(_, uid) => Key::In(uid),
            };
            let actions = match policy.action_constraint() {
                ActionConstraint::Any => vec![Key::Any],
                ActionConstraint::Eq(uid) => vec![Key::Eq(uid)],
                ActionConstraint::In(uids) => uids.into_iter().map(Key::In).collect(),
            };
            for action in actions {
                index.file(&resource, action, &principal, position);
            }
        }
        index
    }

    fn file(&mut self, resource: &Key, action: Key, principal: &Key, position: usize) {
        let next = FileId::try_from(self.contents.len()).unwrap_or(FileId::MAX);
        let by_action = self.files.entry(resource.clone()).or_default();
        let file = *by_action.entry(action).or_default().entry(principal.clone()).or_insert(next);
        if file == next {
            self.contents.push(Vec::new());
        }
        if let Some(content) = self.contents.get_mut(file as usize) {
            content.push(position);
        }
    }

    /// The slice for a request. `entry` gives the policy at a position.
    pub(crate) fn slice<'a>(
        &self,
        request: &CedarRequest<'_>,
        entry: impl Fn(usize) -> Option<Entry<'a>>,
    ) -> Arc<Slice> {
        let files = self.matching(request);
        if let Some(slice) = self.cache.read().unwrap_or_else(PoisonError::into_inner).slices.get(&*files) {
            return Arc::clone(slice);
        }
        let slice = Arc::new(self.assemble(&files, entry));
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        // A slice of no policies still takes room.
        let policies = cache.policies + slice.size() + 1;
        if policies <= MAX_CACHED_POLICIES
            && cache.slices.insert(files.into_boxed_slice(), Arc::clone(&slice)).is_none()
        {
            cache.policies = policies;
        }
        slice
    }

    /// The files that a request opens, in order.
    fn matching(&self, request: &CedarRequest<'_>) -> Vec<FileId> {
        let resource = keys(&request.resource, Some(request.resource_type), &request.resource_ancestors);
        let action = keys(&request.action.uid, None, &request.action.groups);
        let principal = keys(&request.principal, Some(request.principal_type), &request.principal_ancestors);
        let mut files: Vec<FileId> = resource
            .iter()
            .filter_map(|key| self.files.get(key))
            .flat_map(|by_action| action.iter().filter_map(|key| by_action.get(key)))
            .flat_map(|by_principal| principal.iter().filter_map(|key| by_principal.get(key)))
            .copied()
            .collect();
        files.sort_unstable();
        files
    }

    fn assemble<'a>(&self, files: &[FileId], entry: impl Fn(usize) -> Option<Entry<'a>>) -> Slice {
        // A policy about a list of actions stands in several files; once is enough.
        let members: BTreeSet<usize> =
            files.iter().filter_map(|&file| self.contents.get(file as usize)).flatten().copied().collect();
        let entries: Vec<_> = members.iter().filter_map(|&position| entry(position)).collect();
        let demands = entries.iter().fold(Demands::NONE, |demands, entry| demands.and(entry.demands));
        let (open, settled): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| entry.demands.contains(ContextKey::Approved));
        let set =
            |entries: &[Entry<'_>]| PolicySet::from_policies(entries.iter().map(|entry| entry.policy.clone())).ok();
        // INVARIANT: ids are unique in a snapshot, so a set of its static policies can always be made. Were it not so, none of the slice
        // would count, and the empty set denies.
        let (settled, open) = match (set(&settled), set(&open)) {
            (Some(settled), Some(set)) => (settled, (!open.is_empty()).then_some(set)),
            _ => (PolicySet::new(), None),
        };
        Slice { settled, open, demands, answers: Decided::default(), left_open: LeftOpen::default() }
    }
}

/// Everything a scope could demand that is true of this one.
fn keys(uid: &EntityUid, of: Option<&EntityTypeName>, ancestors: &[EntityUid]) -> Vec<Key> {
    let mut keys = Vec::with_capacity(ancestors.len() + 4);
    keys.push(Key::Any);
    keys.extend(of.cloned().map(Key::Is));
    keys.push(Key::Eq(uid.clone()));
    keys.push(Key::In(uid.clone()));
    keys.extend(ancestors.iter().cloned().map(Key::In));
    keys
}
