//! Random questions and answers of all policy points, derived from a seed. Most of their words come from short lists, so that they
//! sometimes match, and some are unusual.

use pointsman_sandbox::point::{
    Entry, Question, Reason, Role, Subject, propagation,
    selection::{Candidate, Comparison, Eligible, Model, RequestRef, Supported, SupportedModel, Verdict, Versioned},
    templating,
};

/// A generator of pseudo-random numbers.
pub(crate) struct Dice(u64);

impl Dice {
    /// A failing case prints the `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.next() % most.max(1) as u64).unwrap()
    }

    /// True in this many percent of the calls.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    pub(crate) fn maybe<T>(&mut self, percent: usize, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.chance(percent).then(|| value(self))
    }

    /// A list with fewer than `most` items, and sometimes an empty one.
    pub(crate) fn list<T>(&mut self, most: usize, mut value: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most)).map(|_| value(self)).collect()
    }

    /// One of the usual words, or an unusual one.
    pub(crate) fn word(&mut self, usual: &[&str]) -> String {
        const ODD: [&str; 12] =
            ["", " ", "é", "漢字", "🚀🚀", "a\nb", "\"", "\\", "\0", "\u{202e}abc", "{}", "a-rather-long-word-that-fills-a-line"];
        if self.chance(94) { self.pick(usual).to_owned() } else { self.pick(&ODD).to_owned() }
    }

    /// A random number: small, large, a fraction, or NaN.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn number(&mut self) -> f64 {
        match self.below(10) {
            0 => f64::NAN,
            1 => 0.0,
            2 => -0.0,
            3 => self.next() as f64,
            4..6 => self.below(20) as f64,
            _ => self.next() as f64 / u64::MAX as f64,
        }
    }
}

const KEYS: [&str; 5] = ["cost-centre", "team", "app.kubernetes.io/name", "example.com/owner", "tier"];

fn entries(dice: &mut Dice) -> Vec<Entry> {
    entries_of(dice, &KEYS)
}

fn entries_of(dice: &mut Dice, keys: &[&str]) -> Vec<Entry> {
    const VALUES: [&str; 4] = ["4711", "llm", "prod", "a.b-c_d"];
    dice.list(4, |dice| Entry { key: dice.word(keys), value: dice.word(&VALUES) })
}

pub(crate) fn subject(dice: &mut Dice) -> Subject {
    // Mostly a matching kind, because most policies ignore other subjects.
    let group = dice.word(&["ome.io", "serving.kserve.io"]);
    let kind = match group.as_str() {
        "serving.kserve.io" if dice.chance(90) => "LLMInferenceService".to_owned(),
        "ome.io" if dice.chance(90) => "InferenceService".to_owned(),
        _ => dice.word(&["InferenceService", "LLMInferenceService"]),
    };
    Subject {
        group,
        version: "v1beta1".to_owned(),
        kind,
        namespace: dice.word(&["prod", "default"]),
        name: dice.word(&["llama-chat", "mistral"]),
        labels: entries(dice),
        annotations: entries(dice),
        namespace_labels: entries(dice),
    }
}

const VERSIONS: [&str; 8] = ["1", "v1", "4.43", "4.43.0", "4.44.1", "4.43.0.dev0", "1.2.3-rc.1", "01.x"];
const SIZES: [&str; 9] = ["1B", "7B", "8B", "13B", "70B", "0.5T", "900M", "7.1B", "big"];
const ARCHITECTURES: [&str; 2] = ["LlamaForCausalLM", "MistralForCausalLM"];
const FORMATS: [&str; 2] = ["safetensors", "gguf"];
const FRAMEWORKS: [&str; 2] = ["transformers", "onnx"];

fn versioned(dice: &mut Dice, names: &[&str]) -> Versioned {
    Versioned { name: dice.word(names), version: dice.maybe(30, |dice| dice.word(&VERSIONS)) }
}

