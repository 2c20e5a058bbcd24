//! Checks whether bytes are a plugin. They are untrusted: the whole binary is parsed, and its imports and exports are checked, before
//! anything is compiled. Even this doesn't happen in the host's own process; see `compile`.

pub use crate::point::version::{PACKAGE, Version};

use super::{
    limits::LARGEST_BINARY,
    wasi::{preview1, preview2},
};
use crate::text::printable_line;
use std::{fmt, panic::catch_unwind};
use wasmparser::{
    Chunk, Encoding, ExternalKind, Parser, Payload, TypeRef, Validator, WasmFeatures, component_types::ComponentEntityType, types::Types,
};
use wit_component::ComponentEncoder;

/// The only interface whose functions a plugin may import.
pub(super) const LOG: &str = "log";

/// The interface that contains only types.
pub(super) const TYPES: &str = "types";

/// The policy points. Each is an interface.
const POINTS: [&str; 4] = ["runtime-selection", "pod-templating", "metadata-propagation", "scheduling-scoring"];

/// The form of a plugin's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryForm {
    /// A component.
    Component,
    /// A core module that contains its interfaces. It is converted to a component.
    Module,
    /// A core module that is a WASI command: a program that reads questions from stdin.
    Command,
}

impl BinaryForm {
    /// Its name in the output of the other process.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Component => "component",
            Self::Module => "module",
            Self::Command => "command",
        }
    }

    /// The form with this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::Component, Self::Module, Self::Command].into_iter().find(|form| form.name() == name)
    }
}

/// A plugin that may be compiled.
#[derive(Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The bytes of a component, or of a command's module.
    pub wasm: Vec<u8>,
    /// The form of the original bytes.
    pub form: BinaryForm,
    /// The versions that it exports, oldest first. Empty for a command, which reports them in `describe`.
    pub exports: Vec<Exported>,
}

/// The exports of a component in one version of the interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The version.
    pub version: Version,
    /// The policy points whose interfaces it exports.
    pub points: Vec<&'static str>,
}

/// The versions that a host supports, for a sentence.
pub(super) fn spoken() -> String {
    let list = |draft: bool| -> String {
        let of_kind = Version::ALL.into_iter().filter(|version| version.is_draft() == draft);
        of_kind.map(Version::number).collect::<Vec<_>>().join(", ")
    };
    match list(true).as_str() {
        "" => list(false),
        drafts => format!("{} (and {drafts} with --draft-interfaces)", list(false)),
    }
}

impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wasm, form, exports } = self;
        write!(f, "Accepted {{ {} bytes, form: {form:?}, exports: {exports:?} }}", wasm.len())
    }
}

/// Why bytes are not a plugin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The bytes exceed the limit.
    #[error("it has {0} bytes; the limit is {LARGEST_BINARY}")]
    TooLarge(usize),
    /// Not WebAssembly.
    #[error("it is not WebAssembly: it must begin with the bytes 00 61 73 6d{0}")]
    NotWasm(&'static str),
    /// The binary is broken, or uses features that we don't support.
    #[error("it is not valid WebAssembly: {0}")]
    Invalid(String),
    /// A core module of another kind.
    #[error(
        "it is a core module, but neither built from the interfaces of {PACKAGE} nor a WASI command: build it with the SDK, or as a \
         component"
    )]
    NoPolicy,
    /// A core module whose code doesn't match its interfaces.
    #[error("the core module can't be turned into a component: {0}")]
    NotWrapped(String),
    /// A WASI module that isn't a program.
    #[error("it is built for WASI, but exports no {0}: build it as a program, not as a library")]
    NoCommand(&'static str),
    /// It imports something that we don't provide.
    #[error("it imports {0}, but policies are pure and may import only {PACKAGE}/log and an empty WASI")]
    Import(String),
    /// It was built for a version of the interfaces that we don't support.
    #[error("it is built for {PACKAGE}@{0}, and this host speaks {spoken}: build it for one of these", spoken = spoken())]
    OtherVersion(String),
    /// It was built for an unpublished version.
    #[error(
        "it is built for {PACKAGE}@{0}, a draft that may change with every release: build it for {published}, or start this host with --draft-interfaces",
        published = Version::PUBLISHED.number()
    )]
    Draft(&'static str),
    /// It lacks the interface that every plugin must export.
    #[error("it doesn't export {}, which every policy must export", Version::PUBLISHED.interface("plugin"))]
    NoPlugin,
    /// It exports no policy point.
    #[error("it exports the interface of no policy point: {}", POINTS.join(", "))]
    NoPoint,
}

/// Accepts bytes as a plugin, or returns the reason for the rejection.
pub fn accept(bytes: &[u8]) -> Result<Accepted, Refused> {
    if bytes.len() > LARGEST_BINARY {
        return Err(Refused::TooLarge(bytes.len()));
    }
    if !bytes.starts_with(b"\0asm") {
        return Err(Refused::NotWasm(if bytes.starts_with(&[0x1f, 0x8b]) { "; it is compressed with gzip" } else { "" }));
    }
    match encoding(bytes)? {
        Encoding::Component => {
            let exports = check(bytes)?;
            Ok(Accepted { wasm: bytes.to_vec(), form: BinaryForm::Component, exports })
        }
        Encoding::Module => {
            validate(bytes)?;
            if !carries_interfaces(bytes) {
                check_command(bytes)?;
                return Ok(Accepted { wasm: bytes.to_vec(), form: BinaryForm::Command, exports: Vec::new() });
            }
            let wasm = wrap(bytes)?;
            let exports = check(&wasm)?;
            Ok(Accepted { wasm, form: BinaryForm::Module, exports })
        }
    }
}

