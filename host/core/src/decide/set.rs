//! A policy set: all active plugins and rules at one moment.

use super::member::Member;
use crate::{rules::Rules, selector};
use pointsman_crds::policy::plugin::PolicyPoint;
use pointsman_sandbox::{builtin::BUILTINS, digest::Digest, point::Subject};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

/// An immutable policy set. Each decision uses one.
#[derive(Debug)]
pub struct ActiveSet {
    digest: Digest,
    members: Vec<Arc<Member>>,
    rules: Rules,
    configs: OnceLock<(Vec<(String, Value)>, Digest)>,
}

/// The fallback for a plugin that fails.
#[derive(Clone, Debug)]
pub enum StandIn {
    /// None: the other plugins answer.
    Skip,
    /// The built-in of the policy point.
    Default,
    /// The plugin's previous revision.
    Previous(Arc<Member>),
}

impl ActiveSet {
    /// Orders the members: by order, then by name.
    pub fn new(mut members: Vec<Arc<Member>>) -> Self {
        members.sort_by(|a, b| (a.bound.order, &a.bound.name).cmp(&(b.bound.order, &b.bound.name)));
        let digest = Digest::of_all(members.iter().map(|member| member.identity()));
        Self { digest, members, rules: Rules::default(), configs: OnceLock::new() }
    }

    /// The same members with these rules.
    #[must_use]
    pub fn ruled(self, rules: Rules) -> Self {
        let identities = self.members.iter().map(|member| member.identity());
        let digest = Digest::of_all(identities.chain(rules.all().iter().map(|rule| rule.identity())));
        Self { digest, rules, ..self }
    }

    /// The same set, whose members have new health.
    #[must_use]
    pub fn afresh(&self) -> Self {
        let members = self.members.iter().map(|member| Arc::new(member.afresh())).collect();
        Self { digest: self.digest, members, rules: self.rules.clone(), configs: OnceLock::new() }
    }

    /// The rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The configuration of each member, by name. For a built-in policy it includes the defaults of the schema, because the host vouches
    /// for them. The defaults of an untrusted plugin are only its own claim.
    pub fn configs(&self) -> &[(String, Value)] {
        &self.known_configs().0
    }

    /// The digest of the configurations.
    pub fn configs_digest(&self) -> &Digest {
        &self.known_configs().1
    }

    fn known_configs(&self) -> &(Vec<(String, Value)>, Digest) {
        self.configs.get_or_init(|| {
            let configs: Vec<_> = self.members.iter().map(|member| (member.name().to_owned(), config(member))).collect();
            // Plain data can always be serialized.
            let digest = Digest::of_value(&configs).unwrap_or(Digest([0; 32]));
            (configs, digest)
        })
    }

    /// The digest of the plugins and rules.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The members, in order.
    pub fn members(&self) -> &[Arc<Member>] {
        &self.members
    }

    /// The member with this name.
    pub fn member(&self, name: &str) -> Option<&Arc<Member>> {
        self.members.iter().find(|member| member.name() == name)
    }

    /// The plugins that are called about a subject at a policy point, in order.
    pub fn line(&self, point: PolicyPoint, subject: &Subject, stand_ins: &BTreeMap<String, StandIn>) -> Vec<Arc<Member>> {
        let mut line: Vec<Arc<Member>> = Vec::new();
        let mut default_wanted = false;
        for member in self.members.iter().filter(|member| applies_at(member, point, subject)) {
            // The fallback of a plugin with mode Replace also replaces the plugins before it.
            let stand_in = stand_ins.get(member.name());
            if member.replaces() && !matches!(stand_in, Some(StandIn::Skip)) {
                line.clear();
                default_wanted = false;
            }
            match stand_in {
                None => line.push(Arc::clone(member)),
                Some(StandIn::Skip) => {}
                Some(StandIn::Default) => default_wanted = true,
                Some(StandIn::Previous(previous)) => line.push(Arc::clone(previous)),
            }
        }
        // Called twice, its answer would count twice.
        if default_wanted
            && !line.iter().any(|member| member.is_default(point))
            && let Some(default) = self.members.iter().find(|member| member.is_default(point))
        {
            line.insert(0, Arc::clone(default));
        }
        line
    }
}

