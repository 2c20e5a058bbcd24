//! Chooses the one writer among several hosts: leader election by a Kubernetes Lease, with the semantics of client-go.
//!
//! The implementation is our own because the only crate for it, kube-lease-manager, compares another host's wall clock with ours, takes a
//! lease over even if another host took it meanwhile (its patches carry no resource version), and continues to report leadership while the
//! API server doesn't respond, even after the lease has expired.

pub mod agreement;
pub mod fence;
mod record;

pub use record::{holder, seconds_since_renewal};

use crate::problem::sentence;
use agreement::Agreement;
use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use record::Candidate;
use std::{pin::pin, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};

/// The times at which a lease is renewed, given up and taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long other hosts wait, from the last renewal that they saw, before they take over.
    pub lease: Duration,
    /// How long we lead without a renewal. It is shorter than `lease` by the longest tolerated pause of the process.
    pub renew: Duration,
    /// The interval at which we renew, or check whether we can take over.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), renew: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

impl Timing {
    /// The mistake in these times, if any.
    pub fn flaw(&self) -> Option<String> {
        let Self { lease, renew, retry } = self;
        if retry.is_zero() || renew < &(*retry * 2) {
            return Some(format!("the time to renew ({renew:?}) must be twice the time between tries ({retry:?}) or more"));
        }
        (lease <= renew).then(|| format!("the lease ({lease:?}) must be longer than the time to renew it ({renew:?})"))
    }
}

/// Whether we lead. The end is known beforehand, so leadership ends in time even if no task runs that could announce it.
#[derive(Clone, Debug)]
pub struct Leadership(watch::Receiver<Option<Instant>>);

