//! The metadata of a TrainingJob's objects.

mod asking;

use asking::{Ask, Object, Pairs, PodTemplate, shown, why};
use pointsman_metadata_propagation::Config;
use pointsman_plugin::{
    Role,
    metadata_propagation::{Answer, Place, Sort},
};

const FACTS: Pairs<'static> = &[
    ("ome.io/component", "trainer"),
    ("ome.io/part-of", "tune"),
    ("ome.io/version", "v0.1.0"),
    ("training.ome.io/framework", "pytorch"),
    ("training.ome.io/job-name", "tune"),
    ("training.ome.io/job-uid", "u"),
    ("training.ome.io/replica-type", "worker"),
];

const SUBJECT: (Pairs<'static>, Pairs<'static>) = (
    &[("kueue.x-k8s.io/queue-name", "gpus"), ("team", "research")],
    &[("training.ome.io/resume-from", "/c/3"), ("monitoring.ome.io/scrape", "true"), ("storage.ome.io/size", "1Gi")],
);

fn answer(place: Place, config: &Config) -> Answer {
    let mut ask = Ask::new(place, Some(Role::Trainer), None);
    ask.0.subject.kind = "TrainingJob".into();
    (ask.0.target.group, ask.0.target.kind) = ("batch".into(), "Job".into());
    let ask = ask.layer("subject", SUBJECT.0, SUBJECT.1).layer("component", &[("tier", "gpu")], &[("note", "a")]);
    ask.layer("facts", FACTS, &[]).with(config)
}

#[test]
fn a_job_queues_and_its_pods_do_not() {
    let (object, pods) = (answer(Object, &Config::default()), answer(PodTemplate, &Config::default()));
    let queue = "kueue.x-k8s.io/queue-name=gpus (subject)".to_owned();
    assert!(shown(&object.labels).contains(&queue) && !shown(&pods.labels).contains(&queue));
    assert_eq!(why(&pods, Sort::Label, "subject", "kueue.x-k8s.io/queue-name"), "Internal");
}

#[test]
fn both_carry_the_labels_of_the_page_and_a_template_s_own_are_for_pods() {
    let (object, pods) = (answer(Object, &Config::default()), answer(PodTemplate, &Config::default()));
    for label in
        ["ome.io/component=trainer (facts)", "training.ome.io/job-uid=u (facts)", "component=trainer (plugin)", "team=research (subject)"]
    {
        assert!(shown(&object.labels).iter().any(|known| known == label), "{label}");
        assert!(shown(&pods.labels).iter().any(|known| known == label), "{label}");
    }
    let tier = "tier=gpu (component)".to_owned();
    assert!(shown(&pods.labels).contains(&tier) && !shown(&object.labels).contains(&tier));
    let version = "ome.io/version=v0.1.0 (facts)".to_owned();
    assert!(shown(&object.labels).contains(&version) && !shown(&pods.labels).contains(&version));
    assert_eq!(
        shown(&pods.annotations),
        ["note=a (component)", "prometheus.io/scrape=true (subject)", "training.ome.io/resume-from=/c/3 (subject)"]
    );
    let quiet = Config { upstream_keys: false, ..Config::default() };
    assert!(!shown(&answer(PodTemplate, &quiet).labels).contains(&"component=trainer (plugin)".to_owned()));
}
