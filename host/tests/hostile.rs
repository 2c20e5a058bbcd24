//! Malicious or broken plugins: the host survives each of them and reports the problem in one sentence.

use crate::text::{self, LIMITS, Module, SLACK, endpoints, limits, linked_as, load, plugin};
use pointsman_sandbox::{
    binary::accept,
    engine::Use,
    limits::LARGEST_BINARY,
    plugin::{Instances, Plugin},
};
use proptest::prelude::*;
use std::time::Instant;

/// Scores two candidates, and returns the scores or the error.
fn asked(use_: Use, module: &Module) -> Result<Vec<f64>, String> {
    let plugin = load(use_, &plugin(module));
    let started = Instant::now();
    let scores = plugin.score(endpoints(&[0.5, 1.0]));
    assert!(started.elapsed() < limits(use_).deadline + SLACK, "the deadline isn't enforced");
    scores.map(|(scores, _)| scores).map_err(|error| error.to_string())
}

#[test]
fn a_well_behaved_plugin_answers() {
    let answers = Module {
        score: "(i32.store (i32.const 16) (i32.const 0)) (i32.store (i32.const 20) (i32.const 64)) (i32.store (i32.const 24) (i32.const 2)) (f64.store (i32.const 72) (f64.const 1)) (i32.const 16)",
        ..Module::default()
    };
    for use_ in [Use::ControlPlane, Use::Hot] {
        assert_eq!(asked(use_, &answers), Ok(vec![0.0, 1.0]));
    }
}

#[test]
fn whatever_a_plugin_does_the_host_survives_and_says_what() {
    let cases = [
        ("an endless loop", Module { score: "(loop (br 0)) (unreachable)", ..Module::default() }, "units of fuel"),
        (
            "an endless loop of host calls",
            Module { score: "(loop (call $log (i32.const 2) (i32.const 64) (i32.const 100)) (br 0)) (unreachable)", ..Module::default() },
            "called the host more than 10000 times",
        ),
        (
            "a memory bomb",
            Module { score: "(loop (drop (memory.grow (i32.const 16))) (br 0)) (unreachable)", ..Module::default() },
            "16 MiB of memory",
        ),
        (
            "a table bomb",
            Module { score: "(loop (drop (table.grow 0 (ref.null func) (i32.const 10000))) (br 0)) (unreachable)", ..Module::default() },
            "16 MiB of memory",
        ),
        (
            "deep recursion",
            Module { score: "(call $score (local.get 0) (local.get 1) (local.get 2) (local.get 3))", ..Module::default() },
            "stack",
        ),
        ("a trap in score", Module { score: "unreachable", ..Module::default() }, "unreachable"),
        ("a trap in configure", Module { configure: "unreachable", ..Module::default() }, "unreachable"),
        ("a trap at the start", Module { start: "unreachable", ..Module::default() }, "unreachable"),
        ("an endless start", Module { start: "(loop (br 0))", ..Module::default() }, "units of fuel"),
        ("a division by zero", Module { score: "(i32.div_u (i32.const 1) (i32.const 0))", ..Module::default() }, "divide by zero"),
        (
            "a huge answer",
            Module {
                score: "(drop (memory.grow (i32.const 200))) (i32.store (i32.const 20) (i32.const 64)) (i32.store (i32.const 24) (i32.const 1000000)) (i32.const 16)",
                ..Module::default()
            },
            "larger than its 1024 KiB",
        ),
        (
            "an answer beyond its memory",
            Module {
                score: "(i32.store (i32.const 20) (i32.const 64)) (i32.store (i32.const 24) (i32.const 100000000)) (i32.const 16)",
                ..Module::default()
            },
            "out of bounds",
        ),
        ("an answer at no place", Module { score: "(i32.const -16)", ..Module::default() }, "out of bounds"),
        ("an answer at a crooked place", Module { score: "(i32.const 17)", ..Module::default() }, "not aligned"),
        (
            "an answer of no known form",
            Module { score: "(i32.store8 (i32.const 16) (i32.const 9)) (i32.const 16)", ..Module::default() },
            "discriminant",
        ),
        (
            "too few scores",
            Module {
                score: "(i32.store (i32.const 20) (i32.const 64)) (i32.store (i32.const 24) (i32.const 1)) (i32.const 16)",
                ..Module::default()
            },
            "1 scores for 2 candidates",
        ),
        (
            "an excuse that is no text",
            Module {
                configure: "(i32.store8 (i32.const 16) (i32.const 1)) (i32.store (i32.const 20) (i32.const 64)) (i32.store (i32.const 24) (i32.const 1)) (i32.store8 (i32.const 64) (i32.const 255)) (i32.const 16)",
                ..Module::default()
            },
            "UTF-8",
        ),
        (
            "a refused configuration",
            Module { configure: "(i32.store8 (i32.const 16) (i32.const 1)) (i32.const 16)", ..Module::default() },
            "rejects its configuration",
        ),
        (
            "an excuse",
            Module { score: "(i32.store8 (i32.const 16) (i32.const 1)) (i32.const 16)", ..Module::default() },
            "returned an error",
        ),
        ("a realloc that traps", Module { realloc: "unreachable", ..Module::default() }, "unreachable"),
        ("a realloc that lies", Module { realloc: "(i32.const -8)", ..Module::default() }, "beyond end of memory"),
    ];
    for (what, module, says) in cases {
        let said = asked(Use::ControlPlane, &module).expect_err(what);
        assert!(said.contains(says), "{what}: {said}");
        assert!(said.len() < 400 && !said.contains("backtrace"), "{what}: {said}");
    }
}

