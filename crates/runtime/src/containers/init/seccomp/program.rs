//! A filter of system calls as a program of the kernel. Pure.
//!
//! The program looks at the architecture, and then for the number of the call in a list of ranges with one answer each.
//! All architectures are in one program: a second filter would have to be loaded under the first.

use kernel_programs::{FILTER_LIMIT, FilterInstruction};
use std::collections::BTreeMap;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;
const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_GREATER: u16 = 0x25;
const IF_AT_LEAST: u16 = 0x35;
/// Places in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// The answer of a filter; the strictest comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    KillProcess,
    KillThread,
    Trap,
    Errno(u16),
    Trace(u16),
    Log,
    Allow,
}

impl Action {
    pub fn value(self) -> u32 {
        match self {
            Action::KillProcess => 0x8000_0000,
            Action::KillThread => 0,
            Action::Trap => 0x0003_0000,
            Action::Errno(number) => 0x0005_0000 | u32::from(number),
            Action::Trace(number) => 0x7ff0_0000 | u32::from(number),
            Action::Log => 0x7ffc_0000,
            Action::Allow => 0x7fff_0000,
        }
    }

    /// The call may be made.
    pub fn is_permissive(self) -> bool {
        matches!(self, Action::Allow | Action::Log | Action::Trace(_))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// Equal in these bits.
    MaskedEq(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// At most 5.
    pub argument: u8,
    pub comparison: Comparison,
    pub value: u64,
}

/// An action for calls whose arguments meet all conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub action: Action,
    pub conditions: Vec<Condition>,
}

/// The calls of one architecture, as the kernel names it.
pub struct Section {
    pub audit_number: u32,
    /// Arguments have 64 bits.
    pub is_wide: bool,
    /// The first rule that applies to a call decides. Numbers from one key to the next have its answer.
    pub ranges: BTreeMap<u32, Answer>,
    /// For calls that no rule applies to.
    pub default: Action,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Always(Action),
    ByRules(Vec<Rule>),
}

/// Where a step of a condition goes on.
#[derive(Clone, Copy)]
enum Target {
    Next,
    /// The condition is met.
    Met,
    /// The rule does not apply.
    Unmet,
}

/// Compiles a filter. Other architectures end the process.
pub fn compile(sections: &[Section]) -> Result<Vec<FilterInstruction>, String> {
    let mut program = vec![statement(LOAD, ARCHITECTURE)];
    for section in sections {
        let body = section.compile();
        program.push(jump(IF_EQUAL, section.audit_number, 1, 0));
        program.push(skip(body.len()));
        program.extend(body);
    }
    program.push(answer(Action::KillProcess));
    match program.len() {
        length if length > FILTER_LIMIT => {
            Err(format!("the filter has {length} instructions, more than {FILTER_LIMIT}"))
        }
        _ => Ok(program),
    }
}

impl Section {
    fn compile(&self) -> Vec<FilterInstruction> {
        let mut program = vec![statement(LOAD, NUMBER)];
        let mut ranges: Vec<(u32, &Answer)> = Vec::new();
        for (start, found) in &self.ranges {
            if ranges.last().is_none_or(|(_, before)| *before != found) {
                ranges.push((*start, found));
            }
        }
        let ends = ranges.iter().skip(1).map(|it| Some(it.0)).chain([None]);
        for ((_, found), end) in ranges.iter().zip(ends) {
            let body = match found {
                Answer::Always(action) => vec![answer(*action)],
                Answer::ByRules(rules) => self.rules(rules),
            };
            match end {
                Some(end) if body.len() == 1 => program.push(jump(IF_AT_LEAST, end, 1, 0)),
                Some(end) => program.extend([jump(IF_AT_LEAST, end, 0, 1), skip(body.len())]),
                None => {}
            }
            program.extend(body);
        }
        program
    }

    fn rules(&self, rules: &[Rule]) -> Vec<FilterInstruction> {
        let mut program: Vec<_> = rules.iter().flat_map(|it| self.rule(it)).collect();
        program.push(answer(self.default));
        program
    }

    fn rule(&self, rule: &Rule) -> Vec<FilterInstruction> {
        let conditions: Vec<_> = rule.conditions.iter().map(|it| self.condition(it)).collect();
        let length: usize = conditions.iter().map(Vec::len).sum::<usize>() + 1;
        let mut program = Vec::with_capacity(length);
        for condition in conditions {
            let after = program.len() + condition.len();
            for (code, operand, if_true, if_false) in condition {
                // six conditions of at most five steps: all distances are small
                let distance = |target| match target {
                    Target::Next => 0,
                    Target::Met => (after - program.len() - 1) as u8,
                    Target::Unmet => (length - program.len() - 1) as u8,
                };
                program.push(jump(code, operand, distance(if_true), distance(if_false)));
            }
        }
        program.push(answer(rule.action));
        program
    }

