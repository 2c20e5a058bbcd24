//! The number of parameters that a tensor represents: packed numbers represent several, scales and buffers none.

use crate::{
    quantization::Quantization,
    safetensors::{Dtype, Tensor},
};

/// How a tensor is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tally {
    Parameters(u64),
    /// Scales, zero points and buffers. Published counts don't include them.
    Auxiliary,
    /// Codes of a codebook. The shape doesn't give the number of parameters.
    Unknown,
}

/// The last parts of names that quantization adds, regardless of the method.
const QUANTIZATION_PARTS: &[&str] = &[
    "weight_scale",
    "weight_scale_inv",
    "weight_scale_2",
    "weight_global_scale",
    "weight_zero_point",
    "weight_shape",
    "weight_g_idx",
    "weight_format",
    "input_scale",
    "input_scale_inv",
    "input_global_scale",
    "input_zero_point",
    "input_scale_ub",
    "output_scale",
    "activation_scale",
    "q_scale",
    "k_scale",
    "v_scale",
    "kv_scale",
    "scale_inv",
    "g_idx",
    "qzeros",
    "SCB",
    "absmax",
    "quant_map",
    "nested_absmax",
    "nested_quant_map",
];

/// Names of scales that are real parameters in models without quantization.
const SCALE_PARTS: &[&str] = &["scale", "scales", "zero", "zeros", "zero_point", "scaling_factor"];

/// The last parts of names of buffers, which old libraries stored.
const BUFFER_PARTS: &[&str] = &["inv_freq", "position_ids", "masked_bias", "num_batches_tracked", "cos_cached", "sin_cached"];

/// How a tensor is counted in a model with this quantization.
pub(crate) fn tally(tensor: &Tensor<'_>, quantization: Option<&Quantization>) -> Tally {
    let last = tensor.name.rsplit('.').next().unwrap_or(tensor.name);
    let elements = tensor.elements;
    if BUFFER_PARTS.contains(&last) || QUANTIZATION_PARTS.contains(&last) || tensor.name.contains(".quant_state.") {
        return Tally::Auxiliary;
    }
    let times = |factor: u64| elements.checked_mul(factor).map_or(Tally::Unknown, Tally::Parameters);
    let packed = |container: u64, bits: u64| {
        let all = elements.checked_mul(container).filter(|_| (1..=container).contains(&bits));
        all.map_or(Tally::Unknown, |all| Tally::Parameters(all / bits))
    };
    let bits = quantization.and_then(|quantization| quantization.bits).map(u64::from);
    if let Some(quantization) = quantization {
        if SCALE_PARTS.contains(&last) || last.ends_with("_scales") || last.ends_with("_scale") || tensor.dtype == Dtype::F8Scale {
            return Tally::Auxiliary;
        }
        let is_plain = quantization.method.as_deref().is_some_and(|method| matches!(method, "aqlm" | "vptq" | "quip" | "spqr" | "higgs"));
        if is_plain && matches!(last, "codes" | "codebooks" | "centroids" | "indices" | "qweight" | "Qidxs") {
            return Tally::Unknown;
        }
        match (last, tensor.dtype) {
            // GPTQ and AWQ pack as many numbers into 32 bits as fit. Three-bit numbers may span two words.
            ("qweight" | "weight_packed" | "W_q", Dtype::I32 | Dtype::U32) => return packed(32, bits.unwrap_or(4)),
            ("qweight" | "weight_packed" | "W_q", Dtype::U8) => return packed(8, bits.unwrap_or(4)),
            // Two numbers of four bits in a byte: MXFP4's blocks, bitsandbytes and ModelOpt.
            (name, Dtype::U8) if name.ends_with("_blocks") => return times(2),
            (_, Dtype::U8) if bits == Some(4) => return times(2),
            _ => {}
        }
    }
    match tensor.dtype {
        // A quantized file whose config doesn't mention quantization.
        Dtype::I32 | Dtype::U32 if last == "qweight" || last == "weight_packed" => packed(32, bits.unwrap_or(4)),
        // Positions, masks and counters.
        Dtype::Bool | Dtype::U8 | Dtype::I16 | Dtype::U16 | Dtype::I32 | Dtype::U32 | Dtype::I64 | Dtype::U64 | Dtype::F8Scale => {
            Tally::Auxiliary
        }
        Dtype::C64 => times(2),
        _ => Tally::Parameters(elements),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantization(name: &str, method: &str, bits: Option<u8>) -> Quantization {
        Quantization { name: name.to_owned(), method: Some(method.to_owned()), bits, group_size: None }
    }

    fn tallied(name: &str, dtype: Dtype, elements: u64, quantization: Option<&Quantization>) -> Tally {
        tally(&Tensor { name, dtype, elements }, quantization)
    }

    #[test]
    fn packed_numbers_are_unpacked_and_scales_are_none() {
        let (awq, gptq3) = (quantization("int4", "awq", Some(4)), quantization("int3", "gptq", Some(3)));
        let (mxfp4, fp8) = (quantization("mxfp4", "mxfp4", Some(4)), quantization("fp8", "fp8", Some(8)));
        let bytes = quantization("nf4", "bitsandbytes", Some(4));
        for (name, dtype, elements, quantization, expected) in [
            ("a.qweight", Dtype::I32, 100, Some(&awq), Tally::Parameters(800)),
            ("a.qzeros", Dtype::I32, 100, Some(&awq), Tally::Auxiliary),
            ("a.scales", Dtype::F16, 100, Some(&awq), Tally::Auxiliary),
            ("a.qweight", Dtype::I32, 96, Some(&gptq3), Tally::Parameters(1_024)),
            ("a.g_idx", Dtype::I32, 100, Some(&gptq3), Tally::Auxiliary),
            ("experts.gate_up_proj_blocks", Dtype::U8, 100, Some(&mxfp4), Tally::Parameters(200)),
            ("experts.gate_up_proj_scales", Dtype::U8, 100, Some(&mxfp4), Tally::Auxiliary),
            ("a.weight", Dtype::F8, 100, Some(&fp8), Tally::Parameters(100)),
            ("a.weight_scale_inv", Dtype::F32, 1, Some(&fp8), Tally::Auxiliary),
            ("a.weight", Dtype::U8, 100, Some(&bytes), Tally::Parameters(200)),
            ("a.weight.quant_state.bitsandbytes__nf4", Dtype::U8, 80, Some(&bytes), Tally::Auxiliary),
            ("a.weight.absmax", Dtype::F32, 8, Some(&bytes), Tally::Auxiliary),
            ("a.scales", Dtype::F16, 100, None, Tally::Parameters(100)),
            ("rotary_emb.inv_freq", Dtype::F32, 64, None, Tally::Auxiliary),
            ("attention.bias", Dtype::Bool, 64, None, Tally::Auxiliary),
            ("a.weight", Dtype::Bf16, 64, None, Tally::Parameters(64)),
            ("a.qweight", Dtype::I32, u64::MAX, Some(&awq), Tally::Unknown),
        ] {
            assert_eq!(tallied(name, dtype, elements, quantization), expected, "{name} {dtype:?}");
        }
        assert_eq!(tallied("a.codes", Dtype::I16, 9, Some(&quantization("aqlm", "aqlm", Some(2)))), Tally::Unknown);
    }
}
