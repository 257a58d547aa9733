//! The memory limit of an evaluation.
//!
//! Costs count reads, not allocations: a short text can be replaced by a long one everywhere for the cost of the
//! short one. So the size of created texts and lists is limited beside the cost, before they are created.

use crate::expr::op;
use crate::fault::{Fault, Outcome};
use crate::value::{CelValue, List};

/// Bytes that one evaluation may make altogether.
const MOST: u64 = 256 << 20;
/// The approximate size of a list item.
const ITEM: u64 = 64;

pub(crate) struct MemoryBudget {
    left: u64,
}

impl MemoryBudget {
    pub fn new() -> MemoryBudget {
        MemoryBudget { left: MOST }
    }

    /// Reserves memory for the result of a function with these arguments.
    pub fn take(&mut self, function: &str, args: &[&CelValue<'_>]) -> Outcome<()> {
        self.bytes(made(function, args))
    }

    /// Reserves memory for a result whose size its arguments bounded.
    pub fn took(&mut self, result: &Outcome<CelValue<'_>>) -> Outcome<()> {
        match result {
            Ok(CelValue::List(List::Owned(items, _))) => self.bytes(items.len() as u64 * ITEM),
            _ => Ok(()),
        }
    }

    fn bytes(&mut self, bytes: u64) -> Outcome<()> {
        self.left = self.left.checked_sub(bytes).ok_or(Fault::OverBudget)?;
        Ok(())
    }
}

fn made(function: &str, args: &[&CelValue<'_>]) -> u64 {
    match (function, args) {
        (op::ADD, [CelValue::String(a), CelValue::String(b)]) => (a.len() + b.len()) as u64,
        (op::ADD, [CelValue::Bytes(a), CelValue::Bytes(b)]) => (a.len() + b.len()) as u64,
        (op::ADD, [CelValue::List(a), CelValue::List(b)]) => (a.len() + b.len()) as u64 * ITEM,
        ("replace", [CelValue::String(text), CelValue::String(old), CelValue::String(new), ..]) => {
            let most = match args.get(3) {
                Some(CelValue::Int(times)) => usize::try_from(*times).unwrap_or(usize::MAX),
                _ => usize::MAX,
            };
            let times = text.matches(&**old).take(most).count();
            (times as u64).saturating_mul(new.len() as u64).saturating_add(text.len() as u64)
        }
        ("join", [CelValue::List(list), rest @ ..]) => {
            let text =
                |it: &CelValue<'_>| if let CelValue::String(text) = it { text.len() as u64 } else { 0 };
            let items: u64 = list.iter().map(|it| it.map_or(0, |it| text(&it))).sum();
            let separator = rest.first().map_or(0, |it| text(it));
            separator.saturating_mul(list.len() as u64).saturating_add(items)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_results_are_rejected_before_allocation() {
        let text = CelValue::string("x".repeat(1 << 20));
        let empty = CelValue::string("");
        let mut memory = MemoryBudget::new();
        assert!(memory.take("replace", &[&text, &empty, &text]).is_err());
        assert!(memory.take("replace", &[&text, &empty, &text, &CelValue::Int(2)]).is_ok());
        let list = CelValue::list(vec![text.clone(); 1000]);
        assert!(memory.take("join", &[&list]).is_err());
        assert!(memory.take(op::ADD, &[&text, &text]).is_ok());
    }
}
