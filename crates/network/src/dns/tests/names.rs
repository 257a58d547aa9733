//! Names of the specification, and the answers to them.

use super::fixture::{ask, cluster, data};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;
use std::collections::BTreeSet;

/// The response code and the sorted data of the answer: `NOERROR 10.0.0.1`. An answer without records has `SOA`.
fn summary(message: &Message) -> String {
    let mut words = match message.metadata.response_code {
        ResponseCode::NoError => vec!["NOERROR".to_owned()],
        ResponseCode::NXDomain => vec!["NXDOMAIN".to_owned()],
        other => vec![other.to_string()],
    };
    let mut answers: Vec<_> = message.answers.iter().map(data).collect();
    answers.sort();
    words.extend(answers);
    let has_soa = message.authorities.iter().any(|it| it.record_type() == RecordType::SOA);
    words.extend(has_soa.then(|| "SOA".to_owned()));
    words.join(" | ")
}

const A: RecordType = RecordType::A;
const AAAA: RecordType = RecordType::AAAA;
const SRV: RecordType = RecordType::SRV;
const PTR: RecordType = RecordType::PTR;
const TXT: RecordType = RecordType::TXT;
const CNAME: RecordType = RecordType::CNAME;

/// Names below `cluster.local`.
const NAMES: &[(&str, RecordType, &str)] = &[
    ("dns-version", TXT, "NOERROR | 1.1.0"),
    ("dns-version", A, "NOERROR | SOA"),
    // services with addresses
    ("web.shop.svc", A, "NOERROR | 10.96.0.20"),
    ("web.shop.svc", AAAA, "NOERROR | fd00:96::20"),
    ("web.shop.svc", TXT, "NOERROR | SOA"),
    ("kube-dns.kube-system.svc", AAAA, "NOERROR | SOA"),
    ("_http._tcp.web.shop.svc", SRV, "NOERROR | 0 100 80 web.shop.svc.cluster.local."),
    ("_quic._udp.web.shop.svc", SRV, "NOERROR | 0 100 443 web.shop.svc.cluster.local."),
    ("_quic._tcp.web.shop.svc", SRV, "NXDOMAIN | SOA"),
    ("_none._tcp.web.shop.svc", SRV, "NXDOMAIN | SOA"),
    ("_._tcp.web.shop.svc", SRV, "NXDOMAIN | SOA"),
    ("http.tcp.web.shop.svc", SRV, "NXDOMAIN | SOA"),
    ("_http._tcp.web.shop.svc", A, "NOERROR | SOA"),
    ("_tcp.web.shop.svc", SRV, "NOERROR | SOA"),
    ("_sctp.web.shop.svc", SRV, "NXDOMAIN | SOA"),
    ("10-96-0-20.web.shop.svc", A, "NXDOMAIN | SOA"),
    // headless services
    ("db.shop.svc", A, "NOERROR | 10.244.0.7 | 10.244.0.8"),
    ("db.shop.svc", AAAA, "NOERROR | fd00:244::7 | fd00:244::8"),
    ("db-0.db.shop.svc", A, "NOERROR | 10.244.0.7"),
    ("db-0.db.shop.svc", AAAA, "NOERROR | fd00:244::7"),
    ("db-2.db.shop.svc", A, "NXDOMAIN | SOA"),
    ("10-244-0-8.db.shop.svc", A, "NOERROR | 10.244.0.8"),
    ("10-244-0-8.db.shop.svc", AAAA, "NOERROR | SOA"),
    ("fd00-244--8.db.shop.svc", AAAA, "NOERROR | fd00:244::8"),
    ("10-244-0-7.db.shop.svc", A, "NXDOMAIN | SOA"),
    (
        "_sql._tcp.db.shop.svc",
        SRV,
        "NOERROR | 0 25 5432 10-244-0-8.db.shop.svc.cluster.local. | 0 25 5432 db-0.db.shop.svc.cluster.local. \
         | 0 25 5433 db-0.db.shop.svc.cluster.local. | 0 25 5433 fd00-244--8.db.shop.svc.cluster.local.",
    ),
    ("early.shop.svc", A, "NOERROR | 10.244.1.1"),
    ("idle.shop.svc", A, "NOERROR | SOA"),
    // aliases
    ("in.shop.svc", CNAME, "NOERROR | web.shop.svc.cluster.local."),
    ("in.shop.svc", A, "NOERROR | 10.96.0.20 | web.shop.svc.cluster.local."),
    (
        "twice.shop.svc",
        AAAA,
        "NOERROR | fd00:96::20 | in.shop.svc.Cluster.Local. | web.shop.svc.cluster.local.",
    ),
    ("lost.shop.svc", A, "NXDOMAIN | nowhere.shop.svc.cluster.local. | SOA"),
    ("in.shop.svc", TXT, "NOERROR | web.shop.svc.cluster.local. | SOA"),
    ("round.shop.svc", A, "Server Failure"),
    ("out.shop.svc", CNAME, "NOERROR | example.org."),
    ("out.shop.svc", A, "Server Failure"),
    ("address.shop.svc", A, "NOERROR | 192.0.2.9"),
    // pods
    ("10-244-0-7.shop.pod", A, "NOERROR | 10.244.0.7"),
    ("10-244-0-7.shop.pod", AAAA, "NOERROR | SOA"),
    ("fd00-244--7.default.pod", AAAA, "NOERROR | fd00:244::7"),
    ("10-244-0-7.nowhere.pod", A, "NXDOMAIN | SOA"),
    ("10-244-0-700.shop.pod", A, "NXDOMAIN | SOA"),
    ("10-244-0.shop.pod", A, "NXDOMAIN | SOA"),
    ("x.shop.pod", A, "NXDOMAIN | SOA"),
    // names without records
    ("", A, "NOERROR | SOA"),
    ("svc", A, "NOERROR | SOA"),
    ("pod", A, "NOERROR | SOA"),
    ("shop.svc", A, "NOERROR | SOA"),
    ("shop.pod", A, "NOERROR | SOA"),
    ("nowhere.svc", A, "NXDOMAIN | SOA"),
    ("none.shop.svc", A, "NXDOMAIN | SOA"),
    ("web.nowhere.svc", A, "NXDOMAIN | SOA"),
    ("web.shop.other", A, "NXDOMAIN | SOA"),
    ("a.b.c.d.e.f.g", A, "NXDOMAIN | SOA"),
    ("*.shop.svc", A, "NXDOMAIN | SOA"),
    // the zone
    ("", RecordType::NS, "NOERROR | ns.dns.cluster.local."),
    ("ns.dns", A, "NOERROR | 10.96.0.10"),
    ("", RecordType::AXFR, "Query Refused"),
];