#[test]
fn without_fuel_the_deadline_ends_a_loop() {
    let said = asked(Use::Hot, &Module { score: "(loop (br 0)) (unreachable)", ..Module::default() }).unwrap_err();
    assert_eq!(said, "it took longer than its 200 ms");
}

#[test]
fn one_plugin_s_loop_does_not_hold_up_another_s_answers() {
    let bad = load(Use::Hot, &plugin(&Module { score: "(loop (br 0)) (unreachable)", ..Module::default() }));
    let good = load(Use::Hot, &plugin(&Module { score: "(i32.store (i32.const 24) (i32.const 0)) (i32.const 16)", ..Module::default() }));
    std::thread::scope(|scope| {
        let looping = scope.spawn(|| bad.score(endpoints(&[])).unwrap_err());
        let mut answered = 0;
        while !looping.is_finished() {
            good.score(endpoints(&[])).unwrap();
            answered += 1;
        }
        assert!(answered > 0);
    });
}

#[test]
fn what_a_plugin_logs_is_bounded() {
    let chatty = Module {
        score: "(local.set 0 (i32.const 1000)) (loop (call $log (i32.const 2) (i32.const 64) (i32.const 5000)) (br_if 0 (local.tee 0 (i32.sub (local.get 0) (i32.const 1))))) (i32.const 16)",
        ..Module::default()
    };
    let (_, spent) = load(Use::ControlPlane, &plugin(&chatty)).score(endpoints(&[])).unwrap();
    assert_eq!((spent.log.len(), spent.log[0].message.len()), (LIMITS.log_lines, LIMITS.log_line));
}

#[test]
fn bytes_that_are_no_plugin_are_refused_with_the_reason() {
    let good = plugin(&Module::default());
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("nothing", Vec::new(), "it is not WebAssembly"),
        ("text", b"apiVersion: v1".to_vec(), "it is not WebAssembly"),
        ("gzip", vec![0x1f, 0x8b, 8, 0, 0], "compressed with gzip"),
        ("half a plugin", good[..good.len() / 2].to_vec(), "not valid WebAssembly"),
        ("a header alone", good[..8].to_vec(), "neither built from the interfaces"),
        ("a header cut off", good[..6].to_vec(), "not valid WebAssembly"),
        ("an unknown version", b"\0asm\x07\0\0\0".to_vec(), "not valid WebAssembly"),
        ("core wasm that is no policy", wat::parse_str("(module (func (export \"f\")))").unwrap(), "neither built from the interfaces"),
        ("a broken description", text::described_by(b"nonsense"), "can't be turned into a component"),
        ("an empty component", wat::parse_str("(component)").unwrap(), "doesn't export pointsman:policy/plugin@0.1.0"),
        ("no policy point", text::component_exporting(&["pointsman:policy/plugin@0.1.0"]), "exports the interface of no policy point"),
        (
            "another version",
            text::component_exporting(&["pointsman:policy/plugin@0.2.0"]),
            "built for pointsman:policy@0.2.0, and this host speaks 0.1.0",
        ),
        (
            "a WASI that is yet to come",
            wat::parse_str("(component (import \"wasi:clocks/wall-clock@0.3.0\" (instance (export \"now\" (func (result u64))))))")
                .unwrap(),
            "imports wasi:clocks/wall-clock@0.3.0",
        ),
        (
            "a function that looks like ours",
            wat::parse_str("(component (import \"pointsman:policy/types@0.1.0\" (instance (export \"now\" (func (result u64))))))")
                .unwrap(),
            "imports pointsman:policy/types@0.1.0",
        ),
        (
            "the log of another version",
            wat::parse_str("(component (import \"pointsman:policy/log@9.0.0\" (instance)))").unwrap(),
            "built for pointsman:policy@9.0.0",
        ),
        ("a host function", wat::parse_str("(component (import \"run\" (func (param \"command\" string))))").unwrap(), "imports run"),
        ("too much", vec![0; LARGEST_BINARY + 1], "the limit is"),
        ("a memory of 64 bits", wat::parse_str("(module (memory i64 1))").unwrap(), "memory64"),
        ("a shared memory", wat::parse_str("(module (memory 1 1 shared))").unwrap(), "threads"),
    ];
    for (what, bytes, says) in cases {
        let said = accept(&bytes).expect_err(what).to_string();
        assert!(said.contains(says), "{what}: {said}");
        assert!(said.len() < 400, "{what}: {said}");
    }
}

