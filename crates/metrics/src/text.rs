//! The Prometheus text exposition format, version 0.0.4.

use crate::descriptor::{Descriptor, Stability};
use std::fmt::Write;

/// The text that samples are written to.
#[derive(Default)]
pub struct Text(pub(crate) String);

impl Text {
    pub(crate) fn head(&mut self, descriptor: &Descriptor, kind: &str) {
        let stability = match descriptor.stability {
            Stability::Alpha => "ALPHA",
            Stability::Stable => "STABLE",
        };
        let (name, help) = (descriptor.name, descriptor.help);
        // writing to a string cannot fail
        let _ = writeln!(self.0, "# HELP {name} [{stability}] {help}\n# TYPE {name} {kind}");
    }

    pub(crate) fn sample(&mut self, name: &str, suffix: &str, labels: &str, value: f64) {
        let _ = match labels {
            "" => write!(self.0, "{name}{suffix} "),
            labels => write!(self.0, "{name}{suffix}{{{labels}}} "),
        };
        number(&mut self.0, value);
        self.0.push('\n');
    }

    pub(crate) fn bucket(&mut self, name: &str, labels: &str, bound: f64, count: u64) {
        let comma = if labels.is_empty() { "" } else { "," };
        let _ = write!(self.0, "{name}_bucket{{{labels}{comma}le=\"");
        number(&mut self.0, bound);
        let _ = writeln!(self.0, "\"}} {count}");
    }
}

/// Labels, sorted by name.
pub(crate) fn labels<'a>(names: &[&str], values: impl Iterator<Item = &'a str>) -> String {
    let mut pairs: Vec<_> = names.iter().zip(values).collect();
    pairs.sort_by_key(|(name, _)| **name);
    let mut out = String::new();
    for (name, value) in pairs {
        let _ = write!(out, "{}{name}=\"", if out.is_empty() { "" } else { "," });
        for letter in value.chars() {
            match letter {
                '\\' => out.push_str("\\\\"),
                '"' => out.push_str("\\\""),
                '\n' => out.push_str("\\n"),
                letter => out.push(letter),
            }
        }
        out.push('"');
    }
    out
}

/// The shortest number that parses to the same value, with an exponent from a million on: scrapers compare bucket
/// bounds as text.
pub(crate) fn number(out: &mut String, value: f64) {
    let size = value.abs();
    let _ = if value.is_infinite() {
        write!(out, "{}Inf", if value > 0.0 { '+' } else { '-' })
    } else if value == 0.0 || (1e-4..1e6).contains(&size) || value.is_nan() {
        write!(out, "{value}")
    } else {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
        write!(out, "{digits}e{sign}{exponent:0>2}")
    };
}
