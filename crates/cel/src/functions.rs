//! The function declarations: overloads with their parameter and result types.
//!
//! A function's overloads are tried in their fixed order.

use crate::types::{Bindings, Type};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// A type in a declaration; parameters are the overload's own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sig {
    Dyn,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    Url,
    A,
    B,
    List(&'static Sig),
    Map(&'static Sig, &'static Sig),
    TypeOf(&'static Sig),
}

pub(crate) struct Overload {
    pub id: &'static str,
    /// Called on its first argument: `a.f()`.
    pub member: bool,
    pub args: &'static [Sig],
    pub gives: Sig,
    /// Compares numbers of different types, which is only allowed in some places.
    pub across: bool,
}

const fn plain(id: &'static str, args: &'static [Sig], gives: Sig) -> Overload {
    Overload { id, member: false, args, gives, across: false }
}

const fn member(id: &'static str, args: &'static [Sig], gives: Sig) -> Overload {
    Overload { id, member: true, args, gives, across: false }
}

const fn across(id: &'static str, args: &'static [Sig]) -> Overload {
    Overload { id, member: false, args, gives: Sig::Bool, across: true }
}

use Sig::{A, B, Bool, Bytes, Double, Duration, Dyn, Int, String, Timestamp, Uint, Url};

const LIST_A: Sig = Sig::List(&A);
const MAP_AB: Sig = Sig::Map(&A, &B);
const STRINGS: Sig = Sig::List(&String);

/// The overloads of an ordering; their ids differ in the beginning only.
macro_rules! ordering {
    ($name:literal) => {
        &[
            plain(concat!($name, "_bool"), &[Bool, Bool], Bool),
            plain(concat!($name, "_int64"), &[Int, Int], Bool),
            across(concat!($name, "_int64_double"), &[Int, Double]),
            across(concat!($name, "_int64_uint64"), &[Int, Uint]),
            plain(concat!($name, "_uint64"), &[Uint, Uint], Bool),
            across(concat!($name, "_uint64_double"), &[Uint, Double]),
            across(concat!($name, "_uint64_int64"), &[Uint, Int]),
            plain(concat!($name, "_double"), &[Double, Double], Bool),
            across(concat!($name, "_double_int64"), &[Double, Int]),
            across(concat!($name, "_double_uint64"), &[Double, Uint]),
            plain(concat!($name, "_string"), &[String, String], Bool),
            plain(concat!($name, "_bytes"), &[Bytes, Bytes], Bool),
            plain(concat!($name, "_timestamp"), &[Timestamp, Timestamp], Bool),
            plain(concat!($name, "_duration"), &[Duration, Duration], Bool),
        ]
    };
}

/// A part of a time, of which some are parts of a duration too.
macro_rules! part_of_time {
    ($name:literal) => {
        &[
            member(concat!("timestamp_to_", $name), &[Timestamp], Int),
            member(concat!("timestamp_to_", $name, "_with_tz"), &[Timestamp, String], Int),
        ]
    };
    ($name:literal, duration) => {
        &[
            member(concat!("timestamp_to_", $name), &[Timestamp], Int),
            member(concat!("timestamp_to_", $name, "_with_tz"), &[Timestamp, String], Int),
            member(concat!("duration_to_", $name), &[Duration], Int),
        ]
    };
}

/// A function of lists whose items can be ordered.
macro_rules! of_ordered {
    ($id:literal, $(($name:literal, $item:ident, $gives:expr)),*) => {
        &[$(member(concat!("list_", $name, "_", $id), &[Sig::List(&$item)], $gives)),*]
    };
}

macro_rules! of_ordered_item {
    ($id:literal) => {
        of_ordered!(
            $id,
            ("int", Int, Int),
            ("uint", Uint, Uint),
            ("double", Double, Double),
            ("bool", Bool, Bool),
            ("duration", Duration, Duration),
            ("timestamp", Timestamp, Timestamp),
            ("string", String, String),
            ("bytes", Bytes, Bytes)
        )
    };
}

static ALL: &[(&str, &[Overload])] = &[
    ("_?_:_", &[plain("conditional", &[Bool, A, A], A)]),
    ("_&&_", &[plain("logical_and", &[Bool, Bool], Bool)]),
    ("_||_", &[plain("logical_or", &[Bool, Bool], Bool)]),
    ("!_", &[plain("logical_not", &[Bool], Bool)]),
    ("@not_strictly_false", &[plain("not_strictly_false", &[Bool], Bool)]),
    ("_==_", &[plain("equals", &[A, A], Bool)]),
    ("_!=_", &[plain("not_equals", &[A, A], Bool)]),
    (
        "_-_",
        &[
            plain("subtract_int64", &[Int, Int], Int),
            plain("subtract_uint64", &[Uint, Uint], Uint),
            plain("subtract_double", &[Double, Double], Double),
            plain("subtract_timestamp_timestamp", &[Timestamp, Timestamp], Duration),
            plain("subtract_timestamp_duration", &[Timestamp, Duration], Timestamp),
            plain("subtract_duration_duration", &[Duration, Duration], Duration),
        ],
    ),
    (
        "_*_",
        &[
            plain("multiply_int64", &[Int, Int], Int),
            plain("multiply_uint64", &[Uint, Uint], Uint),
            plain("multiply_double", &[Double, Double], Double),
        ],
    ),
    (
        "_/_",
        &[
            plain("divide_int64", &[Int, Int], Int),
            plain("divide_uint64", &[Uint, Uint], Uint),
            plain("divide_double", &[Double, Double], Double),
        ],
    ),
    ("_%_", &[plain("modulo_int64", &[Int, Int], Int), plain("modulo_uint64", &[Uint, Uint], Uint)]),
    (
        "_+_",
        &[
            plain("add_int64", &[Int, Int], Int),
            plain("add_uint64", &[Uint, Uint], Uint),
            plain("add_double", &[Double, Double], Double),
            plain("add_string", &[String, String], String),
            plain("add_bytes", &[Bytes, Bytes], Bytes),
            plain("add_list", &[LIST_A, LIST_A], LIST_A),
            plain("add_timestamp_duration", &[Timestamp, Duration], Timestamp),
            plain("add_duration_timestamp", &[Duration, Timestamp], Timestamp),
            plain("add_duration_duration", &[Duration, Duration], Duration),
        ],
    ),
    ("-_", &[plain("negate_int64", &[Int], Int), plain("negate_double", &[Double], Double)]),
    ("_[_]", &[plain("index_list", &[LIST_A, Int], A), plain("index_map", &[MAP_AB, A], B)]),
    (
        "size",
        &[
            member("string_size", &[String], Int),
            member("bytes_size", &[Bytes], Int),
            member("list_size", &[LIST_A], Int),
            member("map_size", &[MAP_AB], Int),
            plain("size_string", &[String], Int),
            plain("size_bytes", &[Bytes], Int),
            plain("size_list", &[LIST_A], Int),
            plain("size_map", &[MAP_AB], Int),
        ],
    ),
    ("@in", &[plain("in_list", &[A, LIST_A], Bool), plain("in_map", &[A, MAP_AB], Bool)]),
    ("type", &[plain("type", &[A], Sig::TypeOf(&A))]),
    (
        "int",
        &[
            plain("int64_to_int64", &[Int], Int),
            plain("uint64_to_int64", &[Uint], Int),
            plain("double_to_int64", &[Double], Int),
            plain("string_to_int64", &[String], Int),
            plain("timestamp_to_int64", &[Timestamp], Int),
            plain("duration_to_int64", &[Duration], Int),
        ],
    ),
    (
        "uint",
        &[
            plain("uint64_to_uint64", &[Uint], Uint),
            plain("int64_to_uint64", &[Int], Uint),
            plain("double_to_uint64", &[Double], Uint),
            plain("string_to_uint64", &[String], Uint),
        ],
    ),
    (
        "double",
        &[
            plain("double_to_double", &[Double], Double),
            plain("int64_to_double", &[Int], Double),
            plain("uint64_to_double", &[Uint], Double),
            plain("string_to_double", &[String], Double),
        ],
    ),
    ("bool", &[plain("bool_to_bool", &[Bool], Bool), plain("string_to_bool", &[String], Bool)]),
    (
        "string",
        &[
            plain("string_to_string", &[String], String),
            plain("bool_to_string", &[Bool], String),
            plain("int64_to_string", &[Int], String),
            plain("uint64_to_string", &[Uint], String),
            plain("double_to_string", &[Double], String),
            plain("bytes_to_string", &[Bytes], String),
            plain("timestamp_to_string", &[Timestamp], String),
            plain("duration_to_string", &[Duration], String),
        ],
    ),
    ("bytes", &[plain("bytes_to_bytes", &[Bytes], Bytes), plain("string_to_bytes", &[String], Bytes)]),
    (
        "timestamp",
        &[
            plain("timestamp_to_timestamp", &[Timestamp], Timestamp),
            plain("string_to_timestamp", &[String], Timestamp),
            plain("int64_to_timestamp", &[Int], Timestamp),
        ],
    ),
    (
        "duration",
        &[
            plain("duration_to_duration", &[Duration], Duration),
            plain("string_to_duration", &[String], Duration),
            plain("int64_to_duration", &[Int], Duration),
        ],
    ),
    ("dyn", &[plain("to_dyn", &[A], Dyn)]),
    ("contains", &[member("contains_string", &[String, String], Bool)]),
    ("endsWith", &[member("ends_with_string", &[String, String], Bool)]),
    ("matches", &[member("matches_string", &[String, String], Bool)]),
    ("startsWith", &[member("starts_with_string", &[String, String], Bool)]),
    ("getFullYear", part_of_time!("year")),
    ("getMonth", part_of_time!("month")),
    ("getDayOfYear", part_of_time!("day_of_year")),
    ("getDayOfMonth", part_of_time!("day_of_month")),
    ("getDate", part_of_time!("day_of_month_1_based")),
    ("getDayOfWeek", part_of_time!("day_of_week")),
    ("getHours", part_of_time!("hours", duration)),
    ("getMinutes", part_of_time!("minutes", duration)),
    ("getSeconds", part_of_time!("seconds", duration)),
    ("getMilliseconds", part_of_time!("milliseconds", duration)),
    ("_<_", ordering!("less")),
    ("_<=_", ordering!("less_equals")),
    ("_>_", ordering!("greater")),
    ("_>=_", ordering!("greater_equals")),
    ("url", &[plain("string_to_url", &[String], Url)]),
    ("isURL", &[plain("is_url_string", &[String], Bool)]),
    ("getScheme", &[member("url_get_scheme", &[Url], String)]),
    ("getHost", &[member("url_get_host", &[Url], String)]),
    ("getHostname", &[member("url_get_hostname", &[Url], String)]),
    ("getPort", &[member("url_get_port", &[Url], String)]),
    ("getEscapedPath", &[member("url_get_escaped_path", &[Url], String)]),
    ("getQuery", &[member("url_get_query", &[Url], Sig::Map(&String, &STRINGS))]),
    ("find", &[member("string_find_string", &[String, String], String)]),
    (
        "findAll",
        &[
            member("string_find_all_string", &[String, String], STRINGS),
            member("string_find_all_string_int", &[String, String, Int], STRINGS),
        ],
    ),
    (
        "isSorted",
        of_ordered!(
            "is_sorted_bool",
            ("int", Int, Bool),
            ("uint", Uint, Bool),
            ("double", Double, Bool),
            ("bool", Bool, Bool),
            ("duration", Duration, Bool),
            ("timestamp", Timestamp, Bool),
            ("string", String, Bool),
            ("bytes", Bytes, Bool)
        ),
    ),
    (
        "sum",
        of_ordered!(
            "sum",
            ("int", Int, Int),
            ("uint", Uint, Uint),
            ("double", Double, Double),
            ("duration", Duration, Duration)
        ),
    ),
    ("max", of_ordered_item!("max")),
    ("min", of_ordered_item!("min")),
    (
        "indexOf",
        &[
            member("list_a_index_of_int", &[LIST_A, A], Int),
            member("string_index_of_string", &[String, String], Int),
            member("string_index_of_string_int", &[String, String, Int], Int),
        ],
    ),
    (
        "lastIndexOf",
        &[
            member("list_a_last_index_of_int", &[LIST_A, A], Int),
            member("string_last_index_of_string", &[String, String], Int),
            member("string_last_index_of_string_int", &[String, String, Int], Int),
        ],
    ),
    ("charAt", &[member("string_char_at_int", &[String, Int], String)]),
    ("lowerAscii", &[member("string_lower_ascii", &[String], String)]),
    ("upperAscii", &[member("string_upper_ascii", &[String], String)]),
    (
        "replace",
        &[
            member("string_replace_string_string", &[String, String, String], String),
            member("string_replace_string_string_int", &[String, String, String, Int], String),
        ],
    ),
    (
        "split",
        &[
            member("string_split_string", &[String, String], STRINGS),
            member("string_split_string_int", &[String, String, Int], STRINGS),
        ],
    ),
    (
        "substring",
        &[
            member("string_substring_int", &[String, Int], String),
            member("string_substring_int_int", &[String, Int, Int], String),
        ],
    ),
    ("trim", &[member("string_trim", &[String], String)]),
    (
        "join",
        &[member("list_join", &[STRINGS], String), member("list_join_string", &[STRINGS, String], String)],
    ),
];

/// A function with its overloads.
#[derive(Clone, Copy)]
pub(crate) struct Function {
    pub name: &'static str,
    pub overloads: &'static [Overload],
}

static BY_NAME: LazyLock<HashMap<&'static str, Function>> =
    LazyLock::new(|| ALL.iter().map(|(name, overloads)| (*name, Function { name, overloads })).collect());

pub(crate) fn find(name: &str) -> Option<Function> {
    BY_NAME.get(name).copied()
}

/// The type of addresses, which have no fields.
pub(crate) static URL: LazyLock<Type> = LazyLock::new(|| {
    let object =
        crate::declaration::Object { name: "kubernetes.URL".to_owned(), fields: vec![], known: false };
    Type::Object(Arc::new(object))
});

impl Overload {
    /// Argument and result types, with fresh parameters.
    pub fn types(&self, bindings: &mut Bindings) -> (Vec<Type>, Type) {
        let mut params = [None, None];
        let mut uses = [false, false];
        for sig in self.args.iter().chain([&self.gives]) {
            sig.mark(&mut uses);
        }
        for (param, used) in params.iter_mut().zip(uses) {
            *param = used.then(|| bindings.fresh());
        }
        let args = self.args.iter().map(|sig| sig.ty(&params)).collect();
        (args, self.gives.ty(&params))
    }
}

impl Sig {
    fn mark(&self, uses: &mut [bool; 2]) {
        match self {
            Sig::A => uses[0] = true,
            Sig::B => uses[1] = true,
            Sig::List(item) | Sig::TypeOf(item) => item.mark(uses),
            Sig::Map(key, value) => {
                key.mark(uses);
                value.mark(uses);
            }
            _ => {}
        }
    }

    fn ty(&self, params: &[Option<Type>; 2]) -> Type {
        let param = |nth: usize| params[nth].clone().unwrap_or(Type::Dyn);
        match self {
            Sig::Dyn => Type::Dyn,
            Sig::Bool => Type::Bool,
            Sig::Int => Type::Int,
            Sig::Uint => Type::Uint,
            Sig::Double => Type::Double,
            Sig::String => Type::String,
            Sig::Bytes => Type::Bytes,
            Sig::Duration => Type::Duration,
            Sig::Timestamp => Type::Timestamp,
            Sig::Url => URL.clone(),
            Sig::A => param(0),
            Sig::B => param(1),
            Sig::List(item) => Type::list(item.ty(params)),
            Sig::Map(key, value) => Type::map(key.ty(params), value.ty(params)),
            Sig::TypeOf(of) => Type::Type(Some(Arc::new(of.ty(params)))),
        }
    }
}
