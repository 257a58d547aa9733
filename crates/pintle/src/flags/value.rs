//! The value types of flags, also of ignored ones.

use apimachinery::net::Network;
use std::net::IpAddr;
use std::time::Duration;

/// The type of a flag's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "components to come have flags of these forms")]
pub enum Type {
    Bool,
    /// A whole number.
    Int,
    /// A whole number that is not negative.
    Uint,
    Float,
    /// A length of time: `1h30m`.
    Duration,
    Text,
    /// Texts with commas between, or given again.
    List,
    /// `key=value` with commas between, or given again.
    Pairs,
    /// Networks with commas between.
    Networks,
    Address,
    /// A quantity: `64Ki`.
    Quantity,
    /// One of these.
    Choice(&'static [&'static str]),
}

impl Type {
    /// The placeholder of the value in help.
    pub fn placeholder(self) -> &'static str {
        match self {
            Type::Bool => "BOOL",
            Type::Int | Type::Uint | Type::Float => "NUMBER",
            Type::Duration => "DURATION",
            Type::Text | Type::Choice(_) => "TEXT",
            Type::List => "LIST",
            Type::Pairs => "KEY=VALUE",
            Type::Networks => "CIDRS",
            Type::Address => "IP",
            Type::Quantity => "QUANTITY",
        }
    }

    /// Whether repeated values accumulate.
    pub fn gathers(self) -> bool {
        matches!(self, Type::List | Type::Pairs)
    }

    /// Validates a value.
    pub fn check(self, text: &str) -> Result<String, String> {
        let good = match self {
            Type::Bool => parse_bool(text).is_some().then_some(()).ok_or("must be true or false"),
            Type::Int => text.parse::<i64>().map(drop).map_err(|_| "must be a whole number"),
            Type::Uint => text.parse::<u64>().map(drop).map_err(|_| "must be a whole number, at least 0"),
            Type::Float => text.parse::<f64>().map(drop).map_err(|_| "must be a number"),
            Type::Duration => {
                let nanos = schema::time::parse_duration(text);
                nanos.map(drop).map_err(|_| "not a duration, such as 90s, 30m or 1h30m")
            }
            Type::Text => Ok(()),
            Type::List => {
                let closed = text.matches('"').count().is_multiple_of(2);
                closed.then_some(()).ok_or("unbalanced quotes")
            }
            Type::Pairs => {
                let paired = text.is_empty() || text.split(',').all(|pair| pair.contains('='));
                paired.then_some(()).ok_or("must have the form key=value")
            }
            Type::Networks => {
                let all = text.split(',').all(|one| Network::parse(one.trim()).is_some());
                all.then_some(()).ok_or("not CIDRs, such as 10.0.0.0/16")
            }
            Type::Address => text.parse::<IpAddr>().map(drop).map_err(|_| "must be an IP address"),
            Type::Quantity => {
                schema::quantity::canonical(text).map(drop).map_err(|_| "must be a quantity, such as 64Ki")
            }
            Type::Choice(choices) => {
                if !choices.contains(&text) {
                    let named: Vec<_> = choices.iter().copied().filter(|it| !it.is_empty()).collect();
                    return Err(format!("there are {}", named.join(", ")));
                }
                Ok(())
            }
        };
        good.map(|()| text.to_owned()).map_err(str::to_owned)
    }
}

/// Parses a boolean in all of upstream's spellings.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Parses a duration such as `1h30m`, which may be 0.
pub fn any_duration(text: &str) -> Result<Duration, String> {
    let nanoseconds = schema::time::parse_duration(text).ok().and_then(|it| u64::try_from(it).ok());
    let message = "not a duration, such as 90s, 30m or 1h30m";
    nanoseconds.map(Duration::from_nanos).ok_or_else(|| message.to_owned())
}

/// Parses a duration of at least one second.
pub fn duration(text: &str) -> Result<Duration, String> {
    match any_duration(text)? {
        length if length >= Duration::from_secs(1) => Ok(length),
        _ => Err("must be at least a second".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_has_good_and_bad_values() {
        for (takes, good, bad) in [
            (Type::Bool, "T", "yes"),
            (Type::Int, "-3", "3.5"),
            (Type::Uint, "3", "-3"),
            (Type::Float, "0.5", "half"),
            (Type::Duration, "1h0m0s", "1 hour"),
            (Type::List, "a,b", "\"a,b"),
            (Type::Pairs, "a=b,c=", "a=b,c"),
            (Type::Networks, "10.0.0.0/8,2001:db8::/32", "10.0.0.0/8,x"),
            (Type::Address, "::1", "localhost"),
            (Type::Quantity, "64Ki", "64 kB"),
            (Type::Choice(&["a", "b"]), "b", "c"),
        ] {
            assert_eq!(takes.check(good), Ok(good.to_owned()), "{takes:?}");
            assert!(takes.check(bad).is_err(), "{takes:?}: {bad}");
        }
    }
}
