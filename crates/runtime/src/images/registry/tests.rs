//! Pulls from a registry of the test: tokens, mirrors, redirects, broken connections, lies.

use super::super::layers::Usage;
use super::super::tar::EntryKind;
use super::super::tar_writer::{TarWriter, entry};
use super::super::{Digest, ImageError, ImageStore, Platform, UnpackLimits};
use super::{PullEvent, PulledImage, Puller};
use crate::RegistryAuth;
use env::World;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request as the registry saw it.
#[derive(Debug, Clone)]
struct RegistryRequest {
    path: String,
    headers: HashMap<String, String>,
}

type Handler = dyn Fn(&RegistryRequest) -> Vec<u8> + Send + Sync;

/// A registry whose answers a function makes, byte by byte.
struct FakeRegistry {
    address: String,
    requests: Arc<Mutex<Vec<RegistryRequest>>>,
}

impl FakeRegistry {
    async fn start(handler: impl Fn(&RegistryRequest) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests: Arc<Mutex<Vec<RegistryRequest>>> = Arc::default();
        let (handler, seen): (Arc<Handler>, _) = (Arc::new(handler), requests.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, handler.clone(), seen.clone()));
            }
        });
        FakeRegistry { address, requests }
    }

    fn paths(&self) -> Vec<String> {
        self.requests.lock().iter().map(|it| it.path.clone()).collect()
    }
}

async fn serve(mut stream: TcpStream, handler: Arc<Handler>, seen: Arc<Mutex<Vec<RegistryRequest>>>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte).await {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
    let header =
        |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let request = RegistryRequest { path, headers: lines.filter_map(header).collect() };
    seen.lock().push(request.clone());
    let answer = handler(&request);
    // a client that closes first is part of some tests
    let _ = stream.write_all(&answer).await;
    let _ = stream.shutdown().await;
}

/// A whole response; the connection closes after it.
fn response(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn not_found() -> Vec<u8> {
    response("404 Not Found", "", b"")
}

/// An image of one layer, with the documents by path.
struct TestImage {
    blobs: HashMap<String, Vec<u8>>,
    layer: Vec<u8>,
    index: Digest,
}

impl TestImage {
    fn new() -> Self {
        let mut writer = TarWriter::new(Vec::new());
        let data: Vec<u8> =
            (0..200_000u32).flat_map(|it| it.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        writer.append(&mut entry(EntryKind::File, "bin/app"), &data).unwrap();
        let tar = writer.finish().unwrap();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&tar).unwrap();
        let layer = encoder.finish().unwrap();
        let config =
            json!({"rootfs": {"type": "layers", "diff_ids": [Digest::of(&tar)]}}).to_string().into_bytes();
        let describe = |data: &[u8]| json!({"digest": Digest::of(data), "size": data.len()});
        let manifest = json!({"schemaVersion": 2, "config": describe(&config), "layers": [describe(&layer)]});
        let manifest = manifest.to_string().into_bytes();
        let mut selected = describe(&manifest);
        selected["platform"] = json!({"os": "linux", "architecture": Platform::current().architecture});
        selected["mediaType"] = json!(super::super::manifest::OCI_MANIFEST);
        let index = json!({"schemaVersion": 2, "manifests": [selected]}).to_string().into_bytes();
        let digest = Digest::of(&index);
        let blobs = [config, manifest, index, layer.clone()];
        let blobs = blobs.into_iter().map(|it| (Digest::of(&it).to_string(), it)).collect();
        TestImage { blobs, layer, index: digest }
    }

    fn answer(&self, request: &RegistryRequest) -> Vec<u8> {
        let name = request.path.rsplit('/').next().unwrap();
        let name = if name == "1" { self.index.as_str() } else { name };
        let Some(data) = self.blobs.get(name) else { return not_found() };
        match request
            .headers
            .get("range")
            .and_then(|it| it.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok())
        {
            Some(offset) => {
                let offset: usize = offset;
                let range = format!("content-range: bytes {offset}-{}/{}\r\n", data.len() - 1, data.len());
                response("206 Partial Content", &range, &data[offset..])
            }
            None => response("200 OK", "", data),
        }
    }
}

struct Pull {
    folder: tempfile::TempDir,
    puller: Puller,
}

impl Pull {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: unpacking needs root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let limits = UnpackLimits { bytes: 1 << 24, entries: 100 };
        let world: World = env::Seeded::new(1_700_000_000, 1);
        let store = Arc::new(ImageStore::open(&folder.path().join("store"), limits).unwrap());
        let puller = Puller { store, hosts: folder.path().join("hosts"), agent: "test".to_owned(), world };
        Some(Pull { folder, puller })
    }

    async fn run(&self, image: &str, auth: Option<&RegistryAuth>) -> Result<PulledImage, ImageError> {
        self.puller.pull(image, auth, Arc::new(|_| {})).await
    }
}

