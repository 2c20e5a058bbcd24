//! Replaces the model of a request according to the InferenceModelRewrites of its pool.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

/// An InferenceModelRewrite of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelRewrite {
    /// Its creation time, in seconds since 1970. If two have a rule for a model, the older one takes precedence.
    pub created: i64,
    /// Its namespace and name, by which two of the same age are ordered.
    pub name: (String, String),
    /// Its rules. The first one for the model is used.
    pub rules: Vec<Rule>,
}

/// A rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The models that it applies to, by their exact names; if empty, all.
    pub models: Vec<String>,
    /// The models that requests are sent to. If empty, the model stays unchanged.
    pub targets: Vec<Target>,
}

/// A model that requests are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The model.
    pub model: String,
    /// Its share of requests, relative to the others. If no target has a weight, all get the same share.
    pub weight: Option<u32>,
}

/// The rewrites of a pool, prepared for look-ups.
#[derive(Clone, Debug, Default)]
pub struct ModelRewrites {
    exact: HashMap<String, Targets>,
    /// The rule for models without their own rule.
    any: Option<Targets>,
}

#[derive(Clone, Debug, Default)]
struct Targets {
    /// Each target with the sum of the weights up to it.
    targets: Vec<(u64, String)>,
}

impl Targets {
    fn new(targets: &[Target]) -> Self {
        // The object's status reports if only some have a weight. As upstream, those without a weight then get nothing.
        let is_weighted = targets.iter().any(|target| target.weight.is_some());
        let mut sum = 0;
        let targets = targets.iter().filter_map(|target| {
            let weight = if is_weighted { target.weight.unwrap_or(0) } else { 1 };
            sum += u64::from(weight);
            (weight > 0).then(|| (sum, target.model.clone()))
        });
        Self { targets: targets.collect() }
    }

    fn choose(&self, random: u64) -> Option<&str> {
        let (total, _) = self.targets.last()?;
        // Maps the whole range evenly. The bias of a remainder wouldn't matter either, but this is as cheap.
        let at = u64::try_from((u128::from(random) * u128::from(*total)) >> 64).unwrap_or(0);
        let place = self.targets.partition_point(|(sum, _)| *sum <= at);
        self.targets.get(place).map(|(_, model)| model.as_str())
    }
}

impl ModelRewrites {
    /// Orders the rules by precedence: one that names the model before one for all models, then the older object, then the first rule.
    pub fn new(mut rewrites: Vec<ModelRewrite>) -> Self {
        rewrites.sort_by(|one, other| (one.created, &one.name).cmp(&(other.created, &other.name)));
        let mut ready = Self::default();
        for rule in rewrites.iter().flat_map(|rewrite| &rewrite.rules) {
            if rule.models.is_empty() {
                ready.any.get_or_insert_with(|| Targets::new(&rule.targets));
            }
            for model in &rule.models {
                ready.exact.entry(model.clone()).or_insert_with(|| Targets::new(&rule.targets));
            }
        }
        ready
    }

    /// The replacement for a model; none if it stays unchanged. `random` chooses among several targets.
    pub fn target(&self, model: &str, random: u64) -> Option<&str> {
        let targets = self.exact.get(model).or(self.any.as_ref())?;
        targets.choose(random).filter(|target| *target != model)
    }
}
