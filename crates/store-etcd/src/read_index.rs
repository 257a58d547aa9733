//! The newest revision of the etcd, asked for once on behalf of all who want to know.
//!
//! What always holds: who asks gets what was read after it asked. One question is under way at a time; whoever comes
//! meanwhile waits for the next one, together with all others who do.

use std::sync::Arc;

use store::StoreError;
use tokio::sync::{mpsc, oneshot};

use crate::messages::Range;
use crate::shared::{Shared, closing};

/// Who may wait for a place before the next question.
const PLACES: usize = 1024;

type Asked = oneshot::Sender<Result<u64, StoreError>>;

/// Where questions are put.
#[derive(Clone)]
pub(crate) struct Rounds(mpsc::Sender<Asked>);

/// Where they are answered.
pub(crate) struct Answers(mpsc::Receiver<Asked>);

pub(crate) fn rounds() -> (Rounds, Answers) {
    let (asked, answers) = mpsc::channel(PLACES);
    (Rounds(asked), Answers(answers))
}

impl Rounds {
    /// The newest revision.
    pub(crate) async fn newest(&self) -> Result<u64, StoreError> {
        let (asked, answer) = oneshot::channel();
        self.0.send(asked).await.map_err(|_| closing())?;
        answer.await.unwrap_or_else(|_| Err(closing()))
    }
}

impl Answers {
    pub(crate) async fn run(mut self, shared: Arc<Shared>) {
        tokio::select! {
            () = shared.ended() => (),
            () = async { while self.round(&shared).await {} } => (),
        }
    }

    async fn round(&mut self, shared: &Shared) -> bool {
        let mut all = Vec::new();
        if self.0.recv_many(&mut all, PLACES).await == 0 {
            return false;
        }
        all.retain(|asked| !asked.is_closed());
        if all.is_empty() {
            return true;
        }
        let known = shared.handed();
        let (key, _) = shared.prefix.bounds();
        let newest = match shared.client.range(&Range { key, ..Range::default() }).await {
            Ok(found) => shared.recognize(found.header, known).map(|()| found.header.revision),
            Err(why) => Err(StoreError::Unavailable(why.to_string())),
        };
        for asked in all {
            // who does not wait any more is told in vain
            let _ = asked.send(newest.clone());
        }
        true
    }
}
