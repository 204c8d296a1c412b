//! Whatever is tried in whatever order: there is an owner, nobody has more than somebody of that rank gave them, and every lookup finds
//! what looking through everything finds.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use palyra_access::{
    Actor, ApiTokenRecord, DeviceRevocation, Extent, FeatureFlag, Membership, NewDevice, NewInvitation, NewToken,
    Refusal, Scope, Snapshot, State, Switch, TokenRevocation, TokenRotation, change::Joined, document, role,
    state::Invitee,
};
use palyra_types::{DeviceId, ObjectId, PrincipalId, PrincipalKind, Sha256Digest, Timestamp, TokenId, WorkspaceRole};
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
        let (by, whom, role) = (self.actor(lab, one), one.whom(), one.role());
        let (rank, before) = (rank_of(lab, &by), lab.registry.snapshot());
        let covers_member = |user: &PrincipalId| {
            let member = before.state().member(user).unwrap();
            by.principal == principal(&format!("user:{user}")).with_roles(by.role()).unwrap()
                || scan::covers(before.state(), &by, &member.workspaces)
        };
        match one.what {
            0 | 1 => {
                let id = ObjectId::parse(&format!("inv-{}", one.extra % 8)).unwrap();
                let lifetime = Duration::from_secs(7_200);
                let new = NewInvitation { id: id.clone(), user: whom, role, workspaces: one.workspaces(), lifetime };
                make(lab, |state, at| state.invite(&by, new, at)).await?;
                assert!(rank >= role::rank(role), "invited above");
                assert!(by.scopes.is_none(), "invited by a token");
                assert!(scan::covers(before.state(), &by, &one.workspaces()), "invited beyond");
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
                let raised = role::rank(role) > role::rank(self.members[&whom]);
                assert!(by.scopes.is_none() || !raised, "promoted by a token");
                assert!(covers_member(&whom), "changed beyond");
                self.members.insert(whom, role);
            }
            5 => {
                make(lab, |state, _| state.set_workspaces(&by, &whom, one.workspaces())).await?;
                assert!(covers_member(&whom) && scan::covers(before.state(), &by, &one.workspaces()), "moved beyond");
            }
            6 => {
                make(lab, |state, at| state.remove_member(&by, &whom, at)).await?;
                let role = self.members.remove(&whom).unwrap();
                assert!(rank >= role::rank(role) && covers_member(&whom), "removed above or beyond");
            }
            _ => {
                let feature = FeatureFlag::ALL[one.whom % FeatureFlag::ALL.len()];
                // Mostly on: a registry without features has nothing to show.
                let to = if one.extra.is_multiple_of(4) { Switch::Off } else { Switch::On };
                make(lab, |state, _| state.set_feature(&by, feature, to)).await?;
                assert!(rank >= role::rank(WorkspaceRole::Admin), "switched from below");
                assert!(scan::covers(before.state(), &by, &Membership::All), "switched beyond");
            }
        }
        Ok(())
    }

    async fn attempt_devices(&mut self, lab: &Lab, one: &Try) -> Result<(), Refusal> {
        let (by, before) = (self.actor(lab, one), lab.registry.snapshot());
        let rank = rank_of(lab, &by);
        let known = pick(before.state().devices().map(|device| &device.id), one.extra);
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
                assert!(by.scopes.is_none(), "paired by a token");
                self.devices.insert(id, role);
            }
            10 => {
                let activated = make(lab, |state, at| state.activate_device(&id, at)).await?;
                assert!(before.state().is_on(FeatureFlag::DevicePairing));
                let device = before.state().device(&id).unwrap();
                let pairer = rank_of(lab, &actor(&format!("{}@owner", device.paired_by)));
                assert!(pairer >= device.role.map_or(1, role::rank), "activated above");
                let user = Some(device.principal.id()).filter(|_| device.paired_by != device.principal.to_string());
                let member = user.and_then(|user| lab.registry.snapshot().state().member(user).map(|one| one.role));
                assert!(pairer >= member.map_or(1, role::rank), "activated for somebody above");
                activated.joined.iter().for_each(|joined| self.joined(joined));
            }
            11 => {
                make(lab, |state, _| state.forget_device(&id)).await?;
            }
            _ => {
                let even_the_last = one.role.is_multiple_of(2);
                let cut_off: BTreeSet<_> =
                    one.whom.is_multiple_of(3).then(|| device_id(one.whom)).into_iter().collect();
                let revocation =
                    DeviceRevocation { id: id.clone(), why: String::new(), even_the_last, cut_off: cut_off.clone() };
                make(lab, |state, at| state.revoke_device(&by, revocation, at)).await?;
                let gets_in = |state| scan::owner_gets_in(state, &cut_off, lab.now());
                let (could, can) = (gets_in(before.state()), gets_in(lab.registry.snapshot().state()));
                assert!(even_the_last || !could || can, "the last way in");
                let device = before.state().device(&id).unwrap();
                let minder = match device.principal.kind() {
                    PrincipalKind::User => device.principal.to_string(),
                    _ => device.paired_by.clone(),
                };
                self.touched(&before, &by, &minder);
            }
        }
        Ok(())
    }

    async fn attempt_tokens(&mut self, lab: &Lab, one: &Try) -> Result<(), Refusal> {
        let (by, before) = (self.actor(lab, one), lab.registry.snapshot());
        let rank = rank_of(lab, &by);
        let with = by.token.as_ref().and_then(|id| before.state().token(id));
        let known = pick(before.state().tokens().map(|token| &token.id), one.extra);
        match one.what {
            13 | 14 => {
                let new = one.token(&by);
                let (kind, role) = (new.principal.kind().into(), new.role);
                let (text, fresh) = lab.fresh(kind);
                let id = fresh.id.clone();
                make(lab, |state, at| state.mint(&by, new, fresh, at)).await?;
                assert!(rank >= role.map_or(1, role::rank), "minted above");
                let after = lab.registry.snapshot();
                let minted = after.state().token(&id).unwrap();
                assert_eq!((&minted.minted_with, by.scopes.is_some()), (&by.token, by.token.is_some()));
                if let Some(with) = with {
                    assert!(minted.expires <= with.over_at(), "outlasts");
                    assert!(minted.per_minute <= with.per_minute && minted.concurrent <= with.concurrent, "outruns");
                }
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
                let after = lab.registry.snapshot();
                let (old, rotated) = (before.state().token(&id).unwrap(), after.state().token(&new).unwrap());
                let other = with.as_ref().filter(|with| with.family != old.family).map(|with| with.id.clone());
                let minted_with = other.or_else(|| old.minted_with.clone());
                assert_eq!((&rotated.minted_with, by.scopes.is_some()), (&minted_with, with.is_some()));
                if let Some(with) = with.filter(|with| with.family != old.family) {
                    assert!(rotated.expires <= with.over_at().max(old.expires), "outlasts both");
                }
                self.tokens.insert(new, role);
                self.texts.push(text);
            }
            _ => {
                let Some(id) = known else { return Ok(()) };
                let extent = if one.role.is_multiple_of(2) { Extent::One } else { Extent::Family };
                let named = before.state().token(&id).unwrap();
                let revocation = TokenRevocation { id: id.clone(), extent, why: String::new() };
                let revoked = make(lab, |state, at| state.revoke_token(&by, revocation, at)).await?;
                let meant = |token: &ApiTokenRecord| match extent {
                    Extent::One => token.id == id,
                    Extent::Family => token.family == named.family,
                };
                let going = before.state().tokens().filter(|token| scan::descends(before.state(), token, &meant));
                let going: Vec<_> =
                    going.filter(|token| token.revoked.is_none()).map(|token| token.id.clone()).collect();
                assert_eq!(revoked.tokens, going, "what was minted with a token goes with it");
                let after = lab.registry.snapshot();
                assert!(going.iter().all(|id| after.state().token(id).unwrap().revoked.is_some()));
                self.touched(&before, &by, &named.minted_by.to_string());
            }
        }
        Ok(())
    }

    /// Whoever asks: mostly in person, now and then by a token.
    fn actor(&self, lab: &Lab, one: &Try) -> Actor {
        let actor = actor(ACTORS[one.by % ACTORS.len()]);
        let token = pick(lab.registry.snapshot().state().tokens().map(|token| &token.id), one.extra);
        match one.role % 8 {
            // One that holds little.
            0 => Actor { scopes: Some(BTreeSet::from([Scope::TokensManage, Scope::CallsCreate])), token, ..actor },
            // One that holds everything.
            1 => Actor { scopes: Some(Scope::ALL.iter().copied().collect()), token, ..actor },
            // One that was minted and is good.
            2 => {
                let mut good = self.texts.iter().rev().filter_map(|text| lab.registry.by_token(text).ok());
                good.find(|holder| !holder.principal.roles().is_empty()).map_or(actor, |holder| Actor::from(&*holder))
            }
            _ => actor,
        }
    }

    /// What belongs to somebody is revoked by themselves, or by somebody of all their workspaces.
    fn touched(&self, before: &Snapshot, by: &Actor, minder: &str) {
        let minder = principal(minder);
        let own = minder.id() == by.principal.id();
        let workspaces = before.state().member(minder.id()).map(|member| &member.workspaces);
        assert!(own || workspaces.is_none_or(|those| scan::covers(before.state(), by, those)), "revoked beyond");
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
    fn whom(&self) -> PrincipalId {
        user(["ada", "bea", "cid", "dan", "eve"][self.whom % 5])
    }

    fn role(&self) -> WorkspaceRole {
        WorkspaceRole::ALL[self.role % 3]
    }

    fn workspaces(&self) -> Membership {
        [Membership::All, Membership::All, only(["web"]), only(["web", "api"])][self.extra % 4].clone()
    }

    fn token(&self, by: &Actor) -> NewToken {
        let of = PRINCIPALS[self.whom % PRINCIPALS.len()];
        // A user's token is mostly for whoever asks, because no other is minted.
        let by = &by.principal;
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
            lifetime: Duration::from_secs([3_600, 50_000, 86_400, 864_000][self.by / 16 % 4]),
            channel: None,
            per_minute: [None, Some(60), Some(900)][self.by / 64 % 3],
            concurrent: [None, None, Some(64)][self.by / 256 % 3],
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
