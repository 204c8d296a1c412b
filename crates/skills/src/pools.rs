//! Where skills run: for each trust domain, and each way of metering, an engine with a pool of its own.
//!
//! Guarantees: skills of different domains share no memory, no slot and no copy-on-write image. A pool has a fixed number of places, and what
//! a skill needs of it is taken before the skill is made, so that a pool never runs dry in the middle. Only so many pools are kept; the one
//! that was not used for longest goes first, and none goes while a skill of it is loaded.
//!
//! A place has 4 GiB of addresses for its memory, so that code needs no bounds checks. They are addresses only: nothing is committed until it
//! is written. 128 places are half a tebibyte, so 32 pools take 16 of the 128 TiB that a process has. Where there are fewer addresses
//! (`RLIMIT_AS`, small machines), a pool has as many places as there is room for. Stacks and tables of a pool are half a gibibyte at the
//! most; they too take memory only as they are used.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use palyra_package::Metering;
use tokio::sync::Semaphore;
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig,
    component::{Component, Linker},
};

use crate::{
    configuration,
    engine::{EngineError, EngineOptions},
    limiter::{MOST_INSTANCES, MOST_MEMORIES, MOST_TABLES},
    linking,
    state::CallState,
    ticker::Ticker,
};

/// The pools of a process.
pub(crate) struct Pools {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    pools: BTreeMap<(String, Metering), Entry>,
    /// Goes up with each use.
    uses: u64,
}

struct Entry {
    pool: Arc<Pool>,
    last_used: u64,
}

/// An engine, what its skills can import, and its places.
pub(crate) struct Pool {
    pub(crate) engine: Engine,
    pub(crate) linker: Linker<CallState>,
    pub(crate) places: Arc<Semaphore>,
    /// How many places there are.
    pub(crate) size: u32,
    pub(crate) metering: Metering,
}

impl Pools {
    /// No pools yet.
    pub(crate) fn new() -> Self {
        Self { kept: Mutex::default() }
    }

    /// The pool of a domain. Makes it if there is none.
    ///
    /// # Errors
    /// When there is no room for another.
    pub(crate) fn of(
        &self,
        domain: &str,
        metering: Metering,
        options: &EngineOptions,
        ticker: &Ticker,
    ) -> Result<Arc<Pool>, EngineError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.uses += 1;
        let last_used = kept.uses;
        let key = (domain.to_owned(), metering);
        if let Some(entry) = kept.pools.get_mut(&key) {
            entry.last_used = last_used;
            return Ok(Arc::clone(&entry.pool));
        }
        if kept.pools.len() >= options.most_pools {
            kept.drop_idle()?;
        }
        let pool = Arc::new(Pool::new(metering, options)?);
        ticker.tend(&pool.engine);
        kept.pools.insert(key, Entry { pool: Arc::clone(&pool), last_used });
        Ok(pool)
    }
}

impl Kept {
    fn drop_idle(&mut self) -> Result<(), EngineError> {
        let idle = self
            .pools
            .iter()
            .filter(|(_, entry)| Arc::strong_count(&entry.pool) == 1)
            .min_by_key(|(_, entry)| entry.last_used)
            .map(|(key, _)| key.clone())
            .ok_or(EngineError::TooManyDomains { limit: self.pools.len() })?;
        self.pools.remove(&idle);
        Ok(())
    }
}

impl Pool {
    fn new(metering: Metering, options: &EngineOptions) -> Result<Self, EngineError> {
        let mut size = options.concurrent_calls.max(FEWEST_PLACES);
        let engine = loop {
            match Engine::new(&pooling(metering, options, size)) {
                Ok(engine) => break engine,
                Err(_) if size > FEWEST_PLACES => size = (size / 2).max(FEWEST_PLACES),
                Err(error) => return Err(EngineError::NoPool { detail: format!("{error:#}") }),
            }
        };
        let linker = linking::base(&engine).map_err(|error| EngineError::NoPool { detail: format!("{error:#}") })?;
        let places = Arc::new(Semaphore::new(usize::try_from(size).unwrap_or(Semaphore::MAX_PERMITS)));
        Ok(Self { engine, linker, places, size, metering })
    }

    /// How many places a skill takes, so that all it is made of is there.
    ///
    /// # Errors
    /// When it is made of more than a skill may be.
    pub(crate) fn places_of(&self, component: &Component) -> Result<u32, EngineError> {
        let too_many = |detail: String| EngineError::TooManyInstances { detail };
        let needs = component.resources_required().ok_or_else(|| too_many("it imports modules".to_owned()))?;
        let above = |count: u32, most: usize| usize::try_from(count).is_ok_and(|count| count > most);
        if above(needs.num_memories, MOST_MEMORIES) {
            return Err(too_many(format!("{} memories, and {MOST_MEMORIES} is the most", needs.num_memories)));
        }
        if above(needs.num_tables, MOST_TABLES) {
            return Err(too_many(format!("{} tables, and {MOST_TABLES} is the most", needs.num_tables)));
        }
        Ok(needs.num_memories.max(needs.num_tables.div_ceil(TABLES_PER_PLACE)).max(1))
    }
}

fn pooling(metering: Metering, options: &EngineOptions, places: u32) -> Config {
    let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let most_memory = options.most_memory_bytes.min(configuration::MEMORY_RESERVATION);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(places)
        .total_core_instances(places.saturating_mul(narrow(MOST_INSTANCES)))
        .total_memories(places)
        .total_tables(places.saturating_mul(TABLES_PER_PLACE))
        .total_stacks(places)
        // More than a skill may have: whether it has too much is said with an error of our own.
        .max_core_instances_per_component(1_000)
        .max_memories_per_component(1_000)
        .max_tables_per_component(1_000)
        .max_memories_per_module(narrow(MOST_MEMORIES))
        .max_tables_per_module(narrow(MOST_TABLES))
        .max_memory_size(usize::try_from(most_memory).unwrap_or(usize::MAX))
        .table_elements(usize::try_from(options.most_table_entries).unwrap_or(usize::MAX))
        // Zeroing this much is cheaper than giving it back to the kernel and taking it again. The kernel says which of it was written.
        .linear_memory_keep_resident(KEPT_BYTES)
        .table_keep_resident(KEPT_BYTES)
        .pagemap_scan(Enabled::Auto);
    let mut config = configuration::compiling(metering);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

/// A pool with fewer places is none.
const FEWEST_PLACES: u32 = 4;
/// Tables of a place. Components made of Rust, and core modules that were adapted, have two; components of several modules more.
const TABLES_PER_PLACE: u32 = 2;
/// What a place keeps when its call is over, once it was used.
const KEPT_BYTES: usize = 1 << 20;
