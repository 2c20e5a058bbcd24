//! Timestamps and durations, in CEL's ranges and without a clock.

use crate::error::{fail, no_overload};
use cel::ExecutionError;
use cel::common::traits::{Adder, Comparer, Subtractor, Zeroer};
use cel::common::types::{Kind, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use chrono::{Offset, TimeZone};
use std::any::Any;
use std::cmp::Ordering;
use std::fmt;

const NANOS: i64 = 1_000_000_000;
const DAY: i64 = 86_400;
/// The first second of the year 1, and the last one of the year 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// The type of timestamps.
pub(crate) static TIMESTAMP: Type = Type::simple_type(Kind::Timestamp, "google.protobuf.Timestamp");
/// The type of durations.
pub(crate) static DURATION: Type = Type::simple_type(Kind::Duration, "google.protobuf.Duration");

/// A timestamp.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timestamp {
    seconds: i64,
    nanos: i64,
    /// The offset of the time zone in which it was written, in seconds. It only affects the output.
    ahead: i64,
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

/// A duration, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Duration(pub(crate) i64);

/// The calendar date and the time of day of a timestamp. Months and days start at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) year: i64,
    pub(crate) month: i64,
    pub(crate) day: i64,
    /// Starts at 0.
    pub(crate) day_of_year: i64,
    /// Starts at 0, which is Sunday.
    pub(crate) day_of_week: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
    pub(crate) millisecond: i64,
}

impl Timestamp {
    /// This number of seconds since 1970.
    pub(crate) fn of_seconds(seconds: i64) -> Option<Self> {
        SECONDS.contains(&seconds).then_some(Timestamp { seconds, nanos: 0, ahead: 0 })
    }

    /// Seconds since 1970.
    pub(crate) fn seconds(self) -> i64 {
        self.seconds
    }

    /// Parses a text such as `2024-02-29T12:00:00.5+01:00`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let number = |from: usize, digits: usize| -> Option<i64> {
            let digits = text.get(from..from + digits)?;
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
        };
        let at = |at: usize, expected: u8| bytes.get(at) == Some(&expected);
        // RFC 3339 doesn't allow an hour with one digit, but Go does.
        if at(12, b':') {
            return text.get(11..).map(|time| format!("{}0{time}", text.get(..11).unwrap_or_default())).and_then(|text| Self::parse(&text));
        }
        if !(at(4, b'-') && at(7, b'-') && at(10, b'T') && at(13, b':') && at(16, b':')) {
            return None;
        }
        let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
        let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
        if !(1..=12).contains(&month) || day < 1 || day > days_of(year, month) || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let mut rest = text.get(19..)?;
        let mut nanos = 0;
        if let Some(fraction) = rest.strip_prefix(['.', ',']) {
            let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
            let kept = fraction.get(..digits.min(9))?;
            nanos = format!("{kept:0<9}").parse().ok().filter(|_| digits > 0)?;
            rest = fraction.get(digits..)?;
        }
        let ahead = offset(rest)?;
        let seconds = days_since_1970(year, month, day) * DAY + hour * 3600 + minute * 60 + second - ahead;
        SECONDS.contains(&seconds).then_some(Timestamp { seconds, nanos, ahead })
    }

    /// The date and time in a time zone.
    pub(crate) fn shown(self, zone: &str) -> Result<Shown, ExecutionError> {
        let seconds = self.seconds + zone_offset(zone, self.seconds)?;
        let (days, of_day) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
        let (year, month, day) = date_of(days);
        Ok(Shown {
            year,
            month,
            day,
            day_of_year: days - days_since_1970(year, 1, 1),
            day_of_week: (days + 4).rem_euclid(7),
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
            millisecond: self.nanos / 1_000_000,
        })
    }

    fn moved(self, by: i128) -> Result<Self, ExecutionError> {
        let nanos = i128::from(self.seconds) * i128::from(NANOS) + i128::from(self.nanos) + by;
        let seconds = i64::try_from(nanos.div_euclid(i128::from(NANOS))).unwrap_or(i64::MAX);
        let nanos = i64::try_from(nanos.rem_euclid(i128::from(NANOS))).unwrap_or(0);
        if SECONDS.contains(&seconds) { Ok(Timestamp { seconds, nanos, ahead: self.ahead }) } else { Err(fail("timestamp overflow")) }
    }

    fn since(self, other: Timestamp) -> Result<Duration, ExecutionError> {
        (self.seconds - other.seconds)
            .checked_mul(NANOS)
            .and_then(|nanos| nanos.checked_add(self.nanos - other.nanos))
            .map(Duration)
            .ok_or_else(|| fail("duration overflow"))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.seconds + self.ahead;
        let (year, month, day) = date_of(seconds.div_euclid(DAY));
        let of_day = seconds.rem_euclid(DAY);
        write!(out, "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60)?;
        if self.nanos != 0 {
            let fraction = format!("{:09}", self.nanos);
            write!(out, ".{}", fraction.trim_end_matches('0'))?;
        }
        if self.ahead == 0 {
            return out.write_str("Z");
        }
        let (sign, ahead) = (if self.ahead < 0 { '-' } else { '+' }, self.ahead.abs());
        write!(out, "{sign}{:02}:{:02}", ahead / 3600, ahead / 60 % 60)
    }
}

