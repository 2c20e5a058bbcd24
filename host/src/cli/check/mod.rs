//! `pointsman check`: checks whether objects in files would be accepted, and evaluates the rules on them and on their planned objects. It
//! reports all findings at once.
//!
//! `object` checks one object, `images` the images that it names, and `refused` policies that can't be used; `finding` has the results.

mod finding;
mod images;
mod object;
mod refused;

use super::{
    cache::CacheArgs,
    exit::{UNREADABLE, report as report_error, usage},
    memory::{Machines, simulate},
    offline::{
        Offline, OfflineArgs,
        fields::InvalidObject,
        files::{self, Document},
        model_files::fill_models_in,
        no_subject,
        objects::{self, OfflineObjects, Replacement},
        policies,
    },
    output::{self, OutputArgs},
    render::loader,
};
use anyhow::{Result, anyhow, bail};
use clap::Args;
use finding::{Finding, Report, Severity, SkippedCheck};
use object::{Namespaces, Object};
use pointsman_core::{
    allocation::{Entry, Refusal},
    condition::{Condition, READY},
    decide::{Policies, Unheard, set::ActiveSet},
    guards::{ALLOWED, VALID},
    kinds::eh_ops::ALLOCATED,
    objects::strings,
    plan::{NotOurs, Plan},
    structural,
    world::{ObjectKey, Snapshot},
};
use pointsman_sandbox::{cache::Cache, evaluator::Evaluator, limits::DECISION_CACHE};
use serde_json::{Map, Value};
use std::{collections::BTreeSet, process::ExitCode, sync::Arc};

#[derive(Args, Debug)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    offline: OfflineArgs,
    #[command(flatten)]
    cache: CacheArgs,
    /// Treat the files as complete: rules that look up models, runtimes and other services use only the files
    #[arg(long)]
    complete: bool,
    /// Treat warnings as errors: exit with 1 if there is one
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Unreadable files are reported like all findings, and have an exit code of their own.
pub(super) fn run(args: &CheckArgs) -> Result<ExitCode> {
    let (report, problems) = check(args)?;
    args.output.print(&report, || report.text())?;
    problems.iter().for_each(report_error);
    let wrong = report.errors > 0 || args.strict && report.warnings > 0;
    Ok(match (problems.is_empty(), wrong) {
        (false, _) => ExitCode::from(UNREADABLE),
        (true, true) => ExitCode::FAILURE,
        (true, false) => ExitCode::SUCCESS,
    })
}

/// The findings, and the files that couldn't be read.
fn check(args: &CheckArgs) -> Result<(Report, Vec<anyhow::Error>)> {
    let offline = &args.offline;
    if offline.files.is_empty() {
        bail!(usage("nothing to check: specify files with -f FILE, or - for standard input"));
    }
    let (mut documents, problems) = files::read_on(&offline.files);
    for note in fill_models_in(&mut documents, &offline.model_files)? {
        output::note(format!("note: {note}"));
    }
    let loader = loader(&args.cache)?;
    let evaluator = loader.evaluator().map_err(|why| anyhow!(why))?;
    let mut survey = CheckRun::check_each(documents, offline, &evaluator);
    if !offline.only.is_empty() && !survey.objects.iter().any(Object::is_subject) {
        output::note(format!("note: {}", no_subject(&offline.only)));
    }
    let (set, unusable) = policies::set_of_good(&loader, &survey.gathered, &offline.host.host_namespace, offline.plugin_dir.as_deref())?;
    for unusable in unusable {
        refused::report_refused(&unusable, &mut survey.objects);
    }
    let memo = Cache::new(DECISION_CACHE);
    let world = args.complete.then_some((&survey.gathered.world, &memo));
    survey.report.unevaluated_objects = survey.objects.iter().filter(|object| object.is_bad() && !object.is_passed_over()).count();
    for object in survey.objects.iter_mut().filter(|object| !object.is_bad()) {
        survey.report.not_evaluated.extend(object.judge(set.rules(), &survey.namespaces, world));
    }
    // Rules that look up other objects aren't evaluated on plans either.
    let rules = if args.complete { set.rules().clone() } else { set.rules().of_objects_alone() };
    let machines = Machines::from_files(&offline.nodes)?;
    let mut report = survey.planned(set.ruled(rules), offline, machines.as_ref(), args.complete);
    report.settle();
    Ok((report, problems))
}

