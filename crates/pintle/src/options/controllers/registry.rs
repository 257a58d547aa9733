//! Options of the set of control loops and of workload controllers.

use super::super::ConfigErrors;
use super::{Autoscaling, Content, Nodes, Signing, Storage};
use crate::control_loops::sign_with;
use crate::flags::any_duration;
use apiserver::authentication::jose::Signer;
use clap::Args;
use controllers::registry::{self, Options};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Control loops")]
pub struct Controllers {
    /// The control loops to run, comma-separated: * for all that are on by default, name to add one, -name to remove
    /// one
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    pub controllers: Vec<String>,

    /// The interval between the starts of two control loops
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "0s")]
    pub controller_start_interval: Duration,

    /// The certificate authority of the API server that pods trust, in PEM [default: the one in the kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub root_ca_file: Option<PathBuf>,

    /// The private key that signs service account tokens in secrets, in PEM; without it none are created
    #[arg(long, value_name = "FILE")]
    pub service_account_private_key_file: Option<PathBuf>,

    /// How many token secrets are synced at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub concurrent_serviceaccount_token_syncs: u16,

    /// How many deployments are synced at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub concurrent_deployment_syncs: u16,

    /// How many replica sets are synced at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub concurrent_replicaset_syncs: u16,

    /// How many replication controllers are synced at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub concurrent_rc_syncs: u16,

    /// How many stateful sets are synced at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub concurrent_statefulset_syncs: u16,

    /// How many finished jobs are checked for their TTL at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub concurrent_ttl_after_finished_syncs: u16,

    /// How many terminated pods are kept; 0 or less for all
    #[arg(long, value_name = "NUMBER", default_value_t = 12_500, allow_negative_numbers = true)]
    pub terminated_pod_gc_threshold: i32,

    #[command(flatten)]
    pub autoscaling: Autoscaling,

    #[command(flatten)]
    pub content: Content,

    #[command(flatten)]
    pub nodes: Nodes,

    #[command(flatten)]
    pub signing: Signing,

    #[command(flatten)]
    pub storage: Storage,
}

impl Controllers {
    /// Applies the flags to the defaults.
    pub fn apply_to(&self, options: &mut Options, errors: &mut ConfigErrors) {
        errors.take("--controllers", registry::chosen(&self.controllers, &Default::default()));
        options.controllers.clone_from(&self.controllers);
        options.start_interval = self.controller_start_interval;
        if let Some(authority) = errors.text("--root-ca-file", self.root_ca_file.as_deref()) {
            let good =
                CertificateDer::pem_slice_iter(authority.as_bytes()).next().is_some_and(|it| it.is_ok());
            if !good {
                errors.add("--root-ca-file", "the file contains no certificate");
            }
            options.root_ca_publisher.authority = Some(authority.clone());
            options.service_account_tokens.authority = Some(authority);
        }
        let option = "--service-account-private-key-file";
        if let Some(pem) = errors.text(option, self.service_account_private_key_file.as_deref()) {
            let signer = errors.take(option, Signer::from_pem(pem.as_bytes()));
            options.service_account_tokens.sign = signer.map(sign_with);
        }
        options.service_account_tokens.workers = self.concurrent_serviceaccount_token_syncs.into();
        options.deployment_workers = self.concurrent_deployment_syncs.into();
        options.replica_set_workers = self.concurrent_replicaset_syncs.into();
        options.replication_controller_workers = self.concurrent_rc_syncs.into();
        options.stateful_set_workers = self.concurrent_statefulset_syncs.into();
        options.ttl_after_finished_workers = self.concurrent_ttl_after_finished_syncs.into();
        options.pod_gc.terminated_pods = usize::try_from(self.terminated_pod_gc_threshold).unwrap_or(0);
        options.horizontal_pod_autoscaling = self.autoscaling.read();
        self.content.apply_to(options);
        self.nodes.apply_to(options, errors);
        self.signing.apply_to(&mut options.csr_signing, errors);
        self.storage.apply_to(options);
    }
}
