//! A set of field paths, as a tree whose branches are the steps of the paths.
//!
//! ```text
//! metadata.labels, metadata.labels.a, metadata.labels.b, data
//!
//! {"f:data": {}, "f:metadata": {"f:labels": {".": {}, "f:a": {}, "f:b": {}}}}
//! ```
//!
//! A node is *in* the set when its path is: written as `"."` beside its children, or as an empty object when
//! it has none. Always true: branches are sorted, and none is empty. Every operation is one joint walk over
//! both sets.

use super::{Element, ManagedFieldsError};
use schema::source::{Json, Source, Token};
use schema::table::Text;
use schema::{Value, encode};
use std::cmp::Ordering;

/// A set of field paths.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSet {
    pub(crate) member: bool,
    children: Vec<(Element, FieldSet)>,
}

impl FieldSet {
    pub fn new() -> Self {
        Self::default()
    }

    /// The set of these paths of field names.
    pub fn of(paths: &[&[&'static str]]) -> Self {
        let mut set = FieldSet::new();
        for path in paths {
            set.insert(path.iter().map(|name| Element::Field(Text::Borrowed(name))));
        }
        set
    }

    /// Puts one path in; the empty path is not kept.
    pub fn insert(&mut self, path: impl IntoIterator<Item = Element>) {
        let mut here = self;
        let mut depth = 0;
        for element in path {
            depth += 1;
            let at = match here.children.binary_search_by(|(it, _)| it.cmp(&element)) {
                Ok(at) => at,
                Err(at) => {
                    here.children.insert(at, (element, FieldSet::new()));
                    at
                }
            };
            here = &mut here.children[at].1;
        }
        here.member |= depth > 0;
    }

    /// Whether the path is in the set.
    pub fn contains<'a>(&self, path: impl IntoIterator<Item = &'a Element>) -> bool {
        let mut here = self;
        for element in path {
            match here.below(element) {
                Some(next) => here = next,
                None => return false,
            }
        }
        here.member
    }

    /// The set below a step.
    pub fn below(&self, element: &Element) -> Option<&FieldSet> {
        let at = self.children.binary_search_by(|(it, _)| it.cmp(element)).ok()?;
        Some(&self.children[at].1)
    }

    /// The set below a field of this name.
    pub(crate) fn below_field(&self, name: &str) -> Option<&FieldSet> {
        let order = |it: &Element| match it {
            Element::Field(field) => (**field).cmp(name),
            _ => Ordering::Greater,
        };
        let at = self.children.binary_search_by(|(it, _)| order(it)).ok()?;
        Some(&self.children[at].1)
    }

    pub fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    /// The number of paths in the set.
    pub fn len(&self) -> usize {
        usize::from(self.member) + self.children.iter().map(|(_, below)| below.len()).sum::<usize>()
    }

    /// The next steps, each with its subtree.
    pub fn children(&self) -> impl Iterator<Item = (&Element, &FieldSet)> {
        self.children.iter().map(|(element, below)| (element, below))
    }

    pub(super) fn children_mut(&mut self) -> impl Iterator<Item = (&Element, &mut FieldSet)> {
        self.children.iter_mut().map(|(element, below)| (&*element, below))
    }

    pub(super) fn has_children(&self) -> bool {
        !self.children.is_empty()
    }

    /// A path without further steps.
    pub(super) fn leaf() -> Self {
        FieldSet { member: true, children: Vec::new() }
    }

    pub(super) fn reserve(&mut self, branches: usize) {
        self.children.reserve(branches);
    }

    /// Puts a branch behind all others; walks that go in order build sets this way.
    pub(crate) fn push(&mut self, element: Element, below: FieldSet) {
        debug_assert!(self.children.last().is_none_or(|(last, _)| *last < element), "branches come in order");
        if !below.is_empty() {
            self.children.push((element, below));
        }
    }

    /// Adds every path of the other set.
    pub fn unite(&mut self, other: FieldSet) {
        self.member |= other.member;
        if other.children.is_empty() {
            return;
        }
        if self.children.is_empty() {
            self.children = other.children;
            return;
        }
        let ours = std::mem::take(&mut self.children);
        self.children.reserve(ours.len().max(other.children.len()));
        let mut theirs = other.children.into_iter().peekable();
        for (element, mut below) in ours {
            while let Some(branch) = theirs.next_if(|(it, _)| *it < element) {
                self.children.push(branch);
            }
            if let Some((_, more)) = theirs.next_if(|(it, _)| *it == element) {
                below.unite(more);
            }
            self.children.push((element, below));
        }
        self.children.extend(theirs);
    }

    /// All paths of many sets. They are united in pairs, then in pairs of pairs: each path is moved as often as
    /// the number of sets can be halved.
    pub(crate) fn unite_all(mut sets: Vec<FieldSet>) -> FieldSet {
        while sets.len() > 1 {
            let mut pairs = sets.into_iter();
            let mut united = Vec::with_capacity(pairs.len().div_ceil(2));
            while let Some(mut one) = pairs.next() {
                if let Some(other) = pairs.next() {
                    one.unite(other);
                }
                united.push(one);
            }
            sets = united;
        }
        sets.pop().unwrap_or_default()
    }

    /// Whether searching the other set for each branch is less work than a walk over both.
    fn is_short_beside(&self, other: &FieldSet) -> bool {
        const SEARCH: usize = 16;
        self.children.len().saturating_mul(SEARCH) < other.children.len()
    }

    /// Removes every path of the other set, but not the paths below it.
    pub fn subtract(&mut self, other: &FieldSet) {
        self.member &= !other.member;
        self.join(other, |below, theirs| below.subtract(theirs));
    }

    /// Removes every path of the other set, with everything below it.
    pub fn subtract_below(&mut self, other: &FieldSet) {
        self.join(
            other,
            |below, theirs| {
                if theirs.member { *below = FieldSet::new() } else { below.subtract_below(theirs) }
            },
        );
    }

    /// Visits the branches that both sets have, and removes branches that become empty.
    fn join(&mut self, other: &FieldSet, change: impl Fn(&mut FieldSet, &FieldSet)) {
        if other.children.is_empty() {
            return;
        }
        if self.is_short_beside(other) {
            return self.children.retain_mut(|(element, below)| {
                if let Some(theirs) = other.below(element) {
                    change(below, theirs);
                }
                !below.is_empty()
            });
        }
        let mut theirs = other.children.iter().peekable();
        self.children.retain_mut(|(element, below)| {
            while theirs.next_if(|(it, _)| it < element).is_some() {}
            if let Some((_, theirs)) = theirs.next_if(|(it, _)| it == element) {
                change(below, theirs);
            }
            !below.is_empty()
        });
    }

    /// Whether the other set has every path of this one.
    pub fn is_within(&self, other: &FieldSet) -> bool {
        if self.member && !other.member {
            return false;
        }
        if self.is_short_beside(other) {
            let mut ours = self.children.iter();
            return ours.all(|(it, below)| other.below(it).is_some_and(|theirs| below.is_within(theirs)));
        }
        let mut theirs = other.children.iter();
        self.children.iter().all(|(element, below)| {
            theirs
                .find(|(it, _)| it >= element)
                .is_some_and(|(it, theirs)| it == element && below.is_within(theirs))
        })
    }

    /// The paths that both sets have.
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut both = FieldSet { member: self.member && other.member, children: Vec::new() };
        let (short, long) = if other.is_short_beside(self) { (other, self) } else { (self, other) };
        if short.is_short_beside(long) {
            for (element, below) in &short.children {
                if let Some(theirs) = long.below(element) {
                    both.push(element.clone(), below.intersection(theirs));
                }
            }
            return both;
        }
        let (mut ours, mut theirs) = (self.children.iter().peekable(), other.children.iter().peekable());
        while let (Some((a, below_a)), Some((b, below_b))) = (ours.peek(), theirs.peek()) {
            match a.cmp(b) {
                Ordering::Less => drop(ours.next()),
                Ordering::Greater => drop(theirs.next()),
                Ordering::Equal => {
                    both.push(a.clone(), below_a.intersection(below_b));
                    ours.next();
                    theirs.next();
                }
            }
        }
        both
    }

