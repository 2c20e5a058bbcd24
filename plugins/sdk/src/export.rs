//! The macro that exports a policy.

/// Creates a plugin from the functions that answer at the policy points.
///
/// | field | | |
/// |---|---|---|
/// | `runtime_selection` | `fn(&Config, Request) -> Result<Vec<Verdict>, Failure>` | |
/// | `pod_templating` | `fn(&Config, Request) -> Result<Answer, Failure>` | |
/// | `metadata_propagation` | `fn(&Config, Request) -> Result<Answer, Failure>` | |
/// | `scheduling_scoring` | `fn(&Config, Question, &Matrix) -> Result<Vec<f64>, Failure>` | |
/// | `explain` | `fn(&Config, Question, &Matrix, usize) -> Vec<Term>` | with `scheduling_scoring` |
/// | `features` | `[(Question::NodePlacement, &["a-column", ...]), ...]` | with `scheduling_scoring` |
/// | `config` | a type with `Deserialize` and `JsonSchema` | `NoConfig` |
/// | `wants_time` | whether requests contain the time | `false` |
/// | `name`, `version` | for display | the crate's |
///
/// Specify at least one point. The order of the fields is free. On targets other than Wasm, the macro exports nothing, so several policies
/// can be linked into one test.
#[macro_export]
macro_rules! export {
    // Each step moves one field into its bracket: [config] [name] [version] [other items of the implementation] [points].
    (@ $config:tt $name:tt $version:tt [$($items:tt)*] $points:tt config: $type:ty, $($rest:tt)*) => {
        $crate::export! { @ [$type] $name $version
            [$($items)* fn config_schema() -> ::std::string::String { $crate::private::schema::<$type>() }]
            $points $($rest)* }
    };
    (@ $config:tt $name:tt $version:tt $items:tt $points:tt name: $value:expr, $($rest:tt)*) => {
        $crate::export! { @ $config [$value] $version $items $points $($rest)* }
    };
    (@ $config:tt $name:tt $version:tt $items:tt $points:tt version: $value:expr, $($rest:tt)*) => {
        $crate::export! { @ $config $name [$value] $items $points $($rest)* }
    };
    (@ $config:tt $name:tt $version:tt [$($items:tt)*] $points:tt wants_time: $value:expr, $($rest:tt)*) => {
        $crate::export! { @ $config $name $version [$($items)* const WANTS_TIME: bool = $value;] $points $($rest)* }
    };
    (@ $config:tt $name:tt $version:tt [$($items:tt)*] $points:tt features: $value:expr, $($rest:tt)*) => {
        $crate::export! { @ $config $name $version
            [$($items)* const FEATURES: &'static [($crate::Question, &'static [&'static str])] = &$value;]
            $points $($rest)* }
    };
    (@ $config:tt $name:tt $version:tt [$($items:tt)*] [$($points:ident)*] runtime_selection: $function:path, $($rest:tt)*) => {
        $crate::export! { @ $config $name $version
            [$($items)* fn judge(
                config: &Self::Config, request: $crate::runtime_selection::Request,
            ) -> ::std::result::Result<::std::vec::Vec<$crate::runtime_selection::Verdict>, $crate::Failure> { $function(config, request) }]
            [$($points)* RuntimeSelection] $($rest)* }
    };
    (@ $config:tt $name:tt $version:tt [$($items:tt)*] [$($points:ident)*] pod_templating: $function:path, $($rest:tt)*) => {
        $crate::export! { @ $config $name $version
            [$($items)* fn template(
                config: &Self::Config, request: $crate::pod_templating::Request,
            ) -> ::std::result::Result<$crate::pod_templating::Answer, $crate::Failure> { $function(config, request) }]
            [$($points)* PodTemplating] $($rest)* }
    };
    (@ $config:tt $name:tt $version:tt [$($items:tt)*] [$($points:ident)*] metadata_propagation: $function:path, $($rest:tt)*) => {
        $crate::export! { @ $config $name $version
            [$($items)* fn propagate(
                config: &Self::Config, request: $crate::metadata_propagation::Request,
            ) -> ::std::result::Result<$crate::metadata_propagation::Answer, $crate::Failure> { $function(config, request) }]
            [$($points)* MetadataPropagation] $($rest)* }
    };
    (@ $config:tt $name:tt $version:tt [$($items:tt)*] [$($points:ident)*] scheduling_scoring: $function:path, $($rest:tt)*) => {
        $crate::export! { @ $config $name $version
            [$($items)* fn score(
                config: &Self::Config, question: $crate::Question, matrix: &$crate::scheduling_scoring::Matrix,
            ) -> ::std::result::Result<::std::vec::Vec<f64>, $crate::Failure> { $function(config, question, matrix) }]
            [$($points)* SchedulingScoring] $($rest)* }
    };
    (@ $config:tt $name:tt $version:tt [$($items:tt)*] $points:tt explain: $function:path, $($rest:tt)*) => {
        $crate::export! { @ $config $name $version
            [$($items)* fn explain(
                config: &Self::Config, question: $crate::Question, matrix: &$crate::scheduling_scoring::Matrix, row: usize,
            ) -> ::std::vec::Vec<$crate::scheduling_scoring::Term> { $function(config, question, matrix, row) }]
            $points $($rest)* }
    };
    // Drops the additional comma: the entry rule always appends one.
    (@ $config:tt $name:tt $version:tt $items:tt $points:tt ,) => {
        $crate::export! { @ $config $name $version $items $points }
    };
    (@ $config:tt $name:tt $version:tt $items:tt []) => {
        ::std::compile_error!("specify the function of at least one policy point, such as `runtime_selection: judge`");
    };
    (@ [$config:ty] [$name:expr] [$version:expr] [$($items:tt)*] [$($points:ident)*]) => {
        const _: () = {
            #[derive(Debug)]
            struct Plugin;

            #[allow(dead_code, reason = "without Wasm nobody calls it, and yet the policy's functions are in use")]
            impl $crate::Policy for Plugin {
                type Config = $config;
                const NAME: &'static str = $name;
                const VERSION: &'static str = $version;
                const POINTS: &'static [$crate::Point] = &[$($crate::Point::$points),*];

                fn config() -> &'static $crate::private::OnceLock<$config> {
                    static CONFIG: $crate::private::OnceLock<$config> = $crate::private::OnceLock::new();
                    &CONFIG
                }

                $($items)*
            }

            // The symbols that a host looks for in the module. On other targets, they would clash with those of other policies.
            #[cfg(target_arch = "wasm32")]
            const _: () = {
                $crate::export! { @symbols $($points)* }
            };
        };
    };
    (@symbols RuntimeSelection) => {
        $crate::export! { @worlds RUNTIME_SELECTOR }
        $crate::export! { @interfaces runtime_selection }
    };
    (@symbols PodTemplating) => {
        $crate::export! { @worlds POD_TEMPLATER }
        $crate::export! { @interfaces pod_templating }
    };
    (@symbols MetadataPropagation) => {
        $crate::export! { @worlds METADATA_PROPAGATOR }
        $crate::export! { @interfaces metadata_propagation }
    };
    (@symbols SchedulingScoring) => {
        $crate::export! { @worlds SCHEDULING_SCORER }
        $crate::export! { @interfaces scheduling_scoring }
    };
    (@symbols $($several:ident)*) => {
        $crate::export! { @worlds POLICY }
        $crate::export! { @interfaces runtime_selection }
        $crate::export! { @interfaces pod_templating }
        $crate::export! { @interfaces metadata_propagation }
        $crate::export! { @interfaces scheduling_scoring }
    };
    // Each version has its own section; the tool that builds the component merges them.
    (@worlds $world:ident) => {
        #[unsafe(link_section = "component-type:pointsman-policy-0.1.0")]
        static WORLD_0_1: [u8; $crate::private::v0_1::$world.len()] = $crate::private::v0_1::$world;

        #[unsafe(link_section = "component-type:pointsman-policy-0.2.0-draft")]
        static WORLD_DRAFT: [u8; $crate::private::draft::$world.len()] = $crate::private::draft::$world;

        $crate::export! { @interfaces plugin }
    };
    (@interfaces plugin) => {
        $crate::export! { @interface v0_1 plugin __export_pointsman_policy_plugin_0_1_0_cabi }
        $crate::export! { @interface draft plugin __export_pointsman_policy_plugin_0_2_0_draft_cabi }
    };
    (@interfaces runtime_selection) => {
        $crate::export! { @interface v0_1 runtime_selection __export_pointsman_policy_runtime_selection_0_1_0_cabi }
        $crate::export! { @interface draft runtime_selection __export_pointsman_policy_runtime_selection_0_2_0_draft_cabi }
    };
    (@interfaces pod_templating) => {
        $crate::export! { @interface v0_1 pod_templating __export_pointsman_policy_pod_templating_0_1_0_cabi }
        $crate::export! { @interface draft pod_templating __export_pointsman_policy_pod_templating_0_2_0_draft_cabi }
    };
    (@interfaces metadata_propagation) => {
        $crate::export! { @interface v0_1 metadata_propagation __export_pointsman_policy_metadata_propagation_0_1_0_cabi }
        $crate::export! { @interface draft metadata_propagation __export_pointsman_policy_metadata_propagation_0_2_0_draft_cabi }
    };
    (@interfaces scheduling_scoring) => {
        $crate::export! { @interface v0_1 scheduling_scoring __export_pointsman_policy_scheduling_scoring_0_1_0_cabi }
        $crate::export! { @interface draft scheduling_scoring __export_pointsman_policy_scheduling_scoring_0_2_0_draft_cabi }
    };
    (@interface $version:ident $interface:ident $export:ident) => {
        $crate::bindings::$version::exports::pointsman::policy::$interface::$export! {
            Plugin with_types_in $crate::bindings::$version::exports::pointsman::policy::$interface
        }
    };
    (@ $config:tt $name:tt $version:tt $items:tt $points:tt $field:ident $($rest:tt)*) => {
        ::std::compile_error!(::std::concat!(
            "`", ::std::stringify!($field), "` is no field of a policy, or isn't followed by a colon; export!'s documentation lists the fields",
        ));
    };
    (@ $($rest:tt)*) => {
        ::std::compile_error!("the fields are written as `field: value`, with a comma between them");
    };
    ($($fields:tt)+) => {
        $crate::export! { @ [$crate::NoConfig] [::std::env!("CARGO_PKG_NAME")] [::std::env!("CARGO_PKG_VERSION")] [] [] $($fields)+, }
    };
}
