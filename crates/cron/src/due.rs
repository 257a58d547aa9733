//! The times at which a schedule is due, as a period or as fields of a calendar.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Due {
    /// So many seconds after the last time.
    Every(i64),
    At(Fields),
}

/// Numbers that match, as bits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    pub minutes: u64,
    pub hours: u64,
    pub days: u64,
    pub months: u64,
    pub weekdays: u64,
    /// Days of the month and of the week were both asked for: either is enough.
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

/// What a clock and a calendar on a wall show.
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
