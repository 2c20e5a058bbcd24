//! Generated files: for any content, reading terminates, never panics, and uses a limited amount of memory.
#![allow(clippy::unwrap_used, clippy::panic)]

mod corpus_files;
mod support;

use pointsman_model::{
    FileEntry, FilesError, Listing, ModelFiles, inspect, inspect_config,
    limits::{MAX_CONFIG_BYTES, MAX_CONFIG_VALUES, MAX_NOTES},
};
use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::{Map, Value, json};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    collections::BTreeMap,
    env,
    sync::LazyLock,
};
use support::{LLAMA_1B, header, llama_config};

/// The maximum memory for a small model. Its files here have less than a megabyte.
const MAX_BYTES: isize = 16 << 20;

/// The maximum memory for the largest config.json.
const MAX_CONFIG_MEMORY: isize = 64 << 20;

/// Counts the memory of each thread.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn allocated(bytes: usize) {
    let live = LIVE.get().wrapping_add_unsigned(bytes);
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
}

fn freed(bytes: usize) {
    LIVE.set(LIVE.get().wrapping_sub_unsigned(bytes));
}

// SAFETY: all calls go to the system's allocator. The counters have no destructors and allocate nothing.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        freed(layout.size());
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The peak memory of work, in bytes.
fn held<T>(work: impl FnOnce() -> T) -> (T, isize) {
    let live = LIVE.get();
    PEAK.set(live);
    let done = work();
    (done, PEAK.get() - live)
}

fn cases(usual: u32) -> ProptestConfig {
    let factor = if env::var_os("POINTSMAN_TEST_FULL").is_some() { 40 } else { 1 };
    ProptestConfig { cases: usual * factor, failure_persistence: None, ..ProptestConfig::default() }
}

/// A model in memory, whose files may state any size.
#[derive(Clone, Debug, Default)]
struct Memory(BTreeMap<String, (Vec<u8>, u64)>);

impl Memory {
    fn with(mut self, path: &str, bytes: Vec<u8>) -> Self {
        let size = bytes.len() as u64;
        self.0.insert(path.to_owned(), (bytes, size));
        self
    }

    fn sized(mut self, path: &str, bytes: Vec<u8>, size: u64) -> Self {
        self.0.insert(path.to_owned(), (bytes, size));
        self
    }
}

impl ModelFiles for Memory {
    fn list(&self) -> Result<Listing, FilesError> {
        let files = self.0.iter().map(|(path, (_, size))| FileEntry { path: path.clone(), size: *size }).collect();
        Ok(Listing { files, skipped: Vec::new() })
    }

    fn read_range(&self, path: &str, offset: u64, length: usize) -> Result<Vec<u8>, FilesError> {
        let (bytes, _) = self.0.get(path).ok_or_else(|| FilesError::Store { path: path.to_owned(), message: "not found".to_owned() })?;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        Ok(bytes[from..from.saturating_add(length).min(bytes.len())].to_vec())
    }
}

/// Checks the properties that hold for every model.
fn check(files: &Memory) {
    let (facts, bytes) = held(|| inspect(files).unwrap());
    assert!(bytes < MAX_BYTES, "{bytes} bytes");
    assert!(facts.notes.len() <= MAX_NOTES);
    assert!(facts.notes.iter().all(|note| !note.message.contains('\n')));
    // There is a count, or a note with the reason.
    assert!(facts.parameters.is_some() || facts.notes.iter().any(|note| note.about == "parameters") || facts.further_notes > 0);
    assert!(facts.parameters.is_none_or(|parameters| parameters.count > 0));
}

