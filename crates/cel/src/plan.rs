//! The planner: turns a checked expression into an executable one. Names become slots, constants are folded,
//! patterns are compiled.

use crate::check::CheckedExpr;
use crate::cost::Charge;
use crate::declaration::Declaration;
use crate::escape::unescape;
use crate::expr::{ACCUMULATOR, Expr, Fold, Kind, Literal, op};
use crate::fault::Fault;
use crate::library;
use crate::value::{CelValue, Key, List, Map, OwnedMap};
use schema::pattern::LazyRegex;
use std::collections::HashSet;
use std::sync::Arc;

/// Something to evaluate.
#[derive(Debug)]
pub(crate) enum Node {
    Constant(CelValue<'static>),
    /// A declared variable, by its position.
    Variable(usize),
    /// A variable of a fold around, by its place on the stack.
    Local(usize),
    Select(Box<Node>, FieldName),
    Index(Box<Node>, Box<Node>),
    Has(Box<Node>, FieldName),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Conditional(Box<[Node; 3]>),
    Call(Box<Call>),
    /// Whether a value is one of these constants.
    OneOf(Box<Node>, HashSet<Key>),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    Fold(Box<FoldPlan>),
    /// Appends to the list that a fold builds; `free` if the item is a constant.
    Append {
        slot: usize,
        item: Box<Node>,
        free: bool,
    },
}

/// A field as the expression writes it, and its name in the tree if there can be one.
#[derive(Debug)]
pub(crate) struct FieldName {
    pub escaped: String,
    pub name: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Call {
    pub function: &'static str,
    pub overload: Option<&'static str>,
    pub args: Vec<Node>,
    pub charge: Charge,
    pub pattern: Option<LazyRegex>,
}

#[derive(Debug)]
pub(crate) struct FoldPlan {
    pub range: Node,
    pub init: Node,
    pub condition: Node,
    pub step: Node,
    pub result: Node,
}

impl Node {
    /// Whether the path begins with a choice.
    pub fn begins_with_choice(&self) -> bool {
        match self {
            Node::Conditional(_) => true,
            Node::Select(operand, _) | Node::Index(operand, _) => operand.begins_with_choice(),
            _ => false,
        }
    }
}

/// Plans an expression, or tells why a constant part of it cannot be worked out.
pub(crate) fn plan(checked: &CheckedExpr, variables: &[(String, Declaration)]) -> Result<Plan, String> {
    let mut planner = Planner { checked, variables, scopes: Vec::new(), patterns: 0 };
    let node = planner.node(&checked.parsed.root)?;
    Ok(Plan { node, patterns: planner.patterns })
}

pub(crate) struct Plan {
    pub node: Node,
    /// About how many bytes the constant patterns take once they are used.
    pub patterns: usize,
}

struct Planner<'c> {
    checked: &'c CheckedExpr,
    variables: &'c [(String, Declaration)],
    /// Names of the variables on the stack.
    scopes: Vec<String>,
    patterns: usize,
}

impl Planner<'_> {
    fn node(&mut self, expr: &Expr) -> Result<Node, String> {
        if let Some(name) = self.checked.names.get(&expr.id) {
            return Ok(Node::Constant(CelValue::Type(name)));
        }
        Ok(match &expr.kind {
            Kind::Literal(literal) => Node::Constant(constant(literal)),
            Kind::Ident(name) => self.name(name)?,
            Kind::Select { operand, field, test } => {
                let operand = Box::new(self.node(operand)?);
                let name = unescape(field).map(|it| it.into_owned());
                let field = FieldName { escaped: field.clone(), name };
                if *test { Node::Has(operand, field) } else { Node::Select(operand, field) }
            }
            Kind::Call { function, target, args } => self.call(expr, function, target.as_deref(), args)?,
            Kind::List(items) => {
                let items = self.nodes(items)?;
                match constants(&items) {
                    Some(values) => Node::Constant(CelValue::list(values)),
                    None => Node::List(items),
                }
            }
            Kind::Map(entries) => self.map(entries)?,
            Kind::Fold(fold) => self.fold(fold)?,
            Kind::Message { .. } | Kind::Broken => return Err("unsupported expression".to_owned()),
        })
    }

    fn nodes(&mut self, exprs: &[Expr]) -> Result<Vec<Node>, String> {
        exprs.iter().map(|expr| self.node(expr)).collect()
    }

    fn name(&self, name: &str) -> Result<Node, String> {
        let plain = name.strip_prefix('.').unwrap_or(name);
        if let Some(slot) = self.scopes.iter().rposition(|it| it == plain) {
            return Ok(Node::Local(slot));
        }
        let variable = self.variables.iter().position(|(it, _)| it == plain);
        variable.map(Node::Variable).ok_or_else(|| format!("reference to undefined type: {plain}"))
    }

