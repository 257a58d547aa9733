//! Types of expressions, and assignability.
//!
//! Type parameters are numbered and bound as a check goes on; a comparison that fails leaves no bindings behind.

use crate::declaration::{Declaration, Object, Shape};
use std::fmt;
use std::sync::Arc;

/// The type of an expression.
#[derive(Debug, Clone)]
pub enum Type {
    /// Known only at evaluation.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    Object(Arc<Object>),
    /// The type of a type; of any type if unspecified.
    Type(Option<Arc<Type>>),
    /// A type parameter.
    Param(u32),
    /// An error that is already reported; assignable to every type.
    Error,
    /// A type that inference did not determine; assignable to no type.
    Unknown,
}

impl Type {
    pub fn list(item: Type) -> Type {
        Type::List(Arc::new(item))
    }

    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn)
    }

    fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Error)
    }
}

impl Declaration {
    /// The type that expressions see; `None` if they do not see the value.
    pub fn ty(&self) -> Option<Type> {
        Some(match &self.shape {
            Shape::Dyn | Shape::IntOrString => Type::Dyn,
            Shape::Bool => Type::Bool,
            Shape::Int => Type::Int,
            Shape::Double => Type::Double,
            Shape::String => Type::String,
            Shape::Bytes => Type::Bytes,
            Shape::Duration => Type::Duration,
            Shape::Date | Shape::DateTime => Type::Timestamp,
            Shape::List(item, _) => Type::list(item.ty()?),
            Shape::Map(value) => Type::map(Type::String, value.ty()?),
            Shape::Object(object) => Type::Object(object.clone()),
            Shape::Opaque | Shape::Unreadable => return None,
        })
    }
}

/// Two object types are equal if they have the same name.
impl PartialEq for Type {
    fn eq(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::List(a), Type::List(b)) => a == b,
            (Type::Map(a), Type::Map(b)) => a == b,
            (Type::Object(a), Type::Object(b)) => a.name == b.name,
            (Type::Type(a), Type::Type(b)) => a == b,
            (Type::Param(a), Type::Param(b)) => a == b,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Dyn => "dyn",
            Type::Null => "null",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Duration => "duration",
            Type::Timestamp => "timestamp",
            Type::Error => "!error!",
            Type::Unknown => "<nil>",
            Type::List(item) => return write!(f, "list({item})"),
            Type::Map(map) => return write!(f, "map({}, {})", map.0, map.1),
            Type::Object(object) => &object.name,
            Type::Type(None) => "type",
            Type::Type(Some(of)) => return write!(f, "type({of})"),
            Type::Param(nth) => return write!(f, "_var{nth}"),
        })
    }
}

/// The current bindings of type parameters.
#[derive(Default)]
pub(crate) struct Bindings {
    bound: Vec<Option<Type>>,
    /// The previous bindings, for rollback.
    changes: Vec<(u32, Option<Type>)>,
}

