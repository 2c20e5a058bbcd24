//! The features of the candidates, by column.

use pointsman_plugin::scheduling_scoring::Matrix;

macro_rules! columns {
    ($($column:ident $name:literal;)*) => {
        /// A column of the matrix.
        #[derive(Clone, Copy)]
        pub(super) enum Column {
            $($column,)*
        }

        /// The columns of the matrix.
        pub const FEATURES: [&str; [$($name),*].len()] = [$($name),*];
    };
}

columns! {
    QueueLength "queue-length";
    RunningRequests "running-requests";
    KvCacheUtilization "kv-cache-utilization";
    PrefixMatch "prefix-match";
    CachedTokens "cached-tokens";
    UncachedTokens "uncached-tokens";
    AdapterLoaded "adapter-loaded";
    AdapterWaiting "adapter-waiting";
    AdapterSlots "adapter-slots";
    InFlightRequests "in-flight-requests";
    InFlightTokens "in-flight-tokens";
    TimeToFirstTokenSeconds "time-to-first-token-seconds";
    Session "session";
    ColdRequestTurn "cold-request-turn";
    ContextLengthFit "context-length-fit";
}

/// The features of a candidate.
#[derive(Clone, Copy)]
pub(super) struct Endpoint<'m>(&'m [f64]);

impl<'m> Endpoint<'m> {
    pub(super) fn all(matrix: &'m Matrix) -> impl ExactSizeIterator<Item = Self> {
        matrix.rows().map(Self)
    }

    pub(super) fn find(matrix: &'m Matrix, row: usize) -> Option<Self> {
        matrix.row(row).map(Self)
    }

    /// A value of at least 0, or NaN. No value is infinite, so that differences and quotients of two are numbers.
    pub(super) fn value(self, column: Column) -> f64 {
        self.0.get(column as usize).map_or(f64::NAN, |value| value.clamp(0.0, f64::MAX))
    }

    /// The same, with a replacement for NaN.
    pub(super) fn amount(self, column: Column, unknown: f64) -> f64 {
        let value = self.value(column);
        if value.is_nan() { unknown } else { value }
    }

    /// A value from 0 to 1, with a replacement for NaN.
    pub(super) fn share(self, column: Column, unknown: f64) -> f64 {
        self.amount(column, unknown).min(1.0)
    }
}

/// The lowest and the highest value of all candidates.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Range {
    pub(super) fn new(matrix: &Matrix, column: Column) -> Self {
        let mut range = Self { least: f64::INFINITY, most: f64::NEG_INFINITY };
        for value in Endpoint::all(matrix).map(|endpoint| endpoint.value(column)) {
            // NaN is neither less nor greater.
            if value < range.least {
                range.least = value;
            }
            if value > range.most {
                range.most = value;
            }
        }
        range
    }

    /// Whether any candidate has a value.
    pub(super) fn is_known(self) -> bool {
        self.least <= self.most
    }

    /// 1 for the lowest value, 0 for the highest; 1 for all if they are equal.
    pub(super) fn lowness(self, value: f64, unknown: f64) -> f64 {
        if value.is_nan() {
            unknown
        } else if self.least < self.most {
            (self.most - value) / (self.most - self.least)
        } else {
            1.0
        }
    }
}
