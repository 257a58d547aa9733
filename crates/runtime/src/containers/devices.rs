//! The devices that a container may use, for control groups of version 1 (lines) and version 2 (a program). Pure.

use super::spec::RootSpec;
use std::fmt;

/// Bits of the kernel (`BPF_DEVCG_*`).
const ACCESS: [(char, i32); 3] = [('m', 1), ('r', 2), ('w', 4)];
const ALL_ACCESS: i32 = 7;
const BLOCK: i32 = 1;
const CHARACTER: i32 = 2;
/// The jump from a comparison to the next rule, which is known once the rule is complete.
const TO_NEXT_RULE: i16 = -1;

/// Devices that may be used; what no rule allows is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceRule {
    pub is_block: bool,
    /// Without a number, all.
    pub major: Option<u32>,
    pub minor: Option<u32>,
    /// A subset of `rwm`.
    pub access: String,
}

/// As in `c 1:3 rwm`.
impl fmt::Display for DeviceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |it: Option<u32>| it.map_or_else(|| "*".to_owned(), |it| it.to_string());
        let kind = if self.is_block { 'b' } else { 'c' };
        write!(f, "{kind} {}:{} {}", number(self.major), number(self.minor), self.access)
    }
}

/// The rules of a container: its own devices, terminals, and nodes that it makes without opening them.
pub fn device_rules(root: &RootSpec) -> Vec<DeviceRule> {
    let rule = |is_block, major, minor, access: &str| DeviceRule {
        is_block,
        major,
        minor,
        access: access.to_owned(),
    };
    let own = root.devices.iter().map(|it| {
        let access = if it.permissions.is_empty() { "rwm" } else { &it.permissions };
        rule(it.is_block, Some(it.major), Some(it.minor), access)
    });
    let general = [
        rule(false, None, None, "m"),
        rule(true, None, None, "m"),
        rule(false, Some(136), None, "rwm"),
        rule(false, Some(5), Some(2), "rwm"),
    ];
    general.into_iter().chain(own).collect()
}

/// An instruction of eBPF.
#[derive(Debug, Clone, Copy)]
struct Instruction {
    code: u8,
    /// Registers.
    target: u8,
    source: u8,
    offset: i16,
    value: i32,
}

impl Instruction {
    /// In the form of the kernel, whose first byte is the lowest one.
    fn encode(self) -> u64 {
        u64::from(self.code)
            | u64::from(self.target & 15) << 8
            | u64::from(self.source & 15) << 12
            | u64::from(self.offset as u16) << 16
            | u64::from(self.value as u32) << 32
    }
}

const LOAD: u8 = 0x61;
const COPY: u8 = 0xbc;
const SET: u8 = 0xb4;
const AND: u8 = 0x54;
const SHIFT_RIGHT: u8 = 0x74;
const JUMP_IF_NOT: u8 = 0x55;
const EXIT: u8 = 0x95;
/// Registers: the answer, the request (until it is read), its parts, and one for results between.
const ANSWER: u8 = 0;
const REQUEST: u8 = 1;
const SCRATCH: u8 = 1;
const KIND: u8 = 2;
const WANTED: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

