//! `pintle convert`: objects between JSON, YAML and protobuf, without a server.
//!
//! Invariants: nothing is defaulted, and nothing is lost without a word. JSON and YAML are turned into
//! each other field by field, whatever the kind; what the table of a kind adds there is the order of the
//! fields. Protobuf is a function of the table, so it takes a kind that is built in, and refuses fields that
//! have no place in the message.
//!
//! It does not check an object beyond its types, and does not turn one version of the API into another.

use std::borrow::Cow;
use std::fs;
use std::io::{IsTerminal, Read, Write, stdin, stdout};
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kinds::{scheme, tables};
use names::Names;
use schema::proto::{self, ProtoError};
use schema::table::{Ref, Type};
use schema::{Value, decode, encode, yaml};

use crate::cli::{Convert, Format};

/// The start of [`proto::MAGIC`] in base64.
const MAGIC_BASE64: &[u8] = b"azhzA";

/// Reads the input, converts it, and writes the output.
pub fn convert(args: &Convert) -> anyhow::Result<()> {
    let formatted = if is_stdin(&args.file) { "standard input".into() } else { args.file.to_string_lossy() };
    let bytes = read(&args.file).with_context(|| format!("cannot read {formatted}"))?;
    let converted = convert_bytes(&bytes, args.output).with_context(|| formatted.clone().into_owned())?;
    if let Some(out) = &args.out {
        return fs::write(out, converted).with_context(|| format!("cannot write {}", out.display()));
    }
    if args.output == Format::Protobuf && stdout().is_terminal() {
        bail!("protobuf is not written to a terminal: name a file with --out, or use a pipe");
    }
    match stdout().write_all(&converted) {
        // a reader that has seen enough
        Err(why) if why.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    if !is_stdin(path) {
        return fs::read(path);
    }
    let mut bytes = Vec::new();
    stdin().read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Converts bytes in any format to one format.
fn convert_bytes(bytes: &[u8], form: Format) -> anyhow::Result<Vec<u8>> {
    let objects = match protobuf_of(bytes) {
        Some(message) => vec![from_protobuf(&message)?],
        None => from_text(bytes)?,
    };
    if objects.is_empty() {
        bail!("the input contains no object");
    }
    match form {
        Format::Json => Ok(objects.iter().flat_map(json).collect()),
        Format::Yaml => Ok(objects.iter().map(yaml::emit).collect::<Vec<_>>().join("---\n").into_bytes()),
        Format::Protobuf => match <[Value; 1]>::try_from(objects) {
            Ok([object]) => to_protobuf(object),
            Err(several) => bail!(
                "protobuf holds one object, and there are {}: put them into a list, or convert one at a time",
                several.len()
            ),
        },
    }
}

/// The envelope in what may be a value as it was copied out of etcd: with its key in the line before, with a
/// line break behind, or as base64. Text is not protobuf.
fn protobuf_of(bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
    let value = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) if bytes.starts_with(b"/") => &bytes[end + 1..],
        _ => bytes,
    };
    if value.starts_with(&proto::MAGIC) {
        let shorter = value.strip_suffix(b"\n").filter(|_| proto::open(value).is_err());
        return Some(Cow::Borrowed(shorter.unwrap_or(value)));
    }
    let text = value.trim_ascii();
    let decoded = text.starts_with(MAGIC_BASE64).then(|| STANDARD.decode(text).ok())??;
    decoded.starts_with(&proto::MAGIC).then_some(Cow::Owned(decoded))
}

fn from_protobuf(bytes: &[u8]) -> anyhow::Result<Value> {
    let damaged = |why: ProtoError| match why {
        ProtoError::Truncated => anyhow!("the protobuf is truncated: {why}"),
        why => anyhow!("the protobuf is damaged: {why}"),
    };
    let envelope = proto::open(bytes).map_err(damaged)?;
    if envelope.raw.is_empty() {
        bail!("the protobuf is truncated: the envelope contains no object");
    }
    let nameless = envelope.api_version.is_empty() && envelope.kind.is_empty();
    let ty =
        watch_event().filter(|_| nameless).map_or_else(|| table(&envelope.api_version, &envelope.kind), Ok);
    let ty = ty.map_err(|why| anyhow!("{why}, so its protobuf cannot be read"))?;
    envelope.object(&ty).map_err(damaged)
}

