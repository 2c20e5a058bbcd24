//! Plugins written in WebAssembly's text, as short as they can be: what an answer looks like in memory is up to the case.

#![allow(dead_code)] // Each test takes what it needs.

use pointsman::policy::point::{Question, scoring::Request};
use std::path::Path;
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The bodies of a scorer's functions. An answer is the address of its image in memory; the first kilobytes are zero, and zeros
/// mean an empty description, a configuration that was taken, and no scores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Module {
    pub(crate) start: &'static str,
    pub(crate) realloc: &'static str,
    pub(crate) configure: &'static str,
    pub(crate) score: &'static str,
}

impl Default for Module {
    fn default() -> Self {
        Self { start: "", realloc: "(i32.const 32768)", configure: "(i32.const 16)", score: "(i32.const 16)" }
    }
}

/// The core module of a scorer, with the interfaces that it is made from.
pub(crate) fn plugin(module: &Module) -> Vec<u8> {
    let Module { start, realloc, configure, score } = module;
    let text = format!(
        r#"(module
            (import "pointsman:policy/log@0.1.0" "write" (func $log (param i32 i32 i32)))
            (memory (export "memory") 1)
            (table 1 funcref)
            (func $start {start})
            (start $start)
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) {realloc})
            (func (export "pointsman:policy/plugin@0.1.0#describe") (result i32) (i32.const 1024))
            (func (export "pointsman:policy/plugin@0.1.0#configure") (param i32 i32) (result i32) {configure})
            (func $score (export "pointsman:policy/scheduling-scoring@0.1.0#score") (param i32 i32 i32 i32) (result i32) {score})
            (func (export "pointsman:policy/scheduling-scoring@0.1.0#explain") (param i32 i32 i32 i32 i32) (result i32) (i32.const 16)))"#
    );
    let mut bytes = wat::parse_str(text).unwrap();
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit")).unwrap();
    let world = resolve.select_world(&[package], Some("scheduling-scorer")).unwrap();
    embed_component_metadata(&mut bytes, &resolve, world, StringEncoding::UTF8, false).unwrap();
    bytes
}

/// Asks for the scores of endpoints that have one column.
pub(crate) fn endpoints(matrix: &[f64]) -> Request<'_> {
    Request { question: Question::EndpointPick, columns: 1, matrix, row: None }
}

/// A core module whose description of its interfaces is anything.
pub(crate) fn described_by(description: &[u8]) -> Vec<u8> {
    let text = description.iter().map(|byte| format!("\\{byte:02x}")).collect::<Vec<_>>().concat();
    wat::parse_str(format!("(module (@custom \"component-type:any\" \"{text}\"))")).unwrap()
}

/// A component that exports instances without anything in them.
pub(crate) fn component_exporting(names: &[&str]) -> Vec<u8> {
    let exports = names.iter().map(|name| format!("(export \"{name}\" (instance $empty))")).collect::<Vec<_>>().concat();
    wat::parse_str(format!("(component (component $nothing) (instance $empty (instantiate $nothing)) {exports})")).unwrap()
}
