//! What a program really needs, read from the program itself.
//!
//! Guarantees: a binary that is accepted here is valid WebAssembly of the features that skills may use, imports nothing but what is listed in
//! [`Required`], and exports one of the worlds that are known. A manifest can be held to that: [`Required::missing_from`].
//! Does not: compile or run anything. Imports inside of a component, between its parts, are its own business.

mod intricacy;
mod preview1;
mod wasi;

use std::{collections::BTreeMap, fmt};

use palyra_types::{visible::visible, words};
use serde::{Deserialize, Serialize};
use wasmparser::{
    ComponentInstance, ComponentTypeRef, FuncValidatorAllocations, Parser, Payload, TypeBounds, ValidPayload,
    Validator, WasmFeatures,
    component_types::{ComponentDefinedType, ComponentEntityType, ComponentFuncTypeId, ComponentValType},
    types::{EntityType, Types},
};

use self::intricacy::Intricacy;
use crate::capability::Capabilities;

/// What a program is and needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Required {
    /// How it is built.
    pub form: Form,
    /// How it is called.
    pub world: World,
    /// What it imports and what that takes. Of a component its interfaces, of a module its functions.
    pub imports: BTreeMap<String, Need>,
}

words! {
    /// How a program is built.
    pub enum Form ("form of program") {
        /// A component.
        Component = "component",
        /// A core module of WASI preview 1.
        Module = "module",
    }
}

words! {
    /// How a program is called.
    pub enum World ("world") {
        /// `run` of `palyra:skill@1`: JSON in, JSON or a failure out.
        Skill1 = "palyra:skill@1",
        /// `run` of `palyra:skill@0.1`: JSON in, JSON or a sentence out.
        Skill01 = "palyra:skill@0.1",
        /// A command: `_start` of a module or `wasi:cli/run` of a component. JSON on standard input, JSON on standard output.
        Command = "wasi:cli/command",
    }
}

words! {
    /// What an import takes.
    pub enum Need ("need") {
        /// Nothing: it has no power.
        Free = "free",
        /// `log`.
        Log = "log",
        /// `clock`.
        Clock = "clock",
        /// `random`.
        Random = "random",
        /// `http`.
        Http = "http",
        /// `kv`.
        Kv = "kv",
        /// `secrets`.
        Secrets = "secrets",
        /// `files`.
        Files = "files",
        /// `wasi:filesystem` among what is inert.
        InertFilesystem = "wasi:filesystem",
        /// `wasi:sockets` among what is inert.
        InertSockets = "wasi:sockets",
        /// `wasi:http` among what is inert.
        InertHttp = "wasi:http",
    }
}

impl Need {
    /// Whether a manifest asks for it.
    #[must_use]
    pub fn is_asked_for_by(self, asked: &Capabilities) -> bool {
        match self {
            Self::Free => true,
            Self::Log => asked.log,
            Self::Clock => asked.clock,
            Self::Random => asked.random,
            Self::Http => !asked.http.is_empty(),
            Self::Kv => asked.kv.is_some(),
            Self::Secrets => !asked.secrets.is_empty(),
            Self::Files => !asked.files.is_empty(),
            Self::InertFilesystem | Self::InertSockets | Self::InertHttp => asked.inert.contains(self.as_str()),
        }
    }

    /// The line of `[capabilities]` in `skill.toml` that asks for it.
    #[must_use]
    pub const fn line(self) -> &'static str {
        match self {
            Self::Free => "",
            Self::Log => "log = true",
            Self::Clock => "clock = true",
            Self::Random => "random = true",
            Self::Http => "http = [\"example.org:443\"]",
            Self::Kv => "kv = { bytes = 1048576, entries = 1000 }",
            Self::Secrets => "secrets = { token = \"what it is for\" }",
            Self::Files => "files = { notes = \"read\" }",
            Self::InertFilesystem => "inert = [\"wasi:filesystem\"]",
            Self::InertSockets => "inert = [\"wasi:sockets\"]",
            Self::InertHttp => "inert = [\"wasi:http\"]",
        }
    }
}

