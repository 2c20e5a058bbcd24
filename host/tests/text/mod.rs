//! Minimal plugins in WebAssembly's text format: each case writes its responses to memory itself.

#![allow(dead_code)] // The end-to-end tests only use the functions that write components.

use pointsman_sandbox::{
    binary::{Accepted, BinaryForm, Version, accept},
    call::CallError,
    compile::Code,
    engine::{Engines, Use},
    limits::Limits,
    plugin::{Instances, Plugin},
    point::{Question, scoring::RequestRef},
};
use std::{
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};
use wasmtime::component::Component;
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

pub(crate) const LIMITS: Limits =
    Limits { memory: 16 << 20, fuel: 50_000_000, deadline: Duration::from_millis(200), output: 1 << 20, ..Limits::DEFAULT };

/// If fuel is counted, it must be what ends a loop, even on a busy machine.
const FUELLED: Limits = Limits { deadline: Duration::from_secs(20), ..LIMITS };

/// The tolerance for deadlines: on a busy machine, the ticker may be this late.
pub(crate) const SLACK: Duration = Duration::from_secs(5);

fn engines() -> &'static Arc<Engines> {
    static ENGINES: OnceLock<Arc<Engines>> = OnceLock::new();
    ENGINES.get_or_init(|| Arc::new(Engines::new().unwrap()))
}

/// The limits for a use.
pub(crate) fn limits(use_: Use) -> Limits {
    if use_ == Use::ControlPlane { FUELLED } else { LIMITS }
}

/// A plugin of any form with `limits`.
pub(crate) fn load(use_: Use, wasm: &[u8]) -> Plugin {
    linked(use_, wasm).unwrap()
}

/// The same, or the error of its linking.
pub(crate) fn linked(use_: Use, wasm: &[u8]) -> Result<Plugin, CallError> {
    linked_as(use_, wasm, Instances::Fresh)
}

/// The same, with instances that may be reused.
pub(crate) fn linked_as(use_: Use, wasm: &[u8], instances: Instances) -> Result<Plugin, CallError> {
    let Accepted { wasm, form, .. } = accept(wasm).unwrap();
    let engine = engines().for_use(use_);
    let code = match form {
        BinaryForm::Component | BinaryForm::Module => Code::Component(Component::new(engine, &wasm).unwrap()),
        BinaryForm::Command => Code::Command(wasmtime::Module::new(engine, &wasm).unwrap()),
    };
    Plugin::new(engines(), use_, (&code, Version::V0_1), "{}", limits(use_), instances)
}

/// The bodies of a scorer's functions. A response is the address of its memory. The first kilobytes are zero, and zeros mean an empty
/// description, an accepted configuration, and no scores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Module {
    /// The WASI interfaces that it imports in addition to the log, and the WIT world that imports them.
    pub(crate) wit: &'static str,
    /// The functions of these interfaces.
    pub(crate) imports: &'static str,
    pub(crate) start: &'static str,
    pub(crate) realloc: &'static str,
    pub(crate) configure: &'static str,
    pub(crate) score: &'static str,
    pub(crate) describe: &'static str,
    pub(crate) explain: &'static str,
    /// Its data segments, such as `DESCRIPTION`.
    pub(crate) data: &'static str,
}

impl Default for Module {
    fn default() -> Self {
        Self {
            wit: "",
            imports: "",
            start: "",
            realloc: "(i32.const 32768)",
            configure: "(i32.const 16)",
            score: "(i32.const 16)",
            describe: "(i32.const 1024)",
            explain: "(i32.const 16)",
            data: "",
        }
    }
}

/// The description of a scorer for the feature queue-length of endpoints: name and version, one point, no schema, one set.
pub(crate) const DESCRIPTION: &str = r#"
    (data (i32.const 1024) "\00\08\00\00\01\00\00\00" "\00\08\00\00\01\00\00\00" "\08\08\00\00\01\00\00\00"
        "\00\00\00\00\00\00\00\00" "\10\08\00\00\01\00\00\00" "\00")
    (data (i32.const 2048) "t")
    (data (i32.const 2056) "\03")
    (data (i32.const 2064) "\02\00\00\00" "\20\08\00\00\01\00\00\00")
    (data (i32.const 2080) "\28\08\00\00\0c\00\00\00" "queue-length")"#;

