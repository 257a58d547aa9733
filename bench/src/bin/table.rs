//! One table of the result files of a run: Pintle, its goals, and the peer.
//!
//! | file | what |
//! |---|---|
//! | `kbench-*.json` | results of kbench against Pintle |
//! | `load-pintle-*.json`, `load-ceiling-*.json` | the loader's, for the same requests at both |
//! | `sync-*.json` | the disk's |
//!
//! What always holds: a figure that is in no file is shown as absent, never guessed; a check of kbench's that
//! did not hold is reported below the table, because the figures beside it do not compare.

use std::fmt::Write as _;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Parser;
use serde_json::Value;

/// Prints one table of all results in a folder
#[derive(Parser)]
#[command(name = "table")]
struct Cli {
    /// The folder with the result files
    folder: PathBuf,
    /// How many pods were listed; goals and peer are shown only for as many as those are about
    #[arg(long, default_value_t = PODS)]
    pods: u64,
}

/// How many pods the goals for lists speak of.
const PODS: u64 = 10_000;

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let results = Results::read(&cli.folder)?;
    write!(stdout(), "{}", results.table(cli.pods))?;
    Ok(())
}

/// Which way is better, and how far it is to go.
#[derive(Clone, Copy)]
enum Goal {
    AtMost(f64),
    AtLeast(f64),
    /// None is set: less is better.
    Open,
}

impl Goal {
    fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Self::AtMost(limit) => Some(value <= limit),
            Self::AtLeast(limit) => Some(value >= limit),
            Self::Open => None,
        }
    }

    fn shown(self) -> String {
        match self {
            Self::AtMost(limit) => format!("<= {}", number(limit)),
            Self::AtLeast(limit) => format!(">= {}", number(limit)),
            Self::Open => String::new(),
        }
    }
}

/// A figure of kbench's to show.
struct Figure {
    /// With `@` for the number of pods.
    name: &'static str,
    scenario: &'static str,
    /// The start of the variant's name; the worst of those that fit counts.
    variant: &'static str,
    /// A field of the result, or one of its `extra`; memory is summed over processes.
    field: &'static str,
    /// From the field's unit to the name's.
    scale: f64,
    goal: Goal,
    /// What the upstream API server with etcd was measured at.
    peer: f64,
}

const CPU: &str = "server_cpu_us_per_op";
const LAG: &str = "lag_after_put_answer_p99_ms";
const TWENTY: &str = "1000 watchers 20 ";
const FIFTY: &str = "1000 watchers 50 ";