/// The objects of the files, and the findings so far.
struct CheckRun {
    gathered: OfflineObjects,
    objects: Vec<Object>,
    namespaces: Namespaces,
    report: Report,
}

impl CheckRun {
    /// Checks each object separately.
    fn check_each(documents: Vec<Document>, args: &OfflineArgs, evaluator: &Evaluator) -> Self {
        let ours = structural::kinds();
        let mut survey =
            Self { gathered: OfflineObjects::default(), objects: Vec::new(), namespaces: Namespaces::default(), report: Report::default() };
        for (number, mut document) in documents.into_iter().enumerate() {
            let id = [text(&document.object, "apiVersion"), text(&document.object, "kind")].map(str::to_owned);
            let [api_version, kind] = &id;
            if api_version == "v1" && kind == "Namespace" {
                survey.note_namespace(&document);
            }
            let kind = ours.get(&(api_version.clone(), kind.clone()));
            let generated = objects::generated(&document.object, number);
            let object = kind.map(|kind| Object::from_document(&document, api_version, kind, args.files_namespace(), generated.as_deref()));
            if let Some(name) = generated {
                objects::name(&mut document.object, name);
            }
            let (replacement, refusal) = match survey.gathered.take(document, args.files_namespace(), ours) {
                Ok(replacement) => (replacement, None),
                Err(refusal) => (None, Some(refusal)),
            };
            let Some(mut object) = object else {
                // An object of an unknown version isn't one of another kind.
                survey.report.others += usize::from(refusal.is_none());
                survey.report.findings.extend(refusal.map(of_other));
                continue;
            };
            object.findings.extend(
                replacement
                    .map(|Replacement { place, message }| Finding::new(Severity::Warning, &place, &object.named, String::new(), message)),
            );
            survey.report.not_evaluated.extend(object.hold(evaluator));
            if let Some(refusal) = refusal.or_else(|| object.unread()) {
                object.refuse(refusal);
            }
            survey.objects.push(object);
        }
        survey.objects.retain(|object| object.is_wanted(&args.only));
        survey.report.objects = survey.objects.len();
        survey.report.skipped = survey.gathered.skipped();
        survey
    }

    fn note_namespace(&mut self, document: &Document) {
        let metadata = document.object.get("metadata").unwrap_or(&Value::Null);
        self.namespaces.note(metadata["name"].as_str().unwrap_or_default(), strings(&metadata["labels"]));
    }

