//! Who somebody is: the owner of a token, or who asks.

use super::{Sources, list_of, texts, user_of, user_value};
use ambient::Soon;
use rest::{Answer, ApiError, Asking};
use schema::Value;

/// Says whose a token is.
pub struct TokenReview {
    pub sources: Sources,
}

impl Answer for TokenReview {
    fn create<'a>(&'a self, review: Value, _: &'a Asking<'a>) -> Soon<'a, Result<Value, ApiError>> {
        Soon::later(self.review(review))
    }
}

impl TokenReview {
    async fn review(&self, mut review: Value) -> Result<Value, ApiError> {
        let token = review.text(&["spec", "token"]);
        if token.is_empty() {
            return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
        }
        let callers = &self.sources.callers;
        let mut wanted = list_of(&review, &["spec", "audiences"]);
        if wanted.is_empty() {
            wanted = callers.audiences.to_vec();
        }
        // a token that is meant for others is as good as none
        let known = callers.owner(token, &wanted).await;
        let mut status = review.at(&["status"]).cloned().unwrap_or_else(Value::map);
        match known {
            Ok(known) => {
                status.set(&["authenticated"], true);
                status.set(&["user"], user_value(&known.user));
                status.set(&["audiences"], texts(&known.audiences));
            }
            Err(why) => {
                status.unset(&["authenticated"]);
                status.set(&["user"], Value::map());
                status.set(&["error"], why.to_string());
            }
        }
        review.set(&["status"], status);
        Ok(review)
    }
}

/// Says who asks.
pub struct SelfReview;

impl Answer for SelfReview {
    fn create<'a>(&'a self, mut review: Value, asking: &'a Asking<'a>) -> Soon<'a, Result<Value, ApiError>> {
        review.set(&["status"], Value::map());
        review.set(&["status", "userInfo"], user_value(&user_of(asking.user)));
        Ok(review).into()
    }
}
