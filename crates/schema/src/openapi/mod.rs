//! The published description of the API, in the forms of OpenAPI 2 and 3.
//!
//! Everything follows from the tables: definitions from types, paths from kinds. A document is written piece by
//! piece: one small tree for a definition or a path, turned into bytes and dropped, so building a document costs
//! little more than its bytes. The caller builds it once and keeps it.
//!
//! Types with a package are definitions of their own; a type without one (a structure inside a custom
//! resource) is written where it stands. The root of a custom kind has no package either: its definition is
//! named after the reversed group, as `com.example.v1.Widget`.
//!
//! No domain is spelled in here: what differs between dialects comes in through [`Dialect`]. Documents do not
//! depend on the order in which kinds are given.

mod declared;
mod definitions;
mod join;
mod operations;
mod paths;
mod proto;
#[cfg(test)]
mod tests;
mod v2;
mod v3;

use crate::table::{Group, Kind, Ref, Type};
use crate::value::Value;

pub use join::ExternalDocument;
pub use proto::MEDIA_TYPE as PROTO_MEDIA_TYPE;
pub use v2::{v2, v2_proto};
pub use v3::{v3, v3_address, v3_group, v3_groups, v3_hash, v3_index, v3_path};

/// The names that differ between dialects of the API.
#[derive(Debug, Clone, Copy)]
pub struct Dialect<'a> {
    /// Suffix of groups.
    pub api_domain: &'a str,
    /// The same, as type names begin with it.
    pub reversed_domain: &'a str,
    /// The prefix of schema extensions, dash included.
    pub extension_prefix: &'a str,
    /// In the name of the protobuf media type.
    pub vendor: &'a str,
    /// Title of the documents.
    pub title: &'a str,
}

/// Finds a type by package (without the domain) and name.
pub type FindType<'a> = dyn Fn(&str, &str) -> Option<Ref<Type>> + 'a;

/// The input of a document.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// All kinds of the API. Those without a plural have no paths; they are the bodies of subresources.
    pub kinds: &'a [&'a Kind],
    /// Types that are published although nothing refers to them.
    pub extra_types: &'a [Ref<Type>],
    /// For metadata of lists, options and answers.
    pub find_type: &'a FindType<'a>,
    /// Whether deleting one of a kind answers with the object rather than with a status.
    pub deletes_object: &'a dyn Fn(&Kind) -> bool,
    pub dialect: &'a Dialect<'a>,
    /// Whether enum values of built-in types are published.
    pub tells_values: bool,
    /// Of the server, `v1.26.4`.
    pub version: &'a str,
}

/// The package of the types that all kinds share.
const META: &str = "apimachinery.pkg.apis.meta.v1";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flavour {
    V2,
    V3,
}

impl Source<'_> {
    /// The name of a type's definition.
    fn type_name(&self, ty: &Type) -> String {
        self.name(&ty.package, &ty.name)
    }

    fn name(&self, package: &str, name: &str) -> String {
        format!("{}.{package}.{name}", self.dialect.reversed_domain)
    }

    /// The name of the definition of a kind, and of types that go with it.
    fn kind_name(&self, kind: &Kind, suffix: &str) -> String {
        if !kind.package().is_empty() {
            return format!("{}{suffix}", self.type_name(&kind.root));
        }
        let group = kind.group.full(self.dialect.api_domain);
        let mut parts: Vec<_> = group.split('.').rev().collect();
        let name = format!("{}{suffix}", kind.name);
        parts.extend([&*kind.version, &name]);
        parts.join(".")
    }

    fn extension(&self, name: &str) -> String {
        format!("{}{name}", self.dialect.extension_prefix)
    }

    fn gvk(&self, group: &Group, version: &str, kind: &str) -> Value {
        let group = group.full(self.dialect.api_domain);
        object([("group", group.into()), ("version", version.into()), ("kind", kind.into())])
    }
}

impl Flavour {
    fn reference(self, name: &str) -> Value {
        let folder = match self {
            Flavour::V2 => "#/definitions/",
            Flavour::V3 => "#/components/schemas/",
        };
        object([("$ref", format!("{folder}{name}").into())])
    }
}

/// The path of a group and version: `/api/v1`, `/apis/apps/v1`.
fn root_path(dialect: &Dialect<'_>, group: &Group, version: &str) -> String {
    if group.stem.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{}/{version}", group.full(dialect.api_domain))
    }
}

fn object<const N: usize>(entries: [(&'static str, Value); N]) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

fn texts<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> Value {
    Value::List(items.into_iter().map(|it| it.as_ref().into()).collect())
}

fn described(text: &str) -> Value {
    object([("description", text.into())])
}

/// The security definitions of every document.
fn security_definitions() -> Value {
    let token = object([
        ("description", "bearer token".into()),
        ("type", "apiKey".into()),
        ("name", "authorization".into()),
        ("in", "header".into()),
    ]);
    object([("BearerToken", token)])
}

fn security() -> Value {
    Value::List(vec![object([("BearerToken", Value::List(Vec::new()))])])
}

/// A JSON object that is written member by member.
struct Members {
    out: Vec<u8>,
    empty: bool,
}

impl Members {
    fn new() -> Self {
        Members { out: vec![b'{'], empty: true }
    }

    fn raw(&mut self, key: &str, value: &[u8]) {
        if !std::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
        crate::encode::string(key, &mut self.out);
        self.out.push(b':');
        self.out.extend_from_slice(value);
    }

    fn put(&mut self, key: &str, value: &Value) {
        self.raw(key, &crate::encode::untyped(value));
    }

    fn end(mut self) -> Vec<u8> {
        self.out.push(b'}');
        self.out
    }
}
