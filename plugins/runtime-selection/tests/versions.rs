//! Compatible and incompatible versions.

use pointsman_plugin::runtime_selection::Comparison::{self, Equal, GreaterThan, GreaterThanOrEqual};
use pointsman_runtime_selection::{
    size::parameters,
    version::{
        Incompatible::{self, Form, ModelUnreadable, RuntimeUnreadable, Unofficial, Value},
        Version, compatible,
    },
};

#[test]
fn versions_are_compared() {
    let table: &[(&str, Comparison, &str, Result<(), Incompatible>)] = &[
        ("1", Equal, "1", Ok(())),
        ("v1", Equal, "v1", Ok(())),
        ("1.12", Equal, "1.12", Ok(())),
        ("4.43.0", Equal, "4.43.0", Ok(())),
        ("4.43.0", Equal, "4.43.1", Err(Value)),
        // The runtime's version is on the left.
        ("4.44.0", GreaterThan, "4.43.0", Ok(())),
        ("4.43.0", GreaterThan, "4.43.0", Err(Value)),
        ("4.42.9", GreaterThan, "4.43.0", Err(Value)),
        ("4.43.0", GreaterThanOrEqual, "4.43.0", Ok(())),
        ("5.0.0", GreaterThanOrEqual, "4.43.0", Ok(())),
        ("4.42.9", GreaterThanOrEqual, "4.43.0", Err(Value)),
        ("4.10.0", GreaterThan, "4.9.0", Ok(())),
        // The form is irrelevant for equality.
        ("1", Equal, "1.0", Ok(())),
        ("1.0", Equal, "1.0.0", Ok(())),
        ("1", Equal, "1.0.1", Err(Value)),
        ("v1", Equal, "1", Ok(())),
        ("v4.4.4", Equal, "4.4.4", Ok(())),
        // To be ordered, both need the same number of parts, and a v on both or on neither.
        ("1", GreaterThanOrEqual, "1.0", Err(Form)),
        ("v1", GreaterThanOrEqual, "1", Err(Form)),
        ("2", GreaterThan, "v1", Err(Form)),
        ("2", GreaterThan, "1.0.0", Err(Form)),
        // Versions that aren't plain releases must be equal, regardless of the operator.
        ("4.43.0.dev0", Equal, "4.43.0.dev0", Ok(())),
        ("4.43.0.dev0", GreaterThan, "4.43.0.dev0", Ok(())),
        ("4.44.0.dev0", GreaterThan, "4.43.0.dev0", Err(Unofficial)),
        ("4.51.3-SAM-HQ-preview", GreaterThanOrEqual, "4.51.3-SAM-HQ-preview", Ok(())),
        ("4.51.3-SAM-HQ-preview", GreaterThanOrEqual, "4.51.3", Err(Unofficial)),
        ("5.0.0", GreaterThan, "4.43.0+build", Err(Unofficial)),
        ("4.43.0+a", Equal, "4.43.0+b", Err(Unofficial)),
        ("v4.43.0-rc.1", Equal, "4.43.0-rc.1", Ok(())),
        // Distinct from a mere difference, so that the version gets fixed.
        ("latest", Equal, "1", Err(RuntimeUnreadable)),
        ("1", Equal, "latest", Err(ModelUnreadable)),
        ("", Equal, "", Err(RuntimeUnreadable)),
    ];
    for (runtime, comparison, model, expected) in table {
        assert_eq!(compatible(runtime, *comparison, model), *expected, "{runtime} {comparison:?} {model}");
    }
}

#[test]
fn other_forms_are_no_versions() {
    let table = [
        "",
        "v",
        "V1",
        "x",
        "1.",
        ".1",
        "1..2",
        "01",
        "1.02",
        "1.2.x",
        "1.2.3.",
        "1.2.3-",
        "1.2.3+",
        "1.2.3-a..b",
        "1.2.3+a..b",
        "1.2.3.dev0.",
        "-1",
    ];
    let more = [" 1", "1 ", "1,2", "+1", "18446744073709551616", "1.x", "\u{661}", "vv1"];
    for text in table.into_iter().chain(more) {
        assert_eq!(Version::parse(text), None, "{text}");
    }
}

#[test]
fn every_part_of_the_form_is_read() {
    for text in [
        "0",
        "v0.8.0",
        "1.12",
        "1.dev0",
        "1.2-rc1",
        "1.2.3.dev0",
        "1.2.3.4",
        "1.2.3-a.b",
        "1.2.3+c-d.e",
        "v1.2.3.dev1-rc.2+build.3",
        "18446744073709551615",
    ] {
        assert!(Version::parse(text).is_some(), "{text}");
    }
}

#[test]
fn sizes_are_read() {
    for (text, size) in [
        ("8B", 8e9),
        ("7.5B", 7.5e9),
        ("7.1B", 7.1e9),
        ("500M", 5e8),
        ("1.5T", 1.5e12),
        ("0B", 0.0),
        ("0.5B", 5e8),
        ("7000000000", 7e9),
        ("0", 0.0),
        (".5B", 5e8),
        ("5.B", 5e9),
        ("1e3M", 1e9),
        ("1.5E-3T", 1.5e9),
        ("8e9", 8e9),
        ("+8B", 8e9),
        ("007B", 7e9),
    ] {
        assert_eq!(parameters(text), Some(size), "{text}");
    }
    assert_eq!(parameters("7.1B"), parameters("7100M"));
    for text in [
        "", "B", ".", "8b", "8 B", "-8B", "8eB", "e3B", "8e+B", "0x8B", "1_000", "infB", "NaNB", "inf", ".B", "1.2.3B", "8K", "8BB",
        "\u{661}B", "8\u{fc}",
    ] {
        assert_eq!(parameters(text), None, "{text}");
    }
    assert_eq!(parameters(&format!("{}T", "9".repeat(400))), None);
}
