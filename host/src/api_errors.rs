//! Requests that the API server refuses: counts by verb, resource and status code, and the rights that are missing.

use crate::missing_rights::{MissingRights, Right};
use http::{Method, Request, Response, StatusCode, Uri};
use kube::{Client, client::Body, core::Status};
use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use std::{collections::BTreeSet, sync::Arc};

/// The status code of a request that got no response.
const NO_ANSWER: &str = "no-answer";

/// The resource of a request that isn't about a resource, such as discovery.
const NO_RESOURCE: &str = "none";

/// The failed requests of a process to the API server.
#[derive(Debug)]
pub struct ApiErrors {
    counts: Family<[(&'static str, String); 3], Counter>,
    rights: Arc<MissingRights>,
}

/// The right that a request needs, and the object it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    /// The right. Its resource is empty if the request isn't about one.
    right: Right,
    /// The name of the object, if it is about one.
    name: Option<String>,
}

impl Target {
    /// Parses a request as the API server does.
    fn from_request(method: &Method, uri: &Uri) -> Self {
        let mut parts = uri.path().split('/').filter(|part| !part.is_empty());
        let group = match parts.next() {
            Some("api") => Some(""),
            Some("apis") => parts.next(),
            _ => None,
        };
        let mut parts = parts.skip(1);
        let mut next = parts.next();
        let mut namespace = None;
        let mut name = None;
        if next == Some("namespaces") {
            name = parts.next();
            if let Some(resource) = parts.next() {
                namespace = name;
                next = Some(resource);
                name = parts.next();
            }
        } else if next.is_some() {
            name = parts.next();
        }
        let resource = match (group.and(next), parts.next()) {
            (Some(resource), Some(part)) => format!("{resource}/{part}"),
            (resource, _) => resource.unwrap_or_default().to_owned(),
        };
        let query = |wanted: &str| {
            let pairs = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
            pairs.into_iter().find_map(|(key, value)| (key == wanted).then_some(value))
        };
        let is_watch = query("watch").is_some_and(|watch| watch != "false" && watch != "0");
        let verb = match *method {
            Method::GET if is_watch => "watch",
            Method::GET if name.is_none() && !resource.is_empty() => "list",
            Method::GET => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if name.is_none() => "deletecollection",
            Method::DELETE => "delete",
            _ => "other",
        };
        let selected = || Some(query("fieldSelector")?.strip_prefix("metadata.name=")?.to_owned());
        let name = name.map(str::to_owned).or_else(selected);
        let right =
            Right { verb: verb.to_owned(), group: group.unwrap_or_default().to_owned(), resource, namespace: namespace.map(str::to_owned) };
        Self { right, name }
    }
}

/// Counts a request that ends without a response, including one whose caller no longer waits.
struct Unanswered<'e> {
    errors: &'e ApiErrors,
    right: &'e Right,
    is_answered: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.errors.count(self.right, NO_ANSWER.to_owned());
        }
    }
}

impl ApiErrors {
    /// Creates an empty count for a host in the namespace `home` that serves these namespaces, or all if there are none.
    pub fn new(home: &str, served: BTreeSet<String>) -> Self {
        Self { counts: Family::default(), rights: Arc::new(MissingRights::new(home, served)) }
    }

    /// The rights that are missing.
    pub fn missing_rights(&self) -> Arc<MissingRights> {
        Arc::clone(&self.rights)
    }

    /// Adds these metrics to those of the page.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Requests to the API server that failed, by verb, resource and status code, or no-answer";
        registry.register("pointsman_api_server_errors", help, self.counts.clone());
    }

    /// Counts a request that failed.
    pub fn count(&self, right: &Right, code: String) {
        let resource = if right.resource.is_empty() { NO_RESOURCE.to_owned() } else { right.resource_name() };
        self.counts.get_or_create(&[("verb", right.verb.clone()), ("resource", resource), ("code", code)]).inc();
    }

    /// Records a response.
    async fn note(&self, target: &Target, answer: Response<Body>) -> kube::Result<Response<Body>> {
        let code = answer.status();
        if code.is_client_error() || code.is_server_error() {
            self.count(&target.right, code.as_u16().to_string());
        }
        // The API server checks rights before everything except the token and its own load.
        if code.is_success() || matches!(code, StatusCode::NOT_FOUND | StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY) {
            self.rights.allowed(&target.right, code == StatusCode::CREATED);
        }
        if code != StatusCode::FORBIDDEN {
            return Ok(answer);
        }
        let (head, body) = answer.into_parts();
        let body = body.collect_bytes().await?;
        if let Ok(Status { message, .. }) = serde_json::from_slice(&body) {
            self.rights.refused(target.right.clone(), target.name.as_deref(), &message);
        }
        Ok(Response::from_parts(head, Body::from(body.to_vec())))
    }
}

