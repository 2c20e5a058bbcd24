//! The trait that `export!` implements with a policy's functions, and its connection to the component's interfaces.

use crate::{
    Description, Failure, FeatureSet, Point, Question,
    bindings::{draft::exports::pointsman::policy as draft, v0_1::exports::pointsman::policy as v0_1},
    metadata_propagation,
    panics::log_panics,
    pod_templating, runtime_selection,
    scheduling_scoring::{Matrix, Request, Term},
};
use serde::{Deserialize, de::DeserializeOwned};
use std::sync::OnceLock;

/// A policy. `export!` implements it. At points that it doesn't list, it returns a failure.
pub trait Policy {
    /// The type of its configuration.
    type Config: DeserializeOwned + 'static;
    /// Its name, for display.
    const NAME: &'static str;
    /// Its version, for display.
    const VERSION: &'static str;
    /// The points at which it answers.
    const POINTS: &'static [Point];
    /// The columns that it requests, per question.
    const FEATURES: &'static [(Question, &'static [&'static str])] = &[];
    /// Whether its requests contain the time.
    const WANTS_TIME: bool = false;

    /// The cell that holds the configuration of this instance.
    fn config() -> &'static OnceLock<Self::Config>;

    /// The JSON Schema of the configuration; empty if the policy has none.
    fn config_schema() -> String {
        String::new()
    }

    /// Answers at runtime-selection.
    fn judge(_: &Self::Config, _: runtime_selection::Request) -> Result<Vec<runtime_selection::Verdict>, Failure> {
        Err(unanswered("runtime-selection"))
    }

    /// Answers at pod-templating.
    fn template(_: &Self::Config, _: pod_templating::Request) -> Result<pod_templating::Answer, Failure> {
        Err(unanswered("pod-templating"))
    }

    /// Answers at metadata-propagation.
    fn propagate(_: &Self::Config, _: metadata_propagation::Request) -> Result<metadata_propagation::Answer, Failure> {
        Err(unanswered("metadata-propagation"))
    }

    /// Answers at scheduling-scoring.
    fn score(_: &Self::Config, _: Question, _: &Matrix) -> Result<Vec<f64>, Failure> {
        Err(unanswered("scheduling-scoring"))
    }

    /// Explains the score of one candidate.
    fn explain(_: &Self::Config, _: Question, _: &Matrix, _: usize) -> Vec<Term> {
        Vec::new()
    }
}

/// The configuration of a policy that has none: everything except `{}` is rejected.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// The JSON Schema of a configuration.
pub fn schema<T: schemars::JsonSchema>() -> String {
    schemars::schema_for!(T).as_value().to_string()
}

fn unanswered(point: &str) -> Failure {
    Failure::refusal(format!("this plugin doesn't answer at {point}: bind it to the points that it supports"))
}

fn configured<T: Policy>() -> Result<&'static T::Config, Failure> {
    T::config().get().ok_or_else(|| "the plugin was asked before it was configured; a host calls configure first".into())
}

