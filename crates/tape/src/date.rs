//! Dates of entries, and date ranges.

use std::str::FromStr;

use capstan_protocol::Timestamp;
use serde::{Deserialize, Serialize};

/// Date of an entry. The original text is preserved, because tapes of other systems have other formats.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EntryDate(String);

impl EntryDate {
    /// Date with this text.
    pub fn verbatim(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Text of the date.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Point in time, if the text can be parsed. A date without an offset is in UTC.
    pub fn timestamp(&self) -> Option<Timestamp> {
        if let Ok(time) = self.0.parse() {
            return Some(time);
        }
        let civil: jiff::civil::DateTime = self.0.parse().ok()?;
        to_utc_timestamp(civil)
    }
}

impl From<Timestamp> for EntryDate {
    fn from(time: Timestamp) -> Self {
        Self(time.to_string())
    }
}

fn to_utc_timestamp(civil: jiff::civil::DateTime) -> Option<Timestamp> {
    let zoned = civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(Timestamp::from_micros(zoned.timestamp().as_microsecond()))
}

/// Half-open time range `from..before`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DateRange {
    /// Start of the range, inclusive.
    pub from: Timestamp,
    /// End of the range, exclusive.
    pub before: Timestamp,
}

/// Invalid date or time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a date (2026-11-15) nor a time (2026-11-15T20:57:42Z)")]
pub struct DateError(String);

impl DateRange {
    /// Range between two dates or times, both inclusive. A date without a time is the whole day in UTC.
    pub fn between(first: &str, last: &str) -> Result<Self, DateError> {
        let first: DateBound = first.parse()?;
        let last: DateBound = last.parse()?;
        Ok(Self { from: first.begin, before: last.end })
    }

    /// Returns true if the range contains the time.
    pub fn contains(&self, time: Timestamp) -> bool {
        self.from <= time && time < self.before
    }
}

/// Time span of a date or time: a whole day, or one microsecond.
struct DateBound {
    begin: Timestamp,
    end: Timestamp,
}

impl FromStr for DateBound {
    type Err = DateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const DAY_MILLIS: i64 = 24 * 60 * 60 * 1000;
        let invalid = || DateError(text.to_owned());
        if let Ok(day) = text.parse::<jiff::civil::Date>()
            && text.len() == "2026-11-15".len()
        {
            let begin = to_utc_timestamp(day.at(0, 0, 0, 0)).ok_or_else(invalid)?;
            return Ok(Self { begin, end: begin.plus_millis(DAY_MILLIS) });
        }
        let begin = EntryDate::verbatim(text).timestamp().ok_or_else(invalid)?;
        Ok(Self { begin, end: Timestamp::from_micros(begin.as_micros().saturating_add(1)) })
    }
}

#[cfg(test)]
mod tests {
    use super::{DateRange, EntryDate};

    #[test]
    fn p10_date_without_a_time_is_the_whole_day_in_utc() {
        let day = DateRange::between("2026-11-15", "2026-11-15").unwrap();
        let inside = |text: &str| day.contains(EntryDate::verbatim(text).timestamp().unwrap());
        assert!(inside("2026-11-15T00:00:00Z"));
        assert!(inside("2026-11-15T23:59:59.999999+00:00"));
        assert!(inside("2026-11-16T00:30:00+01:00"));
        assert!(!inside("2026-11-16T00:00:00Z"));
        assert!(!inside("2026-11-14T23:59:59Z"));
        let moment = DateRange::between("2026-11-15T20:57:42.680379Z", "2026-11-15T20:57:42.680379Z").unwrap();
        assert!(moment.contains(EntryDate::verbatim("2026-11-15T20:57:42.680379").timestamp().unwrap()));
        assert!(!moment.contains(EntryDate::verbatim("2026-11-15T20:57:42.680380Z").timestamp().unwrap()));
        assert!(DateRange::between("yesterday", "2026-11-15").is_err());
    }
}
