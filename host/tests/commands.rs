//! Commands: their input and output, and the handling of malicious ones.

use crate::text::{SLACK, command, endpoints, limits, load};
use pointsman_sandbox::{binary::accept, call::CallError, engine::Use, point::describe::flaw};
use proptest::prelude::*;
use std::time::Instant;

const SCORES: &[u8] = br#"{"ok": [0, 1e0]}"#;

/// Scores two candidates, and returns the scores or the error.
fn asked(use_: Use, wasm: &[u8]) -> Result<Vec<f64>, String> {
    let plugin = load(use_, wasm);
    let started = Instant::now();
    let scores = plugin.score(endpoints(&[0.5, f64::NAN]));
    assert!(started.elapsed() < limits(use_).deadline + SLACK, "the deadline isn't enforced");
    scores.map(|(scores, _)| scores).map_err(|error| error.to_string())
}

#[test]
fn a_well_behaved_command_answers() {
    for use_ in [Use::ControlPlane, Use::Hot] {
        for body in ["(call $answer)", "(call $answer) (call $proc_exit (i32.const 0))"] {
            assert_eq!(asked(use_, &command(SCORES, body)), Ok(vec![0.0, 1.0]));
        }
    }
}

/// Reads all input and writes it to stderr.
const REPEAT: &str = "(i32.store (i32.const 16) (i32.const 1024)) (i32.store (i32.const 20) (i32.const 9000))
    (drop (call $fd_read (i32.const 0) (i32.const 16) (i32.const 1) (i32.const 24)))
    (call $say (i32.const 2) (i32.const 1024) (i32.load (i32.const 24))) (call $answer)";

