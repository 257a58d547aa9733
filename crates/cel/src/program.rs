//! The public interface: compiling and evaluating.

use crate::check;
use crate::cost::Budget;
use crate::declaration::Declaration;
use crate::estimate::{self, Estimate};
use crate::eval::Evaluator;
use crate::expr::{Expr, Kind};
use crate::fault::Fault;
use crate::parser;
use crate::plan::{self, Node, Plan};
use crate::source::{Issues, Source};
use crate::types::Type;
use crate::value::CelValue;
use schema::Value;
use std::sync::Arc;

/// The variables of expressions.
#[derive(Debug, Clone, Default)]
pub struct Env {
    variables: Arc<Vec<(String, Declaration)>>,
}

impl Env {
    pub fn new() -> Env {
        Env::default()
    }

    /// Adds a variable. The sizes of the first one bound the estimates of costs.
    pub fn variable(mut self, name: &str, declaration: Declaration) -> Env {
        let variables = Arc::make_mut(&mut self.variables);
        variables.retain(|(there, _)| there != name);
        variables.push((name.to_owned(), declaration));
        self
    }

    /// Compiles an expression.
    pub fn compile(&self, text: &str) -> Result<Program, CompileError> {
        let mut source = Source::new(text);
        let Some(parsed) = parser::parse(&mut source) else {
            return Err(CompileError::Issues(source.into_issues()));
        };
        let Some(checked) = check::check(parsed, &mut source, &self.variables) else {
            return Err(CompileError::Issues(source.into_issues()));
        };
        let Plan { node, patterns } =
            plan::plan(&checked, &self.variables).map_err(CompileError::Constant)?;
        let cost = estimate::estimate(&checked, self.variables.first().map(|(_, declared)| declared));
        let gives = checked.ty(&checked.parsed.root).clone();
        let mut used = vec![false; self.variables.len()];
        mark(&checked.parsed.root, &self.variables, &mut Vec::new(), &mut used);
        Ok(Program { node, cost, gives, used, patterns, variables: self.variables.clone() })
    }

    /// Compiles an expression that says yes or no.
    pub fn compile_rule(&self, text: &str) -> Result<Program, CompileError> {
        let program = self.compile(text)?;
        if program.gives == Type::Bool { Ok(program) } else { Err(CompileError::NotBool) }
    }
}

/// Notes which variables an expression refers to.
fn mark(expr: &Expr, variables: &[(String, Declaration)], scopes: &mut Vec<String>, used: &mut [bool]) {
    match &expr.kind {
        Kind::Ident(name) => {
            let plain = name.strip_prefix('.').unwrap_or(name);
            let hidden = scopes.iter().any(|it| it == plain);
            let position = variables.iter().position(|(it, _)| it == plain).filter(|_| !hidden);
            if let Some(used) = position.and_then(|at| used.get_mut(at)) {
                *used = true;
            }
        }
        Kind::Select { operand, .. } => mark(operand, variables, scopes, used),
        Kind::Call { target, args, .. } => {
            let parts = target.as_deref().into_iter().chain(args);
            parts.for_each(|part| mark(part, variables, scopes, used));
        }
        Kind::List(items) | Kind::Message { values: items, .. } => {
            items.iter().for_each(|item| mark(item, variables, scopes, used));
        }
        Kind::Map(entries) => {
            for part in entries.iter().flat_map(|(key, value)| [key, value]) {
                mark(part, variables, scopes, used);
            }
        }
        Kind::Fold(fold) => {
            mark(&fold.range, variables, scopes, used);
            mark(&fold.init, variables, scopes, used);
            scopes.push(fold.variable.clone());
            mark(&fold.condition, variables, scopes, used);
            mark(&fold.step, variables, scopes, used);
            scopes.pop();
            mark(&fold.result, variables, scopes, used);
        }
        Kind::Literal(_) | Kind::Broken => {}
    }
}

/// The error of a compilation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    #[error("compilation failed: {0}")]
    Issues(Issues),
    #[error("cel expression must evaluate to a bool")]
    NotBool,
    /// A constant part of it fails.
    #[error("program instantiation failed: {0}")]
    Constant(String),
}

/// A compiled expression.
#[derive(Debug)]
pub struct Program {
    node: Node,
    cost: Estimate,
    gives: Type,
    used: Vec<bool>,
    patterns: usize,
    variables: Arc<Vec<(String, Declaration)>>,
}

impl Program {
    /// Its estimated cost.
    pub fn cost(&self) -> Estimate {
        self.cost
    }

    /// About how many bytes its constant patterns take once they are used.
    pub fn patterns(&self) -> usize {
        self.patterns
    }

    /// The type of its result.
    pub fn gives(&self) -> &Type {
        &self.gives
    }

    /// Whether it refers to a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.variables.iter().zip(&self.used).any(|((name, _), used)| *used && name == variable)
    }

    /// Evaluates it.
    pub fn eval<'a>(
        &'a self,
        variables: &Variables<'a>,
        budget: &mut Budget,
    ) -> Result<CelValue<'a>, EvalError> {
        let mut values = Vec::with_capacity(self.variables.len());
        for (name, declared) in self.variables.iter() {
            let given = variables.values.iter().find(|(given, _)| given == name);
            values.push(given.map(|(_, value)| CelValue::read(value, declared)));
        }
        Ok(Evaluator::new(&values, budget).eval(&self.node)?)
    }

    /// Evaluates an expression that says yes or no.
    pub fn holds(&self, variables: &Variables<'_>, budget: &mut Budget) -> Result<bool, EvalError> {
        Ok(matches!(self.eval(variables, budget)?, CelValue::Bool(true)))
    }
}

/// The values of variables.
#[derive(Debug, Clone, Default)]
pub struct Variables<'a> {
    values: Vec<(&'a str, &'a Value)>,
}

impl<'a> Variables<'a> {
    pub fn new() -> Variables<'a> {
        Variables::default()
    }

    pub fn with(mut self, name: &'a str, value: &'a Value) -> Variables<'a> {
        self.values.push((name, value));
        self
    }
}

/// The error of an evaluation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    #[error("{0}")]
    Failed(String),
    #[error("operation cancelled: actual cost limit exceeded")]
    OverBudget,
}

impl From<Fault> for EvalError {
    fn from(fault: Fault) -> EvalError {
        match fault {
            Fault::Failed(why) => EvalError::Failed(why.to_string()),
            Fault::OverBudget => EvalError::OverBudget,
        }
    }
}
