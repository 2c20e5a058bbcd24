//! The layers that a config describes: the mixer of each, and whether it has experts.

use super::{Counter, Missing};
use crate::{
    family::{Dim, Mixer},
    limits::MAX_LAYERS,
};
use serde_json::Value;
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mlp {
    None,
    Dense,
    Experts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layer {
    pub mixer: Option<Mixer>,
    pub mlp: Mlp,
}

/// The kinds of layers, with the number of each.
pub(super) fn layers(counter: Counter<'_>) -> Result<Vec<(Layer, u128)>, Missing> {
    let mut kinds: Vec<(Layer, u128)> = Vec::new();
    let mut add = |layer| match kinds.iter_mut().find(|(other, _)| *other == layer) {
        Some((_, number)) => *number += 1,
        None => kinds.push((layer, 1)),
    };
    if let Some(pattern) = counter.config.find("hybrid_override_pattern").and_then(Value::as_str) {
        if pattern.len() as u64 > MAX_LAYERS {
            return Err(format!("`hybrid_override_pattern` has more than {MAX_LAYERS} layers"));
        }
        for letter in pattern.chars() {
            add(match letter {
                'M' => Layer { mixer: Some(Mixer::Mamba2), mlp: Mlp::None },
                '*' => Layer { mixer: Some(Mixer::Attention), mlp: Mlp::None },
                '-' => Layer { mixer: None, mlp: Mlp::Dense },
                'E' => Layer { mixer: None, mlp: Mlp::Experts },
                _ => return Err(format!("`hybrid_override_pattern` has an unknown letter, {letter:?}")),
            });
        }
        return Ok(kinds);
    }
    let number = counter.need(Dim::Layers)?;
    if number > u128::from(MAX_LAYERS) {
        return Err(format!("it has more than {MAX_LAYERS} layers"));
    }
    let plan = Plan::new(counter)?;
    for index in 0..u64::try_from(number).unwrap_or(MAX_LAYERS) {
        add(Layer { mixer: Some(plan.mixer(index)), mlp: plan.mlp(index) });
    }
    Ok(kinds)
}

/// The description of the layers in a config, by index.
struct Plan<'a> {
    counter: Counter<'a>,
    layers: u64,
    types: Option<&'a Vec<Value>>,
    full_attention: Option<u64>,
    attention_period: Option<(u64, u64)>,
    has_experts: bool,
    dense_first: u64,
    dense_only: Option<BTreeSet<u64>>,
    expert_only: Option<BTreeSet<u64>>,
    expert_flags: Option<&'a Vec<Value>>,
    /// The period and the remainder of layers that have experts.
    experts_every: Option<(u64, u64)>,
    /// The range of layers that have experts.
    experts_within: Option<(u64, u64)>,
}

fn listed<'a>(counter: Counter<'a>, name: &str) -> Option<&'a Vec<Value>> {
    counter.config.find(name)?.as_array()
}

/// A list of layers as a set, because it is searched for each layer.
fn indexes(counter: Counter<'_>, name: &str) -> Option<BTreeSet<u64>> {
    Some(listed(counter, name)?.iter().filter_map(Value::as_u64).collect())
}

impl<'a> Plan<'a> {
    fn new(counter: Counter<'a>) -> Result<Self, Missing> {
        let number = |name: &str| counter.config.number(name).map_err(|unusable| unusable.0);
        // A value that isn't a number is a list, which is read below.
        let step = |name: &str| number(name).ok().flatten().filter(|step| *step > 0);
        let layers = counter.find(Dim::Layers)?.unwrap_or_default();
        let counted_from_one = |step: u64| (step, step - 1);
        let expert_flags = listed(counter, "moe_layer_freq");
        let experts_every = if expert_flags.is_some() {
            None
        } else if let Some(step) = step("moe_layer_freq") {
            Some((step, 0))
        } else if let Some(step) = step("expert_layer_period") {
            Some((step, number("expert_layer_offset")?.unwrap_or(0) % step))
        } else {
            step("decoder_sparse_step").or(step("interleave_moe_layer_step")).or(step("moe_layer_interval")).map(counted_from_one)
        };
        let experts_within =
            number("moe_layer_start_index")?.map(|start| (start, number("moe_layer_end_index").ok().flatten().unwrap_or(u64::MAX)));
        Ok(Self {
            counter,
            layers,
            types: listed(counter, "layer_types").or(listed(counter, "layers_block_type")).filter(|types| types.len() as u64 == layers),
            full_attention: step("full_attention_interval"),
            attention_period: match step("attn_layer_period") {
                Some(period) => Some((period, number("attn_layer_offset")?.unwrap_or(0) % period)),
                None => None,
            },
            has_experts: counter.find(Dim::Experts)?.is_some_and(|experts| experts > 1),
            dense_first: number("first_k_dense_replace")?.unwrap_or(0),
            dense_only: indexes(counter, "mlp_only_layers"),
            expert_only: indexes(counter, "moe_layers"),
            expert_flags,
            experts_every,
            experts_within,
        })
    }

    fn mixer(&self, index: u64) -> Mixer {
        let other = self.counter.family.block.mixer;
        if other == Mixer::Attention || self.counter.family.block.mixer_only {
            return other;
        }
        let is_attention = if let Some(types) = self.types {
            let kind = usize::try_from(index).ok().and_then(|index| types.get(index)).and_then(Value::as_str);
            kind.is_some_and(|kind| kind == "attention" || kind == "full_attention" || kind == "sliding_attention")
        } else if let Some((period, offset)) = self.attention_period {
            index % period == offset
        } else {
            self.full_attention.is_some_and(|interval| (index + 1).is_multiple_of(interval))
        };
        if is_attention { Mixer::Attention } else { other }
    }

    fn mlp(&self, index: u64) -> Mlp {
        if self.counter.family.block.mixer_only {
            return Mlp::None;
        }
        let dense = !self.has_experts
            || index < self.dense_first
            || self.dense_only.as_ref().is_some_and(|layers| layers.contains(&index))
            || self.expert_only.as_ref().is_some_and(|layers| !layers.contains(&index))
            || self.expert_flags.is_some_and(|flags| {
                let flag = usize::try_from(index).ok().and_then(|index| flags.get(index));
                flag.is_none_or(|flag| flag.as_u64() == Some(0) || flag.as_bool() == Some(false))
            })
            || self.experts_every.is_some_and(|(period, offset)| index % period != offset)
            || self.experts_within.is_some_and(|(start, end)| index < start || index > end.min(self.layers));
        if dense { Mlp::Dense } else { Mlp::Experts }
    }
}