/// Converts a core module that is embedded in the host to a component.
pub(super) fn of_ours(bytes: &[u8]) -> Result<Accepted, Refused> {
    Ok(Accepted { wasm: wrap(bytes)?, form: BinaryForm::Module, exports: Vec::new() })
}

fn encoding(bytes: &[u8]) -> Result<Encoding, Refused> {
    match Parser::new(0).parse(bytes, true).map_err(|error| invalid(&error))? {
        Chunk::Parsed { payload: Payload::Version { encoding, .. }, .. } => Ok(encoding),
        _ => Err(Refused::Invalid("it has no version".to_owned())),
    }
}

fn invalid(error: &wasmparser::BinaryReaderError) -> Refused {
    Refused::Invalid(error.to_string())
}

fn validate(bytes: &[u8]) -> Result<Types, Refused> {
    let features = WasmFeatures::default() - WasmFeatures::THREADS - WasmFeatures::MEMORY64 - WasmFeatures::SHARED_EVERYTHING_THREADS;
    Validator::new_with_features(features).validate_all(bytes).map_err(|error| invalid(&error))
}

/// Whether a core module contains its interfaces in a custom section, as wit-bindgen writes it.
fn carries_interfaces(module: &[u8]) -> bool {
    Parser::new(0)
        .parse_all(module)
        .flatten()
        .any(|payload| matches!(payload, Payload::CustomSection(section) if section.name().starts_with("component-type")))
}

/// Checks a command's imports and exports by name.
fn check_command(module: &[u8]) -> Result<(), Refused> {
    let (mut foreign, mut wasi, mut start, mut memory) = (None, false, false, false);
    for payload in Parser::new(0).parse_all(module) {
        match payload.map_err(|error| invalid(&error))? {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import.map_err(|error| invalid(&error))?;
                    let ours = import.module == preview1::MODULE;
                    wasi |= ours;
                    if !(ours && preview1::FUNCTIONS.contains(&import.name) && matches!(import.ty, TypeRef::Func(_))) {
                        foreign.get_or_insert_with(|| format!("{}.{}", import.module, import.name));
                    }
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export.map_err(|error| invalid(&error))?;
                    start |= export.name == "_start" && export.kind == ExternalKind::Func;
                    memory |= export.name == "memory" && export.kind == ExternalKind::Memory;
                }
            }
            _ => {}
        }
    }
    match (foreign, start, memory) {
        _ if !wasi && !start => Err(Refused::NoPolicy),
        (Some(foreign), ..) => Err(Refused::Import(printable_line(&foreign))),
        (None, false, _) => Err(Refused::NoCommand("_start")),
        (None, true, false) => Err(Refused::NoCommand("memory")),
        (None, true, true) => Ok(()),
    }
}

/// Converts a core module that contains its interfaces to a component.
fn wrap(module: &[u8]) -> Result<Vec<u8>, Refused> {
    // The encoder is written for compilers' output, so an untrusted section may make it panic.
    let wrapped = catch_unwind(|| {
        let mut encoder = ComponentEncoder::default();
        encoder.module(module)?;
        encoder.validate(true).encode()
    });
    match wrapped {
        Ok(Ok(component)) => Ok(component),
        Ok(Err(error)) => Err(Refused::NotWrapped(format!("{error:#}"))),
        Err(_) => Err(Refused::NotWrapped("its description of its interfaces is broken".to_owned())),
    }
}

/// Validates a component, and checks its imports and exports by name. Returns the versions that it exports, and the policy points of each.
fn check(component: &[u8]) -> Result<Vec<Exported>, Refused> {
    let types = validate(component)?;
    let mut exports = Vec::new();
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(component) {
        match payload.map_err(|error| invalid(&error))? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            // Only the outermost component's imports and exports connect it to the host.
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    check_import(import.map_err(|error| invalid(&error))?.name.name, &types)?;
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    exports.push(export.map_err(|error| invalid(&error))?.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    let exports_of = |version: Version, interface: &str| exports.contains(&version.interface(interface));
    let versions: Vec<_> = Version::ALL.into_iter().filter(|version| exports_of(*version, "plugin")).collect();
    if versions.is_empty() {
        let other = exports.iter().find_map(|export| export.strip_prefix(&format!("{PACKAGE}/plugin@")));
        return Err(other.map_or(Refused::NoPlugin, |version| Refused::OtherVersion(printable_line(version))));
    }
    let of_version = |version| {
        let points: Vec<_> = POINTS.into_iter().filter(|point| exports_of(version, point)).collect();
        (!points.is_empty()).then_some(Exported { version, points })
    };
    let exported: Vec<_> = versions.into_iter().filter_map(of_version).collect();
    if exported.is_empty() { Err(Refused::NoPoint) } else { Ok(exported) }
}

/// Functions may be imported only from the log and from WASI. Interfaces that contain only types are harmless.
fn check_import(name: &str, types: &Types) -> Result<(), Refused> {
    let ours = name.strip_prefix(&format!("{PACKAGE}/")).and_then(|rest| rest.split_once('@'));
    if let Some((interface, version)) = ours
        // A component may also support future versions, and then imports their types.
        && interface != TYPES
        && Version::parse(version).is_none()
    {
        return Err(Refused::OtherVersion(printable_line(version)));
    }
    let types = types.as_ref();
    let Some(ComponentEntityType::Instance(instance)) = types.component_item_for_import(name).map(|item| item.ty) else {
        return Err(Refused::Import(printable_line(name)));
    };
    let functions = ours.is_some_and(|(interface, _)| interface == LOG) || preview2::interface(name).is_some();
    let harmless = types[instance].exports.values().all(|export| match export.ty {
        ComponentEntityType::Type { .. } => true,
        ComponentEntityType::Func(_) => functions,
        _ => false,
    });
    if harmless { Ok(()) } else { Err(Refused::Import(printable_line(name))) }
}
