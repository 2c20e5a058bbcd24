//! Pseudorandom numbers that are the same for the same inputs: `SplitMix64`.

/// The number at this position in the sequence of a seed.
pub fn nth(seed: u64, place: u64) -> u64 {
    let mut mixed = seed.wrapping_add(place.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Converts such a number to one between 0 and 1, both excluded.
#[allow(clippy::cast_precision_loss)] // 53 bits are available.
pub fn unit(random: u64) -> f64 {
    ((random >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}