#[tokio::test]
async fn an_image_is_pulled_by_tag_through_its_index() {
    let Some(pull) = Pull::new() else { return };
    let image = Arc::new(TestImage::new());
    let registry = FakeRegistry::start({
        let image = image.clone();
        move |request| image.answer(request)
    })
    .await;
    let name = format!("{}/team/app:1", registry.address);
    let events = Arc::new(Mutex::new(Vec::new()));
    let progress = events.clone();
    let pulled = pull.puller.pull(&name, None, Arc::new(move |it| progress.lock().push(it))).await.unwrap();
    assert_eq!(pulled.by_digest, format!("{}/team/app@{}", registry.address, image.index));
    let found = pull.puller.store.find(&name).unwrap().unwrap();
    assert_eq!((found.id.clone(), found.tags), (pulled.id, vec![name.clone()]));
    let chain = found.parsed.config.chain_ids();
    assert!(pull.puller.store.layers.files(&chain[0]).join("bin/app").is_file());
    let size = image.layer.len() as u64;
    let digest = Digest::of(&image.layer);
    let events = events.lock().clone();
    assert!(events.contains(&PullEvent::Downloaded { digest: digest.clone(), bytes: size, size }));
    assert_eq!(events.last(), Some(&PullEvent::Unpacked { digest }));
    // the second pull needs no blob
    let before = registry.paths().len();
    pull.run(&name, None).await.unwrap();
    let again = registry.paths()[before..].to_vec();
    assert!(again.iter().all(|it| it.contains("/manifests/")), "{again:?}");
    let missing = pull.run(&format!("{}/team/app:2", registry.address), None).await.unwrap_err();
    assert!(matches!(missing, ImageError::NotFound(_)), "{missing}");
}

#[tokio::test]
async fn a_download_that_broke_off_is_continued() {
    let Some(pull) = Pull::new() else { return };
    let image = Arc::new(TestImage::new());
    let broken = Arc::new(Mutex::new(0));
    let registry = FakeRegistry::start({
        let (image, broken) = (image.clone(), broken.clone());
        move |request| {
            let whole = image.answer(request);
            if !request.path.contains(Digest::of(&image.layer).as_str()) || *broken.lock() == 2 {
                return whole;
            }
            *broken.lock() += 1;
            whole[..300_000].to_vec()
        }
    })
    .await;
    pull.run(&format!("{}/team/app:1", registry.address), None).await.unwrap();
    let requests = registry.requests.lock().clone();
    let ranges: Vec<_> = requests.iter().filter_map(|it| it.headers.get("range")).collect();
    assert_eq!(ranges.len(), 2, "{ranges:?}");
}

#[tokio::test]
async fn a_blob_with_another_digest_is_refused() {
    let Some(pull) = Pull::new() else { return };
    let image = Arc::new(TestImage::new());
    let registry = FakeRegistry::start({
        let image = image.clone();
        move |request| {
            let mut answer = image.answer(request);
            if request.path.contains(Digest::of(&image.layer).as_str()) {
                *answer.last_mut().unwrap() ^= 1;
            }
            answer
        }
    })
    .await;
    let refused = pull.run(&format!("{}/team/app:1", registry.address), None).await.unwrap_err();
    assert!(refused.to_string().contains("has the digest"), "{refused}");
    assert_eq!(pull.puller.store.usage().unwrap(), Usage::default());
    assert!(pull.puller.store.list().unwrap().is_empty());
}

#[tokio::test]
async fn an_endless_blob_ends_at_its_size() {
    let Some(pull) = Pull::new() else { return };
    let image = Arc::new(TestImage::new());
    let registry = FakeRegistry::start({
        let image = image.clone();
        move |request| match request.path.contains(Digest::of(&image.layer).as_str()) {
            true => response("200 OK", "", &vec![7; image.layer.len() + (4 << 20)]),
            false => image.answer(request),
        }
    })
    .await;
    let refused = pull.run(&format!("{}/team/app:1", registry.address), None).await.unwrap_err();
    assert!(refused.to_string().contains("longer than"), "{refused}");
}