fn model(dice: &mut Dice) -> Model {
    Model {
        kind: dice.word(&["BaseModel", "ClusterBaseModel"]),
        namespace: dice.word(&["", "prod"]),
        name: dice.word(&["llama", "mistral"]),
        labels: entries(dice),
        annotations: entries(dice),
        disabled: dice.chance(5),
        format: dice.maybe(90, |dice| versioned(dice, &FORMATS)),
        framework: dice.maybe(30, |dice| versioned(dice, &FRAMEWORKS)),
        model_type: dice.maybe(50, |dice| dice.word(&["llama", "mistral"])),
        architecture: dice.maybe(90, |dice| dice.word(&ARCHITECTURES)),
        quantization: dice.maybe(10, |dice| dice.word(&["fp8", "int4"])),
        parameter_size: dice.maybe(80, |dice| dice.word(&SIZES)),
        capabilities: dice.list(3, |dice| dice.word(&["TEXT_GENERATION", "EMBEDDING"])),
        ..Model::default()
    }
}

fn supported(dice: &mut Dice, names: &[&str]) -> Supported {
    Supported {
        name: dice.word(names),
        version: dice.maybe(30, |dice| dice.word(&VERSIONS)),
        comparison: dice.pick(&[Comparison::Equal, Comparison::GreaterThan, Comparison::GreaterThanOrEqual]),
        weight: dice.maybe(30, |dice| dice.pick(&[0, 1, 7, -3, i64::MAX, i64::MIN])),
    }
}

fn supported_model(dice: &mut Dice) -> SupportedModel {
    SupportedModel {
        format: dice.maybe(95, |dice| supported(dice, &FORMATS)),
        framework: dice.maybe(30, |dice| supported(dice, &FRAMEWORKS)),
        architecture: dice.maybe(90, |dice| dice.word(&ARCHITECTURES)),
        quantization: dice.maybe(10, |dice| dice.word(&["fp8", "int4"])),
        auto_select: dice.maybe(90, |dice| dice.chance(85)),
        priority: dice.maybe(50, |dice| dice.pick(&[1, 2, 3, 0, -1, i32::MAX])),
        ..SupportedModel::default()
    }
}

fn candidate(dice: &mut Dice) -> Candidate {
    let mut annotations = entries(dice);
    if let Some(value) = dice.maybe(70, |dice| dice.word(&["0", "0.1", "2.48", "12.5", "1e3", " 3 ", "cheap", "-1", "inf"])) {
        annotations.push(Entry { key: "cost.example.com/per-hour".to_owned(), value });
    }
    Candidate {
        kind: dice.word(&["ServingRuntime", "ClusterServingRuntime"]),
        namespace: dice.word(&["", "prod"]),
        name: dice.word(&["vllm", "sglang", "trtllm"]),
        labels: entries(dice),
        annotations,
        disabled: dice.chance(5),
        models: dice.list(4, supported_model),
        smallest: dice.maybe(50, |dice| dice.word(&SIZES)),
        largest: dice.maybe(50, |dice| dice.word(&SIZES)),
        protocols: dice.list(3, |dice| dice.word(&["openAI", "grpc-v2"])),
        ..Candidate::default()
    }
}

/// A question at runtime-selection.
pub(crate) struct Selecting {
    pub(crate) subject: Subject,
    pub(crate) model: Model,
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) named: bool,
    pub(crate) now: Option<u64>,
}

impl Selecting {
    pub(crate) fn new(dice: &mut Dice) -> Self {
        Self {
            subject: subject(dice),
            model: model(dice),
            candidates: dice.list(21, candidate),
            named: dice.chance(20),
            now: dice.maybe(20, Dice::next),
        }
    }

    pub(crate) fn request(&self) -> RequestRef<'_> {
        let Self { subject, model, candidates, named, now } = self;
        let (named, now) = (*named, *now);
        RequestRef { subject, model, candidates, named, accelerators: &[], demands: &[], current: None, now, facts: &[] }
    }
}

fn role(dice: &mut Dice) -> Role {
    use Role::{Decoder, Engine, Job, Leader, Main, Prefill, Router, Scheduler, Server, Worker};
    dice.pick(&[Engine, Decoder, Router, Leader, Worker, Main, Prefill, Scheduler, Job, Server])
}

fn placed(dice: &mut Dice) -> Vec<propagation::Placed> {
    let places = |dice: &mut Dice| dice.word(&["subject", "namespace", "plugin"]);
    entries(dice).into_iter().map(|Entry { key, value }| propagation::Placed { key, value, layer: places(dice) }).collect()
}

/// A question at metadata-propagation.
pub(crate) struct Carrying {
    pub(crate) subject: Subject,
    pub(crate) target: propagation::Target,
    pub(crate) layers: Vec<propagation::Layer>,
    pub(crate) labels: Vec<propagation::Placed>,
    pub(crate) annotations: Vec<propagation::Placed>,
    pub(crate) now: Option<u64>,
}

