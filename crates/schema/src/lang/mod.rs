//! The schema language: API tables as text, checked and compiled into Rust.
//!
//! A file declares the types and kinds of one API version. Every line is one statement; words are divided by
//! blanks, indentation carries no meaning, `#` starts a comment, and text with blanks stands in `"quotes"`
//! (`\"` and `\\` inside). A quotation that ends a statement, or stands on a line of its own below `kind` or
//! `type`, is the documentation of what it belongs to.
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
//! `open`: undeclared fields are kept. `oneof`: in JSON a value is one of the fields itself, told by its form
//! (an object, a list, a truth); only in protobuf is it a message. Its members follow, in the order in which JSON is written:
//!
//! - `<number> <name> <type>[?] [attributes] ["doc"]` is a field. The number is the protobuf number; `-` when
//!   there is none; `4.1` is field 1 of a nested message that is field 4 and that JSON does not know.
//! - `inline [<number>] <Type>` takes over the fields of another type. In protobuf they stay in a nested
//!   message with that number, and nested messages in there stay too; without a number they are fields of
//!   this message.
//!
//! - `union <field> <field>=<Name>...` publishes that the first field says which of the others is there.
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
//! | `default=V` | value when absent: a scalar, `[a,b]` for a list of scalars, or JSON text of an object |
//! | `published` | the default is shown in the published schema |
//! | `min=` `max=` `minlen=` `maxlen=` `minitems=` `maxitems=` `nonempty` | constraints that are checked |
//! | `enum=A\|B` | the only values; checked and published |
//! | `values=A\|B` | the values to publish; the kind's own code checks |
//! | `format=F` | `dns1123label dns1123subdomain dns1035label qualifiedname labelvalue pathsegment ip portname envname configkey` |
//! | `named=N` | what errors call its type, or its items': `N` of this version, or `package.N` |
//! | `list=atomic`, `list=set`, `list=map(k1,k2)` | how apply tells items apart |
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
//! `select=told` (selectors that name something else are told of which kind it is), `off` (served
//! only when asked for), `gate=` (a feature gate it takes as well), `retired` (no longer served, without a plural:
//! objects of it are read where a store still has them), and the releases of its life:
//! `introduced= deprecated= removed=`, `instead=<group>/<version>`.
//!
//! Besides members, a kind may have
//!
//! - `verbs <verb>...`
//! - `subresource <name> <verb>... [as [<group>/<version>] <Kind>]`
//! - `select <label> [= <path>[|<path>...]] [absent=V] [indexed]`: a field that selectors may name; without `=`
//!   the label is the path. Of several paths the first that holds something is read. Paths read the stored form,
//!   also when that is another kind's (`stored=`), which has the same path among its own. A path that ends at a
//!   list or structure reads as absent.
//! - `retired <group>/<version>...`: versions of the same form that are no longer served but are read.
//! - `column <name> <type> [format=F] [wide] [priority=N] [.path] ["doc"]`: `wide` is priority 1.
//!
//! # What it does not do
//!
//! It reads no files and knows no kind. Behaviour is not written here: conditional defaults, computed cells
//! and validation across fields are code.

mod check;
mod emit;
mod fit;
mod parse;
mod structs;
mod syntax;
#[cfg(test)]
mod tests;

use std::fmt;

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    pub file: String,
    pub line: u32,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// Everything that is wrong with a set of files, in the order of files and lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            let end = if at + 1 < self.0.len() { "\n" } else { "" };
            write!(f, "{problem}{end}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// A file of the schema language: the name to report problems under, and its text.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

/// Rust source that is compiled from the schema language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// Expects the crate `schema`. Holds a `pub static` for every type and kind, and the lists `TYPES` (sorted by
    /// package and name), `KINDS` (served as resources), `TRAVELLING` (kinds that are not) and `RETIRED` (versions
    /// that are only read).
    pub tables: String,
    /// A struct for every type, in one module per group and version.
    pub structs: String,
}

/// Compiles all files of an API together into Rust source.
pub fn compile(sources: &[Source<'_>]) -> Result<Compiled, Problems> {
    let mut problems = Vec::new();
    let files: Vec<_> = sources.iter().map(|source| parse::parse(source, &mut problems)).collect();
    let model = check::check(&files, &mut problems);
    if problems.is_empty() {
        return Ok(Compiled { tables: emit::emit(&model), structs: structs::emit(&model) });
    }
    problems.sort();
    problems.dedup();
    Err(Problems(problems))
}
