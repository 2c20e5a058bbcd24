//! An online estimate of an endpoint's response time: a linear function of the data that was known when a request was sent, fitted to the
//! observed times (recursive least squares). The weight of old observations decreases.
//!
//! It reports its quality: its mean error compared with that of the simplest estimate, the mean of the observed times. A skill of 0 means
//! that it is no better than that, and 1 that it is always right.

#[cfg(test)]
mod tests;

/// The number of inputs, including the constant one.
const INPUTS: usize = 5;

/// The weight of an observation relative to the next one.
const FORGETTING: f64 = 0.998;

/// The initial and maximum uncertainty of the weights. If inputs hardly vary, forgetting would otherwise increase it without limit.
const UNCERTAIN: f64 = 1e4;

/// The share of a new error in the mean error.
const ERROR_SHARE: f64 = 0.02;

/// The number of observations before the first estimate.
const LEAST_SEEN: u64 = 20;

/// The data that was known about an endpoint when a request was sent to it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sent {
    /// Estimated tokens of the prompt that the endpoint hadn't seen.
    pub uncached_tokens: f64,
    /// Requests in its queue.
    pub queue_length: f64,
    /// Requests that it was processing.
    pub running_requests: f64,
    /// The tokens that this picker had in flight there.
    pub in_flight_tokens: f64,
}

impl Sent {
    /// In units that give weights of about the same size. Unknown inputs become 0.
    fn inputs(&self) -> [f64; INPUTS] {
        let known = |value: f64| if value.is_finite() { value } else { 0.0 };
        [
            1.0,
            known(self.uncached_tokens) / 1_000.0,
            known(self.queue_length) / 10.0,
            known(self.running_requests) / 10.0,
            known(self.in_flight_tokens) / 10_000.0,
        ]
    }
}

/// The quality of an estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// The number of observations.
    pub seen: u64,
    /// The mean absolute error, in seconds.
    pub mean_error_seconds: f64,
    /// The share of the simple estimate's error that it avoids: 0 for none, and below 0 if it is worse.
    pub skill: f64,
}

/// The estimate of one kind of time, such as the time to the first token, for similar endpoints.
#[derive(Clone, Debug)]
pub struct LatencyEstimate {
    weights: [f64; INPUTS],
    uncertainty: [[f64; INPUTS]; INPUTS],
    seen: u64,
    mean: f64,
    error: f64,
    error_of_mean: f64,
}

impl Default for LatencyEstimate {
    fn default() -> Self {
        Self { weights: [0.0; INPUTS], uncertainty: uncertain(), seen: 0, mean: 0.0, error: 0.0, error_of_mean: 0.0 }
    }
}

fn uncertain() -> [[f64; INPUTS]; INPUTS] {
    let mut uncertainty = [[0.0; INPUTS]; INPUTS];
    for (at, row) in uncertainty.iter_mut().enumerate() {
        row[at] = UNCERTAIN;
    }
    uncertainty
}

fn product(one: &[f64; INPUTS], other: &[f64; INPUTS]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

impl LatencyEstimate {
    /// The estimated time of a request that is sent now, in seconds; none before there are enough observations.
    pub fn seconds(&self, sent: &Sent) -> Option<f64> {
        (self.seen >= LEAST_SEEN).then(|| product(&self.weights, &sent.inputs()).max(0.0))
    }

    /// The quality of recent estimates; none before the first.
    pub fn quality(&self) -> Option<Quality> {
        if self.seen <= LEAST_SEEN {
            return None;
        }
        let skill = if self.error_of_mean > 0.0 { 1.0 - self.error / self.error_of_mean } else { 0.0 };
        Some(Quality { seen: self.seen, mean_error_seconds: self.error, skill })
    }

    /// Learns from an observation. Invalid times are ignored.
    pub fn learn(&mut self, sent: &Sent, seconds: f64) {
        if !seconds.is_finite() || seconds < 0.0 {
            return;
        }
        self.judge(sent, seconds);
        let inputs = sent.inputs();
        let gain: [f64; INPUTS] = std::array::from_fn(|row| product(&self.uncertainty[row], &inputs));
        let scale = FORGETTING + product(&gain, &inputs);
        let error = seconds - product(&self.weights, &inputs);
        for (weight, gain) in self.weights.iter_mut().zip(&gain) {
            *weight += gain / scale * error;
        }
        for (row, own) in self.uncertainty.iter_mut().zip(&gain) {
            for (cell, other) in row.iter_mut().zip(&gain) {
                *cell = (*cell - own * other / scale) / FORGETTING;
            }
        }
        let is_sound = self.weights.iter().all(|weight| weight.is_finite())
            && (0..INPUTS).all(|at| (0.0..=UNCERTAIN).contains(&self.uncertainty[at][at]));
        if !is_sound {
            // Weights stay unless they aren't finite.
            self.uncertainty = uncertain();
            self.weights.iter_mut().filter(|weight| !weight.is_finite()).for_each(|weight| *weight = 0.0);
        }
        self.seen += 1;
    }

    /// Updates the errors before the observation is learned.
    fn judge(&mut self, sent: &Sent, seconds: f64) {
        if let Some(estimate) = self.seconds(sent) {
            let share = if self.seen == LEAST_SEEN { 1.0 } else { ERROR_SHARE };
            self.error += share * ((estimate - seconds).abs() - self.error);
            self.error_of_mean += share * ((self.mean - seconds).abs() - self.error_of_mean);
        }
        #[allow(clippy::cast_precision_loss)] // Small until the other is greater.
        let share = (1.0 / (self.seen + 1) as f64).max(1.0 - FORGETTING);
        self.mean += share * (seconds - self.mean);
    }
}
