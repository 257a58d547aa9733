//! The table of fields: names, types, defaults and flags.

use schema::Value;
use schema::table::{Field, Flags, ListKind, ListShape, MapShape, Scalar, Shape, Type};
use std::sync::LazyLock;

/// A field of the configuration.
#[derive(Debug, Clone, Copy)]
pub struct FieldRow {
    /// Names from the top down.
    pub path: &'static str,
    pub ty: &'static str,
    pub default: Option<&'static str>,
    pub flag: Option<&'static str>,
    /// Why it has no effect, if it has none.
    pub why_ignored: Option<&'static str>,
}

impl FieldRow {
    pub fn steps(&self) -> Vec<&'static str> {
        self.path.split('.').collect()
    }

    /// Whether zero is a value that is kept.
    pub fn is_pointer(&self) -> bool {
        self.ty.starts_with('*')
    }

    /// The type without its star.
    pub fn base(&self) -> &'static str {
        self.ty.trim_start_matches('*')
    }
}

/// All fields, in the order of the table.
pub fn rows() -> impl Iterator<Item = FieldRow> {
    include_str!("fields.txt").lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.splitn(5, ' ');
        let (path, ty, default, flag) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let some = |word: &'static str| Some(word).filter(|word| *word != "-");
        let why_ignored = words.next().and_then(|rest| rest.strip_prefix("ignored: "));
        Some(FieldRow { path, ty, default: some(default), flag: some(flag), why_ignored })
    })
}

/// A default as a value.
pub fn literal(row: &FieldRow, text: &str) -> Value {
    match row.base() {
        "bool" => Value::Bool(text == "true"),
        "int32" | "int64" | "verbosity" | "nanoseconds" => text.parse().map(Value::Int).unwrap_or_default(),
        "float" => text.parse().map(Value::Float).unwrap_or_default(),
        _ => Value::String(text.to_owned()),
    }
}

static CONFIGURATION: LazyLock<Type> = LazyLock::new(build);

/// The table by which a text is decoded.
pub fn table() -> &'static Type {
    &CONFIGURATION
}

/// The Go type of a structure and its package, for errors.
fn go_type(path: &str) -> (&'static str, &'static str) {
    let name = match path {
        "" => "KubeletConfiguration",
        "authentication" => "KubeletAuthentication",
        "authentication.x509" => "KubeletX509Authentication",
        "authentication.webhook" => "KubeletWebhookAuthentication",
        "authentication.anonymous" => "KubeletAnonymousAuthentication",
        "authorization" => "KubeletAuthorization",
        "authorization.webhook" => "KubeletWebhookAuthorization",
        "memorySwap" => "MemorySwapConfiguration",
        "logging" => return ("LoggingConfiguration", LOGS),
        "logging.options" => return ("FormatOptions", LOGS),
        "logging.options.json" => return ("JSONOptions", LOGS),
        _ => return ("TracingConfiguration", "tracing.v1"),
    };
    (name, CONFIG)
}

const CONFIG: &str = "config.v1beta1";
const LOGS: &str = "logs.v1";

fn build() -> Type {
    structure("", &rows().collect::<Vec<_>>())
}

/// The type of the structure at a path.
fn structure(path: &str, rows: &[FieldRow]) -> Type {
    let mut fields = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    if path.is_empty() {
        let text = || Shape::Scalar(Scalar::String);
        fields.extend([Field::new("kind", text()), Field::new("apiVersion", text())]);
    }
    for row in rows {
        let rest = match path {
            "" => row.path,
            path => match row.path.strip_prefix(path).and_then(|rest| rest.strip_prefix('.')) {
                Some(rest) => rest,
                None => continue,
            },
        };
        let (name, is_leaf) = rest.split_once('.').map_or((rest, true), |(name, _)| (name, false));
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        if is_leaf {
            fields.push(leaf(name, row));
            continue;
        }
        let below = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let flags = if name == "tracing" { Flags::NILABLE } else { Flags::NONE };
        let shape = Shape::Struct(structure(&below, rows).into());
        fields.push(Field { flags, ..Field::new(name.to_owned(), shape) });
    }
    let (name, package) = go_type(path);
    Type::new(name, package, fields)
}

fn leaf(name: &str, row: &FieldRow) -> Field {
    let scalar = Shape::Scalar;
    let list = |item| Shape::List(ListShape { item, kind: ListKind::Atomic, default: None }.into());
    let map = |value| {
        Shape::Map(MapShape { value, atomic: false, nullable: false, open: false, default: None }.into())
    };
    let shape = match row.base() {
        "bool" => scalar(Scalar::Bool),
        "int32" => scalar(Scalar::Int32),
        "int64" | "verbosity" | "nanoseconds" => scalar(Scalar::Int64),
        "float" => scalar(Scalar::Float),
        "duration" => scalar(Scalar::Duration),
        "strings" => list(scalar(Scalar::String)),
        "map" | "thresholds" | "option" => map(scalar(Scalar::String)),
        "quantity" => scalar(Scalar::Quantity),
        "boolmap" => map(scalar(Scalar::Bool)),
        "listmap" => map(list(scalar(Scalar::String))),
        "[]vmodule" => list(item(
            ("VModuleItem", LOGS),
            &[("filePattern", Scalar::String, ""), ("verbosity", Scalar::Int64, "")],
        )),
        "[]shutdown" => list(item(
            ("ShutdownGracePeriodByPodPriority", CONFIG),
            &[("priority", Scalar::Int32, ""), ("shutdownGracePeriodSeconds", Scalar::Int64, "")],
        )),
        "[]taint" => list(item(
            ("Taint", "core.v1"),
            &[
                ("key", Scalar::String, ""),
                ("value", Scalar::String, ""),
                ("effect", Scalar::String, "v1.TaintEffect"),
                ("timeAdded", Scalar::Time, ""),
            ],
        )),
        "[]memory" => {
            let mut ty = vec![Field::new("numaNode", scalar(Scalar::Int32))];
            let limits = Field::new("limits", map(scalar(Scalar::Quantity)));
            ty.push(Field { named: "v1.ResourceList".into(), ..limits });
            list(Shape::Struct(Type::new("MemoryReservation", CONFIG, ty).into()))
        }
        _ => scalar(Scalar::String),
    };
    let flags = if row.is_pointer() { Flags::NILABLE } else { Flags::NONE };
    let named = match row.base() {
        "mode" => "v1beta1.KubeletAuthorizationMode",
        "strategy" => "v1beta1.ResourceChangeDetectionStrategy",
        _ => "",
    };
    Field { flags, named: named.into(), ..Field::new(name.to_owned(), shape) }
}

/// A structure of scalars, each with the Go name of its type if it has one of its own.
fn item(
    (name, package): (&'static str, &'static str),
    fields: &[(&'static str, Scalar, &'static str)],
) -> Shape {
    let field = |(name, scalar, named): &(&'static str, Scalar, &'static str)| Field {
        named: (*named).into(),
        ..Field::new(*name, Shape::Scalar(*scalar))
    };
    Shape::Struct(Type::new(name, package, fields.iter().map(field).collect()).into())
}
