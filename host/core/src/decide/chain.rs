//! Determines which plugins are called, and the fallback of a plugin that fails.

use super::{AskedPlugin, FailedPlugin, Pinned, Standing, Undecided};
use crate::decide::{member::Member, set::StandIn};
use pointsman_crds::policy::plugin::{PluginFailurePolicy, PolicyPoint};
use pointsman_sandbox::{call::CallError, point::Subject};
use std::{collections::BTreeMap, sync::Arc};

/// The answer of a chain, with the plugins that failed.
pub(super) struct Answered<Answer> {
    pub(super) answer: Answer,
    pub(super) plugins: Vec<AskedPlugin>,
    pub(super) failed: Vec<FailedPlugin>,
}

/// A member of the chain that failed.
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) error: CallError,
}

impl Pinned<'_> {
    /// Calls the plugins of the chain. If one fails, its failure policy determines the fallback and the whole chain is called again: the
    /// answer must not depend on how far the first attempt got.
    pub(super) fn ask_chain<Answer>(
        &self,
        point: PolicyPoint,
        subject: &Subject,
        mut ask: impl FnMut(&[Arc<Member>]) -> Result<Answer, Fault>,
    ) -> Result<Answered<Answer>, Undecided> {
        let passed_over = self.passed_over.iter().filter(|(_, why)| why.is_none());
        let mut stand_ins: BTreeMap<_, _> = passed_over.map(|(name, _)| (name.clone(), StandIn::Skip)).collect();
        let mut failed: Vec<FailedPlugin> = Vec::new();
        loop {
            let chain = self.set.line(point, subject, &stand_ins);
            if chain.is_empty() {
                // The failure of a skipped plugin says more than that no plugin is left.
                return Err(failed.pop().map_or(Undecided::Nobody(point), |failed| Undecided::Failed { point, failed }));
            }
            let unasked =
                chain.iter().enumerate().find_map(|(at, member)| Some(Fault { at, error: self.unasked(member, subject, &stand_ins)? }));
            let fault = match unasked {
                Some(fault) => fault,
                None => match ask(&chain) {
                    Ok(answer) => {
                        return Ok(Answered { answer, plugins: chain.iter().map(|member| asked_plugin(member)).collect(), failed });
                    }
                    Err(fault) => fault,
                },
            };
            let Some(member) = chain.get(fault.at) else { return Err(Undecided::Nobody(point)) };
            let fault = FailedPlugin { plugin: member.name().to_owned(), error: fault.error };
            let stand_in = self.stand_in(point, member, &stand_ins);
            match stand_in {
                Some(stand_in) => stand_ins.insert(member.name().to_owned(), stand_in),
                None => return Err(Undecided::Failed { point, failed: fault }),
            };
            failed.push(fault);
        }
    }

    /// Why a plugin isn't called at all, if so.
    fn unasked(&self, member: &Member, subject: &Subject, stand_ins: &BTreeMap<String, StandIn>) -> Option<CallError> {
        let name = member.name();
        if stand_ins.contains_key(name) {
            return None;
        }
        let unclear = self.passed_over.get(name).and_then(Option::as_ref);
        let unclear = unclear.map(|why| CallError::Failed(format!("its matchConditions can't be evaluated: {why}")));
        unclear.or_else(|| self.is_quarantined(member, subject).then_some(CallError::Quarantined))
    }

    /// The fallback for a plugin. A fallback has no fallback itself, and there is none for a subject with running objects.
    fn stand_in(&self, point: PolicyPoint, member: &Member, stand_ins: &BTreeMap<String, StandIn>) -> Option<StandIn> {
        if self.standing == Standing::Running || stand_ins.contains_key(member.name()) {
            return None;
        }
        match member.bound.failure_policy {
            PluginFailurePolicy::Fail => None,
            PluginFailurePolicy::Skip => Some(StandIn::Skip),
            PluginFailurePolicy::Previous => member.previous.clone().map(StandIn::Previous),
            PluginFailurePolicy::Default => (!member.is_default(point)).then_some(StandIn::Default),
        }
    }
}

fn asked_plugin(member: &Member) -> AskedPlugin {
    AskedPlugin { plugin: member.name().to_owned(), digest: member.bound.digest.clone() }
}
