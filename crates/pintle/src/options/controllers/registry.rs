//! Which loops run, and how.

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
#[command(next_help_heading = "Which loops run")]
pub struct Loops {
    /// The loops to run, with commas between: * for all that run by default, -name for one that does not
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    pub controllers: Vec<String>,

    /// How long is waited between the starts of two loops
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "0s")]
    pub controller_start_interval: Duration,

    /// The authority by which the API server is known to pods, in PEM [default: the one in the kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub root_ca_file: Option<PathBuf>,

    /// The private key that signs tokens of service accounts that are kept in secrets, in PEM; without it none are made
    #[arg(long, value_name = "FILE")]
    pub service_account_private_key_file: Option<PathBuf>,

    /// How many secrets are filled with tokens at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub concurrent_serviceaccount_token_syncs: u16,

    /// How many deployments are worked on at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub concurrent_deployment_syncs: u16,

    /// How many replica sets are worked on at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub concurrent_replicaset_syncs: u16,

    /// How many replication controllers are worked on at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub concurrent_rc_syncs: u16,

    /// How many stateful sets are worked on at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub concurrent_statefulset_syncs: u16,

    /// How many finished jobs are looked at at a time, whether they have been kept for long enough
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub concurrent_ttl_after_finished_syncs: u16,

    /// How many pods that have ended are kept; 0 or less keeps all
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

impl Loops {
    /// Puts what was said in the place of what is usual.
    pub fn onto(&self, options: &mut Options, wrong: &mut ConfigErrors) {
        wrong.take("--controllers", registry::chosen(&self.controllers, &Default::default()));
        options.controllers.clone_from(&self.controllers);
        options.start_interval = self.controller_start_interval;
        if let Some(authority) = wrong.text("--root-ca-file", self.root_ca_file.as_deref()) {
            let good =
                CertificateDer::pem_slice_iter(authority.as_bytes()).next().is_some_and(|it| it.is_ok());
            if !good {
                wrong.add("--root-ca-file", "there is no certificate in it");
            }
            options.root_ca_publisher.authority = Some(authority.clone());
            options.service_account_tokens.authority = Some(authority);
        }
        let option = "--service-account-private-key-file";
        if let Some(pem) = wrong.text(option, self.service_account_private_key_file.as_deref()) {
            let signer = wrong.take(option, Signer::from_pem(pem.as_bytes()));
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
        self.content.onto(options);
        self.nodes.onto(options, wrong);
        self.signing.onto(&mut options.csr_signing, wrong);
        self.storage.onto(options);
    }
}
