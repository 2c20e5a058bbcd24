//! Ranges of context lengths, from labels: `0-8192`, or several ranges separated by commas. (In Kubernetes, a label's value can't contain a
//! comma, but upstream configurations from elsewhere have such values.)

/// A range, in tokens.
type Range = (u64, u64);

/// The narrowest range in a label's value that includes a length; an error if the value contains no range.
fn range(value: &str, tokens: u64) -> Result<Option<Range>, ()> {
    let parse = |part: &str| {
        let (least, most) = part.trim().split_once('-')?;
        let range: Range = (least.trim().parse().ok()?, most.trim().parse().ok()?);
        (range.0 <= range.1).then_some(range)
    };
    let ranges: Vec<Range> = value.split(',').filter_map(parse).collect();
    if ranges.is_empty() {
        return Err(());
    }
    Ok(ranges.into_iter().filter(|(least, most)| (*least..=*most).contains(&tokens)).min_by_key(|(least, most)| most - least))
}

/// Whether an endpoint with this label accepts a prompt. An endpoint without a range accepts any.
pub(super) fn includes(value: Option<&str>, tokens: u64) -> bool {
    value.is_none_or(|value| range(value, tokens).is_ok_and(|range| range.is_some()) || range(value, tokens).is_err())
}

/// How tightly each endpoint's range fits the prompt: 1 for the narrowest range, 0 if none includes it, NaN without a range.
#[allow(clippy::cast_precision_loss)] // Lengths are far below 2^52.
pub(super) fn fits<'l>(values: impl Iterator<Item = Option<&'l str>>, tokens: u64) -> Vec<f64> {
    let widths: Vec<Option<f64>> = values
        .map(|value| {
            let range = range(value?, tokens).ok()?;
            Some(range.map_or(f64::INFINITY, |(least, most)| (most - least + 1) as f64))
        })
        .collect();
    let narrowest = widths.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    let fit = |width: f64| if width.is_finite() { narrowest / width } else { 0.0 };
    widths.into_iter().map(|width| width.map_or(f64::NAN, fit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_goes_where_a_range_includes_it_and_best_where_that_is_narrow() {
        assert!(includes(None, 5) && includes(Some("no range"), 5) && includes(Some("0-5"), 5) && includes(Some("9-10, 0-5"), 5));
        assert!(!includes(Some("0-5"), 6) && !includes(Some("6-7,9-10"), 5));
        let fits = fits([Some("0-99"), Some("0-199"), Some("500-999"), None, Some("9-1"), Some("0-199,40-89")].into_iter(), 50);
        assert_eq!((fits[0], fits[1], fits[2], fits[5]), (0.5, 0.25, 0.0, 1.0));
        assert!(fits[3].is_nan() && fits[4].is_nan());
    }
}