    /// Plans the services without errors, and evaluates the rules of stage Output on their objects.
    fn planned(mut self, set: ActiveSet, args: &OfflineArgs, machines: Option<&Machines>, complete: bool) -> Report {
        // The last one of equal objects is planned.
        let of_key = |objects: &[Object], key: &ObjectKey| objects.iter().rposition(|object| object.is(key));
        let good = |key: &ObjectKey| of_key(&self.objects, key).and_then(|at| self.objects.get(at)).is_some_and(|object| !object.is_bad());
        let subjects = self.gathered.subjects.iter().filter(|key| good(key)).cloned().collect();
        let mut world = self.gathered.world;
        world.set_available(args.available());
        let policies = Policies::new(set, Arc::new(Unheard));
        simulate(&mut world, &policies, machines);
        let offline = Offline { world, subjects, policies, settings: args.settings.settings(), notes: Vec::new(), nodes: Vec::new() };
        for planned in offline.plans() {
            let Some(object) = of_key(&self.objects, &planned.subject.key).and_then(|at| self.objects.get_mut(at)) else { continue };
            let condition = |type_: &str| planned.plan.status.conditions.iter().find(|condition| condition.type_ == type_);
            let (allocated, allowed) = (condition(ALLOCATED), condition(ALLOWED));
            // The plan of a service that isn't managed has no effect, so its rejections don't matter.
            let severity = allowed.filter(|_| !matches!(planned.plan.not_ours, Some(NotOurs::LeftAlone(_)))).and_then(severity);
            let unallocated = offline.world.snapshot(&planned.subject.key, 0).and_then(|snapshot| unallocated(&snapshot, complete));
            if let Some((severity, Condition { message, .. })) = unallocated.zip(allocated).or_else(|| severity.zip(allowed)) {
                object.findings.push(Finding::new(severity, &object.place, &object.named, String::new(), message.clone()));
            } else if planned.plan.objects.is_none() {
                self.report.unplanned.push(SkippedCheck { what: object.called(), why: unplanned(&planned.plan), usual: false });
            } else if planned.plan.not_ours.is_none() {
                for why in not_ready(&planned.plan) {
                    if complete {
                        object.findings.push(Finding::new(Severity::Warning, &object.place, &object.named, String::new(), why));
                    } else {
                        self.report.not_ready.push(SkippedCheck { what: object.called(), why, usual: false });
                    }
                }
            }
        }
        self.report.findings.extend(self.objects.into_iter().flat_map(|object| object.findings));
        self.report
    }
}

/// The severity of the condition for the author of the service.
fn severity(allowed: &Condition) -> Option<Severity> {
    match allowed.status {
        Some(false) => Some(Severity::Error),
        Some(true) if allowed.emits_event => Some(Severity::Warning),
        Some(true) | None => None,
    }
}

/// The severity if a model can't get memory. A dependency that is missing may be in other files.
fn unallocated(snapshot: &Snapshot, complete: bool) -> Option<Severity> {
    match snapshot.allocated.as_deref()? {
        Entry::Refused(Refusal::UnknownDependency(_) | Refusal::DependencyOff(_)) if !complete => None,
        Entry::Refused(_) => Some(Severity::Error),
        Entry::Waiting(_) => Some(Severity::Warning),
        _ => None,
    }
}

/// Why a service with objects isn't Ready, if that follows from the files: an object that it references is missing, or may not be used.
/// Conditions that depend on another one would repeat its message.
fn not_ready(plan: &Plan) -> Vec<String> {
    let mut messages = BTreeSet::new();
    let conditions = plan.status.conditions.iter().filter(|condition| {
        let is_judged = [VALID, ALLOWED, ALLOCATED, READY].contains(&condition.type_);
        condition.required_for_ready && condition.status == Some(false) && !is_judged
    });
    let first = conditions.filter(|condition| messages.insert(&condition.message));
    first.map(|condition| format!("{} {}: {}", condition.type_, condition.reason, condition.message)).collect()
}

/// Why a service gets no objects.
fn unplanned(plan: &Plan) -> String {
    match &plan.not_ours {
        Some(NotOurs::LeftAlone(why)) => return why.clone(),
        Some(NotOurs::Contested(contest)) => return contest.message().to_owned(),
        None => {}
    }
    let needed =
        || plan.status.conditions.iter().filter(|condition| condition.required_for_ready && ![VALID, ALLOWED].contains(&condition.type_));
    let why = needed().find(|condition| condition.status == Some(false)).or_else(|| needed().find(|condition| condition.status.is_none()));
    why.map_or_else(String::new, |why| format!("{} {}: {}", why.type_, why.reason, why.message))
}

/// The finding about an object of another kind, or about a document that isn't an object.
fn of_other(refusal: InvalidObject) -> Finding {
    let InvalidObject { place, field, message } = refusal;
    Finding::new(Severity::Error, &place, &finding::ObjectName::default(), field, message)
}

fn text<'o>(object: &'o Map<String, Value>, field: &str) -> &'o str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}