/// Something that a program imports and its manifest does not ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What the manifest has to ask for.
    pub need: Need,
    /// The imports that need it.
    pub imports: Vec<String>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.imports.first().map(|import| visible(import)).unwrap_or_default();
        let more = match self.imports.len() {
            0 | 1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let line = self.need.line();
        write!(f, "its program imports `{first}`{more}: add `{line}` to [capabilities] in skill.toml")
    }
}

impl Required {
    /// What a manifest that asks for this does not ask for, though the program imports it.
    #[must_use]
    pub fn missing_from(&self, asked: &Capabilities) -> Vec<Missing> {
        let mut missing: BTreeMap<Need, Vec<String>> = BTreeMap::new();
        for (import, need) in self.imports.iter().filter(|(_, need)| !need.is_asked_for_by(asked)) {
            missing.entry(*need).or_default().push(import.clone());
        }
        missing.into_iter().map(|(need, imports)| Missing { need, imports }).collect()
    }
}

/// Reads what a program is and needs.
///
/// # Errors
/// When it is no WebAssembly that skills may be made of, imports what no skill may, or exports no world that is known.
pub fn required(binary: &[u8]) -> Result<Required, ImportsError> {
    let form = form_of(binary)?;
    let Outline { types, imports, is_command } = outline(binary, Code::Skipped)?;
    match form {
        Form::Component => {
            let world = component_world(&types, is_command)?;
            let named = imports.into_iter().map(|import| Ok((import.clone(), wasi::need_of(&import)?)));
            Ok(Required { form, world, imports: named.collect::<Result<_, ImportsError>>()? })
        }
        Form::Module => {
            let world = module_world(&types)?;
            Ok(Required { form, world, imports: module_imports(&types)? })
        }
    }
}

/// Validates a program to its last instruction, for whoever makes it. Whoever takes one in leaves that to the compiler, which does it anyway, in
/// a process with bounds: a program of a megabyte can take minutes.
///
/// # Errors
/// When it is not valid.
pub fn check_code(binary: &[u8]) -> Result<(), ImportsError> {
    form_of(binary)?;
    outline(binary, Code::Validated).map(|_| ())
}

/// The features of WebAssembly that a skill may be made of. No threads, no shared memory, no garbage collection, nothing asynchronous: what
/// runs twice with the same answers from outside comes to the same result.
#[must_use]
pub const fn features() -> WasmFeatures {
    WasmFeatures::WASM2
        .union(WasmFeatures::TAIL_CALL)
        .union(WasmFeatures::EXTENDED_CONST)
        .union(WasmFeatures::MULTI_MEMORY)
        .union(WasmFeatures::RELAXED_SIMD)
        .union(WasmFeatures::COMPONENT_MODEL)
        .difference(WasmFeatures::GC_TYPES)
}

fn form_of(binary: &[u8]) -> Result<Form, ImportsError> {
    if binary.len() > MOST_BYTES {
        return Err(ImportsError::TooLarge { bytes: binary.len() });
    }
    if Parser::is_component(binary) {
        Ok(Form::Component)
    } else if Parser::is_core_wasm(binary) {
        Ok(Form::Module)
    } else {
        Err(ImportsError::NotWasm)
    }
}

/// What is known of a valid binary.
struct Outline {
    types: Types,
    /// The imports of the outermost component. Those of a module are in its types.
    imports: Vec<String>,
    /// Whether the outermost component exports the way into a command.
    is_command: bool,
}

/// What is done about the code of functions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    Skipped,
    /// Functions are validated one by one as they come: kept for later, many small ones would take far more memory than the binary does.
    Validated,
}

