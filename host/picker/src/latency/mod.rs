//! An online estimate of how long an endpoint takes: a linear function of what was known when a request was sent there, which is fitted to
//! what each answer has taken (recursive least squares). What is old counts less and less.
//!
//! It says how good it is: its mean error beside that of the simplest estimate, the mean of what was seen. A skill of 0 means that it is no
//! better, and 1 that it is always right.

#[cfg(test)]
mod tests;

/// How many inputs there are, with the constant one.
const INPUTS: usize = 5;

/// What an answer that is one older counts beside the next.
const FORGETTING: f64 = 0.998;

/// How uncertain the weights are at first, and at most: where inputs hardly vary, forgetting alone would let uncertainty grow without an end.
const UNCERTAIN: f64 = 1e4;

/// How much the next error counts in the mean.
const ERROR_SHARE: f64 = 0.02;

/// After how many answers estimates are made.
const LEAST_SEEN: u64 = 20;

/// What was known of an endpoint when a request was sent there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sent {
    /// Tokens of the prompt, by estimate, that the endpoint hadn't seen.
    pub uncached_tokens: f64,
    /// Requests that waited there.
    pub queue_length: f64,
    /// Requests that it was working on.
    pub running_requests: f64,
    /// The tokens of what this picker had in flight there.
    pub in_flight_tokens: f64,
}

impl Sent {
    /// In units in which the weights are of about the same size. Unknown inputs count as 0.
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

/// How good an estimate is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// How many answers it has seen.
    pub seen: u64,
    /// The mean of what it was wrong by, in seconds.
    pub mean_error_seconds: f64,
    /// How much of the mean's error it avoids: 0 is none, and below 0 it is worse.
    pub skill: f64,
}

/// The estimate of one kind of time, such as that to the first token, of endpoints that are alike.
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
    /// How many seconds a request takes that is sent now; none as long as too little was seen.
    pub fn seconds(&self, sent: &Sent) -> Option<f64> {
        (self.seen >= LEAST_SEEN).then(|| product(&self.weights, &sent.inputs()).max(0.0))
    }

    /// How good the estimates of the last answers were; none as long as there were none.
    pub fn quality(&self) -> Option<Quality> {
        if self.seen <= LEAST_SEEN {
            return None;
        }
        let skill = if self.error_of_mean > 0.0 { 1.0 - self.error / self.error_of_mean } else { 0.0 };
        Some(Quality { seen: self.seen, mean_error_seconds: self.error, skill })
    }

    /// Takes what an answer has taken. What isn't a time is passed over.
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
            // The weights stay as far as they are numbers.
            self.uncertainty = uncertain();
            self.weights.iter_mut().filter(|weight| !weight.is_finite()).for_each(|weight| *weight = 0.0);
        }
        self.seen += 1;
    }

    /// Counts by how much the estimates were wrong, before this answer is learned.
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