/// The fields of configs, and invalid values.
fn field() -> impl Strategy<Value = String> {
    static FIELDS: LazyLock<Vec<String>> = LazyLock::new(|| {
        fn collect(value: &Value, fields: &mut Vec<String>) {
            if let Value::Object(map) = value {
                for (name, value) in map {
                    fields.push(name.clone());
                    collect(value, fields);
                }
            }
        }
        let mut fields = Vec::new();
        for model in corpus_files::models() {
            collect(&Value::Object(model.config), &mut fields);
        }
        fields.extend(
            ["moe_layer_freq", "hybrid_override_pattern", "layer_types", "mm_vision_tower", "_class_name", "block_configs"]
                .map(str::to_owned),
        );
        fields.sort();
        fields.dedup();
        fields
    });
    prop_oneof![9 => any::<Index>().prop_map(|at| at.get(&FIELDS).clone()), 1 => ".{0,12}"]
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (0_u64..200_000).prop_map(Value::from),
        1 => prop_oneof![Just(0), Just(1), Just(1 << 24), Just(u64::MAX), Just(i64::MAX as u64)].prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let types = || {
        static TYPES: LazyLock<Vec<Value>> = LazyLock::new(|| {
            let own = |name: &'static str| corpus_files::models().into_iter().filter_map(move |model| model.config.get(name).cloned());
            own("model_type").chain(own("architectures").map(|list| list[0].clone())).collect()
        });
        any::<Index>().prop_map(|at| at.get(&TYPES).clone())
    };
    let leaf = prop_oneof![
        5 => number(),
        2 => types(),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => "[ME*\\-]{0,80}|.{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 32, 8, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            vec((field(), inner), 0..12).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A real config in which some fields are replaced.
fn mutated() -> impl Strategy<Value = Map<String, Value>> {
    static CONFIGS: LazyLock<Vec<Map<String, Value>>> =
        LazyLock::new(|| corpus_files::models().into_iter().map(|model| model.config).collect());
    (any::<Index>(), vec((any::<Index>(), prop_oneof![3 => Just(None), 7 => value().prop_map(Some)]), 1..5), vec((field(), value()), 0..4))
        .prop_map(|(at, changes, more)| {
            let mut config = at.get(&CONFIGS).clone();
            for (at, change) in changes {
                let mut map = &mut config;
                // Half of the changes are inside a part.
                if at.index(2) == 0
                    && let Some(part) = map.iter().find(|(_, value)| value.is_object()).map(|(name, _)| name.clone())
                    && map[&part].as_object().is_some_and(|part| !part.is_empty())
                {
                    map = map.get_mut(&part).unwrap().as_object_mut().unwrap();
                }
                if map.is_empty() {
                    continue;
                }
                let name = map.keys().nth(at.index(map.len())).unwrap().clone();
                match change {
                    Some(value) => map.insert(name, value),
                    None => map.remove(&name),
                };
            }
            config.extend(more);
            config
        })
}

/// Bytes of which some are replaced or missing.
fn damaged(bytes: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    (vec((any::<Index>(), any::<u8>()), 0..6), any::<Index>(), any::<bool>()).prop_map(move |(changes, end, cut)| {
        let mut bytes = bytes.clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if cut {
            bytes.truncate(end.index(bytes.len() + 1));
        }
        bytes
    })
}

/// Contradictory headers: overlaps, and shapes and offsets at the limits.
fn odd_header() -> impl Strategy<Value = Vec<u8>> {
    let edge = || prop_oneof![3 => 0_u64..64, 1 => Just(u64::MAX), 1 => Just(1 << 32), 1 => any::<u64>()];
    let dtype = prop_oneof![Just("F32"), Just("BF16"), Just("I32"), Just("U8"), Just("F4"), Just("F8_E8M0"), Just("I64"), Just("odd")];
    let name = prop_oneof![
        Just("lm_head.weight"),
        Just("model.embed_tokens.weight"),
        Just("a.qweight"),
        Just("a.codes"),
        Just("mtp.a"),
        Just("model.layers.99999999999999999999.a"),
        Just("__metadata__"),
        Just("a.weight"),
    ];
    let entry = (name, dtype, vec(edge(), 0..20), edge(), edge());
    vec(entry, 0..12).prop_map(|entries| {
        let map: Map<String, Value> = entries
            .into_iter()
            .map(|(name, dtype, shape, begin, end)| {
                (name.to_owned(), json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}))
            })
            .collect();
        let text = serde_json::to_vec(&map).unwrap();
        [(text.len() as u64).to_le_bytes().as_slice(), &text].concat()
    })
}

