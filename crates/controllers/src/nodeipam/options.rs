//! Options of the loop.

use super::cidrs::Pool;
use kinds::core::service::Network;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Where nodes get their ranges from, one of each; without any they get none.
    pub pools: Vec<Pool>,
    /// Addresses that services have.
    pub services: Vec<Network>,
}
