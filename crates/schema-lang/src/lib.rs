//! The schema language: API tables as text, checked and compiled into Rust.
//!
//! A file declares the types and kinds of one API version. Every line is one statement; words are divided by
//! blanks, indentation carries no meaning, `#` starts a comment, and text with blanks stands in `"quotes"`
//! (`\"` and `\\` inside). A quotation at the end of a statement, or on a separate line below `kind` or `type`, is its
//! documentation.
//!
//! ```text
//! package api.core.v1                          # OpenAPI package, without the reversed domain
//! group core                                   # the nameless group; others: apps, node.{domain}
//! version v1
//! import meta apimachinery.pkg.apis.meta.v1    # `meta.ObjectMeta` from here on
//!
//! kind Pod pods namespaced short=po category=all unconditional
//!   "containers that run together on one node"
//!   verbs create delete deletecollection get list patch update watch
//!   subresource status get patch update
//!   subresource eviction create as policy/v1 Eviction
//!   select spec.nodeName indexed
//!   select spec.host = spec.nodeName
//!   column Name string format=name .metadata.name "name of the pod"
//!   column IP string wide                      # no path: the kind's own code fills it
//!   1 metadata meta.ObjectMeta
//!   2 spec     PodSpec                         "what should run"
//!
//! type PodSpec "what a pod should be"
//!   2 containers            []Container required merge=name
//!   5 activeDeadlineSeconds int64?
//!   7 nodeSelector          {}string map=atomic
//!   1 volumes               []Volume merge=name,retainKeys
//!
//! type Probe
//!   inline 1 ProbeHandler
//!   2 initialDelaySeconds   int32
//! ```
//!
//! # Types
//!
//! `type Name [atomic] [open] [oneof] ["doc"]` declares a structure. `atomic`: merges replace it as a whole.
//! `open`: undeclared fields are kept. `oneof`: in JSON a value is one of the fields itself, by its form (an object, a
//! list, a boolean); only in protobuf is it a message. Its members follow, in the order of the JSON form:
//!
//! - `<number> <name> <type>[?] [attributes] ["doc"]` is a field. The number is the protobuf number; `-` when
//!   there is none; `4.1` is field 1 of a nested message that is field 4 and that JSON does not know.
//! - `inline [<number>] <Type>` takes over the fields of another type. In protobuf they stay in a nested
//!   message with that number, and nested messages in there stay too; without a number they are fields of
//!   this message.
//!
//! - `union <field> <field>=<Name>...` publishes the first field as the discriminator of the others.
//!
//! A type is `string bool int32 int64 float bytes time microtime duration quantity intorstring any object
//! fields`,
//! the name of a declared type (`alias.Name` from another package), `[]T` for a list, or `{}T` for a map with
//! string keys. `?` makes absent and zero different things.
//!
//! | attribute | meaning |
//! |---|---|
//! | `required` | published as required, and always written |
//! | `always` | written even when empty |
//! | `nullable` | `null` is a value of its own |
//! | `immutable` | cannot change after creation |
//! | `stamped` | filled in at the commit with the object's revision |
//! | `own` | `?` holds in the metadata of the object itself, not in that of an embedded object |
//! | `default=V` | value when absent: a scalar, `[a,b]` for a list of scalars, or JSON text of an object |
//! | `published` | the default is shown in the published schema |
//! | `min=` `max=` `minlen=` `maxlen=` `minitems=` `maxitems=` `nonempty` | constraints that are checked |
//! | `enum=A\|B` | the only values; checked and published |
//! | `values=A\|B` | the values to publish; the kind's own code checks |
//! | `format=F` | `dns1123label dns1123subdomain dns1035label qualifiedname labelvalue pathsegment ip portname envname configkey` |
//! | `named=N` | the name of its type, of its list of structures, of other items, or of the lists in its map, in errors: `N` of this version, or `package.N` |
//! | `proto=N` | its name in errors of protobuf messages, if it is not the JSON name in capitals |
//! | `list=atomic`, `list=set`, `list=map(k1,k2)` | the identity of items in apply |
//! | `map=atomic`, `map=granular` | apply owns the map as a whole; or field by field, where its type is atomic |
//! | `merge`, `merge=key`, `merge=key,retainKeys`, `retainKeys`, `replace` | strategic merge (on a scalar: published, without effect) |
//!
//! A list without `list=` gets its list type from strategic merge: `merge=key` is a map with that key, `merge`
//! a set, anything else is atomic. The compiled table holds the outcome.
//!
//! # Kinds
//!
//! `kind Name plural namespaced|cluster [attributes] ["doc"]` declares a structure that is served as a
//! resource. The fields `kind` and `apiVersion` come first by themselves. `kind Name` without a plural is a
//! kind that only travels: the body of a subresource, an answer; it may have columns. Attributes: `atomic`, `open` (as for types),
//! `singular=` (the lower-case name otherwise), `short=a,b`, `category=a,b`, `put=creates` (or `update-only`,
//! the default), `unconditional` (update without a resourceVersion), `generation` (counts changes of the
//! spec), `ttl` (objects expire), `store=` (segments of the key in the store, the plural otherwise; `{group}` is the group),
//! `stored=<group>/<version>` (kept as the kind of that name there), `group=` (when not the file's),
//! `hashed=<group>/<version>` (the version that discovery's hash of the stored form is made of),
//! `unstored` (answered and never kept), `select=name` (selectors cannot name the namespace),
//! `select=kind` (the error of an unknown selector names the kind), `off` (served only if an operator turns it on),
//! `gate=` (a feature gate that it also requires), `retired` (no longer served, without a plural:
//! objects of it are read where a store still has them), and the releases of its life:
//! `introduced= deprecated= removed=`, `instead=<group>/<version>`.
//!
//! Besides members, a kind may have
//!
//! - `verbs <verb>...`
//! - `subresource <name> <verb>... [as [<group>/<version>] <Kind>]`
//! - `select <label> [= <path>[|<path>...]] [absent=V] [indexed]`: a field that selectors may name; without `=`
//!   the label is the path. Of several paths the first non-empty one is read. Paths read the stored form,
//!   also when that is another kind's (`stored=`), which has the same path among its own. A path that ends at a
//!   list or structure reads as absent.
//! - `retired <group>/<version>...`: versions of the same form that are no longer served but are read.
//! - `column <name> <type> [format=F] [wide] [priority=N] [.path] ["doc"]`: `wide` is priority 1.
//!
//! # What it does not do
//!
//! It reads no files and knows no kind. It has no behaviour: conditional defaults, computed cells and validation across
//! fields are code. It does not parse the JSON text of a default; a test of `api` decodes every one.

mod attributes;
mod check;
mod emit;
mod model;
mod parse;
mod problem;
mod structs;
mod syntax;
mod terms;
#[cfg(test)]
mod tests;

pub use problem::{Problem, Problems, Source};

/// The Rust source of a set of API files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RustSource {
    /// Expects the crate `schema`. Holds a `pub static` for every type and kind, and the lists `TYPES` (sorted by
    /// package and name), `KINDS` (served as resources), `TRAVELLING` (kinds that are not) and `RETIRED` (versions
    /// that are only read).
    pub tables: String,
    /// A struct for every type, in one module per group and version.
    pub structs: String,
}

/// Compiles all files of an API together into Rust source.
pub fn compile(sources: &[Source<'_>]) -> Result<RustSource, Problems> {
    let mut problems = Vec::new();
    let files: Vec<_> = sources.iter().map(|source| parse::parse(source, &mut problems)).collect();
    let model = check::check(&files, &mut problems);
    if problems.is_empty() {
        return Ok(RustSource { tables: emit::emit(&model), structs: structs::emit(&model) });
    }
    problems.sort();
    problems.dedup();
    Err(Problems(problems))
}