/// Validates a binary, and tells what it is.
fn outline(binary: &[u8], code: Code) -> Result<Outline, ImportsError> {
    let mut validator = Validator::new_with_features(features());
    let mut parser = Parser::new(0);
    parser.set_features(features());
    let mut allocations = FuncValidatorAllocations::default();
    let mut intricacy = Intricacy::default();
    let (mut depth, mut imports, mut is_command, mut last) = (0_usize, Vec::new(), false, None);
    for payload in parser.parse_all(binary) {
        let payload = payload.map_err(invalid)?;
        match &payload {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 1 => {
                for import in section.clone() {
                    let import = import.map_err(invalid)?;
                    imports.extend(import_of(import.name.name, import.ty)?);
                    at_most(imports.len())?;
                }
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section.clone() {
                    is_command |= wasi::is_command_export(export.map_err(invalid)?.name.name);
                }
            }
            Payload::ComponentInstanceSection(section) => {
                for instance in section.clone() {
                    if let ComponentInstance::Instantiate { component_index, .. } = instance.map_err(invalid)?
                        && let Some(types) =
                            validator.types(0).filter(|types| component_index < types.component_count())
                    {
                        intricacy.instantiate(types, types.component_at(component_index))?;
                    }
                }
            }
            _ => {}
        }
        match validator.payload(&payload).map_err(invalid)? {
            ValidPayload::Func(function, body) if code == Code::Validated => {
                let mut function = function.into_validator(allocations);
                function.validate(&body).map_err(invalid)?;
                allocations = function.into_allocations();
            }
            ValidPayload::End(types) => last = Some(types),
            _ => {}
        }
    }
    let types = last.ok_or(ImportsError::NotWasm)?;
    Ok(Outline { types, imports, is_command })
}

/// The import of a component, if it is one that has to be looked at: a type that stands for another has no power.
fn import_of(name: &str, kind: ComponentTypeRef) -> Result<Option<String>, ImportsError> {
    match kind {
        ComponentTypeRef::Instance(_) => Ok(Some(name.to_owned())),
        ComponentTypeRef::Type(TypeBounds::Eq(_)) => Ok(None),
        _ => Err(ImportsError::Foreign { import: name.to_owned() }),
    }
}

fn component_world(types: &Types, is_command: bool) -> Result<World, ImportsError> {
    if let Some(item) = types.component_item_for_export("run") {
        let ComponentEntityType::Func(function) = item.ty else { return Err(ImportsError::OtherRun) };
        return skill_world(types, function).ok_or(ImportsError::OtherRun);
    }
    if is_command { Ok(World::Command) } else { Err(ImportsError::NoWorld) }
}

/// Which `run` a function is: they differ in how they say that something went wrong.
fn skill_world(types: &Types, function: ComponentFuncTypeId) -> Option<World> {
    let function = &types[function];
    let text =
        |kind: &ComponentValType| matches!(kind, ComponentValType::Primitive(wasmparser::PrimitiveValType::String));
    let names_fit = function.params.iter().map(|(name, _)| name.as_str()).eq(["tool", "input"]);
    if function.async_ || !names_fit || !function.params.iter().all(|(_, kind)| text(kind)) {
        return None;
    }
    let Some(ComponentValType::Type(result)) = function.result else { return None };
    let ComponentDefinedType::Result { ok: Some(ok), err: Some(error), .. } = &types[result] else { return None };
    if !text(ok) {
        return None;
    }
    match error {
        error if text(error) => Some(World::Skill01),
        ComponentValType::Type(error) => match &types[*error] {
            ComponentDefinedType::Record(record) => {
                let fits = record.fields.iter().map(|(name, _)| name.as_str()).eq(["code", "message"]);
                (fits && record.fields.values().all(text)).then_some(World::Skill1)
            }
            _ => None,
        },
        ComponentValType::Primitive(_) => None,
    }
}

