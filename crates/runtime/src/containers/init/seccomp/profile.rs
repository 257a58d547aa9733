//! Profiles of system calls in the form of the OCI, and the filter that one is.

use super::calls::{Architecture, Calls};
use super::program::{Action, Answer, Comparison, Condition, Rule, Section, compile};
use crate::containers::init::failure::during;
use kernel_programs::FilterInstruction;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const EPERM: u32 = 1;
const ENOSYS: u16 = 38;
const ARGUMENTS: u8 = 6;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    pub default_action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_errno_ret: Option<u32>,
    /// Beside the one of the machine.
    pub architectures: Option<Vec<String>>,
    pub syscalls: Option<Vec<ProfileRule>>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileRule {
    pub names: Vec<String>,
    pub action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno_ret: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<ProfileArgument>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileArgument {
    pub index: u8,
    pub value: u64,
    #[serde(default)]
    pub value_two: u64,
    pub op: String,
}

impl Profile {
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(during("read the seccomp profile"))
    }

    /// The program of this profile on a machine.
    pub fn compile(&self, native: Architecture) -> Result<Vec<FilterInstruction>, String> {
        let default = action(&self.default_action, self.default_errno_ret)?;
        let mut rules: BTreeMap<&str, Vec<Rule>> = BTreeMap::new();
        for rule in self.syscalls.iter().flatten() {
            let found = rule.rules()?;
            // a call for which the default is named has the default, unless another rule applies
            for rule_of_call in found.into_iter().filter(|it| it.action != default) {
                for name in &rule.names {
                    rules.entry(name).or_default().push(rule_of_call.clone());
                }
            }
        }
        for rules in rules.values_mut() {
            // the first rule without conditions makes all others moot, as with libseccomp; else the strictest that applies
            match rules.iter().position(|it| it.conditions.is_empty()) {
                Some(first) => *rules = vec![rules.swap_remove(first)],
                None => rules.sort_by_key(|it| it.action),
            }
        }
        let calls = Calls::read();
        let is_listed = |it: &Architecture| {
            *it == native || self.architectures.iter().flatten().any(|name| name == it.name())
        };
        let family: Vec<_> = native.family().iter().copied().filter(is_listed).collect();
        let mut sections: Vec<Section> = Vec::new();
        for architecture in family {
            let audit_number = architecture.audit_number();
            let numbers = numbers(&rules, &calls, architecture);
            let ranges = ranges(numbers, architecture, default);
            match sections.iter_mut().find(|it| it.audit_number == audit_number) {
                Some(section) => section.ranges.extend(ranges),
                None => {
                    sections.push(Section { audit_number, is_wide: architecture.is_wide(), ranges, default });
                }
            }
        }
        compile(&sections)
    }
}

/// The rules by the numbers of one architecture; calls that it does not have are left out.
fn numbers(
    rules: &BTreeMap<&str, Vec<Rule>>,
    calls: &Calls,
    architecture: Architecture,
) -> BTreeMap<u32, Vec<Rule>> {
    let number =
        |(name, rules): (&&str, &Vec<Rule>)| Some((calls.number(name, architecture)?, rules.clone()));
    rules.iter().filter_map(number).collect()
}

/// The answers to all numbers of an architecture. A call that is newer than all of a profile does not exist, so that
/// libraries go on with an older one, unless the default lets it pass.
fn ranges(
    numbers: BTreeMap<u32, Vec<Rule>>,
    architecture: Architecture,
    default: Action,
) -> BTreeMap<u32, Answer> {
    let special = architecture.special_numbers();
    let newest = numbers.keys().filter(|it| **it < special).max().copied();
    let newer = if default.is_permissive() { default } else { Action::Errno(ENOSYS) };
    let default = Answer::Always(default);
    let mut ranges: BTreeMap<_, _> = [(architecture.first_number(), default.clone())].into();
    for (number, rules) in numbers {
        let found = match rules.first() {
            Some(rule) if rule.conditions.is_empty() => Answer::Always(rule.action),
            _ => Answer::ByRules(rules),
        };
        let after = if Some(number) == newest { Answer::Always(newer) } else { default.clone() };
        ranges.insert(number, found);
        ranges.entry(number + 1).or_insert(after);
    }
    ranges.entry(special).or_insert(default);
    ranges
}