impl Bindings {
    pub fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Param(self.bound.len() as u32 - 1)
    }

    fn find(&self, of: &Type) -> Option<&Type> {
        let Type::Param(nth) = of else { return None };
        self.bound.get(*nth as usize)?.as_ref()
    }

    fn bind(&mut self, of: &Type, to: Type) {
        let Type::Param(nth) = of else { return };
        if let Some(slot) = self.bound.get_mut(*nth as usize) {
            self.changes.push((*nth, slot.replace(to)));
        }
    }

    /// Whether two types are assignable.
    pub fn fits(&mut self, a: &Type, b: &Type) -> bool {
        self.all_fit(std::slice::from_ref(a), std::slice::from_ref(b))
    }

    /// Whether the types are assignable in pairs.
    pub fn all_fit(&mut self, a: &[Type], b: &[Type]) -> bool {
        self.changes.clear();
        let fits = a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.assign(a, b));
        if !fits {
            while let Some((nth, before)) = self.changes.pop() {
                self.bound[nth as usize] = before;
            }
        }
        fits
    }

    fn assign(&mut self, a: &Type, b: &Type) -> bool {
        if let Type::Param(_) = b {
            match self.substitute_for(a, b) {
                Substitution::Yes => return true,
                Substitution::Bound => return false,
                Substitution::No => {}
            }
        }
        if let Type::Param(_) = a {
            return matches!(self.substitute_for(b, a), Substitution::Yes);
        }
        if a.is_dyn_or_error() || b.is_dyn_or_error() {
            return true;
        }
        match (a, b) {
            (Type::Null, Type::Null | Type::Object(_) | Type::Duration | Type::Timestamp) => true,
            (Type::List(a), Type::List(b)) => self.assign(a, b),
            (Type::Map(a), Type::Map(b)) => self.assign(&a.0, &b.0) && self.assign(&a.1, &b.1),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::Unknown, _) => false,
            (a, b) => a == b,
        }
    }

    /// Whether a parameter can be bound to a type.
    fn substitute_for(&mut self, of: &Type, param: &Type) -> Substitution {
        if of == param {
            return Substitution::Yes;
        }
        if let Some(bound) = self.find(param).cloned() {
            if *of == bound {
                return Substitution::Yes;
            }
            if !self.assign(of, &bound) {
                return Substitution::Bound;
            }
            let general = more_general(of, &bound);
            if self.is_free_of(param, &general) {
                self.bind(param, general);
            }
            return Substitution::Yes;
        }
        if self.is_free_of(param, of) {
            self.bind(param, of.clone());
            return Substitution::Yes;
        }
        Substitution::No
    }

    /// The occurs check: whether a parameter is not part of the type that it would be bound to.
    fn is_free_of(&self, param: &Type, within: &Type) -> bool {
        if param == within {
            return false;
        }
        match within {
            Type::Param(_) => self.find(within).is_none_or(|bound| self.is_free_of(param, bound)),
            Type::List(item) => self.is_free_of(param, item),
            Type::Map(map) => self.is_free_of(param, &map.0) && self.is_free_of(param, &map.1),
            _ => true,
        }
    }

    /// The type with bound parameters replaced; with `finish`, unbound parameters become dynamic.
    pub fn substitute(&self, of: &Type, finish: bool) -> Type {
        if let Some(bound) = self.find(of) {
            return self.substitute(bound, finish);
        }
        match of {
            Type::Param(_) if finish => Type::Dyn,
            Type::List(item) => Type::list(self.substitute(item, finish)),
            Type::Map(map) => Type::map(self.substitute(&map.0, finish), self.substitute(&map.1, finish)),
            Type::Type(Some(of)) => Type::Type(Some(Arc::new(self.substitute(of, finish)))),
            other => other.clone(),
        }
    }
}

enum Substitution {
    Yes,
    /// The parameter is bound to another type.
    Bound,
    No,
}

pub(crate) fn more_general(a: &Type, b: &Type) -> Type {
    if is_equal_or_less_specific(a, b) { a.clone() } else { b.clone() }
}

fn is_equal_or_less_specific(a: &Type, b: &Type) -> bool {
    if a.is_dyn() || matches!(a, Type::Param(_)) {
        return true;
    }
    if b.is_dyn() || matches!(b, Type::Param(_)) {
        return false;
    }
    match (a, b) {
        (Type::List(a), Type::List(b)) => is_equal_or_less_specific(a, b),
        (Type::Map(a), Type::Map(b)) => {
            is_equal_or_less_specific(&a.0, &b.0) && is_equal_or_less_specific(&a.1, &b.1)
        }
        (Type::Type(_), Type::Type(_)) => true,
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_bound_and_loosened() {
        let mut bindings = Bindings::default();
        let param = bindings.fresh();
        assert!(bindings.all_fit(&[Type::Int, Type::Int], &[param.clone(), param.clone()]));
        assert_eq!(bindings.substitute(&param, false), Type::Int);
        assert!(bindings.fits(&Type::Dyn, &param));
        assert_eq!(bindings.substitute(&param, false), Type::Dyn);
    }

    #[test]
    fn failed_assignments_leave_no_bindings() {
        let mut bindings = Bindings::default();
        let param = bindings.fresh();
        assert!(!bindings.all_fit(&[Type::Int, Type::String], &[param.clone(), param.clone()]));
        assert_eq!(bindings.substitute(&param, true), Type::Dyn);
        assert!(!bindings.fits(&Type::list(param.clone()), &param.clone()), "no type is part of itself");
    }

    #[test]
    fn nothing_fits_objects_but_not_numbers() {
        let mut bindings = Bindings::default();
        assert!(bindings.fits(&Type::Null, &Type::Timestamp));
        assert!(!bindings.fits(&Type::Null, &Type::Int));
        assert!(!bindings.fits(&Type::Timestamp, &Type::Null));
    }
}