/// The program of a control group that allows what the rules allow. One rule must allow all that is wanted, as with
/// version 1.
pub fn program(rules: &[DeviceRule]) -> Vec<u64> {
    let with = |code, target, value| Instruction { code, target, source: 0, offset: 0, value };
    let load = |target, offset| Instruction { code: LOAD, target, source: REQUEST, offset, value: 0 };
    let copy = |target, source| Instruction { code: COPY, target, source, offset: 0, value: 0 };
    let require = |register, value| Instruction {
        code: JUMP_IF_NOT,
        target: register,
        source: 0,
        offset: TO_NEXT_RULE,
        value,
    };
    let answer = |value| [with(SET, ANSWER, value), with(EXIT, 0, 0)];
    // the kind of the device is in the lower half of the first word, what is wanted in the upper one
    let mut program = vec![
        load(KIND, 0),
        load(MAJOR, 4),
        load(MINOR, 8),
        copy(WANTED, KIND),
        with(SHIFT_RIGHT, WANTED, 16),
        with(AND, KIND, 0xffff),
    ];
    for rule in rules {
        let granted = ACCESS.iter().filter(|it| rule.access.contains(it.0)).fold(0, |all, it| all | it.1);
        let number = |register, number: Option<u32>| number.map(|it| require(register, it as i32));
        let mut steps = vec![require(KIND, if rule.is_block { BLOCK } else { CHARACTER })];
        steps.extend(number(MAJOR, rule.major));
        steps.extend(number(MINOR, rule.minor));
        if granted != ALL_ACCESS {
            steps.extend([copy(SCRATCH, WANTED), with(AND, SCRATCH, !granted), require(SCRATCH, 0)]);
        }
        steps.extend(answer(1));
        let length = steps.len();
        for (position, step) in steps.iter_mut().enumerate().filter(|(_, it)| it.offset == TO_NEXT_RULE) {
            step.offset = (length - position - 1) as i16;
        }
        program.extend(steps);
    }
    program.extend(answer(0));
    program.into_iter().map(Instruction::encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::containers::spec::DeviceSpec;

    /// The kernel's side.
    fn is_allowed(program: &[u64], is_block: bool, major: u32, minor: u32, wanted: &str) -> bool {
        let wanted = ACCESS.iter().filter(|it| wanted.contains(it.0)).fold(0, |all, it| all | it.1) as u32;
        let request = [wanted << 16 | if is_block { BLOCK } else { CHARACTER } as u32, major, minor];
        let (mut registers, mut at) = ([0u64; 6], 0);
        loop {
            let word = program[at];
            let (target, source) = ((word >> 8 & 15) as usize, (word >> 12 & 15) as usize);
            let (offset, value) = ((word >> 16) as i16, (word >> 32) as u32);
            at += 1;
            match word as u8 {
                LOAD => {
                    assert_eq!(source, usize::from(REQUEST));
                    registers[target] = request[offset as usize / 4].into();
                }
                COPY => registers[target] = registers[source] as u32 as u64,
                SET => registers[target] = value.into(),
                AND => registers[target] = (registers[target] as u32 & value).into(),
                SHIFT_RIGHT => registers[target] = (registers[target] as u32 >> value).into(),
                JUMP_IF_NOT if registers[target] != i64::from(value as i32) as u64 => at += offset as usize,
                JUMP_IF_NOT => {}
                EXIT => return registers[usize::from(ANSWER)] == 1,
                other => panic!("code {other:x}"),
            }
        }
    }

    fn rule(is_block: bool, major: Option<u32>, minor: Option<u32>, access: &str) -> DeviceRule {
        DeviceRule { is_block, major, minor, access: access.to_owned() }
    }

    #[test]
    fn rules_have_the_form_of_version_one() {
        assert_eq!(rule(false, Some(1), Some(3), "rwm").to_string(), "c 1:3 rwm");
        assert_eq!(rule(true, None, None, "m").to_string(), "b *:* m");
        assert_eq!(rule(false, Some(136), None, "rw").to_string(), "c 136:* rw");
    }

    #[test]
    fn a_program_allows_what_one_rule_allows() {
        let rules = [
            rule(false, None, None, "m"),
            rule(false, Some(1), Some(3), "rwm"),
            rule(true, Some(8), None, "r"),
            rule(true, Some(8), Some(1), "w"),
            rule(true, Some(4095), Some(0xf_ffff), "rw"),
        ];
        let found = program(&rules);
        let matches = |rule: &DeviceRule, is_block, major, minor, wanted: &str| {
            rule.is_block == is_block
                && rule.major.is_none_or(|it| it == major)
                && rule.minor.is_none_or(|it| it == minor)
                && wanted.chars().all(|it| rule.access.contains(it))
        };
        for wanted in ["", "r", "w", "m", "rw", "rm", "wm", "rwm"] {
            for (major, minor) in [(1, 3), (1, 4), (2, 3), (8, 0), (8, 1), (4095, 0xf_ffff), (0, 0)] {
                for is_block in [false, true] {
                    let expected = rules.iter().any(|it| matches(it, is_block, major, minor, wanted));
                    let answer = is_allowed(&found, is_block, major, minor, wanted);
                    assert_eq!(answer, expected, "{is_block} {major}:{minor} {wanted}");
                }
            }
        }
        assert!(!is_allowed(&program(&[]), false, 1, 3, "r"));
    }

    #[test]
    fn a_container_may_use_its_devices_and_terminals_and_make_nodes() {
        let device = DeviceSpec {
            is_block: true,
            major: 7,
            minor: 2,
            permissions: "r".to_owned(),
            ..DeviceSpec::default()
        };
        let usual = DeviceSpec { major: 1, minor: 3, ..DeviceSpec::default() };
        let root = RootSpec { devices: vec![usual, device], ..RootSpec::default() };
        let found = program(&device_rules(&root));
        assert!(is_allowed(&found, false, 1, 3, "rw") && is_allowed(&found, false, 136, 5, "rw"));
        assert!(is_allowed(&found, true, 7, 2, "r") && !is_allowed(&found, true, 7, 2, "w"));
        assert!(is_allowed(&found, true, 8, 0, "m") && !is_allowed(&found, true, 8, 0, "r"));
        assert!(!is_allowed(&found, false, 1, 1, "r") && !is_allowed(&found, false, 1, 1, "rm"));
    }
}