// A host calls `describe` or `configure` first on each instance.
fn describe<T: Policy>() -> Description {
    log_panics();
    let set = |(question, names): &(Question, &[&str])| FeatureSet {
        question: *question,
        features: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    Description {
        name: T::NAME.to_owned(),
        version: T::VERSION.to_owned(),
        points: T::POINTS.to_vec(),
        config_schema: T::config_schema(),
        features: T::FEATURES.iter().map(set).collect(),
        wants_time: T::WANTS_TIME,
    }
}

fn configure<T: Policy>(config: &str) -> Result<(), String> {
    log_panics();
    let config = serde_json::from_str(config).map_err(|error| format!("the configuration doesn't fit: {error}"))?;
    T::config().set(config).map_err(|_| "the plugin is configured already; a host does it once an instance".to_owned())
}

fn score<T: Policy>(question: Question, columns: u32, matrix: Vec<f64>) -> Result<Vec<f64>, Failure> {
    T::score(configured::<T>()?, question, &Matrix::new(columns as usize, matrix)?)
}

fn explain<T: Policy>(question: Question, columns: u32, matrix: Vec<f64>, row: u32) -> Result<Vec<Term>, Failure> {
    Ok(T::explain(configured::<T>()?, question, &Matrix::new(columns as usize, matrix)?, row as usize))
}

impl<T: Policy> draft::plugin::Guest for T {
    fn describe() -> Description {
        describe::<T>()
    }

    fn configure(config: String) -> Result<(), String> {
        configure::<T>(&config)
    }
}

impl<T: Policy> draft::runtime_selection::Guest for T {
    fn judge(request: runtime_selection::Request) -> Result<Vec<runtime_selection::Verdict>, Failure> {
        T::judge(configured::<T>()?, request)
    }
}

impl<T: Policy> draft::pod_templating::Guest for T {
    fn template(request: pod_templating::Request) -> Result<pod_templating::Answer, Failure> {
        T::template(configured::<T>()?, request)
    }
}

impl<T: Policy> draft::metadata_propagation::Guest for T {
    fn propagate(request: metadata_propagation::Request) -> Result<metadata_propagation::Answer, Failure> {
        T::propagate(configured::<T>()?, request)
    }
}

impl<T: Policy> draft::scheduling_scoring::Guest for T {
    fn score(request: Request) -> Result<Vec<f64>, Failure> {
        score::<T>(request.question, request.columns, request.matrix)
    }

    fn explain(request: Request, row: u32) -> Result<Vec<Term>, Failure> {
        explain::<T>(request.question, request.columns, request.matrix, row)
    }
}

impl<T: Policy> v0_1::plugin::Guest for T {
    fn describe() -> Description {
        describe::<T>()
    }

    fn configure(config: String) -> Result<(), String> {
        configure::<T>(&config)
    }
}

impl<T: Policy> v0_1::runtime_selection::Guest for T {
    fn judge(request: v0_1::runtime_selection::Request) -> Result<Vec<v0_1::runtime_selection::Verdict>, v0_1::runtime_selection::Failure> {
        let verdicts = T::judge(configured::<T>()?, request.into())?;
        Ok(verdicts.into_iter().map(Into::into).collect())
    }
}

impl<T: Policy> v0_1::pod_templating::Guest for T {
    fn template(request: v0_1::pod_templating::Request) -> Result<v0_1::pod_templating::Answer, v0_1::pod_templating::Failure> {
        Ok(T::template(configured::<T>()?, request.into())?.try_into()?)
    }
}

impl<T: Policy> v0_1::metadata_propagation::Guest for T {
    fn propagate(
        request: v0_1::metadata_propagation::Request,
    ) -> Result<metadata_propagation::Answer, v0_1::metadata_propagation::Failure> {
        Ok(T::propagate(configured::<T>()?, request.into())?)
    }
}

impl<T: Policy> v0_1::scheduling_scoring::Guest for T {
    fn score(question: Question, columns: u32, matrix: Vec<f64>) -> Result<Vec<f64>, v0_1::scheduling_scoring::Failure> {
        Ok(score::<T>(question, columns, matrix)?)
    }

    fn explain(question: Question, columns: u32, matrix: Vec<f64>, row: u32) -> Vec<v0_1::scheduling_scoring::Reason> {
        match explain::<T>(question, columns, matrix, row) {
            Ok(terms) => terms.into_iter().map(Into::into).collect(),
            Err(failure) => vec![crate::reason("Unanswered", failure.message)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default, Deserialize, schemars::JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    struct Config {
        /// How far.
        limit: u8,
    }

    struct Scorer;

    impl Policy for Scorer {
        type Config = Config;
        const NAME: &'static str = "scorer";
        const VERSION: &'static str = "1";
        const POINTS: &'static [Point] = &[Point::SchedulingScoring];
        const FEATURES: &'static [(Question, &'static [&'static str])] = &[(Question::EndpointPick, &["queue", "cache"])];

        fn config() -> &'static OnceLock<Config> {
            static CONFIG: OnceLock<Config> = OnceLock::new();
            &CONFIG
        }

        fn config_schema() -> String {
            schema::<Config>()
        }

        fn score(config: &Config, _: Question, matrix: &Matrix) -> Result<Vec<f64>, Failure> {
            Ok(matrix.rows().map(|row| row[0].min(config.limit.into())).collect())
        }
    }

    #[test]
    fn tells_what_it_is() {
        let description = <Scorer as draft::plugin::Guest>::describe();
        assert_eq!((description.name.as_str(), description.version.as_str()), ("scorer", "1"));
        assert_eq!(description.points, [Point::SchedulingScoring]);
        let features = vec!["queue".to_owned(), "cache".to_owned()];
        assert_eq!(description.features, [FeatureSet { question: Question::EndpointPick, features }]);
        let schema: serde_json::Value = serde_json::from_str(&description.config_schema).unwrap();
        assert_eq!(schema["properties"]["limit"]["description"], "How far.");
        assert_eq!(schema["additionalProperties"], false);
    }

    /// A single test, because the configuration is static.
    #[test]
    fn is_configured_once_and_then_answers() {
        let request = |matrix| Request { question: Question::EndpointPick, columns: 2, matrix, facts: Vec::new() };
        let score = || <Scorer as draft::scheduling_scoring::Guest>::score(request(vec![9.0, 0.0, 1.0, 0.0]));
        assert!(score().unwrap_err().message.contains("before it was configured"));

        let configure = |text: &str| <Scorer as draft::plugin::Guest>::configure(text.to_owned());
        let refused = configure(r#"{"limits":3}"#).unwrap_err();
        assert!(refused.contains("unknown field `limits`, expected `limit`"), "{refused}");
        assert!(configure(r#"{"limit":300}"#).unwrap_err().contains("expected u8"));
        assert_eq!(configure(r#"{"limit":3}"#), Ok(()));
        assert!(configure("{}").unwrap_err().contains("configured already"));
        assert_eq!(score(), Ok(vec![3.0, 1.0]));

        let older = <Scorer as v0_1::scheduling_scoring::Guest>::score(Question::EndpointPick, 2, vec![9.0, 0.0, 1.0, 0.0]);
        assert_eq!(older.unwrap(), [3.0, 1.0]);

        let other = <Scorer as draft::pod_templating::Guest>::template(pod_templating::Request::default());
        assert!(other.unwrap_err().message.contains("doesn't answer at pod-templating"));
        let odd = <Scorer as draft::scheduling_scoring::Guest>::score(request(vec![9.0]));
        assert!(odd.unwrap_err().message.contains("rows of 2"));
    }

    #[test]
    fn without_a_configuration_there_is_none_to_give() {
        assert!(serde_json::from_str::<NoConfig>("{}").is_ok());
        assert!(serde_json::from_str::<NoConfig>(r#"{"a":1}"#).is_err());
    }
}