#[tokio::test]
async fn a_manifest_with_another_digest_and_an_endless_one_are_refused() {
    let Some(pull) = Pull::new() else { return };
    let registry = FakeRegistry::start(|request| match request.path.ends_with("/endless") {
        true => response("200 OK", "", &vec![b' '; 5 << 20]),
        false => response("200 OK", "", b"{}"),
    })
    .await;
    let digest = Digest::of(b"other");
    let refused = pull.run(&format!("{}/app@{digest}", registry.address), None).await.unwrap_err();
    assert!(refused.to_string().contains("has the digest"), "{refused}");
    let refused = pull.run(&format!("{}/app:endless", registry.address), None).await.unwrap_err();
    assert!(matches!(refused, ImageError::Registry(_)), "{refused}");
}

#[tokio::test]
async fn tokens_are_fetched_with_the_credentials() {
    let Some(pull) = Pull::new() else { return };
    let image = Arc::new(TestImage::new());
    let own = Arc::new(Mutex::new(String::new()));
    let registry = FakeRegistry::start({
        let (image, own) = (image.clone(), own.clone());
        move |request| {
            let authorization = request.headers.get("authorization").map(String::as_str);
            if request.path.starts_with("/token") {
                // me:secret
                return match authorization {
                    Some("Basic bWU6c2VjcmV0") => response("200 OK", "", br#"{"token": "t1"}"#),
                    _ => response("401 Unauthorized", "", b""),
                };
            }
            match authorization {
                Some("Bearer t1") => image.answer(request),
                _ => {
                    let realm = format!("http://{}/token", own.lock());
                    let challenge = format!("www-authenticate: Bearer realm=\"{realm}\",service=\"s\"\r\n");
                    response("401 Unauthorized", &challenge, b"")
                }
            }
        }
    })
    .await;
    own.lock().push_str(&registry.address);
    let name = format!("{}/team/app:1", registry.address);
    let auth = |password: &str| RegistryAuth {
        username: "me".into(),
        password: password.into(),
        ..RegistryAuth::default()
    };
    let denied = pull.run(&name, Some(&auth("wrong"))).await.unwrap_err();
    assert!(matches!(denied, ImageError::Denied(_)), "{denied}");
    assert!(!denied.to_string().contains("wrong"));
    pull.run(&name, Some(&auth("secret"))).await.unwrap();
    let token = registry.paths().into_iter().find(|it| it.starts_with("/token")).unwrap();
    assert_eq!(token, "/token?scope=repository%3Ateam%2Fapp%3Apull&service=s");
}

#[tokio::test]
async fn credentials_are_not_sent_to_the_target_of_a_redirect() {
    let Some(pull) = Pull::new() else { return };
    let image = Arc::new(TestImage::new());
    let storage = FakeRegistry::start({
        let image = image.clone();
        move |request| image.answer(request)
    })
    .await;
    let elsewhere = storage.address.clone();
    let registry = FakeRegistry::start({
        let image = image.clone();
        move |request| match (
            request.headers.get("authorization").map(String::as_str),
            request.path.contains("/blobs/"),
        ) {
            (None, _) => response("401 Unauthorized", "www-authenticate: Basic realm=\"r\"\r\n", b""),
            (Some("Basic bWU6c2VjcmV0"), true) => {
                let location = format!("location: http://{elsewhere}{}\r\n", request.path);
                response("307 Temporary Redirect", &location, b"")
            }
            _ => image.answer(request),
        }
    })
    .await;
    let auth = RegistryAuth { username: "me".into(), password: "secret".into(), ..RegistryAuth::default() };
    pull.run(&format!("{}/team/app:1", registry.address), Some(&auth)).await.unwrap();
    let seen = storage.requests.lock().clone();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|it| !it.headers.contains_key("authorization")), "{seen:?}");
}

#[tokio::test]
async fn redirects_are_bounded() {
    let Some(pull) = Pull::new() else { return };
    let registry = FakeRegistry::start(|request| {
        response("307 Temporary Redirect", &format!("location: {}x\r\n", request.path), b"")
    })
    .await;
    let refused = pull.run(&format!("{}/team/app:1", registry.address), None).await.unwrap_err();
    assert!(refused.to_string().contains("too many redirects"), "{refused}");
    assert_eq!(registry.paths().len(), super::client::REDIRECT_LIMIT + 1);
}