impl ProfileRule {
    /// Conditions of different arguments must all be met. If an argument has several, one of all is enough, as with runc.
    fn rules(&self) -> Result<Vec<Rule>, String> {
        let action = action(&self.action, self.errno_ret)?;
        let arguments = self.args.as_deref().unwrap_or_default();
        let conditions = arguments.iter().map(condition).collect::<Result<Vec<_>, _>>()?;
        let mut indexes: Vec<_> = conditions.iter().map(|it| it.argument).collect();
        indexes.sort_unstable();
        indexes.dedup();
        Ok(match indexes.len() < conditions.len() {
            true => conditions.into_iter().map(|it| Rule { action, conditions: vec![it] }).collect(),
            false => vec![Rule { action, conditions }],
        })
    }
}

fn action(name: &str, errno: Option<u32>) -> Result<Action, String> {
    let number = |default: u32| {
        let number = errno.unwrap_or(default);
        u16::try_from(number).map_err(|_| format!("the seccomp profile has the error number {number}"))
    };
    Ok(match name {
        "SCMP_ACT_ALLOW" => Action::Allow,
        "SCMP_ACT_LOG" => Action::Log,
        "SCMP_ACT_TRAP" => Action::Trap,
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => Action::KillThread,
        "SCMP_ACT_KILL_PROCESS" => Action::KillProcess,
        "SCMP_ACT_ERRNO" => Action::Errno(number(EPERM)?),
        "SCMP_ACT_TRACE" => Action::Trace(number(EPERM)?),
        other => return Err(format!("the seccomp profile has the unknown action {other:?}")),
    })
}

fn condition(argument: &ProfileArgument) -> Result<Condition, String> {
    let ProfileArgument { index, value, value_two, op } = argument;
    if *index >= ARGUMENTS {
        return Err(format!("the seccomp profile has a condition on argument {index}"));
    }
    let (comparison, value) = match op.as_str() {
        "SCMP_CMP_EQ" => (Comparison::Eq, value),
        "SCMP_CMP_NE" => (Comparison::Ne, value),
        "SCMP_CMP_LT" => (Comparison::Lt, value),
        "SCMP_CMP_LE" => (Comparison::Le, value),
        "SCMP_CMP_GT" => (Comparison::Gt, value),
        "SCMP_CMP_GE" => (Comparison::Ge, value),
        "SCMP_CMP_MASKED_EQ" => (Comparison::MaskedEq(*value), value_two),
        other => return Err(format!("the seccomp profile has the unknown comparison {other:?}")),
    };
    Ok(Condition { argument: *index, comparison, value: *value })
}

#[cfg(test)]
mod tests {
    use super::super::program::interpret;
    use super::*;

    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    const NATIVE: Architecture = Architecture::X86_64;

    /// The answer of a profile to a call by its name.
    fn answer(text: &str, architecture: Architecture, name: &str, arguments: [u64; 6]) -> u32 {
        let program = Profile::parse(text).unwrap().compile(NATIVE).unwrap();
        let number = Calls::read().number(name, architecture).unwrap();
        interpret(&program, architecture.audit_number(), number, arguments)
    }

