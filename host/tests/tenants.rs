//! Malicious tenants: for any of their services, a plan stays within its limits, no built-in policy is blamed, and no other tenant is
//! affected.

use crate::{
    planning::{resource, world},
    policies,
};
use k8s_openapi::jiff::Timestamp;
use pointsman::{
    keeper::builtins,
    load::Loader,
    serve::admission::review::{Request, ReviewContext, validate},
};
use pointsman_core::{
    compare,
    decide::{Listener, PluginHealthEvent, Policies, health::HealthChange},
    kinds,
    plan::Plan,
    planning,
    rules::{Rules, rule::bind, shipped},
    settings::Settings,
    status::{Applied, settle},
    world::{ObjectKey, Snapshot, Surroundings, World},
};
use pointsman_samples::{HostileTenant, hostile_tenant};
use pointsman_sandbox::{call::CallError, isolate};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    env,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// The maximum memory of a plan of one subject, in addition to the sandbox's.
const MOST_BYTES: isize = 96 << 20;

/// The maximum number of allocations of a plan of one subject: this measure of its steps is the same on every machine.
const MOST_STEPS: u64 = 4_000_000;

/// The maximum size of a status.
const LARGEST_STATUS: usize = 64 << 10;

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

fn allocated(bytes: usize) {
    let live = LIVE.get().wrapping_add_unsigned(bytes);
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
    STEPS.set(STEPS.get() + 1);
}

fn freed(bytes: usize) {
    LIVE.set(LIVE.get().wrapping_sub_unsigned(bytes));
}

// SAFETY: the system allocator does all the work. The counters have no destructors and don't allocate.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        freed(layout.size());
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        freed(layout.size());
        allocated(size);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Measures the peak of this thread's memory from now on, relative to now.
pub(crate) fn peak_from_now() -> impl Fn() -> isize {
    let live = LIVE.get();
    PEAK.set(live);
    move || PEAK.get() - live
}

/// The peak memory of some work, and the number of its allocations.
fn cost<T>(work: impl FnOnce() -> T) -> (T, isize, u64) {
    let (held, steps) = (peak_from_now(), STEPS.get());
    let done = work();
    (done, held(), STEPS.get() - steps)
}

/// Counts the failures of plugins.
#[derive(Debug, Default)]
struct Blamed(AtomicU64);

impl Listener for Blamed {
    fn heard(&self, news: PluginHealthEvent) {
        // A policy may refuse a question with a message, which is a valid answer.
        if !matches!(news.turn, HealthChange::Failed(CallError::Failed(_))) {
            eprintln!("{news:?}");
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn changed(&self) {}
}

struct Scene {
    policies: Policies,
    blamed: Arc<Blamed>,
    rules: Rules,
    settings: Settings,
    /// Another tenant's service, and its objects without the malicious tenant.
    neighbour: Value,
    alone: Vec<Value>,
}

const NEIGHBOUR: &str = "neighbour";

static SCENE: LazyLock<Scene> = LazyLock::new(|| {
    let loader = Loader::new(Arc::clone(policies::engines()), policies::compilers());
    let blamed = Arc::<Blamed>::default();
    // All shipped rules, enabled.
    let rules = shipped::all().iter().filter(|rule| rule.spec.params.is_none()).map(|rule| {
        let mut spec = rule.spec.clone();
        spec.enabled = true;
        Arc::new(loader.rule(bind(rule.metadata.name.as_deref().unwrap(), &spec, None)).unwrap())
    });
    let rules = Rules::new(rules.collect(), Some(loader.evaluator().unwrap()));
    let set = builtins(&loader).unwrap().ruled(rules.clone());
    let policies = Policies::new(set, Arc::clone(&blamed) as Arc<dyn Listener>);
    let neighbour = json!({
        "apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": NEIGHBOUR, "uid": "neighbour", "generation": 1},
        "spec": {"model": {"name": "own", "kind": "BaseModel"}, "engine": {"minReplicas": 1, "maxReplicas": 3}},
    });
    let mut scene = Scene { policies, blamed, rules, settings: Settings::default(), neighbour, alone: Vec::new() };
    let context = pointsman_samples::context(NEIGHBOUR);
    scene.alone = objects(&scene.planned(&world(context.iter().chain([&scene.neighbour])), &scene.neighbour).1);
    assert!(scene.alone.len() > 2);
    scene
});

fn objects(plan: &Plan) -> Vec<Value> {
    plan.objects.iter().flatten().map(pointsman_core::plan::Object::manifest).collect()
}

impl Scene {
    fn planned(&self, world: &World, service: &Value) -> (Snapshot, Plan) {
        let text = |field: &str| service["metadata"][field].as_str().unwrap().to_owned();
        let key = ObjectKey { resource: resource(service), namespace: text("namespace"), name: text("name") };
        let snapshot = world.snapshot(&key, 1_000_000_000).unwrap();
        let plan = planning::plan(kinds::find(key.resource).unwrap(), snapshot.clone(), &self.policies, &self.settings);
        (snapshot, plan)
    }

