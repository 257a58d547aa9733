//! Status, alarms, hashes, snapshots and defragmentation.

use grpc::etcd::alarm_request::AlarmAction;
use grpc::etcd::maintenance_server::Maintenance;
use grpc::etcd::{
    AlarmMember, AlarmRequest, AlarmResponse, AlarmType, DefragmentRequest, DefragmentResponse,
    HashKvRequest, HashKvResponse, HashRequest, HashResponse, SnapshotRequest, SnapshotResponse,
    StatusRequest, StatusResponse,
};
use grpc::tonic::codegen::BoxStream;
use grpc::tonic::{Request, Response, Status};

use super::{CallResult, Services, blocking};
use crate::error::Error;
use crate::shared::TERM;
use crate::snapshot::Snapshot;
use crate::{VERSION, stored_form};

const ALARMS: [AlarmType; 2] = [AlarmType::Nospace, AlarmType::Corrupt];

impl Services {
    /// The alarms that are raised.
    fn alarms(&self, of: impl Fn(AlarmType) -> bool) -> Vec<AlarmMember> {
        let raised = self.shared().state.read().alarms;
        let member_id = self.shared().member_id;
        let is_raised = |alarm: &AlarmType| raised & (1 << *alarm as u32) != 0 && of(*alarm);
        ALARMS.into_iter().filter(is_raised).map(|it| AlarmMember { member_id, alarm: it.into() }).collect()
    }
}

#[grpc::tonic::async_trait]
impl Maintenance for Services {
    async fn alarm(&self, request: Request<AlarmRequest>) -> CallResult<AlarmResponse> {
        let request = request.into_inner();
        let shared = self.shared();
        let is_own = request.member_id == 0 || request.member_id == shared.member_id;
        let chosen = request.alarm();
        let is_chosen = move |alarm: AlarmType| chosen == AlarmType::None || chosen == alarm;
        let alarms = match request.action() {
            AlarmAction::Get => self.alarms(is_chosen),
            AlarmAction::Activate if is_own && chosen != AlarmType::None => {
                self.engine.write(move |writer| Ok(writer.set_alarm(chosen, true))).await?;
                self.alarms(is_chosen)
            }
            AlarmAction::Deactivate if is_own => {
                let cleared = self.alarms(is_chosen);
                for alarm in cleared.iter().map(AlarmMember::alarm) {
                    self.engine.write(move |writer| Ok(writer.set_alarm(alarm, false))).await?;
                }
                cleared
            }
            AlarmAction::Activate | AlarmAction::Deactivate => Vec::new(),
        };
        Ok(Response::new(AlarmResponse { header: Some(shared.current_header()), alarms }))
    }

    async fn status(&self, _: Request<StatusRequest>) -> CallResult<StatusResponse> {
        let shared = self.shared().clone();
        let db_size_in_use = blocking({
            let shared = shared.clone();
            move || shared.database.size_in_use()
        })
        .await?;
        let applied = shared.state.read().applied;
        let errors = self.alarms(|_| true);
        let errors = errors.iter().map(|it| {
            let name = it.alarm().as_str_name();
            format!("memberID:{} alarm:{name} ", it.member_id)
        });
        Ok(Response::new(StatusResponse {
            header: Some(shared.current_header()),
            version: VERSION.to_owned(),
            db_size: shared.database.size() as i64,
            leader: shared.member_id,
            raft_index: applied,
            raft_term: TERM,
            raft_applied_index: applied,
            errors: errors.collect(),
            db_size_in_use: db_size_in_use as i64,
            is_learner: false,
        }))
    }

    async fn defragment(&self, _: Request<DefragmentRequest>) -> CallResult<DefragmentResponse> {
        self.engine.defragment().await?;
        Ok(Response::new(DefragmentResponse { header: Some(self.shared().current_header()) }))
    }

    async fn hash(&self, _: Request<HashRequest>) -> CallResult<HashResponse> {
        let shared = self.shared().clone();
        let hash = blocking(move || stored_form::hash_all(&shared)).await?;
        Ok(Response::new(HashResponse { header: Some(self.shared().current_header()), hash }))
    }

    async fn hash_kv(&self, request: Request<HashKvRequest>) -> CallResult<HashKvResponse> {
        let (shared, revision) = (self.shared().clone(), request.into_inner().revision);
        let (hash, compact_revision) = blocking(move || stored_form::hash_kv(&shared, revision)).await?;
        let header = Some(self.shared().current_header());
        Ok(Response::new(HashKvResponse { header, hash, compact_revision }))
    }

    async fn snapshot(&self, _: Request<SnapshotRequest>) -> CallResult<BoxStream<SnapshotResponse>> {
        let shared = self.shared().clone();
        let snapshot = blocking({
            let shared = shared.clone();
            move || Snapshot::new(&shared)
        })
        .await?;
        let parts = futures_util::stream::try_unfold(snapshot, move |mut snapshot| {
            let shared = shared.clone();
            async move {
                let read = blocking(move || Ok::<_, Error>((snapshot.next_part()?, snapshot))).await;
                let (part, snapshot) = read.map_err(Status::from)?;
                let header = Some(shared.current_header());
                Ok(part.map(|part| (SnapshotResponse { header, ..part }, snapshot)))
            }
        });
        Ok(Response::new(Box::pin(parts)))
    }
}
