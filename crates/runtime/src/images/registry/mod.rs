//! Registries: pulls of images with credentials, tokens, mirrors and resumed downloads.

mod challenge;
mod client;
mod credentials;
mod hosts;
mod pull;

#[cfg(test)]
mod tests;

pub use pull::{PullEvent, PullProgress, PulledImage, Puller};
