//! Times as they are written (CONTRACT §1, §5, §6).

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::tz::TimeZone;

/// A moment, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Now, by the system's clock.
    pub fn now() -> Self {
        Self::from(SystemTime::now())
    }

    /// `millis` milliseconds after 1970-01-01T00:00:00Z.
    pub fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub fn millis(self) -> i64 {
        self.0
    }

    /// Appends `YYYY-MM-DDTHH:MM:SS.mmmZ`, the form of `ts`.
    pub fn write_ts(self, out: &mut Vec<u8>) {
        self.write_seconds(out);
        let millis = self.0.rem_euclid(1000);
        out.push(b'.');
        digits(out, millis, 3);
        out.push(b'Z');
    }

    /// `YYYY-MM-DDTHH:MM:SS.mmmZ`.
    pub fn ts(self) -> String {
        let mut out = Vec::with_capacity(24);
        self.write_ts(&mut out);
        String::from_utf8(out).unwrap_or_default()
    }

    /// `YYYY-MM-DDTHH:MM:SSZ`, the form of `timestamp` in the sub-agent events.
    pub fn timestamp(self) -> String {
        let mut out = Vec::with_capacity(20);
        self.write_seconds(&mut out);
        out.push(b'Z');
        String::from_utf8(out).unwrap_or_default()
    }

    /// `YYYYMMDD-HHMMSS` in local time, the form of `last_updated` and of session ids.
    pub fn local_compact(self) -> String {
        self.local("%Y%m%d-%H%M%S")
    }

    /// `YYYY-MM-DD HH:MM` in local time, the form of `--list-sessions`.
    pub fn local_minute(self) -> String {
        self.local("%Y-%m-%d %H:%M")
    }

    fn local(self, format: &str) -> String {
        let moment = jiff::Timestamp::from_millisecond(self.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        moment.to_zoned_datetime(TimeZone::system()).strftime(format).to_string()
    }

    /// `YYYY-MM-DDTHH:MM:SS` in UTC. By hand, because events are written often.
    fn write_seconds(self, out: &mut Vec<u8>) {
        let seconds = self.0.div_euclid(1000);
        let (year, month, day) = civil(seconds.div_euclid(86_400));
        let second = seconds.rem_euclid(86_400);
        digits(out, year, 4);
        for (mark, value) in
            [(b'-', month), (b'-', day), (b'T', second / 3600), (b':', second / 60 % 60), (b':', second % 60)]
        {
            out.push(mark);
            digits(out, value, 2);
        }
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let millis = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        };
        Self(millis)
    }
}

/// A new session id, `YYYYMMDD-HHMMSS-xxxx`: local time and four random hex digits.
pub fn new_id() -> String {
    // Each RandomState has its own keys, which is chance enough for a name that mkdir makes unique.
    let random = RandomState::new().hash_one(std::process::id()) & 0xffff;
    format!("{}-{random:04x}", Timestamp::now().local_compact())
}

/// Year, month and day of a day counted from 1970-01-01 (proleptic Gregorian calendar).
fn civil(days: i64) -> (i64, i64, i64) {
    // Years are counted from 1 March, so that the leap day is a year's last.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Appends `value` in `width` decimal digits.
fn digits(out: &mut Vec<u8>, value: i64, width: u32) {
    for place in (0..width).rev() {
        out.push(b'0' + (value / 10i64.pow(place)).rem_euclid(10) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ts_is_what_jiff_writes() {
        for millis in
            [0, 1, 951_782_399_999, 951_782_400_000, 1_764_641_591_123, 4_102_444_800_000, -1, -86_400_001]
        {
            let expected =
                jiff::Timestamp::from_millisecond(millis).unwrap().strftime("%Y-%m-%dT%H:%M:%S.%3fZ");
            assert_eq!(Timestamp(millis).ts(), expected.to_string());
        }
        assert_eq!(Timestamp(1_764_641_591_123).timestamp(), "2025-12-02T02:13:11Z");
    }

    #[test]
    fn a_new_id_has_the_contracts_form() {
        let id = new_id();
        let pattern = "dddddddd-dddddd-xxxx";
        assert_eq!(id.len(), pattern.len());
        for (c, kind) in id.chars().zip(pattern.chars()) {
            match kind {
                'd' => assert!(c.is_ascii_digit(), "{id}"),
                'x' => assert!(c.is_ascii_hexdigit() && !c.is_ascii_uppercase(), "{id}"),
                _ => assert_eq!(c, kind),
            }
        }
    }
}
