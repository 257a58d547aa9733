//! Pages of metrics in Prometheus's text form.
//!
//! A page is a table of families (name, type, help) and samples. A family without samples is absent.
//!
//! ```text
//! kubelet_evictions|counter|[ALPHA] Evictions of pods by signal.
//! ```

use metrics::Registry;
use std::collections::BTreeMap;
use std::fmt::Write as _;

pub const AGENT: &str = include_str!("families/agent.txt");
pub const CADVISOR: &str = include_str!("families/cadvisor.txt");
pub const RESOURCE: &str = include_str!("families/resource.txt");
pub const PROBES: &str = include_str!("families/probes.txt");

/// A line of a table.
struct FamilyLine<'t> {
    name: &'t str,
    kind: &'t str,
    help: &'t str,
}

fn families(table: &str) -> impl Iterator<Item = FamilyLine<'_>> {
    table.lines().filter_map(|line| {
        let mut fields = line.splitn(3, '|');
        Some(FamilyLine { name: fields.next()?, kind: fields.next()?, help: fields.next()? })
    })
}

impl FamilyLine<'_> {
    fn head(&self, out: &mut String) {
        let FamilyLine { name, kind, help } = self;
        // writing to a string cannot fail
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }
}

/// Samples of a page by family.
#[derive(Default)]
pub struct PageSamples(BTreeMap<String, String>);

impl PageSamples {
    /// Adds a sample; `at_nanos` is its time, or zero for the time of the scrape.
    pub fn add(&mut self, name: &str, labels: &[(&str, &str)], value: f64, at_nanos: i64) {
        let lines = self.0.entry(name.to_owned()).or_default();
        write_sample(lines, name, labels, value, at_nanos);
    }

    /// Adds a whole histogram: upper bounds with the count of each bucket, one more for `+Inf`, and the sum.
    pub fn add_histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        bounds: &[f64],
        counts: &[u64],
        sum: f64,
    ) {
        let lines = self.0.entry(name.to_owned()).or_default();
        let mut seen = 0;
        for (at, count) in counts.iter().enumerate() {
            seen += count;
            let bound = bounds.get(at).map_or("+Inf".to_owned(), ToString::to_string);
            let all: Vec<(&str, &str)> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            write_sample(lines, &format!("{name}_bucket"), &all, seen as f64, 0);
        }
        write_sample(lines, &format!("{name}_sum"), labels, sum, 0);
        write_sample(lines, &format!("{name}_count"), labels, seen as f64, 0);
    }

    /// Adds the samples of a registry. Families that the table lacks keep their own heads.
    pub fn add_registry(&mut self, registry: &Registry, table: &str) {
        let known: std::collections::BTreeSet<&str> = families(table).map(|it| it.name).collect();
        let text = registry.text();
        let mut current = "";
        for line in text.lines() {
            if let Some(head) = line.strip_prefix("# ") {
                current = head.split(' ').nth(1).unwrap_or_default();
                if known.contains(current) {
                    continue;
                }
            }
            let lines = self.0.entry(current.to_owned()).or_default();
            lines.push_str(line);
            lines.push('\n');
        }
    }

    /// The text of the page.
    pub fn render(mut self, table: &str) -> String {
        let mut parts: BTreeMap<String, String> = BTreeMap::new();
        for family in families(table) {
            let Some(samples) = self.0.remove(family.name) else { continue };
            let mut part = String::new();
            family.head(&mut part);
            part.push_str(&samples);
            parts.insert(family.name.to_owned(), part);
        }
        parts.extend(self.0);
        parts.into_values().collect()
    }
}

fn write_sample(out: &mut String, name: &str, labels: &[(&str, &str)], value: f64, at_nanos: i64) {
    out.push_str(name);
    for (at, (key, value)) in labels.iter().enumerate() {
        let _ = write!(out, "{}{key}=\"{}\"", if at == 0 { '{' } else { ',' }, escape(value));
    }
    if !labels.is_empty() {
        out.push('}');
    }
    let _ = match at_nanos {
        0 => writeln!(out, " {value}"),
        nanos => writeln!(out, " {value} {}", nanos / 1_000_000),
    };
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::{Counter, Descriptor};

    #[test]
    fn a_page_has_the_heads_of_its_table() {
        let table = "a_total|counter|[ALPHA] A.\nb|histogram|B.\nc|gauge|C.\nd|gauge|D.\n";
        let registry = Registry::default();
        registry.one::<Counter>(Descriptor::alpha("a_total", "own text")).inc();
        registry.one::<Counter>(Descriptor::alpha("other_total", "own text")).inc();
        let mut samples = PageSamples::default();
        samples.add_registry(&registry, table);
        samples.add_histogram("b", &[("x", "y")], &[0.5], &[1, 2], 4.5);
        samples.add("c", &[("name", "a\"b")], 1.5, 2_000_000);
        let expected = "# HELP a_total [ALPHA] A.\n# TYPE a_total counter\na_total 1\n\
            # HELP b B.\n# TYPE b histogram\nb_bucket{x=\"y\",le=\"0.5\"} 1\nb_bucket{x=\"y\",le=\"+Inf\"} 3\n\
            b_sum{x=\"y\"} 4.5\nb_count{x=\"y\"} 3\n\
            # HELP c C.\n# TYPE c gauge\nc{name=\"a\\\"b\"} 1.5 2\n\
            # HELP other_total [ALPHA] own text\n# TYPE other_total counter\nother_total 1\n";
        assert_eq!(samples.render(table), expected);
    }

    #[test]
    fn tables_are_whole() {
        for table in [AGENT, CADVISOR, RESOURCE, PROBES] {
            for family in families(table) {
                assert!(matches!(family.kind, "counter" | "gauge" | "histogram"), "{}", family.name);
                assert!(!family.help.contains('|') && family.help.ends_with('.'), "{}", family.name);
            }
            assert_eq!(families(table).count(), table.lines().count());
        }
    }
}
