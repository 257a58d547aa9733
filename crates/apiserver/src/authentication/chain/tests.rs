use super::*;
use crate::serve::{Certificate, ClientCertificate};
use auth::Tokens;
use env::MaybeReady;
use futures_util::FutureExt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rejects every token with an error, and counts its calls.
#[derive(Default)]
struct Faulty(AtomicUsize);

impl Authenticator for Faulty {
    fn reads_audiences(&self) -> bool {
        true
    }

    fn identify<'a>(&'a self, _: &'a str, _: &'a [String]) -> MaybeReady<'a, Verdict> {
        self.0.fetch_add(1, Ordering::Relaxed);
        MaybeReady::later(async { Verdict::Refused("bad".to_owned()) })
    }
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).to_vec()
}

fn chain(faulty: &Arc<Faulty>) -> Chain {
    let tokens: Arc<dyn Authenticator> = Arc::new(Tokens::parse("t,tom,1").unwrap());
    Chain {
        front_proxy: None,
        websocket_prefix: "p.".to_owned(),
        tokens: vec![faulty.clone(), tokens, faulty.clone()],
        audiences: texts(["here", "there"]).into(),
        anonymous: true,
        world: env::Simulated::new(100, 1),
        remaining: Default::default(),
    }
}

fn owner(chain: &Chain, token: &str, audiences: &[String]) -> Result<AuthenticatedUser, String> {
    let found = chain.owner(token, audiences).now_or_never().unwrap();
    found.map_err(|why| why.to_string())
}

#[test]
fn an_error_does_not_stop_the_next_authenticator() {
    let faulty = Arc::<Faulty>::default();
    let chain = chain(&faulty);
    let tokens = owner(&chain, "t", &chain.audiences).unwrap();
    assert_eq!((&*tokens.user.name, &tokens.user.groups[..]), ("tom", &texts(["system:authenticated"])[..]));
    assert_eq!(faulty.0.load(Ordering::Relaxed), 1);
    // an error is listed once, after the generic one
    assert_eq!(owner(&chain, "x", &chain.audiences), Err("[invalid bearer token, bad]".to_owned()));
}

#[test]
fn tokens_without_audiences_are_for_this_server() {
    let chain = chain(&Arc::default());
    let audiences =
        |requested: &[String]| owner(&chain, "t", requested).map(|tokens| tokens.audiences.to_vec());
    assert_eq!(audiences(&chain.audiences), Ok(texts(["here", "there"])));
    assert_eq!(audiences(&texts(["else", "there"])), Ok(texts(["there"])));
    assert!(audiences(&texts(["else"])).is_err());
}

fn authenticate(chain: &Chain, certificate: Option<Certificate>, header: &str) -> Result<String, String> {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    let certificate = certificate.map(ClientCertificate::new);
    let peer = Peer { connection: 1, remote: address, certificate, http2: true };
    let mut headers = HeaderMap::new();
    if !header.is_empty() {
        headers
            .insert(http::header::AUTHORIZATION, http::HeaderValue::from_bytes(header.as_bytes()).unwrap());
    }
    let found = chain.authenticate(&headers, &peer, &RequestRecord::default()).now_or_never().unwrap();
    found.map(|user| user.name.clone()).map_err(|why| why.to_string())
}

#[test]
fn invalid_credentials_are_refused_and_none_are_anonymous() {
    let mut chain = chain(&Arc::default());
    let certificate_of = |user: Result<&str, &str>, until| {
        let user = user.map(|name| Arc::new(User::named(name))).map_err(str::to_owned);
        Some(Certificate { user: Some(user), proxy: Some(Err("no proxy".to_owned())), until })
    };
    assert_eq!(authenticate(&chain, certificate_of(Ok("jane"), 100), "Bearer x"), Ok("jane".to_owned()));
    assert_eq!(authenticate(&chain, certificate_of(Err("stranger"), 100), "Bearer t"), Ok("tom".to_owned()));
    assert_eq!(
        authenticate(&chain, certificate_of(Err("stranger"), 100), ""),
        Err("[no proxy, stranger]".to_owned())
    );
    assert_eq!(
        authenticate(&chain, certificate_of(Ok("jane"), 99), ""),
        Err("x509: certificate has expired".to_owned())
    );
    assert_eq!(authenticate(&chain, None, "Bearer é"), Err("[invalid bearer token, bad]".to_owned()));
    for header in ["", "Basic x", "Bearer"] {
        assert_eq!(authenticate(&chain, None, header), Ok("system:anonymous".to_owned()));
    }
    chain.anonymous = false;
    assert_eq!(authenticate(&chain, None, ""), Err("no credentials were provided".to_owned()));
}