fn module_world(types: &Types) -> Result<World, ImportsError> {
    let exports = types.as_ref();
    let start = exports.core_exports().and_then(|mut exports| exports.find(|(name, _)| *name == "_start"));
    match start {
        Some((_, EntityType::Func(function))) => {
            let function = types[function].composite_type.unwrap_func();
            let is_plain = function.params().is_empty() && function.results().is_empty();
            if is_plain { Ok(World::Command) } else { Err(ImportsError::OtherStart) }
        }
        Some(_) => Err(ImportsError::OtherStart),
        None => Err(ImportsError::NoWorld),
    }
}

fn module_imports(types: &Types) -> Result<BTreeMap<String, Need>, ImportsError> {
    let mut needs = BTreeMap::new();
    for (module, name, kind) in types.as_ref().core_imports().into_iter().flatten() {
        let import = format!("{module}.{name}");
        if module != preview1::MODULE || !matches!(kind, EntityType::Func(_)) {
            return Err(ImportsError::Foreign { import });
        }
        let Some(need) = preview1::need_of(name) else { return Err(ImportsError::Foreign { import }) };
        needs.insert(import, need);
        at_most(needs.len())?;
    }
    Ok(needs)
}

const fn at_most(count: usize) -> Result<(), ImportsError> {
    if count > MOST_IMPORTS { Err(ImportsError::TooManyImports) } else { Ok(()) }
}

fn invalid(error: wasmparser::BinaryReaderError) -> ImportsError {
    ImportsError::Invalid { offset: error.offset(), detail: error.message().to_owned() }
}

/// Why a program is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportsError {
    /// Something else.
    #[error("it is no WebAssembly")]
    NotWasm,
    /// Too large.
    #[error("it takes {bytes} bytes; the limit is {MOST_BYTES}")]
    TooLarge {
        /// How many.
        bytes: usize,
    },
    /// Broken, or made with features that skills may not use.
    #[error("it is not valid at byte {offset}: {}", visible(.detail))]
    Invalid {
        /// Where.
        offset: usize,
        /// What is wrong.
        detail: String,
    },
    /// Too many imports.
    #[error("it has more than {MOST_IMPORTS} imports")]
    TooManyImports,
    /// Its parts are put together in too many ways.
    #[error("its parts are put together of more than {} types", intricacy::MOST_TYPES)]
    TooIntricate,
    /// Something that no skill may import.
    #[error("it imports `{}`, which no skill may", visible(.import))]
    Foreign {
        /// What.
        import: String,
    },
    /// A version of an interface that is not known.
    #[error("it imports `{}`; known is version {known}", visible(.import))]
    ForeignVersion {
        /// What.
        import: String,
        /// Which version is known.
        known: &'static str,
    },
    /// Nothing to call.
    #[error("it exports no `run`, no `wasi:cli/run` and no `_start`")]
    NoWorld,
    /// A `run` that is not that of a skill.
    #[error("its `run` is not that of a skill")]
    OtherRun,
    /// A `_start` that takes or gives something.
    #[error("its `_start` is not that of a command")]
    OtherStart,
}

impl ImportsError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::NotWasm => "build a component for `wasm32-wasip2`, or a command for `wasm32-wasip1`",
            Self::TooLarge { .. } => "build it with optimisation for size, and without debug information",
            Self::Invalid { .. } => {
                "build it again, without threads, shared memory, 64-bit memory, exceptions, garbage collection and asynchronous functions"
            }
            Self::TooManyImports | Self::Foreign { .. } => {
                "use the interfaces of `palyra:skill`, and of WASI 0.2 those of io, cli, clocks and random"
            }
            Self::TooIntricate => "build it of fewer components, or of components with fewer types",
            Self::ForeignVersion { .. } => "build it against that version",
            Self::NoWorld | Self::OtherRun | Self::OtherStart => {
                "export `run` of the world `palyra:skill`, as `palyra skills new` shows"
            }
        }
    }
}

/// The largest program: what fits into an archive.
pub const MOST_BYTES: usize = crate::archive::MOST_BYTES;
/// The most imports.
const MOST_IMPORTS: usize = 512;

#[cfg(test)]
mod tests;
