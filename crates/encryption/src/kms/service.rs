//! The client of a KMS plugin, which encrypts and decrypts DEKs behind a Unix socket.
//!
//! Invariants: a call ends within the configured timeout. A plugin that is not running yet, or is being replaced,
//! is retried within that time: all calls are idempotent.

use crate::TransformError;
use bytes::Bytes;
use grpc::kms_v1beta1::key_management_service_client::KeyManagementServiceClient as ClientV1;
use grpc::kms_v1beta1::{self as v1, VersionRequest};
use grpc::kms_v2alpha1::key_management_service_client::KeyManagementServiceClient as ClientV2;
use grpc::kms_v2alpha1::{self as v2, StatusRequest, StatusResponse};
use grpc::tonic::{Code, Response, Status};
use outbound::{Channel, Dialer, Endpoint, RpcError, code_name};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The delay before an unreachable plugin is called again.
const PAUSE: Duration = Duration::from_millis(50);
/// The largest response.
const MAX_RESPONSE: usize = 1 << 20;

const V1: &str = "v1beta1";
pub(super) const V2: &str = "v2alpha1";

/// The annotations that a plugin stores with a key.
pub(super) type Annotations = BTreeMap<String, Bytes>;

/// An encrypted DEK.
pub(super) struct EncryptedDek {
    pub bytes: Bytes,
    /// The plugin's key id and annotations; only in v2.
    pub key_id: String,
    pub annotations: Annotations,
}

/// See the module.
pub(super) struct Service {
    channel: Result<Channel, String>,
    timeout: Duration,
    /// Whether the version of a v1 plugin has been checked.
    checked: AtomicBool,
}

impl Service {
    pub fn new(endpoint: Endpoint, timeout: Duration) -> Self {
        let channel = Channel::plain(&endpoint, Dialer::Direct).map_err(|why| why.to_string());
        Service { channel, timeout, checked: AtomicBool::new(false) }
    }

    /// Calls a method until the plugin responds, within the timeout.
    async fn call<T, F>(&self, method: impl Fn(Channel) -> F) -> Result<T, TransformError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let channel = self.channel.as_ref().map_err(|why| TransformError::new(why.clone()))?;
        let mut last = None;
        let call = env::io::timeout(self.timeout, async {
            loop {
                match channel.within(self.timeout, method(channel.clone())).await {
                    Err(why @ (RpcError::Unsent(_) | RpcError::Lost(_))) => last = Some(why),
                    other => return other,
                }
                env::io::sleep(PAUSE).await;
            }
        });
        match call.await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(RpcError::Timeout(_))) | Err(_) => {
                let why = last.map(|why| format!(" ({why})")).unwrap_or_default();
                let message = format!("no response within {:?}{why}", self.timeout);
                Err(TransformError { message, code: "DeadlineExceeded", is_transient: true })
            }
            Ok(Err(why)) => match &why {
                RpcError::Refused { code, .. } => Err(TransformError {
                    message: why.to_string(),
                    code: code_name(*code),
                    is_transient: matches!(code, Code::Unavailable | Code::DeadlineExceeded),
                }),
                other => Err(TransformError::new(other.to_string())),
            },
        }
    }

    /// Checks the API version of a v1 plugin, once.
    async fn check(&self) -> Result<(), TransformError> {
        if self.checked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let request = || VersionRequest { version: V1.to_owned() };
        let response = self.call(|channel| async { client_v1(channel).version(request()).await }).await;
        let version =
            response.map_err(|why| why.within("failed get version from remote KMS provider"))?.version;
        if version != V1 {
            let why =
                format!("KMS provider api version {version} is not supported, only {V1} is supported now");
            return Err(TransformError::new(why));
        }
        self.checked.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub async fn encrypt_v1(&self, plain: &[u8]) -> Result<EncryptedDek, TransformError> {
        self.check().await?;
        let request = || v1::EncryptRequest { version: V1.to_owned(), plain: Bytes::copy_from_slice(plain) };
        let response = self.call(|channel| async { client_v1(channel).encrypt(request()).await }).await?;
        Ok(EncryptedDek { bytes: response.cipher, key_id: String::new(), annotations: Annotations::new() })
    }

    pub async fn decrypt_v1(&self, encrypted: &[u8]) -> Result<Vec<u8>, TransformError> {
        self.check().await?;
        let request =
            || v1::DecryptRequest { version: V1.to_owned(), cipher: Bytes::copy_from_slice(encrypted) };
        let response = self.call(|channel| async { client_v1(channel).decrypt(request()).await }).await?;
        Ok(response.plain.to_vec())
    }

    pub async fn encrypt_v2(&self, uid: &str, plain: &[u8]) -> Result<EncryptedDek, TransformError> {
        let request = || v2::EncryptRequest { plaintext: Bytes::copy_from_slice(plain), uid: uid.to_owned() };
        let response = self.call(|channel| async { client_v2(channel).encrypt(request()).await }).await?;
        let v2::EncryptResponse { ciphertext, key_id, annotations } = response;
        Ok(EncryptedDek { bytes: ciphertext, key_id, annotations })
    }

    pub async fn decrypt_v2(&self, uid: &str, encrypted: &EncryptedDek) -> Result<Vec<u8>, TransformError> {
        let request = || v2::DecryptRequest {
            ciphertext: encrypted.bytes.clone(),
            uid: uid.to_owned(),
            key_id: encrypted.key_id.clone(),
            annotations: encrypted.annotations.clone(),
        };
        let response = self.call(|channel| async { client_v2(channel).decrypt(request()).await }).await?;
        Ok(response.plaintext.to_vec())
    }

    pub async fn status(&self) -> Result<StatusResponse, TransformError> {
        self.call(|channel| async { client_v2(channel).status(StatusRequest {}).await }).await
    }
}

fn client_v1(channel: Channel) -> ClientV1<Channel> {
    ClientV1::new(channel).max_decoding_message_size(MAX_RESPONSE)
}

fn client_v2(channel: Channel) -> ClientV2<Channel> {
    ClientV2::new(channel).max_decoding_message_size(MAX_RESPONSE)
}
