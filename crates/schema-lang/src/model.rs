//! The model of a set of API files: every name resolved, every list type final.

use tables::table::{
    Column, Flags, Group, Lifecycle, ListKind, Literal, Patch, ProtoName, Rule, Scalar, Selectable,
    Subresource, Text, Union,
};

/// All types and kinds, ordered by package and name.
pub(super) struct Model {
    pub types: Vec<TypeModel>,
    pub kinds: Vec<KindModel>,
}

pub(super) struct TypeModel {
    pub name: String,
    pub package: String,
    pub doc: String,
    pub atomic: bool,
    pub open: bool,
    pub one_of: bool,
    pub fields: Vec<FieldModel>,
    pub unions: Vec<Union>,
    pub proto_names: Vec<ProtoName>,
}

#[derive(Clone)]
pub(super) struct FieldModel {
    pub name: String,
    pub number: u16,
    /// Numbers of the nested messages that hold it, outermost first.
    pub within: Vec<u16>,
    pub shape: ShapeModel,
    pub flags: Flags,
    pub default: Option<Literal>,
    pub rules: Vec<Rule>,
    pub patch: Patch,
    pub named: String,
    pub proto_name: String,
    pub doc: String,
}

impl FieldModel {
    /// Whether the normal form always has the field.
    pub fn stands(&self) -> bool {
        self.flags.stands(match &self.shape {
            ShapeModel::Struct(_) => true,
            ShapeModel::Scalar(scalar) => scalar.is_written_empty(),
            ShapeModel::List(..) | ShapeModel::Map(..) => false,
        })
    }
}

#[derive(Clone)]
pub(super) enum ShapeModel {
    Scalar(Scalar),
    /// Position in [`Model::types`].
    Struct(usize),
    List(Box<ShapeModel>, ListKind),
    Map(Box<ShapeModel>, bool),
}

pub(super) struct KindModel {
    pub name: String,
    /// Position in [`Model::types`].
    pub root: usize,
    pub group: Group,
    pub version: String,
    pub plural: String,
    pub singular: String,
    pub namespaced: bool,
    pub short_names: Vec<Text>,
    pub categories: Vec<Text>,
    pub verbs: Vec<Text>,
    pub subresources: Vec<Subresource>,
    pub selectable: Vec<Selectable>,
    pub columns: Vec<Column>,
    pub stored_as: Option<(Group, Text)>,
    pub hashed_as: Option<(Group, Text)>,
    pub retired: bool,
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
    pub doc: String,
}
