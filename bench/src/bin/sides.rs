//! Two servers under the same load, side by side: a table and a plot, written into a document.
//!
//! Reads `load-pintle-*.json` and `load-peer-*.json`, results of the loader. What always holds: what was not measured is
//! shown as absent; between the marks the document is replaced, all else stays as it is.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Parser;
use serde_json::Value;

/// Puts the results of two servers into a document
#[derive(Parser)]
#[command(name = "sides")]
struct Cli {
    /// The folder with the result files
    folder: PathBuf,
    /// The document, with the two marks in it
    #[arg(long, value_name = "FILE")]
    into: PathBuf,
    /// The plot to draw
    #[arg(long, value_name = "FILE")]
    plot: PathBuf,
    /// How the document calls the plot
    #[arg(long, value_name = "PATH")]
    plot_as: String,
    /// When and how it was measured: a sentence of the table's heading
    #[arg(long)]
    about: String,
}

const BEGIN: &str = "<!-- side by side: written by bench/side-by-side -->";
const END: &str = "<!-- end of side by side -->";

struct Figure {
    name: &'static str,
    /// The result's name and field.
    of: (&'static str, &'static str),
    scale: f64,
    unit: &'static str,
    /// Whether less is better.
    less: bool,
}

const CPU: &str = "server_cpu_us_per_op";

const fn less(
    name: &'static str,
    of: (&'static str, &'static str),
    scale: f64,
    unit: &'static str,
) -> Figure {
    Figure { name, of, scale, unit, less: true }
}

#[rustfmt::skip]
const FIGURES: &[Figure] = &[
    less("start to ready", ("start", "ready_s"), 1e3, "ms"),
    less("memory at rest", ("start", "rest_memory_mb"), 1.0, "MB"),
    less("create a pod, 32 at a time: CPU", ("create", CPU), 1.0, "µs"),
    Figure { name: "create pods, durable", of: ("create", "ops_per_s"), scale: 1.0, unit: "per s", less: false },
    less("get a pod, 32 at a time: CPU", ("get", CPU), 1.0, "µs"),
    less("list of pods, any version: CPU", ("list", CPU), 1e-3, "ms"),
    less("list of pods, the newest: CPU", ("newest", CPU), 1e-3, "ms"),
    less("merge patch of a pod: CPU", ("merge", CPU), 1.0, "µs"),
    less("server-side apply of a pod: CPU", ("apply", CPU), 1.0, "µs"),
    less("watch event delivered: CPU", ("watch", CPU), 1.0, "µs"),
    less("from update to event, p99", ("watch", "p99_ms"), 1.0, "ms"),
    less("events lost", ("watch", "lost"), 1.0, ""),
    less("memory after all of it", ("watch", "server_memory_mb"), 1.0, "MB"),
];

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let of = |who: &str| Side::read(&cli.folder, who);
    let (pintle, peer) = (of("pintle")?, of("peer")?);
    ensure!(!pintle.0.is_empty(), "there are no results in {}", cli.folder.display());
    let section = section(&pintle, &peer, &cli.about, &cli.plot_as);
    let text = std::fs::read_to_string(&cli.into).with_context(|| cli.into.display().to_string())?;
    let text = replaced(&text, &section).with_context(|| cli.into.display().to_string())?;
    std::fs::write(&cli.into, text).with_context(|| cli.into.display().to_string())?;
    std::fs::write(&cli.plot, plot(&pintle, &peer)).with_context(|| cli.plot.display().to_string())
}

/// What one server came to, by the result's name.
struct Side(Vec<(String, Value)>);

impl Side {
    fn read(folder: &Path, who: &str) -> anyhow::Result<Self> {
        let entries = std::fs::read_dir(folder).with_context(|| format!("no folder {}", folder.display()))?;
        let mut found = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let Some(name) = name.strip_prefix(&format!("load-{who}-")) else { continue };
            let text = std::fs::read_to_string(&path)?;
            let value = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
            found.push((name.to_owned(), value));
        }
        Ok(Side(found))
    }

    fn figure(&self, wanted: &Figure) -> Option<f64> {
        let (_, value) = self.0.iter().find(|(name, _)| name == wanted.of.0)?;
        Some(value[wanted.of.1].as_f64()? * wanted.scale)
    }
}

fn section(pintle: &Side, peer: &Side, about: &str, plot: &str) -> String {
    let mut text = format!("{about}\n\n| | Pintle | upstream | ratio |\n|---|--:|--:|--:|\n");
    for wanted in FIGURES {
        let (ours, theirs) = (pintle.figure(wanted), peer.figure(wanted));
        let shown = |value: Option<f64>| {
            value.map_or_else(
                || "not measured".to_owned(),
                |value| format!("{} {}", number(value), wanted.unit),
            )
        };
        let ratio = ours.zip(theirs).filter(|(ours, theirs)| *ours > 0.0 && *theirs > 0.0);
        let ratio = ratio.map(|(ours, theirs)| if wanted.less { theirs / ours } else { ours / theirs });
        // writing to a string cannot fail
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            wanted.name,
            shown(ours).trim_end(),
            shown(theirs).trim_end(),
            ratio.map(number).unwrap_or_default()
        );
    }
    let _ = write!(text, "\n![Server CPU per operation, on a logarithmic scale]({plot})");
    text
}

