//! What the workers are to send, one request after the other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bench::pods::pod;
use bench::target::Target;
use bytes::Bytes;
use clap::ValueEnum;
use http::{HeaderValue, Method, Request, Uri, header};
use http_body_util::Full;
use serde_json::{Value, json};

/// See the module.
pub enum Plan {
    /// The same GET again until the time has come.
    Until { uri: Uri, deadline: Instant },
    /// One POST for each pod.
    Create { uri: Uri, next: AtomicU64, count: u64 },
    /// One change after the other to pods that are there, until the time has come.
    Change { pods: Vec<Uri>, next: AtomicU64, how: How, deadline: Instant },
}

/// The ways to change a pod.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum How {
    /// A merge patch of one annotation
    Merge,
    /// A server-side apply of the whole pod
    Apply,
}

impl Plan {
    /// The next request; none at the end.
    pub fn next(&self, target: &Target) -> anyhow::Result<Option<Request<Full<Bytes>>>> {
        let request = match self {
            Self::Until { deadline, .. } | Self::Change { deadline, .. } if Instant::now() >= *deadline => {
                return Ok(None);
            }
            Self::Until { uri, .. } => target.request(Method::GET, uri.clone(), Bytes::new()),
            Self::Create { uri, next, count } => match next.fetch_add(1, Ordering::Relaxed) {
                nth if nth < *count => target.request(Method::POST, uri.clone(), pod(nth).to_string().into()),
                _ => return Ok(None),
            },
            Self::Change { pods, next, how, .. } => {
                let nth = next.fetch_add(1, Ordering::Relaxed);
                let which = nth % pods.len() as u64;
                let (form, body) = how.change(which, nth);
                let uri = pods[which as usize].clone();
                target.request(Method::PATCH, uri, body.to_string().into()).map(|mut request| {
                    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(form));
                    request
                })
            }
        };
        request.map(Some)
    }
}

impl How {
    pub fn name(self) -> &'static str {
        match self {
            Self::Merge => "merge",
            Self::Apply => "apply",
        }
    }

    /// What the path of a pod takes besides.
    pub fn query(self) -> &'static str {
        match self {
            Self::Merge => "",
            Self::Apply => "?fieldManager=load&force=true",
        }
    }

    fn change(self, which: u64, round: u64) -> (&'static str, Value) {
        let annotation = json!({"example.com/round": round.to_string()});
        match self {
            Self::Merge => ("application/merge-patch+json", json!({"metadata": {"annotations": annotation}})),
            Self::Apply => {
                let mut pod = pod(which);
                pod["metadata"]["annotations"] = annotation;
                ("application/apply-patch+yaml", pod)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::pods::pod_name;
    use bench::target::TargetArgs;

    fn target() -> Target {
        let server = "https://localhost:1".to_owned();
        Target::new(&TargetArgs { server, cert: None, key: None, token: None }).unwrap()
    }

    #[test]
    fn pods_differ_in_name_and_have_their_weight() {
        let (first, last) = (pod(0).to_string(), pod(9_999).to_string());
        assert!((2_000..3_500).contains(&first.len()), "{}", first.len());
        assert_eq!(first.len(), last.len());
        assert!(last.contains(&pod_name(9_999)) && !first.contains(&pod_name(9_999)));
    }

    #[test]
    fn a_plan_ends() {
        let target = target();
        let uri = target.uri("/one").unwrap();
        let past = Plan::Until { uri: uri.clone(), deadline: Instant::now() };
        assert!(past.next(&target).unwrap().is_none());
        let two = Plan::Create { uri, next: AtomicU64::new(0), count: 2 };
        let made = std::iter::from_fn(|| two.next(&target).unwrap());
        assert_eq!(made.map(|request| request.method().clone()).collect::<Vec<_>>(), ["POST", "POST"]);
    }

    #[test]
    fn changes_go_round() {
        let target = target();
        let pods = vec![target.uri("/a").unwrap(), target.uri("/b").unwrap()];
        let deadline = Instant::now() + std::time::Duration::from_secs(60);
        let plan = Plan::Change { pods, next: AtomicU64::new(0), how: How::Merge, deadline };
        let paths: Vec<_> =
            (0..3).map(|_| plan.next(&target).unwrap().unwrap().uri().path().to_owned()).collect();
        assert_eq!(paths, ["/a", "/b", "/a"]);
        let (first, second) = (How::Apply.change(1, 1).1, How::Apply.change(1, 3).1);
        assert_eq!(first["metadata"]["name"], second["metadata"]["name"]);
        assert_ne!(first, second);
    }
}
