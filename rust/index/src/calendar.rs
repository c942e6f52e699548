//! Units of the proleptic Gregorian calendar, in UTC and without leap seconds.

/// A unit of a calendar or of a clock, the longest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CalendarUnit {
    /// A year.
    Year,
    /// A month.
    Month,
    /// A day.
    Day,
    /// An hour.
    Hour,
    /// A minute.
    Minute,
    /// A second.
    Second,
}

impl CalendarUnit {
    /// All of them, the longest first.
    pub const ALL: [Self; 6] = [Self::Year, Self::Month, Self::Day, Self::Hour, Self::Minute, Self::Second];

    /// The name in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Year => "year",
            Self::Month => "month",
            Self::Day => "day",
            Self::Hour => "hour",
            Self::Minute => "minute",
            Self::Second => "second",
        }
    }
}

/// The start of the unit that a timestamp lies in; timestamps count parts of a day, `day` of them, from 1970-01-01 on.
pub(crate) fn start_of(unit: CalendarUnit, moment: i128, day: i128) -> i128 {
    let part = match unit {
        CalendarUnit::Year | CalendarUnit::Month => {
            let Month { year, month } = month_of(moment.div_euclid(day));
            return days_of(year, if unit == CalendarUnit::Year { 1 } else { month }, 1) * day;
        }
        CalendarUnit::Day => day,
        CalendarUnit::Hour => day / 24,
        CalendarUnit::Minute => day / (24 * 60),
        CalendarUnit::Second => day / (24 * 60 * 60),
    };
    moment.div_euclid(part.max(1)) * part.max(1)
}

/// Days of 400 years.
const ERA_DAYS: i128 = 146_097;
/// From 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i128 = 719_468;

/// Days from 1970-01-01 to a date. Years begin with March here, so that leap days come last.
pub(crate) fn days_of(year: i128, month: u8, day: u8) -> i128 {
    let year = year - i128::from(month <= 2);
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let month = (i128::from(month) + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + i128::from(day) - 1;
    era * ERA_DAYS + year * 365 + year / 4 - year / 100 + day_of_year - EPOCH_DAYS
}

/// A month of a year.
#[derive(Debug, PartialEq)]
struct Month {
    year: i128,
    /// 1 to 12.
    month: u8,
}

/// The month of a day.
fn month_of(days: i128) -> Month {
    let days = days + EPOCH_DAYS;
    let (era, day) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let month = if month < 10 { month + 3 } else { month - 9 };
    Month { year: era * 400 + year + i128::from(month <= 2), month: month as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_a_thousand_years_is_in_its_month() {
        let (mut year, mut month, mut day) = (1600, 1u8, 1u8);
        for days in days_of(1600, 1, 1)..days_of(2600, 1, 1) {
            assert_eq!(days_of(year, month, day), days);
            assert_eq!(month_of(days), Month { year, month });
            assert_eq!(start_of(CalendarUnit::Month, days, 1), days - i128::from(day) + 1);
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let last = match month {
                2 => 28 + u8::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                _ if day == last => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
        }
        assert_eq!(days_of(1970, 1, 1), 0);
        assert_eq!(month_of(-1_000_000), Month { year: -768, month: 2 });
    }

    #[test]
    fn units_begin_at_or_before_a_moment() {
        let day = 86_400_000;
        let starts = CalendarUnit::ALL.map(|unit| start_of(unit, -1, day));
        assert_eq!(starts, [-365 * day, -31 * day, -day, -3_600_000, -60_000, -1000]);
        for unit in CalendarUnit::ALL {
            assert_eq!(start_of(unit, 0, day), 0);
        }
    }
}
