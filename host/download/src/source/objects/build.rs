//! The store of a storageUri, by the names of settings that its users know.

use super::connector::Connector;
use crate::{
    access::{Access, invalid},
    error::Error,
    http::Http,
    uri::StorageUri,
};
use object_store::{
    ObjectStore, RetryConfig,
    aws::AmazonS3Builder,
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    gcp::GoogleCloudStorageBuilder,
};
use std::sync::Arc;

/// What S3 takes for a bucket whose region nobody names.
const DEFAULT_REGION: &str = "us-east-1";
const REGION: [&str; 3] = ["region", "aws_region", "aws_default_region"];

/// Whose identity requests have.
#[derive(PartialEq)]
enum Identity {
    Given,
    /// That of the agent's process or machine.
    Ambient,
    Anonymous,
}

/// The store, and the prefix in it.
pub(super) fn store(uri: &StorageUri, access: &Access, http: &Http) -> Result<(Arc<dyn ObjectStore>, String), Error> {
    match uri {
        StorageUri::S3 { bucket, region, prefix } => {
            let region = region.as_deref().or_else(|| access.find(&REGION)).unwrap_or(DEFAULT_REGION);
            let endpoint = endpoint(access, http, &["endpoint", "aws_endpoint_url", "s3_endpoint"])?;
            // Servers of one's own have one name for all buckets.
            let path_style = access.flag("path_style")?.unwrap_or(endpoint.is_some());
            Ok((s3(bucket, region, endpoint, path_style, access, http)?, prefix.clone()))
        }
        StorageUri::OciObjects { namespace, bucket, prefix } => {
            let region = access.find(&["region", "oci_region"]);
            let endpoint = match (endpoint(access, http, &["endpoint"])?, region) {
                (Some(endpoint), _) => endpoint,
                (None, Some(region)) => format!("https://{namespace}.compat.objectstorage.{region}.oraclecloud.com")
                    .parse()
                    .map_err(|_| invalid("region", "isn't a region"))?,
                (None, None) => return Err(invalid("region", "is missing, and Object Storage has an address for each")),
            };
            Ok((s3(bucket, region.unwrap_or(DEFAULT_REGION), Some(endpoint), true, access, http)?, prefix.clone()))
        }
        StorageUri::Gcs { bucket, prefix } => Ok((gcs(bucket, access, http)?, prefix.clone())),
        StorageUri::Azure { account, container, prefix } => Ok((azure(account, container, access, http)?, prefix.clone())),
        _ => Err(Error::Unsupported { what: uri.to_string(), remedy: "write the place of an object store".to_owned() }),
    }
}

/// The address of the service, if it isn't the usual one.
fn endpoint(access: &Access, http: &Http, names: &[&str]) -> Result<Option<url::Url>, Error> {
    let endpoint = access.endpoint(names)?;
    endpoint.iter().try_for_each(|url| http.check_service(url))?;
    Ok(endpoint)
}

fn identity(access: &Access, has_credentials: bool) -> Result<Identity, Error> {
    match access.find(&["auth"]).map(str::to_ascii_lowercase).as_deref() {
        Some("anonymous") => Ok(Identity::Anonymous),
        Some("instanceprincipal" | "resourceprincipal") => Err(Error::Unsupported {
            what: "auth with an OCI principal at Object Storage's S3 interface".to_owned(),
            remedy: "make a customer secret key, and set `aws_access_key_id` and `aws_secret_access_key` in the Secret".to_owned(),
        }),
        _ if has_credentials => Ok(Identity::Given),
        _ if access.ambient => Ok(Identity::Ambient),
        _ => Ok(Identity::Anonymous),
    }
}

fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn connector(identity: &Identity, http: &Http) -> Connector {
    Connector(if *identity == Identity::Ambient { http.with_metadata() } else { http.clone() })
}

fn built<S: ObjectStore>(store: object_store::Result<S>) -> Result<Arc<dyn ObjectStore>, Error> {
    // The error may have a part of a key in it.
    store.map(|store| Arc::new(store) as Arc<dyn ObjectStore>).map_err(|_| invalid("a credential or the endpoint", "isn't valid"))
}

