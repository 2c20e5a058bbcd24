//! The parts of a project in each language.

use super::sdk;
use clap::ValueEnum;
use pointsman_crds::policy::plugin::PolicyPoint;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Language {
    Rust,
    Go,
    #[value(name = "javascript")]
    JavaScript,
    Python,
}

macro_rules! template {
    ($($path:literal),+) => {
        include_str!(concat!("../templates/", $($path,)+ ".tmpl"))
    };
}

/// Selects a template by policy point.
macro_rules! by_point {
    ($point:expr, $folder:literal, $ending:literal) => {
        match $point {
            PolicyPoint::RuntimeSelection => template!($folder, "/runtime-selection", $ending),
            PolicyPoint::PodTemplating => template!($folder, "/pod-templating", $ending),
            PolicyPoint::MetadataPropagation => template!($folder, "/metadata-propagation", $ending),
            PolicyPoint::SchedulingScoring => template!($folder, "/scheduling-scoring", $ending),
        }
    };
}

impl Language {
    /// Its title in texts.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Rust => "Rust",
            Self::Go => "Go",
            Self::JavaScript => "JavaScript",
            Self::Python => "Python",
        }
    }

    /// A project's files by path, with their templates.
    pub(super) fn templates(self, point: PolicyPoint) -> Vec<(&'static str, &'static str)> {
        let mut files = vec![
            ("cases.yaml", by_point!(point, "cases", ".yaml")),
            ("policy-plugin.yaml", template!("policy-plugin.yaml")),
            ("README.md", template!("README.md")),
        ];
        files.extend(match self {
            Self::Rust => vec![
                ("Cargo.toml", template!("rust/Cargo.toml")),
                (self.source(), by_point!(point, "rust", ".rs")),
                (".gitignore", "/target\n"),
            ],
            Self::Go => vec![
                ("go.mod", template!("go/go.mod")),
                ("main.go", template!("go/main.go")),
                (self.source(), by_point!(point, "go", ".go")),
                (".gitignore", "*.wasm\n"),
            ],
            Self::JavaScript => vec![
                ("package.json", template!("javascript/package.json")),
                ("build.js", template!("javascript/build.js")),
                ("main.js", template!("javascript/main.js")),
                (self.source(), by_point!(point, "javascript", ".js")),
                (".gitignore", "/node_modules\n*.wasm\n"),
            ],
            Self::Python => vec![
                ("requirements.txt", template!("python/requirements.txt")),
                ("main.py", template!("python/main.py")),
                (self.source(), by_point!(point, "python", ".py")),
                (".gitignore", "/venv\n__pycache__\n*.wasm\n"),
            ],
        });
        files
    }

    /// The file with the policy.
    pub(super) fn source(self) -> &'static str {
        match self {
            Self::Rust => "src/lib.rs",
            Self::Go => "policy.go",
            Self::JavaScript => "policy.js",
            Self::Python => "policy.py",
        }
    }

    /// The files that a project copies from this release, by path.
    pub(super) fn copied(self) -> Vec<(String, &'static str)> {
        let files = sdk::FILES.iter();
        match self {
            Self::Rust => {
                let workspace = [("Cargo.toml", template!("rust/sdk.toml"))];
                files.chain(&workspace).map(|(path, text)| (format!("pointsman-sdk/{path}"), *text)).collect()
            }
            Self::Go => Vec::new(),
            Self::JavaScript | Self::Python => {
                files.filter_map(|(path, text)| Some((format!("wit/{}", path.strip_prefix(sdk::PUBLISHED)?), *text))).collect()
            }
        }
    }

    /// The requirements of the project's build, and their sources. `sdk` is the folder of the Rust SDK, unless the project has a copy.
    pub(super) fn needs(self, sdk: Option<&str>) -> String {
        match (self, sdk) {
            (Self::Rust, None) => {
                "`pointsman-sdk` is a copy of the SDK, which is in no registry; cargo gets its dependencies from crates.io. \
                Once: `rustup target add wasm32-unknown-unknown`."
                    .to_owned()
            }
            (Self::Rust, Some(folder)) => format!(
                "`Cargo.toml` takes the SDK from `{folder}`; cargo gets its dependencies from crates.io. \
                Once: `rustup target add wasm32-unknown-unknown`."
            ),
            (Self::Go, _) => "It needs Go 1.26 or newer, and nothing but the standard library.".to_owned(),
            (Self::JavaScript, _) => {
                "It needs Node.js 20.19 or newer. `wit` is a copy of the interfaces; npm gets componentize-js.".to_owned()
            }
            (Self::Python, _) => "It needs Python 3.11 or newer. `wit` is a copy of the interfaces; pip gets componentize-py.".to_owned(),
        }
    }

    /// How to open the reference of the project's SDK, if it has one.
    pub(super) fn reference(self) -> Option<&'static str> {
        match self {
            Self::Rust => Some("`cargo doc --open --package pointsman-plugin` opens the reference of the SDK."),
            Self::Go | Self::JavaScript | Self::Python => None,
        }
    }

    /// A note on the size of plugins that need several ConfigMaps. `cargo xtask test` compares the numbers with the built plugins.
    pub(super) fn size(self) -> Option<&'static str> {
        match self {
            Self::Rust | Self::Go => None,
            Self::JavaScript => Some("The JavaScript engine in it takes 12 MB, 4 MB with gzip: 5 ConfigMaps for each stored version."),
            Self::Python => Some("CPython in it takes 19 MB, 7 MB with gzip: 8 ConfigMaps for each stored version."),
        }
    }

    /// The commands that build the project.
    pub(super) fn build(self, name: &str, point: PolicyPoint) -> Vec<String> {
        let plugin = self.plugin(name);
        match self {
            Self::Rust => vec!["cargo build --release --target wasm32-unknown-unknown".to_owned()],
            Self::Go => vec![format!("GOOS=wasip1 GOARCH=wasm go build -trimpath -buildvcs=false -ldflags \"-s -w\" -o {plugin} .")],
            Self::JavaScript => vec!["npm install --ignore-scripts".to_owned(), "npm run build".to_owned()],
            Self::Python => vec![
                "python3 -m venv venv".to_owned(),
                "venv/bin/pip install --requirement requirements.txt".to_owned(),
                format!(
                    "venv/bin/componentize-py --wit-path wit --world {} componentize --stub-wasi main --output {plugin}",
                    Words::new(point).world
                ),
            ],
        }
    }

    /// The plugin file that they build.
    pub(super) fn plugin(self, name: &str) -> String {
        match self {
            Self::Rust => format!("target/wasm32-unknown-unknown/release/{}.wasm", name.replace('-', "_")),
            Self::Go | Self::JavaScript | Self::Python => format!("{name}.wasm"),
        }
    }
}

/// The names of a policy point, and a configuration for its templates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    /// The world of wit/worlds.wit that implements it.
    pub(super) world: &'static str,
    /// The interface in JavaScript.
    pub(super) interface: &'static str,
    /// The class in Python.
    pub(super) class: &'static str,
    /// The configuration, in YAML.
    pub(super) config: &'static str,
}

impl Words {
    pub(super) fn new(point: PolicyPoint) -> Self {
        let (world, interface, class, config) = match point {
            PolicyPoint::RuntimeSelection => {
                ("runtime-selector", "runtimeSelection", "RuntimeSelection", "{preferred: [my-runtime], score: 5}")
            }
            PolicyPoint::PodTemplating => ("pod-templater", "podTemplating", "PodTemplating", "{gracePeriodSeconds: 120}"),
            PolicyPoint::MetadataPropagation => {
                ("metadata-propagator", "metadataPropagation", "MetadataPropagation", "{labels: {cost-centre: \"4711\"}}")
            }
            PolicyPoint::SchedulingScoring => ("scheduling-scorer", "schedulingScoring", "SchedulingScoring", "{halfAt: 8}"),
        };
        Self { world, interface, class, config }
    }
}
