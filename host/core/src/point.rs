//! The policy points, with the names that PolicyPlugins and plugins use.

use pointsman_crds::policy::plugin::PolicyPoint;
use pointsman_sandbox::point::describe::{Description, Point};

/// All policy points, in the order in which they are listed.
pub const POINTS: [PolicyPoint; 4] =
    [PolicyPoint::RuntimeSelection, PolicyPoint::PodTemplating, PolicyPoint::MetadataPropagation, PolicyPoint::SchedulingScoring];

/// The name of a policy point, which is also the name of its interface.
pub const fn name(point: PolicyPoint) -> &'static str {
    match point {
        PolicyPoint::RuntimeSelection => Point::RuntimeSelection.name(),
        PolicyPoint::PodTemplating => Point::PodTemplating.name(),
        PolicyPoint::MetadataPropagation => Point::MetadataPropagation.name(),
        PolicyPoint::SchedulingScoring => Point::SchedulingScoring.name(),
    }
}

/// The policy point of a PolicyPlugin that corresponds to a plugin's.
pub const fn policy_point(point: Point) -> PolicyPoint {
    match point {
        Point::RuntimeSelection => PolicyPoint::RuntimeSelection,
        Point::PodTemplating => PolicyPoint::PodTemplating,
        Point::MetadataPropagation => PolicyPoint::MetadataPropagation,
        Point::SchedulingScoring => PolicyPoint::SchedulingScoring,
    }
}

/// The policy points that a plugin implements, by its own description.
pub fn answered(description: &Description) -> Vec<PolicyPoint> {
    description.points.iter().map(|point| policy_point(*point)).collect()
}
