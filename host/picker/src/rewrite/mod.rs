//! Which model a request is sent to instead of the one that it names, by the InferenceModelRewrites of its pool.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

/// An InferenceModelRewrite of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelRewrite {
    /// When it was created, in seconds since 1970. Of two that have a rule for a model, the older one counts.
    pub created: i64,
    /// Its namespace and name, which decide between two of one age.
    pub name: (String, String),
    /// Its rules. The first that has the model counts.
    pub rules: Vec<Rule>,
}

/// A rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The models that it is for, by their exact names; all if there are none.
    pub models: Vec<String>,
    /// Where their requests go. Without any, they stay as they are.
    pub targets: Vec<Target>,
}

/// A model that requests go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The model.
    pub model: String,
    /// How many requests it gets beside the others. Without a weight on any target, all get as many.
    pub weight: Option<u32>,
}

/// The rewrites of a pool, ready to be asked for each request.
#[derive(Clone, Debug, Default)]
pub struct ModelRewrites {
    exact: HashMap<String, Targets>,
    /// What applies to models without a rule of their own.
    any: Option<Targets>,
}

#[derive(Clone, Debug, Default)]
struct Targets {
    /// Each with the sum of the weights up to it.
    targets: Vec<(u64, String)>,
}

impl Targets {
    fn new(targets: &[Target]) -> Self {
        // The object's status reports where only some have a weight; those without it get nothing then, as upstream has it.
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
        // Maps the whole range evenly; the remainder of a division would not matter either, but this is as cheap.
        let at = u64::try_from((u128::from(random) * u128::from(*total)) >> 64).unwrap_or(0);
        let place = self.targets.partition_point(|(sum, _)| *sum <= at);
        self.targets.get(place).map(|(_, model)| model.as_str())
    }
}

impl ModelRewrites {
    /// Orders them: a rule that names the model counts before one for all models, then the older object, then the first rule.
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

    /// The model that a request for another one is sent to; none if it stays as it is. `random` chooses among several.
    pub fn target(&self, model: &str, random: u64) -> Option<&str> {
        let targets = self.exact.get(model).or(self.any.as_ref())?;
        targets.choose(random).filter(|target| *target != model)
    }
}
