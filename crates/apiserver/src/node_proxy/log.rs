//! Options of a request for logs.

use super::location::{encode_query, path_of};
use rest::ApiError;
use rest::options::Query;
use schema::Path;
use schema::Value;
use schema::problem::{Problem, quoted};

/// Parameters of `pods/log`, checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LogOptions {
    pub container: String,
    pub follow: bool,
    previous: bool,
    timestamps: bool,
    pub insecure: bool,
    since_seconds: Option<i64>,
    since_time: Option<String>,
    tail_lines: Option<i64>,
    limit_bytes: Option<i64>,
}

impl LogOptions {
    /// Reads and validates the parameters of the pod `name`.
    pub fn read(query: &Query, name: &str) -> Result<Self, ApiError> {
        let number = |key: &str| {
            let text = query.get(key).filter(|text| !text.is_empty());
            text.map(parse_int).transpose()
        };
        let since_time = query.get("sinceTime").filter(|text| !text.is_empty());
        let since_time = since_time.map(parse_time).transpose()?;
        let options = LogOptions {
            container: query.get("container").unwrap_or("").to_owned(),
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            timestamps: query.flag("timestamps"),
            insecure: query.flag("insecureSkipTLSVerifyBackend"),
            since_seconds: number("sinceSeconds")?,
            since_time,
            tail_lines: number("tailLines")?,
            limit_bytes: number("limitBytes")?,
        };
        let problems = options.problems();
        if !problems.is_empty() {
            let subject = rest::Subject { group: "", kind: "PodLogOptions", name };
            return Err(ApiError::invalid(subject, problems));
        }
        Ok(options)
    }

    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let at = |name| Path::ROOT.field(name);
        if let Some(lines) = self.tail_lines.filter(|lines| *lines < 0) {
            problems.push(Problem::invalid(
                &at("tailLines"),
                &Value::Int(lines),
                "must be greater than or equal to 0",
            ));
        }
        if let Some(bytes) = self.limit_bytes.filter(|bytes| *bytes < 1) {
            problems.push(Problem::invalid(&at("limitBytes"), &Value::Int(bytes), "must be greater than 0"));
        }
        match (self.since_seconds, &self.since_time) {
            (Some(_), Some(_)) => {
                problems.push(Problem::forbidden(
                    &Path::ROOT,
                    "at most one of `sinceTime` or `sinceSeconds` may be specified",
                ));
            }
            (Some(seconds), None) if seconds < 1 => {
                problems.push(Problem::invalid(
                    &at("sinceSeconds"),
                    &Value::Int(seconds),
                    "must be greater than 0",
                ));
            }
            _ => {}
        }
        problems
    }

    /// Path and query at the agent.
    pub fn path(&self, pod: &Value, container: &str) -> String {
        let flag = |is_set: bool, key| is_set.then(|| (key, "true".to_owned()));
        let number = |value: Option<i64>, key| value.map(|it| (key, it.to_string()));
        let params: Vec<(&str, String)> = [
            flag(self.follow, "follow"),
            number(self.limit_bytes, "limitBytes"),
            flag(self.previous, "previous"),
            number(self.since_seconds, "sinceSeconds"),
            self.since_time.clone().map(|it| ("sinceTime", it)),
            number(self.tail_lines, "tailLines"),
            flag(self.timestamps, "timestamps"),
        ]
        .into_iter()
        .flatten()
        .collect();
        let params: Vec<(&str, &str)> = params.iter().map(|(key, value)| (*key, value.as_str())).collect();
        format!("/containerLogs/{}/{container}{}", path_of(pod), encode_query(&params))
    }
}

fn parse_int(text: &str) -> Result<i64, ApiError> {
    text.parse::<i64>().map_err(|_| {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let why = if is_number { "value out of range" } else { "invalid syntax" };
        ApiError::bad_request(format!("strconv.ParseInt: parsing {}: {why}", quoted(text)))
    })
}

/// A time in the form of the API, to the second.
fn parse_time(text: &str) -> Result<String, ApiError> {
    schema::time::parse_time(text).map_err(|why| ApiError::bad_request(why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked_and_passed_on() {
        let read = |text| LogOptions::read(&Query::parse(text), "p");
        let pod =
            schema::decode::json_untyped(br#"{"metadata":{"name":"p","namespace":"d"}}"#).unwrap().value;
        let all = read(
            "follow=true&tailLines=5&timestamps=1&previous=false&limitBytes=10&sinceTime=2020-01-01T00:00:00Z",
        );
        assert_eq!(
            all.unwrap().path(&pod, "c"),
            "/containerLogs/d/p/c?follow=true&limitBytes=10&sinceTime=2020-01-01T00%3A00%3A00Z&tailLines=5&timestamps=true"
        );
        for (text, message) in [
            (
                "tailLines=-1",
                "PodLogOptions \"p\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                "limitBytes=0",
                "PodLogOptions \"p\" is invalid: limitBytes: Invalid value: 0: must be greater than 0",
            ),
            (
                "sinceSeconds=0",
                "PodLogOptions \"p\" is invalid: sinceSeconds: Invalid value: 0: must be greater than 0",
            ),
            ("tailLines=x", "strconv.ParseInt: parsing \"x\": invalid syntax"),
        ] {
            assert_eq!(read(text).unwrap_err().message, message);
        }
    }
}
