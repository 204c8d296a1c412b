//! Makes changes to a registry one after the other and says each revision once it is saved, for a test that kills it at any moment.
//!
//! `registry_writer FILE COUNT`

use std::{
    collections::BTreeSet,
    error::Error,
    io::{Write, stdout},
    path::Path,
    sync::Arc,
    time::Duration,
};

use palyra_access::{
    AccessRegistry, Actor, FileStore, Membership, NewToken, OpenError, RegistryStore, Scope, TokenKind,
};
use palyra_types::{Clock, Entropy, Principal, PrincipalId, clock::SystemClock, entropy::SystemEntropy};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [path, count] = arguments.as_slice() else { return Err("usage: registry_writer FILE COUNT".into()) };
    let registry = open(Path::new(path))?;
    let owner = Actor::in_person(Principal::parse("user:ada@owner")?);
    let agent = Principal::parse("agent:claude")?;
    for _ in 0..count.parse::<u32>()? {
        let (_, fresh) = registry.fresh_token(TokenKind::Agent)?;
        let new = NewToken {
            name: "one of many".to_owned(),
            principal: agent.clone(),
            role: None,
            workspaces: Membership::All,
            scopes: BTreeSet::from([Scope::CallsCreate]),
            lifetime: Duration::from_secs(3_600),
            channel: None,
            per_minute: None,
            concurrent: None,
        };
        let pending = registry.prepare(|state, at| state.mint(&owner, new, fresh, at)).await?;
        let revision = pending.revision();
        pending.commit().await?;
        let mut out = stdout().lock();
        writeln!(out, "{revision}")?;
        out.flush()?;
    }
    Ok(())
}

fn open(path: &Path) -> Result<AccessRegistry, Box<dyn Error>> {
    let store: Arc<dyn RegistryStore> = Arc::new(FileStore::open(path)?);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
    match AccessRegistry::open(Arc::clone(&store), Arc::clone(&clock), Arc::clone(&entropy)) {
        Err(OpenError::Missing) => Ok(AccessRegistry::create(store, clock, entropy, PrincipalId::parse("ada")?)?),
        opened => Ok(opened?),
    }
}
