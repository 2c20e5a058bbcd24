//! The built-in components of a host.

use super::{Source, SourceView};
use crate::problem::Problem;
use futures::{FutureExt, future::BoxFuture};
use pointsman_crds::policy::plugin::PluginSource;
use pointsman_sandbox::builtin::{BUILTINS, find};

/// `spec.source.builtin`.
#[derive(Debug)]
pub struct Builtin;

impl Source for Builtin {
    fn field(&self) -> &'static str {
        "builtin"
    }

    fn title(&self, source: &PluginSource) -> Option<String> {
        source.builtin.as_ref().map(|builtin| builtin.name.clone())
    }

    fn is_part_of_host(&self) -> bool {
        true
    }

    fn read(&self, source: PluginSource, _: SourceView) -> BoxFuture<'static, Result<Option<Vec<u8>>, Problem>> {
        let name = source.builtin.unwrap_or_default().name;
        let found = find(&name).map(|builtin| Some(builtin.bytes.to_vec())).ok_or_else(|| {
            let known: Vec<_> = BUILTINS.iter().map(|builtin| builtin.name).collect();
            let message = format!("source.builtin: there is no built-in plugin {name:?}; there are {}.", known.join(", "));
            Problem { reason: "BuiltinNotFound".to_owned(), message }
        });
        async move { found }.boxed()
    }
}