fn quantized() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![Just("awq"), Just("gptq"), Just("mxfp4"), Just("bitsandbytes"), Just("aqlm"), Just("hqq"), Just("unheard-of")]
        .prop_flat_map(|method| {
            (0_u64..40).prop_map(move |bits| {
                let mut config = llama_config();
                config["quantization_config"] = json!({"quant_method": method, "bits": bits, "load_in_4bit": bits == 4});
                config.to_string().into_bytes()
            })
        })
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn a_config_of_any_json_is_read_or_refused(config in value()) {
        check(&Memory::default().with("config.json", config.to_string().into_bytes()));
        check(&Memory::default().with("model_index.json", config.to_string().into_bytes()).sized("vae/a.safetensors", vec![0; 8], 8));
    }

    #[test]
    fn a_real_config_with_other_fields_is_read(config in mutated()) {
        let (facts, bytes) = held(|| inspect_config(config.clone()));
        prop_assert!(bytes < MAX_BYTES);
        prop_assert!(facts.parameters.is_some() || facts.notes.iter().any(|note| note.about == "parameters"));
        check(&Memory::default().with("config.json", Value::Object(config).to_string().into_bytes()));
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn a_damaged_header_is_read_or_refused(file in damaged(header(&LLAMA_1B.tensors("BF16")).0), size in prop_oneof![Just(u64::MAX), Just(2_471_645_608), any::<u64>()]) {
        check(&Memory::default().with("config.json", llama_config().to_string().into_bytes()).sized("model.safetensors", file, size));
    }

    #[test]
    fn a_damaged_config_is_read_or_refused(file in damaged(llama_config().to_string().into_bytes())) {
        check(&Memory::default().with("config.json", file));
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn an_odd_header_is_read_or_refused(file in odd_header(), size in prop_oneof![Just(u64::MAX), 0_u64..4_096], config in quantized()) {
        check(&Memory::default().with("config.json", config).sized("model.safetensors", file, size));
    }

    #[test]
    fn a_length_of_any_size_is_refused(length in any::<u64>(), size in any::<u64>()) {
        check(&Memory::default().sized("model.safetensors", length.to_le_bytes().to_vec(), size));
    }

    #[test]
    fn an_index_of_any_json_is_read_or_refused(map in vec((".{0,8}", value()), 0..8), metadata in value()) {
        let map: Map<String, Value> = map.into_iter().collect();
        for index in [json!({"metadata": metadata, "weight_map": map}), json!({"weight_map": metadata}), metadata] {
            let files = Memory::default().with("model.safetensors.index.json", index.to_string().into_bytes());
            check(&files.with("config.json", llama_config().to_string().into_bytes()));
        }
    }

    #[test]
    fn any_bytes_are_refused(bytes in vec(any::<u8>(), 0..200)) {
        for name in ["config.json", "model_index.json", "model.safetensors.index.json", "model.safetensors"] {
            check(&Memory::default().with(name, bytes.clone()));
        }
    }
}

#[test]
fn the_largest_config_holds_a_bounded_amount_of_memory() {
    // The maximum number of values, in the form that takes the most memory: one object each.
    let many = format!("{{\"a\":[{}]}}", vec!["{\"a\":0}"; MAX_CONFIG_VALUES / 2 - 2].join(","));
    let text = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_CONFIG_BYTES - 8));
    let deep = format!("{}{}", "{\"text_config\":".repeat(10_000), "0");
    let too_many = format!("[{}]", vec!["0"; MAX_CONFIG_VALUES + 1].join(","));
    let too_long = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_CONFIG_BYTES));
    for (config, expected) in [(many, ""), (text, ""), (deep, "recursion"), (too_many, "values"), (too_long, "bytes")] {
        let files = Memory::default().with("config.json", config.into_bytes());
        let (facts, bytes) = held(|| inspect(&files).unwrap());
        assert!(bytes < MAX_CONFIG_MEMORY, "{bytes} bytes");
        let notes: String = facts.notes.iter().map(ToString::to_string).collect();
        assert!(notes.contains(expected), "{notes}");
    }
}

#[test]
fn headers_and_indexes_of_any_length_hold_less_than_they_have() {
    // A header of 8 MB, with 100,000 tensors.
    let tensors: Vec<_> =
        (0..100_000).map(|number| support::tensor(format!("model.layers.0.mlp.experts.{number}.w"), "F8_E4M3", &[1])).collect();
    let (bytes, data) = header(&tensors);
    let size = bytes.len() as u64 + data;
    let length = isize::try_from(bytes.len()).unwrap();
    let files = Memory::default().sized("model.safetensors", bytes, size);
    let (facts, held_bytes) = held(|| inspect(&files).unwrap());
    assert_eq!(facts.parameters.unwrap().count, 100_000);
    assert!(held_bytes < 2 * length, "{held_bytes} of {length}");
    let map: Map<String, Value> =
        tensors.iter().map(|(name, ..)| (name.clone(), Value::from("model-00001-of-00002.safetensors"))).collect();
    let bytes = json!({"weight_map": map}).to_string().into_bytes();
    let length = isize::try_from(bytes.len()).unwrap();
    let files = Memory::default().with("model.safetensors.index.json", bytes);
    let (_, held_bytes) = held(|| inspect(&files).unwrap());
    assert!(held_bytes < length + (1 << 20), "{held_bytes} of {length}");
}
