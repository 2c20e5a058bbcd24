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
    additional_derives: [PartialEq, serde::Serialize, serde::Deserialize],
    // Tests name the fields that they are about, and leave the others to `..Default::default()`. What serde is told makes the image in
    // JSON that the host's own types have (host/sandbox/src/point).
    additional_type_attributes: {
        "pointsman:policy/types@0.1.0/entry": [#[derive(Default)] #[serde(deny_unknown_fields)]],
        "pointsman:policy/types@0.1.0/subject": [#[derive(Default)] #[serde(rename_all = "camelCase", default, deny_unknown_fields)]],
        "pointsman:policy/types@0.1.0/role": [#[derive(Default)] #[serde(rename_all = "kebab-case")]],
        "pointsman:policy/types@0.1.0/question": [#[serde(rename_all = "kebab-case")]],
        "pointsman:policy/types@0.1.0/reason": [#[serde(deny_unknown_fields)]],
        "pointsman:policy/types@0.1.0/failure": [#[serde(deny_unknown_fields)]],
        "pointsman:policy/plugin@0.1.0/point": [#[serde(rename_all = "kebab-case")]],
        "pointsman:policy/plugin@0.1.0/feature-set": [#[serde(deny_unknown_fields)]],
        "pointsman:policy/plugin@0.1.0/description": [#[derive(Default)] #[serde(rename_all = "camelCase", default, deny_unknown_fields)]],
        "pointsman:policy/runtime-selection@0.1.0/versioned": [#[derive(Default)] #[serde(deny_unknown_fields)]],
        "pointsman:policy/runtime-selection@0.1.0/model": [
            #[derive(Default)]
            #[serde(rename_all = "camelCase", default, deny_unknown_fields)]
        ],
        "pointsman:policy/runtime-selection@0.1.0/comparison": [#[derive(Default)] #[serde(rename_all = "kebab-case")]],
        "pointsman:policy/runtime-selection@0.1.0/supported": [#[derive(Default)] #[serde(default, deny_unknown_fields)]],
        "pointsman:policy/runtime-selection@0.1.0/supported-model": [
            #[derive(Default)]
            #[serde(rename_all = "camelCase", default, deny_unknown_fields)]
        ],
        "pointsman:policy/runtime-selection@0.1.0/candidate": [#[derive(Default)] #[serde(default, deny_unknown_fields)]],
        "pointsman:policy/runtime-selection@0.1.0/request": [#[derive(Default)] #[serde(rename_all = "camelCase", deny_unknown_fields)]],
        "pointsman:policy/runtime-selection@0.1.0/eligible": [
            #[derive(Default)]
            #[serde(rename_all = "camelCase", default, deny_unknown_fields)]
        ],
        "pointsman:policy/runtime-selection@0.1.0/verdict": [#[serde(rename_all = "kebab-case")]],
        "pointsman:policy/pod-templating@0.1.0/layer": [#[derive(Default)] #[serde(deny_unknown_fields)]],
        "pointsman:policy/pod-templating@0.1.0/request": [#[derive(Default)] #[serde(rename_all = "camelCase", deny_unknown_fields)]],
        "pointsman:policy/pod-templating@0.1.0/action": [#[serde(rename_all = "kebab-case")]],
        "pointsman:policy/pod-templating@0.1.0/operation": [#[serde(deny_unknown_fields)]],
        "pointsman:policy/pod-templating@0.1.0/answer": [#[derive(Default)] #[serde(default, deny_unknown_fields)]],
        "pointsman:policy/metadata-propagation@0.1.0/layer": [#[derive(Default)] #[serde(default, deny_unknown_fields)]],
        "pointsman:policy/metadata-propagation@0.1.0/place": [#[derive(Default)] #[serde(rename_all = "kebab-case")]],
        "pointsman:policy/metadata-propagation@0.1.0/target": [
            #[derive(Default)]
            #[serde(rename_all = "camelCase", default, deny_unknown_fields)]
        ],
        "pointsman:policy/metadata-propagation@0.1.0/placed": [#[derive(Default)] #[serde(deny_unknown_fields)]],
        "pointsman:policy/metadata-propagation@0.1.0/request": [#[derive(Default)] #[serde(rename_all = "camelCase", deny_unknown_fields)]],
        "pointsman:policy/metadata-propagation@0.1.0/sort": [#[serde(rename_all = "kebab-case")]],
        "pointsman:policy/metadata-propagation@0.1.0/dropped": [#[serde(deny_unknown_fields)]],
        "pointsman:policy/metadata-propagation@0.1.0/answer": [#[derive(Default)] #[serde(default, deny_unknown_fields)]],
    },
    additional_member_attributes: {
        "pointsman:policy/types@0.1.0/subject.labels": [#[serde(deserialize_with = "crate::image::list")]],
        "pointsman:policy/types@0.1.0/subject.annotations": [#[serde(deserialize_with = "crate::image::list")]],
        "pointsman:policy/types@0.1.0/subject.namespace-labels": [#[serde(deserialize_with = "crate::image::list")]],
        "pointsman:policy/types@0.1.0/role.engine": [#[default]],
        "pointsman:policy/plugin@0.1.0/description.points": [#[serde(deserialize_with = "crate::image::list")]],
        "pointsman:policy/plugin@0.1.0/description.config-schema": [#[serde(with = "crate::image::schema")]],
        "pointsman:policy/plugin@0.1.0/description.features": [#[serde(deserialize_with = "crate::image::list")]],
        "pointsman:policy/runtime-selection@0.1.0/versioned.version": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/runtime-selection@0.1.0/model.labels": [#[serde(deserialize_with = "crate::image::list")]],
        "pointsman:policy/runtime-selection@0.1.0/model.annotations": [#[serde(deserialize_with = "crate::image::list")]],
        "pointsman:policy/runtime-selection@0.1.0/model.format": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/runtime-selection@0.1.0/model.framework": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/runtime-selection@0.1.0/model.model-type": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/runtime-selection@0.1.0/model.architecture": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/runtime-selection@0.1.0/model.quantization": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/runtime-selection@0.1.0/model.parameter-size": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/runtime-selection@0.1.0/model.capabilities": [#[serde(deserialize_with = "crate::image::list")]],
        "pointsman:policy/runtime-selection@0.1.0/comparison.equal": [#[default]],
        "pointsman:policy/runtime-selection@0.1.0/supported.version": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/runtime-selection@0.1.0/supported.weight": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/runtime-selection@0.1.0/supported-model.format": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/runtime-selection@0.1.0/supported-model.framework": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/runtime-selection@0.1.0/supported-model.architecture": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/runtime-selection@0.1.0/supported-model.quantization": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/runtime-selection@0.1.0/supported-model.auto-select": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/runtime-selection@0.1.0/supported-model.priority": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/runtime-selection@0.1.0/candidate.labels": [#[serde(deserialize_with = "crate::image::list")]],
        "pointsman:policy/runtime-selection@0.1.0/candidate.annotations": [#[serde(deserialize_with = "crate::image::list")]],
        "pointsman:policy/runtime-selection@0.1.0/candidate.models": [#[serde(deserialize_with = "crate::image::list")]],
        "pointsman:policy/runtime-selection@0.1.0/candidate.smallest": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/runtime-selection@0.1.0/candidate.largest": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/runtime-selection@0.1.0/candidate.protocols": [#[serde(deserialize_with = "crate::image::list")]],
        "pointsman:policy/runtime-selection@0.1.0/request.named": [#[serde(default)]],
        "pointsman:policy/runtime-selection@0.1.0/request.now": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/runtime-selection@0.1.0/eligible.tie-break": [
            #[serde(deserialize_with = "crate::image::list", skip_serializing_if = "Vec::is_empty")]
        ],
        "pointsman:policy/runtime-selection@0.1.0/eligible.reasons": [
            #[serde(deserialize_with = "crate::image::list", skip_serializing_if = "Vec::is_empty")]
        ],
        "pointsman:policy/pod-templating@0.1.0/layer.content": [#[serde(with = "crate::image::json")]],
        "pointsman:policy/pod-templating@0.1.0/request.group-role": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/pod-templating@0.1.0/request.template": [#[serde(with = "crate::image::json")]],
        "pointsman:policy/pod-templating@0.1.0/request.now": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/pod-templating@0.1.0/operation.value": [
            #[serde(default, with = "crate::image::optional_json", skip_serializing_if = "Option::is_none")]
        ],
        "pointsman:policy/pod-templating@0.1.0/answer.operations": [#[serde(deserialize_with = "crate::image::list")]],
        "pointsman:policy/pod-templating@0.1.0/answer.reasons": [
            #[serde(deserialize_with = "crate::image::list", skip_serializing_if = "Vec::is_empty")]
        ],
        "pointsman:policy/metadata-propagation@0.1.0/layer.labels": [#[serde(deserialize_with = "crate::image::list")]],
        "pointsman:policy/metadata-propagation@0.1.0/layer.annotations": [#[serde(deserialize_with = "crate::image::list")]],
        "pointsman:policy/metadata-propagation@0.1.0/place.object": [#[default]],
        "pointsman:policy/metadata-propagation@0.1.0/target.role": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/metadata-propagation@0.1.0/target.group-role": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/metadata-propagation@0.1.0/request.labels": [#[serde(default)]],
        "pointsman:policy/metadata-propagation@0.1.0/request.annotations": [#[serde(default)]],
        "pointsman:policy/metadata-propagation@0.1.0/request.now": [#[serde(skip_serializing_if = "Option::is_none")]],
        "pointsman:policy/metadata-propagation@0.1.0/answer.labels": [#[serde(deserialize_with = "crate::image::list")]],
        "pointsman:policy/metadata-propagation@0.1.0/answer.annotations": [#[serde(deserialize_with = "crate::image::list")]],
        "pointsman:policy/metadata-propagation@0.1.0/answer.dropped": [
            #[serde(deserialize_with = "crate::image::list", skip_serializing_if = "Vec::is_empty")]
        ],
        "pointsman:policy/metadata-propagation@0.1.0/answer.reasons": [
            #[serde(deserialize_with = "crate::image::list", skip_serializing_if = "Vec::is_empty")]
        ],
    },
});