    /// How many paths of this set are in the one that `text` is of. The text is one that [`FieldSet::to_text`]
    /// gave; what this set has nothing of is passed by without a look.
    pub(super) fn count_in(&self, text: &str) -> Result<usize, ManagedFieldsError> {
        let mut json = Json::canonical(text);
        match json.value()? {
            Token::Map => self.count_below(&mut json),
            _ => Err(ManagedFieldsError::NotAnObject),
        }
    }

    fn count_below(&self, json: &mut Json<'_>) -> Result<usize, ManagedFieldsError> {
        let (mut count, mut marked, mut leaf) = (0, false, true);
        while let Some(key) = json.key()? {
            let token = json.value()?;
            let below = self.below_written(&key);
            marked |= key == ".";
            leaf &= key == ".";
            match (below, &token) {
                (Some(below), Token::Map) => count += below.count_below(json)?,
                _ => json.skip(&token)?,
            }
        }
        Ok(count + usize::from(self.member && (marked || leaf)))
    }

    /// The subset below a step with this text. Few steps are looked through, which spares reading it.
    fn below_written(&self, key: &str) -> Option<&FieldSet> {
        const FEW: usize = 16;
        if self.children.len() <= FEW {
            let mut all = self.children.iter();
            return all.find(|(element, _)| element.is_written(key)).map(|(_, below)| below);
        }
        self.below(&Element::parse(key).ok().flatten()?)
    }

