//! The audit of the shipped roles: how all tests of a run used them.

use pointsman::permissions::{Feature, features};
use pointsman_core::objects::{Metadata, access};
use pointsman_tests::{
    grants::{Right, records},
    is_full,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Rights that no request uses visibly, as group, resource and verb, with the reason for granting them.
const UNSEEN: [([&str; 3], &str); 5] = [
    (["ome.io", "inferenceservices/finalizers", "update"], OWNERS),
    (["ome.io", "benchmarkjobs/finalizers", "update"], OWNERS),
    (["ome.io", "trainingjobs/finalizers", "update"], OWNERS),
    (["serving.kserve.io", "llminferenceservices/finalizers", "update"], OWNERS),
    (["inference.eh-ops.io", "inferencemodels/finalizers", "update"], OWNERS),
];

const OWNERS: &str = "clusters with OwnerReferencesPermissionEnforcement require it of whoever names the object as an owner";

/// The rights in the Roles that the host creates for services. Nobody may grant rights that they lack, so the host has these too, even
/// though it doesn't use them itself.
fn given() -> BTreeSet<[String; 3]> {
    let roles = [access::sees_pods(Metadata::default()), access::picks_endpoints_by_leader(Metadata::default(), "", "")];
    roles.iter().flat_map(|role| granted(role["rules"].as_array().unwrap())).collect()
}

/// The rights of some rules, as group, resource and verb.
fn granted(rules: &[Value]) -> Vec<[String; 3]> {
    let list = |value: &Value| -> Vec<String> { value.as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect() };
    let mut rights = Vec::new();
    for rule in rules {
        for group in list(&rule["apiGroups"]) {
            for resource in list(&rule["resources"]) {
                rights.extend(list(&rule["verbs"]).into_iter().map(|verb| [group.clone(), resource.clone(), verb]));
            }
        }
    }
    rights
}

#[test]
#[ignore = "`cargo xtask test` runs it after all others, whose requests it reads"]
fn hosts_use_every_right_that_is_granted_and_are_refused_nothing() {
    let records = records();
    let mut used: BTreeMap<Right, u64> = BTreeMap::new();
    for (right, times) in records.iter().flat_map(|record| record.used.clone()) {
        *used.entry(right).or_default() += times;
    }
    let times = |[group, resource, verb]: &[String; 3], at_home: bool| -> u64 {
        let same = |right: &Right| (&right.group, &right.resource, &right.verb, right.at_home) == (group, resource, verb, at_home);
        used.iter().filter(|(right, _)| same(right)).map(|(_, times)| times).sum()
    };
    println!("what hosts did with `deploy/roles` on {} control planes, as requests", records.len());
    let given = given();
    let mut unused = BTreeSet::new();
    let mut needless = UNSEEN.to_vec();
    for Feature { name, everywhere, at_home, .. } in features() {
        for (rules, is_home) in [(&everywhere, false), (&at_home, true)] {
            for right in granted(rules) {
                let [group, resource, verb] = &right;
                let times = times(&right, is_home);
                let place = if is_home { " in its own namespace" } else { "" };
                let right_text = format!("{name:<16} {verb:<7} {resource}.{group}{place}");
                let shown = if times > 0 {
                    times.to_string()
                } else if let Some(at) = needless.iter().position(|(unseen, _)| *unseen == right) {
                    format!("never seen: {}", needless.remove(at).1)
                } else if given.contains(&right) && !is_home {
                    "only given on, by Roles of services".to_owned()
                } else {
                    unused.insert(right_text.clone());
                    "never".to_owned()
                };
                println!("  {right_text}: {shown}");
            }
        }
    }
    let refused: BTreeSet<&String> = records.iter().flat_map(|record| &record.refused).collect();
    assert!(refused.is_empty(), "refused to hosts: {refused:#?}");
    // Only long tests use some of the rights.
    assert!(!is_full() || unused.is_empty(), "granted, and never used: {unused:#?}");
    assert!(needless.is_empty(), "exceptions that no right needs any more: {needless:#?}");
}