const fn at_most(
    name: &'static str,
    (scenario, variant, field): (&'static str, &'static str, &'static str),
    scale: f64,
    limit: f64,
    peer: f64,
) -> Figure {
    Figure { name, scenario, variant, field, scale, goal: Goal::AtMost(limit), peer }
}

const fn at_least(
    name: &'static str,
    (scenario, variant, field): (&'static str, &'static str, &'static str),
    limit: f64,
    peer: f64,
) -> Figure {
    Figure { name, scenario, variant, field, scale: 1.0, goal: Goal::AtLeast(limit), peer }
}

const fn open(
    name: &'static str,
    (scenario, variant, field): (&'static str, &'static str, &'static str),
    peer: f64,
) -> Figure {
    Figure { name, scenario, variant, field, scale: 1.0, goal: Goal::Open, peer }
}

#[rustfmt::skip]
const FIGURES: &[Figure] = &[
    at_most("start to ready, empty store: s", ("startup", "", "ready_s"), 1.0, 0.1, 3.55),
    at_most("idle memory: MiB", ("startup", "", "idle_rss_mib"), 1.0, 25.0, 316.0),
    at_most("peak memory, lists of @ pods: MiB", ("list", "", "rss_peak_kb"), 1.0 / 1024.0, 200.0, 2800.0),
    at_most("get one pod, C=32: CPU us", ("get", "pod json C=32", CPU), 1.0, 60.0, 678.0),
    at_most("list @ pods, rv=0: CPU ms", ("list", "json rv=0 C=1", CPU), 1e-3, 90.0, 1147.0),
    at_most("list @ pods, rv unset: CPU ms", ("list", "json rv unset C=1", CPU), 1e-3, 90.0, 1805.0),
    at_most("list @ pods by 500: CPU ms", ("list", "json paged 500 C=1", CPU), 1e-3, 100.0, 1822.0),
    at_most("create pods, C=32: CPU us", ("create", "pods", CPU), 1.0, 320.0, 3262.0),
    at_least("create pods, C=32, durable: per s", ("create", "pods", "ops_per_s"), 2000.0, 580.0),
    at_most("merge patch of a pod: CPU us", ("patch", "merge pods", CPU), 1.0, 500.0, 5872.0),
    at_most("1,000 watchers, 20 updates/s: CPU us/event", ("watch", TWENTY, CPU), 1.0, 4.0, 47.6),
    at_most("1,000 watchers, 20 updates/s: lag p99 ms", ("watch", TWENTY, LAG), 1.0, 10.0, 55.8),
    at_most("1,000 watchers, 20 updates/s: lost", ("watch", TWENTY, "lost"), 1.0, 0.0, 0.0),
    at_least("1,000 watchers, 50 updates/s: events per s", ("watch", FIFTY, "ops_per_s"), 49_500.0, 44_694.0),
    open("1,000 watchers, 50 updates/s: lag p99 ms", ("watch", FIFTY, LAG), 1247.0),
];

/// Everything that a run left.
struct Results {
    kbench: Vec<Value>,
    /// By the rest of the file's name: `pintle-get`.
    load: Vec<(String, Value)>,
    sync: Vec<Value>,
}

impl Results {
    fn read(folder: &Path) -> anyhow::Result<Self> {
        let mut found = Self { kbench: Vec::new(), load: Vec::new(), sync: Vec::new() };
        let entries = std::fs::read_dir(folder).with_context(|| format!("no folder {}", folder.display()))?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
        paths.sort();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|it| it == "json")) {
            let text = std::fs::read_to_string(path)?;
            let value = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
            found.take(&path.file_stem().unwrap_or_default().to_string_lossy(), value);
        }
        let any = !(found.kbench.is_empty() && found.load.is_empty() && found.sync.is_empty());
        ensure!(any, "there are no results in {}", folder.display());
        Ok(found)
    }

    fn take(&mut self, name: &str, mut value: Value) {
        if name.starts_with("kbench-") {
            if let Value::Array(rows) = value["results"].take() {
                self.kbench.extend(rows);
            }
        } else if let Some(rest) = name.strip_prefix("load-") {
            self.load.push((rest.to_owned(), value));
        } else if name.starts_with("sync-") {
            self.sync.push(value);
        }
    }

    /// The worst measurement for a goal.
    fn measured(&self, figure: &Figure) -> Option<f64> {
        let fits = |row: &&Value| {
            row["scenario"] == figure.scenario
                && row["variant"].as_str().is_some_and(|it| it.starts_with(figure.variant))
        };
        let values = self.kbench.iter().filter(fits).filter_map(|row| field_value(row, figure.field));
        let worst = match figure.goal {
            Goal::AtMost(_) | Goal::Open => values.reduce(f64::max),
            Goal::AtLeast(_) => values.reduce(f64::min),
        };
        worst.map(|value| value * figure.scale)
    }

    fn loaded(&self, name: &str, field: &str) -> Option<f64> {
        self.load.iter().find(|(it, _)| it == name).and_then(|(_, value)| value[field].as_f64())
    }

    fn table(&self, pods: u64) -> String {
        let heads = ["figure", "Pintle", "goal", "met", "against", "Pintle has"];
        let mut rows = vec![heads.map(str::to_owned)];
        rows.extend(FIGURES.iter().map(|figure| self.goal_row(figure, pods)));
        for (what, scale, unit) in [("get", 1.0, "us"), ("list", 1e-3, "ms")] {
            rows.push(self.ceiling_row(what, "CPU", "server_cpu_us_per_op", scale, unit));
            rows.push(self.ceiling_row(what, "rate", "ops_per_s", 1.0, "per s"));
        }
        let creates = self.measured(&at_least("", ("create", "pods", "ops_per_s"), 0.0, 0.0));
        rows.extend(self.sync.iter().map(|sync| sync_row(sync, creates)));
        let mut text = markdown(&rows);
        for failed in self.failed_checks() {
            // writing to a string cannot fail
            let _ = write!(text, "\nCHECK FAILED: {failed}");
        }
        text
    }

    /// Goals and peer stand beside a figure only when it was measured as they were.
    fn goal_row(&self, figure: &Figure, pods: u64) -> [String; 6] {
        let measured = self.measured(figure);
        let name = figure.name.replace('@', &pods.to_string());
        if pods != PODS {
            return [name, shown(measured), String::new(), String::new(), String::new(), String::new()];
        }
        let met =
            measured.and_then(|value| figure.goal.is_met(value)).map(|met| if met { "yes" } else { "NO" });
        [
            name,
            shown(measured),
            figure.goal.shown(),
            met.unwrap_or_default().to_owned(),
            format!("peer {}", number(figure.peer)),
            ratio(measured, Some(figure.peer)),
        ]
    }

    fn ceiling_row(&self, what: &str, figure: &str, field: &str, scale: f64, unit: &str) -> [String; 6] {
        let of = |who: &str| self.loaded(&format!("{who}-{what}"), field).map(|value| value * scale);
        let (pintle, ceiling) = (of("pintle"), of("ceiling"));
        [
            format!("{what}, same bytes: {figure} {unit}"),
            shown(pintle),
            String::new(),
            String::new(),
            format!("ceiling {}", shown(ceiling)),
            ratio(pintle, ceiling),
        ]
    }

    fn failed_checks(&self) -> Vec<String> {
        let checks = |row: &Value| {
            let failed = row["checks"].as_object().into_iter().flatten().filter(|(_, held)| **held == false);
            let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            failed
                .map(|(check, _)| format!("{} {}: {check}\n", text("scenario"), text("variant")))
                .collect::<Vec<_>>()
        };
        self.kbench.iter().flat_map(checks).collect()
    }
}

/// Creations against syncs: one sync makes a whole batch durable, so there are more of them than syncs.
fn sync_row(sync: &Value, creates: Option<f64>) -> [String; 6] {
    let (rate, batch) = (sync["syncs_per_s"].as_f64(), sync["bytes"].as_f64());
    let per_sync = creates.zip(rate).filter(|(_, rate)| *rate > 0.0).map(|(creates, rate)| creates / rate);
    let mode = sync["mode"].as_str().unwrap_or_default();
    [
        format!("create pods per s; syncs per s of {} kB, {mode}", shown(batch.map(|bytes| bytes / 1e3))),
        shown(creates),
        String::new(),
        String::new(),
        format!("disk {}", shown(rate)),
        per_sync.map_or_else(String::new, |each| format!("{} per sync", number(each))),
    ]
}

fn field_value(row: &Value, field: &str) -> Option<f64> {
    let of_processes = || {
        let each = row["processes"].as_array()?.iter().map(|process| process[field].as_f64());
        each.collect::<Option<Vec<_>>>().filter(|each| !each.is_empty()).map(|each| each.iter().sum())
    };
    row[field].as_f64().or_else(|| row["extra"][field].as_f64()).or_else(of_processes)
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "not measured".to_owned(), number)
}

