//! The due times of a schedule: a period, or calendar fields.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Due {
    /// A fixed period after the last time, in seconds.
    Every(i64),
    At(Fields),
}

/// Matching numbers, as bits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    pub minutes: u64,
    pub hours: u64,
    pub days: u64,
    pub months: u64,
    pub weekdays: u64,
    /// Both the day of the month and the day of the week are restricted: either may match.
    pub either: bool,
}

impl Fields {
    pub fn has_day(&self, wall: &Wall) -> bool {
        let (day, weekday) = (has(self.days, wall.date.day()), has(self.weekdays, wall.weekday()));
        has(self.months, wall.date.month()) && if self.either { day || weekday } else { day && weekday }
    }
}

pub(crate) fn has(bits: u64, number: impl Into<i64>) -> bool {
    u32::try_from(number.into()).ok().and_then(|at| bits.checked_shr(at)).is_some_and(|bits| bits & 1 == 1)
}

/// A local date and time.
pub(crate) struct Wall {
    pub date: jiff::civil::Date,
    /// Seconds since midnight.
    pub second: i64,
}

impl Wall {
    pub fn weekday(&self) -> i8 {
        self.date.weekday().to_sunday_zero_offset()
    }
}
