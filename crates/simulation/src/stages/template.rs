//! Templates of statuses: the part of Go's text templates that stages use.
//!
//! Fields, variables, pipelines, literals, calls in parentheses; `if`, `else`, `with`, `range`; trim marks and comments.
//! Functions are the [general ones](super::functions), and those that the caller has.

use super::functions::{call, is_true, text};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::vec::IntoIter;

/// Functions besides the general ones. `None` if there is none of this name.
pub type Functions<'f> = &'f dyn Fn(&str, &[Value]) -> Option<Result<Value, String>>;

/// Output of ranges is limited, since a template comes from a file.
const MAX_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Literal(Value),
    /// Fields of the current value.
    Field(Vec<String>),
    /// A variable, or `$` with an empty name, and fields of it.
    Variable(String, Vec<String>),
    Function(String),
    Group(Pipeline, Vec<String>),
}

/// Commands whose results are the last argument of the next one.
#[derive(Debug, Clone, PartialEq, Default)]
struct Pipeline {
    /// Variables that are set to the result.
    variables: Vec<String>,
    commands: Vec<Vec<Operand>>,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Text(String),
    Action(Pipeline),
    If(Pipeline, Vec<Node>, Vec<Node>),
    With(Pipeline, Vec<Node>, Vec<Node>),
    Range(Pipeline, Vec<Node>, Vec<Node>),
}

impl Node {
    fn functions<'n>(&'n self, names: &mut Vec<&'n str>) {
        match self {
            Node::Text(_) => {}
            Node::Action(pipeline) => pipeline.functions(names),
            Node::If(pipeline, body, otherwise)
            | Node::With(pipeline, body, otherwise)
            | Node::Range(pipeline, body, otherwise) => {
                pipeline.functions(names);
                body.iter().chain(otherwise).for_each(|it| it.functions(names));
            }
        }
    }
}

impl Pipeline {
    fn functions<'n>(&'n self, names: &mut Vec<&'n str>) {
        for operand in self.commands.iter().flatten() {
            match operand {
                Operand::Function(name) => names.push(name),
                Operand::Group(inner, _) => inner.functions(names),
                Operand::Literal(_) | Operand::Field(_) | Operand::Variable(..) => {}
            }
        }
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct Template(Vec<Node>);

/// A piece of the source.
enum Piece<'t> {
    Text(&'t str),
    Action(&'t str),
}

impl Template {
    pub fn parse(text: &str) -> Result<Self, String> {
        match parse_nodes(&mut pieces(text)?.into_iter())? {
            (nodes, End::Source) => Ok(Template(nodes)),
            _ => Err("a block ends that has not begun".to_owned()),
        }
    }

    /// The names of the functions that it calls.
    pub fn functions(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for node in &self.0 {
            node.functions(&mut names);
        }
        names
    }

    /// The text for an object.
    pub fn render(&self, object: &Value, functions: Functions<'_>) -> Result<String, String> {
        let mut renderer =
            Renderer { root: object, functions, variables: vec![HashMap::new()], out: String::new() };
        renderer.nodes(&self.0, object)?;
        Ok(renderer.out)
    }
}

fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let (mut pieces, mut rest, mut is_trimmed) = (Vec::new(), text, false);
    loop {
        let (before, action) = match rest.split_once("{{") {
            Some((before, after)) => (before, Some(after)),
            None => (rest, None),
        };
        let mut before = if is_trimmed { before.trim_start() } else { before };
        let Some(action) = action else {
            pieces.push(Piece::Text(before));
            return Ok(pieces);
        };
        let (mut action, after) = action.split_once("}}").ok_or("an action has no end")?;
        if let Some(trimmed) = action.strip_prefix("- ") {
            (before, action) = (before.trim_end(), trimmed);
        }
        is_trimmed = action.ends_with(" -");
        action = if is_trimmed { &action[..action.len() - 2] } else { action };
        pieces.push(Piece::Text(before));
        let action = action.trim();
        if !(action.starts_with("/*") && action.ends_with("*/")) {
            pieces.push(Piece::Action(action));
        }
        rest = after;
    }
}

/// Why a list of nodes ends.
enum End {
    Source,
    Block,
    Else(String),
}

fn parse_nodes(pieces: &mut IntoIter<Piece<'_>>) -> Result<(Vec<Node>, End), String> {
    let mut nodes = Vec::new();
    while let Some(piece) = pieces.next() {
        let action = match piece {
            Piece::Text(text) => {
                nodes.push(Node::Text(text.to_owned()));
                continue;
            }
            Piece::Action(action) => action,
        };
        let (word, rest) = action.split_once(char::is_whitespace).unwrap_or((action, ""));
        match word {
            "end" => return Ok((nodes, End::Block)),
            "else" => return Ok((nodes, End::Else(rest.trim().to_owned()))),
            "if" | "with" | "range" => nodes.push(parse_block(word, rest, pieces)?),
            "define" | "template" | "block" | "break" | "continue" => {
                return Err(format!("{word:?} is not understood"));
            }
            _ => nodes.push(Node::Action(parse_pipeline(action)?)),
        }
    }
    Ok((nodes, End::Source))
}

fn parse_block(word: &str, condition: &str, pieces: &mut IntoIter<Piece<'_>>) -> Result<Node, String> {
    let pipeline = parse_pipeline(condition)?;
    let (body, end) = parse_nodes(pieces)?;
    let otherwise = match end {
        End::Source => return Err(format!("{word:?} has no end")),
        End::Block => Vec::new(),
        End::Else(more) if more.is_empty() => match parse_nodes(pieces)? {
            (nodes, End::Block) => nodes,
            _ => return Err(format!("\"else\" of {word:?} has no end")),
        },
        End::Else(more) => {
            let (next, rest) = more.split_once(char::is_whitespace).unwrap_or((&more, ""));
            if !matches!(next, "if" | "with") {
                return Err(format!("\"else {next}\" is not understood"));
            }
            vec![parse_block(next, rest, pieces)?]
        }
    };
    Ok(match word {
        "if" => Node::If(pipeline, body, otherwise),
        "with" => Node::With(pipeline, body, otherwise),
        _ => Node::Range(pipeline, body, otherwise),
    })
}

fn parse_pipeline(text: &str) -> Result<Pipeline, String> {
    let mut parser = PipelineParser { rest: text.trim() };
    let pipeline = parser.pipeline().ok_or_else(|| format!("{text:?} is not understood"))?;
    match parser.rest.trim().is_empty() {
        true => Ok(pipeline),
        false => Err(format!("{text:?} is not understood")),
    }
}

struct PipelineParser<'t> {
    rest: &'t str,
}

