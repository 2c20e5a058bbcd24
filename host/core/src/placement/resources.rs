//! Amounts of resources that nodes have and pods request, by resource name.

use crate::quantity::{MILLI, WHOLE, rounded_up};
use serde_json::Value;
use std::collections::BTreeMap;

/// Processors, in thousandths.
pub const CPU: &str = "cpu";

/// Bytes of memory.
pub const MEMORY: &str = "memory";

/// Slots for pods.
pub const PODS: &str = "pods";

/// Amounts by resource name: thousandths of a processor for `cpu`, integers for the rest (bytes, devices, `pods`). Signed, because nodes
/// may be overcommitted. Amounts that are too large saturate. Zeros aren't stored, so that equal amounts compare as equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources(BTreeMap<String, i64>);

impl Resources {
    /// The amount of a resource.
    pub fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Sets the amount of a resource.
    pub fn set(&mut self, name: &str, amount: i64) {
        if amount == 0 {
            self.0.remove(name);
        } else if let Some(known) = self.0.get_mut(name) {
            *known = amount;
        } else {
            self.0.insert(name.to_owned(), amount);
        }
    }

    /// The resources with a nonzero amount, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Whether all amounts are 0.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds each amount.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, i64::saturating_add);
    }

    /// Subtracts each amount.
    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, i64::saturating_sub);
    }

    /// Takes the larger of each amount.
    pub fn max(&mut self, other: &Self) {
        // A resource that the other side lacks is compared with 0.
        self.0.retain(|name, amount| *amount > 0 || other.0.contains_key(name));
        self.combine(other, i64::max);
    }

    fn combine(&mut self, other: &Self, with: fn(i64, i64) -> i64) {
        for (name, amount) in &other.0 {
            self.set(name, with(self.get(name), *amount));
        }
    }

    /// The first resource of which less is free than needed; none if all fit. A need of 0 fits even if the free amount is negative.
    pub fn lacking<'r>(&'r self, free: &Self) -> Option<&'r str> {
        self.iter().find(|(name, amount)| *amount > 0 && *amount > free.get(name)).map(|(name, _)| name)
    }

    /// Parses `{"cpu": "500m", ...}`. Invalid quantities count as 0.
    pub fn from_value(value: &Value) -> Self {
        let mut read = Self::default();
        for (name, quantity) in value.as_object().into_iter().flatten() {
            let unit = if name == CPU { MILLI } else { WHOLE };
            let amount = match quantity {
                Value::String(text) => rounded_up(text, unit),
                Value::Number(number) => rounded_up(&number.to_string(), unit),
                _ => None,
            };
            read.set(name, amount.unwrap_or_default());
        }
        read
    }

    /// The number of accelerators of all kinds.
    pub fn accelerators(&self) -> i64 {
        self.iter().filter(|(name, _)| is_accelerator(name)).fold(0_i64, |sum, (_, amount)| sum.saturating_add(amount))
    }
}

impl<'n> FromIterator<(&'n str, i64)> for Resources {
    fn from_iter<T: IntoIterator<Item = (&'n str, i64)>>(amounts: T) -> Self {
        let mut resources = Self::default();
        for (name, amount) in amounts {
            resources.set(name, amount);
        }
        resources
    }
}

/// The prefixes of partitions of AMD's GPUs, such as `cpx_nps4`.
const AMD_PARTITIONS: [&str; 4] = ["cpx_", "dpx_", "qpx_", "spx_"];

/// Whether a resource is a kind of accelerator: an extended resource of a known device plugin.
pub fn is_accelerator(resource: &str) -> bool {
    let Some((vendor, device)) = resource.split_once('/') else { return false };
    match vendor {
        "nvidia.com" => matches!(device, "gpu" | "gpu.shared") || device.starts_with("mig-"),
        "amd.com" => device == "gpu" || AMD_PARTITIONS.iter().any(|prefix| device.starts_with(prefix)),
        // The same devices have other resources for memory, tiles and monitoring.
        "gpu.intel.com" => matches!(device, "i915" | "xe"),
        "google.com" => device == "tpu",
        "aws.amazon.com" => device.starts_with("neuron"),
        "habana.ai" => device.starts_with("gaudi"),
        "cambricon.com" => device.starts_with("mlu"),
        "qualcomm.com" => device.starts_with("qaic"),
        "enflame.com" => device == "gcu",
        "hygon.com" => device.starts_with("dcu"),
        "kunlunxin.com" => device == "xpu",
        "iluvatar.ai" | "iluvatar.com" | "metax-tech.com" | "mthreads.com" => device == "gpu",
        "furiosa.ai" | "huawei.com" | "rebellions.ai" | "tenstorrent.com" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn amounts_are_read_in_their_units_and_what_is_no_quantity_is_nothing() {
        let read = Resources::from_value(&json!({
            "cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": 8, "pods": "110", "a": "much", "b": null, "c": "0", "ephemeral-storage": "1500m",
        }));
        let expected = [(CPU, 1500), (MEMORY, 1 << 30), ("nvidia.com/gpu", 8), (PODS, 110), ("ephemeral-storage", 2)];
        assert_eq!(read, Resources::from_iter(expected));
        assert!(Resources::from_value(&json!("none")).is_empty());
        assert_eq!(read.accelerators(), 8);
    }

    #[test]
    fn what_there_is_nothing_of_is_not_kept() {
        let mut free = Resources::from_iter([(CPU, 2000), (MEMORY, 10)]);
        free.subtract(&Resources::from_iter([(CPU, 2000), ("nvidia.com/gpu", 1)]));
        assert_eq!(free, Resources::from_iter([(MEMORY, 10), ("nvidia.com/gpu", -1)]));
        free.add(&Resources::from_iter([("nvidia.com/gpu", 1)]));
        assert_eq!(free.iter().collect::<Vec<_>>(), [(MEMORY, 10)]);
        free.set(MEMORY, 0);
        assert!(free.is_empty());
        let mut much = Resources::from_iter([(MEMORY, i64::MAX)]);
        much.add(&Resources::from_iter([(MEMORY, 1)]));
        assert_eq!(much.get(MEMORY), i64::MAX);
    }

    #[test]
    fn the_larger_amount_counts_the_missing_as_nothing() {
        let mut larger = Resources::from_iter([("a", 1), ("b", -2), ("c", -3)]);
        larger.max(&Resources::from_iter([("a", 4), ("c", -1), ("d", -5), ("e", 6)]));
        assert_eq!(larger, Resources::from_iter([("a", 4), ("c", -1), ("e", 6)]));
    }

    #[test]
    fn what_needs_nothing_fits_in_less_than_nothing() {
        let free = Resources::from_iter([(CPU, 1000), (MEMORY, -1)]);
        assert_eq!(Resources::from_iter([(CPU, 1000)]).lacking(&free), None);
        assert_eq!(Resources::from_iter([(CPU, 1001)]).lacking(&free), Some(CPU));
        assert_eq!(Resources::from_iter([("nvidia.com/gpu", 1)]).lacking(&free), Some("nvidia.com/gpu"));
        assert_eq!(Resources::default().lacking(&free), None);
    }

    #[test]
    fn accelerators_are_devices_and_not_what_else_their_plugins_count() {
        for accelerator in ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "amd.com/cpx_nps4", "google.com/tpu", "aws.amazon.com/neuroncore"] {
            assert!(is_accelerator(accelerator), "{accelerator}");
        }
        for other in ["cpu", "nvidia.com/gpumem", "gpu.intel.com/memory.max", "google.com/other", "example.com/gpu", "rdma/hca"] {
            assert!(!is_accelerator(other), "{other}");
        }
    }
}
