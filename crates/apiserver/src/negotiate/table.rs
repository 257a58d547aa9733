//! Tables: column definitions of a kind and cells of its objects.

use bytes::Bytes;
use names::Names;
use rest::options::Query;
use rest::{ApiError, Object, Resource};
use schema::encode::{self, string};
use schema::problem::quoted;
use schema::source::{Json, Source, Token};
use schema::table::Column;
use schema::{Value, decode, time};
use std::time::Duration;

/// Index of an object's cached form that holds the fields of its row.
const ROW_FIELDS: usize = 3;

/// The last column of kinds without own columns.
const CREATED: &str = "Created At";

/// How much of each object a row includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Include {
    Nothing,
    Metadata,
    Whole,
}

impl Include {
    pub fn parse(query: &Query) -> Result<Self, ApiError> {
        match query.get("includeObject").unwrap_or("") {
            "" | "Metadata" => Ok(Include::Metadata),
            "None" => Ok(Include::Nothing),
            "Object" => Ok(Include::Whole),
            other => Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', \
                 'Object', 'None', or empty",
                quoted(other)
            ))),
        }
    }
}

/// A table without its rows.
pub struct Layout<'a> {
    pub resource: &'a Resource,
    pub names: &'a Names,
    pub beta: bool,
    pub include: Include,
    /// Time since the epoch.
    pub now: Duration,
    /// Only the first table of a watch has column definitions.
    pub headers: bool,
}

impl Layout<'_> {
    /// Whether the kind has no columns of its own.
    pub fn is_plain(&self) -> bool {
        let kind = &self.resource.kind;
        !kind.root.loose && kind.columns.last().is_none_or(|column| column.name == CREATED)
    }

    fn api_version(&self) -> String {
        format!("{}/{}", self.names.meta_group(), version(self.beta))
    }

    /// `{"kind":"Table",...,"rows":[`, given the text of the list's metadata.
    pub fn head(&self, metadata: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        out.extend_from_slice(b"{\"kind\":\"Table\",\"apiVersion\":");
        string(&self.api_version(), &mut out);
        out.extend_from_slice(b",\"metadata\":");
        out.extend_from_slice(metadata.as_bytes());
        out.extend_from_slice(b",\"columnDefinitions\":");
        if self.headers {
            columns(self.resource, &mut out);
        } else {
            out.extend_from_slice(b"null");
        }
        out.extend_from_slice(b",\"rows\":[");
        out
    }

    /// One row of a list. The fields of the row are cached with the object, if they are small.
    pub fn row_of(&self, object: &Object) -> Vec<u8> {
        let Resource { hooks, row_reads, kind, .. } = self.resource;
        let json = self.resource.json(object);
        if hooks.storage.convert.is_some() || hooks.storage.custom_versions.is_some() || row_reads.is_all() {
            return self.row(&json);
        }
        let read = object.form(ROW_FIELDS, || {
            let value = decode::canonical_parts(&json, &kind.root, row_reads).unwrap_or_default();
            let read = encode::json(&value, &kind.root);
            if read.len() > json.len() / 2 { Bytes::new() } else { Bytes::copy_from_slice(&read) }
        });
        self.row_from(&json, if read.is_empty() { &json } else { &read })
    }

    /// A row for an object given as its JSON.
    pub fn row(&self, json: &[u8]) -> Vec<u8> {
        self.row_from(json, json)
    }

    /// The same, with the JSON of at least the fields of the row.
    fn row_from(&self, json: &[u8], read: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(4096);
        out.extend_from_slice(b"{\"cells\":");
        let root = &self.resource.kind.root;
        let value = decode::canonical_parts(read, root, &self.resource.row_reads).unwrap_or_default();
        out.extend_from_slice(&encode::untyped(&Value::List(self.cells(&value))));
        let conditions = self
            .resource
            .hooks
            .read
            .row_conditions
            .map(|conditions_of| conditions_of(&value))
            .unwrap_or_default();
        if !conditions.is_empty() {
            out.extend_from_slice(b",\"conditions\":");
            out.extend_from_slice(&encode::untyped(&Value::List(conditions)));
        }
        out.extend_from_slice(b",\"object\":");
        match self.include {
            Include::Nothing => out.extend_from_slice(b"null"),
            Include::Whole => out.extend_from_slice(json),
            Include::Metadata => write_partial(&self.resource.outline(json), self.names, self.beta, &mut out),
        }
        out.push(b'}');
        out
    }

    fn cells(&self, value: &Value) -> Vec<Value> {
        if let Some(cells) = self.resource.hooks.read.cells {
            return cells(value, self.now);
        }
        let kind = &self.resource.kind;
        if kind.columns.is_empty() {
            let text = |field| Value::from(value.text(&["metadata", field]));
            return vec![text("name"), text("creationTimestamp")];
        }
        let paths = &self.resource.column_paths;
        let each = kind.columns.iter().zip(paths);
        each.map(|(column, path)| match path {
            Some(path) => self.path_cell(column, path.find(value).first().copied()),
            None => self.cell(column, value),
        })
        .collect()
    }

    /// The cell of a JSONPath column: values of another type are omitted.
    fn path_cell(&self, column: &Column, value: Option<&Value>) -> Value {
        match (&*column.kind, value) {
            ("string", Some(Value::Null)) => "<no value>".into(),
            (_, None | Some(Value::Null)) => Value::Null,
            ("date", Some(Value::String(text))) if text.is_empty() => "<unknown>".into(),
            ("string", Some(Value::String(text))) => text.as_str().into(),
            ("string", Some(other)) => String::from_utf8_lossy(&encode::untyped(other)).into(),
            ("date", Some(Value::String(text))) => match time::to_unix(text) {
                Some(_) => time::age(Some(text), self.now.as_secs() as i64).into(),
                None => "<invalid>".into(),
            },
            // as upstream: overflow wraps to the minimum
            ("integer", Some(Value::Float(number))) if number.abs() >= i64::MAX as f64 => i64::MIN.into(),
            ("integer", Some(Value::Float(number))) => (*number as i64).into(),
            ("integer" | "number", Some(number @ (Value::Int(_) | Value::Float(_)))) => number.clone(),
            ("boolean", Some(truth @ Value::Bool(_))) => truth.clone(),
            _ => Value::Null,
        }
    }

    /// The cell of a plain field.
    fn cell(&self, column: &Column, value: &Value) -> Value {
        if column.path.is_empty() || column.path.starts_with('.') {
            return if column.kind == "string" { "".into() } else { Value::Null };
        }
        let cell = column.path.split('.').try_fold(value, |value, step| value.as_map()?.get(step));
        match cell {
            Some(Value::String(text))
                if column.path.ends_with("creationTimestamp") && column.kind == "string" =>
            {
                time::age(Some(text), self.now.as_secs() as i64).into()
            }
            Some(cell) => cell.clone(),
            None if column.kind == "string" => "".into(),
            None => Value::Null,
        }
    }
}

