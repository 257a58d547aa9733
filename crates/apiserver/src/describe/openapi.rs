//! `/openapi/v2` and `/openapi/v3`: made from the tables when first asked for, and kept until they change.

use crate::handle::Call;
use crate::serve::Body;
use http::Response;
use rest::{Api, ApiError};

#[derive(Default)]
pub struct OpenApi {}

impl OpenApi {
    pub(crate) fn v2(&self, _: &Api, _: &Call<'_>) -> Result<Response<Body>, ApiError> {
        Err(ApiError::no_such_path())
    }

    pub(crate) fn v3(&self, _: &Api, _: &Call<'_>, _: &str) -> Result<Response<Body>, ApiError> {
        Err(ApiError::no_such_path())
    }
}