#[test]
fn a_trap_in_any_export_is_told_by_whoever_calls_it() {
    let trapping = |module: Module| load(Use::ControlPlane, &plugin(&module));
    let traps = "unreachable";
    let described = trapping(Module { describe: traps, ..Module::default() }).describe().map(|_| ());
    let configured = trapping(Module { configure: traps, ..Module::default() }).takes_config().map(|_| ());
    let scored = trapping(Module { score: traps, ..Module::default() }).score(endpoints(&[1.0])).map(|_| ());
    let explained = trapping(Module { explain: traps, ..Module::default() }).explain(endpoints(&[1.0]), 0).map(|_| ());
    let started = trapping(Module { start: traps, ..Module::default() }).describe().map(|_| ());
    let allocated = trapping(Module { realloc: traps, ..Module::default() }).score(endpoints(&[1.0])).map(|_| ());
    for outcome in [described, configured, scored, explained, started, allocated] {
        let said = outcome.unwrap_err().to_string();
        assert!(said.contains("unreachable"), "{said}");
    }
}

#[test]
fn only_a_panic_that_was_logged_in_the_same_call_takes_the_place_of_a_trap() {
    let log = |level: u8, length: u8| format!("(call $log (i32.const {level}) (i32.const 3072) (i32.const {length}))");
    let said = |score: String| {
        let data = r#"(data (i32.const 3072) "panicked at policy.c:7: why")"#;
        asked(Use::ControlPlane, &Module { score: score.leak(), data, ..Module::default() }).unwrap_err()
    };
    assert_eq!(said(log(2, 27) + "unreachable"), "it trapped: panicked at policy.c:7: why");
    // A thousand earlier lines fill the log.
    let many = format!("(local.set 0 (i32.const 1000)) (loop {} (br_if 0 (local.tee 0 (i32.sub (local.get 0) (i32.const 1)))))", log(2, 3));
    assert_eq!(said(many + &log(2, 27) + "unreachable"), "it trapped: panicked at policy.c:7: why");
    for other in [log(1, 27), log(2, 3)] {
        let said = said(other + "unreachable");
        assert!(said.contains("`unreachable` instruction executed"), "{said}");
    }
    // The logged panic doesn't replace other errors of a call.
    assert!(said(log(2, 27) + "(loop (br 0)) (unreachable)").contains("units of fuel"));
    // Nor does it replace the error of a later call.
    let before = "(if (i32.load (i32.const 4000)) (then (unreachable))) (i32.store (i32.const 4000) (i32.const 1))";
    let data = r#"(data (i32.const 3072) "panicked at policy.c:7: why")"#;
    let module = Module { score: format!("{before} {} (i32.const 16)", log(2, 27)).leak(), data, ..Module::default() };
    let plugin = linked_as(Use::Hot, &plugin(&module), Instances::Warm).unwrap();
    plugin.score(endpoints(&[])).unwrap();
    let said = plugin.score(endpoints(&[])).unwrap_err().to_string();
    assert!(said.contains("`unreachable` instruction executed"), "{said}");
}

/// Counts its calls in its memory, which only a warm instance keeps.
const TRAPS_ON_THE_THIRD: &str = "(i32.store (i32.const 4000) (i32.add (i32.load (i32.const 4000)) (i32.const 1)))
    (if (i32.ge_u (i32.load (i32.const 4000)) (i32.const 3)) (then (unreachable))) (i32.const 16)";

#[test]
fn an_instance_that_traps_on_the_nth_call_is_dropped_and_a_fresh_one_answers() {
    let module = plugin(&Module { score: TRAPS_ON_THE_THIRD, ..Module::default() });
    let score = |plugin: &Plugin| plugin.score(endpoints(&[])).is_ok();
    let warm = linked_as(Use::Hot, &module, Instances::Warm).unwrap();
    assert_eq!((0..7).map(|_| score(&warm)).collect::<Vec<_>>(), [true, true, false, true, true, false, true]);
    let fresh = load(Use::Hot, &module);
    assert!((0..7).all(|_| score(&fresh)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("POINTSMAN_TEST_FULL").is_some() { 20_000 } else { 300 }))]

    /// The memory of the response, and the strings and lists that it points to, are random.
    #[test]
    fn whatever_a_plugin_answers_the_host_says_what_is_wrong(image in prop::collection::vec(any::<u8>(), 0..48), small: bool) {
        // Pointers and lengths within the memory test more than random ones.
        let byte = |(at, byte): (usize, &u8)| if small && at % 4 > 1 { "\\00".to_owned() } else { format!("\\{byte:02x}") };
        let image: String = image.iter().enumerate().map(byte).collect();
        let data = format!("(data (i32.const 16) \"{image}\") (data (i32.const 1024) \"{image}\")");
        let plugin = load(Use::ControlPlane, &plugin(&Module { data: data.leak(), ..Module::default() }));
        let request = endpoints(&[0.5, 1.0]);
        let errors = [plugin.score(request).err(), plugin.explain(request, 0).err(), plugin.describe().err(), plugin.takes_config().err()];
        for error in errors.into_iter().flatten() {
            let said = error.to_string();
            prop_assert!(!said.is_empty() && said.len() < 1000 && !said.contains('\n'), "{}", said);
        }
    }
}