impl PipelineParser<'_> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, text: &str) -> bool {
        self.skip();
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn word(&mut self) -> String {
        let end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word.to_owned()
    }

    fn pipeline(&mut self) -> Option<Pipeline> {
        let variables = self.variables();
        let mut commands = vec![self.command()?];
        while self.take("|") {
            commands.push(self.command()?);
        }
        Some(Pipeline { variables, commands })
    }

    /// `$a :=`, `$a =` or `$a, $b :=`.
    fn variables(&mut self) -> Vec<String> {
        let begin = self.rest;
        let mut names = Vec::new();
        while self.take("$") {
            names.push(self.word());
            if !self.take(",") {
                break;
            }
        }
        let is_set = !names.is_empty() && (self.take(":=") || self.take("="));
        if !is_set {
            self.rest = begin;
            names.clear();
        }
        names
    }

    fn command(&mut self) -> Option<Vec<Operand>> {
        let mut operands = Vec::new();
        loop {
            self.skip();
            if self.rest.is_empty() || self.rest.starts_with(['|', ')']) {
                return (!operands.is_empty()).then_some(operands);
            }
            operands.push(self.operand()?);
        }
    }

    fn fields(&mut self) -> Vec<String> {
        let mut fields = Vec::new();
        while let Some(rest) = self.rest.strip_prefix('.') {
            self.rest = rest;
            fields.push(self.word());
        }
        fields
    }

    fn operand(&mut self) -> Option<Operand> {
        let first = self.rest.chars().next()?;
        match first {
            '.' => Some(Operand::Field(self.fields()).map_empty()),
            '$' => {
                self.rest = &self.rest[1..];
                let name = self.word();
                Some(Operand::Variable(name, self.fields()))
            }
            '(' => {
                self.rest = &self.rest[1..];
                let inner = self.pipeline()?;
                self.take(")").then(|| Operand::Group(inner, self.fields()))
            }
            '`' => {
                let (text, rest) = self.rest[1..].split_once('`')?;
                self.rest = rest;
                Some(Operand::Literal(json!(text)))
            }
            '"' => {
                let mut values = serde_json::Deserializer::from_str(self.rest).into_iter::<Value>();
                let text = values.next()?.ok()?;
                self.rest = &self.rest[values.byte_offset()..];
                Some(Operand::Literal(text))
            }
            '-' | '0'..='9' => {
                let end = self.rest[1..]
                    .find(|c: char| !c.is_ascii_digit() && c != '.')
                    .map_or(self.rest.len(), |at| at + 1);
                let (number, rest) = self.rest.split_at(end);
                self.rest = rest;
                serde_json::from_str(number).ok().map(Operand::Literal)
            }
            _ if first.is_alphabetic() => Some(match &*self.word() {
                "true" => Operand::Literal(json!(true)),
                "false" => Operand::Literal(json!(false)),
                "nil" => Operand::Literal(Value::Null),
                name => Operand::Function(name.to_owned()),
            }),
            _ => None,
        }
    }
}

