//! Packages of WASI that programs import without needing them: files, sockets, HTTP.
//!
//! Guarantees: no directory is ever there, so no file can be named; everything else ends the call with an error that says so.

use wasmtime::component::{Component, Linker, LinkerInstance, ResourceType, Val, types::ComponentItem};

use crate::{ledger::end, outcome::SkillFailure, state::CallState};

/// Defines what the component imports of these packages.
pub(super) fn link(linker: &mut Linker<CallState>, component: &Component) -> wasmtime::Result<()> {
    let engine = component.engine();
    for (name, item) in component.component_type().imports(engine) {
        let ComponentItem::ComponentInstance(instance) = item.ty else { continue };
        let interface = name.split_once('@').map_or(name, |(interface, _)| interface);
        if !PACKAGES.iter().any(|package| is_of(interface, package)) {
            continue;
        }
        let mut defined = linker.instance(name)?;
        for (export, item) in instance.exports(engine) {
            match item.ty {
                ComponentItem::ComponentFunc(_) => define(&mut defined, interface, export)?,
                ComponentItem::Resource(_) if !SHARED.contains(&export) => {
                    defined.resource(export, ResourceType::host::<Nothing>(), |_, _| Ok(()))?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Stands for every resource that cannot be had.
struct Nothing;

fn is_of(interface: &str, package: &str) -> bool {
    interface.strip_prefix(package).is_some_and(|rest| rest.starts_with('/'))
}

fn define(instance: &mut LinkerInstance<'_, CallState>, interface: &str, function: &str) -> wasmtime::Result<()> {
    let answer = match (interface, function) {
        ("wasi:filesystem/preopens", "get-directories") => Some(Val::List(Vec::new())),
        ("wasi:filesystem/types", "filesystem-error-code") => Some(Val::Option(None)),
        _ => None,
    };
    let interface = interface.to_owned();
    instance.func_new(function, move |store, _, _, results| {
        store.data().ledger.count()?;
        match (&answer, results) {
            (Some(answer), [result]) => {
                *result = answer.clone();
                Ok(())
            }
            _ => Err(end(SkillFailure::Inert { interface: interface.clone() })),
        }
    })
}

const PACKAGES: &[&str] = &["wasi:filesystem", "wasi:sockets", "wasi:http"];

/// Resources of `wasi:io`, which these interfaces pass on.
const SHARED: &[&str] = &["error", "pollable", "input-stream", "output-stream", "io-error"];
