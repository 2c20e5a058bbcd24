//! Computes whether a pool has capacity, and how much a request adds to the load of an endpoint.

use super::{micros, read::Incoming};
use pointsman_picker::{config::PickerConfig, fleet::Endpoint, flow::saturation::Load};

/// The saturation of all endpoints. `load` is `Endpoint::load`, or `Endpoint::load_ahead` for waiting requests.
pub(super) fn saturation(config: &PickerConfig, endpoints: &[Endpoint], now: u64, load: fn(&Endpoint, u64, u64) -> Load) -> f64 {
    let staleness = micros(config.scrape.staleness);
    let loads: Vec<_> = endpoints.iter().map(|endpoint| load(endpoint, now, staleness)).collect();
    config.saturation.saturation(&loads)
}

/// Whether a waiting request may proceed, if this number is already released.
pub(super) fn has_room_for_waiting(config: &PickerConfig, endpoints: &[Endpoint], now: u64, ceiling: f64, released: usize) -> bool {
    #[allow(clippy::cast_precision_loss)] // Far below 2^52.
    let on_their_way = released as f64 * config.saturation.one_more(endpoints.len());
    saturation(config, endpoints, now, Endpoint::load_ahead) + on_their_way < ceiling
}

/// The number of tokens that a request counts as while it is in flight.
pub(super) fn expected_tokens(config: &PickerConfig, request: &Incoming) -> u64 {
    let output = config.output_estimate.map_or(0, |estimate| {
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // An estimate.
        let expected = (request.tokens as f64 * estimate.ratio) as u64;
        expected.min(estimate.max_tokens.unwrap_or(u64::MAX)).min(request.max_tokens.unwrap_or(u64::MAX))
    });
    request.tokens.saturating_add(output)
}