    /// Whether this set has every path of the one that `text` is of; text in another order than sets are
    /// written in may be said to be beyond it.
    pub(super) fn covers(&self, text: &str) -> Result<bool, ManagedFieldsError> {
        let mut json = Json::canonical(text);
        match json.value()? {
            // the root has no path
            Token::Map => self.covers_below(&mut json, true),
            _ => Err(ManagedFieldsError::NotAnObject),
        }
    }

    fn covers_below(&self, json: &mut Json<'_>, root: bool) -> Result<bool, ManagedFieldsError> {
        let (mut marked, mut leaf) = (false, true);
        let mut ours = self.children.iter();
        while let Some(key) = json.key()? {
            let token = json.value()?;
            if key == "." {
                marked = true;
                json.skip(&token)?;
                continue;
            }
            leaf = false;
            let below = ours.find(|(element, _)| element.is_written(&key));
            match (below, token) {
                (Some((_, below)), Token::Map) if below.covers_below(json, false)? => {}
                _ => return Ok(false),
            }
        }
        Ok(root || self.member || !(marked || leaf))
    }

    /// Reads the form in which sets are kept in objects: text, or the tree of it.
    pub fn of_value(fields: &Value) -> Result<FieldSet, ManagedFieldsError> {
        match fields {
            Value::Json(text) => FieldSet::parse(text),
            Value::Map(_) => FieldSet::parse(&String::from_utf8_lossy(&encode::untyped(fields))),
            Value::Null => Ok(FieldSet::new()),
            _ => Err(ManagedFieldsError::NotAnObject),
        }
    }

    /// Reads the text of a set. Steps of an unknown kind are left out.
    pub fn parse(text: &str) -> Result<FieldSet, ManagedFieldsError> {
        let mut json = Json::of_text(text);
        let set = below(&mut json).and_then(|set| {
            json.end()?;
            Ok(set)
        });
        // the root has no path
        set.map(|set| FieldSet { member: false, ..set })
    }

    /// The text of the set.
    pub fn to_text(&self) -> String {
        let mut out = Vec::with_capacity(1024);
        self.write(&mut out);
        String::from_utf8(out).unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn to_value(&self) -> Value {
        schema::decode::open(&Value::Json(self.to_text().into()))
    }

    fn write(&self, out: &mut Vec<u8>) {
        let marked = self.member && !self.children.is_empty();
        out.extend_from_slice(if marked { b"{\".\":{}" } else { b"{" });
        for (nth, (element, below)) in self.children.iter().enumerate() {
            if nth > 0 || marked {
                out.push(b',');
            }
            element.write(out);
            out.push(b':');
            below.write(out);
        }
        out.push(b'}');
    }
}

/// The set below a step. The caller bounds the nesting of the text.
fn below(json: &mut Json<'_>) -> Result<FieldSet, ManagedFieldsError> {
    match json.value()? {
        Token::Null => return Ok(FieldSet { member: true, children: Vec::new() }),
        Token::Map => {}
        _ => return Err(ManagedFieldsError::NotAnObject),
    }
    let mut set = FieldSet::new();
    while let Some(text) = json.key()? {
        let element = if text == "." { None } else { Element::parse(&text)? };
        set.member |= text == ".";
        match element {
            Some(element) => set.children.push((element, below(json)?)),
            None => {
                let token = json.value()?;
                json.skip(&token)?;
            }
        }
    }
    if !set.children.is_sorted_by(|a, b| a.0 < b.0) {
        set.children = sorted(set.children);
    }
    set.member |= set.children.is_empty();
    Ok(set)
}

/// Sorts branches, and merges branches with the same element.
fn sorted(mut children: Vec<(Element, FieldSet)>) -> Vec<(Element, FieldSet)> {
    children.sort_by(|a, b| a.0.cmp(&b.0));
    let mut out: Vec<(Element, Vec<FieldSet>)> = Vec::with_capacity(children.len());
    for (element, below) in children {
        match out.last_mut() {
            Some((last, sets)) if *last == element => sets.push(below),
            _ => out.push((element, vec![below])),
        }
    }
    out.into_iter().map(|(element, sets)| (element, FieldSet::unite_all(sets))).collect()
}