impl Operand {
    /// A lone dot is the current value itself.
    fn map_empty(self) -> Self {
        match self {
            Operand::Field(fields) if fields.iter().all(String::is_empty) => Operand::Field(Vec::new()),
            other => other,
        }
    }
}

fn at(value: &Value, fields: &[String]) -> Value {
    let mut current = value;
    for field in fields {
        current = current.get(field).unwrap_or(&Value::Null);
    }
    current.clone()
}

struct Renderer<'r> {
    root: &'r Value,
    functions: Functions<'r>,
    /// Variables by block.
    variables: Vec<HashMap<String, Value>>,
    out: String,
}

impl Renderer<'_> {
    fn nodes(&mut self, nodes: &[Node], dot: &Value) -> Result<(), String> {
        for node in nodes {
            if self.out.len() > MAX_BYTES {
                return Err(format!("the text has more than {MAX_BYTES} bytes"));
            }
            match node {
                Node::Text(text) => self.out.push_str(text),
                Node::Action(pipeline) => {
                    let value = self.pipeline(pipeline, dot)?;
                    match pipeline.variables.first() {
                        Some(name) => self.set(name, value),
                        None => self.out.push_str(&text(&value)),
                    }
                }
                Node::If(pipeline, body, otherwise) => {
                    let value = self.pipeline(pipeline, dot)?;
                    self.block(pipeline, &value, |it| {
                        it.nodes(if is_true(&value) { body } else { otherwise }, dot)
                    })?;
                }
                Node::With(pipeline, body, otherwise) => {
                    let value = self.pipeline(pipeline, dot)?;
                    self.block(pipeline, &value, |it| match is_true(&value) {
                        true => it.nodes(body, &value),
                        false => it.nodes(otherwise, dot),
                    })?;
                }
                Node::Range(pipeline, body, otherwise) => {
                    let value = self.pipeline(pipeline, dot)?;
                    self.range(pipeline, &value, body, otherwise, dot)?;
                }
            }
        }
        Ok(())
    }

    /// Runs the body of a block with variables of its own.
    fn block(
        &mut self,
        pipeline: &Pipeline,
        value: &Value,
        body: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let variables = pipeline.variables.iter().map(|name| (name.clone(), value.clone()));
        self.variables.push(variables.collect());
        let done = body(self);
        self.variables.pop();
        done
    }

    fn range(
        &mut self,
        pipeline: &Pipeline,
        value: &Value,
        body: &[Node],
        otherwise: &[Node],
        dot: &Value,
    ) -> Result<(), String> {
        let items: Vec<(Value, Value)> = match value {
            Value::Array(items) => {
                items.iter().enumerate().map(|(at, item)| (json!(at), item.clone())).collect()
            }
            Value::Object(fields) => fields.iter().map(|(key, item)| (json!(key), item.clone())).collect(),
            Value::Null => Vec::new(),
            other => return Err(format!("range cannot go over {other}")),
        };
        if items.is_empty() {
            return self.nodes(otherwise, dot);
        }
        for (key, item) in items {
            let mut variables = HashMap::new();
            match &*pipeline.variables {
                [of_item] => drop(variables.insert(of_item.clone(), item.clone())),
                [of_key, of_item, ..] => {
                    variables.insert(of_key.clone(), key);
                    variables.insert(of_item.clone(), item.clone());
                }
                [] => {}
            }
            self.variables.push(variables);
            let done = self.nodes(body, &item);
            self.variables.pop();
            done?;
        }
        Ok(())
    }

    /// Sets the variable of the nearest block that has it, or a new one.
    fn set(&mut self, name: &str, value: Value) {
        let scope = self.variables.iter().rposition(|it| it.contains_key(name));
        let scope = scope.unwrap_or(self.variables.len().saturating_sub(1));
        if let Some(variables) = self.variables.get_mut(scope) {
            variables.insert(name.to_owned(), value);
        }
    }

    fn pipeline(&self, pipeline: &Pipeline, dot: &Value) -> Result<Value, String> {
        let mut last = None;
        for command in &pipeline.commands {
            last = Some(self.command(command, dot, last)?);
        }
        last.ok_or_else(|| "an action is empty".to_owned())
    }

    fn command(&self, operands: &[Operand], dot: &Value, last: Option<Value>) -> Result<Value, String> {
        let Some((first, rest)) = operands.split_first() else { return Err("an action is empty".to_owned()) };
        let Operand::Function(name) = first else {
            return match rest.is_empty() && last.is_none() {
                true => self.operand(first, dot),
                false => Err("a value is not a function".to_owned()),
            };
        };
        let mut arguments = rest.iter().map(|it| self.operand(it, dot)).collect::<Result<Vec<_>, _>>()?;
        arguments.extend(last);
        self.call(name, &arguments)
    }

    fn call(&self, name: &str, arguments: &[Value]) -> Result<Value, String> {
        match (self.functions)(name, arguments) {
            Some(result) => result,
            None => call(name, arguments),
        }
    }

    fn operand(&self, operand: &Operand, dot: &Value) -> Result<Value, String> {
        match operand {
            Operand::Literal(value) => Ok(value.clone()),
            Operand::Field(fields) => Ok(at(dot, fields)),
            Operand::Variable(name, fields) if name.is_empty() => Ok(at(self.root, fields)),
            Operand::Variable(name, fields) => {
                let found = self.variables.iter().rev().find_map(|it| it.get(name));
                found.map(|value| at(value, fields)).ok_or_else(|| format!("${name} is not set"))
            }
            Operand::Function(name) => self.call(name, &[]),
            Operand::Group(pipeline, fields) => Ok(at(&self.pipeline(pipeline, dot)?, fields)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(template: &str) -> Result<String, String> {
        let object = json!({
            "metadata": {"name": "web", "labels": {"a": "1", "b": "2"}},
            "spec": {"hostNetwork": false, "containers": [{"name": "c", "image": "i"}, {"name": "d"}]},
        });
        let functions = |name: &str, arguments: &[Value]| match (name, arguments) {
            ("Now", []) => Some(Ok(json!("2020-01-01T00:00:00Z"))),
            ("NodeIPWith", [node]) => Some(Ok(json!(format!("ip of {}", text(node))))),
            _ => None,
        };
        Template::parse(template)?.render(&object, &functions)
    }

    #[test]
    fn actions_print_values() {
        for (template, expected) in [
            ("a {{ .metadata.name }} b", "a web b"),
            ("{{ $now := Now }}[{{ $now | Quote }}]", "[\"2020-01-01T00:00:00Z\"]"),
            ("{{ range .spec.containers }}{{ .name }},{{ end }}", "c,d,"),
            (
                "{{ range $i, $it := .spec.containers }}{{ $i }}{{ $it.name }}{{ $.metadata.name }} {{ end }}",
                "0cweb 1dweb ",
            ),
            ("{{ range .spec.none }}x{{ else }}none{{ end }}", "none"),
            ("{{ if .spec.hostNetwork }}h{{ else if eq .metadata.name \"web\" }}w{{ else }}n{{ end }}", "w"),
            ("{{ with .spec.none }}x{{ else }}{{ .metadata.name }}{{ end }}", "web"),
            ("a\n  {{- /* trimmed */ -}}  \nb", "ab"),
            ("a \n {{- .metadata.name -}} \n b", "awebb"),
            ("{{ NodeIPWith ( or .spec.nodeName .metadata.name ) | Quote }}", "\"ip of web\""),
            ("{{ index .metadata.labels \"b\" }}{{ (index .spec.containers 0).image }}", "2i"),
            ("{{ printf \"%s-%d%%\" .metadata.name 3 }}", "web-3%"),
            ("{{ $none := dict }}{{ or (index (or .metadata.none $none) \"a\") \"b\" }}", "b"),
            ("{{ (dict \"a\" 1 \"b\").a }}{{ YAML (dict 2 \"x\" \"c\") }}", "1\"2\": \"x\"\n\"c\": \"\"\n"),
            (
                "{{ range NodeConditions }}{{ .type }}={{ .status }} {{ end }}",
                "Ready=True MemoryPressure=False DiskPressure=False PIDPressure=False NetworkUnavailable=False ",
            ),
            ("{{ $a := 1 }}{{ if true }}{{ $a = 2 }}{{ end }}{{ $a }}", "2"),
            ("{{ if and (not .spec.hostNetwork) (gt (len .spec.containers) 1) }}y{{ end }}", "y"),
        ] {
            assert_eq!(render(template).as_deref(), Ok(expected), "{template}");
        }
        let parsed = render("x:\n{{ YAML .metadata 1 }}").unwrap();
        assert_eq!(parsed, "x:\n  \"labels\": {\"a\":\"1\",\"b\":\"2\"}\n  \"name\": \"web\"\n");
    }

    #[test]
    fn templates_that_are_not_understood_are_refused() {
        for template in [
            "{{ if .a }}",
            "{{ end }}",
            "{{ .a",
            "{{ template \"x\" }}",
            "{{ | }}",
            "{{ nothing .a }}",
            "{{ $b }}",
            "{{ .a .b }}",
        ] {
            assert!(render(template).is_err(), "{template}");
        }
    }
}
