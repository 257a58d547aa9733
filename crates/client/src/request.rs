//! Requests to resources by path.

use kube::Client;
use kube::core::request::Error;
use serde::de::DeserializeOwned;

/// Sends a request that a builder returned.
pub async fn send<T: DeserializeOwned>(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, Error>,
) -> Result<T, kube::Error> {
    client.request(request.map_err(kube::Error::BuildRequest)?).await
}