fn columns(resource: &Resource, out: &mut Vec<u8>) {
    let generic = [
        Column {
            name: "Name".into(),
            kind: "string".into(),
            format: "name".into(),
            priority: 0,
            path: "".into(),
            doc: "Unique name of the object.".into(),
        },
        Column {
            name: CREATED.into(),
            kind: "date".into(),
            format: "".into(),
            priority: 0,
            path: "".into(),
            doc: "When the object was created.".into(),
        },
    ];
    let declared = &resource.kind.columns;
    let columns: &[Column] = if declared.is_empty() { &generic } else { declared };
    out.push(b'[');
    for (nth, column) in columns.iter().enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        for (start, text) in [
            ("{\"name\":", &column.name),
            (",\"type\":", &column.kind),
            (",\"format\":", &column.format),
            (",\"description\":", &column.doc),
        ] {
            out.extend_from_slice(start.as_bytes());
            string(text, out);
        }
        out.extend_from_slice(format!(",\"priority\":{}}}", column.priority).as_bytes());
    }
    out.push(b']');
}

/// The version of tables and partial metadata.
pub fn version(beta: bool) -> &'static str {
    if beta { "v1beta1" } else { "v1" }
}

/// The PartialObjectMetadata of an object.
pub fn partial(json: &[u8], names: &Names, beta: bool) -> Bytes {
    let mut out = Vec::with_capacity(4096);
    write_partial(json, names, beta, &mut out);
    out.into()
}

fn write_partial(json: &[u8], names: &Names, beta: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"");
    out.extend_from_slice(names.meta_group().as_bytes());
    out.extend_from_slice(if beta { b"/v1beta1\",\"metadata\":" } else { b"/v1\",\"metadata\":" });
    out.extend_from_slice(metadata_of(json));
    out.push(b'}');
}

/// The text of `metadata` within canonical JSON, found by scanning, without decoding.
fn metadata_of(json: &[u8]) -> &[u8] {
    find_metadata(json).unwrap_or(b"{}")
}

fn find_metadata(text: &[u8]) -> Option<&[u8]> {
    let mut json = Json::canonical(std::str::from_utf8(text).ok()?);
    if json.value().ok()? != Token::Map {
        return None;
    }
    while let Some(key) = json.key().ok()? {
        let start = json.position();
        let token = json.value().ok()?;
        json.skip(&token).ok()?;
        if key == "metadata" {
            return text.get(start..json.position());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_found_by_scanning() {
        let json =
            br#"{"kind":"A","spec":{"metadata":{"no":1}},"metadata":{"name":"\"}","x":{"y":[1]}},"z":1}"#;
        assert_eq!(metadata_of(json), br#"{"name":"\"}","x":{"y":[1]}}"#);
        assert_eq!(metadata_of(b"{}"), b"{}");
    }
}
