//! TokenReview and SelfSubjectReview.

use super::sources::Sources;
use super::user_info::{user_of, user_value};
use crate::string_lists::{list_of, texts};
use auth::User;
use auth::tokens::{AuthenticatedUser, Bearer, bearer};
use env::MaybeReady;
use rest::{ApiError, VirtualRequest, VirtualResource};
use schema::{Value, time};
use std::sync::Arc;

/// Authenticates a token.
pub struct TokenReview {
    pub sources: Sources,
}

impl VirtualResource for TokenReview {
    fn create<'a>(
        &'a self,
        review: Value,
        _: &'a VirtualRequest<'a>,
    ) -> MaybeReady<'a, Result<Value, ApiError>> {
        MaybeReady::later(self.review(review))
    }
}

impl TokenReview {
    async fn review(&self, mut review: Value) -> Result<Value, ApiError> {
        let token = review.text(&["spec", "token"]);
        if token.is_empty() {
            return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
        }
        let callers = &self.sources.callers;
        let mut audiences = list_of(&review, &["spec", "audiences"]);
        if audiences.is_empty() {
            audiences = callers.audiences.to_vec();
        }
        let mut status = review.at(&["status"]).cloned().unwrap_or_else(Value::map);
        // parsed like a token in a header
        let header = format!("Bearer {token}");
        let identified = match bearer(&header) {
            Bearer::Token(token) => Some(callers.owner(token, &audiences).await),
            _ if callers.anonymous => {
                let anonymous = AuthenticatedUser::anywhere(Arc::new(User::anonymous()));
                Some(Ok(AuthenticatedUser { audiences: audiences.into(), ..anonymous }))
            }
            _ => None,
        };
        match identified {
            Some(Ok(identified)) => {
                status.set(&["authenticated"], true);
                status.set(&["user"], user_value(&identified.user));
                status.set(&["audiences"], texts(&identified.audiences));
            }
            refused => {
                status.unset(&["authenticated"]);
                if status.at(&["user"]).is_none() {
                    status.set(&["user"], Value::map());
                }
                if let Some(Err(why)) = refused {
                    status.set(&["error"], why.to_string());
                }
            }
        }
        review.set(&["status"], status);
        Ok(review)
    }
}

/// Returns the user of the request.
pub struct SelfReview;

impl VirtualResource for SelfReview {
    fn create<'a>(
        &'a self,
        sent: Value,
        request: &'a VirtualRequest<'a>,
    ) -> MaybeReady<'a, Result<Value, ApiError>> {
        let mut review = Value::map();
        for field in ["apiVersion", "kind"] {
            review.set(&[field], sent.text(&[field]));
        }
        let now = env::unix_seconds(request.world);
        review.set(&["metadata", "creationTimestamp"], time::format_time(now));
        review.set(&["status", "userInfo"], user_value(&user_of(request.user)));
        Ok(review).into()
    }
}
