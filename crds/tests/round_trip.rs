//! Our types keep what the schemas made from them let in: for any object of any kind.
#![allow(clippy::unwrap_used, clippy::panic)]

use pointsman_crds::KINDS;
use pointsman_harness::lost;
use proptest::{
    prelude::*,
    strategy::ValueTree,
    string::string_regex,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Map, Value, json};

/// Makes arbitrary objects out of a schema.
struct Maker {
    runner: TestRunner,
}

impl Maker {
    fn pick<T: std::fmt::Debug>(&mut self, strategy: impl Strategy<Value = T>) -> T {
        strategy.new_tree(&mut self.runner).unwrap().current()
    }

    fn value(&mut self, schema: &Value, depth: u32) -> Value {
        if let Some(values) = schema["enum"].as_array() {
            return self.pick(prop::sample::select(values.clone()));
        }
        if schema["x-kubernetes-int-or-string"] == true {
            let quantity = schema["pattern"].is_string();
            return match self.pick(0..3) {
                0 => self.pick(0..1_000_000_i32).into(),
                1 if quantity => format!("{}Gi", self.pick(1..2000)).into(),
                _ => format!("{}{}", self.pick(1..100), if quantity { "m" } else { "%" }).into(),
            };
        }
        match schema["type"].as_str() {
            Some("object") if schema["properties"].is_object() => self.object(schema, depth),
            Some("object") if schema["additionalProperties"].is_object() => {
                let count = self.pick(0..3_usize);
                let keys: Vec<String> = (0..count).map(|_| self.pick("[a-z][a-z0-9./-]{0,20}")).collect();
                keys.into_iter().map(|key| (key, self.value(&schema["additionalProperties"], depth + 1))).collect::<Map<_, _>>().into()
            }
            Some("object") => Value::Object(self.anything(2).as_object().cloned().unwrap_or_default()),
            Some("array") => {
                let least = schema["minItems"].as_u64().unwrap_or(0);
                let count = self.pick(least..least + 3);
                (0..count).map(|_| self.value(&schema["items"], depth + 1)).collect()
            }
            Some("string") => self.string(schema).into(),
            Some("integer") => {
                // The bounds come as 1.0: OpenAPI knows only numbers.
                let bound = |name: &str| -> Option<i64> { format!("{:.0}", schema[name].as_f64()?).parse().ok() };
                let (low, high) = (bound("minimum").unwrap_or(-5), bound("maximum").unwrap_or(i32::MAX.into()));
                self.pick(low..=high).into()
            }
            Some("number") => (f64::from(self.pick(0..1000)) / 8.0).into(),
            Some("boolean") => self.pick(any::<bool>()).into(),
            _ => self.anything(2),
        }
    }

    fn object(&mut self, schema: &Value, depth: u32) -> Value {
        let required = |name: &str| schema["required"].as_array().is_some_and(|r| r.iter().any(|field| field == name));
        // Deep down most fields are absent, or an InferenceService would never end.
        let chance = [1.0, 0.7, 0.4, 0.25, 0.15].get(depth as usize).copied().unwrap_or(0.1);
        let mut fields = Map::new();
        for (name, property) in schema["properties"].as_object().unwrap() {
            if required(name) || self.pick(prop::bool::weighted(chance)) {
                fields.insert(name.clone(), self.value(property, depth + 1));
            }
        }
        if schema["x-kubernetes-preserve-unknown-fields"] == true {
            fields.insert("unknownToUs".to_owned(), self.anything(2));
        }
        fields.into()
    }

    fn string(&mut self, schema: &Value) -> String {
        if schema["format"] == "date-time" {
            return format!("20{:02}-0{}-1{}T08:30:{:02}Z", self.pick(10..40), self.pick(1..10), self.pick(0..10), self.pick(0..60));
        }
        if schema["format"] == "byte" {
            return "aGVsbG8=".to_owned();
        }
        match schema["pattern"].as_str() {
            // proptest knows no anchors, and every pattern of ours is anchored at both ends.
            Some(pattern) => {
                let inner = pattern.trim_start_matches("^$|").trim_start_matches('^').trim_end_matches('$');
                self.pick(string_regex(inner).unwrap_or_else(|error| panic!("{pattern}: {error}")))
            }
            None => self.pick("[a-zA-Z0-9:/ é\"{}-]{1,12}"),
        }
    }

    fn anything(&mut self, depth: u32) -> Value {
        match self.pick(0..if depth == 0 { 4 } else { 6 }) {
            0 => json!(self.pick(any::<i64>())),
            1 => json!(self.pick("[a-z]{0,8}")),
            2 => json!(self.pick(any::<bool>())),
            3 => json!(null),
            4 => (0..self.pick(0..3)).map(|_| self.anything(depth - 1)).collect(),
            _ => {
                let keys: Vec<String> = (0..self.pick(0..4)).map(|_| self.pick("[a-zA-Z0-9_.]{1,8}")).collect();
                keys.into_iter().map(|key| (key, self.anything(depth - 1))).collect::<Map<_, _>>().into()
            }
        }
    }
}

proptest! {
    #![proptest_config(Config::with_cases(if std::env::var_os("POINTSMAN_TEST_FULL").is_some() { 5_000 } else { 100 }))]

    #[test]
    fn what_a_schema_lets_in_survives_reading_and_writing(seed: [u8; 32]) {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        let mut maker = Maker { runner: TestRunner::new_with_rng(Config::default(), rng) };
        for (kind, schema) in schemas() {
            let mut object = maker.value(schema, 0);
            let resource = (kind.resource)();
            object["apiVersion"] = resource.api_version.clone().into();
            object["kind"] = resource.kind.clone().into();
            object["metadata"] = json!({ "name": "any", "labels": { "a": "b" }, "annotations": { "c": "{\"d\": 1}" } });
            let written = (kind.read)(object.clone());
            prop_assert!(written.is_ok(), "{}: {:?}\n{object}", resource.kind, written);
            let written = written.unwrap();
            let again = (kind.read)(written.clone()).unwrap();
            prop_assert_eq!(&written, &again);
            let paths = lost(&object, &written);
            prop_assert!(paths.is_empty(), "{}: lost {paths:?} of\n{object}\nkept\n{written}", resource.kind);
        }
    }
}

/// Making a schema takes longer than making an object.
fn schemas() -> &'static [(pointsman_crds::Served, Value)] {
    static SCHEMAS: std::sync::OnceLock<Vec<(pointsman_crds::Served, Value)>> = std::sync::OnceLock::new();
    SCHEMAS.get_or_init(|| {
        let schema =
            |kind: &pointsman_crds::Served| serde_json::to_value(&(kind.crd)().spec.versions[0].schema).unwrap()["openAPIV3Schema"].take();
        KINDS.iter().map(|kind| (*kind, schema(kind))).collect()
    })
}
