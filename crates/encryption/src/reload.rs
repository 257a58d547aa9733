//! A configuration that is read again when its file changes.
//!
//! What always holds: what cannot be used never takes the place of what can. A new configuration counts once all its
//! key servers are well.

use crate::configuration::{Configuration, Rules};
use crate::keyring::{Keyring, Plan};
use names::Names;
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::time::Duration;

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often new key servers are asked whether they are well, and for how long at least.
const ASK_EVERY: Duration = Duration::from_millis(100);
const ASK_FOR: Duration = Duration::from_secs(10);
/// How long the same content is left alone after it could not be used, at most.
const LONGEST_PAUSE: u32 = 64;

/// What stands for the content of a file, which holds secrets.
type Content = [u8; 32];

/// Follows a file, which had this content when the keyring was made.
pub struct Follower {
    pub file: PathBuf,
    pub names: Names,
    pub rules: Rules,
    /// See [`content`].
    pub last: Content,
}

/// What stands for the content of a file.
pub fn content(text: &[u8]) -> Content {
    Sha256::digest(text).into()
}

impl Follower {
    /// Reads the file again when it changes, without end.
    pub async fn follow(mut self, keyring: &Keyring) {
        let mut every = tokio::time::interval(LOOK_EVERY);
        // the content that could not be used, how often, and how many looks it is left alone for
        let mut refused: Option<(Content, u32, u32)> = None;
        loop {
            every.tick().await;
            // a file that is gone for the moment is about to be replaced
            let Ok(text) = tokio::fs::read(&self.file).await else { continue };
            let text = zeroize::Zeroizing::new(text);
            let found = content(&text);
            if found == self.last {
                refused = None;
                continue;
            }
            let mut times = 0;
            if let Some((before, failures, pause)) = &mut refused
                && *before == found
            {
                *pause = pause.saturating_sub(1);
                if *pause > 0 {
                    continue;
                }
                times = *failures;
            }
            match self.usable(&text, keyring).await {
                Ok(plan) => {
                    keyring.exchange(plan);
                    (self.last, refused) = (found, None);
                    tracing::info!("the configuration of encryption was read anew");
                }
                Err(why) => {
                    tracing::error!(why, file = %self.file.display(), "a changed configuration of encryption cannot be used: the old one stays");
                    refused = Some((found, times + 1, (1 << times.min(31)).min(LONGEST_PAUSE)));
                }
            }
        }
    }

    async fn usable(&self, text: &[u8], keyring: &Keyring) -> Result<Plan, String> {
        let configuration = Configuration::read(text, &self.names, self.rules)?;
        let plan = keyring.plan(&configuration);
        let patience = ASK_FOR.max(plan.longest_look() * 2);
        let mut why = String::new();
        let well = tokio::time::timeout(patience, async {
            while let Err(wrong) = plan.well().await {
                why = wrong;
                tokio::time::sleep(ASK_EVERY).await;
            }
        });
        let well = well.await;
        well.map_err(|_| format!("its key servers are not well: {why}"))?;
        Ok(plan)
    }
}
