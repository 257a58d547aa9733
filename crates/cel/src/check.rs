//! The type checker.
//!
//! Every part of an expression gets a type, names get their references, and calls get their possible overloads. All
//! issues are reported.

use crate::declaration::Declaration;
use crate::expr::{ACCUMULATOR, Expr, Fold, Id, Kind, Literal, ParsedExpr, qualified_name};
use crate::functions::{self, Function};
use crate::source::Source;
use crate::types::{Bindings, Type, more_general};
use std::collections::HashMap;
use std::sync::Arc;

/// A type-checked expression.
pub(crate) struct CheckedExpr {
    pub parsed: ParsedExpr,
    /// By id.
    pub types: Vec<Type>,
    /// The overloads that could take each call, by id.
    pub calls: HashMap<Id, Vec<&'static str>>,
    /// Names of types, by id.
    pub names: HashMap<Id, &'static str>,
}

impl CheckedExpr {
    pub fn ty(&self, expr: &Expr) -> &Type {
        self.types.get(expr.id as usize).unwrap_or(&Type::Unknown)
    }

    /// The overload of a call, where there is only one.
    pub fn only_overload(&self, id: Id) -> Option<&'static str> {
        match self.calls.get(&id)?.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }
}

/// Checks an expression; `None` when issues were reported.
pub(crate) fn check(
    parsed: ParsedExpr,
    source: &mut Source<'_>,
    variables: &[(String, Declaration)],
) -> Option<CheckedExpr> {
    let mut checker = Checker {
        source,
        places: &parsed.places,
        variables,
        scopes: Vec::new(),
        bindings: Bindings::default(),
        types: vec![Type::Unknown; parsed.places.len()],
        calls: HashMap::new(),
        names: HashMap::new(),
        across: false,
    };
    checker.visit(&parsed.root);
    let Checker { types, calls, names, bindings, .. } = checker;
    if source.has_issues() {
        return None;
    }
    let types = types.iter().map(|it| bindings.substitute(it, true)).collect();
    Some(CheckedExpr { parsed, types, calls, names })
}

/// Named types: the name, and the type itself.
fn named_type(name: &str) -> Option<(&'static str, Type)> {
    let (name, ty) = match name {
        "int" => ("int", Type::Int),
        "uint" => ("uint", Type::Uint),
        "bool" => ("bool", Type::Bool),
        "double" => ("double", Type::Double),
        "bytes" => ("bytes", Type::Bytes),
        "string" => ("string", Type::String),
        "list" => ("list", Type::list(Type::Dyn)),
        "map" => ("map", Type::map(Type::Dyn, Type::Dyn)),
        "null_type" => ("null_type", Type::Null),
        "type" => ("type", Type::Type(None)),
        "google.protobuf.Timestamp" => ("google.protobuf.Timestamp", Type::Timestamp),
        "google.protobuf.Duration" => ("google.protobuf.Duration", Type::Duration),
        _ => return None,
    };
    Some((name, Type::Type(Some(Arc::new(ty)))))
}

struct Checker<'c, 't> {
    source: &'c mut Source<'t>,
    places: &'c [u32],
    variables: &'c [(String, Declaration)],
    /// Variables of the folds around, innermost last.
    scopes: Vec<(String, Type)>,
    bindings: Bindings,
    types: Vec<Type>,
    calls: HashMap<Id, Vec<&'static str>>,
    names: HashMap<Id, &'static str>,
    /// Numbers of different types may be compared from the first fold on.
    across: bool,
}

impl Checker<'_, '_> {
    fn report(&mut self, id: Id, why: String) {
        let place = self.places.get(id as usize).copied().unwrap_or(0);
        let location = self.source.checked_location(place as usize);
        self.source.report(location, why);
    }

    fn undeclared(&mut self, id: Id, name: &str) {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"));
    }

    fn set(&mut self, id: Id, ty: Type) {
        if let Some(slot) = self.types.get_mut(id as usize) {
            *slot = ty;
        }
    }

    fn ty(&self, expr: &Expr) -> Type {
        self.types.get(expr.id as usize).cloned().unwrap_or(Type::Unknown)
    }

