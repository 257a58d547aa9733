//! A key server: it seals and opens keys of values, behind a socket on this machine.
//!
//! What always holds: a question is answered or given up within the time that the operator set. A server that is not
//! there yet, or that was just replaced, is waited for within that time: all questions may be asked again.

use super::messages::{Annotations, Fields, Message};
use crate::Failure;
use outbound::{CallError, Endpoint, GrpcClient, Limits};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a server that is not there is left alone.
const PAUSE: Duration = Duration::from_millis(50);
/// More than a server can have to say.
const MOST: usize = 1 << 20;

const V1: &str = "v1beta1";
pub(super) const V2: &str = "v2alpha1";

/// What a server was asked to seal.
pub(super) struct SealedKey {
    pub bytes: Vec<u8>,
    /// Which of its keys it used, and what it wants to be told again: of the second version only.
    pub key_id: String,
    pub annotations: Annotations,
}

/// What a server of the second version says of itself.
pub(super) struct Status {
    pub version: String,
    pub health: String,
    pub key_id: String,
}

/// See the module.
pub(super) struct Service {
    procedures: GrpcClient,
    timeout: Duration,
    /// Whether a server of the first version said which one it speaks.
    checked: AtomicBool,
}

impl Service {
    pub fn new(endpoint: Endpoint, timeout: Duration) -> Self {
        let procedures = GrpcClient::new(endpoint, Limits { time: timeout, answer: MOST });
        Service { procedures, timeout, checked: AtomicBool::new(false) }
    }

    async fn ask(&self, version: &str, procedure: &str, message: &[u8]) -> Result<bytes::Bytes, Failure> {
        let path = format!("/{version}.KeyManagementService/{procedure}");
        let mut last = None;
        let asked = tokio::time::timeout(self.timeout, async {
            loop {
                match self.procedures.call(&path, message).await {
                    Err(why @ (CallError::Connection(_) | CallError::Lost(_))) => last = Some(why),
                    other => return other,
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        match asked.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(CallError::Refused { code, why })) => {
                let message = CallError::Refused { code, why }.to_string();
                Err(Failure { message, code, passing: matches!(code, "Unavailable" | "DeadlineExceeded") })
            }
            Ok(Err(CallError::Late(_))) | Err(_) => {
                let why = last.map(|why| format!(" ({why})")).unwrap_or_default();
                let message = format!("no answer within {:?}{why}", self.timeout);
                Err(Failure { message, code: "DeadlineExceeded", passing: true })
            }
            Ok(Err(other)) => Err(Failure::new(other.to_string())),
        }
    }

    /// Servers of the first version say once which one they speak.
    async fn check(&self) -> Result<(), Failure> {
        if self.checked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let asked = self.ask(V1, "Version", &Message::new(0).bytes(1, V1.as_bytes()).finish()).await;
        let answer = asked.map_err(|why| why.within("failed get version from remote KMS provider"))?;
        let version = Fields::read(&answer)?.text(1);
        if version != V1 {
            let why =
                format!("KMS provider api version {version} is not supported, only {V1} is supported now");
            return Err(Failure::new(why));
        }
        self.checked.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub async fn encrypt_v1(&self, plain: &[u8]) -> Result<SealedKey, Failure> {
        self.check().await?;
        let asked = Message::new(plain.len()).bytes(2, plain).bytes(1, V1.as_bytes()).finish();
        let answer = self.ask(V1, "Encrypt", &asked).await?;
        let bytes = Fields::read(&answer)?.bytes(1).to_vec();
        Ok(SealedKey { bytes, key_id: String::new(), annotations: Annotations::new() })
    }

    pub async fn decrypt_v1(&self, sealed: &[u8]) -> Result<Vec<u8>, Failure> {
        self.check().await?;
        let asked = Message::new(sealed.len()).bytes(2, sealed).bytes(1, V1.as_bytes()).finish();
        let answer = self.ask(V1, "Decrypt", &asked).await?;
        Ok(Fields::read(&answer)?.bytes(1).to_vec())
    }

    pub async fn encrypt_v2(&self, uid: &str, plain: &[u8]) -> Result<SealedKey, Failure> {
        let asked = Message::new(plain.len()).bytes(2, uid.as_bytes()).bytes(1, plain).finish();
        let answer = self.ask(V2, "Encrypt", &asked).await?;
        let fields = Fields::read(&answer)?;
        Ok(SealedKey { bytes: fields.bytes(1).to_vec(), key_id: fields.text(2), annotations: fields.map(3)? })
    }

    pub async fn decrypt_v2(&self, uid: &str, sealed: &SealedKey) -> Result<Vec<u8>, Failure> {
        let asked = Message::new(sealed.bytes.len())
            .map(4, &sealed.annotations)
            .bytes(3, sealed.key_id.as_bytes())
            .bytes(2, uid.as_bytes())
            .bytes(1, &sealed.bytes)
            .finish();
        let answer = self.ask(V2, "Decrypt", &asked).await?;
        Ok(Fields::read(&answer)?.bytes(1).to_vec())
    }

    pub async fn status(&self) -> Result<Status, Failure> {
        let answer = self.ask(V2, "Status", &[]).await?;
        let fields = Fields::read(&answer)?;
        Ok(Status { version: fields.text(1), health: fields.text(2), key_id: fields.text(3) })
    }
}
