//! Components that were built for WASI 0.2: a language runtime can start in it, and nothing else is available.

use crate::text::{self, Module, endpoints, load, plugin};
use pointsman_sandbox::{call::LogLine, engine::Use};
use tracing::Level;

const WIT: &str = "
    package test:wasi;

    package wasi:cli@0.2.3 {
        interface stdout { use wasi:io/streams@0.2.3.{output-stream}; get-stdout: func() -> output-stream; }
        interface stderr { use wasi:io/streams@0.2.3.{output-stream}; get-stderr: func() -> output-stream; }
        interface exit { exit: func(status: result); }
    }
    package wasi:clocks@0.2.3 {
        interface monotonic-clock { now: func() -> u64; }
    }
    package wasi:io@0.2.3 {
        interface error { resource error; }
        interface streams {
            use error.{error};
            variant stream-error { last-operation-failed(error), closed }
            resource output-stream { write: func(contents: list<u8>) -> result<_, stream-error>; }
        }
    }
    package wasi:random@0.2.3 {
        interface random { get-random-bytes: func(len: u64) -> list<u8>; get-random-u64: func() -> u64; }
    }
    package wasi:sockets@0.2.3 {
        interface network { resource network; }
        interface instance-network { use network.{network}; instance-network: func() -> network; }
    }

    world scorer {
        include pointsman:policy/scheduling-scorer@0.1.0;
        import wasi:cli/stdout@0.2.3;
        import wasi:cli/stderr@0.2.3;
        import wasi:cli/exit@0.2.3;
        import wasi:clocks/monotonic-clock@0.2.3;
        import wasi:random/random@0.2.3;
        import wasi:sockets/instance-network@0.2.3;
    }
";

const IMPORTS: &str = r#"
    (import "wasi:cli/stdout@0.2.3" "get-stdout" (func $stdout (result i32)))
    (import "wasi:cli/stderr@0.2.3" "get-stderr" (func $stderr (result i32)))
    (import "wasi:cli/exit@0.2.3" "exit" (func $exit (param i32)))
    (import "wasi:io/streams@0.2.3" "[method]output-stream.write" (func $write (param i32 i32 i32 i32)))
    (import "wasi:io/streams@0.2.3" "[resource-drop]output-stream" (func $drop (param i32)))
    (import "wasi:clocks/monotonic-clock@0.2.3" "now" (func $now (result i64)))
    (import "wasi:random/random@0.2.3" "get-random-bytes" (func $bytes (param i64 i32)))
    (import "wasi:random/random@0.2.3" "get-random-u64" (func $random (result i64)))
    (import "wasi:sockets/instance-network@0.2.3" "instance-network" (func $network (result i32)))
"#;

fn scorer(score: &'static str) -> Vec<u8> {
    plugin(&Module { wit: WIT, imports: IMPORTS, score, ..Module::default() })
}

fn asked(score: &'static str) -> String {
    load(Use::ControlPlane, &scorer(score)).score(endpoints(&[])).unwrap_err().to_string()
}

#[test]
fn clock_and_random_are_constants_so_the_same_question_costs_the_same() {
    let plugin = load(
        Use::ControlPlane,
        &scorer(
            "(if (i64.ne (call $now) (i64.const 1)) (then unreachable)) (if (i64.ne (call $random) (i64.const 0)) (then unreachable))
            (i64.store (i32.const 32768) (i64.const -1)) (call $bytes (i64.const 8) (i32.const 64))
            (if (i64.ne (i64.load (i32.load (i32.const 64))) (i64.const 0)) (then unreachable)) (i32.const 16)",
        ),
    );
    let [first, second] = [(); 2].map(|()| plugin.score(endpoints(&[])).unwrap());
    assert_eq!((first.0, first.1.fuel), (second.0, second.1.fuel));
}

#[test]
fn what_is_written_becomes_lines_of_the_log() {
    let plugin = load(
        Use::ControlPlane,
        &scorer(
            "(i32.store (i32.const 64) (i32.const 0x0a62610a))
            (call $write (local.tee 0 (call $stdout)) (i32.const 64) (i32.const 4) (i32.const 80)) (call $drop (local.get 0))
            (call $write (call $stderr) (i32.const 65) (i32.const 2) (i32.const 80)) (i32.const 16)",
        ),
    );
    let (_, spent) = plugin.score(endpoints(&[])).unwrap();
    let line = |level| LogLine { level, message: "ab".to_owned() };
    assert_eq!(spent.log, [line(Level::DEBUG), line(Level::WARN)]);
}

#[test]
fn whatever_a_plugin_wants_of_wasi_the_host_survives_and_says_what() {
    let cases = [
        (
            "a socket",
            "(drop (call $network)) (i32.const 16)",
            "it called wasi:sockets/instance-network@0.2.3#instance-network: policies are pure",
        ),
        ("an exit", "(call $exit (i32.const 1)) (i32.const 16)", "it exited with code 1"),
        (
            "last words",
            "(i32.store (i32.const 64) (i32.const 0x0a62610a)) (call $write (call $stderr) (i32.const 64) (i32.const 4) (i32.const 80)) unreachable",
            "on stderr: ab",
        ),
        ("a loop of clock calls", "(loop (drop (call $now)) (br 0)) unreachable", "called the host more than 10000 times"),
        ("a loop of handles", "(loop (drop (call $stdout)) (br 0)) unreachable", "called the host more than 10000 times"),
        ("a foreign handle", "(call $write (i32.const 7) (i32.const 64) (i32.const 1) (i32.const 80)) unreachable", "unknown handle"),
        ("a handle that was dropped", "(call $drop (local.tee 0 (call $stdout))) (call $drop (local.get 0)) unreachable", "unknown handle"),
        ("too many random bytes", "(call $bytes (i64.const -1) (i32.const 64)) unreachable", "random bytes at once"),
        (
            "too much text at once",
            "(drop (memory.grow (i32.const 2))) (call $write (call $stdout) (i32.const 64) (i32.const 65537) (i32.const 80)) unreachable",
            "it wrote 65537 bytes at once",
        ),
        (
            "text from beyond its memory",
            "(call $write (call $stdout) (i32.const 64) (i32.const -1) (i32.const 80)) unreachable",
            "out of bounds",
        ),
    ];
    for (what, score, says) in cases {
        let said = asked(score);
        assert!(said.contains(says), "{what}: {said}");
        assert!(said.len() < 400 && !said.contains('\n'), "{what}: {said}");
    }
}

#[test]
fn a_function_of_another_type_than_wasi_s_is_refused_with_a_sentence() {
    let wrong = plugin(&Module {
        wit: "package test:wasi; package wasi:random@0.2.3 { interface random { get-random-u64: func() -> string; } }
            world scorer { include pointsman:policy/scheduling-scorer@0.1.0; import wasi:random/random@0.2.3; }",
        imports: r#"(import "wasi:random/random@0.2.3" "get-random-u64" (func $random (param i32)))"#,
        ..Module::default()
    });
    let said = text::linked(Use::ControlPlane, &wrong).unwrap_err().to_string();
    assert!(said.contains("can't be instantiated") && said.contains("get-random-u64"), "{said}");
}