/// The roles of an LLMInferenceService's pods, its layers, and keys whose handling depends on the layer.
const LLM_ROLES: [Role; 5] = [Role::Main, Role::Prefill, Role::Leader, Role::Worker, Role::Scheduler];
const LLM_LAYERS: [&str; 6] = ["namespace", "subject", "subject", "spec", "prefill", "scheduler"];
const LLM_KEYS: [&str; 7] = [
    "kueue.x-k8s.io/queue-name",
    "prometheus.io/port",
    "k8s.v1.cni.cncf.io/networks",
    "team",
    "example.com/owner",
    "internal.serving.kserve.io/x",
    "pod-template-hash",
];

impl Carrying {
    pub(crate) fn new(dice: &mut Dice) -> Self {
        let subject = subject(dice);
        let llm = subject.kind == "LLMInferenceService";
        let role = |dice: &mut Dice| if llm { dice.pick(&LLM_ROLES) } else { role(dice) };
        let target = propagation::Target {
            group: dice.word(&["apps", ""]),
            kind: dice.word(&["Deployment", "LeaderWorkerSet", "Service"]),
            name: dice.word(&["llama-engine"]),
            role: dice.maybe(80, role),
            group_role: dice.maybe(if llm { 80 } else { 20 }, role),
            place: dice.pick(&[propagation::Place::Object, propagation::Place::PodTemplate]),
        };
        let layer = |dice: &mut Dice| {
            let (names, keys) = if llm { (&LLM_LAYERS[..], &LLM_KEYS[..]) } else { (&["subject", "runtime"][..], &KEYS[..]) };
            propagation::Layer { name: dice.word(names), labels: entries_of(dice, keys), annotations: entries_of(dice, keys) }
        };
        Self {
            subject,
            target,
            layers: dice.list(if llm { 6 } else { 4 }, layer),
            labels: placed(dice),
            annotations: placed(dice),
            now: dice.maybe(20, Dice::next),
        }
    }

    pub(crate) fn request(&self) -> propagation::RequestRef<'_> {
        let Self { subject, target, layers, labels, annotations, now } = self;
        propagation::RequestRef { subject, target, layers, labels, annotations, now: *now, facts: &[] }
    }
}

