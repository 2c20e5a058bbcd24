//! Simulates a fleet of model servers, with the picker's own decisions about a trace of requests, in simulated time: the expected results
//! of a policy. Equal inputs have equal results, regardless of the machine's load.

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
