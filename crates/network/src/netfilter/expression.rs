//! Encodes statements as expressions of the kernel's virtual machine.
//!
//! Every statement loads its values into registers of four bytes from the first one on; a concatenated key lies in
//! consecutive registers.

use super::attribute::Encoder;
use super::statement::{
    AddressSide, Comparison, ConnectionKey, Family, MetaKey, PayloadBase, Rejection, Selector, Statement,
    Verdict,
};
use super::value::Value;

/// The register of a rule's verdict.
const VERDICT_REGISTER: u32 = 0;
/// The first register of four bytes.
const FIRST_REGISTER: u32 = 8;

/// Attributes of lists and of expressions in them.
const LIST_ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;

/// Attributes of data.
pub(super) const DATA_VALUE: u16 = 1;
pub(super) const DATA_VERDICT: u16 = 2;
pub(super) const VERDICT_CODE: u16 = 1;
pub(super) const VERDICT_CHAIN: u16 = 2;

const RANDOM_NUMBER: u32 = 1;
const FIB_SOURCE: u32 = 1;
const FIB_DESTINATION: u32 = 2;
const FIB_ADDRESS_TYPE: u32 = 3;
const LOOKUP_INVERTED: u32 = 1;
const DYNSET_UPDATE: u32 = 1;
const NAT_SOURCE: u32 = 0;
const NAT_DESTINATION: u32 = 1;
const NAT_RANDOM_FULLY: u32 = 0x10;
/// The range of a translation names a port.
const NAT_PORT_SPECIFIED: u32 = 0x2;

const REJECT_ICMP: u32 = 0;
const REJECT_TCP_RESET: u32 = 1;
/// ICMP of the packet's family, for tables of both.
const REJECT_ICMPX: u32 = 2;

fn expression(out: &mut Encoder, name: &str, data: impl FnOnce(&mut Encoder)) {
    out.nested(LIST_ELEMENT, |out| {
        out.text(EXPRESSION_NAME, name);
        out.nested(EXPRESSION_DATA, data);
    });
}

pub(super) fn value(out: &mut Encoder, kind: u16, value: &[u8]) {
    out.nested(kind, |out| out.bytes(DATA_VALUE, value));
}

pub(super) fn verdict(out: &mut Encoder, kind: u16, verdict: &Verdict) {
    out.nested(kind, |out| {
        out.nested(DATA_VERDICT, |out| {
            out.u32(VERDICT_CODE, verdict.code() as u32);
            if let Verdict::Jump(chain) | Verdict::Goto(chain) = verdict {
                out.text(VERDICT_CHAIN, chain);
            }
        });
    });
}

/// Appends a statement's expressions.
pub(super) fn encode(statement: &Statement, out: &mut Encoder) {
    match statement {
        Statement::Compare { selector, comparison, value } => {
            load(selector, FIRST_REGISTER, out);
            compare(*comparison, value, out);
        }
        Statement::InSet { key, set, is_negated } => {
            load_key(key, FIRST_REGISTER, out);
            lookup(set, FIRST_REGISTER, None, *is_negated, out);
        }
        Statement::VerdictMap { key, map } => {
            load_key(key, FIRST_REGISTER, out);
            lookup(map, FIRST_REGISTER, Some(VERDICT_REGISTER), false, out);
        }
        Statement::Verdict(decision) => expression(out, "immediate", |out| {
            out.u32(1, VERDICT_REGISTER);
            verdict(out, 2, decision);
        }),
        Statement::SetMark(selector) => {
            load(selector, FIRST_REGISTER, out);
            expression(out, "meta", |out| {
                out.u32(2, meta_key(MetaKey::Mark));
                out.u32(3, FIRST_REGISTER);
            });
        }
        Statement::SetConnectionMark(selector) => {
            load(selector, FIRST_REGISTER, out);
            expression(out, "ct", |out| {
                out.u32(2, connection_key(ConnectionKey::Mark));
                out.u32(4, FIRST_REGISTER);
            });
        }
        Statement::DestinationNat { family, to, has_port } => {
            nat(NAT_DESTINATION, *family, to, *has_port, out)
        }
        Statement::SourceNat { family, to, has_port } => nat(NAT_SOURCE, *family, to, *has_port, out),
        Statement::Masquerade { is_random } => expression(out, "masq", |out| {
            if *is_random {
                out.u32(1, NAT_RANDOM_FULLY);
            }
        }),
        Statement::Redirect { port } => {
            immediate(&port.to_be_bytes(), FIRST_REGISTER, out);
            expression(out, "redir", |out| {
                out.u32(1, FIRST_REGISTER);
                out.u32(3, NAT_PORT_SPECIFIED);
            });
        }
        Statement::Reject { family, with } => expression(out, "reject", |out| {
            let (kind, code) = rejection(*family, *with);
            out.u32(1, kind);
            out.u8(2, code);
        }),
        Statement::Update { set, key, timeout } => {
            load_key(key, FIRST_REGISTER, out);
            expression(out, "dynset", |out| {
                out.text(1, set);
                out.u32(3, DYNSET_UPDATE);
                out.u32(4, FIRST_REGISTER);
                if let Some(timeout) = timeout {
                    out.u64(6, timeout.as_millis().try_into().unwrap_or(u64::MAX));
                }
            });
        }
        Statement::Counter => expression(out, "counter", |_| ()),
        Statement::Limit { packets_per_second, burst } => expression(out, "limit", |out| {
            out.u64(1, *packets_per_second);
            out.u64(2, 1);
            out.u32(3, *burst);
            out.u32(4, 0);
        }),
    }
}