fn json(dice: &mut Dice) -> String {
    let texts =
        ["null", "0", "-1.5e-7", "0.1", "[]", "{}", r#"{"b":1,"a":[true,null]}"#, r#"{"spec":{"containers":[{"name":"é"}]}}"#, "\"\""];
    dice.pick(&texts).to_owned()
}

const FRAMES: [&str; 3] = [
    r#"{"metadata":{},"spec":{}}"#,
    r#"{"metadata":{"labels":{"b":"1","a":"2"}},"spec":{"serviceAccountName":"chat","nodeSelector":{"zone":"b","arch":"arm64"}}}"#,
    r#"{"spec":{"containers":[{"name":"proxy","image":"proxy:1"}],"volumes":[{"name":"model","emptyDir":{}}]}}"#,
];

const MODELS: [&str; 5] = [
    "null",
    r#"{"kind":"ClusterBaseModel","namespace":"","name":"llama","path":"/data/llama","storageUri":"hf://m","nodeLabel":"models.ome.io/llama"}"#,
    r#"{"name":"llama","storageUri":"pvc://claim/llama"}"#,
    r#"{"storageUri":"pvc://prod:claim","name":"é"}"#,
    r#"{"name":"llama","nodeLabel":"zone"}"#,
];

/// The settings of a component in a runtime or a service. The fields aren't sorted, and the numbers vary.
fn said(dice: &mut Dice) -> String {
    const PODS: [&str; 5] = [
        "null",
        r#"{"tolerations":[{"key":"gpu"}],"nodeSelector":{"zone":"a","gpu":"h100"},"terminationGracePeriodSeconds":18446744073709551615}"#,
        r#"{"volumes":[{"name":"shm","emptyDir":{"medium":"Memory"}},{"name":"z","hostPath":{"path":"/z"}}],"x":[0.1,-1.5e-7,1e300]}"#,
        r#"{"containers":[{"name":"sidecar","image":"s","args":["$(MODEL_PATH)","{{.Labels.team}}"]},{"name":"ome-container","args":["--z"]}]}"#,
        r#"{"volumes":[{"name":"shm","emptyDir":{"sizeLimit":"1Gi"}}],"affinity":{"nodeAffinity":{"b":{"y":1,"x":2},"a":[{"d":1,"c":2}]}}}"#,
    ];
    const RUNNERS: [&str; 6] = [
        r#"{"image":"engine:1","args":["--port","80","{{.Name}}"],"env":[{"value":"1","name":"B"},{"name":"A","value":"{{ .Namespace }}"}]}"#,
        r#"{"image":"vllm/vllm-openai","args":["--a_b=1"],"resources":{"limits":{"nvidia.com/gpu":"4","cpu":0.5},"requests":{"cpu":"1"}}}"#,
        r#"{"image":"e","command":["python3","-m","sglang.launch_server"],"resources":{"limits":{"amd.com/gpu":8}},"ports":[{"containerPort":9}]}"#,
        r#"{"image":"e","name":"main","command":["bash","-c"],"args":["exec vllm serve $(MODEL_PATH)"],"env":[{"name":"B","valueFrom":{"f":{}}}]}"#,
        r#"{"image":"e","args":["--a-b","2","--z"],"volumeMounts":[{"name":"shm","mountPath":"/dev/shm"}],"readinessProbe":{"exec":{}}}"#,
        r#"{"image":"e","resources":{"limits":{"nvidia.com/gpu":"many"}}}"#,
    ];
    let runner = if dice.chance(97) { dice.pick(&RUNNERS[..5]) } else { dice.pick(&RUNNERS) };
    let config = dice.pick(&["null", "{}", r#"{"Z":"1","A":"2"}"#]);
    format!(r#"{{"runner":{runner},"pod":{},"config":{config}}}"#, dice.pick(&PODS))
}

/// A question at pod-templating.
pub(crate) struct Templating {
    subject: Subject,
    role: Role,
    group_role: Option<Role>,
    layers: Vec<templating::Layer>,
    template: String,
    now: Option<u64>,
}

/// The settings of a pod in presets, base configurations and an LLMInferenceService.
const PRESETS: [&str; 2] = [
    r#"{"pod":{"containers":[{"name":"main","image":"example.com/vllm:1","command":["vllm","serve","/mnt/models"],"args":["--port","8000"]}]}}"#,
    r#"{"pod":{"containers":[{"name":"main","image":"example.com/other:1"}],"volumes":[{"name":"home","emptyDir":{}}]}}"#,
];
const OVER_PRESETS: [&str; 3] = [
    r#"{"pod":null}"#,
    r#"{"pod":{"containers":[{"name":"main","env":[{"name":"A","value":"b"}],"resources":{"limits":{"nvidia.com/gpu":"2"}}}]}}"#,
    r#"{"pod":{"containers":[{"args":["--port","9000"]}],"nodeSelector":{"pool":"gpu"}}}"#,
];
const URIS: [&str; 4] = [
    r#"{"uri":"hf://a/b","name":"b","initializer":true,"adapters":[{"uri":"s3://c/d","name":"d"}]}"#,
    r#"{"uri":"pvc://claim/a","name":"b","initializer":true,"adapters":[]}"#,
    r#"{"uri":"oci://example.com/a:1","name":"b","initializer":true,"adapters":[]}"#,
    r#"{"uri":"local://a","name":"b","initializer":false,"adapters":[]}"#,
];

impl Templating {
    pub(crate) fn new(dice: &mut Dice) -> Self {
        let odd = |dice: &mut Dice| templating::Layer { name: "accelerator".to_owned(), content: json(dice) };
        let layer = |name: &str, content: String| templating::Layer { name: name.to_owned(), content };
        let mut layers = vec![layer("runtime", said(dice))];
        layers.extend(dice.maybe(70, |dice| layer(dice.pick(&["user", "user-leader", "user-worker"]), said(dice))));
        layers.extend(dice.maybe(70, |dice| layer("model", dice.pick(&MODELS).to_owned())));
        layers.extend(dice.maybe(30, |dice| layer("group", dice.pick(&[r#"{"nodes":1}"#, r#"{"nodes":3}"#]).to_owned())));
        layers.extend(dice.list(2, odd));
        // The namespace is part of messages, from which the host removes line breaks.
        let subject = Subject { namespace: dice.pick(&["prod", "default"]).to_owned(), ..subject(dice) };
        let mut role = role(dice);
        if subject.group == "serving.kserve.io" && subject.kind == "LLMInferenceService" {
            role = dice.pick(&[Role::Main, Role::Prefill, Role::Leader, Role::Worker, Role::Scheduler]);
            layers = vec![layer("preset", dice.pick(&PRESETS).to_owned())];
            layers.extend(dice.maybe(50, |dice| layer("base:a", dice.pick(&PRESETS).to_owned())));
            layers.push(layer("user", dice.pick(&OVER_PRESETS).to_owned()));
            layers.push(layer("model", dice.pick(&URIS).to_owned()));
            layers.push(layer("parallelism", dice.pick(&["{}", r#"{"tensor":2}"#, r#"{"data":4,"dataLocal":2}"#]).to_owned()));
            layers.extend(dice.maybe(50, |_| layer("group", r#"{"nodes":2}"#.to_owned())));
            layers.push(layer(
                "scheduler",
                r#"{"pool":"p","namespace":"n","config":{"kind":"EndpointPickerConfig"},"configMap":null}"#.to_owned(),
            ));
        }
        Self {
            subject,
            role,
            group_role: dice.maybe(30, self::role),
            layers,
            template: if dice.chance(97) { dice.pick(&FRAMES).to_owned() } else { json(dice) },
            now: dice.maybe(20, Dice::next),
        }
    }

    pub(crate) fn request(&self) -> templating::RequestRef<'_> {
        let Self { subject, role, group_role, layers, template, now } = self;
        templating::RequestRef { subject, role: *role, group_role: *group_role, layers, template, now: *now, facts: &[] }
    }
}

/// A question at scheduling-scoring with this many columns.
pub(crate) struct Scoring {
    pub(crate) question: Question,
    pub(crate) columns: u32,
    pub(crate) matrix: Vec<f64>,
}

impl Scoring {
    pub(crate) fn new(dice: &mut Dice, columns: u32) -> Self {
        let others = [Question::NodePlacement, Question::MemoryAdmission];
        let question = if dice.chance(95) { Question::EndpointPick } else { dice.pick(&others) };
        let rows = dice.below(21);
        Self { question, columns, matrix: (0..rows * columns as usize).map(|_| dice.number()).collect() }
    }

    pub(crate) fn request(&self) -> pointsman_sandbox::point::scoring::RequestRef<'_> {
        let Self { question, columns, matrix } = self;
        pointsman_sandbox::point::scoring::RequestRef { question: *question, columns: *columns, matrix, facts: &[] }
    }
}

fn reason(dice: &mut Dice) -> Reason {
    Reason { code: dice.word(&["Score", "TooExpensive"]), message: dice.word(&["It is so.", "It isn't."]) }
}

pub(crate) fn verdict(dice: &mut Dice) -> Verdict {
    let finite = |dice: &mut Dice| Some(dice.number()).filter(|number| number.is_finite()).unwrap_or(-1.5);
    match dice.below(3) {
        0 => Verdict::Abstain,
        1 => Verdict::Excluded(reason(dice)),
        _ => Verdict::Eligible(Eligible {
            score: finite(dice),
            tie_break: dice.list(3, finite),
            reasons: dice.list(3, reason),
            ..Eligible::default()
        }),
    }
}

pub(crate) fn carried(dice: &mut Dice) -> propagation::Answer {
    let dropped = |dice: &mut Dice| propagation::Dropped {
        sort: dice.pick(&[propagation::Sort::Label, propagation::Sort::Annotation]),
        key: dice.word(&["team"]),
        layer: dice.word(&["subject"]),
        reason: reason(dice),
    };
    propagation::Answer { labels: placed(dice), annotations: placed(dice), dropped: dice.list(3, dropped), reasons: dice.list(3, reason) }
}

pub(crate) fn templated(dice: &mut Dice) -> templating::Answer {
    use templating::Action::{Add, Remove, Replace};
    let operation = |dice: &mut Dice| templating::Operation {
        action: dice.pick(&[Add, Remove, Replace]),
        path: dice.word(&["/spec/containers/0/env/-"]),
        value: dice.maybe(70, json),
        layer: dice.word(&["user"]),
    };
    templating::Answer { operations: dice.list(4, operation), reasons: dice.list(3, reason) }
}