    /// The steps of a condition. A filter has 32 bits at a time: the upper half of a value decides unless it is equal.
    fn condition(&self, condition: &Condition) -> Vec<(u16, u32, Target, Target)> {
        use Target::{Met, Next, Unmet};
        let place = ARGUMENTS + 8 * u32::from(condition.argument);
        let (low, high) = (condition.value as u32, (condition.value >> 32) as u32);
        let load = |place| (LOAD, place, Next, Next);
        // what a larger upper half says, and the comparison of the lower half with its answers
        let (if_larger, code, if_true, if_false) = match condition.comparison {
            Comparison::Eq => (Unmet, IF_EQUAL, Met, Unmet),
            Comparison::Ne => (Met, IF_EQUAL, Unmet, Met),
            Comparison::Gt => (Met, IF_GREATER, Met, Unmet),
            Comparison::Ge => (Met, IF_AT_LEAST, Met, Unmet),
            Comparison::Lt => (Unmet, IF_AT_LEAST, Unmet, Met),
            Comparison::Le => (Unmet, IF_GREATER, Unmet, Met),
            Comparison::MaskedEq(mask) => {
                let half = |place, mask: u32, value: u32, if_true| {
                    [load(place), (AND, mask, Next, Next), (IF_EQUAL, value & mask, if_true, Unmet)]
                };
                let lower = half(place, mask as u32, low, Met);
                let upper = half(place + 4, (mask >> 32) as u32, high, Next);
                return if self.is_wide { [upper, lower].concat() } else { lower.to_vec() };
            }
        };
        let if_smaller = match condition.comparison {
            Comparison::Ne | Comparison::Lt | Comparison::Le => Met,
            _ => Unmet,
        };
        let mut steps = Vec::new();
        if self.is_wide {
            steps.extend([
                load(place + 4),
                (IF_GREATER, high, if_larger, Next),
                (IF_EQUAL, high, Next, if_smaller),
            ]);
        }
        steps.extend([load(place), (code, low, if_true, if_false)]);
        steps
    }
}

fn jump(code: u16, operand: u32, if_true: u8, if_false: u8) -> FilterInstruction {
    FilterInstruction { code, jump_if_true: if_true, jump_if_false: if_false, operand }
}

fn statement(code: u16, operand: u32) -> FilterInstruction {
    jump(code, operand, 0, 0)
}

fn skip(count: usize) -> FilterInstruction {
    statement(JUMP, count as u32)
}

fn answer(action: Action) -> FilterInstruction {
    statement(RETURN, action.value())
}

/// The kernel's side, for tests.
#[cfg(test)]
pub fn interpret(program: &[FilterInstruction], audit_number: u32, number: u32, arguments: [u64; 6]) -> u32 {
    let word = |place: u32| match place {
        NUMBER => number,
        ARCHITECTURE => audit_number,
        place => {
            let argument = arguments[(place - ARGUMENTS) as usize / 8];
            if (place - ARGUMENTS).is_multiple_of(8) { argument as u32 } else { (argument >> 32) as u32 }
        }
    };
    let (mut at, mut value) = (0, 0u32);
    loop {
        let FilterInstruction { code, jump_if_true, jump_if_false, operand } = program[at];
        at += 1;
        let is_met = match code {
            LOAD => {
                value = word(operand);
                continue;
            }
            AND => {
                value &= operand;
                continue;
            }
            RETURN => return operand,
            JUMP => {
                at += operand as usize;
                continue;
            }
            IF_EQUAL => value == operand,
            IF_GREATER => value > operand,
            IF_AT_LEAST => value >= operand,
            other => panic!("code {other:x}"),
        };
        at += usize::from(if is_met { jump_if_true } else { jump_if_false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: Action = Action::Errno(38);

    fn section(is_wide: bool, rules: Vec<Rule>) -> Section {
        let ranges = [
            (0, Answer::Always(DEFAULT)),
            (7, Answer::ByRules(rules)),
            (8, Answer::Always(Action::Allow)),
            (9, Answer::Always(Action::Allow)),
            (10, Answer::Always(Action::Trap)),
        ];
        Section { audit_number: 5, is_wide, ranges: ranges.into(), default: DEFAULT }
    }

    fn is_met(condition: &Condition, argument: u64) -> bool {
        let value = condition.value;
        match condition.comparison {
            Comparison::Eq => argument == value,
            Comparison::Ne => argument != value,
            Comparison::Lt => argument < value,
            Comparison::Le => argument <= value,
            Comparison::Gt => argument > value,
            Comparison::Ge => argument >= value,
            Comparison::MaskedEq(mask) => argument & mask == value & mask,
        }
    }

    #[test]
    fn comparisons_have_64_bits() {
        let values =
            [0, 1, 2, 0xffff_ffff, 0x1_0000_0000, 0x1_0000_0001, 0x2_0000_0000, u64::MAX - 1, u64::MAX];
        let mut comparisons = vec![
            Comparison::Eq,
            Comparison::Ne,
            Comparison::Lt,
            Comparison::Le,
            Comparison::Gt,
            Comparison::Ge,
        ];
        comparisons.extend(values.map(Comparison::MaskedEq));
        for (comparison, value) in comparisons.iter().flat_map(|it| values.map(|value| (*it, value))) {
            let condition = Condition { argument: 3, comparison, value };
            let rule = Rule { action: Action::Log, conditions: vec![condition] };
            let program = compile(&[section(true, vec![rule.clone()])]).unwrap();
            let small = compile(&[section(false, vec![rule])]).unwrap();
            for argument in values {
                let mut arguments = [77; 6];
                arguments[3] = argument;
                let expected = if is_met(&condition, argument) { Action::Log } else { DEFAULT };
                assert_eq!(
                    interpret(&program, 5, 7, arguments),
                    expected.value(),
                    "{condition:?} {argument:x}"
                );
                if value >> 32 == 0 && argument >> 32 == 0 && !matches!(comparison, Comparison::MaskedEq(_)) {
                    assert_eq!(
                        interpret(&small, 5, 7, arguments),
                        expected.value(),
                        "{condition:?} {argument:x}"
                    );
                }
            }
        }
    }

    #[test]
    fn all_conditions_of_a_rule_must_be_met_and_the_first_rule_decides() {
        let condition = |argument, value| Condition { argument, comparison: Comparison::Eq, value };
        let rules = vec![
            Rule {
                action: Action::Trap,
                conditions: (0..6).map(|it| condition(it, u64::from(it))).collect(),
            },
            Rule { action: Action::Log, conditions: vec![condition(0, 0), condition(5, 9)] },
            Rule { action: Action::Allow, conditions: vec![condition(0, 0)] },
        ];
        let program = compile(&[section(true, rules)]).unwrap();
        let run = |arguments| interpret(&program, 5, 7, arguments);
        assert_eq!(run([0, 1, 2, 3, 4, 5]), Action::Trap.value());
        assert_eq!(run([0, 1, 2, 3, 4, 9]), Action::Log.value());
        assert_eq!(run([0, 1, 2, 3, 5, 5]), Action::Allow.value());
        assert_eq!(run([1, 1, 2, 3, 4, 5]), DEFAULT.value());
    }

    #[test]
    fn numbers_and_architectures_have_their_answers() {
        let other = Section { audit_number: 6, ..section(true, Vec::new()) };
        let mut other = other;
        other.ranges = [(0, Answer::Always(Action::Log))].into();
        let program = compile(&[section(true, Vec::new()), other]).unwrap();
        let run = |architecture, number| interpret(&program, architecture, number, [0; 6]);
        assert_eq!([run(5, 0), run(5, 6), run(5, 7)], [DEFAULT.value(); 3]);
        assert_eq!([run(5, 8), run(5, 9)], [Action::Allow.value(); 2]);
        assert_eq!([run(5, 10), run(5, u32::MAX)], [Action::Trap.value(); 2]);
        assert_eq!([run(6, 0), run(6, u32::MAX)], [Action::Log.value(); 2]);
        assert_eq!(run(7, 0), Action::KillProcess.value());
    }

    #[test]
    fn a_filter_that_the_kernel_would_not_take_is_refused() {
        let answer = |it: u32| Answer::Always(if it.is_multiple_of(2) { Action::Allow } else { DEFAULT });
        let ranges = (0..3000).map(|it| (it, answer(it))).collect();
        let long = Section { ranges, ..section(true, Vec::new()) };
        assert!(compile(&[long]).unwrap_err().contains("instructions"));
    }
}