#[tokio::test]
async fn names_of_the_specification_have_their_records() {
    let cluster = cluster();
    for (name, kind, expected) in NAMES {
        let full = format!("{name}.cluster.local").trim_start_matches('.').to_owned();
        let message = ask(&cluster.handler, &full, *kind).await;
        assert_eq!(summary(&message), *expected, "{name} {kind}");
        let is_local = expected.starts_with("NO") || expected.starts_with("NX");
        assert_eq!(message.metadata.authoritative, is_local, "{name} {kind}");
        assert!(message.metadata.recursion_available && message.metadata.recursion_desired);
        for record in &message.authorities {
            assert_eq!((record.name.to_string(), record.ttl), ("cluster.local.".to_owned(), 30), "{name}");
        }
    }
}

#[tokio::test]
async fn addresses_have_the_names_of_services_and_endpoints() {
    let cluster = cluster();
    let v6 = |text: &str| {
        let address: std::net::Ipv6Addr = text.parse().unwrap();
        let digits = format!("{:032x}", address.to_bits());
        let labels: Vec<_> = digits.chars().rev().map(String::from).collect();
        format!("{}.ip6.arpa", labels.join("."))
    };
    for (name, expected) in [
        ("20.0.96.10.in-addr.arpa", "NOERROR | web.shop.svc.cluster.local."),
        ("7.0.244.10.in-addr.arpa", "NOERROR | db-0.db.shop.svc.cluster.local."),
        ("8.0.244.10.IN-ADDR.arpa", "NOERROR | 10-244-0-8.db.shop.svc.cluster.local."),
        ("9.0.244.10.in-addr.arpa", "NXDOMAIN | SOA"),
        (&*v6("fd00:96::20"), "NOERROR | web.shop.svc.cluster.local."),
        (&*v6("fd00:244::7"), "NOERROR | db-0.db.shop.svc.cluster.local."),
        (&*v6("fd00:96::21"), "NXDOMAIN | SOA"),
        // other ranges are for other servers, of which there are none
        ("1.2.0.192.in-addr.arpa", "Server Failure"),
        ("96.10.in-addr.arpa", "Server Failure"),
        ("x.0.96.10.in-addr.arpa", "Server Failure"),
        (&*v6("2001:db8::1"), "Server Failure"),
    ] {
        assert_eq!(summary(&ask(&cluster.handler, name, PTR).await), expected, "{name}");
    }
    assert_eq!(summary(&ask(&cluster.handler, "20.0.96.10.in-addr.arpa", A).await), "NOERROR | SOA");
}

