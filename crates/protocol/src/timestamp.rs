//! Timestamps in the format of the tape.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Point in time, serialised as RFC 3339 in UTC with microseconds (`2026-11-15T20:57:42.680379+00:00`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp(jiff::Timestamp);

/// First second of the year 0.
const YEAR_ZERO_SECONDS: i64 = -62_167_219_200;

impl Timestamp {
    /// Current time of the system clock, in microseconds. Code whose decisions depend on time takes it as an argument.
    pub fn now() -> Self {
        Self::from_system_time(SystemTime::now())
    }

    /// Time of the system clock, clamped to the range that can be serialised: a clock may be set to any year.
    fn from_system_time(time: SystemTime) -> Self {
        let micros = |distance: Duration| i64::try_from(distance.as_micros()).unwrap_or(i64::MAX);
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => Self::from_micros(micros(after)),
            Err(before) => Self::from_micros(micros(before.duration()).saturating_neg()),
        }
    }

    /// Time in microseconds since the epoch, clamped to the range that can be serialised.
    pub fn from_micros(micros: i64) -> Self {
        let micros = micros.max(YEAR_ZERO_SECONDS * 1_000_000);
        Self(jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX))
    }

    /// Microseconds since the epoch.
    pub fn as_micros(self) -> i64 {
        self.0.as_microsecond()
    }

    /// Time in milliseconds since the epoch, clamped to the range that can be serialised.
    pub fn from_millis(millis: i64) -> Self {
        let millis = millis.max(YEAR_ZERO_SECONDS * 1000);
        Self(jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX))
    }

    /// Milliseconds since the epoch.
    pub fn as_millis(self) -> i64 {
        self.0.as_millisecond()
    }

    /// Time `millis` milliseconds later.
    pub fn plus_millis(self, millis: i64) -> Self {
        Self::from_millis(self.as_millis().saturating_add(millis))
    }

    /// Time for people, such as `2026-11-18 17:30:12 UTC`: in seconds, rounded up, so that a wait until then is long
    /// enough.
    ///
    /// ```
    /// let time: capstan_protocol::Timestamp = "2026-11-18T17:30:11.000001+00:00".parse().unwrap();
    /// assert_eq!(time.to_utc_seconds(), "2026-11-18 17:30:12 UTC");
    /// ```
    pub fn to_utc_seconds(self) -> String {
        let rounded = Self::from_micros(self.as_micros().saturating_add(999_999));
        jiff::tz::Offset::UTC.to_datetime(rounded.0).strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let utc = jiff::tz::Offset::UTC.to_datetime(self.0);
        // Formatted by hand, because a turn writes about twenty timestamps.
        let mut text = *b"0000-00-00T00:00:00.000000+00:00";
        match u32::try_from(utc.year()) {
            Ok(year) => write_digits(&mut text[..4], year),
            Err(_) => return write!(f, "{}", utc.strftime("%Y-%m-%dT%H:%M:%S.%6f+00:00")),
        }
        let parts = [utc.month(), utc.day(), utc.hour(), utc.minute(), utc.second()];
        for (at, part) in (5..).step_by(3).zip(parts) {
            write_digits(&mut text[at..at + 2], u32::from(part.unsigned_abs()));
        }
        write_digits(&mut text[20..26], utc.subsec_nanosecond().unsigned_abs() / 1000);
        f.write_str(str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// Fills the buffer with the last digits of a number.
fn write_digits(buffer: &mut [u8], mut number: u32) {
    for digit in buffer.iter_mut().rev() {
        // The remainder is a single digit, so the conversion cannot fail.
        *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let time = Self(text.parse()?);
        if time.0.as_second() < YEAR_ZERO_SECONDS {
            // Fails for years that do not survive a round trip.
            time.to_string().parse::<jiff::Timestamp>()?;
        }
        Ok(time)
    }
}

impl TryFrom<String> for Timestamp {
    type Error = jiff::Error;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Timestamp> for String {
    fn from(time: Timestamp) -> Self {
        time.to_string()
    }
}

impl JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::Timestamp;

    #[test]
    fn timestamp_round_trips_in_the_format_of_the_tape() {
        let text = "2026-11-15T20:57:42.680379+00:00";
        let time: Timestamp = text.parse().unwrap();
        assert_eq!(time.to_string(), text);
        assert_eq!("2026-11-15T21:57:42.680379+01:00".parse::<Timestamp>().unwrap(), time);
    }

    #[test]
    fn hand_written_format_agrees_with_strftime() {
        let second = 1_000_000_i64;
        let strftime = |time: Timestamp| {
            let utc = time.0.to_zoned(jiff::tz::TimeZone::UTC);
            utc.strftime("%Y-%m-%dT%H:%M:%S.%6f+00:00").to_string()
        };
        let moments = (-4_000..10_000_i64).map(|step| step * 23_456_789 * second + step * 789_013);
        for micros in moments.chain([-1, 0, 1, 999_999, i64::MIN, i64::MAX]) {
            let time = Timestamp::from_micros(micros);
            assert_eq!(time.to_string(), strftime(time), "{micros}");
        }
    }

    #[test]
    fn timestamp_that_would_not_round_trip_is_rejected() {
        assert!("0000-01-01T00:00:00+23:59".parse::<Timestamp>().is_err());
        assert!("-000001-06-01T00:00:00Z".parse::<Timestamp>().is_err());
        let first: Timestamp = "0000-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(first.to_string().parse::<Timestamp>().unwrap(), first);
    }

    #[test]
    fn x07_clock_before_1970_or_after_9999_is_clamped() {
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(Timestamp::from_system_time(epoch - Duration::from_secs(1)).as_millis(), -1000);
        assert_eq!(Timestamp::from_system_time(epoch + Duration::from_secs(1)).as_millis(), 1000);
        let last = Timestamp::from_millis(i64::MAX);
        // One day after the year 9999, and before the year 0.
        assert_eq!(Timestamp::from_system_time(epoch + Duration::from_secs(253_402_387_201)), last);
        let first = Timestamp::from_system_time(epoch - Duration::from_secs(70_000_000_000));
        assert_eq!(first, Timestamp::from_millis(i64::MIN));
    }

    #[test]
    fn millis_out_of_range_are_clamped() {
        assert!(Timestamp::from_millis(i64::MAX) > Timestamp::from_millis(0));
        for first in [Timestamp::from_millis(i64::MIN), Timestamp::from_micros(i64::MIN)] {
            assert_eq!(first.to_string(), "0000-01-01T00:00:00.000000+00:00");
            assert_eq!(first.to_string().parse::<Timestamp>().unwrap(), first, "clamped times round-trip");
        }
        let last = Timestamp::from_millis(i64::MAX);
        assert_eq!(last.to_string().parse::<Timestamp>().unwrap().as_micros(), last.as_micros());
    }
}
