//! Limits of what is read, so that no model takes more memory or time than a real one could need.

/// The bytes of a config.json, a `model_index.json` and their like. The largest real ones have about 200 KB.
pub const MAX_CONFIG_BYTES: usize = 1 << 20;

/// The values in one such file: together with the bytes it bounds the memory of the parsed file, about 100 bytes a value.
pub const MAX_CONFIG_VALUES: usize = 200_000;

/// The bytes of an index of shards. That of a model with 1 T parameters has about 20 MB; it is never stored parsed.
pub const MAX_INDEX_BYTES: usize = 64 << 20;

/// The bytes of a safetensors header. The format allows 100 MB; one file with the 91,991 tensors of DeepSeek-V3 would need 14 MB.
pub const MAX_HEADER_BYTES: usize = 32 << 20;

/// The tensors of a model over all its files. The largest real models, with 384 experts a layer, have about 200,000.
pub const MAX_TENSORS: usize = 1_000_000;

/// The dimensions of a tensor.
pub const MAX_DIMENSIONS: usize = 16;

/// The files and folders of a model.
pub const MAX_FILES: usize = 16_384;

/// The folders that may contain each other.
pub const MAX_DEPTH: usize = 8;

/// A number in a config that a size is computed from. It keeps each product of the formula within 128 bits.
pub const MAX_DIMENSION: u64 = 1 << 24;

/// The layers of a model, each of which the formula counts on its own.
pub const MAX_LAYERS: u64 = 4_096;

/// The bytes of a text that becomes part of a model's facts, such as the name of a class.
pub const MAX_TEXT_BYTES: usize = 253;

/// The notes of one model. Later ones are counted, not stored.
pub const MAX_NOTES: usize = 32;

/// The parameters that a config may describe: a thousand times as many as the largest real models have.
pub const MAX_PARAMETERS: u64 = 1 << 50;
