//! What wit-bindgen makes of ../../wit: the records of all policy points, once, whatever a policy answers.
#![allow(
    unsafe_code,
    missing_debug_implementations,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated: it lifts and lowers values across the component's boundary, which takes raw pointers"
)]

wit_bindgen::generate!({
    path: "../../wit",
    world: "policy",
    pub_export_macro: true,
    export_macro_name: "export_all_points",
    additional_derives: [PartialEq],
    // Tests name the fields that they are about, and leave the others to `..Default::default()`.
    additional_type_attributes: {
        "pointsman:policy/types@0.1.0/entry": [#[derive(Default)]],
        "pointsman:policy/types@0.1.0/subject": [#[derive(Default)]],
        "pointsman:policy/types@0.1.0/role": [#[derive(Default)]],
        "pointsman:policy/runtime-selection@0.1.0/versioned": [#[derive(Default)]],
        "pointsman:policy/runtime-selection@0.1.0/model": [#[derive(Default)]],
        "pointsman:policy/runtime-selection@0.1.0/comparison": [#[derive(Default)]],
        "pointsman:policy/runtime-selection@0.1.0/supported": [#[derive(Default)]],
        "pointsman:policy/runtime-selection@0.1.0/supported-model": [#[derive(Default)]],
        "pointsman:policy/runtime-selection@0.1.0/candidate": [#[derive(Default)]],
        "pointsman:policy/runtime-selection@0.1.0/request": [#[derive(Default)]],
        "pointsman:policy/runtime-selection@0.1.0/eligible": [#[derive(Default)]],
        "pointsman:policy/pod-templating@0.1.0/layer": [#[derive(Default)]],
        "pointsman:policy/pod-templating@0.1.0/request": [#[derive(Default)]],
        "pointsman:policy/pod-templating@0.1.0/answer": [#[derive(Default)]],
        "pointsman:policy/metadata-propagation@0.1.0/layer": [#[derive(Default)]],
        "pointsman:policy/metadata-propagation@0.1.0/place": [#[derive(Default)]],
        "pointsman:policy/metadata-propagation@0.1.0/target": [#[derive(Default)]],
        "pointsman:policy/metadata-propagation@0.1.0/placed": [#[derive(Default)]],
        "pointsman:policy/metadata-propagation@0.1.0/request": [#[derive(Default)]],
        "pointsman:policy/metadata-propagation@0.1.0/answer": [#[derive(Default)]],
    },
    additional_member_attributes: {
        "pointsman:policy/types@0.1.0/role.engine": [#[default]],
        "pointsman:policy/runtime-selection@0.1.0/comparison.equal": [#[default]],
        "pointsman:policy/metadata-propagation@0.1.0/place.object": [#[default]],
    },
});