fn config(member: &Member) -> Value {
    let mut config: Value = member.bound.config.as_deref().and_then(|config| serde_json::from_str(config).ok()).unwrap_or_default();
    let ours = BUILTINS.iter().any(|builtin| Digest::hash(builtin.bytes).to_string() == member.bound.digest);
    let schema: Value = if ours { serde_json::from_str(&member.description.config_schema).unwrap_or_default() } else { Value::Null };
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if let (Some(default), None) = (property.get("default"), config.get(name)) {
            if config.is_null() {
                config = Value::Object(serde_json::Map::new());
            }
            config[name] = default.clone();
        }
    }
    config
}

pub(super) fn applies_at(member: &Member, point: PolicyPoint, subject: &Subject) -> bool {
    member.bound.points.contains(&point) && concerns(member, subject)
}

/// Whether a member applies to a subject, at any policy point.
pub fn concerns(member: &Member, subject: &Subject) -> bool {
    member.bound.selection.as_ref().is_none_or(|selection| selector::fits(selection, subject))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_crds::policy::{plugin::PluginMode, set::PolicySetPlugin};
    use pointsman_sandbox::point::describe::Description;

    const POINT: PolicyPoint = PolicyPoint::RuntimeSelection;

    fn member(name: &str, order: i32, mode: PluginMode) -> Arc<Member> {
        let bound = PolicySetPlugin { name: name.to_owned(), order, mode, points: vec![POINT], ..PolicySetPlugin::default() };
        Arc::new(Member::new(bound, Description::default(), None, None).unwrap())
    }

    fn names(set: &ActiveSet, stand_ins: &[(&str, StandIn)]) -> Vec<String> {
        let stand_ins = stand_ins.iter().map(|(name, stand_in)| ((*name).to_owned(), stand_in.clone())).collect();
        set.line(POINT, &Subject::default(), &stand_ins).iter().map(|member| member.name().to_owned()).collect()
    }

    #[test]
    fn plugins_are_asked_by_order_and_equal_orders_by_name() {
        let members = [("b", 7), ("z", 1), ("a", 7), ("runtime-selection", 0)];
        let set = ActiveSet::new(members.map(|(name, order)| member(name, order, PluginMode::Extend)).to_vec());
        assert_eq!(names(&set, &[]), ["runtime-selection", "z", "a", "b"]);
    }

    #[test]
    fn one_that_replaces_is_the_first_to_be_asked() {
        let set = ActiveSet::new(vec![
            member("runtime-selection", 0, PluginMode::Extend),
            member("a", 1, PluginMode::Replace),
            member("b", 2, PluginMode::Extend),
        ]);
        assert_eq!(names(&set, &[]), ["a", "b"]);
        assert_eq!(names(&set, &[("a", StandIn::Skip)]), ["runtime-selection", "b"]);
        assert_eq!(names(&set, &[("a", StandIn::Default)]), ["runtime-selection", "b"]);
        assert_eq!(names(&set, &[("a", StandIn::Previous(member("a-before", 1, PluginMode::Replace)))]), ["a-before", "b"]);
    }

    #[test]
    fn the_built_in_stands_in_once() {
        let set = ActiveSet::new(vec![member("runtime-selection", 0, PluginMode::Extend), member("a", 1, PluginMode::Extend)]);
        assert_eq!(names(&set, &[("a", StandIn::Default)]), ["runtime-selection"]);
    }

    #[test]
    fn any_change_of_a_member_is_another_set() {
        let digest = |order| *ActiveSet::new(vec![member("a", order, PluginMode::Extend)]).digest();
        assert_eq!(digest(1), digest(1));
        assert_ne!(digest(1), digest(2));
    }
}
