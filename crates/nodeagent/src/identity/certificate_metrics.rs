//! Metrics of the rotation of a certificate.

use super::rotation_state::RotationState;
use super::signing_request::Purpose;
use env::World;
use metrics::{Counter, Descriptor, Gauge, Histogram, Registry, seconds};
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::watch;

const HOUR: f64 = 3600.0;
const DAY: f64 = 24.0 * HOUR;
const AGES: &[u64] = &seconds([
    60.0,
    HOUR,
    4.0 * HOUR,
    DAY,
    7.0 * DAY,
    30.0 * DAY,
    90.0 * DAY,
    180.0 * DAY,
    360.0 * DAY,
    1440.0 * DAY,
]);

/// See the module.
pub struct CertificateMetrics {
    errors: Counter,
    /// Ages of replaced certificates.
    ages: Option<Histogram>,
}

impl CertificateMetrics {
    pub fn new(
        registry: &Registry,
        purpose: Purpose,
        state: watch::Receiver<RotationState>,
        world: World,
    ) -> Self {
        let [errors, left] = match purpose {
            Purpose::Client => [
                Descriptor::alpha(
                    "kubelet_certificate_manager_client_expiration_renew_errors",
                    "Failed requests for a client certificate.",
                ),
                Descriptor::alpha(
                    "kubelet_certificate_manager_client_ttl_seconds",
                    "Time until the client certificate ends; negative after its end.",
                ),
            ],
            Purpose::Serving => [
                Descriptor::alpha(
                    "kubelet_server_expiration_renew_errors",
                    "Failed requests for a certificate of the HTTP API.",
                ),
                Descriptor::alpha(
                    "kubelet_certificate_manager_server_ttl_seconds",
                    "Time until the certificate of the HTTP API ends; negative after its end.",
                ),
            ],
        };
        registry.callback::<Gauge>(left, move |samples| {
            let end = state.borrow().current.as_ref().map(|it| it.facts.not_after.as_secs_f64());
            let now = world.now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            if let Some(end) = end {
                samples.add(&[], (end - now).floor());
            }
        });
        let ages = Descriptor::alpha(
            "kubelet_certificate_manager_server_rotation_seconds",
            "Age at which certificates of the HTTP API were replaced.",
        );
        let ages = (purpose == Purpose::Serving).then(|| registry.one(ages.seconds(AGES)));
        CertificateMetrics { errors: registry.one(errors), ages }
    }

    pub fn failed(&self) {
        self.errors.inc();
    }

    pub fn replaced(&self, age: Duration) {
        if let Some(ages) = &self.ages {
            ages.took(age);
        }
    }
}
