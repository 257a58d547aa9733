//! `Status` objects as JSON.

use bytes::Bytes;
use rest::{ApiError, Details};
use schema::encode::string;

/// The common prefix of the JSON.
pub const HEAD: &[u8] = b"{\"kind\":\"Status\",\"apiVersion\":\"v1\",";

/// The JSON of an error.
pub fn failure(error: &ApiError) -> Bytes {
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(b"{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{");
    if !error.continue_token.is_empty() {
        out.extend_from_slice(b"\"continue\":");
        string(&error.continue_token, &mut out);
    }
    out.extend_from_slice(b"},\"status\":\"Failure\",\"message\":");
    string(&error.message, &mut out);
    if !error.reason.is_empty() {
        out.extend_from_slice(b",\"reason\":");
        string(&error.reason, &mut out);
    }
    if let Some(details) = &error.details {
        out.extend_from_slice(b",\"details\":");
        write_details(details, &mut out);
    }
    out.extend_from_slice(format!(",\"code\":{}}}", error.code).as_bytes());
    out.into()
}

/// The JSON of a success with details.
pub fn success(details: &Details) -> Bytes {
    let mut out = Vec::with_capacity(160);
    out.extend_from_slice(
        b"{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Success\",\"details\":",
    );
    write_details(details, &mut out);
    out.push(b'}');
    out.into()
}

/// The JSON of a success without details.
pub fn empty_success(code: u16) -> Bytes {
    format!("{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Success\",\"code\":{code}}}").into()
}

fn write_details(details: &Details, out: &mut Vec<u8>) {
    let mut fields = Fields { out, first: true };
    fields.out.push(b'{');
    for (name, value) in
        [("name", &details.name), ("group", &details.group), ("kind", &details.kind), ("uid", &details.uid)]
    {
        fields.text(name, value);
    }
    if !details.causes.is_empty() {
        fields.name("causes");
        fields.out.push(b'[');
        for (nth, cause) in details.causes.iter().enumerate() {
            if nth > 0 {
                fields.out.push(b',');
            }
            fields.out.push(b'{');
            let mut inner = Fields { out: fields.out, first: true };
            for (name, value) in
                [("reason", &cause.reason), ("message", &cause.message), ("field", &cause.field)]
            {
                inner.text(name, value);
            }
            fields.out.push(b'}');
        }
        fields.out.push(b']');
    }
    if details.retry_after_seconds > 0 {
        fields.name("retryAfterSeconds");
        fields.out.extend_from_slice(details.retry_after_seconds.to_string().as_bytes());
    }
    fields.out.push(b'}');
}

struct Fields<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

impl Fields<'_> {
    fn name(&mut self, name: &str) {
        if !std::mem::replace(&mut self.first, false) {
            self.out.push(b',');
        }
        string(name, self.out);
        self.out.push(b':');
    }

    /// Omitted if empty.
    fn text(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.name(name);
            string(value, self.out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rest::Subject;

    #[test]
    fn errors_read_as_clients_expect() {
        let error = ApiError::not_found(Subject { group: "", kind: "pods", name: "a" });
        assert_eq!(
            failure(&error),
            "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"pods \\\"a\\\" not \
             found\",\"reason\":\"NotFound\",\"details\":{\"name\":\"a\",\"kind\":\"pods\"},\"code\":404}"
        );
        assert!(failure(&ApiError::no_such_path()).ends_with(b"\"details\":{},\"code\":404}"));
    }
}