fn s3(
    bucket: &str,
    region: &str,
    endpoint: Option<url::Url>,
    path_style: bool,
    access: &Access,
    http: &Http,
) -> Result<Arc<dyn ObjectStore>, Error> {
    let key = access.find(&["aws_access_key_id", "access_key_id"]);
    let secret = access.find(&["aws_secret_access_key", "secret_access_key"]);
    if key.is_some() != secret.is_some() {
        return Err(invalid("aws_access_key_id", "and aws_secret_access_key belong together, and one is missing"));
    }
    let identity = identity(access, key.is_some())?;
    let mut builder = if identity == Identity::Ambient { AmazonS3Builder::from_env() } else { AmazonS3Builder::new() };
    builder = builder
        .with_bucket_name(bucket)
        .with_region(region)
        .with_allow_http(true)
        .with_retry(no_retries())
        .with_skip_signature(identity == Identity::Anonymous)
        .with_virtual_hosted_style_request(!path_style)
        .with_http_connector(connector(&identity, http));
    if let Some(endpoint) = endpoint {
        // Without path style, the endpoint is the bucket's own.
        builder = builder.with_endpoint(endpoint.as_str().trim_end_matches('/'));
    }
    if let (Identity::Given, Some(key), Some(secret)) = (&identity, key, secret) {
        builder = builder.with_access_key_id(key).with_secret_access_key(secret);
        if let Some(token) = access.find(&["aws_session_token", "session_token"]) {
            builder = builder.with_token(token);
        }
    }
    built(builder.build())
}

fn gcs(bucket: &str, access: &Access, http: &Http) -> Result<Arc<dyn ObjectStore>, Error> {
    let key = access.find(&["gcp_service_account_key", "gcp_credentials_json", "gcloud_application_credentials_json"]);
    let identity = identity(access, key.is_some())?;
    let mut builder = if identity == Identity::Ambient { GoogleCloudStorageBuilder::from_env() } else { GoogleCloudStorageBuilder::new() };
    builder = builder
        .with_bucket_name(bucket)
        .with_retry(no_retries())
        .with_skip_signature(identity == Identity::Anonymous)
        .with_http_connector(connector(&identity, http));
    if let Some(endpoint) = endpoint(access, http, &["endpoint", "gcp_endpoint"])? {
        builder = builder.with_base_url(endpoint.as_str().trim_end_matches('/'));
    }
    if let (Identity::Given, Some(key)) = (&identity, key) {
        builder = builder.with_service_account_key(key);
    }
    built(builder.build())
}

fn azure(account: &str, container: &str, access: &Access, http: &Http) -> Result<Arc<dyn ObjectStore>, Error> {
    let key = access.find(&["azure_storage_account_key", "azure_account_key", "azure_storage_access_key"]);
    let signature = access.find(&["azure_storage_sas_token", "azure_sas_token"]);
    let client = access.find(&["azure_client_id"]).zip(access.find(&["azure_client_secret"])).zip(access.find(&["azure_tenant_id"]));
    let identity = identity(access, key.is_some() || signature.is_some() || client.is_some())?;
    let mut builder = if identity == Identity::Ambient { MicrosoftAzureBuilder::from_env() } else { MicrosoftAzureBuilder::new() };
    builder = builder
        .with_account(account)
        .with_container_name(container)
        .with_allow_http(true)
        .with_retry(no_retries())
        .with_skip_signature(identity == Identity::Anonymous)
        .with_http_connector(connector(&identity, http));
    if let Some(endpoint) = endpoint(access, http, &["endpoint", "azure_endpoint"])? {
        builder = builder.with_endpoint(endpoint.as_str().trim_end_matches('/').to_owned());
    }
    if identity == Identity::Given {
        builder = match (key, signature, client) {
            (Some(key), _, _) => builder.with_access_key(key),
            (None, Some(signature), _) => builder.with_config(AzureConfigKey::SasKey, signature),
            (None, None, Some(((id, secret), tenant))) => builder.with_client_secret_authorization(id, secret, tenant),
            (None, None, None) => builder,
        };
    }
    built(builder.build())
}
