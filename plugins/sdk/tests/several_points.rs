//! A plugin that answers at several points and uses every field of the macro, and one without a configuration. Both are linked into this
//! test.

use pointsman_plugin::{
    Failure, NoConfig, Question, pod_templating,
    runtime_selection::{Request, Verdict, eligible},
    scheduling_scoring::{Matrix, Term},
};

#[derive(Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Config {
    score: f64,
}

#[allow(clippy::needless_pass_by_value, clippy::unnecessary_wraps, reason = "it has the form that all policies have")]
fn judge(config: &Config, request: Request) -> Result<Vec<Verdict>, Failure> {
    Ok(request.candidates.iter().map(|_| eligible(config.score, Vec::new())).collect())
}

fn score(config: &Config, question: Question, matrix: &Matrix) -> Result<Vec<f64>, Failure> {
    match question {
        Question::NodePlacement => Ok(matrix.rows().map(|row| row[0] * config.score).collect()),
        _ => Err("nodes only".into()),
    }
}

fn explain(_: &Config, _: Question, matrix: &Matrix, row: usize) -> Vec<Term> {
    vec![Term::new("Free", format!("{:?} is free.", matrix.row(row)), 1.0)]
}

pointsman_plugin::export! {
    config: Config,
    scheduling_scoring: score,
    explain: explain,
    features: [(Question::NodePlacement, &["free-accelerators"])],
    runtime_selection: judge,
    wants_time: true,
    name: "both",
    version: "7",
}

#[allow(clippy::needless_pass_by_value, clippy::unnecessary_wraps, reason = "it has the form that all policies have")]
fn template(_: &NoConfig, _: pod_templating::Request) -> Result<pod_templating::Answer, Failure> {
    Ok(pod_templating::Answer::default())
}

pointsman_plugin::export! { pod_templating: template }

#[test]
fn policies_are_plain_functions() {
    let config = Config { score: 2.0 };
    assert_eq!(judge(&config, Request::default()), Ok(Vec::new()));
    let matrix = Matrix::new(1, vec![1.0, 3.0]);
    assert_eq!(matrix.and_then(|matrix| score(&config, Question::NodePlacement, &matrix)), Ok(vec![2.0, 6.0]));
    assert_eq!(template(&NoConfig {}, pod_templating::Request::default()), Ok(pod_templating::Answer::default()));
}
