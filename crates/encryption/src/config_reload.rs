//! Reloads the encryption configuration when its file changes.
//!
//! Invariant: an invalid configuration never replaces a valid one. A new configuration takes effect once all its
//! KMS providers are healthy.

use crate::configuration::{Configuration, Rules};
use crate::keyring::{Keyring, Plan};
use env::{Interval, Upkeep};
use names::Names;
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::time::Duration;

/// How often the file is checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often, and at least how long, new KMS providers are checked for health.
const ASK_EVERY: Duration = Duration::from_millis(100);
const ASK_FOR: Duration = Duration::from_secs(10);
/// The longest backoff for contents that could not be used.
const LONGEST_PAUSE: u32 = 64;

/// The digest of the file's contents, which are secret.
type Content = [u8; 32];

/// Watches a file that had these contents when the keyring was made.
pub struct ConfigReloader {
    pub file: PathBuf,
    pub names: Names,
    pub rules: Rules,
    /// See [`content`].
    pub last: Content,
}

/// The digest of a file's contents.
pub fn content(text: &[u8]) -> Content {
    Sha256::digest(text).into()
}

impl ConfigReloader {
    /// Reloads the file whenever it changes; never returns.
    pub async fn run(mut self, keyring: &Keyring) {
        let mut every = Interval::upkeep(&keyring.world, Upkeep::check(LOOK_EVERY));
        // the contents that failed, how often, and for how many checks they are skipped
        let mut refused: Option<(Content, u32, u32)> = None;
        loop {
            every.tick().await;
            // a missing file is about to be replaced
            let Ok(text) = tokio::fs::read(&self.file).await else { continue };
            let text = zeroize::Zeroizing::new(text);
            let new_content = content(&text);
            if new_content == self.last {
                refused = None;
                continue;
            }
            let mut times = 0;
            if let Some((before, failures, pause)) = &mut refused
                && *before == new_content
            {
                *pause = pause.saturating_sub(1);
                if *pause > 0 {
                    continue;
                }
                times = *failures;
            }
            match self.usable(&text, keyring).await {
                Ok(plan) => {
                    keyring.replace(plan);
                    (self.last, refused) = (new_content, None);
                    tracing::info!("the encryption configuration was reloaded");
                }
                Err(why) => {
                    tracing::error!(why, file = %self.file.display(), "the changed encryption configuration cannot be used; keeping the current one");
                    refused = Some((new_content, times + 1, (1 << times.min(31)).min(LONGEST_PAUSE)));
                }
            }
        }
    }

    async fn usable(&self, text: &[u8], keyring: &Keyring) -> Result<Plan, String> {
        let configuration = Configuration::read(text, &self.names, self.rules)?;
        let plan = keyring.plan(&configuration);
        let patience = ASK_FOR.max(plan.check_timeout() * 2);
        let mut why = String::new();
        let check_health = env::io::timeout(patience, async {
            while let Err(wrong) = plan.check_health().await {
                why = wrong;
                env::io::sleep(ASK_EVERY).await;
            }
        });
        let check_health = check_health.await;
        check_health.map_err(|_| format!("its KMS providers are not healthy: {why}"))?;
        Ok(plan)
    }
}
