//! Checks a plugin's description of itself.

pub use pointsman_interface::plugin::{Description, FeatureSet, Point};

/// What is wrong with a description. `exported` are the policy points whose interfaces the binary exports; it is empty for a command, which
/// has no interfaces.
pub fn flaw(description: &Description, exported: &[String]) -> Option<String> {
    let points = &description.points;
    if points.is_empty() {
        return Some("it supports no policy point".to_owned());
    }
    if exported.is_empty() {
        return None;
    }
    if let Some((_, twice)) = points.iter().enumerate().find(|(at, point)| points[..*at].contains(point)) {
        return Some(format!("it lists the policy point {} twice", twice.name()));
    }
    let missing = points.iter().map(|point| point.name()).find(|point| !exported.iter().any(|exported| exported == point))?;
    Some(format!("it supports {missing}, but doesn't export that interface"))
}
