//! Options of a request for logs.

/// The parameters of `PodLogOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogOptions {
    pub follow: bool,
    pub previous: bool,
    pub timestamps: bool,
    /// The oldest time of a line, in nanoseconds since the epoch.
    pub since_nanos: Option<i128>,
    pub tail_lines: Option<u64>,
    pub limit_bytes: Option<u64>,
}

/// Why parameters are refused: the message of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidOptions {
    Syntax,
    Value,
}

impl LogOptions {
    /// Reads the parameters of a query. `now_nanos` is the time from which `sinceSeconds` counts.
    pub fn parse(query: &[(String, String)], now_nanos: i128) -> Result<Self, InvalidOptions> {
        let get = |key: &str| {
            query
                .iter()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value.as_str())
                .filter(|it| !it.is_empty())
        };
        let number = |key: &str| {
            get(key).map(|text| text.parse::<i64>().map_err(|_| InvalidOptions::Syntax)).transpose()
        };
        let flag = |key: &str| {
            query
                .iter()
                .find(|(name, _)| name == key)
                .is_some_and(|(_, value)| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
        };
        // an old name of `tailLines`
        let tail = match get("tail") {
            Some("all") => None,
            Some(text) => Some(text.parse::<i64>().map_err(|_| InvalidOptions::Syntax)?),
            None => number("tailLines")?,
        };
        let (limit, seconds) = (number("limitBytes")?, number("sinceSeconds")?);
        let time = get("sinceTime")
            .map(|text| schema::time::to_unix(text).ok_or(InvalidOptions::Syntax))
            .transpose()?;
        if tail.is_some_and(|it| it < 0)
            || limit.is_some_and(|it| it < 1)
            || seconds.is_some_and(|it| it < 1)
            || seconds.is_some() && time.is_some()
        {
            return Err(InvalidOptions::Value);
        }
        let second = 1_000_000_000;
        Ok(LogOptions {
            follow: flag("follow"),
            previous: flag("previous"),
            timestamps: flag("timestamps"),
            since_nanos: seconds
                .map(|seconds| now_nanos - i128::from(seconds) * second)
                .or_else(|| time.map(|seconds| i128::from(seconds) * second)),
            tail_lines: tail.and_then(|it| u64::try_from(it).ok()),
            limit_bytes: limit.and_then(|it| u64::try_from(it).ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<LogOptions, InvalidOptions> {
        let pairs: Vec<_> = text
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        LogOptions::parse(&pairs, 10_000_000_000)
    }

    #[test]
    fn parameters_are_read() {
        let all =
            parse("follow=true&previous=0&timestamps=1&sinceSeconds=3&tailLines=2&limitBytes=9").unwrap();
        let expected = LogOptions {
            follow: true,
            previous: false,
            timestamps: true,
            since_nanos: Some(7_000_000_000),
            tail_lines: Some(2),
            limit_bytes: Some(9),
        };
        assert_eq!(all, expected);
        assert_eq!(parse("tail=all&tailLines=2").unwrap().tail_lines, None);
        assert_eq!(parse("tailLines=x"), Err(InvalidOptions::Syntax));
        assert_eq!(parse("tailLines=-1"), Err(InvalidOptions::Value));
        assert_eq!(parse("limitBytes=0"), Err(InvalidOptions::Value));
        assert_eq!(parse("sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z"), Err(InvalidOptions::Value));
    }
}
