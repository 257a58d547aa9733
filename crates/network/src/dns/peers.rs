//! The other DNS servers of the cluster: those that do not answer are removed from the DNS service.
//!
//! A server that ends in order removes itself. One that was killed, or whose machine is lost, stays in the service, and a
//! share of all queries would go there. Each server asks the others; one that has not answered several times in a row is
//! taken out. If it lives all the same, it adds itself again with its next announcement.

use super::forward::exchange;
use api::discovery::v1::EndpointSlice;
use env::World;
use hickory_proto::op::Query;
use hickory_proto::rr::{Name, RecordType};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How often the others are checked.
pub const PERIOD: Duration = Duration::from_secs(2);
/// The time in which a server answers about a name of its own.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The failures in a row after which a server is taken out.
const FAILURES: u32 = 2;

/// See the module.
pub struct PeerChecks {
    query: Query,
    /// By name of the slice.
    failures: HashMap<String, u32>,
    world: World,
}

impl PeerChecks {
    /// Asks about the zone of the cluster.
    pub fn new(zone: &Name, world: &World) -> Self {
        PeerChecks {
            query: Query::query(zone.clone(), RecordType::SOA),
            failures: HashMap::new(),
            world: world.clone(),
        }
    }

    /// Asks the servers of slices. Returns the names of the slices whose servers are gone.
    pub async fn gone(&mut self, slices: &[EndpointSlice]) -> Vec<String> {
        let answers = slices.iter().map(|slice| self.answers(slice));
        let answers = futures_util::future::join_all(answers).await;
        let before = std::mem::take(&mut self.failures);
        let mut gone = Vec::new();
        for (slice, answers) in slices.iter().zip(answers) {
            let name = slice.metadata.name.clone();
            if answers {
                continue;
            }
            let failures = before.get(&name).copied().unwrap_or_default() + 1;
            if failures >= FAILURES {
                gone.push(name);
            } else {
                self.failures.insert(name, failures);
            }
        }
        gone
    }

    /// Whether one of the addresses of a slice answers, whatever it says.
    async fn answers(&self, slice: &EndpointSlice) -> bool {
        let port = slice.ports.iter().find_map(|it| it.port.and_then(|port| u16::try_from(port).ok()));
        let Some(port) = port else { return true };
        let addresses = slice.endpoints.iter().flat_map(|it| &it.addresses);
        for address in addresses.filter_map(|it| it.parse::<IpAddr>().ok()) {
            let id = env::random_u64(&self.world) as u16;
            let answer = exchange(SocketAddr::new(address, port), id, &self.query, (false, false));
            if matches!(env::io::timeout(TIMEOUT, answer).await, Ok(Ok(_))) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::discovery::v1::{Endpoint, EndpointPort};
    use api::meta::v1::ObjectMeta;
    use hickory_proto::op::{Message, MessageType};
    use tokio::net::UdpSocket;

    fn slice(name: &str, address: SocketAddr) -> EndpointSlice {
        EndpointSlice {
            metadata: ObjectMeta { name: name.to_owned(), ..ObjectMeta::default() },
            endpoints: vec![Endpoint { addresses: vec![address.ip().to_string()], ..Endpoint::default() }],
            ports: vec![EndpointPort { port: Some(address.port().into()), ..EndpointPort::default() }],
            ..EndpointSlice::default()
        }
    }

    #[tokio::test]
    async fn servers_that_do_not_answer_twice_are_gone() {
        let living = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let dead = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let slices = [slice("living", living.local_addr().unwrap()), slice("dead", dead)];
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            loop {
                let (length, source) = living.recv_from(&mut buffer).await.unwrap();
                let query = Message::from_vec(&buffer[..length]).unwrap();
                let mut answer =
                    Message::new(query.metadata.id, MessageType::Response, query.metadata.op_code);
                answer.add_query(query.queries[0].clone());
                living.send_to(&answer.to_vec().unwrap(), source).await.unwrap();
            }
        });
        let world: World = env::Seeded::new(0, 7);
        let mut checks = PeerChecks::new(&Name::from_ascii("cluster.local.").unwrap(), &world);
        assert!(checks.gone(&slices).await.is_empty());
        assert_eq!(checks.gone(&slices).await, ["dead"]);
        // one that came back and fails again has its tries again
        assert!(checks.gone(&slices[..1]).await.is_empty());
        assert!(checks.gone(&slices).await.is_empty());
    }
}