impl Duration {
    /// Parses a text such as `1h30m` or `-1.5s`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Some(Duration(0));
        }
        let mut nanos: i128 = 0;
        if rest.is_empty() {
            return None;
        }
        while !rest.is_empty() {
            let whole = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, behind) = rest.split_at(whole);
            let (fraction, behind) = match behind.strip_prefix('.') {
                Some(behind) => behind.split_at(behind.bytes().take_while(u8::is_ascii_digit).count()),
                None => ("", behind),
            };
            if number.len() + fraction.len() == 0 {
                return None;
            }
            let (unit, behind) = unit_of(behind)?;
            nanos += if number.is_empty() { 0 } else { number.parse::<i64>().ok().map(i128::from)? * unit };
            nanos += part_of(fraction, unit);
            if nanos > i128::from(i64::MAX) + 1 {
                return None;
            }
            rest = behind;
        }
        i64::try_from(if negative { -nanos } else { nanos }).ok().map(Duration)
    }

    /// The duration in seconds, as the nearest double.
    #[expect(clippy::cast_precision_loss, reason = "as Go does")]
    pub(crate) fn seconds(self) -> f64 {
        (self.0 / NANOS) as f64 + (self.0 % NANOS) as f64 / 1e9
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}s", self.seconds())
    }
}

