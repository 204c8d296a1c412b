//! Tokens that are minted, rotated and revoked by several at once, while the daemon is killed again and again.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use palyra_api::{
    journal::RecordQuery,
    token::{MintedToken, RevokeToken, RotateToken, Token, TokenState},
};
use palyra_client::{Client, ClientError};
use palyra_tests::{
    daemon::{DaemonLab, refused},
    random::Random,
    token::token_named,
};
use palyra_types::{Timestamp, TokenId};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_kill_loses_a_token_that_was_acknowledged_or_brings_back_one_that_was_revoked() {
    let mut random = Random::new();
    let mut lab = DaemonLab::new();
    let mut clerks: Vec<_> = (0..CLERKS).map(|number| Clerk::new(number, random.next())).collect();
    let (mut writes, mut kills) = (0, 0);
    while writes < 500 {
        let heard = Arc::new(AtomicUsize::new(0));
        let work = |clerk: Clerk| tokio::spawn(clerk.work(lab.owner(), Arc::clone(&heard)));
        let working: Vec<_> = clerks.drain(..).map(work).collect();
        let enough = usize::try_from(random.below(32)).unwrap();
        while heard.load(Ordering::SeqCst) < enough && working.iter().any(|clerk| !clerk.is_finished()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_micros(random.below(30_000))).await;
        lab.kill();
        for clerk in working {
            clerks.push(clerk.await.unwrap());
        }
        lab.start();
        (writes, kills) = (writes + heard.load(Ordering::SeqCst), kills + 1);
        look_after_a_kill(&lab, &mut clerks, &mut random).await;
    }
    for known in clerks.iter().flat_map(|clerk| &clerk.tokens) {
        known.try_out(&lab).await;
    }
    let all = clerks.iter().map(|clerk| clerk.tokens.len()).sum::<usize>();
    let unheard = clerks.iter().map(|clerk| clerk.in_force_unheard).sum::<usize>();
    println!("{kills} kills, {writes} acknowledged writes of {all} tokens, {unheard} in force that nobody heard of");
    assert!(kills >= 10, "{kills} kills are too few to show anything");
    check_the_journal(&lab.owner(), &clerks).await;
    assert!(lab.stop().success(), "{}", lab.log());
}

/// Compares what a daemon says after a restart with what everybody was told before it.
async fn look_after_a_kill(lab: &DaemonLab, clerks: &mut [Clerk], random: &mut Random) {
    let owner = lab.owner();
    assert_eq!(lab.leftovers(), [""; 0]);
    let verification = owner.verify().await.unwrap();
    assert!(verification.ok, "{verification:?}");
    lab.agent().identity().await.unwrap();
    let listed = owner.tokens().await.unwrap().tokens;
    for clerk in clerks.iter_mut() {
        clerk.settle(&owner, &listed).await;
    }
    let listed = owner.tokens().await.unwrap().tokens;
    for known in clerks.iter_mut().flat_map(|clerk| &mut clerk.tokens) {
        assert_eq!(state_of(&listed, &known.id), known.stands, "{}", known.id);
        if std::mem::take(&mut known.is_news) || random.below(16) == 0 {
            known.try_out(lab).await;
        }
    }
    let asked_for = clerks.iter().map(|clerk| clerk.tokens.len()).sum::<usize>();
    assert_eq!(listed.len(), asked_for + 1, "there are tokens that nobody asked for, besides that of agents here");
}

