//! What a skill can import, and where each of it leads.
//!
//! Guarantees: an import that is not named here or in its parts is refused when the skill is loaded. Everything that is named is counted,
//! asks for its grant, or has no power.
//! Does not: use the usual implementation of WASI, which can open files and sockets when it is told to. Nothing here can.

mod inert;
mod skill;
mod streams;
mod wasi;

use wasmtime::{
    Engine,
    component::{Component, Linker},
};

use crate::state::CallState;

/// What every skill can import.
///
/// # Errors
/// When a name is defined twice.
pub(crate) fn base(engine: &Engine) -> wasmtime::Result<Linker<CallState>> {
    let mut linker = Linker::new(engine);
    skill::link(&mut linker)?;
    wasi::link(&mut linker)?;
    Ok(linker)
}

/// What one skill can import: the base, and what leads nowhere as far as it imports that.
///
/// # Errors
/// When an inert import is none that can be a function or a resource.
pub(crate) fn for_component(base: &Linker<CallState>, component: &Component) -> wasmtime::Result<Linker<CallState>> {
    let mut linker = base.clone();
    inert::link(&mut linker, component)?;
    Ok(linker)
}