/// Replaces the part of the document between the marks.
fn replaced(text: &str, section: &str) -> anyhow::Result<String> {
    let (before, rest) = text.split_once(BEGIN).context("the mark where it begins is not there")?;
    let (_, after) = rest.split_once(END).context("the mark where it ends is not there")?;
    Ok(format!("{before}{BEGIN}\n\n{section}\n\n{END}{after}"))
}

/// Three digits are all that a measurement is worth.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        small if small < 10.0 => 2,
        some if some < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

/// Bars for what costs CPU, in microseconds on a logarithmic scale: each step to the right is ten times as much.
fn plot(pintle: &Side, peer: &Side) -> String {
    const LEFT: f64 = 250.0;
    const WIDTH: f64 = 560.0;
    const ROW: f64 = 44.0;
    let rows: Vec<_> = FIGURES.iter().filter(|wanted| wanted.of.1 == CPU).collect();
    let us = |side: &Side, wanted: &Figure| side.figure(wanted).map(|value| value / wanted.scale);
    let most = rows.iter().flat_map(|row| [us(pintle, row), us(peer, row)]).flatten().fold(10.0, f64::max);
    let decades = most.log10().ceil();
    let reach = |us: f64| us.max(1.0).log10() / decades * WIDTH;
    let bottom = 40.0 + ROW * rows.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0} {:.0}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <rect x=\"{LEFT}\" y=\"10\" width=\"12\" height=\"12\" fill=\"#2563eb\"/><text x=\"{:.0}\" y=\"21\">Pintle</text>\n\
         <rect x=\"{:.0}\" y=\"10\" width=\"12\" height=\"12\" fill=\"#9ca3af\"/><text x=\"{:.0}\" y=\"21\">upstream</text>\n",
        LEFT + WIDTH + 90.0,
        bottom + 40.0,
        LEFT + 18.0,
        LEFT + 90.0,
        LEFT + 108.0,
    );
    for decade in 0..=decades as i32 {
        let x = LEFT + f64::from(decade) / decades * WIDTH;
        let name = ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s"];
        let _ = writeln!(
            text,
            "<line x1=\"{x:.0}\" x2=\"{x:.0}\" y1=\"34\" y2=\"{bottom:.0}\" stroke=\"#e5e7eb\"/>\
             <text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            bottom + 18.0,
            name.get(decade as usize).unwrap_or(&""),
        );
    }
    for (nth, wanted) in rows.into_iter().enumerate() {
        let top = 42.0 + ROW * nth as f64;
        let _ = writeln!(
            text,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            top + 20.0,
            wanted.name.trim_end_matches(": CPU")
        );
        for (side, colour, y) in [(pintle, "#2563eb", top), (peer, "#9ca3af", top + 17.0)] {
            let Some(value) = us(side, wanted) else { continue };
            let length = reach(value);
            let shown = format!("{} {}", number(value * wanted.scale), wanted.unit);
            let _ = writeln!(
                text,
                "<rect x=\"{LEFT}\" y=\"{y:.0}\" width=\"{length:.1}\" height=\"15\" fill=\"{colour}\"/>\
                 <text x=\"{:.0}\" y=\"{:.0}\">{shown}</text>",
                LEFT + length + 6.0,
                y + 12.0,
            );
        }
    }
    text.push_str("</svg>\n");
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sides() -> (Side, Side) {
        let of = |us: f64| ("get".to_owned(), json!({CPU: us}));
        (Side(vec![of(20.0), ("watch".to_owned(), json!({"lost": 0}))]), Side(vec![of(500.0)]))
    }

    #[test]
    fn figures_stand_side_by_side() {
        let (pintle, peer) = sides();
        let text = section(&pintle, &peer, "Measured.", "a.svg");
        assert!(text.contains("| get a pod, 32 at a time: CPU | 20.0 µs | 500 µs | 25.0 |"), "{text}");
        assert!(text.contains("| start to ready | not measured | not measured |  |"), "{text}");
        assert!(text.contains("| events lost | 0 | not measured |  |"), "{text}");
    }

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        assert_eq!(replaced(&text, "new").unwrap(), format!("a\n{BEGIN}\n\nnew\n\n{END}\nb\n"));
        assert!(replaced("a", "new").is_err());
    }

    #[test]
    fn ten_times_as_much_is_one_step_to_the_right() {
        let (pintle, peer) = sides();
        let drawn = plot(&pintle, &peer);
        let widths: Vec<f64> = drawn
            .lines()
            .filter(|line| line.contains("height=\"15\""))
            .map(|line| line.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        let [ours, theirs] = widths[..] else { panic!("{drawn}") };
        assert!((theirs / ours - 500f64.log10() / 20f64.log10()).abs() < 0.01, "{widths:?}");
    }
}
