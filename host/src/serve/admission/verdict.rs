//! The response to the API server.

use base64::{Engine, engine::general_purpose::STANDARD};
use pointsman_core::rules::judge::{Finding, Judgement, sentence};
use pointsman_crds::policy::rule::{DenialReason, RuleAction};
use pointsman_sandbox::digest::Digest;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The maximum number of characters of a warning: the API server cuts or drops longer ones.
const MAX_WARNING_LENGTH: usize = 256;

/// The maximum number of characters in a key of the audit log.
const LONGEST_KEY: usize = 63;

/// The verdict. The default allows the object without warnings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmissionVerdict {
    /// Why the object is rejected, if it is.
    pub denial: Option<Denial>,
    /// The warnings for its user.
    pub warnings: Vec<String>,
    /// The entries of the audit log.
    pub audit: BTreeMap<String, String>,
    /// The changes of the object, as the steps of a JSON patch.
    pub patch: Vec<Value>,
}

/// A rejection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Its reason, for clients of the API.
    pub reason: DenialReason,
    /// The problem.
    pub message: String,
    /// Whether the object isn't at fault, because rules couldn't be evaluated at the moment, or by this replica. Then the request gets an
    /// error, and the failurePolicy applies.
    pub passing: bool,
}

impl AdmissionVerdict {
    /// A rejection of an invalid object.
    pub fn invalid(message: String) -> Self {
        Self { denial: Some(Denial { reason: DenialReason::Invalid, message, passing: false }), ..Self::default() }
    }

    /// Only a warning.
    pub fn warning(warning: &str) -> Self {
        Self { warnings: vec![cut(warning)], ..Self::default() }
    }

    /// The judgement of the rules, as a verdict.
    pub fn from_judgement(judgement: &Judgement) -> Self {
        let first = |wanted: fn(&Finding) -> bool| judgement.findings.iter().find(|finding| wanted(finding));
        let denial = |wanted: fn(&Finding) -> bool| {
            let Finding { reason, passing, .. } = first(wanted)?;
            Some(Denial { reason: *reason, message: judgement.sentences(wanted).join("; "), passing: *passing })
        };
        // Permanent failures take precedence over failed evaluations.
        let denial = denial(|finding| finding.denies() && !finding.passing).or_else(|| denial(Finding::denies));
        let warnings = judgement.sentences(Finding::warns).iter().map(|warning| cut(warning)).collect();
        let mut audit: BTreeMap<String, String> = BTreeMap::new();
        for finding in judgement.findings.iter().filter(|finding| finding.actions.contains(&RuleAction::Audit)) {
            let entry = audit.entry(key(&finding.rule)).or_default();
            if !entry.is_empty() {
                entry.push_str("; ");
            }
            entry.push_str(&sentence(&finding.rule, &finding.message));
        }
        Self { denial, warnings, audit, patch: Vec::new() }
    }

    /// Whether the object is allowed.
    pub fn allowed(&self) -> bool {
        self.denial.is_none()
    }

    /// The AdmissionReview for the request of a uid.
    pub fn review(&self, uid: &str) -> Value {
        let mut response = Map::new();
        response.insert("uid".to_owned(), uid.into());
        response.insert("allowed".to_owned(), self.allowed().into());
        if let Some(Denial { reason, message, .. }) = &self.denial {
            let (code, name) = status(*reason);
            response.insert("status".to_owned(), json!({"status": "Failure", "code": code, "reason": name, "message": message}));
        }
        if !self.warnings.is_empty() {
            response.insert("warnings".to_owned(), json!(self.warnings));
        }
        if !self.audit.is_empty() {
            response.insert("auditAnnotations".to_owned(), json!(self.audit));
        }
        if !self.patch.is_empty() {
            response.insert("patchType".to_owned(), "JSONPatch".into());
            response.insert("patch".to_owned(), STANDARD.encode(json!(self.patch).to_string()).into());
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }
}

fn status(reason: DenialReason) -> (u16, &'static str) {
    match reason {
        DenialReason::Invalid => (422, "Invalid"),
        DenialReason::Forbidden => (403, "Forbidden"),
        DenialReason::Unauthorized => (401, "Unauthorized"),
        DenialReason::RequestEntityTooLarge => (413, "RequestEntityTooLarge"),
    }
}

/// A warning as the API server accepts it: one line of limited length.
pub(super) fn cut(warning: &str) -> String {
    // The API server drops a warning with a control character.
    let mut cut: String = warning.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_WARNING_LENGTH + 1).collect();
    if cut.chars().count() > MAX_WARNING_LENGTH {
        cut = cut.chars().take(MAX_WARNING_LENGTH - 1).collect();
        cut.push('\u{2026}');
    }
    cut
}

