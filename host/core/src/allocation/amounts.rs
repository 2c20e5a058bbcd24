//! The resources that a pod takes and a node offers.

use serde::{Deserialize, Serialize};
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// The resources of a node that a model's pod needs. Signed, because other pods may overcommit a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Amounts {
    /// Bytes.
    pub memory: i64,
    /// Thousandths of a processor.
    pub cpu: i64,
    /// Whole GPUs.
    pub gpus: i64,
    /// Slots for pods.
    pub pods: i64,
}

impl Amounts {
    /// Whether these amounts fit into the free ones.
    pub fn fit(self, free: Self) -> bool {
        // A pod that needs none of a resource fits even if the node is overcommitted on it.
        let fits = |need: i64, free: i64| need == 0 || need <= free;
        fits(self.memory, free.memory) && fits(self.cpu, free.cpu) && fits(self.gpus, free.gpus) && fits(self.pods, free.pods)
    }

    /// The larger of each resource.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        self.each(other, i64::max)
    }

    /// The smaller of each resource.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        self.each(other, i64::min)
    }

    fn each(self, other: Self, combine: impl Fn(i64, i64) -> i64) -> Self {
        Self {
            memory: combine(self.memory, other.memory),
            cpu: combine(self.cpu, other.cpu),
            gpus: combine(self.gpus, other.gpus),
            pods: combine(self.pods, other.pods),
        }
    }
}

impl Add for Amounts {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.each(other, i64::saturating_add)
    }
}

impl Sub for Amounts {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.each(other, i64::saturating_sub)
    }
}

impl AddAssign for Amounts {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Amounts {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}
