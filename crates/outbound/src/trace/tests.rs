use super::*;

const TRACE_HEADER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[test]
fn contexts_are_read_and_written() {
    let read = SpanContext::parse(TRACE_HEADER).unwrap();
    assert!(read.sampled && read.trace[0] == 0x0a && read.span[7] == 0x31);
    assert_eq!(read.header().unwrap(), TRACE_HEADER);
    assert!(!SpanContext::parse(&TRACE_HEADER.replace("-01", "-00")).unwrap().sampled);
    assert!(SpanContext::parse(&format!("{}-more", TRACE_HEADER.replacen("00", "01", 1))).is_some());
    for wrong in [
        "",
        "00",
        &format!("{TRACE_HEADER}-more"),
        &TRACE_HEADER.replacen("00", "ff", 1),
        &TRACE_HEADER.replace('a', "A"),
        &TRACE_HEADER.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
        &TRACE_HEADER.replace("b7ad6b7169203331", &"0".repeat(16)),
        &TRACE_HEADER[..TRACE_HEADER.len() - 1],
        "00-0af-b7-01",
    ] {
        assert_eq!(SpanContext::parse(wrong), None, "{wrong}");
    }
}

#[tokio::test]
async fn callers_decide_and_otherwise_sampling_does() {
    let world: World = env::Simulated::new(1_700_000_000, 3);
    let start = |per_million| {
        let endpoint = "localhost:1".parse().unwrap();
        let options = TracerOptions { endpoint, per_million, resource: Vec::new() };
        Tracer::start(options, Dialer::Direct, world.clone(), &Registry::default())
    };
    let (never, always, half) = (start(0), start(1_000_000), start(500_000));
    let remote = SpanContext::parse(TRACE_HEADER).unwrap();
    let span = never.begin(Some(remote)).unwrap();
    assert_eq!((span.context.trace, span.parent), (remote.trace, Some(remote.span)));
    assert_ne!(span.context.span, remote.span);
    assert!(always.begin(Some(SpanContext { sampled: false, ..remote })).is_none());
    assert!(never.begin(None).is_none());
    let span = always.begin(None).unwrap();
    assert!(span.parent.is_none() && span.context.trace != remote.trace);
    let drawn = (0..1000).filter(|_| half.begin(None).is_some()).count();
    assert!((400..600).contains(&drawn), "{drawn}");
}
