//! How the API server is deployed: alone, or in one process with the controllers.

/// The deployment mode, which decides the defaults of options that are not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeploymentMode {
    /// One component among others, as upstream's: it uses the certificates and keys that the operator provides.
    Standalone,
    /// All components in one process, which makes its own certificates and keys.
    AllInOne {
        /// Whether the controller manager, which creates the service accounts of namespaces, runs too.
        runs_controllers: bool,
    },
}
