//! Tokens: minting, rotating, revoking.

use std::time::Duration;

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
        TokenRevocation, TokenRotation,
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
    /// When whoever asks may not give away what it holds, or it breaks a bound.
    pub fn mint(&mut self, by: &Actor, new: NewToken, fresh: FreshToken, at: Timestamp) -> Result<Minted, Refusal> {
        let role = self.authorise(by, Scope::TokensManage)?;
        self.require(FeatureFlag::ApiTokens)?;
        label::check_name("name of the token", &new.name)?;
        check_lifetime(new.lifetime)?;
        if let Some(off) = new.scopes.iter().filter_map(|scope| scope.feature()).find(|&feature| !self.is_on(feature)) {
            return Err(Refusal::FeatureOff(off));
        }
        let token = record(new, by, fresh, at);
        check_limits(&token)?;
        self.may_issue(by, role, &token)?;
        let pruned = self.make_room(&token, at)?;
        let minted = Minted {
            id: token.id.clone(),
            name: token.name.clone(),
            principal: token.principal.clone(),
            role: token.role,
            workspaces: token.workspaces.clone(),
            scopes: token.scopes.clone(),
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
    /// When the token works no more or was rotated already, or whoever asks may not give away what it holds.
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
        let lifetime = lifetime.unwrap_or_else(|| old.lifetime());
        check_lifetime(lifetime)?;
        let superseded_at = old.expires.min(moment::after(at, overlap));
        let token = successor(old, by, fresh, (at, lifetime));
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

    /// Revokes a token, or its whole family.
    ///
    /// # Errors
    /// When it is revoked already, or one of them belongs to somebody above whoever asks.
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
        let mut tokens = Vec::new();
        for token in self.tokens.values().filter(meant) {
            self.may_touch(by, standing, token)?;
            if token.revoked.is_none() {
                tokens.push(token.id.clone());
            }
        }
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

    /// Whether a token belongs to whoever asks, or to nobody above them.
    fn may_touch(&self, by: &Actor, role: Option<WorkspaceRole>, token: &ApiTokenRecord) -> Result<(), Refusal> {
        if is_same(&token.principal, &by.principal) || is_same(&token.minted_by, &by.principal) {
            // SECURITY: what may do less than its person puts out nothing that may do more.
            return match token.role {
                Some(most) => reaches(role.ok_or(Refusal::NoRole)?, most),
                None => Ok(()),
            };
        }
        let role = role.ok_or(Refusal::NoRole)?;
        match self.members.get(token.minted_by.id()) {
            Some(minter) => reaches(role, minter.role),
            None => Ok(()),
        }
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
        // A family's name stays taken for as long as anything of it is left, because its pace is kept by it.
        let taken =
            |token: &&ApiTokenRecord| token.id == new.id || token.family == new.id || token.digest == new.digest;
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

fn record(new: NewToken, by: &Actor, fresh: FreshToken, at: Timestamp) -> ApiTokenRecord {
    ApiTokenRecord {
        family: fresh.id.clone(),
        id: fresh.id,
        name: new.name,
        kind: new.principal.kind().into(),
        principal: bare(&new.principal),
        role: new.role,
        workspaces: new.workspaces,
        scopes: new.scopes,
        digest: fresh.digest,
        minted_by: bare(&by.principal),
        rotated_from_token_id: None,
        created: at,
        expires: moment::after(at, new.lifetime),
        per_minute: new.per_minute.unwrap_or(DEFAULT_TOKEN_RATE_LIMIT_PER_MINUTE),
        concurrent: new.concurrent.unwrap_or(DEFAULT_TOKEN_CONCURRENCY),
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