/// A rule's name as a key of the audit log: a long name keeps its beginning, and a digest distinguishes it from others.
fn key(rule: &str) -> String {
    if rule.len() <= LONGEST_KEY {
        return rule.to_owned();
    }
    let digest = Digest::hash(rule.as_bytes()).short();
    let beginning: String = rule.chars().take(LONGEST_KEY - digest.len() - 1).collect();
    format!("{beginning}-{digest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(rule: &str, actions: &[RuleAction], message: &str, reason: DenialReason) -> Finding {
        Finding { rule: rule.to_owned(), actions: actions.to_vec(), message: message.to_owned(), reason, failed: false, passing: false }
    }

    fn verdict(findings: Vec<Finding>) -> AdmissionVerdict {
        AdmissionVerdict::from_judgement(&Judgement { findings, ..Judgement::default() })
    }

    #[test]
    fn a_denial_has_all_sentences_and_the_reason_of_the_first() {
        let (forbidden, invalid) = (DenialReason::Forbidden, DenialReason::Invalid);
        let denied = verdict(vec![
            finding("hint", &[RuleAction::Warn], "it might be smaller", invalid),
            finding("teams", &[RuleAction::Deny], "team a only", forbidden),
            finding("sizes", &[RuleAction::Deny], "too large", invalid),
        ]);
        let review = denied.review("one");
        let response = &review["response"];
        assert_eq!(response["uid"], "one");
        assert_eq!(response["allowed"], false);
        assert_eq!(response["status"]["code"], 403);
        assert_eq!(response["status"]["reason"], "Forbidden");
        assert_eq!(response["status"]["message"], "teams: team a only; sizes: too large");
        assert_eq!(response["warnings"], json!(["hint: it might be smaller"]));
    }

    #[test]
    fn a_denial_is_a_passing_one_only_where_nothing_is_wrong_for_good() {
        let passing = Finding { failed: true, passing: true, ..finding("busy", &[RuleAction::Deny], "all busy", DenialReason::Invalid) };
        let hint = finding("hint", &[RuleAction::Warn], "it might be smaller", DenialReason::Invalid);
        let denial = verdict(vec![passing.clone(), hint]).denial.unwrap();
        assert!(denial.passing && denial.message == "busy: all busy", "{denial:?}");
        let lasting = finding("teams", &[RuleAction::Deny], "team a only", DenialReason::Forbidden);
        let denial = verdict(vec![passing, lasting]).denial.unwrap();
        let wanted = Denial { reason: DenialReason::Forbidden, message: "teams: team a only".to_owned(), passing: false };
        assert_eq!(denial, wanted);
    }

    #[test]
    fn what_only_warns_or_is_noted_lets_the_object_through() {
        let noted = verdict(vec![
            finding("notes", &[RuleAction::Audit], "one", DenialReason::Invalid),
            finding("notes", &[RuleAction::Warn, RuleAction::Audit], "two", DenialReason::Invalid),
        ]);
        let review = noted.review("");
        assert_eq!(review["response"]["allowed"], true);
        assert_eq!(review["response"]["auditAnnotations"], json!({"notes": "notes: one; notes: two"}));
        assert_eq!(review["response"]["warnings"], json!(["notes: two"]));
        assert!(review["response"].get("status").is_none());
    }

    #[test]
    fn every_reason_has_its_code() {
        let reasons = [
            (DenialReason::Invalid, 422),
            (DenialReason::Forbidden, 403),
            (DenialReason::Unauthorized, 401),
            (DenialReason::RequestEntityTooLarge, 413),
        ];
        for (reason, code) in reasons {
            let (told, name) = status(reason);
            assert_eq!((told, json!(name)), (code, json!(reason)));
        }
    }

    #[test]
    fn a_warning_is_one_line_of_bounded_length() {
        assert_eq!(cut("a\nb"), "a b");
        assert_eq!(cut(&"é".repeat(256)).chars().count(), 256);
        let long = cut(&"é".repeat(257));
        assert!(long.chars().count() == 256 && long.ends_with('\u{2026}'));
    }

    #[test]
    fn a_key_of_the_audit_log_is_valid_and_names_one_rule() {
        let (one, other) = (format!("{}.one", "a".repeat(80)), format!("{}.other", "a".repeat(80)));
        assert_eq!(key(&one).len(), 63);
        assert!(key(&one) != key(&other) && key("short.rule") == "short.rule");
    }
}
