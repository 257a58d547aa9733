//! Finds work that grows faster than its input: sends each shape of request in three sizes through a server in
//! this process and counts the steps that it takes, which no other program on the machine can change.
//!
//! The sizes are n, 2n and 4n. Work that is linear takes twice as many steps from 2n to 4n as from n to 2n; a
//! sort takes a little more; work that looks at every pair takes four times as many. What does not depend on the
//! size drops out. See `bench/growth/run`, which builds a program that counts.
//!
//! The shapes of `tables.rs` follow from the tables: every list, map and text of every kind. Those of
//! `shapes.rs` are written by hand: patches, applies, selectors, custom resources, odd bodies.

mod counter;
mod custom;
mod patches;
#[path = "../work/read.rs"]
mod read;
mod roles;
mod shapes;
mod tables;

use anyhow::Context;
use counter::Counter;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use std::process::ExitCode;
use std::time::Duration;

/// One request.
#[derive(Clone)]
struct Call {
    method: Method,
    path: String,
    content_type: &'static str,
    accept: &'static str,
    /// The user, if it is not the administrator.
    user: Option<&'static str>,
    body: Vec<u8>,
}

impl Call {
    fn new(method: Method, path: impl Into<String>, body: Vec<u8>) -> Self {
        let json = "application/json";
        Call { method, path: path.into(), content_type: json, accept: json, user: None, body }
    }

    fn json(method: Method, path: impl Into<String>, body: &Value) -> Self {
        Call::new(method, path, body.to_string().into_bytes())
    }

    fn of_type(self, content_type: &'static str) -> Self {
        Call { content_type, ..self }
    }

    fn by(self, user: &'static str) -> Self {
        Call { user: Some(user), ..self }
    }
}

/// What is done for one size of a shape; only `call` is counted.
struct Probe {
    before: Vec<Call>,
    call: Call,
    after: Vec<Call>,
}

impl From<Call> for Probe {
    fn from(call: Call) -> Self {
        Probe { before: Vec::new(), call, after: Vec::new() }
    }
}

struct Shape {
    name: String,
    /// The smallest of the three sizes.
    size: usize,
    /// How much its work may grow.
    limit: f64,
    probe: Box<dyn Fn(usize) -> Probe>,
}

impl Shape {
    fn new(name: impl Into<String>, size: usize, probe: impl Fn(usize) -> Probe + 'static) -> Self {
        Shape { name: name.into(), size, limit: LIMIT, probe: Box::new(probe) }
    }

    /// Work that is counted where it is done, and refused beyond a bound.
    fn bounded(self) -> Self {
        Shape { limit: f64::INFINITY, ..self }
    }
}

/// Fewer steps than these say nothing: tasks of the server take some of their own.
const FLOOR: u64 = 100_000;

/// How often a shape is measured at most in one way. Tasks of the server that run meanwhile add steps and take none
/// away, so the fewest of several runs are those of the request.
const RUNS: usize = 6;

/// How long the server's tasks are waited for before and after each request. The control loops of the server change
/// what a request finds (the conditions of a definition); on a busy machine they may not have done so after a few turns of
/// the executor, and some sizes are then measured with other objects than the rest. A shape that fails without a wait is
/// measured again, from nothing, with one.
const WAITS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(100)];

struct Measurement {
    steps: [u64; 3],
    status: u16,
}

impl Measurement {
    /// The fewest steps of each size.
    fn fewest(self, other: Measurement) -> Measurement {
        let [one, two, four] = self.steps;
        let [other_one, other_two, other_four] = other.steps;
        let steps = [one.min(other_one), two.min(other_two), four.min(other_four)];
        Measurement { steps, status: other.status }
    }

    /// How much more work the second doubling is than the first; 2 is linear.
    fn growth(&self) -> f64 {
        let [one, two, four] = self.steps;
        let (first, second) = (two.saturating_sub(one), four.saturating_sub(two));
        if second < FLOOR { 0.0 } else { second as f64 / first.max(FLOOR / 4) as f64 }
    }
}

/// Growth of a sort is 2.2, that of all pairs 4.
const LIMIT: f64 = 2.6;