    fn visit(&mut self, expr: &Expr) {
        let literal = match &expr.kind {
            Kind::Literal(literal) => literal,
            Kind::Ident(name) => return self.ident(expr.id, name),
            Kind::Select { operand, field, test } => return self.select(expr, operand, field, *test),
            Kind::Call { function, target, args } => {
                return self.call(expr.id, function, target.as_deref(), args);
            }
            Kind::List(items) => return self.list(expr.id, items),
            Kind::Map(entries) => return self.map(expr.id, entries),
            Kind::Message { name, values } => return self.message(expr.id, name, values),
            Kind::Fold(fold) => return self.fold(expr.id, fold),
            Kind::Broken => return self.set(expr.id, Type::Error),
        };
        let ty = match literal {
            Literal::Null => Type::Null,
            Literal::Bool(_) => Type::Bool,
            Literal::Int(_) => Type::Int,
            Literal::Uint(_) => Type::Uint,
            Literal::Double(_) => Type::Double,
            Literal::String(_) => Type::String,
            Literal::Bytes(_) => Type::Bytes,
        };
        self.set(expr.id, ty);
    }

    /// The reference of a name.
    fn lookup(&mut self, id: Id, name: &str) -> Option<Type> {
        let plain = name.strip_prefix('.').unwrap_or(name);
        if let Some((_, ty)) = self.scopes.iter().rev().find(|(variable, _)| variable == plain) {
            return Some(ty.clone());
        }
        if let Some((_, declared)) = self.variables.iter().find(|(variable, _)| variable == plain) {
            return declared.ty();
        }
        let (name, ty) = named_type(plain)?;
        self.names.insert(id, name);
        Some(ty)
    }

