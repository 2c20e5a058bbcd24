use super::*;

fn rule(models: &[&str], targets: &[(&str, Option<u32>)]) -> Rule {
    Rule {
        models: models.iter().map(|model| (*model).to_owned()).collect(),
        targets: targets.iter().map(|(model, weight)| Target { model: (*model).to_owned(), weight: *weight }).collect(),
    }
}

fn rewrite(created: i64, name: &str, rules: Vec<Rule>) -> ModelRewrite {
    ModelRewrite { created, name: ("ml".to_owned(), name.to_owned()), rules }
}

/// Numbers that are evenly distributed over the whole range.
fn spread(number: u64) -> impl Iterator<Item = u64> {
    (0..number).map(move |at| at * (u64::MAX / number) + 1)
}

#[test]
fn a_rule_for_the_model_counts_before_one_for_all_and_the_older_object_before_the_newer() {
    let rewrites = ModelRewrites::new(vec![
        rewrite(20, "new", vec![rule(&["llama"], &[("llama-new", None)]), rule(&["qwen"], &[("qwen-2", None)])]),
        rewrite(10, "old", vec![rule(&[], &[("any-old", None)]), rule(&["llama", "llama-alias"], &[("llama-old", None)])]),
        rewrite(5, "oldest", vec![rule(&["mixtral"], &[])]),
    ]);
    for (model, expected) in [
        ("llama", Some("llama-old")),
        ("llama-alias", Some("llama-old")),
        ("qwen", Some("qwen-2")),
        ("phi", Some("any-old")),
        // A rule without targets overrides the rule for all models.
        ("mixtral", None),
        ("any-old", None),
    ] {
        assert_eq!(rewrites.target(model, 7), expected, "{model}");
    }
    assert_eq!(ModelRewrites::default().target("llama", 7), None);
}

#[test]
fn of_one_age_the_name_decides_and_in_one_object_the_first_rule() {
    let same = |name: &str| rewrite(1, name, vec![rule(&["a"], &[(name, None)]), rule(&["a"], &[("later", None)])]);
    let rewrites = ModelRewrites::new(vec![same("y"), same("x")]);
    assert_eq!(rewrites.target("a", 7), Some("x"));
}

#[test]
fn targets_get_as_many_requests_as_their_weights_say() {
    for (targets, expected) in [
        (&[("a", Some(1)), ("b", Some(9))][..], &[("a", 100), ("b", 900)][..]),
        (&[("a", None), ("b", None)], &[("a", 500), ("b", 500)]),
        (&[("a", Some(3)), ("b", None), ("c", Some(1))], &[("a", 750), ("c", 250)]),
        (&[("a", Some(u32::MAX)), ("b", Some(u32::MAX))], &[("a", 500), ("b", 500)]),
    ] {
        let rewrites = ModelRewrites::new(vec![rewrite(1, "x", vec![rule(&[], targets)])]);
        let mut counts: HashMap<&str, i32> = HashMap::new();
        for random in spread(1_000) {
            *counts.entry(rewrites.target("m", random).unwrap()).or_default() += 1;
        }
        assert_eq!(counts.len(), expected.len());
        assert!(expected.iter().all(|(model, count)| (counts[model] - count).abs() <= 1), "{counts:?}");
    }
    let all = ModelRewrites::new(vec![rewrite(1, "x", vec![rule(&[], &[("a", Some(0)), ("b", Some(0))])])]);
    assert_eq!([0, 1, u64::MAX].map(|random| all.target("m", random)), [None; 3]);
}
