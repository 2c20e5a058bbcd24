//! A fleet of simulated model servers, and the picker's own decisions about a trace of requests, in a time of its own: what a policy would
//! come to. Equal inputs have equal results, however busy the machine is.

mod contender;
mod measures;
mod run;
mod trace;
mod workload;

pub use contender::{BuiltIn, Contender};
pub use measures::{Outcome, TimeToFirstToken};
pub use run::{FleetSettings, SimulationError, simulate};
pub use trace::{MAX_REQUESTS, Trace, TraceError};
pub use workload::{Workload, WorkloadKind};

use pointsman_picker::simulation::Micros;

#[allow(clippy::cast_precision_loss)] // Far below 2^52.
fn seconds(micros: Micros) -> f64 {
    micros as f64 / 1e6
}
