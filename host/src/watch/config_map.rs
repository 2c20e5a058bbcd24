//! Watches one ConfigMap by name.

use futures::{StreamExt, future::ready, stream::BoxStream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use std::sync::Arc;

/// The state of the ConfigMap: none if it doesn't exist.
pub(crate) type State = Result<Option<Arc<ConfigMap>>, watcher::Error>;

/// Watches a ConfigMap.
pub(crate) fn states(api: Api<ConfigMap>, name: &str) -> BoxStream<'static, State> {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut listed = None;
    watcher::watcher(api, config).default_backoff().filter_map(move |event| ready(state(event, &mut listed))).boxed()
}

/// The state after an event, if it changes. A list is known at its end.
fn state(event: Result<Event<ConfigMap>, watcher::Error>, listed: &mut Option<Arc<ConfigMap>>) -> Option<State> {
    match event {
        Ok(Event::Init) => {
            *listed = None;
            None
        }
        Ok(Event::InitApply(map)) => {
            *listed = Some(Arc::new(map));
            None
        }
        Ok(Event::InitDone) => Some(Ok(listed.take())),
        Ok(Event::Apply(map)) => Some(Ok(Some(Arc::new(map)))),
        Ok(Event::Delete(_)) => Some(Ok(None)),
        Err(error) => Some(Err(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_known_at_its_end() {
        let mut listed = None;
        assert!(state(Ok(Event::Init), &mut listed).is_none());
        assert!(state(Ok(Event::InitApply(ConfigMap::default())), &mut listed).is_none());
        assert!(matches!(state(Ok(Event::InitDone), &mut listed), Some(Ok(Some(_)))));
        assert!(matches!(state(Ok(Event::InitDone), &mut listed), Some(Ok(None))));
        assert!(matches!(state(Ok(Event::Delete(ConfigMap::default())), &mut listed), Some(Ok(None))));
    }
}
