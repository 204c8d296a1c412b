//! Tokens: minting, rotating, revoking.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use palyra_types::{Principal, PrincipalKind, Timestamp, TokenId, WorkspaceRole};

use super::{
    MOST_TOKENS, State,
    authority::{is_same, no_agent, reaches},
    bare,
};
use crate::{
    actor::Actor,
    api_token::{
        ApiTokenRecord, DEFAULT_TOKEN_CONCURRENCY, DEFAULT_TOKEN_RATE_LIMIT_PER_MINUTE, Extent, FreshToken, KEPT_FOR,
        LONGEST_LIFETIME, LONGEST_OVERLAP, MOST_CONCURRENT, MOST_PER_MINUTE, NewToken, SHORTEST_LIFETIME,
        TokenRevocation, TokenRotation, is_bindable,
    },
    change::{Minted, Rotated, TokensRevoked},
    error::Refusal,
    feature::FeatureFlag,
    label, moment,
    revocation::Revocation,
    scope::Scope,
};

impl State {
    /// Mints a token. Records of tokens that have been over for long make room.
    ///
    /// # Errors
    /// When whoever asks may not give away what it holds, or it breaks a bound: that of every token, or that of the token that is used.
    pub fn mint(&mut self, by: &Actor, new: NewToken, fresh: FreshToken, at: Timestamp) -> Result<Minted, Refusal> {
        let role = self.authorise(by, Scope::TokensManage)?;
        self.require(FeatureFlag::ApiTokens)?;
        label::check_name("name of the token", &new.name)?;
        check_lifetime(new.lifetime)?;
        if let Some(surface) = new.channel.as_ref().filter(|channel| !is_bindable(channel)) {
            return Err(Refusal::Surface(surface.clone()));
        }
        if let Some(off) = new.scopes.iter().filter_map(|scope| scope.feature()).find(|&feature| !self.is_on(feature)) {
            return Err(Refusal::FeatureOff(off));
        }
        let with = self.used_by(by, at)?;
        let token = record(new, (by, with), fresh, at);
        check_limits(&token)?;
        if let Some(with) = with {
            is_within(&token, with)?;
        }
        self.may_issue(by, role, &token)?;
        let pruned = self.make_room(&token, at)?;
        let minted = Minted {
            id: token.id.clone(),
            name: token.name.clone(),
            principal: token.principal.clone(),
            role: token.role,
            workspaces: token.workspaces.clone(),
            scopes: token.scopes.clone(),
            channel: token.channel.clone(),
            minted_by: token.minted_by.clone(),
            expires: token.expires,
            per_minute: token.per_minute,
            concurrent: token.concurrent,
            pruned,
        };
        self.tokens.insert(token.id.clone(), token);
        Ok(minted)
    }

