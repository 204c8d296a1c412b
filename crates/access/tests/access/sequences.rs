//! Whatever is tried in whatever order: there is an owner, nobody has more than somebody of that rank gave them, and every lookup finds
//! what looking through everything finds.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use palyra_access::{
    Actor, DeviceRevocation, Extent, FeatureFlag, Membership, NewDevice, NewInvitation, NewToken, Refusal, Scope,
    State, Switch, TokenRevocation, TokenRotation, change::Joined, document, role, state::Invitee,
};
use palyra_types::{DeviceId, ObjectId, PrincipalId, Sha256Digest, Timestamp, TokenId, WorkspaceRole};
use proptest::prelude::*;

use super::{
    lab::{Lab, actor, device, only, principal, user},
    scan,
};

/// One thing that is tried. Numbers choose from the lists at the end of this file.
#[derive(Debug, Clone)]
struct Try {
    what: u8,
    by: usize,
    whom: usize,
    role: usize,
    extra: usize,
}

fn tries() -> impl Strategy<Value = Vec<Try>> {
    let one = (0_u8..18, any::<usize>(), any::<usize>(), any::<usize>(), any::<usize>());
    let one = one.prop_map(|(what, by, whom, role, extra)| Try { what, by, whom, role, extra });
    prop::collection::vec(one, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_tried_the_rules_hold(tries in tries()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(run(tries));
    }
}

/// What was given, by whom it could be given: the other side of the books.
#[derive(Default)]
struct Ledger {
    members: BTreeMap<PrincipalId, WorkspaceRole>,
    invitations: BTreeMap<ObjectId, WorkspaceRole>,
    devices: BTreeMap<DeviceId, Option<WorkspaceRole>>,
    tokens: BTreeMap<TokenId, Option<WorkspaceRole>>,
    /// Texts of tokens, and keys of devices, that were ever made.
    texts: Vec<String>,
    keys: BTreeSet<Sha256Digest>,
}

async fn run(tries: Vec<Try>) {
    let lab = Lab::team().await;
    let mut ledger = Ledger::default();
    let ranks = [("ada", WorkspaceRole::Owner), ("bea", WorkspaceRole::Admin), ("cid", WorkspaceRole::Operator)];
    ledger.members.extend(ranks.map(|(name, role)| (user(name), role)));
    for one in tries {
        let before = lab.registry.snapshot();
        if ledger.attempt(&lab, &one).await.is_err() {
            assert_eq!(lab.registry.snapshot().state(), before.state(), "a refusal changes nothing");
        }
        ledger.compare(&lab);
    }
    let snapshot = lab.registry.snapshot();
    let written = document::encode(snapshot.state(), snapshot.revision()).unwrap();
    assert_eq!(document::decode(&written).unwrap(), (snapshot.state().clone(), snapshot.revision()));
    let reopened = lab.reopened();
    assert_eq!(reopened.revision(), lab.registry.revision());
    for text in &ledger.texts {
        let of =
            |registry: &palyra_access::AccessRegistry| registry.by_token(text).map(|found| scan::Found::from(&*found));
        assert_eq!(of(&reopened), of(&lab.registry));
    }
}

impl Ledger {
    /// Tries one thing. What succeeds is written down, after a look at whether it could be given.
    async fn attempt(&mut self, lab: &Lab, one: &Try) -> Result<(), Refusal> {
        match one.what {
            0..=7 => self.attempt_members(lab, one).await,
            8..=12 => self.attempt_devices(lab, one).await,
            13..=16 => self.attempt_tokens(lab, one).await,
            _ => {
                lab.clock.advance([1, 30_000, 3_600_000, 86_400_000][one.extra % 4]);
                Ok(())
            }
        }
    }

    async fn attempt_members(&mut self, lab: &Lab, one: &Try) -> Result<(), Refusal> {
        let (by, whom, role) = (one.actor(), one.whom(), one.role());
        let rank = rank_of(lab, &by);
        match one.what {
            0 | 1 => {
                let id = ObjectId::parse(&format!("inv-{}", one.extra % 8)).unwrap();
                let lifetime = Duration::from_secs(7_200);
                let new = NewInvitation { id: id.clone(), user: whom, role, workspaces: one.workspaces(), lifetime };
                make(lab, |state, at| state.invite(&by, new, at)).await?;
                assert!(rank >= role::rank(role), "invited above");
                self.invitations.insert(id, role);
            }
            2 | 3 => {
                let invited = pick(lab.registry.snapshot().state().invitations().map(|one| &one.user), one.extra);
                let joined = make(lab, |state, at| state.join(&Invitee::User(invited.unwrap_or(whom)), at)).await?;
                self.joined(&joined);
            }
            4 => {
                make(lab, |state, _| state.set_role(&by, &whom, role)).await?;
                assert!(rank >= role::rank(role).max(role::rank(self.members[&whom])), "changed above");
                self.members.insert(whom, role);
            }
            5 => {
                make(lab, |state, _| state.set_workspaces(&by, &whom, one.workspaces())).await?;
            }
            6 => {
                make(lab, |state, at| state.remove_member(&by, &whom, at)).await?;
                let role = self.members.remove(&whom).unwrap();
                assert!(rank >= role::rank(role), "removed above");
            }
            _ => {
                let feature = FeatureFlag::ALL[one.whom % FeatureFlag::ALL.len()];
                // Mostly on: a registry without features has nothing to show.
                let to = if one.extra.is_multiple_of(4) { Switch::Off } else { Switch::On };
                make(lab, |state, _| state.set_feature(&by, feature, to)).await?;
                assert!(rank >= role::rank(WorkspaceRole::Admin), "switched from below");
            }
        }
        Ok(())
    }

    async fn attempt_devices(&mut self, lab: &Lab, one: &Try) -> Result<(), Refusal> {
        let (by, rank) = (one.actor(), rank_of(lab, &one.actor()));
        let known = pick(lab.registry.snapshot().state().devices().map(|device| &device.id), one.extra);
        let id = known.filter(|_| one.what > 9).unwrap_or_else(|| device_id(one.extra));
        match one.what {
            8 | 9 => {
                let of = PRINCIPALS[one.whom % PRINCIPALS.len()];
                let role = of.starts_with("user:").then(|| one.role());
                let snapshot = lab.registry.snapshot();
                let invited =
                    snapshot.state().invitations().find(|invitation| of == format!("user:{}", invitation.user));
                let invitation = invited.map(|invitation| invitation.id.clone());
                let new = NewDevice { invitation, ..device(id.as_str(), of, role) };
                self.keys.insert(new.key);
                make(lab, |state, at| state.add_device(&by, new, at)).await?;
                assert!(role.is_none_or(|role| rank >= role::rank(role)), "paired above");
                self.devices.insert(id, role);
            }
            10 => {
                let activated = make(lab, |state, at| state.activate_device(&id, at)).await?;
                activated.joined.iter().for_each(|joined| self.joined(joined));
            }
            11 => {
                make(lab, |state, _| state.forget_device(&id)).await?;
            }
            _ => {
                let revocation = DeviceRevocation { id, why: String::new(), even_the_last: one.role.is_multiple_of(2) };
                make(lab, |state, at| state.revoke_device(&by, revocation, at)).await?;
            }
        }
        Ok(())
    }

    async fn attempt_tokens(&mut self, lab: &Lab, one: &Try) -> Result<(), Refusal> {
        let (by, rank) = (one.actor(), rank_of(lab, &one.actor()));
        let known = pick(lab.registry.snapshot().state().tokens().map(|token| &token.id), one.extra);
        match one.what {
            13 | 14 => {
                let new = one.token();
                let (kind, role) = (new.principal.kind().into(), new.role);
                let (text, fresh) = lab.fresh(kind);
                let id = fresh.id.clone();
                make(lab, |state, at| state.mint(&by, new, fresh, at)).await?;
                assert!(rank >= role.map_or(1, role::rank), "minted above");
                self.tokens.insert(id, role);
                self.texts.push(text);
            }
            15 => {
                let Some(id) = known else { return Ok(()) };
                let (text, fresh) = lab.fresh(palyra_access::TokenKind::Agent);
                let (new, overlap) = (fresh.id.clone(), Duration::from_secs(60));
                let rotation = TokenRotation { id: id.clone(), overlap, lifetime: None };
                make(lab, |state, at| state.rotate(&by, rotation, fresh, at)).await?;
                let role = self.tokens[&id];
                assert!(rank >= role.map_or(1, role::rank), "rotated above");
                self.tokens.insert(new, role);
                self.texts.push(text);
            }
            _ => {
                let Some(id) = known else { return Ok(()) };
                let extent = if one.role.is_multiple_of(2) { Extent::One } else { Extent::Family };
                let revocation = TokenRevocation { id, extent, why: String::new() };
                make(lab, |state, at| state.revoke_token(&by, revocation, at)).await?;
            }
        }
        Ok(())
    }

    fn joined(&mut self, joined: &Joined) {
        assert_eq!(self.invitations.get(&joined.invitation), Some(&joined.role));
        self.members.insert(joined.user.clone(), joined.role);
    }

    /// Compares the books with the registry, and the registry with itself.
    fn compare(&self, lab: &Lab) {
        let (snapshot, at) = (lab.registry.snapshot(), lab.now());
        let state = snapshot.state();
        assert_eq!(state.check(), Ok(()));
        let members: BTreeMap<_, _> = state.members().map(|member| (member.user.clone(), member.role)).collect();
        assert_eq!(members, self.members, "every role was given by somebody of that rank");
        assert!(members.values().any(|&role| role == WorkspaceRole::Owner));
        assert!(state.devices().all(|device| self.devices[&device.id] == device.role));
        assert!(state.tokens().all(|token| self.tokens[&token.id] == token.role));
        for text in &self.texts {
            let found = lab.registry.by_token(text);
            let slowly = scan::token(state, text, at);
            assert_eq!(found.as_ref().map(|found| scan::Found::from(&**found)).map_err(|refusal| *refusal), slowly);
            if let Ok(found) = found {
                assert!(lab.registry.is_good(&found.credential));
                self.bounded(&found.principal, found.minted_by.as_ref().unwrap().id());
            }
        }
        for key in &self.keys {
            let found = lab.registry.by_device_key(key);
            let slowly = scan::device(state, key, at);
            assert_eq!(found.as_ref().map(|found| scan::Found::from(&**found)).map_err(|refusal| *refusal), slowly);
            if let Ok(found) = found {
                assert!(lab.registry.is_good(&found.credential));
                self.bounded(&found.principal, found.principal.id());
            }
        }
    }

    /// Whatever role counts, it is no higher than what was given to whom it comes from.
    fn bounded(&self, principal: &palyra_types::Principal, from: &PrincipalId) {
        for &role in principal.roles() {
            assert!(role::is_within(role, self.members[from]));
        }
    }
}

/// Makes a change. One that is worked out can be saved.
async fn make<T>(lab: &Lab, change: impl FnOnce(&mut State, Timestamp) -> Result<T, Refusal>) -> Result<T, Refusal> {
    Ok(lab.registry.prepare(change).await?.commit().await.unwrap())
}

/// One of those there are.
fn pick<'a, T: Clone + 'a>(mut those: impl ExactSizeIterator<Item = &'a T>, which: usize) -> Option<T> {
    those.nth(which.checked_rem(those.len())?).cloned()
}

fn device_id(number: usize) -> DeviceId {
    DeviceId::parse(&format!("d{}", number % 16)).unwrap()
}

/// The rank of whoever asks, worked out the slow way; nothing for those without a role.
fn rank_of(lab: &Lab, by: &Actor) -> u8 {
    let snapshot = lab.registry.snapshot();
    let counting = by.role().and_then(|most| scan::counting(snapshot.state(), by.principal.id(), most));
    counting.map_or(0, role::rank)
}

impl Try {
    fn actor(&self) -> Actor {
        let actor = actor(ACTORS[self.by % ACTORS.len()]);
        // Now and then by a token that holds little.
        match self.role % 8 {
            0 => Actor { scopes: Some(BTreeSet::from([Scope::TokensManage, Scope::CallsCreate])), ..actor },
            _ => actor,
        }
    }

    fn whom(&self) -> PrincipalId {
        user(["ada", "bea", "cid", "dan", "eve"][self.whom % 5])
    }

    fn role(&self) -> WorkspaceRole {
        WorkspaceRole::ALL[self.role % 3]
    }

    fn workspaces(&self) -> Membership {
        [Membership::All, Membership::All, only(["web"]), only(["web", "api"])][self.extra % 4].clone()
    }

    fn token(&self) -> NewToken {
        let of = PRINCIPALS[self.whom % PRINCIPALS.len()];
        // A user's token is mostly for whoever asks, because no other is minted.
        let by = self.actor().principal;
        let of = match of.starts_with("user:") && !self.whom.is_multiple_of(8) {
            true => format!("{}:{}", by.kind(), by.id()),
            false => of.to_owned(),
        };
        let all = Scope::ALL.iter().copied();
        let suiting = all.filter(|scope| scope.suits(principal(&of).kind()) && scope.feature().is_none());
        let scopes: BTreeSet<_> = suiting.skip(self.extra % 5).step_by(1 + self.extra % 3).collect();
        NewToken {
            name: "a token".to_owned(),
            principal: principal(&of),
            role: (of.starts_with("user:") && !self.extra.is_multiple_of(5)).then(|| self.role()),
            workspaces: self.workspaces(),
            scopes,
            lifetime: Duration::from_secs(3_600 * (1 + u64::from(self.what))),
            per_minute: None,
            concurrent: None,
        }
    }
}

const ACTORS: [&str; 9] = [
    "user:ada@owner",
    "user:ada@owner",
    "user:ada@operator",
    "user:bea@admin",
    "user:bea@owner",
    "user:cid@operator",
    "user:dan@admin",
    "user:eve@owner",
    "agent:claude",
];

const PRINCIPALS: [&str; 7] =
    ["user:ada", "user:bea", "user:cid", "user:dan", "user:eve", "agent:claude", "service:web"];
