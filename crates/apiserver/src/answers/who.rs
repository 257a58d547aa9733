//! Who somebody is: the owner of a token, or who asks.

use super::{Sources, list_of, texts, user_of, user_value};
use rest::{Answer, ApiError, Asking};
use schema::Value;

/// Says whose a token is.
pub struct TokenReview {
    pub sources: Sources,
}

impl Answer for TokenReview {
    fn create(&self, mut review: Value, _: &Asking<'_>) -> Result<Value, ApiError> {
        let token = review.text(&["spec", "token"]);
        if token.is_empty() {
            return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
        }
        let wanted = list_of(&review, &["spec", "audiences"]);
        let known = &self.sources.audiences;
        let audiences: Vec<String> = if wanted.is_empty() {
            known.clone()
        } else {
            wanted.into_iter().filter(|one| known.contains(one)).collect()
        };
        // a token that is meant for others is as good as none
        let user = self.sources.tokens.identify(token).filter(|_| !audiences.is_empty()).cloned();
        let mut status = review.at(&["status"]).cloned().unwrap_or_else(Value::map);
        match user {
            Some(user) => {
                status.set(&["authenticated"], true);
                status.set(&["user"], user_value(&user));
                status.set(&["audiences"], texts(&audiences));
            }
            None => {
                status.unset(&["authenticated"]);
                status.set(&["user"], Value::map());
                status.set(&["error"], "invalid bearer token");
            }
        }
        review.set(&["status"], status);
        Ok(review)
    }
}

/// Says who asks.
pub struct SelfReview;

impl Answer for SelfReview {
    fn create(&self, mut review: Value, asking: &Asking<'_>) -> Result<Value, ApiError> {
        review.set(&["status"], Value::map());
        review.set(&["status", "userInfo"], user_value(&user_of(asking.user)));
        Ok(review)
    }
}
