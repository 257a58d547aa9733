//! Turns of other tasks in the midst of an operation that waits for nothing in a simulated world, as they would have them
//! while it waits for a disk.

use std::pin::Pin;
use std::task::{Context, Poll};

use crate::World;

/// Lets other tasks run for as many turns as the world says: none but in a simulation that varies them.
pub async fn pass_turns(world: &World) {
    for _ in 0..world.turns() {
        turn().await;
    }
}

/// Lets the tasks that can run now run.
pub(crate) async fn turn() {
    Turn { has_passed: false }.await;
}

/// Goes to the end of the queue of tasks.
struct Turn {
    has_passed: bool,
}

impl Future for Turn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.has_passed, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
