//! Secrets: plain-text input, the required keys of each type, immutability.

use crate::check::{self, Problems};
use crate::core::configmap::{MAX_SIZE, immutable};
use crate::{metadata, read};
use names::Names;
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, Hooks, ReadHooks, RepeatedMetadataErrors, UpdateHooks, WriteHooks,
};
use schema::problem::Problem;
use schema::{Path, Value, decode};
use std::time::Duration;

pub fn hooks() -> Hooks {
    Hooks {
        decode: DecodeHooks { default: Some(|object, _| default(object)), ..DecodeHooks::default() },
        create: CreateHooks { validate: Some(create), ..CreateHooks::default() },
        update: UpdateHooks {
            validate_state: Some(|object, _, context| create(object, context)),
            validate: Some(update),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors::CHANGE_FIRST,
            ..WriteHooks::default()
        },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

/// `stringData` wins over `data` and is never stored.
fn default(object: &mut Value) {
    let Some(Value::Map(plain)) = object.unset(&["stringData"]) else { return };
    if plain.is_empty() {
        return;
    }
    let data = object.make_map().entry("data").make_map();
    for (key, value) in plain {
        data.insert(key, check::base64_of(read::text(&value).as_bytes()));
    }
}

fn create(object: &Value, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    validate(object, context.names, &mut out);
    out
}

fn update(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let (was, is) = (old.text(&["type"]), new.text(&["type"]));
    if was != is {
        out.push(Problem::invalid_text(&Path::ROOT.field("type"), is, "field is immutable"));
    }
    immutable(new, old, &["data"], &mut out);
    out
}

fn validate(object: &Value, names: &Names, out: &mut Problems) {
    let data = read::map(object, &["data"]);
    let path = Path::ROOT.field("data");
    let mut size = 0;
    for (key, value) in data.iter() {
        check::config_key(key, &path.key(key), out);
        size += check::byte_len(read::text(value));
    }
    if size > MAX_SIZE {
        out.push(Problem::too_long(&path, MAX_SIZE));
    }
    // types of other domains are not checked
    let domain = format!("{}/", names.well_known_domain);
    let Some(kind) = object.text(&["type"]).strip_prefix(&domain) else { return };
    match kind {
        "service-account-token" => {
            let key = names.well_known("service-account.name");
            if object.text(&["metadata", "annotations", &key]).is_empty() {
                out.push(Problem::required(&Path::ROOT.field("metadata").field("annotations").key(&key), ""));
            }
        }
        "dockercfg" => json_key(object, ".dockercfg", out),
        "dockerconfigjson" => json_key(object, ".dockerconfigjson", out),
        "basic-auth" if !data.contains("username") && !data.contains("password") => {
            out.push(Problem::required(&path.key("username"), ""));
            out.push(Problem::required(&path.key("password"), ""));
        }
        "ssh-auth" if object.text(&["data", "ssh-privatekey"]).is_empty() => {
            out.push(Problem::required(&path.key("ssh-privatekey"), ""));
        }
        "tls" => {
            for key in ["tls.crt", "tls.key"].into_iter().filter(|key| !data.contains(key)) {
                out.push(Problem::required(&path.key(key), ""));
            }
        }
        _ => {}
    }
}

/// A key that must be there and hold a JSON object.
fn json_key(object: &Value, key: &str, out: &mut Problems) {
    let path = Path::ROOT.field("data");
    let path = path.key(key);
    let Some(text) = read::opt_text(object, &["data", key]) else {
        out.push(Problem::required(&path, ""));
        return;
    };
    const HIDDEN: &str = "<secret contents redacted>";
    match decode::json_untyped(&check::bytes_of(text)) {
        Ok(decoded) if matches!(decoded.value, Value::Map(_) | Value::Null) => {}
        Ok(_) => out.push(Problem::invalid_text(&path, HIDDEN, "not a JSON object")),
        Err(why) => out.push(Problem::invalid_text(&path, HIDDEN, &why.to_string())),
    }
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let count = Value::Int(read::map(object, &["data"]).len() as i64);
    vec![metadata::name(object), object.text(&["type"]).into(), count, metadata::age(object, now)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn plain_text_wins_and_is_not_kept() {
        let mut object = json(r#"{"data":{"a":"eA==","b":"eQ=="},"stringData":{"a":"plain"}}"#);
        default(&mut object);
        assert_eq!(object, json(r#"{"data":{"a":"cGxhaW4=","b":"eQ=="}}"#));
    }

    #[test]
    fn types_need_their_keys() {
        let check = |object: &str, expected: &[&str]| {
            assert_eq!(problems(&create(&json(object), &context())), expected)
        };
        check(r#"{"type":"Opaque"}"#, &[]);
        check(r#"{"type":"example.com/tls"}"#, &[]);
        check(r#"{"type":"kubernetes.io/tls","data":{"tls.crt":""}}"#, &["data[tls.key]: Required value"]);
        check(
            r#"{"type":"kubernetes.io/basic-auth"}"#,
            &["data[username]: Required value", "data[password]: Required value"],
        );
        check(
            r#"{"type":"kubernetes.io/service-account-token"}"#,
            &["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        );
        check(r#"{"type":"kubernetes.io/dockercfg","data":{".dockercfg":"e30="}}"#, &[]);
        check(r#"{"type":"kubernetes.io/dockercfg"}"#, &["data[.dockercfg]: Required value"]);
        assert_eq!(
            create(&json(r#"{"type":"kubernetes.io/dockercfg","data":{".dockercfg":"YQ=="}}"#), &context())
                .len(),
            1
        );
    }

    #[test]
    fn the_type_stays() {
        let found = update(&json(r#"{"type":"a"}"#), &json(r#"{"type":"b"}"#), &context());
        assert_eq!(problems(&found), [r#"type: Invalid value: "a": field is immutable"#]);
    }
}