/// Three digits are all that a measurement is worth.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        small if small < 0.1 => 3,
        small if small < 10.0 => 2,
        some if some < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

/// How much more or less the first is than the second.
fn ratio(value: Option<f64>, reference: Option<f64>) -> String {
    match (value, reference) {
        (Some(value), Some(reference)) if value > 0.0 && reference > 0.0 => match value < reference {
            true => format!("{}x less", number(reference / value)),
            false => format!("{}x as much", number(value / reference)),
        },
        _ => String::new(),
    }
}

fn markdown(rows: &[[String; 6]]) -> String {
    let mut widths = [3; 6];
    for (width, cell) in rows.iter().flat_map(|row| row.iter().enumerate()) {
        widths[width] = widths[width].max(cell.chars().count());
    }
    let line = |cells: &[String; 6]| {
        let cells = cells.iter().zip(widths).enumerate();
        let cells = cells.map(|(at, (cell, width))| match at {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let rule = std::array::from_fn(|at| match at {
        0 => "-".repeat(widths[at]),
        _ => format!("{}:", "-".repeat(widths[at] - 1)),
    });
    let (head, body) = rows.split_at(1.min(rows.len()));
    head.iter().chain([&rule]).chain(body).map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn results() -> Results {
        let mut results = Results { kbench: Vec::new(), load: Vec::new(), sync: Vec::new() };
        let process = |peak: u64| json!([{"name": "pintle", "rss_peak_kb": peak}]);
        let rows = json!({"results": [
            {"scenario": "get", "variant": "pod json C=32", CPU: 30.0, "checks": {"in form": true}},
            {"scenario": "get", "variant": "pod protobuf C=32", CPU: 900.0},
            {"scenario": "list", "variant": "json rv=0 C=1", CPU: 45_000.0, "processes": process(102_400)},
            {"scenario": "list", "variant": "table rv=0 C=4", CPU: 1.0, "processes": process(307_200)},
            {"scenario": "create", "variant": "pods", "ops_per_s": 1500.0, "checks": {"all listed": false}},
            {"scenario": "startup", "variant": "empty store", "extra": {"ready_s": 0.05}},
            {"scenario": "startup", "variant": "empty store", "extra": {"ready_s": 0.08}},
        ]});
        results.take("kbench-api", rows);
        results.take("load-pintle-get", json!({CPU: 33.0, "ops_per_s": 9000.0}));
        results.take("load-ceiling-get", json!({CPU: 22.0, "ops_per_s": 10_000.0}));
        results.take("sync-append", json!({"mode": "append", "bytes": 107_200, "syncs_per_s": 300.0}));
        results
    }

    fn cells(table: &str, name: &str) -> Vec<String> {
        let row = table.lines().find(|line| line.starts_with(&format!("| {name}"))).unwrap();
        row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).skip(1).collect()
    }

    #[test]
    fn goals_are_met_or_not() {
        let table = results().table(PODS);
        assert_eq!(cells(&table, "get one pod"), ["30.0", "<= 60.0", "yes", "peer 678", "22.6x less"]);
        assert_eq!(
            cells(&table, "list 10000 pods, rv=0"),
            ["45.0", "<= 90.0", "yes", "peer 1147", "25.5x less"]
        );
        assert_eq!(cells(&table, "peak memory")[..3], ["300", "<= 200", "NO"]);
        assert_eq!(cells(&table, "create pods, C=32, durable")[..3], ["1500", ">= 2000", "NO"]);
        assert_eq!(cells(&table, "start to ready")[..3], ["0.080", "<= 0.10", "yes"]);
        assert_eq!(cells(&table, "merge patch")[0], "not measured");
        assert_eq!(cells(&table, "merge patch")[2], "");
    }

    #[test]
    fn other_sizes_are_compared_with_nothing() {
        let table = results().table(500);
        assert_eq!(cells(&table, "list 500 pods, rv=0"), ["45.0", "", "", "", ""]);
        assert!(
            !table.contains("peer") && !table.contains("yes") && !table.contains("10000 pods"),
            "{table}"
        );
    }

    #[test]
    fn ceilings_stand_beside() {
        let table = results().table(PODS);
        assert_eq!(
            cells(&table, "get, same bytes: CPU us"),
            ["33.0", "", "", "ceiling 22.0", "1.50x as much"]
        );
        assert_eq!(cells(&table, "get, same bytes: rate")[4], "1.11x less");
        assert_eq!(cells(&table, "list, same bytes: CPU ms")[0], "not measured");
        assert_eq!(cells(&table, "create pods per s; syncs")[3..], ["disk 300", "5.00 per sync"]);
    }

    #[test]
    fn a_failed_check_is_reported_and_an_empty_folder_rejected() {
        let table = results().table(PODS);
        assert!(table.contains("CHECK FAILED: create pods: all listed"), "{table}");
        assert!(!table.contains("in form"));
        assert!(Results::read(tempfile::tempdir().unwrap().path()).is_err());
    }
}