fn to_protobuf(object: Value) -> anyhow::Result<Vec<u8>> {
    let (version, kind) = (object.text(&["apiVersion"]).to_owned(), object.text(&["kind"]).to_owned());
    let is_event = version.is_empty()
        && kind.is_empty()
        && object.at(&["type"]).is_some()
        && object.at(&["object"]).is_some();
    let ty = watch_event().filter(|_| is_event).map_or_else(|| table(&version, &kind), Ok);
    let ty = ty.map_err(|why| anyhow!("{why}, so it has no protobuf form"))?;
    let decoded = decode::tree(object, &ty).with_context(|| format!("not a valid {kind}"))?;
    if let Some(odd) = decoded.strict_errors.first() {
        bail!("{odd}: protobuf cannot encode fields that {kind} does not have");
    }
    Ok(proto::seal(&decoded.value, &ty))
}

/// The documents of a text: JSON, or YAML with any number of them. Empty ones are left out.
fn from_text(bytes: &[u8]) -> anyhow::Result<Vec<Value>> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| anyhow!("the input is neither text nor protobuf with the prefix k8s\\0"))?;
    let limits = yaml::Limits { bytes: usize::MAX, ..yaml::Limits::default() };
    let mut objects = Vec::new();
    for (nth, document) in documents(text).into_iter().enumerate() {
        let parsed = yaml::parse(document.as_bytes(), limits)
            .map_err(|why| anyhow!("document {}: {}", nth + 1, why.cause()))?;
        if let Some(repeated) = parsed.repeated.first() {
            bail!("document {}: {repeated}", nth + 1);
        }
        match parsed.value {
            Value::Null => {}
            Value::Map(map) => objects.push(Value::Map(map)),
            _ => bail!("document {} is not an object", nth + 1),
        }
    }
    Ok(objects)
}

/// Where a line begins with `---` a document does.
fn documents(text: &str) -> Vec<&str> {
    let mut starts = vec![0];
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let rest = line.strip_prefix("---");
        if at > 0 && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace)) {
            starts.push(at);
        }
        at += line.len();
    }
    starts.push(text.len());
    starts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

/// Indented text, with the fields in the order of the table where there is one.
fn json(object: &Value) -> Vec<u8> {
    let text = match table(object.text(&["apiVersion"]), object.text(&["kind"])) {
        Ok(ty) => encode::json(object, &ty),
        Err(_) => encode::untyped(object),
    };
    let mut out = apiserver::pretty(&text).to_vec();
    if !out.ends_with(b"\n") {
        out.push(b'\n');
    }
    out
}

/// A change in a watch: the one message without names.
fn watch_event() -> Option<Ref<Type>> {
    tables::type_named("apimachinery.pkg.apis.meta.v1", "WatchEvent").map(Ref::Static)
}

/// The table of a kind or of a list of that kind, by its names on the wire.
fn table(api_version: &str, kind: &str) -> anyhow::Result<Ref<Type>> {
    if api_version.is_empty() || kind.is_empty() {
        bail!("apiVersion or kind is missing");
    }
    // statuses belong to every version here
    let of_meta = || tables::type_named(META, kind).filter(|it| it.field("kind").is_some()).map(Ref::Static);
    let ty = scheme::find_type(&Names::default(), api_version, kind).or_else(of_meta);
    let ty = ty.with_context(|| format!("{api_version} {kind} is not a built-in kind of the API"))?;
    if ty.fields.iter().all(|field| field.number == 0) {
        bail!("{api_version} {kind} has no protobuf encoding");
    }
    Ok(ty)
}

const META: &str = "apimachinery.pkg.apis.meta.v1";

#[cfg(test)]
mod tests;
