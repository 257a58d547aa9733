//! Sleeps and timeouts by the clock of a world.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::TryFutureExt;
use futures_util::future::Either;

use crate::simulated_clock::Timer;
use crate::{Upkeep, World};

/// A future that completes at a point in time: a timer of tokio or of a simulated clock. It holds no allocation of its
/// own. A pinned one is set again by `sleep.set(world.sleep_until(at))`.
pub type Sleep = Either<tokio::time::Sleep, Timer>;

/// Waits for `duration` of the world's time.
pub fn sleep(world: &World, duration: Duration) -> Sleep {
    world.sleep_until(world.elapsed().saturating_add(duration))
}

/// Waits for a period of [`Upkeep`].
pub fn sleep_upkeep(world: &World, upkeep: Upkeep) -> Sleep {
    world.sleep_upkeep_until(world.elapsed().saturating_add(upkeep.period), upkeep)
}

/// Waits until the world's [`elapsed`](crate::Env::elapsed) has reached `at`.
pub fn sleep_until(world: &World, at: Duration) -> Sleep {
    world.sleep_until(at)
}

/// Whether a sleep has completed.
pub fn is_elapsed(sleep: &Sleep) -> bool {
    match sleep {
        Either::Left(sleep) => sleep.is_elapsed(),
        Either::Right(timer) => timer.is_elapsed(),
    }
}

/// The error of a future that did not complete in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl std::error::Error for Elapsed {}

/// Runs `future` for at most `limit` of the world's time. A future that is ready wins over a limit that has passed.
pub fn timeout<F: Future>(
    world: &World,
    limit: Duration,
    future: F,
) -> impl Future<Output = Result<F::Output, Elapsed>> + use<F> {
    match sleep(world, limit) {
        // tokio's own timeout holds the future in place
        Either::Left(sleep) => {
            Either::Left(tokio::time::timeout_at(sleep.deadline(), future).map_err(|_| Elapsed))
        }
        Either::Right(timer) => Either::Right(SimulatedTimeout { future: Box::pin(future), timer }),
    }
}

struct SimulatedTimeout<F> {
    future: Pin<Box<F>>,
    timer: Timer,
}

impl<F: Future> Future for SimulatedTimeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = self.future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(&mut self.timer).poll(context).map(|()| Err(Elapsed))
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;
    use crate::{Seeded, Simulated};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_timeout_ends_a_future_at_its_limit() {
        let simulated = Simulated::new(0, 0);
        let world: World = simulated.clone();
        let mut late = pin!(timeout(&world, SECOND, pending::<()>()));
        assert_eq!(late.as_mut().now_or_never(), None);
        simulated.advance(SECOND / 2);
        assert_eq!(late.as_mut().now_or_never(), None);
        simulated.advance(SECOND / 2);
        assert_eq!(late.now_or_never(), Some(Err(Elapsed)));
    }

    #[test]
    fn a_ready_future_wins_over_its_timeout() {
        let simulated = Simulated::new(0, 0);
        let world: World = simulated.clone();
        assert_eq!(timeout(&world, Duration::ZERO, ready(3)).now_or_never(), Some(Ok(3)));
        let late = timeout(&world, SECOND, ready(4));
        simulated.advance(SECOND * 2);
        assert_eq!(late.now_or_never(), Some(Ok(4)));
        assert_eq!(simulated.next_deadline(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_paused_clock_of_tokio_drives_sleeps_and_timeouts() {
        let world: World = Seeded::new(100, 0);
        assert_eq!(world.elapsed(), SECOND * 100);
        sleep(&world, SECOND * 3600).await;
        assert_eq!(world.elapsed(), SECOND * 3700);
        assert_eq!(timeout(&world, SECOND * 5, pending::<()>()).await, Err(Elapsed));
        assert_eq!(timeout(&world, SECOND * 5, sleep(&world, SECOND * 2)).await, Ok(()));
        assert_eq!(world.elapsed(), SECOND * 3707);
        sleep_until(&world, SECOND).await;
        assert_eq!(world.elapsed(), SECOND * 3707);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pinned_sleep_is_set_again() {
        let world: World = Seeded::new(0, 0);
        let mut timer = pin!(sleep(&world, SECOND));
        timer.as_mut().await;
        timer.set(world.sleep_until(SECOND * 4));
        timer.as_mut().await;
        assert_eq!(world.elapsed(), SECOND * 4);
    }

    #[tokio::test(start_paused = true)]
    async fn an_endless_limit_is_no_limit() {
        let world: World = Seeded::new(0, 0);
        assert_eq!(timeout(&world, Duration::MAX, sleep(&world, SECOND)).await, Ok(()));
        assert_eq!(crate::io::timeout(Duration::MAX, sleep(&world, SECOND)).await, Ok(()));
    }
}