impl Leadership {
    /// Whether we certainly lead now. Check this right before each write.
    pub fn held(&self) -> bool {
        // A campaign that was dropped no longer renews.
        self.0.has_changed().is_ok() && self.0.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Waits until we lead; forever if the campaign is over.
    pub async fn acquired(&mut self) {
        while !self.held() {
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until we lead, and then runs the work until it is done or we are no longer the leader.
    pub async fn for_a_term(&mut self, work: impl Future<Output = ()>) {
        self.acquired().await;
        tokio::select! {
            () = self.lost() => {}
            () = work => {}
        }
    }

    /// Waits until we are no longer the leader.
    pub async fn lost(&mut self) {
        while self.held() {
            let until = *self.0.borrow_and_update();
            let Some(until) = until else { return };
            tokio::select! {
                // The lease may have been renewed by then, which isn't announced.
                () = sleep_until(until) => {}
                changed = self.0.changed() => if changed.is_err() { return },
            }
        }
    }
}

/// Takes part in the election for the lease of that name until `stop`. The returned future must be polled; after `stop`, it releases the
/// lease and ends. Everything that needs the leadership must have stopped by then. If the future is dropped earlier, the lease expires.
///
/// The identity must be unique to this process, such as a pod's name: two processes with the same identity count as one. `agreement`
/// compares this host's settings with the leader's.
pub fn campaign<S: Future<Output = ()> + Send>(
    client: Client,
    namespace: &str,
    name: &str,
    identity: &str,
    timing: Timing,
    agreement: Agreement,
    stop: S,
) -> (Leadership, impl Future<Output = ()> + Send + use<S>) {
    let (leads, leadership) = watch::channel(None);
    let campaign = Election {
        api: Api::namespaced(client, namespace),
        name: name.to_owned(),
        candidate: Candidate::new(identity, timing.lease),
        timing,
        agreement,
        lease: None,
        leads,
        failing: false,
    };
    (Leadership(leadership), campaign.run(stop))
}

struct Election {
    api: Api<Lease>,
    name: String,
    candidate: Candidate,
    timing: Timing,
    agreement: Agreement,
    /// The lease as we last wrote it: it can be renewed without reading it again.
    lease: Option<Lease>,
    leads: watch::Sender<Option<Instant>>,
    /// Whether it was logged that the API server doesn't respond.
    failing: bool,
}

impl Election {
    async fn run(mut self, stop: impl Future<Output = ()> + Send) {
        let mut stop = pin!(stop);
        loop {
            let round = async {
                self.try_once().await;
                sleep(self.timing.retry).await;
            };
            tokio::select! {
                () = round => {}
                () = &mut stop => break,
            }
        }
        self.resign().await;
    }

    async fn try_once(&mut self) {
        // Taken before the request is sent: others count from when they see its effect, which is later.
        let sent = Instant::now();
        let led = self.leads.borrow().is_some();
        match timeout(self.timing.renew / 2, self.attempt()).await {
            Ok(Ok(leads)) => {
                self.failing = false;
                match (led, leads) {
                    (false, true) => tracing::info!(lease = self.name, "leading"),
                    (true, false) => {
                        tracing::warn!(lease = self.name, holder = self.candidate.holder(), "another host has taken the lease");
                    }
                    _ => {}
                }
                self.publish(leads.then(|| sent + self.timing.renew));
            }
            Ok(Err(error)) => self.failed(&sentence(&error)),
            Err(_) => self.failed("the API server doesn't answer"),
        }
        if self.leads.borrow().is_some_and(|until| until <= Instant::now()) {
            tracing::warn!(lease = self.name, "this host is no longer the leader: the lease could not be renewed in time");
            self.publish(None);
        }
    }

    /// Notifies only if we start or stop leading, not if we lead for longer.
    fn publish(&self, until: Option<Instant>) {
        self.leads.send_if_modified(|before| {
            let led = before.is_some_and(|before| Instant::now() < before);
            *before = until;
            led != until.is_some()
        });
    }

    fn failed(&mut self, error: &str) {
        if !self.failing {
            tracing::warn!(lease = self.name, error, "the lease can't be read or written; trying again every {:?}", self.timing.retry);
        }
        self.failing = true;
    }

    /// Renews the lease or takes it, if it is ours or free. Returns whether it is ours now.
    async fn attempt(&mut self) -> kube::Result<bool> {
        match self.write_once().await {
            // Our copy is out of date, because somebody edited, deleted, created or took the lease.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => self.write_once().await,
            done => done,
        }
    }

    async fn write_once(&mut self) -> kube::Result<bool> {
        // Removed from `self`, so that it is read again after any failure.
        let found = match self.lease.take() {
            Some(ours) => Some(ours),
            None => self.api.get_opt(&self.name).await?,
        };
        let spec = found.as_ref().and_then(|lease| lease.spec.as_ref());
        if let Some(holder) = self.candidate.observe(spec, Instant::now()) {
            tracing::info!(lease = self.name, holder, "another host is the leader");
        }
        let Some(spec) = self.candidate.wanted(spec, Instant::now(), Timestamp::now()) else {
            self.agreement.compare(found.as_ref());
            return Ok(false);
        };
        let there = found.is_some();
        // It carries the version that was read, so only one of the hosts that saw it free gets it.
        let mut lease = Lease { spec: Some(spec), ..found.unwrap_or_default() };
        self.agreement.announce(&mut lease, self.candidate.identity());
        let written = if there {
            self.api.replace(&self.name, &PostParams::default(), &lease).await?
        } else {
            lease.metadata = ObjectMeta { name: Some(self.name.clone()), ..lease.metadata };
            self.api.create(&PostParams::default(), &lease).await?
        };
        self.lease = Some(written);
        Ok(true)
    }

    async fn resign(mut self) {
        let led = self.leads.borrow().is_some();
        self.publish(None);
        if !led {
            return;
        }
        self.lease = None;
        match timeout(self.timing.renew / 2, self.release()).await {
            Ok(Ok(())) => tracing::info!(lease = self.name, "released the lease"),
            Ok(Err(error)) => {
                tracing::warn!(lease = self.name, error = sentence(&error), "the lease can't be released; it will expire");
            }
            Err(_) => {
                tracing::warn!(lease = self.name, "the lease can't be released, because the API server doesn't answer; it will expire");
            }
        }
    }

    async fn release(&self) -> kube::Result<()> {
        loop {
            let Some(found) = self.api.get_opt(&self.name).await? else { return Ok(()) };
            let Some(spec) = self.candidate.released(found.spec.as_ref(), Timestamp::now()) else { return Ok(()) };
            match self.api.replace(&self.name, &PostParams::default(), &Lease { spec: Some(spec), ..found }).await {
                // Our own last renewal may still have been in flight.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                done => return done.map(|_| ()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
