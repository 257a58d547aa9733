//! Packets that are no queries, sources that are no pods, and answers that are too long.

use super::fixture::{POD, ask, cluster, empty, name, put, put_slice, query, respond, service, slice};
use crate::dns::{ForwardOptions, Transport};
use env::World;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, RecordType};

const WEB: &str = "web.shop.svc.cluster.local";

#[tokio::test]
async fn random_packets_are_answered_with_little_or_not_at_all() {
    let cluster = cluster();
    let valid = query(WEB, RecordType::A, Some(1232));
    for seed in 0..20 {
        let world: World = env::Seeded::new(0, seed);
        for round in 0..500 {
            let mut packet = match round % 3 {
                0 => vec![0; env::random_u64(&world) as usize % 600],
                _ => valid.clone(),
            };
            if round % 3 == 0 {
                world.fill(&mut packet);
            }
            for _ in 0..env::random_u64(&world) % 4 {
                let at = env::random_u64(&world) as usize % packet.len().max(1);
                if let Some(byte) = packet.get_mut(at) {
                    *byte = env::random_u64(&world) as u8;
                }
            }
            packet.truncate(packet.len() - env::random_u64(&world) as usize % (packet.len() / 2 + 1));
            let answer = respond(&cluster.handler, &packet, POD, Transport::Udp).await;
            let Some(answer) = answer else { continue };
            assert!(answer.len() <= 1232 && answer[..2] == packet[..2], "seed {seed}, round {round}");
            let message = Message::from_vec(&answer);
            let is_response = message.is_ok_and(|it| it.metadata.message_type == MessageType::Response);
            assert!(is_response, "seed {seed}, round {round}: {packet:?}");
        }
    }
}

#[tokio::test]
async fn messages_that_are_no_queries_are_refused() {
    let cluster = cluster();
    let code = async |packet: &[u8]| {
        let answer = respond(&cluster.handler, packet, POD, Transport::Udp).await?;
        Some(Message::from_vec(&answer).unwrap().metadata.response_code)
    };
    let valid = query(WEB, RecordType::A, None);
    assert_eq!(code(&valid).await, Some(ResponseCode::NoError));
    assert_eq!(code(&valid[..11]).await, None);
    assert_eq!(code(&valid[..20]).await, Some(ResponseCode::FormErr));
    let changed = |at: usize, byte: u8| {
        let mut packet = valid.clone();
        packet[at] = byte;
        packet
    };
    // an answer, an update, no question, two questions, an answer record, many additional records
    assert_eq!(code(&changed(2, 0x80)).await, None);
    assert_eq!(code(&changed(2, 5 << 3)).await, Some(ResponseCode::NotImp));
    assert_eq!(code(&changed(5, 0)).await, Some(ResponseCode::FormErr));
    assert_eq!(code(&changed(4, 0xff)).await, Some(ResponseCode::FormErr));
    assert_eq!(code(&changed(7, 1)).await, Some(ResponseCode::FormErr));
    assert_eq!(code(&changed(10, 0xff)).await, Some(ResponseCode::FormErr));
    let mut message = Message::new(1, MessageType::Query, OpCode::Query);
    let mut chaos = Query::query(name("version.bind"), RecordType::TXT);
    chaos.set_query_class(DNSClass::CH);
    message.add_query(chaos);
    assert_eq!(code(&message.to_vec().unwrap()).await, Some(ResponseCode::Refused));
    // an unknown version of EDNS; the number of BADVERS has two names
    let mut message = Message::new(1, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(name(WEB), RecordType::A));
    let mut edns = Edns::new();
    edns.set_version(1);
    message.set_edns(edns);
    assert_eq!(code(&message.to_vec().unwrap()).await, Some(ResponseCode::BADSIG));
}

#[tokio::test]
async fn sources_outside_of_the_cluster_are_refused() {
    let cluster = cluster();
    let packet = query(WEB, RecordType::A, None);
    cluster.sources.set_node("a", Some(Default::default()));
    for (source, expected) in [
        ("198.51.100.7", ResponseCode::Refused),
        ("2001:db8::7", ResponseCode::Refused),
        ("10.244.3.4", ResponseCode::NoError),
        ("::ffff:10.244.3.4", ResponseCode::NoError),
        ("127.0.0.1", ResponseCode::NoError),
    ] {
        let answer =
            respond(&cluster.handler, &packet, source.parse().unwrap(), Transport::Udp).await.unwrap();
        let message = Message::from_vec(&answer).unwrap();
        assert_eq!(message.metadata.response_code, expected, "{source}");
        assert_eq!(message.queries[0].name, name(WEB));
        assert!(answer.len() <= packet.len() + 16 * message.answers.len(), "{source}");
    }
}

#[tokio::test]
async fn long_answers_are_truncated_over_udp_only() {
    let cluster = empty(ForwardOptions::default());
    cluster.records.set_namespace("shop", true);
    put(&cluster.records, &service("shop", "many", &[], &[("p", "TCP", 1)]));
    let addresses: Vec<_> = (0..200).map(|at| format!("10.244.0.{at}")).collect();
    let endpoints: Vec<_> = addresses.iter().map(|it| (&**it, "", None)).collect();
    put_slice(&cluster.records, ("shop", "many"), "a", &slice(&endpoints, &[("p", "TCP", 1)]));
    let many = "many.shop.svc.cluster.local";
    let whole = ask(&cluster.handler, many, RecordType::A).await;
    assert_eq!((whole.answers.len(), whole.metadata.truncation), (200, false));
    for (kind, payload, limit, least) in [
        (RecordType::A, None, 512, 28),
        (RecordType::A, Some(512), 512, 27),
        (RecordType::A, Some(1232), 1232, 72),
        (RecordType::A, Some(65535), 1232, 72),
        (RecordType::A, Some(0), 512, 27),
        (RecordType::SRV, Some(1232), 1232, 20),
    ] {
        let packet = query(many, kind, payload);
        let answer = respond(&cluster.handler, &packet, POD, Transport::Udp).await.unwrap();
        let message = Message::from_vec(&answer).unwrap();
        assert!(answer.len() <= limit, "{payload:?}: {}", answer.len());
        assert!(
            message.metadata.truncation && message.answers.len() >= least,
            "{kind} {payload:?}: {}",
            message.answers.len()
        );
        assert_eq!(message.edns.is_some(), payload.is_some());
    }
    let locations = ask(&cluster.handler, "_p._tcp.many.shop.svc.cluster.local", RecordType::SRV).await;
    assert_eq!((locations.answers.len(), locations.additionals.len()), (200, 200));
}

#[tokio::test]
async fn additional_records_are_left_out_before_answers() {
    let cluster = cluster();
    let packet = query("_sql._tcp.db.shop.svc.cluster.local", RecordType::SRV, None);
    let endpoints: Vec<_> = (0..7).map(|at| format!("10.244.7.{at}")).collect();
    let endpoints: Vec<_> = endpoints.iter().map(|it| (&**it, "", None)).collect();
    put_slice(&cluster.records, ("shop", "db"), "db-a", &slice(&endpoints, &[("sql", "TCP", 5432)]));
    put_slice(&cluster.records, ("shop", "db"), "db-b", &slice(&[], &[]));
    let answer = respond(&cluster.handler, &packet, POD, Transport::Udp).await.unwrap();
    let message = Message::from_vec(&answer).unwrap();
    assert_eq!((message.answers.len(), message.additionals.len()), (7, 0));
    assert!(!message.metadata.truncation);
}
