//! Adopts services: another controller's objects become ours unchanged, and the host applies its plan to them.

use super::{
    AdoptArgs, AdoptionReport, Mode, change,
    change::{TakenOver, adoption, claim, finalizers, managed, take_over},
    dry_run::rehearse,
    fate::{ObjectOutcome, fate, rescaled, runs_pods},
    read::{AdoptableServices, Service, find},
    services, tell,
};
use crate::{
    cli::{
        live::Source,
        memory,
        offline::{Offline, Planned},
        progress,
    },
    problem::sentence,
};
use anyhow::{Context, Result};
use k8s_openapi::jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use kube::client::Body;
use pointsman_core::{
    condition::CONTESTED,
    plan::Object,
    planning,
    resource::{HTTP_ROUTE, NETWORK_POLICY, PERSISTENT_VOLUME_CLAIM, Resource},
    world::{
        ObjectKey, World,
        adopted::ADOPTED,
        child::SUBJECT_KIND,
        subject::CONTROL,
        writers::{self, Writer},
    },
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
    time::Instant,
};

/// How long another controller must have written nothing to be considered stopped.
const QUIET_PERIOD: SignedDuration = SignedDuration::from_mins(5);

/// The kinds that are only removed with --force, and the consequence.
static GUARDED: [(&Resource, &str); 2] = [
    (&HTTP_ROUTE, "a route to the service: expose the service in another way"),
    (
        &NETWORK_POLICY,
        "the isolation of its pods: request a policy for the service (annotation security.ome.io/network-policy), create your own",
    ),
];

/// A service after the adoption.
pub(super) struct PlannedAdoption {
    pub(super) service: Service,
    /// The adopted objects, by name.
    pub(super) taken: BTreeMap<ObjectKey, TakenOver>,
    /// The objects that stay with the service unchanged, because no plan contains them and they have files.
    left: BTreeMap<ObjectKey, TakenOver>,
    finalizers: Vec<String>,
    /// Whether no other controller works on it.
    ours: bool,
    /// The last writer among the previous managers.
    last: Option<Writer>,
}

pub(super) async fn run(source: &Source, args: &AdoptArgs) -> Result<ExitCode> {
    let AdoptableServices { services: found, taken } = find(source, args).await?;
    services(found.len())?;
    let now = server_time(source).await?;
    let prospects: Vec<PlannedAdoption> = found.into_iter().map(|service| prospect(service, args.new_templates)).collect();
    let (policies, notes) = source.policies(&args.host.host_namespace, &args.cache).await?;
    let mut world = World::default();
    for namespace in prospects.iter().map(|prospect| &prospect.service.key.namespace).collect::<BTreeSet<_>>() {
        source.surroundings(&mut world, namespace).await?;
        source.crowd(&mut world, policies.active().rules(), namespace).await?;
    }
    for prospect in &prospects {
        foresee(&mut world, prospect, now);
    }
    world.set_available(source.available.clone());
    memory::foresee(source, &mut world, &policies, &args.host.host_namespace).await;
    let subjects = prospects.iter().map(|prospect| prospect.service.key.clone()).collect();
    let offline = Offline { world, subjects, policies, settings: args.settings.settings(), notes, nodes: Vec::new() };
    let plans = tokio::task::block_in_place(|| offline.plans());
    let mut outlooks = Vec::new();
    let clock = Instant::now();
    for mut prospect in prospects {
        let planned = plans.iter().find(|planned| planned.subject.key == prospect.service.key);
        let objects = planned.and_then(|planned| planned.plan.objects.as_deref()).unwrap_or_default();
        prospect.leave(objects);
        if args.all && prospect.left_alone() {
            outlooks.push(prospect.skipped());
            continue;
        }
        progress::set(format!("testing the writes for the {}", prospect.service.key));
        let mut outlook = outlook(&prospect, planned, &taken, now, args);
        if outlook.refused.is_none() && !prospect.ours {
            let now = || now.checked_add(clock.elapsed()).unwrap_or(now);
            match rehearse(source, &prospect, objects, &now, args).await {
                Ok(notes) => outlook.notes.extend(notes),
                Err(error) => outlook.refused = Some(format!("{}. Nothing of the service was written.", sentence(error.as_ref()))),
            }
            if args.yes && outlook.refused.is_none() {
                outlook.done(perform(source, &prospect, &now, args.new_templates, Mode::Done).await);
            }
        }
        outlooks.push(outlook);
    }
    Ok(tell(&outlooks, args.yes))
}

