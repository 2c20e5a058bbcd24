//! How to get at a source: the entries of a Secret and the model's `storage.parameters`.

use crate::error::Error;
use std::{collections::BTreeMap, fmt};

/// The longest value: a Secret has at most 1 MiB in all.
const MAX_VALUE_BYTES: usize = 1 << 20;

/// Settings of one source. A name is found whatever its case, with `-` and `.` as `_`; an entry of the Secret comes before a parameter.
/// `Debug` shows names only.
#[derive(Clone, Default)]
pub struct Access {
    secret: BTreeMap<String, String>,
    parameters: BTreeMap<String, String>,
    /// Whether the process's own identity (environment, instance metadata) may be used if there are no credentials.
    pub ambient: bool,
}

impl Access {
    pub fn new<K: AsRef<str>, V: Into<String>>(
        parameters: impl IntoIterator<Item = (K, V)>,
        secret: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        Self { secret: normalized(secret), parameters: normalized(parameters), ambient: false }
    }

    /// The first of some names that has a value.
    pub(crate) fn find(&self, names: &[&str]) -> Option<&str> {
        [&self.secret, &self.parameters]
            .into_iter()
            .find_map(|entries| names.iter().find_map(|name| entries.get(*name)))
            .map(|value| value.trim())
            .filter(|value| !value.is_empty())
    }

    /// A setting that isn't secret.
    pub(crate) fn flag(&self, name: &'static str) -> Result<Option<bool>, Error> {
        match self.find(&[name]) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(invalid(name, "is neither true nor false")),
        }
    }

    /// The token of a source, by the entry that `secretKey` names or by the usual ones.
    pub(crate) fn token(&self, names: &[&str]) -> Option<&str> {
        let chosen = self.parameters.get("secretkey").map(|key| normalized_name(key));
        chosen.and_then(|key| self.secret.get(&key)).map(|token| token.trim()).or_else(|| self.find(names))
    }

    /// The URL of the service, if it isn't the usual one.
    pub(crate) fn endpoint(&self, names: &[&str]) -> Result<Option<url::Url>, Error> {
        let Some(text) = self.find(names) else { return Ok(None) };
        let url = url::Url::parse(text).map_err(|_| invalid(names[0], "isn't a URL"))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() || !url.username().is_empty() {
            return Err(invalid(names[0], "isn't the URL of a web server without credentials"));
        }
        Ok(Some(url))
    }

    /// CAs that are trusted besides the system's, as PEM.
    pub(crate) fn certificates(&self) -> Option<&str> {
        self.find(&["ca_crt", "ca_bundle"])
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let too_long = self.secret.iter().chain(&self.parameters).find(|(_, value)| value.len() > MAX_VALUE_BYTES);
        too_long.map_or(Ok(()), |(name, _)| Err(invalid(name, "has more than 1 MiB")))
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |entries: &BTreeMap<String, String>| entries.keys().cloned().collect::<Vec<_>>();
        f.debug_struct("Access")
            .field("secret", &names(&self.secret))
            .field("parameters", &names(&self.parameters))
            .field("ambient", &self.ambient)
            .finish()
    }
}

pub(crate) fn invalid(name: &str, reason: impl Into<String>) -> Error {
    Error::Setting { name: name.to_owned(), reason: reason.into() }
}

fn normalized<K: AsRef<str>, V: Into<String>>(entries: impl IntoIterator<Item = (K, V)>) -> BTreeMap<String, String> {
    entries.into_iter().map(|(name, value)| (normalized_name(name.as_ref()), value.into())).collect()
}

fn normalized_name(name: &str) -> String {
    name.trim_start_matches('.').to_ascii_lowercase().replace(['-', '.'], "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_comes_before_parameters_and_values_are_never_shown() {
        let access = Access::new(
            [("region", "eu"), ("token", "weak"), ("secretKey", "my-token")],
            [("AWS_ACCESS_KEY_ID", "id"), ("my-token", "t0p")],
        );
        assert_eq!(access.find(&["aws_access_key_id"]), Some("id"));
        assert_eq!(access.token(&["token"]), Some("t0p"));
        assert_eq!(access.find(&["aws_region", "region"]), Some("eu"));
        let shown = format!("{access:?}");
        assert!(shown.contains("my_token") && !shown.contains("t0p") && !shown.contains("weak"), "{shown}");
    }

    #[test]
    fn a_wrong_setting_is_a_message_with_its_name() {
        let access = Access::new([("endpoint", "ftp://x"), ("path_style", "yes")], []);
        assert!(access.endpoint(&["endpoint"]).unwrap_err().to_string().starts_with("endpoint of the storage isn't the URL"));
        assert!(access.flag("path_style").unwrap_err().to_string().contains("neither true nor false"));
    }
}
