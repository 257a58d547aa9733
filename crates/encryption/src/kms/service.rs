//! The client of a KMS plugin, which encrypts and decrypts DEKs behind a Unix socket.
//!
//! Invariants: a call ends within the configured timeout. A plugin that is not running yet, or is being replaced,
//! is retried within that time: all calls are idempotent.

use super::messages::{Annotations, Fields, Message};
use crate::TransformError;
use outbound::{CallError, Endpoint, GrpcClient, Limits};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The delay before an unreachable plugin is called again.
const PAUSE: Duration = Duration::from_millis(50);
/// The largest response.
const MOST: usize = 1 << 20;

const V1: &str = "v1beta1";
pub(super) const V2: &str = "v2alpha1";

/// An encrypted DEK.
pub(super) struct EncryptedDek {
    pub bytes: Vec<u8>,
    /// The plugin's key id and annotations; only in v2.
    pub key_id: String,
    pub annotations: Annotations,
}

/// The status of a v2 plugin.
pub(super) struct Status {
    pub version: String,
    pub health: String,
    pub key_id: String,
}

/// See the module.
pub(super) struct Service {
    procedures: GrpcClient,
    timeout: Duration,
    /// Whether the version of a v1 plugin has been checked.
    checked: AtomicBool,
}

impl Service {
    pub fn new(endpoint: Endpoint, timeout: Duration) -> Self {
        let procedures = GrpcClient::new(endpoint, Limits { time: timeout, answer: MOST });
        Service { procedures, timeout, checked: AtomicBool::new(false) }
    }

    async fn ask(
        &self,
        version: &str,
        procedure: &str,
        message: &[u8],
    ) -> Result<bytes::Bytes, TransformError> {
        let path = format!("/{version}.KeyManagementService/{procedure}");
        let mut last = None;
        let request = tokio::time::timeout(self.timeout, async {
            loop {
                match self.procedures.call(&path, message).await {
                    Err(why @ (CallError::Connection(_) | CallError::Lost(_))) => last = Some(why),
                    other => return other,
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        match request.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(CallError::Refused { code, why })) => {
                let message = CallError::Refused { code, why }.to_string();
                Err(TransformError {
                    message,
                    code,
                    is_transient: matches!(code, "Unavailable" | "DeadlineExceeded"),
                })
            }
            Ok(Err(CallError::Late(_))) | Err(_) => {
                let why = last.map(|why| format!(" ({why})")).unwrap_or_default();
                let message = format!("no response within {:?}{why}", self.timeout);
                Err(TransformError { message, code: "DeadlineExceeded", is_transient: true })
            }
            Ok(Err(other)) => Err(TransformError::new(other.to_string())),
        }
    }

    /// Checks the API version of a v1 plugin, once.
    async fn check(&self) -> Result<(), TransformError> {
        if self.checked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let request = self.ask(V1, "Version", &Message::new(0).bytes(1, V1.as_bytes()).finish()).await;
        let answer = request.map_err(|why| why.within("failed get version from remote KMS provider"))?;
        let version = Fields::read(&answer)?.text(1);
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
        let request = Message::new(plain.len()).bytes(2, plain).bytes(1, V1.as_bytes()).finish();
        let answer = self.ask(V1, "Encrypt", &request).await?;
        let bytes = Fields::read(&answer)?.bytes(1).to_vec();
        Ok(EncryptedDek { bytes, key_id: String::new(), annotations: Annotations::new() })
    }

    pub async fn decrypt_v1(&self, encrypted: &[u8]) -> Result<Vec<u8>, TransformError> {
        self.check().await?;
        let request = Message::new(encrypted.len()).bytes(2, encrypted).bytes(1, V1.as_bytes()).finish();
        let answer = self.ask(V1, "Decrypt", &request).await?;
        Ok(Fields::read(&answer)?.bytes(1).to_vec())
    }

    pub async fn encrypt_v2(&self, uid: &str, plain: &[u8]) -> Result<EncryptedDek, TransformError> {
        let request = Message::new(plain.len()).bytes(2, uid.as_bytes()).bytes(1, plain).finish();
        let answer = self.ask(V2, "Encrypt", &request).await?;
        let fields = Fields::read(&answer)?;
        Ok(EncryptedDek {
            bytes: fields.bytes(1).to_vec(),
            key_id: fields.text(2),
            annotations: fields.map(3)?,
        })
    }

    pub async fn decrypt_v2(&self, uid: &str, encrypted: &EncryptedDek) -> Result<Vec<u8>, TransformError> {
        let request = Message::new(encrypted.bytes.len())
            .map(4, &encrypted.annotations)
            .bytes(3, encrypted.key_id.as_bytes())
            .bytes(2, uid.as_bytes())
            .bytes(1, &encrypted.bytes)
            .finish();
        let answer = self.ask(V2, "Decrypt", &request).await?;
        Ok(Fields::read(&answer)?.bytes(1).to_vec())
    }

    pub async fn status(&self) -> Result<Status, TransformError> {
        let answer = self.ask(V2, "Status", &[]).await?;
        let fields = Fields::read(&answer)?;
        Ok(Status { version: fields.text(1), health: fields.text(2), key_id: fields.text(3) })
    }
}
