//! Limits for input, so that no model takes more memory or time than a real one needs.

/// The maximum size of a config.json, a `model_index.json` or a similar file, in bytes. The largest real ones have about 200 KB.
pub const MAX_CONFIG_BYTES: usize = 1 << 20;

/// The maximum number of values in one such file. Together with the size, it limits the memory of the parsed file, about 100 bytes per
/// value.
pub const MAX_CONFIG_VALUES: usize = 200_000;

/// The maximum size of an index of shards, in bytes. That of a model with 1 T parameters has about 20 MB. It is never stored in parsed
/// form.
pub const MAX_INDEX_BYTES: usize = 64 << 20;

/// The maximum size of a safetensors header, in bytes. The format allows 100 MB. A single file with the 91,991 tensors of DeepSeek-V3 would
/// need 14 MB.
pub const MAX_HEADER_BYTES: usize = 32 << 20;

/// The maximum number of tensors in all files of a model. The largest real models, with 384 experts per layer, have about 200,000.
pub const MAX_TENSORS: usize = 1_000_000;

/// The maximum number of a tensor's dimensions.
pub const MAX_DIMENSIONS: usize = 16;

/// The maximum number of files and folders of a model.
pub const MAX_FILES: usize = 16_384;

/// The maximum depth of folders.
pub const MAX_DEPTH: usize = 8;

/// The maximum of a number in a config from which a size is computed. It keeps each product of the formula within 128 bits.
pub const MAX_DIMENSION: u64 = 1 << 24;

/// The maximum number of layers, each of which the formula counts separately.
pub const MAX_LAYERS: u64 = 4_096;

/// The maximum size of a text in a model's facts, such as the name of a class, in bytes.
pub const MAX_TEXT_BYTES: usize = 253;

/// The maximum number of notes about one model. Later ones are counted, but not stored.
pub const MAX_NOTES: usize = 32;

/// The maximum number of parameters that a config may describe: a thousand times that of the largest real models.
pub const MAX_PARAMETERS: u64 = 1 << 50;
