//! The bindings of 0.1.0. They reuse all records that are unchanged in the newest version.
#![allow(
    unsafe_code,
    dead_code,
    missing_debug_implementations,
    unreachable_pub,
    unused_qualifications,
    unused_unsafe,
    clippy::all,
    clippy::pedantic,
    reason = "generated: it lifts and lowers values across the component's boundary, which takes raw pointers"
)]

wit_bindgen::generate!({
    path: "../../wit/0.1.0",
    // Renamed: wit-bindgen names exports of the crate after the world, and both versions call theirs `policy`.
    inline: "package pointsman:sdk; world v0-1 { include pointsman:policy/policy@0.1.0; }",
    world: "pointsman:sdk/v0-1",
    generate_all,
    pub_export_macro: true,
    export_macro_name: "export_v0_1",
    with: {
        "pointsman:policy/types@0.1.0/entry": pointsman_interface::Entry,
        "pointsman:policy/types@0.1.0/subject": pointsman_interface::Subject,
        "pointsman:policy/types@0.1.0/question": pointsman_interface::Question,
        "pointsman:policy/types@0.1.0/reason": pointsman_interface::Reason,
        "pointsman:policy/plugin@0.1.0/point": pointsman_interface::plugin::Point,
        "pointsman:policy/plugin@0.1.0/feature-set": pointsman_interface::plugin::FeatureSet,
        "pointsman:policy/plugin@0.1.0/description": pointsman_interface::plugin::Description,
        "pointsman:policy/runtime-selection@0.1.0/versioned": pointsman_interface::runtime_selection::Versioned,
        "pointsman:policy/runtime-selection@0.1.0/comparison": pointsman_interface::runtime_selection::Comparison,
        "pointsman:policy/runtime-selection@0.1.0/supported": pointsman_interface::runtime_selection::Supported,
        "pointsman:policy/pod-templating@0.1.0/layer": pointsman_interface::pod_templating::Layer,
        "pointsman:policy/metadata-propagation@0.1.0/layer": pointsman_interface::metadata_propagation::Layer,
        "pointsman:policy/metadata-propagation@0.1.0/place": pointsman_interface::metadata_propagation::Place,
        "pointsman:policy/metadata-propagation@0.1.0/placed": pointsman_interface::metadata_propagation::Placed,
        "pointsman:policy/metadata-propagation@0.1.0/sort": pointsman_interface::metadata_propagation::Sort,
        "pointsman:policy/metadata-propagation@0.1.0/dropped": pointsman_interface::metadata_propagation::Dropped,
        "pointsman:policy/metadata-propagation@0.1.0/answer": pointsman_interface::metadata_propagation::Answer,
    },
});
