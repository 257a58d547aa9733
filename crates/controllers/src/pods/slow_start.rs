//! Slow start: many similar requests in batches of one, two, four and so on.
//!
//! The server mostly refuses such requests for a common reason, a quota for example; then only a few are sent, not five
//! hundred.

use client::Failure;
use futures_util::future::join_all;

/// Calls `act` `count` times, in batches that double; a batch with a failure is the last. Returns the number of
/// successes, and the first failure.
pub async fn slow_start<F>(count: usize, act: impl Fn(usize) -> F) -> (usize, Option<Failure>)
where
    F: Future<Output = Result<(), Failure>>,
{
    let (mut done, mut batch) = (0, 1);
    while done < count {
        let size = batch.min(count - done);
        let results = join_all((done..done + size).map(&act)).await;
        done += results.iter().filter(|result| result.is_ok()).count();
        if let Some(why) = results.into_iter().find_map(Result::err) {
            return (done, Some(why));
        }
        batch *= 2;
    }
    (done, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[tokio::test]
    async fn batches_double_until_one_fails() {
        let calls = RefCell::new(0);
        let run = async |count, refused: &[usize]| {
            calls.replace(0);
            let (successes, why) = slow_start(count, |turn| {
                *calls.borrow_mut() += 1;
                let refused = refused.contains(&turn);
                async move { if refused { Err(Failure::Other(turn.to_string())) } else { Ok(()) } }
            })
            .await;
            (successes, why.map(|it| it.to_string()), *calls.borrow())
        };
        assert_eq!(run(0, &[]).await, (0, None, 0));
        assert_eq!(run(10, &[]).await, (10, None, 10));
        assert_eq!(run(500, &[0]).await, (0, Some("0".to_owned()), 1));
        // the third batch is 3, 4, 5 and 6
        assert_eq!(run(500, &[4, 6]).await, (5, Some("4".to_owned()), 7));
        assert_eq!(run(8, &[7]).await, (7, Some("7".to_owned()), 8));
    }
}