    fn ident(&mut self, id: Id, name: &str) {
        match self.lookup(id, name) {
            Some(ty) => self.set(id, ty),
            None => {
                self.set(id, Type::Error);
                self.undeclared(id, name);
            }
        }
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, test: bool) {
        if let Some(name) = qualified_name(expr)
            && let Some(ty) = self.lookup(expr.id, &name)
        {
            return self.set(expr.id, ty);
        }
        self.visit(operand);
        let target = self.bindings.substitute(&self.ty(operand), false);
        let mut gives = match &target {
            Type::Map(map) => map.1.clone(),
            Type::Object(object) => match object.visible(field).and_then(|field| field.declaration.ty()) {
                Some(ty) => ty,
                None if !object.known && object.fields.is_empty() && object.name == "kubernetes.URL" => {
                    let why = format!("[internal] unexpected failed resolution of '{}'", object.name);
                    self.report(expr.id, why);
                    Type::Error
                }
                None => {
                    self.report(expr.id, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Param(_) => {
                self.bindings.fits(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            other => {
                self.report(expr.id, format!("type '{}' does not support field selection", spelled(other)));
                Type::Error
            }
        };
        if test {
            gives = Type::Bool;
        }
        self.set(expr.id, self.bindings.substitute(&gives, false));
    }

    fn call(&mut self, id: Id, name: &str, target: Option<&Expr>, args: &[Expr]) {
        for arg in args {
            self.visit(arg);
        }
        if let Some(target) = target {
            self.visit(target);
        }
        let plain = if target.is_none() { name.strip_prefix('.').unwrap_or(name) } else { name };
        match functions::find(plain) {
            Some(function) => self.resolve(id, function, target, args),
            None => {
                self.undeclared(id, name);
                if target.is_none() {
                    self.set(id, Type::Error);
                }
            }
        }
    }

    fn resolve(&mut self, id: Id, function: Function, target: Option<&Expr>, args: &[Expr]) {
        let given: Vec<Type> = target.into_iter().chain(args).map(|arg| self.ty(arg)).collect();
        let mut gives: Option<Type> = None;
        let mut fitting = Vec::new();
        for overload in function.overloads {
            if overload.member != target.is_some() || (overload.across && !self.across) {
                continue;
            }
            let (wanted, result) = overload.types(&mut self.bindings);
            if !self.bindings.all_fit(&given, &wanted) {
                continue;
            }
            fitting.push(overload.id);
            let result = self.bindings.substitute(&result, false);
            gives = Some(match gives {
                Some(before) if !before.is_dyn() && before != result => Type::Dyn,
                Some(before) => before,
                None => result,
            });
        }
        match gives {
            Some(gives) => {
                self.set(id, gives);
                self.calls.insert(id, fitting);
            }
            None => {
                let name = function.name;
                let given = signature(&given, target.is_some());
                self.report(id, format!("found no matching overload for '{name}' applied to '{given}'"));
                self.set(id, Type::Error);
            }
        }
    }

    /// The common type of all values in a literal, given that of the previous ones.
    fn join(&mut self, before: Option<Type>, expr: &Expr) -> Option<Type> {
        let ty = self.ty(expr);
        let Some(before) = before else { return Some(ty) };
        if self.bindings.fits(&before, &ty) {
            return Some(more_general(&before, &ty));
        }
        self.mismatch(expr.id, &before, &ty);
        Some(Type::Error)
    }

    fn mismatch(&mut self, id: Id, expected: &Type, found: &Type) {
        self.report(id, format!("expected type '{expected}' but found '{found}'"));
    }

    fn list(&mut self, id: Id, items: &[Expr]) {
        let mut item = None;
        for expr in items {
            self.visit(expr);
            item = self.join(item, expr);
        }
        let item = item.unwrap_or_else(|| self.bindings.fresh());
        self.set(id, Type::list(item));
    }

    fn map(&mut self, id: Id, entries: &[(Expr, Expr)]) {
        let (mut key, mut value) = (None, None);
        for (key_expr, value_expr) in entries {
            self.visit(key_expr);
            key = self.join(key, key_expr);
            self.visit(value_expr);
            value = self.join(value, value_expr);
        }
        let key = key.unwrap_or_else(|| self.bindings.fresh());
        let value = value.unwrap_or_else(|| self.bindings.fresh());
        self.set(id, Type::map(key, value));
    }

    /// Messages cannot be made: there is no type that could be named.
    fn message(&mut self, id: Id, name: &str, values: &[Expr]) {
        match self.lookup(id, name) {
            None => return self.undeclared(id, name),
            Some(Type::Type(Some(of))) => self.report(id, format!("'{of}' is not a message type")),
            Some(other) => self.report(id, format!("'{other}({})' is not a type", spelled(&other))),
        }
        self.set(id, Type::Error);
        for value in values {
            self.visit(value);
        }
    }

    fn fold(&mut self, id: Id, fold: &Fold) {
        self.visit(&fold.range);
        self.visit(&fold.init);
        let so_far = self.ty(&fold.init);
        let range = self.bindings.substitute(&self.ty(&fold.range), false);
        let item = match &range {
            Type::List(item) => (**item).clone(),
            Type::Map(map) => map.0.clone(),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.bindings.fits(&Type::Dyn, &range);
                Type::Dyn
            }
            other => {
                let why = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(fold.range.id, why);
                Type::Error
            }
        };
        self.across = true;
        self.scopes.push((ACCUMULATOR.to_owned(), so_far.clone()));
        self.scopes.push((fold.variable.clone(), item));
        self.visit(&fold.condition);
        self.assert(&fold.condition, &Type::Bool);
        self.visit(&fold.step);
        self.assert(&fold.step, &so_far);
        self.scopes.pop();
        self.visit(&fold.result);
        self.scopes.pop();
        self.set(id, self.bindings.substitute(&self.ty(&fold.result), false));
    }

    fn assert(&mut self, expr: &Expr, wanted: &Type) {
        let ty = self.ty(expr);
        if !self.bindings.fits(wanted, &ty) {
            self.mismatch(expr.id, wanted, &ty);
        }
    }
}

/// A type as errors about field selection spell it.
fn spelled(ty: &Type) -> String {
    match ty {
        Type::Null => "null:NULL_VALUE".to_owned(),
        Type::Bool => "primitive:BOOL".to_owned(),
        Type::Int => "primitive:INT64".to_owned(),
        Type::Uint => "primitive:UINT64".to_owned(),
        Type::Double => "primitive:DOUBLE".to_owned(),
        Type::String => "primitive:STRING".to_owned(),
        Type::Bytes => "primitive:BYTES".to_owned(),
        Type::Duration => "well_known:DURATION".to_owned(),
        Type::Timestamp => "well_known:TIMESTAMP".to_owned(),
        Type::Dyn => "dyn:{}".to_owned(),
        Type::List(item) => format!("list_type:{{elem_type:{{{}}}}}", spelled(item)),
        Type::Map(map) => {
            format!("map_type:{{key_type:{{{}}} value_type:{{{}}}}}", spelled(&map.0), spelled(&map.1))
        }
        Type::Object(object) => format!("message_type:\"{}\"", object.name),
        Type::Type(Some(of)) => format!("type:{{{}}}", spelled(of)),
        Type::Type(None) => "type:{}".to_owned(),
        Type::Param(nth) => format!("type_param:\"_var{nth}\""),
        Type::Error | Type::Unknown => "error:{}".to_owned(),
    }
}

fn signature(given: &[Type], member: bool) -> String {
    let (target, args) = given.split_at(usize::from(member));
    let target: String = target.iter().map(|it| format!("{it}.")).collect();
    let args: Vec<String> = args.iter().map(Type::to_string).collect();
    format!("{target}({})", args.join(", "))
}
