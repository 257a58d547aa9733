//! Clients of service accounts: each loop authenticates as its own account.
//!
//! Invariants: an account is created when it is first needed; its token is renewed well before it expires, and
//! requested anew when the server rejects it. A token that could not be renewed is used until it expires.

use api::authentication::v1::{TokenRequest, TokenRequestSpec};
use api::core::v1::ServiceAccount;
use api::meta::v1::ObjectMeta;
use client::Rate;
use client::retry_after::RetryAfter;
use client::transport::{RateLimited, Transport};
use client::{Api, Body, Client, Failure, unless};
use env::World;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, StatusCode};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Mutex;
use tower_service::Service;

/// The requested lifetime of tokens in seconds.
const LASTS: i64 = 3600;
/// They are renewed when this fraction of their lifetime is left.
const LEFT: i64 = 5;

/// Creates clients of accounts of one namespace.
pub struct Accounts {
    /// The manager's own client, which may create accounts and request their tokens.
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
            accounts: Api::namespaced(&self.own, &self.namespace),
            account,
            world: self.world.clone(),
            held: Mutex::default(),
        };
        let inner = RateLimited::new(&self.transport, self.rate, &self.world);
        let transport = RetryAfter::new(AsAccount { inner, token: Arc::new(token) }, &self.world);
        Client::new(transport).in_world(&self.world)
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
        let AsAccount { mut inner, token } = self.clone();
        Box::pin(async move {
            let header = token.get().await?;
            request.headers_mut().insert(AUTHORIZATION, header.clone());
            let answer = inner.call(request).await?;
            if answer.status() == StatusCode::UNAUTHORIZED {
                token.reject(&header).await;
            }
            Ok(answer)
        })
    }
}

/// The token of an account, which is renewed.
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
        match (self.renew().await, usable) {
            (Ok(new), _) => Ok(held.insert(new).header.clone()),
            (Err(why), Some(old)) => {
                tracing::warn!(account = self.account, %why, "the token could not be renewed");
                Ok(old.header)
            }
            (Err(why), None) => Err(why),
        }
    }

    /// Drops a token that the server has rejected.
    async fn reject(&self, header: &HeaderValue) {
        let mut held = self.held.lock().await;
        if held.as_ref().is_some_and(|it| it.header == *header) {
            *held = None;
        }
    }

    async fn renew(&self) -> Result<CachedToken, Failure> {
        let now = self.world.elapsed();
        let mut answer = unless(404, self.request().await)?;
        if answer.is_none() {
            let account = ServiceAccount {
                metadata: ObjectMeta { name: self.account.to_owned(), ..ObjectMeta::default() },
                ..ServiceAccount::default()
            };
            unless(409, self.accounts.create(&account).await)?;
            answer = Some(self.request().await?);
        }
        let status = answer.map(|answer| answer.status).filter(|status| !status.token.is_empty());
        let status = status.ok_or_else(|| Failure::Other("the server sent no token".to_owned()))?;
        let mut header = HeaderValue::try_from(format!("Bearer {}", status.token))
            .map_err(|_| Failure::Other("the server sent a token that no header can hold".to_owned()))?;
        header.set_sensitive(true);
        // its lifetime may differ from the requested one, and the server has another clock
        let expires = status.expiration_timestamp.unwrap_or_default().unix_seconds();
        let lasts = expires.saturating_sub(env::unix_seconds(&self.world)).clamp(LEFT, LASTS);
        let span = |seconds: i64| Duration::from_secs(seconds.unsigned_abs());
        Ok(CachedToken { header, renew_at: now + span(lasts - lasts / LEFT), until: now + span(lasts) })
    }

    async fn request(&self) -> Result<TokenRequest, client::Error> {
        let spec = TokenRequestSpec { expiration_seconds: Some(LASTS), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        self.accounts.create_subresource(self.account, "token", &request).await
    }
}
