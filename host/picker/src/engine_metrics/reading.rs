//! The data read from a page so far, and how several series become one number.

use super::{
    Adapters, EngineMetrics,
    families::{Family, Signal},
    text::Sample,
};
use std::str;

/// The maximum number of LoRA adapters that are read from a list.
pub(super) const MAX_ADAPTERS: usize = 1024;

/// The maximum length of a LoRA adapter's name, in bytes.
pub(super) const MAX_ADAPTER_NAME: usize = 256;

/// The maximum number of data-parallel ranks. The series of further ranks are ignored.
const MAX_RANKS: usize = 256;

/// The maximum reported use of a KV cache: rounding, and counts that are taken at different times, can slightly exceed 1.
const MAX_KV_USAGE: f64 = 1.01;

/// The data read from a page.
#[derive(Debug, Default)]
pub(super) struct Reading<'a> {
    waiting: Total,
    running: Total,
    kv_usage: One,
    block_size: One,
    blocks: Total,
    prefix_queries: Total,
    prefix_hits: Total,
    /// The newest series of adapters, and its time.
    adapters: Option<(f64, Sample<'a>)>,
}

impl<'a> Reading<'a> {
    /// Adds a series of a family. `rank` is the result of `Families::rank`.
    pub(super) fn add(&mut self, family: &Family, rank: Option<u32>, sample: Sample<'a>) {
        let age = family.age;
        match family.signal {
            Signal::Waiting => self.waiting.add(age, rank, sample.value),
            Signal::Running => self.running.add(age, rank, sample.value),
            Signal::PrefixQueries => self.prefix_queries.add(age, rank, sample.value),
            Signal::PrefixHits => self.prefix_hits.add(age, rank, sample.value),
            // If one rank's cache is full, its requests wait, even if the others have room. The maximum is therefore used.
            Signal::KvUsage => self.kv_usage.add(age, sample.value.and_then(usage), f64::max),
            Signal::BlockSize => self.add_block_size(age, sample.value),
            Signal::Blocks => self.add_blocks(age, rank, sample.value),
            Signal::Cache { block_size, blocks } => {
                self.add_block_size(age, sample.label_number(block_size));
                self.add_blocks(age, rank, sample.label_number(blocks));
            }
            Signal::Adapters => self.add_adapters(sample),
        }
    }

    /// All ranks have the same block size. If they differ, the smallest suits all.
    fn add_block_size(&mut self, age: u8, value: Option<f64>) {
        self.block_size.add(age, value.filter(|value| whole(*value).is_some()), f64::min);
    }

    /// The capacity of a pod is the sum of its ranks.
    fn add_blocks(&mut self, age: u8, rank: Option<u32>, value: Option<f64>) {
        self.blocks.add(age, rank, value.filter(|value| whole(*value).is_some()));
    }

    /// For each change, vLLM writes a new series with the time as its value, and keeps the old ones. The newest is used. A series without a
    /// finite value has no time and is ignored.
    fn add_adapters(&mut self, sample: Sample<'a>) {
        let Some(time) = sample.value else { return };
        if self.adapters.is_none_or(|(newest, _)| time > newest) {
            self.adapters = Some((time, sample));
        }
    }

    /// The result.
    pub(super) fn metrics(self) -> EngineMetrics {
        EngineMetrics {
            waiting: self.waiting.sum(),
            running: self.running.sum(),
            kv_usage: self.kv_usage.value,
            block_size: self.block_size.value.and_then(whole),
            blocks: self.blocks.sum().and_then(|blocks| whole(blocks.min(f64::from(u32::MAX)))),
            loras: self.adapters.map(|(_, sample)| Adapters {
                running: names(&sample, "running_lora_adapters"),
                waiting: names(&sample, "waiting_lora_adapters"),
                max: sample.label_number("max_lora").and_then(whole).unwrap_or(0),
            }),
            prefix_queries: self.prefix_queries.sum(),
            prefix_hits: self.prefix_hits.sum(),
        }
    }
}

/// The used share of a KV cache. A negative value is unknown. So is one well above 1: it may be a percentage, or an error.
fn usage(value: f64) -> Option<f64> {
    (0.0..=MAX_KV_USAGE).contains(&value).then(|| value.min(1.0))
}

/// A positive integer. 0 means that the engine doesn't know the value yet.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // It is an integer within the range.
fn whole(value: f64) -> Option<u32> {
    let is_whole = (1.0..=f64::from(u32::MAX)).contains(&value) && value.fract() == 0.0;
    is_whole.then_some(value as u32)
}

/// The names in a label's list. It can't express a name with a comma.
fn names(sample: &Sample<'_>, label: &str) -> Vec<String> {
    let Some(list) = sample.label(label) else { return Vec::new() };
    list.split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|name| !name.is_empty() && name.len() <= MAX_ADAPTER_NAME)
        .filter_map(|name| str::from_utf8(name).ok())
        .take(MAX_ADAPTERS)
        .map(str::to_owned)
        .collect()
}

/// A number that is the same in several series, or chosen from them.
#[derive(Debug, Default)]
struct One {
    age: u8,
    value: Option<f64>,
}

impl One {
    fn add(&mut self, age: u8, value: Option<f64>, choose: fn(f64, f64) -> f64) {
        let Some(value) = value else { return };
        match self.value {
            Some(_) if self.age < age => {}
            Some(known) if self.age == age => self.value = Some(choose(known, value)),
            _ => (self.age, self.value) = (age, Some(value)),
        }
    }
}

/// A number that is the sum of several series.
#[derive(Debug, Default)]
struct Total {
    age: u8,
    ranks: Vec<(Option<u32>, f64)>,
}

impl Total {
    /// A count below 0 is unknown. Series with a rank repeat the rank's number, at slightly different times: the maximum is used.
    fn add(&mut self, age: u8, rank: Option<u32>, value: Option<f64>) {
        let Some(value) = value.filter(|value| *value >= 0.0) else { return };
        if self.ranks.is_empty() || age < self.age {
            self.ranks.clear();
            self.age = age;
        } else if age > self.age {
            return;
        }
        let is_full = self.ranks.len() >= MAX_RANKS;
        match self.ranks.iter_mut().find(|(known, _)| *known == rank) {
            Some((Some(_), known)) => *known = known.max(value),
            Some((None, known)) => *known += value,
            None if is_full => {}
            None => self.ranks.push((rank, value)),
        }
    }

    fn sum(&self) -> Option<f64> {
        let sum: f64 = self.ranks.iter().map(|(_, value)| value).sum();
        (!self.ranks.is_empty() && sum.is_finite()).then_some(sum)
    }
}
