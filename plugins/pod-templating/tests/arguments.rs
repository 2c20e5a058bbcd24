//! Command lines: which list is used, and how flags are merged.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod asked;

use asked::{TestRequest, ask};
use pointsman_plugin::Role;
use serde_json::{Value, json};

fn by_flag(weak: &[&str], strong: &[&str]) -> Vec<String> {
    let asked = ask([("runtime", json!({"runner": {"image": "i", "args": weak}})), ("user", json!({"runner": {"args": strong}}))]);
    words(&asked.config(json!({"arguments": "MergeByFlag"})), "args")
}

fn words(asked: &TestRequest, field: &str) -> Vec<String> {
    serde_json::from_value(asked.container()[field].take()).unwrap()
}

fn both(args: &[&str], runner: &[&str]) -> Value {
    json!({"pod": {"containers": [{"name": "ome-container", "image": "i", "args": args, "command": args}]},
        "runner": {"args": runner, "command": runner}})
}

#[test]
fn within_a_layer_the_container_begins_and_the_runner_goes_on() {
    let asked = ask([("runtime", both(&["a", "b"], &["c"]))]);
    assert_eq!(words(&asked, "args"), ["a", "b", "c"]);
    assert_eq!(words(&asked, "command"), ["a", "b", "c"]);
}

#[test]
fn a_list_of_a_stronger_layer_replaces_the_whole_list() {
    let asked = ask([("runtime", both(&["a"], &["b"])), ("user", json!({"runner": {"args": ["c d"]}}))]);
    assert_eq!(words(&asked, "args"), ["c d"], "and nothing is split");
    assert_eq!(words(&asked, "command"), ["a", "b"]);
    let leader = json!({"runner": {"args": ["l"]}});
    assert_eq!(words(&ask([("runtime", both(&["a"], &["b"])), ("runtime-leader", leader)]).role(Role::Leader), "args"), ["l"]);
}

#[test]
fn flags_replace_their_namesakes_in_place() {
    assert_eq!(by_flag(&["--a", "1", "--b=2", "--c"], &["--b", "3", "--d"]), ["--a", "1", "--b", "3", "--c", "--d"]);
    assert_eq!(by_flag(&["--max-model-len", "1"], &["--max_model_len=2"]), ["--max_model_len=2"]);
    assert_eq!(by_flag(&["-n", "1", "-m"], &["-n", "-2"]), ["-n", "-2", "-m"]);
    assert_eq!(by_flag(&["--a=1", "--x", "--a=2"], &["--a=3", "--a=4"]), ["--a=3", "--a=4", "--x"]);
    assert_eq!(by_flag(&["--json", "{\"a\": \"b c\"}"], &["--other=x=y"]), ["--json", "{\"a\": \"b c\"}", "--other=x=y"]);
}

#[test]
fn a_flag_takes_all_its_values_along() {
    assert_eq!(by_flag(&["--name", "a", "b", "--x"], &["--name", "c"]), ["--name", "c", "--x"]);
    assert_eq!(by_flag(&["--name", "a", "--x"], &["--name", "c", "d"]), ["--name", "c", "d", "--x"]);
}

#[test]
fn words_without_a_flag_stay_in_place() {
    assert_eq!(by_flag(&["serve", "model", "--a"], &["serve", "--a", "1"]), ["serve", "model", "--a", "1"]);
    assert_eq!(by_flag(&["--a=1", "model", "--b"], &["--a=2"]), ["--a=2", "model", "--b"]);
    assert_eq!(by_flag(&["--a=1"], &["extra"]), ["--a=1", "extra"]);
}

#[test]
fn a_repeated_word_stands_as_often_as_it_is_said() {
    assert_eq!(by_flag(&["serve"], &["serve", "a", "a"]), ["serve", "a", "a"]);
    assert_eq!(by_flag(&["a", "a"], &["a", "b", "a", "a"]), ["a", "a", "b", "a"]);
}

#[test]
fn what_follows_two_dashes_is_for_another_program() {
    let strong = ["bench", "--tp=1", "--", "--pair", "1", "--pair", "1"];
    assert_eq!(by_flag(&["serve"], &strong), ["serve", "bench", "--tp=1", "--", "--pair", "1", "--pair", "1"]);
    assert_eq!(by_flag(&["--a", "--", "--b"], &["--b"]), ["--a", "--b", "--", "--b"], "a flag stands before it");
    assert_eq!(by_flag(&["--a", "--", "--b"], &["--a", "--", "c"]), ["--a", "--", "c"]);
}

#[test]
fn a_script_is_replaced_and_never_merged() {
    let runtime = json!({"runner": {"image": "i", "command": ["/bin/bash", "-c"], "args": ["exec vllm serve --a 1"]}});
    let user = json!({"runner": {"args": ["exec vllm serve --a 2"]}});
    let asked = ask([("runtime", runtime), ("user", user)]).config(json!({"arguments": "MergeByFlag"}));
    assert_eq!(words(&asked, "args"), ["exec vllm serve --a 2"]);
    assert_eq!(by_flag(&["--a", "1"], &["bash", "-c", "engine --a 2"]), ["bash", "-c", "engine --a 2"]);
}