    /// Lets a new token take over from one that works. The new one is the same but for its text, its life and who answers for it: that is
    /// whoever asks, who could have minted it. A user's token is rotated by that user alone.
    ///
    /// # Errors
    /// When the token works no more or was rotated already, whoever asks may not give away what it holds, or the new one would end after
    /// both the old one and a token of another family that is used.
    pub fn rotate(
        &mut self,
        by: &Actor,
        rotation: TokenRotation,
        fresh: FreshToken,
        at: Timestamp,
    ) -> Result<Rotated, Refusal> {
        let role = self.authorise(by, Scope::TokensManage)?;
        self.require(FeatureFlag::ApiTokens)?;
        let TokenRotation { id, overlap, lifetime } = rotation;
        let old = self.tokens.get(&id).ok_or_else(|| Refusal::NoToken(id.clone()))?;
        self.may_touch(by, Some(role), old)?;
        if old.superseded_at.is_some() {
            return Err(Refusal::AlreadyRotated(id));
        }
        if old.over_at() <= at {
            return Err(Refusal::NotLive(id));
        }
        if overlap > LONGEST_OVERLAP {
            return Err(Refusal::Overlap(overlap));
        }
        // SECURITY: the text of what is rotated goes to whoever asks. A token must not get hold of what works for longer than it does.
        let with = self.used_by(by, at)?.filter(|with| with.family != old.family);
        let most = with.map(|with| with.over_at().max(old.expires));
        let left = most.map_or(Duration::MAX, |most| moment::between(at, most).max(SHORTEST_LIFETIME));
        let lifetime = lifetime.unwrap_or_else(|| old.lifetime().min(left));
        check_lifetime(lifetime)?;
        most.map_or(Ok(()), |most| ends_by(moment::after(at, lifetime), most))?;
        let superseded_at = old.expires.min(moment::after(at, overlap));
        let mut token = successor(old, by, fresh, (at, lifetime));
        if let Some(with) = with {
            stays_in_channel(&token, with)?;
            token.minted_with = Some(with.id.clone());
        }
        self.may_issue(by, role, &token)?;
        let pruned = self.make_room(&token, at)?;
        if let Some(old) = self.tokens.get_mut(&id) {
            old.superseded_at = Some(superseded_at);
        }
        let rotated = Rotated {
            id: token.id.clone(),
            rotated_from_token_id: id,
            family: token.family.clone(),
            principal: token.principal.clone(),
            minted_by: token.minted_by.clone(),
            expires: token.expires,
            superseded_at,
            pruned,
        };
        self.tokens.insert(token.id.clone(), token);
        Ok(rotated)
    }

    /// Revokes a token, or its whole family, and whatever was minted with what is revoked.
    ///
    /// # Errors
    /// When it is revoked already, or one that is meant belongs to somebody above whoever asks or beyond their workspaces.
    pub fn revoke_token(
        &mut self,
        by: &Actor,
        revocation: TokenRevocation,
        at: Timestamp,
    ) -> Result<TokensRevoked, Refusal> {
        no_agent(by)?;
        by.needs(Scope::TokensManage)?;
        let TokenRevocation { id, extent, why } = revocation;
        label::check_note("reason", &why, label::LONGEST_REASON)?;
        let named = self.tokens.get(&id).ok_or_else(|| Refusal::NoToken(id.clone()))?;
        let family = named.family.clone();
        let meant = |token: &&ApiTokenRecord| match extent {
            Extent::One => token.id == id,
            Extent::Family => token.family == family,
        };
        let standing = self.standing(by);
        let mut going = BTreeSet::new();
        for token in self.tokens.values().filter(meant) {
            self.may_touch(by, standing, token)?;
            going.insert(token.id.clone());
        }
        let going = self.with_minted(going);
        let works = |id: &TokenId| self.tokens.get(id).is_some_and(|token| token.revoked.is_none());
        let tokens: Vec<_> = going.into_iter().filter(works).collect();
        if tokens.is_empty() {
            return Err(Refusal::TokenRevoked(id));
        }
        let revoked = Revocation { at, by: bare(&by.principal).to_string(), why: why.clone() };
        for id in &tokens {
            if let Some(token) = self.tokens.get_mut(id) {
                token.revoked = Some(revoked.clone());
            }
        }
        Ok(TokensRevoked { tokens, family, why })
    }

    /// The token that whoever asks uses, if they use one.
    // SECURITY: without the token nobody knows its bounds, and what it mints would have none.
    fn used_by(&self, by: &Actor, at: Timestamp) -> Result<Option<&ApiTokenRecord>, Refusal> {
        if !by.uses_token() {
            return Ok(None);
        }
        let token = by.token.as_ref().and_then(|id| self.tokens.get(id)).ok_or(Refusal::TokenUnknown)?;
        if token.over_at() <= at { Err(Refusal::NotLive(token.id.clone())) } else { Ok(Some(token)) }
    }

