//! Makes compiled code ready to be called.
//!
//! Guarantees: a skill that is loaded has only imports that lead somewhere known, exports one of the worlds, and fits into its pool.

use std::sync::Arc;

use wasmtime::component::{
    Component, ComponentExportIndex, InstancePre,
    types::{ComponentItem, Type},
};

use crate::{
    artifact::AuthenticArtifact, briefness::Briefness, engine::EngineError, linking, pools::Pool, state::CallState,
};

/// A skill that can be called.
pub struct LoadedSkill {
    pub(crate) pool: Arc<Pool>,
    pub(crate) pre: InstancePre<CallState>,
    pub(crate) entry: Entry,
    pub(crate) index: ComponentExportIndex,
    /// What it takes of its pool.
    pub(crate) places: u32,
    /// Whether its calls are usually over soon.
    pub(crate) briefness: Briefness,
}

/// How a skill is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// `palyra:skill@1.0.0`: fails with a code and a message.
    V1,
    /// `palyra:skill@0.1.0`: fails with a message.
    V0_1,
    /// `wasi:cli/run`.
    Command,
}

impl LoadedSkill {
    pub(crate) fn new(artifact: &AuthenticArtifact, pool: Arc<Pool>) -> Result<Self, EngineError> {
        let component = artifact
            .component(&pool.engine)
            .map_err(|error| EngineError::Unloadable { detail: format!("{error:#}") })?;
        let places = pool.places_of(&component)?;
        let (entry, index) = entry(&component).ok_or(EngineError::NoEntry)?;
        let pre = linking::for_component(&pool.linker, &component)
            .and_then(|linker| linker.instantiate_pre(&component))
            .map_err(|error| EngineError::UnknownImport { detail: format!("{error:#}") })?;
        // Otherwise the first call would make it.
        component
            .initialize_copy_on_write_image()
            .map_err(|error| EngineError::Unloadable { detail: format!("{error:#}") })?;
        Ok(Self { pool, pre, entry, index, places, briefness: Briefness::default() })
    }
}

impl std::fmt::Debug for LoadedSkill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadedSkill").field("entry", &self.entry).field("places", &self.places).finish_non_exhaustive()
    }
}

/// What the component exports, by its type: both worlds call their function `run`.
fn entry(component: &Component) -> Option<(Entry, ComponentExportIndex)> {
    if let Some((ComponentItem::ComponentFunc(function), index)) = component.get_export(None, "run") {
        let Some(Type::Result(result)) = function.results().next() else { return None };
        let entry = match result.err()? {
            Type::Record(_) => Entry::V1,
            Type::String => Entry::V0_1,
            _ => return None,
        };
        return Some((entry, index));
    }
    let kind = component.component_type();
    let (name, _) = kind.exports(component.engine()).find(|(name, _)| name.starts_with("wasi:cli/run@0.2."))?;
    let instance = component.get_export_index(None, name)?;
    Some((Entry::Command, component.get_export_index(Some(&instance), "run")?))
}
