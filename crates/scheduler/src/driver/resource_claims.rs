//! Resource claims of pods: the requests that reserve, release and deallocate them.

use api::meta::v1::DeleteOptions;
use api::resource::v1alpha1::{PodScheduling, ResourceClaim};
use client::{Api, Error, unless};

use super::Driver;
use crate::plugins::dynamic_resources::Reservation;
use crate::pod_info::PodInfo;

impl Driver {
    /// Reserves the claims of a pod. An error says why the pod has to wait.
    pub(super) async fn reserve(&self, reservation: &Reservation) -> Result<(), String> {
        let failed = |why: &str| Err(format!("running Reserve plugin \"DynamicResources\": {why}"));
        match (self.write_reservation(reservation).await, reservation.waits) {
            (Err(why), _) => failed(&why.message()),
            (Ok(()), Some(why)) => failed(why),
            (Ok(()), None) => Ok(()),
        }
    }

    async fn write_reservation(&self, reservation: &Reservation) -> Result<(), Error> {
        for claim in &reservation.claims {
            Api::beside(&self.client, claim).replace_status(claim).await?;
        }
        let Some(scheduling) = &reservation.scheduling else { return Ok(()) };
        let schedulings = Api::beside(&self.client, scheduling);
        match scheduling.metadata.uid.is_empty() {
            true => schedulings.create(scheduling).await?,
            false => schedulings.replace(scheduling).await?,
        };
        Ok(())
    }

    /// Releases the claims that a pod had reserved before its failure.
    pub(super) async fn release(&self, reservation: &Reservation) {
        for claim in &reservation.releases {
            self.write_claim(claim).await;
        }
    }

    /// Writes the status of a claim; a later attempt repeats what fails.
    pub(super) async fn write_claim(&self, claim: &ResourceClaim) {
        if let Err(why) = Api::beside(&self.client, claim).replace_status(claim).await {
            let (namespace, name) = (&claim.metadata.namespace, &claim.metadata.name);
            tracing::error!(namespace, name, %why, "cannot write a resource claim");
        }
    }

    /// Deletes the object by which drivers and scheduler settled on the node of a pod.
    pub(super) async fn delete_scheduling(&self, pod: &PodInfo) {
        let schedulings: Api<PodScheduling> = Api::namespaced(&self.client, pod.namespace());
        let deleted = schedulings.delete(pod.name(), &DeleteOptions::default()).await;
        if let Err(why) = unless(404, deleted) {
            tracing::error!(namespace = pod.namespace(), name = pod.name(), %why, "cannot delete a PodScheduling");
        }
    }
}
