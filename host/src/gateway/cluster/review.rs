//! Identifies callers by tokens that the API server checks, such as those of ServiceAccounts.

use crate::{
    gateway::callers::{Caller, Review},
    problem::sentence,
};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, Client, api::PostParams};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// The timeout of the API server's check.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks the API server for the owners of tokens, which must be for one of these audiences if there are any.
pub fn reviewer(client: Client, audiences: Vec<String>) -> Arc<Review> {
    let audiences = (!audiences.is_empty()).then_some(audiences);
    Arc::new(move |token| {
        let (api, audiences) = (Api::<TokenReview>::all(client.clone()), audiences.clone());
        Box::pin(async move {
            let spec = TokenReviewSpec { token, audiences: audiences.clone() };
            let review = TokenReview { spec, ..TokenReview::default() };
            let answer = timeout(REVIEW_TIMEOUT, api.create(&PostParams::default(), &review)).await;
            let answer = answer.map_err(|_| "the API server doesn't answer".to_owned())?.map_err(|error| sentence(&error))?;
            Ok(caller(&answer, audiences.as_deref()))
        })
    })
}

fn caller(review: &TokenReview, audiences: Option<&[String]>) -> Option<Caller> {
    let status = review.status.as_ref().filter(|status| status.authenticated == Some(true))?;
    // An authenticator without support for audiences leaves them out, and would accept any token.
    let is_for_us = audiences.is_none_or(|wanted| status.audiences.iter().flatten().any(|audience| wanted.contains(audience)));
    let name = status.user.as_ref()?.username.clone().filter(|name| !name.is_empty() && is_for_us)?;
    let namespace = name.strip_prefix("system:serviceaccount:").and_then(|rest| Some(rest.split_once(':')?.0.to_owned()));
    Some(Caller { name, namespace, max_priority: 0, ..Caller::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_service_account_is_a_caller_of_its_namespace_and_a_token_for_others_is_none() {
        let review = |status: serde_json::Value| serde_json::from_value(json!({"spec": {}, "status": status})).unwrap();
        let user = json!({"username": "system:serviceaccount:ml:default"});
        let known = review(json!({"authenticated": true, "user": user, "audiences": ["gateway"]}));
        let found = caller(&known, None).unwrap();
        assert_eq!((found.name.as_str(), found.namespace.as_deref()), ("system:serviceaccount:ml:default", Some("ml")));
        assert!(caller(&known, Some(&["gateway".to_owned()])).is_some());
        assert!(caller(&known, Some(&["other".to_owned()])).is_none());
        assert!(caller(&review(json!({"authenticated": true, "user": user})), Some(&["gateway".to_owned()])).is_none());
        assert!(caller(&review(json!({"authenticated": false, "user": user})), None).is_none());
        assert!(caller(&review(json!({"authenticated": true})), None).is_none());
        let person = caller(&review(json!({"authenticated": true, "user": {"username": "jane"}})), None).unwrap();
        assert_eq!(person.namespace, None);
    }
}