/// Wraps a client so that its failed requests are recorded.
pub fn observed(client: Client, errors: Arc<ApiErrors>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let send = move |request: Request<Body>| {
        let (client, errors) = (client.clone(), Arc::clone(&errors));
        async move {
            let target = Target::from_request(request.method(), request.uri());
            let mut unanswered = Unanswered { errors: &errors, right: &target.right, is_answered: false };
            let answer = client.send(request).await?;
            unanswered.is_answered = true;
            errors.note(&target, answer).await
        }
    };
    Client::new(tower::service_fn(send), namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{Router, http::StatusCode as Code, response::IntoResponse};
    use k8s_openapi::api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Namespace, Pod},
    };
    use kube::{
        Api,
        api::{ListParams, Patch, PatchParams},
    };
    use prometheus_client::encoding::text::encode_registry;
    use serde_json::json;

    #[test]
    fn a_request_is_about_what_rbac_says() {
        for (method, uri, expected) in [
            ("GET", "/api/v1/pods?limit=100", "list pods"),
            ("GET", "/api/v1/pods?watch=true&labelSelector=a", "watch pods"),
            ("GET", "/api/v1/namespaces/a/pods/b", "get pods in a, b"),
            ("GET", "/api/v1/namespaces/a", "get namespaces, a"),
            ("GET", "/api/v1/namespaces", "list namespaces"),
            ("GET", "/api/v1/namespaces/a/secrets?fieldSelector=metadata.name%3Db&watch=1", "watch secrets in a, b"),
            ("POST", "/apis/apps/v1/namespaces/a/deployments?fieldManager=m", "create deployments.apps in a"),
            ("PATCH", "/apis/ome.io/v1beta1/namespaces/a/inferenceservices/b/status", "patch inferenceservices.ome.io/status in a, b"),
            ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", "update leases.coordination.k8s.io in a, b"),
            ("DELETE", "/api/v1/namespaces/a/services/b", "delete services in a, b"),
            ("DELETE", "/api/v1/namespaces/a/services", "deletecollection services in a"),
            ("GET", "/apis", "get "),
            ("GET", "/version", "get "),
        ] {
            let Target { right, name } = Target::from_request(&method.parse().unwrap(), &uri.parse().unwrap());
            let place = right.namespace.as_ref().map(|namespace| format!(" in {namespace}")).unwrap_or_default();
            let name = name.map(|name| format!(", {name}")).unwrap_or_default();
            assert_eq!(format!("{} {}{place}{name}", right.verb, right.resource_name()), expected, "{uri}");
        }
    }

    /// Refuses pods because of a missing right and Deployments because of a quota, has no ConfigMap, and serves everything else.
    async fn server(uri: Uri) -> impl IntoResponse {
        let refusal = |code: Code, message: &str| {
            let reason = if code == Code::NOT_FOUND { "NotFound" } else { "Forbidden" };
            (code, json!({"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code.as_u16()}).to_string())
        };
        match uri.path() {
            "/api/v1/pods" => {
                refusal(Code::FORBIDDEN, r#"pods is forbidden: User "me" cannot list resource "pods" in API group "" at the cluster scope"#)
            }
            path if path.contains("/deployments/") => refusal(Code::FORBIDDEN, r#"deployments.apps "a" is forbidden: exceeded quota: few"#),
            path if path.contains("/configmaps/") => refusal(Code::NOT_FOUND, r#"configmaps "a" not found"#),
            _ => (Code::OK, json!({"metadata": {"name": "a"}}).to_string()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_fail_are_counted_and_their_answers_pass_through() {
        let errors = Arc::new(ApiErrors::new("home", BTreeSet::new()));
        let client = observed(Client::new(Router::new().fallback(server), "home"), Arc::clone(&errors));
        for _ in 0..2 {
            let error = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await.unwrap_err();
            assert!(errors.missing_rights().repeats(&error.to_string()), "{error}");
        }
        let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
        let deployments = Api::<Deployment>::namespaced(client.clone(), "home");
        let error = deployments.patch("a", &PatchParams::default(), &patch).await.unwrap_err();
        assert!(matches!(&error, kube::Error::Api(status) if status.message.ends_with("exceeded quota: few")));
        assert!(Api::<ConfigMap>::namespaced(client.clone(), "home").get_opt("a").await.unwrap().is_none());
        Api::<Namespace>::all(client.clone()).get("a").await.unwrap();
        let gone = observed(Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap(), Arc::clone(&errors));
        Api::<Namespace>::all(gone).get("a").await.unwrap_err();

        let mut registry = Registry::default();
        errors.register(&mut registry);
        let mut page = String::new();
        encode_registry(&mut page, &registry).unwrap();
        let mut counted: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        counted.sort_unstable();
        assert_eq!(
            counted,
            [
                r#"pointsman_api_server_errors_total{verb="get",resource="configmaps",code="404"} 1"#,
                r#"pointsman_api_server_errors_total{verb="get",resource="namespaces",code="no-answer"} 1"#,
                r#"pointsman_api_server_errors_total{verb="list",resource="pods",code="403"} 2"#,
                r#"pointsman_api_server_errors_total{verb="patch",resource="deployments.apps",code="403"} 1"#,
            ]
        );
    }
}