    /// Tokens, and all that were minted with them, and with those.
    fn with_minted(&self, mut tokens: BTreeSet<TokenId>) -> BTreeSet<TokenId> {
        let mut minted: HashMap<&TokenId, Vec<&TokenId>> = HashMap::new();
        for token in self.tokens.values() {
            if let Some(with) = &token.minted_with {
                minted.entry(with).or_default().push(&token.id);
            }
        }
        let mut next: Vec<_> = tokens.iter().cloned().collect();
        while let Some(id) = next.pop() {
            for &more in minted.get(&id).into_iter().flatten() {
                if tokens.insert(more.clone()) {
                    next.push(more.clone());
                }
            }
        }
        tokens
    }

    /// Whether a token belongs to whoever asks, or to nobody above them or beyond their workspaces.
    fn may_touch(&self, by: &Actor, role: Option<WorkspaceRole>, token: &ApiTokenRecord) -> Result<(), Refusal> {
        if is_same(&token.principal, &by.principal) || is_same(&token.minted_by, &by.principal) {
            // SECURITY: what may do less than its person puts out nothing that may do more.
            return match token.role {
                Some(most) => reaches(role.ok_or(Refusal::NoRole)?, most),
                None => Ok(()),
            };
        }
        let role = role.ok_or(Refusal::NoRole)?;
        let minter = token.minted_by.id();
        self.members.get(minter).map_or(Ok(()), |minter| reaches(role, minter.role))?;
        self.covers(by, Some(minter))
    }

    /// Whether somebody of this role may give away what a token holds.
    fn may_issue(&self, by: &Actor, role: WorkspaceRole, token: &ApiTokenRecord) -> Result<(), Refusal> {
        let kind = token.principal.kind();
        let bound = match (kind, token.role) {
            (PrincipalKind::User, _) if !is_same(&token.principal, &by.principal) => {
                return Err(Refusal::NotYourself(token.principal.id().clone()));
            }
            (PrincipalKind::User, most) => {
                most.map_or(Ok(()), |most| reaches(role, most))?;
                most
            }
            (kind, Some(_)) => return Err(Refusal::RoleOfNoUser(kind)),
            (_, None) => Some(role),
        };
        if token.scopes.is_empty() {
            return Err(Refusal::NoScopes);
        }
        for &scope in &token.scopes {
            if !scope.suits(kind) {
                return Err(Refusal::ScopeUnsuited { scope, kind });
            }
            by.needs(scope)?;
            if let Some(needed) = scope.needs().filter(|_| !scope.is_reached_by(bound)) {
                return Err(Refusal::ScopeAbove { scope, needed });
            }
        }
        self.gives(by, &token.workspaces)
    }

    /// Removes records of tokens that have been over for long, if there is a place for the new one then.
    fn make_room(&mut self, new: &ApiTokenRecord, at: Timestamp) -> Result<Vec<TokenId>, Refusal> {
        // A name stays taken for as long as anything of its family is left, because its pace is kept by it, and for as long as anything
        // that it minted is left, because that goes with it.
        let taken = |token: &&ApiTokenRecord| {
            let named = [Some(&token.id), Some(&token.family), token.minted_with.as_ref()];
            named.contains(&Some(&new.id)) || token.digest == new.digest
        };
        if let Some(known) = self.tokens.values().find(taken) {
            return Err(Refusal::TokenKnown(known.id.clone()));
        }
        let old = self.tokens.values().filter(|token| moment::after(token.over_at(), KEPT_FOR) <= at);
        let old: Vec<_> = old.map(|token| token.id.clone()).collect();
        if self.tokens.len() - old.len() >= MOST_TOKENS {
            return Err(Refusal::Full { what: "tokens", most: MOST_TOKENS });
        }
        for id in &old {
            self.tokens.remove(id);
        }
        Ok(old)
    }
}

fn check_lifetime(lifetime: Duration) -> Result<(), Refusal> {
    if (SHORTEST_LIFETIME..=LONGEST_LIFETIME).contains(&lifetime) { Ok(()) } else { Err(Refusal::Lifetime(lifetime)) }
}

