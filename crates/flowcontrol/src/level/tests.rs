use super::*;
use env::{Env, Simulated};
use futures_util::FutureExt;

fn level(shape: Shape, limit: u32) -> (Arc<Simulated>, Arc<Level>) {
    let world = Simulated::new(0, 1);
    (world.clone(), Level::new(shape, limit, world))
}

const QUEUE: Shape = Shape::Queue { queues: 1, hand: 1, longest: 5 };

fn one() -> Width {
    Width::default()
}

fn go(entry: Entry) -> Ticket {
    match entry {
        Entry::Go(ticket) => ticket,
        Entry::Wait(_) => panic!("must wait"),
        Entry::Rejected(why) => panic!("{why:?}"),
    }
}

fn wait(entry: Entry) -> QueuedTicket {
    match entry {
        Entry::Wait(waiting) => waiting,
        Entry::Go(_) => panic!("may go"),
        Entry::Rejected(why) => panic!("{why:?}"),
    }
}

fn refused(entry: Entry) -> RejectReason {
    match entry {
        Entry::Rejected(why) => why,
        _ => panic!("not refused"),
    }
}

#[test]
fn seats_are_taken_and_come_back() {
    let (_, level) = level(Shape::Refuse, 2);
    let (first, second) = (go(level.ask(1, one(), Vec::new)), go(level.ask(1, one(), Vec::new)));
    assert_eq!(refused(level.ask(2, one(), Vec::new)), RejectReason::NoSeat);
    drop(first);
    let third = go(level.ask(2, one(), Vec::new));
    assert_eq!(level.standing().1, 2);
    drop((second, third));
    assert_eq!(level.standing(), (QueueTotals::default(), 0));
}

#[test]
fn exempt_requests_never_wait() {
    let (_, level) = level(Shape::Exempt, 1);
    let held: Vec<_> = (0..100).map(|_| go(level.ask(1, one(), Vec::new))).collect();
    assert_eq!(level.standing().1, 100);
    drop(held);
    assert_eq!(level.standing().1, 0);
}

#[test]
fn a_waiting_request_runs_when_a_seat_is_free_and_a_cancelled_one_blocks_no_other() {
    let (world, level) = level(QUEUE, 1);
    let running = go(level.ask(1, one(), Vec::new));
    let mut next = wait(level.ask(1, one(), Vec::new));
    let left = wait(level.ask(1, one(), Vec::new));
    let last = wait(level.ask(1, one(), Vec::new));
    assert!((&mut next).now_or_never().is_none());
    drop(left);
    world.advance(Duration::from_millis(20));
    drop(running);
    let ticket = (&mut next).now_or_never().flatten().unwrap();
    assert_eq!(ticket.waited(), Duration::from_millis(20));
    // cancelled after it got the seat: the seat goes to the next
    drop(ticket);
    let mut more = wait(level.ask(1, one(), Vec::new));
    drop(last);
    assert!((&mut more).now_or_never().flatten().is_some());
    drop((next, more));
    assert_eq!(level.standing(), (QueueTotals::default(), 0));
}

#[test]
fn queues_are_bounded() {
    let (_, level) = level(Shape::Queue { queues: 1, hand: 1, longest: 3 }, 1);
    let _running = go(level.ask(1, one(), Vec::new));
    let _waiting: Vec<_> = (0..3).map(|_| wait(level.ask(1, one(), || vec!["me".to_owned()]))).collect();
    assert_eq!(refused(level.ask(1, one(), Vec::new)), RejectReason::QueueFull);
    let queues = level.queues();
    assert_eq!((queues.len(), queues[0].running, queues[0].waiting.len()), (1, 1, 3));
    assert_eq!(queues[0].waiting[0].about, ["me"]);
}

#[test]
fn a_request_wider_than_the_level_runs_alone() {
    let (_, level) = level(QUEUE, 4);
    let wide = Width { seats: 9, ..one() };
    let small = go(level.ask(1, one(), Vec::new));
    let mut waits = wait(level.ask(2, wide, Vec::new));
    // a small one does not pass it
    let mut later = wait(level.ask(3, one(), Vec::new));
    drop(small);
    let running = (&mut waits).now_or_never().flatten().unwrap();
    assert!((&mut later).now_or_never().is_none());
    drop(running);
    assert!((&mut later).now_or_never().flatten().is_some());
}

#[test]
fn additional_latency_keeps_the_seats() {
    let (_, level) = level(Shape::Refuse, 4);
    let after = Duration::from_millis(5);
    let ticket = go(level.ask(1, Width { seats: 1, after_seats: 3, after }, Vec::new));
    let (long, ticket) = ticket.answered().unwrap();
    assert_eq!((long, level.standing().1), (after, 3));
    drop(ticket);
    assert_eq!(level.standing().1, 0);
    assert!(go(level.ask(1, one(), Vec::new)).answered().is_none());
}

#[test]
fn more_seats_dispatch_queued_requests() {
    let (_, level) = level(QUEUE, 1);
    let _running = go(level.ask(1, one(), Vec::new));
    let mut waiting: Vec<_> = (0..3).map(|_| wait(level.ask(1, one(), Vec::new))).collect();
    level.set_limit(3);
    let went: Vec<_> = waiting.iter_mut().filter_map(|it| it.now_or_never().flatten()).collect();
    assert_eq!(went.len(), 2);
    level.set_limit(0);
    assert_eq!(level.limit(), 1);
}

/// One flow asks for ten times as much as there is, another for a tenth: the second hardly waits.
#[test]
fn a_flood_of_one_flow_does_not_starve_others() {
    let (world, level) = level(Shape::Queue { queues: 64, hand: 6, longest: 50 }, 4);
    let (noisy, quiet) = (0x1234_5678_9ABC_DEF0u64, 0x0FED_CBA9_8765_4321u64);
    let mut running: Vec<(Duration, Ticket)> = Vec::new();
    let mut waiting: Vec<(bool, QueuedTicket)> = Vec::new();
    let mut waits = [Vec::new(), Vec::new()];
    let long = Duration::from_millis(10);
    for step in 0..4000u32 {
        let now = world.elapsed();
        let (done, on): (Vec<_>, Vec<_>) = running.drain(..).partition(|(end, _)| *end <= now);
        running = on;
        drop(done);
        // forty requests of ten milliseconds in ten milliseconds would be ten times what four seats do
        let flows = std::iter::repeat_n(noisy, 4).chain((step % 25 == 0).then_some(quiet));
        for flow in flows {
            match level.ask(flow, one(), Vec::new) {
                Entry::Go(ticket) => {
                    waits[usize::from(flow == quiet)].push(ticket.waited());
                    running.push((now + long, ticket));
                }
                Entry::Wait(waits) => waiting.push((flow == quiet, waits)),
                Entry::Rejected(_) => assert_eq!(flow, noisy, "the quiet one is never refused"),
            }
        }
        waiting.retain_mut(|(is_quiet, wait)| match wait.now_or_never().flatten() {
            None => true,
            Some(ticket) => {
                waits[usize::from(*is_quiet)].push(ticket.waited());
                running.push((now + long, ticket));
                false
            }
        });
        world.advance(Duration::from_millis(1));
    }
    let mean = |waits: &[Duration]| waits.iter().sum::<Duration>() / waits.len().max(1) as u32;
    let longest = waits[1].iter().max().copied().unwrap_or_default();
    assert!(waits[1].len() >= 150, "{}", waits[1].len());
    assert!(longest <= 2 * long, "{longest:?}");
    assert!(mean(&waits[0]) > 10 * mean(&waits[1]), "{:?} {:?}", mean(&waits[0]), mean(&waits[1]));
}
