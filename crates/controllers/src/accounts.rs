//! Clients of service accounts: each loop calls in the name of its own, and may do what that one may.
//!
//! What always holds: an account is made when it is first needed; its token is renewed well before its end, and asked
//! for anew when the server does not believe it any more. A token that could not be renewed is used to its end.

use client::retry_after::RetryAfter;
use client::transport::{Rate, RateLimited, Transport};
use client::{Failure, unless};
use env::World;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::client::Body;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Mutex;
use tower_service::Service;

/// How long tokens are asked for.
const LASTS: i64 = 3600;
/// They are renewed when this part of their time is left.
const LEFT: i64 = 5;

/// Makes clients of accounts of one namespace.
pub struct Accounts {
    /// The manager's own client, which may make accounts and ask for their tokens.
    pub own: Client,
    /// The transport, which sends no credentials of its own.
    pub transport: Transport,
    pub namespace: String,
    pub rate: Rate,
    pub world: World,
}

impl Accounts {
    pub fn client(&self, account: &'static str) -> Client {
        let token = Token {
            accounts: Api::namespaced(self.own.clone(), &self.namespace),
            account,
            world: self.world.clone(),
            held: Mutex::default(),
        };
        let inner = RateLimited::new(&self.transport, self.rate, &self.world);
        let transport = RetryAfter::new(AsAccount { inner, token: Arc::new(token) });
        Client::new(transport, names::DEFAULT_NAMESPACE)
    }
}

#[derive(Clone)]
struct AsAccount {
    inner: RateLimited,
    token: Arc<Token>,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Service<Request<Body>> for AsAccount {
    type Response = <RateLimited as Service<Request<Body>>>::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let mut this = self.clone();
        Box::pin(async move {
            let token = this.token.get().await?;
            request.headers_mut().insert(AUTHORIZATION, token.clone());
            let answer = this.inner.call(request).await?;
            if answer.status() == StatusCode::UNAUTHORIZED {
                this.token.drop_if(&token).await;
            }
            Ok(answer)
        })
    }
}

/// An account's token, and where to get another.
struct Token {
    accounts: Api<ServiceAccount>,
    account: &'static str,
    world: World,
    held: Mutex<Option<CachedToken>>,
}

#[derive(Clone)]
struct CachedToken {
    header: HeaderValue,
    renew_at: Duration,
    until: Duration,
}

impl Token {
    async fn get(&self) -> Result<HeaderValue, Failure> {
        let mut held = self.held.lock().await;
        let now = self.world.elapsed();
        let usable = held.clone().filter(|it| now < it.until);
        if let Some(good) = usable.as_ref().filter(|it| now < it.renew_at) {
            return Ok(good.header.clone());
        }
        match (self.ask().await, usable) {
            (Ok(new), _) => Ok(held.insert(new).header.clone()),
            (Err(why), Some(old)) => {
                tracing::warn!(account = self.account, %why, "the token could not be renewed");
                Ok(old.header)
            }
            (Err(why), None) => Err(why),
        }
    }

    /// The server does not believe this one.
    async fn drop_if(&self, token: &HeaderValue) {
        let mut held = self.held.lock().await;
        if held.as_ref().is_some_and(|it| it.header == *token) {
            *held = None;
        }
    }

    async fn ask(&self) -> Result<CachedToken, Failure> {
        let now = self.world.elapsed();
        let mut answer = unless(404, self.request().await)?;
        if answer.is_none() {
            let account = ServiceAccount {
                metadata: ObjectMeta { name: Some(self.account.to_owned()), ..ObjectMeta::default() },
                ..ServiceAccount::default()
            };
            unless(409, self.accounts.create(&PostParams::default(), &account).await)?;
            answer = Some(self.request().await?);
        }
        let status = answer.and_then(|answer| answer.status);
        let status = status.ok_or_else(|| Failure::Other("the server gave no token".to_owned()))?;
        let mut header = HeaderValue::try_from(format!("Bearer {}", status.token))
            .map_err(|_| Failure::Other("the server gave a token that no header can hold".to_owned()))?;
        header.set_sensitive(true);
        // it may be good for less or for longer than was asked for; its own clock is the server's
        let lasts = status.expiration_timestamp.0.timestamp() - env::unix_seconds(&self.world);
        let lasts = lasts.clamp(LEFT, LASTS);
        let span = |seconds: i64| Duration::from_secs(seconds.unsigned_abs());
        Ok(CachedToken { header, renew_at: now + span(lasts - lasts / LEFT), until: now + span(lasts) })
    }

    async fn request(&self) -> Result<TokenRequest, kube::Error> {
        let spec = TokenRequestSpec { expiration_seconds: Some(LASTS), ..TokenRequestSpec::default() };
        let asked = TokenRequest { spec, ..TokenRequest::default() };
        self.accounts.create_token_request(self.account, &PostParams::default(), &asked).await
    }
}
