use super::*;
use std::time::Duration;

const BOUNDS: &[u64] = &seconds([0.005, 0.25, 1.0]);
const REQUESTS: Descriptor = Descriptor::stable("requests_total", "Requests.").by(&["verb", "code"]);
const LONG: Descriptor = Descriptor::alpha("request_seconds", "How long.").by(&["verb"]).seconds(BOUNDS);

fn check(registry: &Registry, expected: &str) {
    assert_eq!(registry.text(), expected);
}

#[test]
fn unobserved_series_are_not_exposed() {
    let registry = Registry::default();
    let requests = registry.family::<Counter>(REQUESTS);
    check(&registry, "");
    requests.of(&["GET", "200"]).inc();
    let held = requests.of(&["GET", "404"]);
    held.inc_by(2);
    requests.of(&["GET", "404"]).inc();
    assert_eq!(held.get(), 3);
    check(
        &registry,
        "# HELP requests_total [STABLE] Requests.\n# TYPE requests_total counter\n\
         requests_total{code=\"200\",verb=\"GET\"} 1\nrequests_total{code=\"404\",verb=\"GET\"} 3\n",
    );
}

#[test]
fn bounds_are_part_of_their_buckets() {
    let registry = Registry::default();
    let long = registry.family::<Histogram>(LONG).of(&["GET"]);
    for millis in [5, 6, 250, 900, 2000] {
        long.took(Duration::from_millis(millis));
    }
    assert_eq!((long.count(), long.sum()), (5, 3_161_000_000));
    check(
        &registry,
        "# HELP request_seconds [ALPHA] How long.\n# TYPE request_seconds histogram\n\
         request_seconds_bucket{verb=\"GET\",le=\"0.005\"} 1\n\
         request_seconds_bucket{verb=\"GET\",le=\"0.25\"} 3\n\
         request_seconds_bucket{verb=\"GET\",le=\"1\"} 4\n\
         request_seconds_bucket{verb=\"GET\",le=\"+Inf\"} 5\n\
         request_seconds_sum{verb=\"GET\"} 3.161\nrequest_seconds_count{verb=\"GET\"} 5\n",
    );
}

#[test]
fn a_second_name_shows_the_same() {
    let registry = Registry::default();
    let requests = registry.family::<Counter>(REQUESTS);
    registry.second_name(Descriptor { name: "alias_total", ..REQUESTS }, &requests);
    requests.of(&["GET", "200"]).inc();
    let text = registry.text();
    assert!(text.contains("alias_total{code=\"200\",verb=\"GET\"} 1\n"), "{text}");
    assert!(text.contains("requests_total{code=\"200\",verb=\"GET\"} 1\n"), "{text}");
}

#[test]
fn a_repeated_registration_returns_the_same_metric() {
    let registry = Registry::default();
    registry.family::<Counter>(REQUESTS).of(&["GET", "200"]).inc();
    registry.family::<Counter>(REQUESTS).of(&["GET", "200"]).inc();
    assert!(registry.text().ends_with("requests_total{code=\"200\",verb=\"GET\"} 2\n"));
    assert_eq!(registry.text().lines().count(), 3);
}

#[test]
fn operators_hide_metrics_and_limit_labels() {
    let listed = ["200".to_owned()].into_iter().collect();
    let allowed = [(("requests_total".to_owned(), "code".to_owned()), listed)].into_iter().collect();
    let disabled = ["gone".to_owned()].into_iter().collect();
    let registry = Registry::new(Options { disabled, allowed });
    let requests = registry.family::<Counter>(REQUESTS);
    registry.one::<Counter>(Descriptor::alpha("gone", "Not shown.")).inc();
    for code in ["200", "404", "500"] {
        requests.of(&["GET", code]).inc();
    }
    check(
        &registry,
        "# HELP requests_total [STABLE] Requests.\n# TYPE requests_total counter\n\
         requests_total{code=\"200\",verb=\"GET\"} 1\nrequests_total{code=\"unexpected\",verb=\"GET\"} 2\n",
    );
}

#[test]
fn callbacks_run_on_each_scrape() {
    let registry = Registry::default();
    let descriptor = Descriptor::stable("objects", "Objects.").by(&["resource"]);
    registry.callback::<Gauge>(descriptor, |out| {
        out.add(&["pods"], 2.5);
        out.add(&["a\"\\\nb"], 0.0);
    });
    registry.callback::<Gauge>(Descriptor::alpha("silent", "Nothing to say."), |_| {});
    check(
        &registry,
        "# HELP objects [STABLE] Objects.\n# TYPE objects gauge\n\
         objects{resource=\"a\\\"\\\\\\nb\"} 0\nobjects{resource=\"pods\"} 2.5\n",
    );
}