/// The kind of a rejection, and its code in ICMP, ICMPv6, or the kernel's numbers for both.
fn rejection(family: Family, with: Rejection) -> (u32, u8) {
    match (with, family) {
        (Rejection::TcpReset, _) => (REJECT_TCP_RESET, 0),
        (Rejection::PortUnreachable, Family::Ipv4) => (REJECT_ICMP, 3),
        (Rejection::PortUnreachable, Family::Ipv6) => (REJECT_ICMP, 4),
        (Rejection::PortUnreachable, _) => (REJECT_ICMPX, 1),
        (Rejection::AdministrativelyProhibited, Family::Ipv4) => (REJECT_ICMP, 13),
        (Rejection::AdministrativelyProhibited, Family::Ipv6) => (REJECT_ICMP, 1),
        (Rejection::AdministrativelyProhibited, _) => (REJECT_ICMPX, 3),
    }
}

fn compare(comparison: Comparison, with: &Value, out: &mut Encoder) {
    let operation = match comparison {
        Comparison::Equal => 0,
        Comparison::NotEqual => 1,
        Comparison::Less => 2,
        Comparison::LessOrEqual => 3,
        Comparison::Greater => 4,
        Comparison::GreaterOrEqual => 5,
    };
    expression(out, "cmp", |out| {
        out.u32(1, FIRST_REGISTER);
        out.u32(2, operation);
        value(out, 3, with.as_bytes());
    });
}

fn lookup(set: &str, source: u32, destination: Option<u32>, is_negated: bool, out: &mut Encoder) {
    expression(out, "lookup", |out| {
        out.text(1, set);
        out.u32(2, source);
        if let Some(destination) = destination {
            out.u32(3, destination);
        }
        if is_negated {
            out.u32(5, LOOKUP_INVERTED);
        }
    });
}

fn immediate(bytes: &[u8], register: u32, out: &mut Encoder) {
    expression(out, "immediate", |out| {
        out.u32(1, register);
        value(out, 2, bytes);
    });
}

fn nat(kind: u32, family: Family, to: &Selector, has_port: bool, out: &mut Encoder) {
    load(to, FIRST_REGISTER, out);
    let address_registers = if family == Family::Ipv6 { 4 } else { 1 };
    expression(out, "nat", |out| {
        out.u32(1, kind);
        out.u32(2, u32::from(family.number()));
        out.u32(3, FIRST_REGISTER);
        if has_port {
            out.u32(5, FIRST_REGISTER + address_registers);
        }
    });
}

fn load_key(key: &[Selector], first: u32, out: &mut Encoder) {
    let mut register = first;
    for selector in key {
        register += load(selector, register, out);
    }
}

/// Loads a value into registers, and returns their number.
fn load(selector: &Selector, register: u32, out: &mut Encoder) -> u32 {
    match selector {
        Selector::Meta(key) => {
            expression(out, "meta", |out| {
                out.u32(1, register);
                out.u32(2, meta_key(*key));
            });
            match key {
                MetaKey::InputInterface | MetaKey::OutputInterface => 4,
                MetaKey::Mark | MetaKey::L4Protocol | MetaKey::NetworkFamily => 1,
            }
        }
        Selector::Payload { base, offset, length } => {
            expression(out, "payload", |out| {
                out.u32(1, register);
                out.u32(2, payload_base(*base));
                out.u32(3, *offset);
                out.u32(4, *length);
            });
            length.div_ceil(4)
        }
        Selector::Connection(key) => {
            expression(out, "ct", |out| {
                out.u32(1, register);
                out.u32(2, connection_key(*key));
            });
            1
        }
        Selector::AddressType(side) => {
            expression(out, "fib", |out| {
                out.u32(1, register);
                out.u32(2, FIB_ADDRESS_TYPE);
                out.u32(3, if *side == AddressSide::Source { FIB_SOURCE } else { FIB_DESTINATION });
            });
            1
        }
        Selector::Random { bound } => {
            expression(out, "numgen", |out| {
                out.u32(1, register);
                out.u32(2, *bound);
                out.u32(3, RANDOM_NUMBER);
                out.u32(4, 0);
            });
            1
        }
        Selector::Constant(constant) => load_constant(constant.as_bytes(), register, out),
        Selector::Bits { of, mask, xor } => {
            let count = load(of, register, out);
            expression(out, "bitwise", |out| {
                out.u32(1, register);
                out.u32(2, register);
                out.u32(3, mask.as_bytes().len() as u32);
                value(out, 4, mask.as_bytes());
                value(out, 5, xor.as_bytes());
            });
            count
        }
        Selector::Map { key, map } => {
            load_key(key, register, out);
            lookup(map, register, Some(register), false, out);
            1
        }
    }
}

/// An immediate value has at most sixteen bytes, so longer ones are loaded in parts.
fn load_constant(bytes: &[u8], register: u32, out: &mut Encoder) -> u32 {
    let mut at = register;
    for part in bytes.chunks(16) {
        immediate(part, at, out);
        at += part.len().div_ceil(4) as u32;
    }
    at - register
}

fn meta_key(key: MetaKey) -> u32 {
    match key {
        MetaKey::Mark => 3,
        MetaKey::InputInterface => 6,
        MetaKey::OutputInterface => 7,
        MetaKey::NetworkFamily => 15,
        MetaKey::L4Protocol => 16,
    }
}

fn payload_base(base: PayloadBase) -> u32 {
    match base {
        PayloadBase::Link => 0,
        PayloadBase::Network => 1,
        PayloadBase::Transport => 2,
    }
}

fn connection_key(key: ConnectionKey) -> u32 {
    match key {
        ConnectionKey::State => 0,
        ConnectionKey::Direction => 1,
        ConnectionKey::Status => 2,
        ConnectionKey::Mark => 3,
    }
}
