//! Allocation for display: amounts, durations, and why a model has no reservation.

use super::{Blocker, ObjectName, Refusal, SleepReason, Stays, Waiting, amounts::Amounts};
use std::fmt::Write;

/// An amount of memory, in the largest unit in which it is an integer, otherwise with one decimal.
pub fn memory_text(bytes: i64) -> String {
    const UNITS: [(&str, i64); 4] = [("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    let bytes = bytes.max(0);
    if let Some((unit, size)) = UNITS.into_iter().find(|(_, size)| bytes >= *size && bytes % size == 0) {
        return format!("{}{unit}", bytes / size);
    }
    match UNITS.into_iter().find(|(_, size)| bytes >= *size) {
        Some((unit, size)) => format!("{}.{}{unit}", bytes / size, bytes % size * 10 / size),
        None => bytes.to_string(),
    }
}

/// A duration in its two largest units: `2h5m`, `40s`.
pub fn time_text(seconds: u64) -> String {
    let units = [("d", seconds / 86_400), ("h", seconds / 3600 % 24), ("m", seconds / 60 % 60), ("s", seconds % 60)];
    let from = units.iter().position(|(_, number)| *number > 0).unwrap_or(units.len() - 1);
    let shown = units.iter().skip(from).take(2).filter(|(unit, number)| *number > 0 || *unit == units[from].0);
    shown.map(|(unit, number)| format!("{number}{unit}")).collect::<Vec<_>>().concat()
}

impl Amounts {
    /// The lacking resources, each with the need, the available amount and a word for the latter; empty if all fits.
    pub fn lacking(self, there: Self, word: &str) -> String {
        let lacks = |need: i64, there: i64, number: &dyn Fn(i64) -> String, what: &str| {
            (need > 0 && need > there).then(|| format!("{}{what} ({} {word})", number(need), number(there.max(0))))
        };
        let (gpus, pods) = (if self.gpus == 1 { " GPU" } else { " GPUs" }, if self.pods == 1 { " pod slot" } else { " pod slots" });
        let parts = [
            lacks(self.memory, there.memory, &memory_text, " of memory"),
            lacks(self.cpu, there.cpu, &|milli| format!("{milli}m"), " of CPU"),
            lacks(self.gpus, there.gpus, &|number| number.to_string(), gpus),
            lacks(self.pods, there.pods, &|number| number.to_string(), pods),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

impl SleepReason {
    /// Why a model goes to sleep, as a sentence.
    pub fn sentence(&self) -> String {
        match self {
            Self::Idle => "It had no requests during its cooldown period.".to_owned(),
            Self::Evicted(by) => format!("The model {by} needs its memory."),
            Self::Off => "It, or a model that it depends on, has spec.maxReplicas 0 or is being deleted.".to_owned(),
            Self::Misplaced => "It moves to another node: its current node no longer fits its requests or its selector.".to_owned(),
            Self::Overcommitted => "Its node has less memory for models than they have reserved.".to_owned(),
        }
    }
}

impl Blocker {
    /// The model's memory, how long it has been idle, and why it stays.
    fn sentence(&self) -> String {
        let stays = match self.stays {
            Stays::Leaving => "is going to sleep",
            Stays::NotEnough => "could sleep, which would not be enough",
            Stays::RanksHigher => "ranks as high or nearly as high by the policies",
            Stays::Unranked => "stays, because no scheduling-scoring policy ranks the waiting model",
            Stays::Resident => "hasn't been awake for its minimum residency",
            Stays::Starting => "is starting",
            Stays::Busy => "is answering requests",
            Stays::Needed => "is needed by a model that is awake",
            Stays::Unseen => "is never put to sleep, because no gateway has seen its traffic",
        };
        let (model, memory) = (ObjectName::new(&self.model), memory_text(self.memory));
        format!("{model} takes {memory}, has been idle for {} and {stays}", time_text(self.idle))
    }
}

impl Waiting {
    /// Why a model with these needs waits, and what would admit it.
    pub fn sentence(&self, needs: Amounts) -> String {
        if let Some(dependency) = &self.dependency {
            return format!("It waits for its dependency {}, which has no node yet.", ObjectName::new(dependency));
        }
        let mut text = match &self.wanted_by {
            Some(by) => format!("{} depends on it, and both are admitted together. ", ObjectName::new(by)),
            None => String::new(),
        };
        if self.is_undecided && !self.is_coming {
            return text + "The scheduling-scoring policies returned no answer about its node. Pointsman asks again: see the host's log.";
        }
        let Some(node) = &self.node else {
            text += &self.exclusion().unwrap_or_else(|| {
                "None of its nodes accepts new pods: they are cordoned, not Ready, or have taints that it doesn't tolerate.".to_owned()
            });
            return text;
        };
        let lacking = needs.lacking(self.free, "free");
        _ = match (self.is_coming, lacking.is_empty()) {
            (true, true) => write!(text, "Its place on the node {node} is being reserved."),
            (true, false) => write!(text, "It starts on the node {node} once others have ended. It needs {lacking}."),
            (false, true) => write!(text, "The free room on the node {node} is reserved for a model that ranks higher."),
            (false, false) => write!(text, "The closest fit is the node {node}. It needs {lacking}."),
        };
        if !self.blockers.is_empty() {
            let blockers: Vec<String> = self.blockers.iter().map(Blocker::sentence).collect();
            _ = write!(text, " There, {}.", blockers.join("; "));
        }
        if !self.is_coming && self.blockers.iter().any(|blocker| blocker.stays == Stays::RanksHigher) {
            text += " To admit it, raise its annotation pointsman.dev/priority, or lower that of another.";
        }
        if let Some(exclusion) = self.exclusion().filter(|_| !self.is_coming) {
            _ = write!(text, " {exclusion}");
        }
        text
    }

    /// The nodes that the policies exclude.
    fn exclusion(&self) -> Option<String> {
        let nodes = match &self.excluded[..] {
            [] => return None,
            [node] => format!("the node {node}, where it would fit"),
            nodes => format!("nodes where it would fit, such as {}", nodes.join(", ")),
        };
        Some(format!(
            "The scheduling-scoring policies exclude {nodes}: change their configuration, or select other nodes with spec.nodeSelector."
        ))
    }
}

impl Refusal {
    /// Why a model can't run, and how to fix it.
    pub fn sentence(&self, needs: Amounts) -> String {
        match self {
            Self::NameTaken(key) => format!(
                "The older model {} has the same spec.modelName, which clients request: delete one of the two, or recreate this one under \
                 another name.",
                ObjectName::new(key)
            ),
            Self::NoNodes => "No node has the labels of spec.nodeSelector: label a node, or select others.".to_owned(),
            Self::TooLarge { node, capacity } => format!(
                "It fits no node. The largest that spec.nodeSelector selects is {node}: it needs {}. Lower its requests, or select larger \
                 nodes.",
                needs.lacking(*capacity, "free")
            ),
            Self::Circle(path) => {
                format!("Its dependencies form a cycle, {}: remove one of them from spec.dependencies.", path.join(" -> "))
            }
            Self::UnknownDependency(path) => format!(
                "The dependency {} ({}) is the modelName of no model in its namespace: create that model, or remove it from \
                 spec.dependencies.",
                path.last().map_or("", String::as_str),
                path.join(" -> ")
            ),
            Self::DependencyOff(path) => format!(
                "The dependency {} ({}) can't run: set its spec.maxReplicas to 1, or check its conditions.",
                path.last().map_or("", String::as_str),
                path.join(" -> ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{key::ObjectKey, resource::INFERENCE_MODEL};

    const GIB: i64 = 1 << 30;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { resource: &INFERENCE_MODEL, namespace: "ml".to_owned(), name: name.to_owned() }
    }

    fn memory(gib: i64) -> Amounts {
        Amounts { memory: gib * GIB, cpu: 0, gpus: 1, pods: 1 }
    }

    #[test]
    fn amounts_and_times_are_short() {
        let texts = [0, 512, 80 * GIB, 3 << 29, 5 << 40, 1536 << 10].map(memory_text);
        assert_eq!(texts, ["0", "512", "80Gi", "1536Mi", "5Ti", "1536Ki"]);
        assert_eq!(memory_text(80 * GIB + 1), "80.0Gi");
        assert_eq!([0, 40, 60, 95, 7500, 90_000].map(time_text), ["0s", "40s", "1m", "1m35s", "2h5m", "1d1h"]);
    }

    #[test]
    fn a_waiting_model_says_who_blocks_it_for_how_long_those_are_idle_and_what_would_let_it_in() {
        let blocker = |stays| Blocker { model: key("chat"), memory: 60 * GIB, idle: 95, stays };
        let waiting =
            Waiting { node: Some("n1".to_owned()), free: memory(20), blockers: vec![blocker(Stays::RanksHigher)], ..Waiting::default() };
        assert_eq!(
            waiting.sentence(memory(40)),
            "The closest fit is the node n1. It needs 40Gi of memory (20Gi free). There, ml/chat takes 60Gi, has been idle for 1m35s \
             and ranks as high or nearly as high by the policies. To admit it, raise its annotation pointsman.dev/priority, or lower that \
             of another."
        );
        let coming = Waiting { is_coming: true, blockers: vec![blocker(Stays::Leaving)], ..waiting };
        assert!(coming.sentence(memory(40)).starts_with("It starts on the node n1 once others have ended."));
        assert!(
            Waiting { wanted_by: Some(key("a")), ..Waiting::default() }.sentence(memory(1)).contains("None of its nodes accepts new pods")
        );
    }

    #[test]
    fn a_waiting_model_names_the_nodes_that_the_policies_exclude() {
        let waiting = |node: Option<&str>, excluded: &[&str]| {
            let excluded = excluded.iter().map(ToString::to_string).collect();
            Waiting { node: node.map(str::to_owned), excluded, ..Waiting::default() }.sentence(memory(1))
        };
        let only = waiting(None, &["n1"]);
        assert!(only.starts_with("The scheduling-scoring policies exclude the node n1, where it would fit: change"), "{only}");
        let beside = waiting(Some("n3"), &["n1", "n2"]);
        assert!(beside.starts_with("The closest fit is the node n3. It needs 1Gi of memory (0 free)"), "{beside}");
        assert!(beside.contains(". The scheduling-scoring policies exclude nodes where it would fit, such as n1, n2: change"), "{beside}");
    }

    #[test]
    fn a_refusal_says_what_to_change() {
        let large = Refusal::TooLarge { node: "n1".to_owned(), capacity: Amounts { gpus: 0, ..memory(100) } };
        let text = large.sentence(memory(200));
        assert!(text.contains("n1: it needs 200Gi of memory (100Gi free); 1 GPU (0 free)"), "{text}");
        let path = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        assert!(Refusal::Circle(path(&["a", "b", "a"])).sentence(memory(1)).contains("a -> b -> a"));
        assert!(Refusal::UnknownDependency(path(&["a", "c"])).sentence(memory(1)).starts_with("The dependency c (a -> c)"));
    }
}