#[test]
fn callbacks_can_return_histograms() {
    let registry = Registry::default();
    registry.histogram_callback(Descriptor::alpha("full", "How full.").by(&["level"]), |out| {
        out.add(&["a"], &[0.5, 1.0], [3, 0, 2].into(), 4.5);
    });
    check(
        &registry,
        "# HELP full [ALPHA] How full.\n# TYPE full histogram\nfull_bucket{level=\"a\",le=\"0.5\"} 3\n\
         full_bucket{level=\"a\",le=\"1\"} 3\nfull_bucket{level=\"a\",le=\"+Inf\"} 5\n\
         full_sum{level=\"a\"} 4.5\nfull_count{level=\"a\"} 5\n",
    );
}

#[test]
fn numbers_are_formatted_like_upstream() {
    for (value, expected) in [
        (0.0, "0"),
        (0.005, "0.005"),
        (1.0, "1"),
        (1.25, "1.25"),
        (100_000.0, "100000"),
        (1e6, "1e+06"),
        (1_234_567.0, "1.234567e+06"),
        (0.00001, "1e-05"),
        (-2.5, "-2.5"),
        (f64::INFINITY, "+Inf"),
    ] {
        let mut out = String::new();
        text::number(&mut out, value);
        assert_eq!(out, expected);
    }
    assert_eq!(counts::<4>(1000, 10), [1000, 10_000, 100_000, 1_000_000]);
}

#[test]
fn there_is_an_end_to_series() {
    let index = Index::of_at_most(3);
    for name in ["a", "b", "c", "d", "a", "e"] {
        index.with(&[name], Counter::default, Counter::inc);
    }
    assert_eq!(index.len(), 3);
    // those that are there go on
    assert_eq!(index.with(&["a"], Counter::default, Counter::get), 2);
    assert_eq!(index.with(&["e"], Counter::default, Counter::get), 0);
}

#[test]
fn numbers_are_keys_too() {
    let index = Index::<Counter>::default();
    for round in 1..=2 {
        for number in (0..500).map(|it| it << 20) {
            index.numbered(number, Counter::default, Counter::inc);
            assert_eq!(index.numbered(number, Counter::default, Counter::get), round);
        }
    }
    assert_eq!(index.len(), 500);
}

#[test]
fn many_find_the_same_series_at_once() {
    let index = Arc::new(Index::<Counter>::default());
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let index = index.clone();
            std::thread::spawn(move || {
                for round in 0..2000 {
                    index.with(&[&(round % 50).to_string(), "x"], Counter::default, Counter::inc);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let all = index.all();
    assert_eq!((all.len(), all.iter().map(|it| it.value.get()).sum::<u64>()), (50, 8000));
}

#[test]
fn pages_have_a_size_limit() {
    let registry = Registry::default();
    let names: Vec<&'static str> = (0..50).map(|at| &*format!("metric_{at:03}").leak()).collect();
    for name in &names {
        let family = registry.family::<Counter>(Descriptor::alpha(name, "One of many.").by(&["at"]));
        (0..20).for_each(|at| family.of(&[&at.to_string()]).inc());
    }
    let pieces: Vec<String> = registry.pages().collect();
    assert!(pieces.len() > 1 && pieces.iter().all(|piece| piece.len() < 32 * 1024), "{}", pieces.len());
    assert!(names.iter().all(|name| pieces.concat().contains(&format!("# TYPE {name} counter\n"))));
}

#[test]
fn a_registry_tells_how_much_it_counts() {
    let registry = Registry::new(Options { disabled: ["b".to_owned()].into(), ..Options::default() });
    registry.one::<Counter>(Descriptor::stable("a", "A."));
    registry.one::<Counter>(Descriptor::alpha("b", "B."));
    assert!(!registry.text().contains("_metric_total"));
    registry.register_own_metrics();
    let text = registry.text();
    for line in [
        "disabled_metric_total 1\n",
        "hidden_metric_total 0\n",
        // those three tell of themselves, too
        "registered_metric_total{deprecated_version=\"\",stability_level=\"ALPHA\"} 3\n",
        "registered_metric_total{deprecated_version=\"\",stability_level=\"STABLE\"} 1\n",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}
