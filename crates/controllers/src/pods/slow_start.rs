//! Many things of the same kind, carefully: one, then two, then four at a time.
//!
//! What is refused is mostly refused for all of them, a quota for example: then it is asked for once or a few times, not
//! five hundred times.

use client::Failure;
use futures_util::future::join_all;

/// Does something so many times, in batches that double; a batch in which one fails is the last. How many went well, and
/// the first failure.
pub async fn slow_start<F>(count: usize, act: impl Fn(usize) -> F) -> (usize, Option<Failure>)
where
    F: Future<Output = Result<(), Failure>>,
{
    let (mut done, mut batch) = (0, 1);
    while done < count {
        let size = batch.min(count - done);
        let answers = join_all((done..done + size).map(&act)).await;
        let well = answers.iter().filter(|answer| answer.is_ok()).count();
        done += well;
        if let Some(why) = answers.into_iter().find_map(Result::err) {
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
        let asked = RefCell::new(Vec::new());
        let run = async |count, refused: &[usize]| {
            asked.borrow_mut().clear();
            let (well, why) = slow_start(count, |turn| {
                asked.borrow_mut().push(turn);
                let refused = refused.contains(&turn);
                async move { if refused { Err(Failure::Other(turn.to_string())) } else { Ok(()) } }
            })
            .await;
            (well, why.map(|it| it.to_string()), asked.borrow().len())
        };
        assert_eq!(run(0, &[]).await, (0, None, 0));
        assert_eq!(run(10, &[]).await, (10, None, 10));
        assert_eq!(run(500, &[0]).await, (0, Some("0".to_owned()), 1));
        // the third batch is 3, 4, 5 and 6
        assert_eq!(run(500, &[4, 6]).await, (5, Some("4".to_owned()), 7));
        assert_eq!(run(8, &[7]).await, (7, Some("7".to_owned()), 8));
    }
}