    /// Reviews the service in the webhook, as the tenant creates it.
    fn admitted(&self, service: &Value) {
        let (group, version) = service["apiVersion"].as_str().unwrap().split_once('/').unwrap();
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "one", "operation": "CREATE", "kind": {"group": group, "version": version, "kind": service["kind"]},
                "name": service["metadata"]["name"], "namespace": service["metadata"]["namespace"], "object": service,
            },
        });
        let request = Request::read(review.to_string().as_bytes()).unwrap();
        let context = ReviewContext {
            rules: &self.rules,
            evaluator: None,
            namespace_labels: Arc::default(),
            surroundings: Surroundings::default(),
            memo: None,
        };
        validate(&request, &context);
    }

    fn endures(&self, tenant: &HostileTenant) -> Result<(), TestCaseError> {
        let mut service = tenant.service.clone();
        service["metadata"]["uid"] = "hostile".into();
        service["metadata"]["generation"] = 1.into();
        let before = (self.blamed.0.load(Ordering::Relaxed), isolate::count());
        let [theirs, others] = ["hostile", NEIGHBOUR].map(pointsman_samples::context);
        let cluster = world(theirs.iter().chain(&others).chain(&tenant.context).chain([&service, &self.neighbour]));
        let calm = world(theirs.iter().chain(&tenant.context).chain([&service]));
        let ((snapshot, plan), bytes, steps) = cost(|| self.planned(&cluster, &service));
        prop_assert!(bytes < MOST_BYTES, "the plan holds {bytes} bytes at once");
        prop_assert!(steps < MOST_STEPS, "the plan takes {steps} steps");
        // Plan again, as in a comparison of a candidate: the result must not depend on earlier plans.
        let again = self.planned(&calm, &service).1;
        let (change, bytes, _) = cost(|| compare::effect::change(&snapshot, &plan, &again));
        prop_assert!(bytes < MOST_BYTES, "the comparison holds {bytes} bytes at once");
        prop_assert!(change.places.is_empty(), "{:?}", change.places);
        let ((), bytes, _) = cost(|| self.admitted(&service));
        prop_assert!(bytes < MOST_BYTES, "the review holds {bytes} bytes at once");
        let made = plan.objects.is_some();
        let applied = if made { Applied::Done } else { Applied::Held };
        let (status, _) = settle(&Value::Null, "service", plan.status, &applied, Some(1), Timestamp::UNIX_EPOCH);
        let told = status["conditions"].as_array().unwrap();
        prop_assert!(
            made || told.iter().any(|told| told["status"] == "False" && told["message"].as_str().unwrap().len() > 20),
            "{status:#}"
        );
        let size = status.to_string().len();
        prop_assert!(size < LARGEST_STATUS, "the status has {size} bytes");
        prop_assert_eq!(objects(&self.planned(&cluster, &self.neighbour).1), self.alone.clone(), "another tenant's service");
        prop_assert_eq!((self.blamed.0.load(Ordering::Relaxed), isolate::count()), before, "faults, and mistakes of the host");
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if env::var_os("POINTSMAN_TEST_FULL").is_some() { 20_000 } else { 150 },
        // The services are long.
        verbose: 0, max_shrink_iters: 200, ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_a_tenant_writes_nobody_else_notices(tenant in hostile_tenant("hostile")) {
        SCENE.endures(&tenant)?;
    }
}