#[tokio::test]
async fn mirrors_come_first_and_get_no_credentials() {
    let Some(pull) = Pull::new() else { return };
    let image = Arc::new(TestImage::new());
    let layer = Digest::of(&image.layer).to_string();
    let mirror = FakeRegistry::start({
        let (image, layer) = (image.clone(), layer.clone());
        // the mirror lacks the layer
        move |request| if request.path.contains(&layer) { not_found() } else { image.answer(request) }
    })
    .await;
    let registry = FakeRegistry::start({
        let image = image.clone();
        move |request| match request.headers.get("authorization") {
            Some(_) => image.answer(request),
            None => response("401 Unauthorized", "www-authenticate: Basic realm=\"r\"\r\n", b""),
        }
    })
    .await;
    let folder = pull.folder.path().join("hosts").join(&registry.address);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("hosts.toml"), format!("[host.\"http://{}\"]\n", mirror.address)).unwrap();
    let auth = RegistryAuth { username: "me".into(), password: "secret".into(), ..RegistryAuth::default() };
    pull.run(&format!("{}/team/app:1", registry.address), Some(&auth)).await.unwrap();
    assert!(mirror.requests.lock().iter().all(|it| !it.headers.contains_key("authorization")));
    assert!(registry.paths().iter().all(|it| it.contains(&layer)), "{:?}", registry.paths());
}

#[tokio::test]
async fn a_blob_that_claims_to_be_huge_is_not_downloaded() {
    let Some(pull) = Pull::new() else { return };
    let blob = |size: u64| json!({"digest": Digest::of(b"endless"), "size": size});
    let registry = FakeRegistry::start(move |request| match request.path.rsplit_once('/').unwrap() {
        (_, "config") => {
            let manifest = json!({"schemaVersion": 2, "config": blob(1 << 60), "layers": []});
            response("200 OK", "", manifest.to_string().as_bytes())
        }
        (_, "layer") => {
            let manifest = json!({"schemaVersion": 2, "config": blob(9), "layers": [blob(u64::MAX)]});
            response("200 OK", "", manifest.to_string().as_bytes())
        }
        _ => response("200 OK", "", &vec![b' '; 8 << 20]),
    })
    .await;
    for (name, why) in [("config", "is too large"), ("layer", "is larger than")] {
        let refused = pull.run(&format!("{}/app:{name}", registry.address), None).await.unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
    assert_eq!(registry.paths(), ["/v2/app/manifests/config", "/v2/app/manifests/layer"]);
}

#[tokio::test]
async fn manifests_with_absurd_values_are_refused() {
    let Some(pull) = Pull::new() else { return };
    let good = json!({"digest": Digest::of(b"{}"), "size": 2});
    let with = |key: &str, value: serde_json::Value| {
        let mut blob = good.clone();
        blob[key] = value;
        blob
    };
    let manifest = |config, layers| json!({"schemaVersion": 2, "config": config, "layers": layers});
    let absurd = [
        manifest(with("size", json!(-1)), json!([])),
        manifest(with("size", json!(1.5)), json!([])),
        manifest(with("size", json!("2")), json!([])),
        manifest(with("digest", json!("sha256:../../../etc/passwd")), json!([])),
        manifest(with("digest", json!("md5:d41d8cd98f00b204e9800998ecf8427e")), json!([])),
        manifest(with("digest", json!("")), json!([])),
        // layers that the configuration does not have
        manifest(good.clone(), json!(vec![good.clone(); 20_000])),
        manifest(json!(null), json!(null)),
        json!({"schemaVersion": 2, "manifests": []}),
        json!({"schemaVersion": 2, "manifests": vec![good.clone(); 20_000]}),
        json!([]),
    ];
    let texts: Vec<_> = absurd.iter().map(ToString::to_string).collect();
    let registry = FakeRegistry::start({
        let texts = texts.clone();
        move |request| match request.path.rsplit('/').next().unwrap().parse::<usize>() {
            Ok(nth) => response("200 OK", "", texts[nth].as_bytes()),
            Err(_) => response("200 OK", "", b"{}"),
        }
    })
    .await;
    for (nth, text) in texts.iter().enumerate() {
        let pulled = pull.run(&format!("{}/app:{nth}", registry.address), None).await;
        assert!(pulled.is_err(), "{}", &text[..text.len().min(100)]);
    }
    assert!(pull.puller.store.list().unwrap().is_empty());
}

#[tokio::test]
async fn an_endless_answer_of_a_token_server_is_refused() {
    let Some(pull) = Pull::new() else { return };
    let own = Arc::new(Mutex::new(String::new()));
    let registry = FakeRegistry::start({
        let own = own.clone();
        move |request| match request.path.starts_with("/token") {
            true => response("200 OK", "", &vec![b' '; 4 << 20]),
            false => {
                let challenge = format!("www-authenticate: Bearer realm=\"http://{}/token\"\r\n", own.lock());
                response("401 Unauthorized", &challenge, b"")
            }
        }
    })
    .await;
    own.lock().push_str(&registry.address);
    let refused = pull.run(&format!("{}/app:1", registry.address), None).await.unwrap_err();
    assert!(refused.to_string().contains("length limit exceeded"), "{refused}");
}