fn check_limits(token: &ApiTokenRecord) -> Result<(), Refusal> {
    if !(1..=MOST_PER_MINUTE).contains(&token.per_minute) {
        return Err(Refusal::PerMinute(token.per_minute));
    }
    if !(1..=MOST_CONCURRENT).contains(&token.concurrent) {
        return Err(Refusal::Concurrent(token.concurrent));
    }
    Ok(())
}

/// Whether a token neither outlasts nor outruns the one that it is minted with.
fn is_within(token: &ApiTokenRecord, with: &ApiTokenRecord) -> Result<(), Refusal> {
    ends_by(token.expires, with.over_at())?;
    stays_in_channel(token, with)?;
    let paces = [
        ("requests a minute", token.per_minute, with.per_minute),
        ("requests at once", token.concurrent, with.concurrent),
    ];
    match paces.into_iter().find(|(_, asked, most)| asked > most) {
        Some((what, asked, most)) => Err(Refusal::Outruns { what, asked, most }),
        None => Ok(()),
    }
}

/// SECURITY: what policy says about a channel would mean nothing if a token that is bound to it could get hold of one that is not.
fn stays_in_channel(token: &ApiTokenRecord, with: &ApiTokenRecord) -> Result<(), Refusal> {
    match &with.channel {
        Some(bound) if token.channel.as_ref() != Some(bound) => Err(Refusal::OtherChannel(bound.clone())),
        _ => Ok(()),
    }
}

fn ends_by(ends: Timestamp, most: Timestamp) -> Result<(), Refusal> {
    if ends <= most { Ok(()) } else { Err(Refusal::Outlasts { ends, most }) }
}

fn record(
    new: NewToken,
    (by, with): (&Actor, Option<&ApiTokenRecord>),
    fresh: FreshToken,
    at: Timestamp,
) -> ApiTokenRecord {
    let usual = |usual: u32, of: fn(&ApiTokenRecord) -> u32| with.map_or(usual, |with| usual.min(of(with)));
    let per_minute = usual(DEFAULT_TOKEN_RATE_LIMIT_PER_MINUTE, |with| with.per_minute);
    let concurrent = usual(DEFAULT_TOKEN_CONCURRENCY, |with| with.concurrent);
    ApiTokenRecord {
        family: fresh.id.clone(),
        id: fresh.id,
        name: new.name,
        kind: new.principal.kind().into(),
        principal: bare(&new.principal),
        role: new.role,
        workspaces: new.workspaces,
        scopes: new.scopes,
        channel: new.channel.or_else(|| with.and_then(|with| with.channel.clone())),
        digest: fresh.digest,
        minted_by: bare(&by.principal),
        minted_with: with.map(|with| with.id.clone()),
        rotated_from_token_id: None,
        created: at,
        expires: moment::after(at, new.lifetime),
        per_minute: new.per_minute.unwrap_or(per_minute),
        concurrent: new.concurrent.unwrap_or(concurrent),
        last_used: None,
        revoked: None,
        superseded_at: None,
    }
}

fn successor(
    old: &ApiTokenRecord,
    by: &Actor,
    fresh: FreshToken,
    (at, lifetime): (Timestamp, Duration),
) -> ApiTokenRecord {
    ApiTokenRecord {
        id: fresh.id,
        digest: fresh.digest,
        minted_by: bare(&by.principal),
        rotated_from_token_id: Some(old.id.clone()),
        created: at,
        expires: moment::after(at, lifetime),
        last_used: None,
        ..old.clone()
    }
}

/// Whether a token of this principal can be minted by that user at all.
pub(super) fn stands_for(principal: &Principal, minted_by: &Principal) -> bool {
    minted_by.kind() == PrincipalKind::User
        && (principal.kind() != PrincipalKind::User || is_same(principal, minted_by))
}