#[tokio::test]
async fn the_case_of_a_query_is_kept_in_its_answer() {
    let message = ask(&cluster().handler, "wEb.SHOP.svc.Cluster.LOCAL", A).await;
    assert_eq!(message.queries[0].name.to_ascii(), "wEb.SHOP.svc.Cluster.LOCAL.");
    assert_eq!(message.answers[0].name.to_ascii(), "wEb.SHOP.svc.Cluster.LOCAL.");
    assert_eq!(summary(&message), "NOERROR | 10.96.0.20");
}

#[tokio::test]
async fn locations_come_with_the_addresses_of_their_targets() {
    let message = ask(&cluster().handler, "_sql._tcp.db.shop.svc.cluster.local", SRV).await;
    let additionals: BTreeSet<_> =
        message.additionals.iter().map(|it| format!("{} {}", it.name, data(it))).collect();
    let expected = [
        "10-244-0-8.db.shop.svc.cluster.local. 10.244.0.8",
        "db-0.db.shop.svc.cluster.local. 10.244.0.7",
        "db-0.db.shop.svc.cluster.local. fd00:244::7",
        "fd00-244--8.db.shop.svc.cluster.local. fd00:244::8",
    ];
    assert_eq!(additionals, expected.map(str::to_owned).into());
}

#[tokio::test]
async fn answers_begin_with_another_address_each_time() {
    let cluster = cluster();
    let mut firsts = Vec::new();
    for _ in 0..4 {
        firsts.push(data(&ask(&cluster.handler, "db.shop.svc.cluster.local", A).await.answers[0]));
    }
    assert_eq!(firsts, ["10.244.0.7", "10.244.0.8", "10.244.0.7", "10.244.0.8"]);
}

#[tokio::test]
async fn metrics_count_queries_by_the_names_of_coredns() {
    let cluster = cluster();
    for name in ["web.shop.svc.cluster.local", "none.shop.svc.cluster.local"] {
        ask(&cluster.handler, name, A).await;
    }
    let text = cluster.registry.text();
    for line in [
        "coredns_dns_requests_total{family=\"1\",proto=\"tcp\",server=\"dns://:10053\",type=\"A\",zone=\"cluster.local.\"} 2",
        "coredns_dns_responses_total{plugin=\"kubernetes\",rcode=\"NOERROR\",server=\"dns://:10053\",zone=\"cluster.local.\"} 1",
        "coredns_dns_responses_total{plugin=\"kubernetes\",rcode=\"NXDOMAIN\",server=\"dns://:10053\",zone=\"cluster.local.\"} 1",
        "coredns_dns_request_duration_seconds_count{server=\"dns://:10053\",zone=\"cluster.local.\"} 2",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}