    #[test]
    fn calls_have_the_action_of_their_rule() {
        let text = r#"{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 7, "architectures": ["SCMP_ARCH_X86"],
            "syscalls": [
                {"names": ["read", "write", "no_such_call", "mkdir"], "action": "SCMP_ACT_ALLOW"},
                {"names": ["personality"], "action": "SCMP_ACT_ALLOW",
                 "args": [{"index": 0, "value": 8, "op": "SCMP_CMP_EQ"}]},
                {"names": ["clone"], "action": "SCMP_ACT_ALLOW",
                 "args": [{"index": 0, "value": 100, "op": "SCMP_CMP_LT"}]},
                {"names": ["clone"], "action": "SCMP_ACT_ERRNO", "errnoRet": 9,
                 "args": [{"index": 0, "value": 12, "valueTwo": 4, "op": "SCMP_CMP_MASKED_EQ"}]},
                {"names": ["prctl"], "action": "SCMP_ACT_LOG",
                 "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}, {"index": 0, "value": 2, "op": "SCMP_CMP_EQ"}]},
                {"names": ["write"], "action": "SCMP_ACT_ERRNO", "errnoRet": 7},
                {"names": ["mkdir", "rmdir"], "action": "SCMP_ACT_KILL_PROCESS"},
                {"names": ["mkdir", "rmdir"], "action": "SCMP_ACT_TRAP",
                 "args": [{"index": 0, "value": 0, "op": "SCMP_CMP_GE"}]}]}"#;
        for architecture in [Architecture::X86_64, Architecture::X86] {
            let call = |name, first| answer(text, architecture, name, [first, 0, 0, 0, 0, 0]);
            assert_eq!([call("read", 0), call("write", 0), call("personality", 8)], [ALLOW; 3]);
            assert_eq!([call("personality", 9), call("open", 0), call("prctl", 3)], [ERRNO | 7; 3]);
            assert_eq!(
                [call("clone", 4), call("clone", 8), call("clone", 100)],
                [ERRNO | 9, ALLOW, ERRNO | 9]
            );
            assert_eq!(call("clone", 104), ERRNO | 7);
            assert_eq!([call("prctl", 1), call("prctl", 2)], [0x7ffc_0000; 2]);
            // the first rule without conditions is the one
            assert_eq!([call("mkdir", 0), call("rmdir", 0)], [ALLOW, 0x8000_0000]);
            // newer than all calls of the profile
            assert_eq!(call("mseal", 0), ERRNO | 38);
        }
        assert_eq!(answer(text, Architecture::X32, "read", [0; 6]), ERRNO | 7);
        assert_eq!(answer(text, Architecture::Arm, "read", [0; 6]), 0x8000_0000);
    }

    #[test]
    fn a_profile_that_allows_by_default_has_no_newer_calls() {
        let text = r#"{"defaultAction": "SCMP_ACT_ALLOW", "architectures": null, "syscalls": [
            {"names": ["mkdir"], "action": "SCMP_ACT_ERRNO", "args": null}]}"#;
        let call = |name| answer(text, NATIVE, name, [0; 6]);
        assert_eq!([call("mkdir"), call("read"), call("mseal")], [ERRNO | 1, ALLOW, ALLOW]);
        assert_eq!(answer(r#"{"defaultAction": "SCMP_ACT_TRAP"}"#, NATIVE, "read", [0; 6]), 0x0003_0000);
    }

    #[test]
    fn the_architectures_of_x86_have_their_own_numbers() {
        let text = r#"{"defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_X32", "SCMP_ARCH_MIPS"],
            "syscalls": [{"names": ["execve", "read", "futex_wait"], "action": "SCMP_ACT_ALLOW"}]}"#;
        let call = |architecture, name| answer(text, architecture, name, [0; 6]);
        for architecture in [Architecture::X86_64, Architecture::X32] {
            let found = ["execve", "read", "write", "mseal"].map(|it| call(architecture, it));
            assert_eq!(found, [ALLOW, ALLOW, ERRNO | 1, ERRNO | 38], "{architecture:?}");
        }
        assert_eq!(call(Architecture::X86, "read"), 0x8000_0000);
    }

    #[test]
    fn profiles_that_cannot_be_followed_are_refused() {
        let rule = |rule: &str| format!(r#"{{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{rule}]}}"#);
        let bad = [
            String::new(),
            "{}".to_owned(),
            r#"{"defaultAction": "SCMP_ACT_WAIT"}"#.to_owned(),
            r#"{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 65536}"#.to_owned(),
            rule(r#"{"names": ["read"], "action": "SCMP_ACT_NOTIFY"}"#),
            rule(
                r#"{"names": ["read"], "action": "SCMP_ACT_LOG", "args": [{"index": 6, "value": 0, "op": "SCMP_CMP_EQ"}]}"#,
            ),
            rule(
                r#"{"names": ["read"], "action": "SCMP_ACT_LOG", "args": [{"index": 0, "value": 0, "op": "SCMP_CMP_IN"}]}"#,
            ),
        ];
        for text in bad {
            let compiled = Profile::parse(&text).and_then(|it| it.compile(NATIVE));
            assert!(compiled.is_err(), "{text}");
        }
    }
}