fn prospect(service: Service, new_templates: bool) -> PlannedAdoption {
    let theirs = service.children.iter().filter(|(_, child)| !ours(child));
    let taken: BTreeMap<ObjectKey, TakenOver> =
        theirs.map(|(key, child)| (key.clone(), take_over(key.resource, child, (service.kind(), service.uid()), new_templates))).collect();
    let of_subject = managed(&service.object);
    let time = |entry: &Value| entry["time"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    let foreign = |entry: &&Value| entry["manager"].as_str().is_some_and(writers::foreign);
    let statuses = || of_subject.iter().filter(|entry| entry["subresource"] == "status").filter(foreign);
    let mut former: BTreeSet<String> = taken.values().map(|taken| taken.from.clone()).collect();
    former.extend(statuses().filter_map(|entry| entry["manager"].as_str().map(str::to_owned)));
    let of_children: Vec<Value> = service.children.iter().flat_map(|(_, child)| managed(child)).collect();
    let by_them =
        statuses().chain(of_children.iter().filter(|entry| entry["manager"].as_str().is_some_and(|manager| former.contains(manager))));
    let last = by_them.filter_map(|entry| Some(Writer { manager: entry["manager"].as_str()?.to_owned(), time: time(entry) }));
    let last = last.max_by_key(|writer| writer.time);
    let former: Vec<String> = former.into_iter().collect();
    PlannedAdoption { finalizers: finalizers(&service.object, &former), ours: false, taken, left: BTreeMap::new(), last, service }
}

impl PlannedAdoption {
    /// Retains unplanned objects that have files. Afterwards it is known whether there is anything to adopt.
    fn leave(&mut self, planned: &[Object]) {
        let left = |key: &ObjectKey| key.resource == &PERSISTENT_VOLUME_CLAIM && !planned.iter().any(|object| object.key == *key);
        (self.left, self.taken) = std::mem::take(&mut self.taken).into_iter().partition(|(key, _)| left(key));
        self.ours = self.taken.is_empty() && is_ours(&self.service);
    }

    fn left_alone(&self) -> bool {
        self.service.object["metadata"]["annotations"][CONTROL] == "false"
    }

    /// The report on a service that isn't adopted, if nobody has named it.
    fn skipped(&self) -> AdoptionReport {
        let ObjectKey { resource, namespace, name } = &self.service.key;
        AdoptionReport::new(format!(
            "{} {namespace}/{name}: not managed because of its annotation {CONTROL}: name it to adopt it",
            resource.kind
        ))
    }
}

/// Whether an object is already ours: we have written it, and it has the watches' label.
fn ours(object: &Value) -> bool {
    object["metadata"]["labels"].get(SUBJECT_KIND).is_some() && writers::ours(&managed(object))
}

fn is_adopted(object: &Value) -> bool {
    object["metadata"]["annotations"].get(ADOPTED).is_some()
}

/// When another manager has written the status of a service, and when we reported that.
fn written(subject: &Value) -> Vec<Timestamp> {
    let foreign = |entry: &&Value| entry["subresource"] == "status" && entry["manager"].as_str().is_some_and(writers::foreign);
    let managed = managed(subject);
    let statuses = managed.iter().filter(foreign).map(|entry| &entry["time"]);
    let conditions = subject["status"]["conditions"].as_array().into_iter().flatten();
    let told = conditions.filter(|told| told["type"] == CONTESTED).map(|told| &told["lastTransitionTime"]);
    statuses.chain(told).filter_map(|time| time.as_str()?.parse().ok()).collect()
}

/// The API server's time, which is used for times of writes. Our own if the response has none.
async fn server_time(source: &Source) -> Result<Timestamp> {
    let request = http::Request::get("/version").body(Body::empty())?;
    let answer = source.client.send(request).await.context("requesting the API server's time")?;
    let date = answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
    Ok(date.and_then(|date| rfc2822::parse(date).ok()).map_or_else(Timestamp::now, |date| date.timestamp()))
}

/// Whether the host considers a service its own.
fn is_ours(service: &Service) -> bool {
    let mut world = World::default();
    world.put(service.key.resource, &service.object);
    world.snapshot(&service.key, 0).is_some_and(|snapshot| planning::theirs(&snapshot).is_none())
}

/// Puts a service into a world as it will be after the adoption.
fn foresee(world: &mut World, prospect: &PlannedAdoption, now: Timestamp) {
    let PlannedAdoption { service, taken, .. } = prospect;
    let mut subject = service.object.clone();
    subject["metadata"]["annotations"][ADOPTED] = adoption(now, written(&service.object)).to_string().into();
    if let Some(annotations) = subject["metadata"]["annotations"].as_object_mut() {
        annotations.remove(CONTROL);
    }
    world.put(service.key.resource, &subject);
    for (key, child) in &service.children {
        world.put(key.resource, taken.get(key).map_or(child, |taken| &taken.after));
    }
}

/// The outcome for a service.
fn outlook(
    prospect: &PlannedAdoption,
    planned: Option<&Planned>,
    names: &BTreeSet<ObjectKey>,
    now: Timestamp,
    args: &AdoptArgs,
) -> AdoptionReport {
    let PlannedAdoption { service, taken, last, .. } = prospect;
    let ObjectKey { resource, namespace, name } = &service.key;
    let mut outlook = AdoptionReport::new(String::new());
    if prospect.ours {
        outlook.head = format!("{} {namespace}/{name}: nothing to adopt, no other controller manages it", resource.kind);
        return outlook;
    }
    let plan = planned.map(|planned| &planned.plan);
    let objects = plan.and_then(|plan| plan.objects.as_deref());
    let (mut restarts, mut replicas) = (0, String::new());
    for (key, TakenOver { from, again, after, .. }) in service.children.iter().filter_map(|(key, _)| Some((key, taken.get(key)?))) {
        let planned = objects.and_then(|objects| objects.iter().find(|object| object.key == *key));
        let keeps = plan.is_some_and(|plan| plan.retained.contains(key));
        let (what, pods) = match fate(service.kind(), after, planned) {
            _ if objects.is_none() => ("unchanged".to_owned(), 0),
            (ObjectOutcome::AsItIs, pods) if *again => ("adopted again".to_owned(), pods),
            (ObjectOutcome::AsItIs, pods) => ("adopted unchanged".to_owned(), pods),
            (ObjectOutcome::Changed(fields), pods) => {
                (format!("{}changed: {}", if *again { "adopted again; " } else { "" }, fields.join(", ")), pods)
            }
            (ObjectOutcome::Removed, _) if runs_pods(key.resource) => {
                outlook.refused = Some(format!(
                    "The pods of the service would belong to another object than the {key}, which is never removed here: set the \
                     deployment mode of the service (annotation ome.io/deploymentMode, or its workers), or delete the object yourself."
                ));
                ("not planned".to_owned(), 0)
            }
            (ObjectOutcome::Removed, _) if keeps => ("retained until the pods are replaced".to_owned(), 0),
            (ObjectOutcome::Removed, _) => {
                if let Some((_, with)) = GUARDED.iter().find(|(guarded, _)| *guarded == key.resource).filter(|_| !args.force) {
                    outlook.refused = Some(format!("The {key} would be removed, and with it {with}, or set --force."));
                }
                ("removed: not planned".to_owned(), 0)
            }
        };
        restarts += pods;
        replicas.extend(planned.and_then(|planned| rescaled(after, planned)).map(|told| format!(", {} {told}", key.name)));
        outlook.rows.push(row(key, from, what));
    }
    outlook.rows.extend(prospect.left.iter().map(|(key, left)| row(key, &left.from, "retained: it may contain files".to_owned())));
    for object in objects.unwrap_or_default() {
        if service.children.iter().any(|(key, _)| *key == object.key) {
            continue;
        }
        if names.contains(&object.key) {
            outlook.refused =
                Some(format!("The {} already exists and doesn't belong to this service: delete it, or rename it.", object.key));
        } else {
            outlook.rows.push(row(&object.key, "", "created".to_owned()));
        }
    }
    let pods = if restarts == 1 { "1 pod restarts".to_owned() } else { format!("{restarts} pods restart") };
    outlook.head = format!("{} {namespace}/{name}: {pods}{replicas}", resource.kind);
    outlook.notes.extend(prospect.finalizers.iter().map(|finalizer| {
        format!("the finalizer {finalizer} is removed, so its controller no longer cleans up when the service is deleted")
    }));
    if let Some(held) = planned.and_then(Planned::held) {
        outlook.refused = Some(format!("It can't be served: {held}"));
    }
    if let Some(Writer { manager, time: Some(time) }) = last
        && now.duration_since(*time) < QUIET_PERIOD
    {
        let seconds = now.duration_since(*time).as_secs().max(0);
        let lives = format!("the controller {manager:?} has written {seconds} s ago: stop it for this kind or namespace");
        if args.force {
            outlook.notes.push(lives);
        } else if outlook.refused.is_none() {
            outlook.refused = Some(format!("{lives}, and wait {} minutes, or set --force", QUIET_PERIOD.as_mins()));
        }
    }
    outlook
}

fn row(key: &ObjectKey, manager: &str, what: String) -> [String; 4] {
    [key.resource.kind.to_owned(), key.name.clone(), manager.to_owned(), what]
}

/// The objects first, the service last: until it is marked, the host doesn't manage it.
pub(super) async fn perform(
    source: &Source,
    prospect: &PlannedAdoption,
    now: &(impl Fn() -> Timestamp + Sync),
    new_templates: bool,
    mode: Mode,
) -> Result<()> {
    let PlannedAdoption { service, taken, finalizers, .. } = prospect;
    let subject = (service.kind(), service.uid());
    let all = service.children.iter().filter(|(key, child)| runs_pods(key.resource) && (taken.contains_key(key) || is_adopted(child)));
    let workloads: Vec<String> = all.map(|(key, _)| format!("{}/{}", key.resource.kind, key.name)).collect();
    for (key, child) in service.children.iter().filter(|(key, _)| taken.contains_key(key)) {
        change(source, key, child.clone(), |child| take_over(key.resource, child, subject, new_templates).patch, mode).await?;
    }
    let claim = |subject: &Value| claim(subject, adoption(now(), written(subject)), &workloads, finalizers);
    change(source, &service.key, service.object.clone(), claim, mode).await
}