/// Whether all that was acknowledged is on record.
async fn check_the_journal(owner: &Client, clerks: &[Clerk]) {
    let (mut made, mut revoked, mut next) = (BTreeSet::new(), BTreeSet::new(), 0);
    loop {
        let page = owner.records(&RecordQuery { from: Some(next), limit: Some(1_000) }).await.unwrap();
        next += u64::try_from(page.records.len()).unwrap();
        for record in page.records {
            let body = record.body.unwrap_or_default();
            match record.kind.as_str() {
                "token.minted" | "token.rotated" => made.extend(body["id"].as_str().map(str::to_owned)),
                "token.revoked" => {
                    revoked.extend(body["tokens"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()));
                }
                _ => {}
            }
        }
        if next >= page.size {
            break;
        }
    }
    for known in clerks.iter().flat_map(|clerk| &clerk.tokens) {
        assert!(made.contains(known.id.as_str()), "{} was granted without a record", known.id);
        assert!(!known.was_told_revoked || revoked.contains(known.id.as_str()), "{} has no record", known.id);
    }
}

/// Somebody who mints, rotates and revokes tokens, and remembers what they were told.
struct Clerk {
    number: u64,
    random: Random,
    named: u64,
    tokens: Vec<Known>,
    /// What they asked for when nobody answered any more.
    unheard: Option<Asked>,
    /// How often that was done all the same.
    in_force_unheard: usize,
}

/// A token as a clerk knows it.
struct Known {
    id: TokenId,
    /// Unknown if the answer that told it was never heard.
    secret: Option<String>,
    stands: TokenState,
    was_told_revoked: bool,
    /// Whether something was done about it since the last restart.
    is_news: bool,
}

enum Asked {
    Mint(String),
    Rotate(usize),
    Revoke(usize),
}

impl Clerk {
    const fn new(number: u64, seed: u64) -> Self {
        Self { number, random: Random::of(seed), named: 0, tokens: Vec::new(), unheard: None, in_force_unheard: 0 }
    }

    /// Asks for one thing after the other until nobody answers any more.
    async fn work(mut self, owner: Client, heard: Arc<AtomicUsize>) -> Self {
        while self.unheard.is_none() {
            let asked = self.choose();
            if self.ask(&owner, &asked).await.is_some() {
                heard.fetch_add(1, Ordering::SeqCst);
            } else {
                self.unheard = Some(asked);
            }
        }
        self
    }

    fn choose(&mut self) -> Asked {
        let works = |(_, known): &(usize, &Known)| known.stands == TokenState::Active;
        let working: Vec<_> = self.tokens.iter().enumerate().filter(works).map(|(which, _)| which).collect();
        let any = working.get(usize::try_from(self.random.below(1_000)).unwrap() % working.len().max(1)).copied();
        match (self.random.below(4), any) {
            (0, Some(which)) => Asked::Rotate(which),
            (1, Some(which)) => Asked::Revoke(which),
            _ => {
                self.named += 1;
                Asked::Mint(format!("clerk {} token {}", self.number, self.named))
            }
        }
    }

    /// Nothing if the answer was not heard.
    async fn ask(&mut self, owner: &Client, asked: &Asked) -> Option<()> {
        match asked {
            Asked::Mint(name) => {
                let minted = heard(owner.mint_token(&token_named(name)).await)?;
                self.keep(minted);
            }
            Asked::Rotate(which) => {
                let minted = heard(owner.rotate_token(&self.tokens[*which].id, &WITHOUT_OVERLAP).await)?;
                self.tokens[*which].now(TokenState::Superseded);
                self.keep(minted);
            }
            Asked::Revoke(which) => {
                heard(owner.revoke_token(&self.tokens[*which].id, &RevokeToken::default()).await)?;
                self.tokens[*which].now(TokenState::Revoked);
                self.tokens[*which].was_told_revoked = true;
            }
        }
        Some(())
    }