    fn map(&mut self, entries: &[(Expr, Expr)]) -> Result<Node, String> {
        let mut nodes = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            nodes.push((self.node(key)?, self.node(value)?));
        }
        let constant = |(key, value): &(Node, Node)| match (key, value) {
            (Node::Constant(key), Node::Constant(value)) => Some((key.clone(), value.clone())),
            _ => None,
        };
        match nodes.iter().map(constant).collect::<Option<Vec<_>>>() {
            Some(entries) => {
                let map = OwnedMap::new(entries).map_err(fault_text)?;
                Ok(Node::Constant(CelValue::Map(Map::Owned(Arc::new(map)))))
            }
            None => Ok(Node::Map(nodes)),
        }
    }

    fn call(
        &mut self,
        expr: &Expr,
        function: &str,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Result<Node, String> {
        let mut nodes = Vec::with_capacity(args.len() + 1);
        for arg in target.into_iter().chain(args) {
            nodes.push(self.node(arg)?);
        }
        let overload = self.checked.only_overload(expr.id);
        let mut args = nodes.into_iter();
        let mut next = || args.next().ok_or_else(|| format!("no such overload: {function}"));
        match function {
            op::AND => return Ok(Node::And(Box::new([next()?, next()?]))),
            op::OR => return Ok(Node::Or(Box::new([next()?, next()?]))),
            op::CONDITIONAL => return Ok(Node::Conditional(Box::new([next()?, next()?, next()?]))),
            op::INDEX => return Ok(Node::Index(Box::new(next()?), Box::new(next()?))),
            _ => {}
        }
        let args: Vec<Node> = args.collect();
        let plain = if target.is_none() { function.strip_prefix('.').unwrap_or(function) } else { function };
        let known = crate::functions::find(plain);
        let function = known.ok_or_else(|| format!("no such overload: {function}"))?.name;
        if overload == Some("in_list")
            && let [_, Node::Constant(CelValue::List(list))] = args.as_slice()
            && let Some(members) = members(list)
        {
            let value = args.into_iter().next().map(Box::new);
            return Ok(match value.filter(|_| !members.is_empty()) {
                Some(value) => Node::OneOf(value, members),
                None => Node::Constant(CelValue::Bool(false)),
            });
        }
        if CONVERSIONS.contains(&function)
            && let [Node::Constant(value)] = args.as_slice()
        {
            let value = library::call(function, overload, vec![value.clone()]).map_err(fault_text)?;
            return Ok(Node::Constant(value));
        }
        let pattern = match (function, args.get(1)) {
            ("matches" | "find" | "findAll", Some(Node::Constant(CelValue::String(pattern)))) => {
                self.patterns = self.patterns.saturating_add(schema::pattern::size(pattern)?);
                Some(LazyRegex::new(pattern))
            }
            _ => None,
        };
        let charge = Charge::of(function, overload);
        Ok(Node::Call(Box::new(Call { function, overload, args, charge, pattern })))
    }

    fn fold(&mut self, fold: &Fold) -> Result<Node, String> {
        let range = self.node(&fold.range)?;
        let init = self.node(&fold.init)?;
        let slot = self.scopes.len();
        self.scopes.push(ACCUMULATOR.to_owned());
        self.scopes.push(fold.variable.clone());
        let condition = self.node(&fold.condition)?;
        let step = appending(self.node(&fold.step)?, slot);
        self.scopes.pop();
        let result = self.node(&fold.result)?;
        self.scopes.pop();
        Ok(Node::Fold(Box::new(FoldPlan { range, init, condition, step, result })))
    }
}

const CONVERSIONS: &[&str] =
    &["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

fn fault_text(fault: Fault) -> String {
    match fault {
        Fault::Failed(why) => why.to_string(),
        Fault::OverBudget => "operation cancelled: actual cost limit exceeded".to_owned(),
    }
}

fn constant(literal: &Literal) -> CelValue<'static> {
    match literal {
        Literal::Null => CelValue::Null,
        Literal::Bool(value) => CelValue::Bool(*value),
        Literal::Int(value) => CelValue::Int(*value),
        Literal::Uint(value) => CelValue::Uint(*value),
        Literal::Double(value) => CelValue::Double(*value),
        Literal::String(value) => CelValue::string(value.as_str()),
        Literal::Bytes(value) => CelValue::Bytes(value.as_slice().into()),
    }
}

fn constants(nodes: &[Node]) -> Option<Vec<CelValue<'static>>> {
    let constant = |node: &Node| match node {
        Node::Constant(value) => Some(value.clone()),
        _ => None,
    };
    nodes.iter().map(constant).collect()
}

/// The comparable form of an item of a list of plain values; `None` for other lists.
fn members(list: &List<'static>) -> Option<HashSet<Key>> {
    let mut members = HashSet::new();
    for item in list.iter() {
        let item = item.ok()?;
        match &item {
            CelValue::Bool(_) | CelValue::String(_) | CelValue::Bytes(_) => {}
            CelValue::Double(number) => {
                members.extend(crate::value::whole(*number).map(Key::Int));
                let unsigned = *number >= 0.0 && number.fract() == 0.0 && *number < u64::MAX as f64;
                members.extend(unsigned.then_some(Key::Uint(*number as u64)));
            }
            CelValue::Int(number) => {
                members.extend(CelValue::Double(*number as f64).key());
                members.extend(u64::try_from(*number).map(Key::Uint));
            }
            CelValue::Uint(number) => {
                members.extend(CelValue::Double(*number as f64).key());
                members.extend(i64::try_from(*number).map(Key::Int));
            }
            _ => return None,
        }
        match item.key().ok()? {
            Key::Double(bits) if f64::from_bits(bits).is_nan() => {}
            key => {
                members.insert(key);
            }
        }
    }
    Some(members)
}

/// A step that adds a list of one item to the list so far appends instead, so that a fold does not copy.
fn appending(step: Node, slot: usize) -> Node {
    match step {
        Node::Conditional(parts) => {
            let [condition, yes, no] = *parts;
            Node::Conditional(Box::new([condition, appending(yes, slot), no]))
        }
        Node::Call(mut call) if call.function == op::ADD && call.args.len() == 2 => {
            let is_own = matches!(call.args[0], Node::Local(local) if local == slot);
            let one = match &mut call.args[1] {
                Node::List(items) if is_own && items.len() == 1 => items.pop().map(|item| (item, false)),
                Node::Constant(CelValue::List(list)) if is_own && list.len() == 1 => {
                    list.at(0).ok().map(|item| (Node::Constant(item), true))
                }
                _ => None,
            };
            match one {
                Some((item, free)) => Node::Append { slot, item: Box::new(item), free },
                None => Node::Call(call),
            }
        }
        other => other,
    }
}
