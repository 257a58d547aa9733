//! Create: a new object.

use crate::model::error::ApiError;
use crate::pipeline::api::Api;
use crate::pipeline::decode::Input;
use crate::pipeline::request::{ATTEMPTS, WriteError, WriteOutcome, WriteRequest};
use schema::Value;

impl Api {
    /// POST: the body is the new object.
    pub async fn create(
        &self,
        request: &mut WriteRequest<'_>,
        input: &Input,
    ) -> Result<WriteOutcome, ApiError> {
        let object = self.decode(request, input)?;
        self.create_object(request, object).await
    }

    /// Creates a decoded object. A kind with reservations tries again when another process has allocated the same
    /// value.
    pub(crate) async fn create_object(
        &self,
        request: &mut WriteRequest<'_>,
        object: Value,
    ) -> Result<WriteOutcome, ApiError> {
        let warned = request.warnings.len();
        if request.resource.hooks.write.reserve.is_some() {
            for _ in 0..ATTEMPTS {
                match self.write(request, None, object.clone()).await {
                    Err(WriteError::Conflict) => request.warnings.truncate(warned),
                    Err(WriteError::Api(why)) => return Err(why),
                    Ok(outcome) => return Ok(outcome),
                }
            }
        }
        match self.write(request, None, object).await {
            Ok(outcome) => Ok(outcome),
            Err(WriteError::Api(why)) => Err(why),
            Err(WriteError::Conflict) => {
                Err(ApiError::internal_error("what it needs was taken by others again and again".to_owned()))
            }
        }
    }
}