/// The core module of a scorer, with its interfaces.
pub(crate) fn plugin(module: &Module) -> Vec<u8> {
    let Module { wit, imports, start, realloc, configure, score, describe, explain, data } = module;
    let text = format!(
        r#"(module
            (import "pointsman:policy/log@0.1.0" "write" (func $log (param i32 i32 i32)))
            {imports}
            (memory (export "memory") 1)
            (table 1 funcref)
            {data}
            (func $start {start})
            (start $start)
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) {realloc})
            (func (export "pointsman:policy/plugin@0.1.0#describe") (result i32) {describe})
            (func (export "pointsman:policy/plugin@0.1.0#configure") (param i32 i32) (result i32) {configure})
            (func $score (export "pointsman:policy/scheduling-scoring@0.1.0#score") (param i32 i32 i32 i32) (result i32) {score})
            (func (export "pointsman:policy/scheduling-scoring@0.1.0#explain") (param i32 i32 i32 i32 i32) (result i32) {explain}))"#
    );
    let mut bytes = wat::parse_str(text).unwrap();
    let mut resolve = Resolve::default();
    let (mut package, _) = resolve.push_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit/0.1.0")).unwrap();
    let mut world = "scheduling-scorer";
    if !wit.is_empty() {
        (package, world) = (resolve.push_str("test.wit", wit).unwrap(), "scorer");
    }
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    embed_component_metadata(&mut bytes, &resolve, world, StringEncoding::UTF8, false).unwrap();
    bytes
}

/// A request for the scores of endpoints with one column.
pub(crate) fn endpoints(matrix: &[f64]) -> RequestRef<'_> {
    RequestRef { question: Question::EndpointPick, columns: 1, matrix, facts: &[] }
}

/// A WASI command. Its body can `$answer` with `stdout`, and `$say` bytes of its memory on a descriptor.
pub(crate) fn command(stdout: &[u8], body: &str) -> Vec<u8> {
    let data = stdout.iter().map(|byte| format!("\\{byte:02x}")).collect::<Vec<_>>().concat();
    let length = stdout.len();
    let imports: String = [
        ("fd_write", "(param i32 i32 i32 i32) (result i32)"),
        ("fd_read", "(param i32 i32 i32 i32) (result i32)"),
        ("fd_prestat_get", "(param i32 i32) (result i32)"),
        ("path_open", "(param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)"),
        ("poll_oneoff", "(param i32 i32 i32 i32) (result i32)"),
        ("clock_time_get", "(param i32 i64 i32) (result i32)"),
        ("random_get", "(param i32 i32) (result i32)"),
        ("sock_shutdown", "(param i32 i32) (result i32)"),
        ("proc_exit", "(param i32)"),
    ]
    .map(|(name, type_)| format!("(import \"wasi_snapshot_preview1\" \"{name}\" (func ${name} {type_}))"))
    .concat();
    let text = format!(
        r#"(module
            {imports}
            (memory (export "memory") 3)
            (data (i32.const 65536) "{data}")
            (func $say (param $fd i32) (param $from i32) (param $length i32)
                (i32.store (i32.const 0) (local.get $from))
                (i32.store (i32.const 4) (local.get $length))
                (drop (call $fd_write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))))
            (func $answer (call $say (i32.const 1) (i32.const 65536) (i32.const {length})))
            (func (export "_start") (local $i i32) {body}))"#
    );
    wat::parse_str(text).unwrap()
}

/// A core module with an arbitrary description of its interfaces.
pub(crate) fn described_by(description: &[u8]) -> Vec<u8> {
    let text = description.iter().map(|byte| format!("\\{byte:02x}")).collect::<Vec<_>>().concat();
    wat::parse_str(format!("(module (@custom \"component-type:any\" \"{text}\"))")).unwrap()
}

/// A component that exports empty instances.
pub(crate) fn component_exporting(names: &[&str]) -> Vec<u8> {
    let exports = names.iter().map(|name| format!("(export \"{name}\" (instance $empty))")).collect::<Vec<_>>().concat();
    wat::parse_str(format!("(component (component $nothing) (instance $empty (instantiate $nothing)) {exports})")).unwrap()
}