#[test]
fn a_question_is_one_json_document_on_stdin_and_stderr_is_the_log() {
    let (_, spent) = load(Use::ControlPlane, &command(SCORES, REPEAT)).score(endpoints(&[0.5, f64::NAN])).unwrap();
    let [line] = &spent.log[..] else { panic!("{:?}", spent.log) };
    let read: serde_json::Value = serde_json::from_str(&line.message).unwrap();
    let request = serde_json::json!({ "question": "endpoint-pick", "columns": 1, "matrix": [0.5, null] });
    assert_eq!(read, serde_json::json!({ "call": "score", "config": {}, "request": request }));
    assert_eq!(line.level, tracing::Level::WARN);

    let plugin = load(Use::ControlPlane, &command(br#"{"ok": {"name": "any", "points": ["pod-templating"]}}"#, REPEAT));
    let (description, spent) = plugin.describe().unwrap();
    assert_eq!((description.name.as_str(), flaw(&description, &[])), ("any", None));
    assert_eq!(spent.log[0].message, r#"{"call":"describe"}"#);
}

#[test]
fn a_configuration_is_taken_or_refused_with_a_sentence() {
    let taken = |stdout: &[u8]| load(Use::ControlPlane, &command(stdout, "(call $answer)")).takes_config().map(drop);
    assert_eq!(taken(br#"{"ok": null}"#), Ok(()));
    assert_eq!(taken(br#"{"err": "no such label"}"#), Err(CallError::Config("no such label".to_owned())));
}

#[test]
fn clock_and_random_are_constants_so_the_same_question_costs_the_same() {
    let body = "(drop (call $clock_time_get (i32.const 0) (i64.const 1) (i32.const 16)))
        (drop (call $clock_time_get (i32.const 1) (i64.const 1) (i32.const 24)))
        (i64.store (i32.const 32) (i64.const -1)) (drop (call $random_get (i32.const 32) (i32.const 8)))
        (if (i64.ne (i64.load (i32.const 16)) (i64.const 0)) (then unreachable))
        (if (i64.ne (i64.load (i32.const 24)) (i64.const 1)) (then unreachable))
        (if (i64.ne (i64.load (i32.const 32)) (i64.const 0)) (then unreachable)) (call $answer)";
    let plugin = load(Use::ControlPlane, &command(SCORES, body));
    let [first, second] = [(); 2].map(|()| plugin.score(endpoints(&[0.5, 1.0])).unwrap());
    assert_eq!((first.0, first.1.fuel), (second.0, second.1.fuel));
}

#[test]
fn wild_pointers_absent_files_and_waiting_are_answered_with_a_number() {
    // The return value of each call: EFAULT, EBADF, EINVAL, or immediate success.
    let calls = [
        ("(call $fd_write (i32.const 1) (i32.const -4) (i32.const 1) (i32.const 8))", 21),
        ("(call $fd_write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const -1))", 21),
        (
            "(i32.store (i32.const 16) (i32.const -9)) (i32.store (i32.const 20) (i32.const 16)) (call $fd_write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 8))",
            21,
        ),
        (
            "(i32.store (i32.const 16) (i32.const -9)) (i32.store (i32.const 20) (i32.const 16)) (call $fd_read (i32.const 0) (i32.const 16) (i32.const 1) (i32.const 8))",
            21,
        ),
        ("(call $fd_write (i32.const 1) (i32.const 16) (i32.const -1) (i32.const 8))", 28),
        ("(call $fd_write (i32.const 0) (i32.const 16) (i32.const 1) (i32.const 8))", 8),
        ("(call $fd_read (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 8))", 8),
        ("(call $random_get (i32.const -1) (i32.const 2))", 21),
        ("(call $random_get (i32.const 0) (i32.const -1))", 28),
        ("(call $clock_time_get (i32.const 0) (i64.const 0) (i32.const 0x7fffffff))", 21),
        ("(call $poll_oneoff (i32.const -48) (i32.const 0) (i32.const 1) (i32.const 8))", 21),
        ("(call $poll_oneoff (i32.const 0) (i32.const 0) (i32.const -1) (i32.const 8))", 28),
        ("(call $poll_oneoff (i32.const 512) (i32.const 1024) (i32.const 2) (i32.const 8))", 0),
        ("(call $fd_prestat_get (i32.const 3) (i32.const 16))", 8),
        (
            "(call $path_open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 0))",
            8,
        ),
    ];
    for (call, number) in calls {
        // Only the last call is compared; the statements before it precede the comparison.
        let (before, call) = call.rsplit_once("(call").map(|(before, call)| (before, format!("(call{call}"))).unwrap();
        let body = format!("{before} (if (i32.ne {call} (i32.const {number})) (then unreachable)) (call $answer)");
        assert_eq!(asked(Use::ControlPlane, &command(SCORES, &body)), Ok(vec![0.0, 1.0]), "{call}");
    }
}

#[test]
fn whatever_a_command_does_the_host_survives_and_says_what() {
    let cases: &[(&str, &[u8], &str, &str)] = &[
        ("an endless loop", b"", "(loop (br 0))", "units of fuel"),
        (
            "an endless loop of host calls",
            b"x",
            "(loop (call $say (i32.const 2) (i32.const 65536) (i32.const 1)) (br 0))",
            "called the host more than 10000 times",
        ),
        (
            "reading without end",
            b"",
            "(loop (drop (call $fd_read (i32.const 0) (i32.const 16) (i32.const 1) (i32.const 24))) (br 0))",
            "called the host more than",
        ),
        (
            "sleeping without end",
            b"",
            "(loop (drop (call $poll_oneoff (i32.const 512) (i32.const 1024) (i32.const 1) (i32.const 8))) (br 0))",
            "called the host more than",
        ),
        ("a memory bomb", b"", "(loop (drop (memory.grow (i32.const 16))) (br 0))", "16 MiB of memory"),
        ("a huge answer", b"", "(loop (call $say (i32.const 1) (i32.const 65536) (i32.const 60000)) (br 0))", "larger than its 1024 KiB"),
        ("a trap", b"", "unreachable", "unreachable"),
        (
            "last words before a trap",
            b"ValueError: no\n",
            "(call $say (i32.const 2) (i32.const 65536) (i32.const 15)) unreachable",
            "on stderr: ValueError: no",
        ),
        ("an exit code", b"", "(call $proc_exit (i32.const 3))", "it exited with code 3"),
        ("an answer and an exit code", SCORES, "(call $answer) (call $proc_exit (i32.const 3))", "it exited with code 3"),
        (
            "last words before an exit",
            b"panic: why\n\nmain.go:5",
            "(call $say (i32.const 2) (i32.const 65536) (i32.const 21)) (call $proc_exit (i32.const 2))",
            "code 2; on stderr: panic: why",
        ),
        (
            "a socket",
            b"",
            "(drop (call $sock_shutdown (i32.const 3) (i32.const 0)))",
            "it called wasi_snapshot_preview1.sock_shutdown: policies are pure",
        ),
        ("no answer", b"", "", "its stdout is empty"),
        ("no JSON", b"hello", "(call $answer)", "at line 1 column 1"),
        ("no text", b"{\"ok\": [\"\xff\"]}", "(call $answer)", "at line 1 column"),
        ("half an answer", br#"{"ok": [0"#, "(call $answer)", "EOF while parsing"),
        ("two answers", b"{\"ok\": [0, 1]}\n{\"ok\": [0, 1]}", "(call $answer)", "trailing characters at line 2"),
        ("an answer of no form", b"[0, 1]", "(call $answer)", "the one field `ok` or the one field `err`"),
        ("an empty object", b"{}", "(call $answer)", "it needs the field `ok` or `err`"),
        ("another field", br#"{"okay": [0, 1]}"#, "(call $answer)", "unknown field `okay`"),
        ("both fields", br#"{"ok": [0, 1], "err": {"message": ""}}"#, "(call $answer)", "more than one field"),
        ("an image of another kind", br#"{"ok": {"scores": [0, 1]}}"#, "(call $answer)", "invalid type: map"),
        ("a number beyond numbers", br#"{"ok": [0, 1e999]}"#, "(call $answer)", "out of range"),
        ("too few scores", br#"{"ok": [0]}"#, "(call $answer)", "1 scores for 2 candidates"),
        ("an excuse", br#"{"err": {"message": "no\nmodel"}}"#, "(call $answer)", "returned an error: no model"),
        ("an excuse of another kind", br#"{"err": "no model"}"#, "(call $answer)", "invalid type: string"),
    ];
    for (what, stdout, body, says) in cases {
        let said = asked(Use::ControlPlane, &command(stdout, body)).expect_err(what);
        assert!(said.contains(says), "{what}: {said}");
        assert!(said.len() < 400 && !said.contains('\n'), "{what}: {said}");
    }
    let deep = [&br#"{"ok": "#[..], &b"[".repeat(60_000)].concat();
    let said = asked(Use::ControlPlane, &command(&deep, "(call $answer)")).unwrap_err();
    assert!(said.contains("its answer is invalid"), "{said}");
    assert_eq!(asked(Use::Hot, &command(b"", "(loop (br 0))")).unwrap_err(), "it took longer than its 200 ms");
}

#[test]
fn a_module_that_is_no_whole_command_is_refused_with_the_reason() {
    let wasi = "(import \"wasi_snapshot_preview1\" \"sched_yield\" (func (result i32)))";
    let start = "(func (export \"_start\"))";
    let memory = "(memory (export \"memory\") 1)";
    let cases = [
        ("a function of another module", format!("(import \"env\" \"foo\" (func)) {start} {memory}"), "it imports env.foo,"),
        (
            "a function that WASI hasn't",
            format!("(import \"wasi_snapshot_preview1\" \"fork\" (func)) {start} {memory}"),
            "it imports wasi_snapshot_preview1.fork,",
        ),
        (
            "a memory of the host's",
            format!("(import \"wasi_snapshot_preview1\" \"fd_read\" (memory 1)) {start}"),
            "it imports wasi_snapshot_preview1.fd_read,",
        ),
        ("a library", format!("{wasi} {memory}"), "it is built for WASI, but exports no _start"),
        ("a start that is no function", format!("{wasi} {memory} (global (export \"_start\") i32 (i32.const 0))"), "exports no _start"),
        ("no memory", format!("{wasi} {start}"), "exports no memory"),
    ];
    for (what, module, says) in cases {
        let said = accept(&wat::parse_str(format!("(module {module})")).unwrap()).expect_err(what).to_string();
        assert!(said.contains(says), "{what}: {said}");
    }
}

fn cases() -> u32 {
    if std::env::var_os("POINTSMAN_TEST_FULL").is_some() { 5_000 } else { 100 }
}

/// Various invalid outputs: bytes, text similar to JSON, and responses with one changed byte.
fn stdouts() -> impl Strategy<Value = Vec<u8>> {
    let answer: &[u8] =
        br#"{"ok":{"labels":[{"key":"a","value":"b","layer":"plugin"}],"annotations":null,"reasons":[{"code":"A","message":"b"}]}}"#;
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64),
        r#"\{"(ok|err)":[\[\]{}",:a-z0-9\.\-e]{0,40}\}"#.prop_map(String::into_bytes),
        (0..answer.len(), any::<u8>()).prop_map(move |(place, byte)| {
            let mut changed = answer.to_vec();
            changed[place] = byte;
            changed
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn whatever_a_command_writes_is_an_answer_or_gives_a_sentence(stdout in stdouts()) {
        use pointsman_sandbox::point::{Subject, propagation};
        let plugin = load(Use::ControlPlane, &command(&stdout, "(call $answer)"));
        let (subject, target) = (Subject::default(), propagation::Target::default());
        let request = propagation::RequestRef { subject: &subject, target: &target, layers: &[], labels: &[], annotations: &[], now: None, facts: &[] };
        let outcomes = [
            plugin.describe().map(drop),
            plugin.takes_config().map(drop),
            plugin.propagate(request).map(drop),
            plugin.score(endpoints(&[0.5, 1.0])).map(drop),
        ];
        for error in outcomes.into_iter().filter_map(Result::err) {
            let said = error.to_string();
            prop_assert!(!said.is_empty() && said.len() < 1500 && !said.contains('\n'), "{said}");
        }
    }
}