    /// Finds out what became of what was asked for last.
    async fn settle(&mut self, owner: &Client, listed: &[Token]) {
        match self.unheard.take().expect("a clerk works until nobody answers") {
            Asked::Mint(name) => {
                let mut found = listed.iter().filter(|token| token.name == name);
                if let Some(token) = found.next() {
                    assert_eq!(*token, whole(&name, &token.id, token.created));
                    self.tokens.push(Known::unheard(token.id.clone(), TokenState::Superseded));
                    // Its secret is lost, but what takes over from it works.
                    self.keep(owner.rotate_token(&token.id, &WITHOUT_OVERLAP).await.unwrap());
                    self.in_force_unheard += 1;
                }
                assert!(found.next().is_none(), "one mint, two tokens");
            }
            Asked::Rotate(which) => {
                let id = self.tokens[which].id.clone();
                let mut successors = listed.iter().filter(|token| token.rotated_from_token_id.as_ref() == Some(&id));
                let successor = successors.next().map(|successor| (successor.id.clone(), successor.state));
                match (state_of(listed, &id), successor) {
                    (TokenState::Active, None) => {}
                    (TokenState::Superseded, Some((successor, TokenState::Active))) => {
                        self.tokens[which].now(TokenState::Superseded);
                        self.tokens.push(Known::unheard(successor, TokenState::Active));
                        self.in_force_unheard += 1;
                    }
                    half => panic!("{id} is rotated by half: {half:?}"),
                }
                assert!(successors.next().is_none(), "one rotation, two tokens");
            }
            Asked::Revoke(which) => match state_of(listed, &self.tokens[which].id) {
                TokenState::Active => {}
                TokenState::Revoked => {
                    self.tokens[which].now(TokenState::Revoked);
                    self.in_force_unheard += 1;
                }
                other => panic!("{} is {other:?}", self.tokens[which].id),
            },
        }
    }

    fn keep(&mut self, minted: MintedToken) {
        let known = Known::unheard(minted.token.id, TokenState::Active);
        self.tokens.push(Known { secret: Some(minted.secret), ..known });
    }
}

impl Known {
    const fn unheard(id: TokenId, stands: TokenState) -> Self {
        Self { id, secret: None, stands, was_told_revoked: false, is_news: true }
    }

    const fn now(&mut self, stands: TokenState) {
        (self.stands, self.is_news) = (stands, true);
    }

    /// Uses it, and checks that it works or is refused as it should be.
    async fn try_out(&self, lab: &DaemonLab) {
        let Some(secret) = &self.secret else { return };
        let told = lab.holder_of(secret).identity().await;
        match self.stands {
            TokenState::Active => assert_eq!(told.unwrap().token.as_ref(), Some(&self.id)),
            TokenState::Superseded => assert_eq!(refused(told.unwrap_err()), (401, "expired".to_owned())),
            TokenState::Revoked => assert_eq!(refused(told.unwrap_err()), (401, "revoked".to_owned())),
            other => panic!("no token becomes {other:?} here"),
        }
    }
}

/// A token of this name as it is listed if nothing of it is missing.
fn whole(name: &str, id: &TokenId, created: Timestamp) -> Token {
    Token {
        id: id.clone(),
        name: name.to_owned(),
        principal: "agent:lab".to_owned(),
        role: None,
        scopes: vec!["calls.read".to_owned()],
        channel: None,
        workspaces: None,
        state: TokenState::Active,
        minted_by: "user:owner".to_owned(),
        family: id.clone(),
        rotated_from_token_id: None,
        created,
        expires: Timestamp::from_unix_millis(created.unix_millis() + 3_600_000),
        works_until: Timestamp::from_unix_millis(created.unix_millis() + 3_600_000),
        per_minute: 600,
        concurrent: 32,
        last_used: None,
    }
}

fn state_of(listed: &[Token], id: &TokenId) -> TokenState {
    listed.iter().find(|token| token.id == *id).unwrap_or_else(|| panic!("{id} is forgotten")).state
}

/// What was answered, or nothing if nobody answered.
fn heard<T>(answer: Result<T, ClientError>) -> Option<T> {
    match answer {
        Err(ClientError::Refused { status, error }) => panic!("{status} {}: {}", error.code, error.message),
        answer => answer.ok(),
    }
}

/// How many change the registry at once.
const CLERKS: u64 = 4;

const WITHOUT_OVERLAP: RotateToken = RotateToken { overlap_seconds: Some(0), lifetime_seconds: None };