/// The unit at the start of a text, in nanoseconds, and the rest of the text.
fn unit_of(text: &str) -> Option<(i128, &str)> {
    const UNITS: [(&str, i128); 8] = [
        ("ns", 1),
        ("us", 1_000),
        ("\u{b5}s", 1_000),
        ("\u{3bc}s", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    let end = text.find(|letter: char| letter == '.' || letter.is_ascii_digit()).unwrap_or(text.len());
    let (unit, behind) = text.split_at(end);
    UNITS.iter().find(|(name, _)| *name == unit).map(|(_, nanos)| (*nanos, behind))
}

/// The fraction of a unit.
fn part_of(fraction: &str, unit: i128) -> i128 {
    let kept = fraction.get(..fraction.len().min(18)).unwrap_or(fraction);
    let power = 10_i128.pow(u32::try_from(kept.len()).unwrap_or(0));
    kept.parse::<i128>().unwrap_or(0) * unit / power
}

/// The offset after the time of day, in seconds.
fn offset(text: &str) -> Option<i64> {
    if text == "Z" {
        return Some(0);
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = text.get(1..)?.split_once(':')?;
    let both = [hours, minutes];
    if both.iter().any(|part| part.len() != 2 || !part.bytes().all(|byte| byte.is_ascii_digit())) {
        return None;
    }
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// The offset of a zone, in seconds. The zone is a name such as `Europe/Berlin`, or hours and minutes such as `-08:00`.
fn zone_offset(zone: &str, seconds: i64) -> Result<i64, ExecutionError> {
    if zone.is_empty() || zone == "UTC" {
        return Ok(0);
    }
    let Some((hours, minutes)) = zone.split_once(':') else {
        let named: chrono_tz::Tz = zone.parse().map_err(|_| fail(format!("unknown time zone {zone}")))?;
        let utc = chrono::DateTime::from_timestamp(seconds, 0).ok_or_else(|| fail("timestamp overflow"))?;
        return Ok(i64::from(named.offset_from_utc_datetime(&utc.naive_utc()).fix().local_minus_utc()));
    };
    // As in Kubernetes, an offset may exceed a day.
    let (Ok(hour), Ok(minute)) = (hours.parse::<i16>().map(i64::from), minutes.parse::<i16>().map(i64::from)) else {
        return Err(fail(format!("unknown time zone {zone}")));
    };
    let minutes = if hours.starts_with('-') { hour * 60 - minute } else { hour * 60 + minute };
    Ok(minutes * 60)
}

/// Days since 1970-01-01 in the Gregorian calendar.
pub(crate) fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, of_year - (153 * shifted + 2) / 5 + 1)
}

/// The number of days in a month.
pub(crate) fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Implements a CEL value that can be compared, added and subtracted.
macro_rules! value {
    ($time:ty, $declared:ident) => {
        impl Val for $time {
            fn get_type(&self) -> &Type {
                &$declared
            }

            fn cel_type() -> &'static Type {
                &$declared
            }

            fn as_adder<'b, 'v>(&'b self) -> Option<&'b (dyn Adder + 'v)>
            where
                Self: 'v,
            {
                Some(self)
            }

            fn as_comparer(&self) -> Option<&dyn Comparer> {
                Some(self)
            }

            fn as_subtractor<'b, 'v>(&'b self) -> Option<&'b (dyn Subtractor + 'v)>
            where
                Self: 'v,
            {
                Some(self)
            }

            fn as_zeroer(&self) -> Option<&dyn Zeroer> {
                Some(self)
            }

            fn equals(&self, other: &dyn Val) -> bool {
                other.downcast_ref::<Self>() == Some(self)
            }

            fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
            where
                Self: 'v,
            {
                Box::new(*self)
            }

            fn as_any(&self) -> Option<&dyn Any> {
                Some(self)
            }
        }

        impl StaticVal for $time {}

        impl Comparer for $time {
            fn compare(&self, other: &dyn Val) -> Result<Ordering, ExecutionError> {
                other.downcast_ref::<Self>().map(|other| self.cmp(other)).ok_or_else(no_overload)
            }
        }
    };
}

value!(Timestamp, TIMESTAMP);
value!(Duration, DURATION);

impl Adder for Timestamp {
    fn add<'b, 'v>(&'b self, other: &(dyn Val + 'v)) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let span = other.downcast_ref::<Duration>().ok_or_else(no_overload)?;
        self.moved(i128::from(span.0)).map(CowVal::owned)
    }
}

impl Subtractor for Timestamp {
    fn sub<'b, 'v>(&'b self, other: &(dyn Val + 'v)) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        if let Some(other) = other.downcast_ref::<Timestamp>() {
            return self.since(*other).map(CowVal::owned);
        }
        let span = other.downcast_ref::<Duration>().ok_or_else(no_overload)?;
        self.moved(-i128::from(span.0)).map(CowVal::owned)
    }
}

impl Zeroer for Timestamp {
    fn is_zero_value(&self) -> bool {
        self.seconds == *SECONDS.start() && self.nanos == 0
    }
}

impl Adder for Duration {
    fn add<'b, 'v>(&'b self, other: &(dyn Val + 'v)) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        if let Some(point) = other.downcast_ref::<Timestamp>() {
            return point.moved(i128::from(self.0)).map(CowVal::owned);
        }
        let other = other.downcast_ref::<Duration>().ok_or_else(no_overload)?;
        self.0.checked_add(other.0).map(|sum| CowVal::owned(Duration(sum))).ok_or_else(|| fail("duration overflow"))
    }
}

impl Subtractor for Duration {
    fn sub<'b, 'v>(&'b self, other: &(dyn Val + 'v)) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let other = other.downcast_ref::<Duration>().ok_or_else(no_overload)?;
        self.0.checked_sub(other.0).map(|rest| CowVal::owned(Duration(rest))).ok_or_else(|| fail("duration overflow"))
    }
}

impl Zeroer for Duration {
    fn is_zero_value(&self) -> bool {
        self.0 == 0
    }
}
