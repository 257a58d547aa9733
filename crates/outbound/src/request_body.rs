//! The body of a gRPC request, which knows its last message.
//!
//! A body of tonic learns of its end only when it is polled again, so a call with one message is sent in two frames of data,
//! the second of which is empty. This one looks one frame ahead: HTTP/2 ends the stream with the last message.

use bytes::Bytes;
use grpc::tonic::{self, Status};
use hyper::body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

type Polled = Option<Result<Frame<Bytes>, Status>>;

/// See the module.
pub(crate) struct RequestBody {
    inner: tonic::body::Body,
    /// What the look ahead has found.
    next: Option<Polled>,
}

impl RequestBody {
    pub(crate) fn new(inner: tonic::body::Body) -> Self {
        RequestBody { inner, next: None }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Polled> {
        let frame = match self.next.take() {
            Some(None) => {
                self.next = Some(None);
                None
            }
            Some(frame) => frame,
            None => std::task::ready!(Pin::new(&mut self.inner).poll_frame(context)),
        };
        if frame.is_some()
            && let Poll::Ready(next) = Pin::new(&mut self.inner).poll_frame(context)
        {
            self.next = Some(next);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.next {
            Some(next) => next.is_none(),
            None => self.inner.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http_body_util::{BodyExt, StreamBody};

    fn body(frames: Vec<&'static str>) -> RequestBody {
        let frames =
            frames.into_iter().map(|it| Ok::<_, Status>(Frame::data(Bytes::from_static(it.as_bytes()))));
        RequestBody::new(tonic::body::Body::new(StreamBody::new(stream::iter(frames))))
    }

    #[tokio::test]
    async fn the_end_is_known_with_the_last_frame() {
        let mut body = body(vec!["a", "b"]);
        assert!(!body.is_end_stream());
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
        assert!(!body.is_end_stream());
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "b");
        assert!(body.is_end_stream());
        assert!(body.frame().await.is_none());
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn a_frame_is_not_held_back_for_the_next() {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let frames = stream::unfold(receiver, |mut receiver| async move {
            let frame: &'static str = receiver.recv().await?;
            Some((Ok::<_, Status>(Frame::data(Bytes::from_static(frame.as_bytes()))), receiver))
        });
        let mut body = RequestBody::new(tonic::body::Body::new(StreamBody::new(Box::pin(frames))));
        sender.send("a").await.unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
        assert!(!body.is_end_stream());
        sender.send("b").await.unwrap();
        drop(sender);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "b");
        assert!(body.frame().await.is_none());
    }
}
