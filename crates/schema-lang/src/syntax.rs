//! The syntax tree of a file of the schema language; names are not resolved yet.
//!
//! Lines are kept with whatever may turn out to be wrong once all files are known.

use std::borrow::Cow;

use tables::table::{
    Column, Flags, Group, Lifecycle, ListKind, Patch, Rule, Scalar, Selectable, Text, Union,
};

pub(super) struct File {
    pub name: String,
    pub package: String,
    pub imports: Vec<Import>,
    pub types: Vec<TypeDecl>,
}

pub(super) struct Import {
    pub alias: String,
    pub package: String,
    pub line: u32,
}

pub(super) struct TypeDecl {
    pub line: u32,
    pub name: String,
    pub doc: String,
    pub atomic: bool,
    pub open: bool,
    pub one_of: bool,
    pub members: Vec<Member>,
    pub unions: Vec<(u32, Union)>,
    pub kind: Option<KindDecl>,
}

pub(super) enum Member {
    Field(Box<FieldDecl>),
    Inline { line: u32, number: u16, ty: TypeName },
}

pub(super) struct FieldDecl {
    pub line: u32,
    pub name: String,
    pub number: u16,
    pub within: Vec<u16>,
    pub ty: TypeExpr,
    pub flags: Flags,
    pub default: Option<String>,
    pub rules: Vec<Rule>,
    pub list: Option<ListKind>,
    pub map_atomic: bool,
    pub granular: bool,
    pub patch: Patch,
    pub named: String,
    pub proto_name: String,
    pub doc: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TypeName {
    pub alias: Option<String>,
    pub name: String,
}

pub(super) enum TypeExpr {
    Scalar(Scalar),
    Named(TypeName),
    List(Box<TypeExpr>),
    Map(Box<TypeExpr>),
}

pub(super) struct KindDecl {
    pub group: Group,
    pub version: String,
    /// Empty for a kind that is not served.
    pub plural: String,
    pub singular: String,
    pub namespaced: Option<bool>,
    pub short_names: Vec<Text>,
    pub categories: Vec<Text>,
    pub verbs: Vec<Text>,
    pub subresources: Vec<SubresourceDecl>,
    pub selectable: Vec<(u32, Selectable)>,
    pub columns: Vec<(u32, Column)>,
    pub stored_as: Option<(Group, Text)>,
    pub hashed_as: Option<(Group, Text)>,
    /// No release serves it; it is only read.
    pub retired: bool,
    /// Versions of the same form that no release serves.
    pub retired_as: Vec<(Group, Text)>,
    pub store_key: String,
    pub put_creates: bool,
    pub unconditional_update: bool,
    pub counts_generation: bool,
    pub expires: bool,
    pub unstored: bool,
    pub selects_namespace: bool,
    pub selects_by_name: bool,
    pub on: bool,
    pub gate: String,
    pub lifecycle: Lifecycle,
}

pub(super) struct SubresourceDecl {
    pub line: u32,
    pub name: String,
    pub verbs: Vec<Text>,
    pub kind: Option<String>,
    pub group_version: Option<(Group, Text)>,
}

pub(super) fn text(it: &str) -> Text {
    Cow::Owned(it.to_string())
}
