//! Counts of parameters in OME's notation, such as 8.03B.

/// A count with the suffix M, B or T and at most two decimals, as in `modelParameterSize`.
pub fn size_text(count: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000, "M"), (1_000_000_000, "B"), (1_000_000_000_000, "T")];
    // In hundredths, rounded, so that 999.996 M is 1 B.
    let hundredths = |unit: u64| (u128::from(count) * 100 + u128::from(unit) / 2) / u128::from(unit);
    let (unit, suffix) = UNITS.into_iter().rev().find(|(unit, _)| hundredths(*unit) >= 100).unwrap_or(UNITS[0]);
    // CRDs accept no smaller suffix, and 0 would mean that there is no model.
    let value = hundredths(unit).max(u128::from(count > 0));
    match (value / 100, value % 100) {
        (whole, 0) => format!("{whole}{suffix}"),
        (whole, part) if part % 10 == 0 => format!("{whole}.{}{suffix}", part / 10),
        (whole, part) => format!("{whole}.{part:02}{suffix}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_ome_writes_them() {
        for (count, text) in [
            (8_030_261_248, "8.03B"),
            (70_553_706_496, "70.55B"),
            (1_026_470_731_056, "1.03T"),
            (7_000_000_000, "7B"),
            (20_900_000_000, "20.9B"),
            (999_999_999, "1B"),
            (134_515_008, "134.52M"),
            (999_000, "1M"),
            (400, "0.01M"),
            (0, "0M"),
            (u64::MAX, "18446744.07T"),
        ] {
            assert_eq!(size_text(count), text);
        }
    }
}