struct Growth {
    reads: read::Reads,
    counter: Counter,
    /// Whether answers are printed.
    verbose: bool,
}

impl Growth {
    async fn send(&self, call: &Call) -> anyhow::Result<u16> {
        let impersonated = call.user.into_iter().map(|user| ("impersonate-user", user));
        let request = impersonated
            .fold(Request::builder(), |request, (name, value)| request.header(name, value))
            .method(call.method.clone())
            .uri(call.path.as_str())
            .header(header::CONTENT_TYPE, call.content_type)
            .header(header::ACCEPT, call.accept)
            .header(header::USER_AGENT, "growth")
            .body(Full::from(call.body.clone()))?;
        let response = self.reads.respond(request).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        if self.verbose {
            eprintln!("{} {:.100}: {status} {:.300}", call.method, call.path, String::from_utf8_lossy(&body));
        }
        Ok(status)
    }

    /// Lets background tasks of the server finish.
    async fn settle(&self, wait: Duration) {
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
    }

    /// Measures a shape until its work is seen not to grow too fast, or until it is sure to.
    async fn judge(&mut self, shape: &Shape) -> anyhow::Result<Measurement> {
        let mut last = None;
        for wait in WAITS {
            let mut result = self.measure(shape, wait).await?;
            for _ in 1..RUNS {
                if result.growth() <= shape.limit {
                    return Ok(result);
                }
                result = result.fewest(self.measure(shape, wait).await?);
            }
            last = Some(result);
        }
        last.context("a shape was not measured")
    }

    async fn measure(&mut self, shape: &Shape, wait: Duration) -> anyhow::Result<Measurement> {
        let (mut steps, mut status) = ([0; 3], 0);
        for (nth, size) in [1, 2, 4].map(|times| times * shape.size).into_iter().enumerate() {
            let probe = (shape.probe)(size);
            for call in &probe.before {
                self.send(call).await?;
            }
            self.settle(wait).await;
            let began = self.counter.steps()?;
            status = self.send(&probe.call).await?;
            steps[nth] = self.counter.steps()? - began;
            for call in &probe.after {
                self.send(call).await?;
            }
            self.settle(wait).await;
        }
        Ok(Measurement { steps, status })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut flag = |name: &str| {
        let before = arguments.len();
        arguments.retain(|it| it != name);
        arguments.len() < before
    };
    let (all, verbose) = (flag("--all"), flag("--answers"));
    let mut growth = Growth { counter: Counter::open()?, reads: read::Reads::new(false).await?, verbose };
    for call in shapes::fixtures().into_iter().chain(custom::fixtures()) {
        let status = growth.send(&call).await?;
        anyhow::ensure!(status < 300, "{}: {status}", call.path);
    }
    growth.settle(WAITS[0]).await;
    let mut shapes = shapes::all();
    shapes.extend(patches::all());
    shapes.extend(custom::all());
    shapes.extend(roles::all());
    shapes.extend(tables::all()?);
    let (mut count, mut grown) = (0, Vec::new());
    for shape in &shapes {
        if !arguments.is_empty() && !arguments.iter().any(|it| shape.name.contains(it.as_str())) {
            continue;
        }
        count += 1;
        let result = growth.judge(shape).await?;
        let [one, two, four] = result.steps;
        let text = format!(
            "{:5.2}  {one:>10} {two:>10} {four:>10}  {} ({})",
            result.growth(),
            shape.name,
            result.status
        );
        if all {
            eprintln!("{text}");
        }
        if result.growth() > shape.limit {
            grown.push(text);
        }
    }
    anyhow::ensure!(count > 0, "no shape has such a name");
    if grown.is_empty() {
        eprintln!("work grows with its input in all of {count} shapes");
        return Ok(ExitCode::SUCCESS);
    }
    let (grown, texts) = (grown.len(), grown.join("\n"));
    eprintln!(
        "work grows faster than its input in {grown} of {count} shapes (2 is linear, 4 is quadratic):\n{texts}"
    );
    Ok(ExitCode::FAILURE)
}
