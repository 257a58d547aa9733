//! The client's side of an HTTP/2 connection, on which the task of a caller opens its own stream.
//!
//! hyper's client passes each request to a task of the connection, which starts another one for the response: two more
//! tasks are woken for each call. Here the connection has one task, which reads and writes frames.
//!
//! Invariants: an error says whether the server may have processed the request. While streams are open, pings detect a
//! dead connection. Bytes of a response are given back to the flow control when they are read, so a server sends no more
//! than a window ahead. A call that is dropped resets its stream.

use bytes::Bytes;
use env::io::{sleep, timeout};
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Ping, Reason, RecvStream, SendStream};
use http::header::{CONTENT_LENGTH, HeaderValue};
use http::{Request, Response};
use hyper::body::{Body, Frame, SizeHint};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

/// The largest headers of a response.
const HEADER_BYTES: u32 = 64 << 10;

/// The settings of a connection.
pub(crate) struct Http2Settings {
    /// The interval of pings while streams are open, and the timeout of one.
    pub pings: Option<(Duration, Duration)>,
    /// The flow-control windows of one stream and of the connection.
    pub stream_window: u32,
    pub connection_window: u32,
}

/// See the module. Cheap to clone; the connection is closed once all clones and streams are gone.
#[derive(Clone)]
pub(crate) struct Http2Connection {
    sender: SendRequest<Bytes>,
    streams: Arc<AtomicUsize>,
    driver: AbortHandle,
}

/// Counts an open stream.
struct OpenStream(Arc<AtomicUsize>);

impl OpenStream {
    fn new(streams: &Arc<AtomicUsize>) -> Self {
        streams.fetch_add(1, Ordering::Relaxed);
        OpenStream(streams.clone())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a request has no response.
#[derive(Debug)]
pub(crate) struct Http2Error {
    pub cause: h2::Error,
    /// Whether the server certainly did not process the request.
    pub is_unsent: bool,
}

impl Http2Connection {
    pub(crate) async fn handshake<S>(stream: S, settings: &Http2Settings) -> Result<Self, h2::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = Builder::new()
            .enable_push(false)
            .max_header_list_size(HEADER_BYTES)
            .initial_window_size(settings.stream_window)
            .initial_connection_window_size(settings.connection_window)
            .handshake(stream)
            .await?;
        let streams = Arc::new(AtomicUsize::new(0));
        let driver = tokio::spawn(drive(connection, settings.pings, streams.clone()));
        Ok(Http2Connection { sender, streams, driver: driver.abort_handle() })
    }

    /// Whether the connection has ended: no request can be sent.
    pub(crate) fn is_closed(&self) -> bool {
        self.driver.is_finished()
    }

    /// The task of the connection. Without it the connection ends, with all its streams.
    pub(crate) fn driver(&self) -> AbortHandle {
        self.driver.clone()
    }

    /// Waits until a stream may be opened. Fails if the connection takes no more requests.
    pub(crate) async fn ready(&self) -> Result<ReadyConnection, Http2Error> {
        let open = OpenStream::new(&self.streams);
        let sender = self.sender.clone().ready().await.map_err(unsent)?;
        Ok(ReadyConnection { sender, open })
    }
}

fn unsent(cause: h2::Error) -> Http2Error {
    Http2Error { cause, is_unsent: true }
}

/// A connection on which a stream may be opened.
pub(crate) struct ReadyConnection {
    sender: SendRequest<Bytes>,
    open: OpenStream,
}

impl ReadyConnection {
    /// Sends a request and waits for the head of its response. The URI of the request has scheme and authority.
    pub(crate) async fn send<B>(self, request: Request<B>) -> Result<Response<ResponseBody>, Http2Error>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
    {
        let ReadyConnection { mut sender, open } = self;
        let (mut head, body) = request.into_parts();
        let is_end = body.is_end_stream();
        if let Some(length) = body.size_hint().exact().filter(|length| *length > 0 || !is_end) {
            head.headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
        }
        let (response, stream) =
            sender.send_request(Request::from_parts(head, ()), is_end).map_err(unsent)?;
        drop(sender);
        let mut sending = None;
        if !is_end {
            let mut body = SendBody { body, stream, has_sent: false };
            // a body that is there as a whole, as most are, takes no task
            let is_sent =
                std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut body).poll(context).is_ready()));
            if !is_sent.await {
                sending = Some(AbortOnDrop(tokio::spawn(body).abort_handle()));
            }
        }
        let response = receive(response).await?;
        let length = response.headers().get(CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse().ok());
        Ok(response.map(|stream| ResponseBody { stream, length, _sending: sending, _open: open }))
    }
}

async fn receive(response: ResponseFuture) -> Result<Response<RecvStream>, Http2Error> {
    response.await.map_err(|cause| {
        let is_unsent =
            cause.is_reset() && cause.is_remote() && cause.reason() == Some(Reason::REFUSED_STREAM);
        Http2Error { cause, is_unsent }
    })
}

/// Reads and writes frames until the connection ends or does not respond to a ping.
async fn drive<S>(
    mut connection: h2::client::Connection<S, Bytes>,
    pings: Option<(Duration, Duration)>,
    streams: Arc<AtomicUsize>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut ping_pong = connection.ping_pong();
    let mut connection = pin!(connection);
    let (Some((interval, limit)), Some(ping_pong)) = (pings, &mut ping_pong) else {
        report(connection.await);
        return;
    };
    loop {
        tokio::select! {
            biased;
            ended = &mut connection => return report(ended),
            () = sleep(interval) => {}
        }
        if streams.load(Ordering::Relaxed) == 0 {
            continue;
        }
        tokio::select! {
            biased;
            ended = &mut connection => return report(ended),
            pong = timeout(limit, ping_pong.ping(Ping::opaque())) => if !matches!(pong, Ok(Ok(_))) {
                tracing::debug!("an HTTP/2 connection does not respond to pings: closed");
                return;
            }
        }
    }
}

fn report(ended: Result<(), h2::Error>) {
    if let Err(why) = ended {
        tracing::debug!(%why, "an HTTP/2 connection has failed");
    }
}

/// Sends the body of a request as the flow control permits. A body that fails resets the stream.
struct SendBody<B> {
    body: B,
    stream: SendStream<Bytes>,
    /// Whether data was sent, which may wait for the window of the stream.
    has_sent: bool,
}

impl<B> SendBody<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        loop {
            // at most one frame waits for the window
            if self.has_sent {
                self.stream.reserve_capacity(1);
                while self.stream.capacity() == 0 {
                    match ready!(self.stream.poll_capacity(context)) {
                        Some(capacity) => drop(capacity?),
                        None => return Poll::Ready(Ok(())),
                    }
                }
            }
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                None => return Poll::Ready(self.stream.send_data(Bytes::new(), true)),
                Some(Err(_)) => {
                    self.stream.send_reset(Reason::INTERNAL_ERROR);
                    return Poll::Ready(Ok(()));
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        let is_end = self.body.is_end_stream();
                        self.stream.send_data(data, is_end)?;
                        self.has_sent = true;
                        if is_end {
                            return Poll::Ready(Ok(()));
                        }
                    }
                    Err(frame) => {
                        if let Ok(trailers) = frame.into_trailers() {
                            return Poll::Ready(self.stream.send_trailers(trailers));
                        }
                    }
                },
            }
        }
    }
}

impl<B> Future for SendBody<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    type Output = ();

    /// Its failures are those of the response, too.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.poll_send(context).is_ready() {
            return Poll::Ready(());
        }
        // a reset by the server ends a body that waits
        self.stream.poll_reset(context).map(drop)
    }
}

/// Ends the sending of a body whose response is dropped.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The body of a response.
pub struct ResponseBody {
    stream: RecvStream,
    /// The length in the head, if it has one.
    length: Option<u64>,
    _sending: Option<AbortOnDrop>,
    _open: OpenStream,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        match ready!(self.stream.poll_data(context)) {
            Some(Ok(bytes)) => {
                // fails if the stream has ended meanwhile: then no window is needed
                let _ = self.stream.flow_control().release_capacity(bytes.len());
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            // the server needs no more of the request
            Some(Err(why)) if why.reason() == Some(Reason::NO_ERROR) => Poll::Ready(None),
            Some(Err(why)) => Poll::Ready(Some(Err(why))),
            None => self.stream.poll_trailers(context).map(|trailers| match trailers {
                Ok(trailers) => trailers.map(|it| Ok(Frame::trailers(it))),
                Err(why) => Some(Err(why)),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map(SizeHint::with_exact).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use h2::server::SendResponse;
    use http_body_util::{BodyExt, Empty, Full, StreamBody};
    use std::convert::Infallible;
    use tokio::io::{DuplexStream, duplex};

    const WINDOW: u32 = 64 << 10;
    const PINGS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));

    type Accepted = (Request<RecvStream>, SendResponse<Bytes>);

    async fn connect() -> (Http2Connection, DuplexStream) {
        let (near, far) = duplex(1 << 20);
        let settings = Http2Settings { pings: Some(PINGS), stream_window: WINDOW, connection_window: WINDOW };
        (Http2Connection::handshake(near, &settings).await.unwrap(), far)
    }

    /// A server that calls `serve` for each request.
    fn serve<F>(far: DuplexStream, serve: impl Fn(Accepted) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(far).await.unwrap();
            while let Some(Ok(accepted)) = connection.accept().await {
                tokio::spawn(serve(accepted));
            }
        });
    }

    fn request<B>(body: B) -> Request<B> {
        Request::post("http://server/path").body(body).unwrap()
    }

    async fn send<B>(connection: &Http2Connection, body: B) -> Result<Response<ResponseBody>, Http2Error>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
    {
        connection.ready().await?.send(request(body)).await
    }

    #[tokio::test]
    async fn a_call_has_body_length_and_trailers() {
        let (connection, far) = connect().await;
        serve(far, |(request, mut respond)| async move {
            assert_eq!(request.headers()[CONTENT_LENGTH], "5");
            let mut body = request.into_body();
            let data = body.data().await.unwrap().unwrap();
            assert!(body.is_end_stream(), "the stream ends with the data");
            let head = Response::builder().header(CONTENT_LENGTH, 5).body(()).unwrap();
            let mut stream = respond.send_response(head, false).unwrap();
            stream.send_data(data, false).unwrap();
            stream
                .send_trailers([("a".parse().unwrap(), HeaderValue::from_static("b"))].into_iter().collect())
                .unwrap();
        });
        let response = send(&connection, Full::from("hello")).await.unwrap();
        assert_eq!(response.body().size_hint().exact(), Some(5));
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["a"], "b");
        assert_eq!(body.to_bytes(), "hello");
        assert_eq!(connection.streams.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_body_larger_than_the_windows_arrives_and_so_does_its_response() {
        let (connection, far) = connect().await;
        serve(far, |(request, mut respond)| async move {
            let mut body = request.into_body();
            let mut stream = respond.send_response(Response::new(()), false).unwrap();
            while let Some(data) = body.data().await {
                let data = data.unwrap();
                body.flow_control().release_capacity(data.len()).unwrap();
                stream.send_data(data, false).unwrap();
            }
            stream.send_data(Bytes::new(), true).unwrap();
        });
        let parts: Vec<Bytes> = (0..100u8).map(|byte| Bytes::from(vec![byte; 10_000])).collect();
        let frames = parts.clone().into_iter().map(|it| Ok::<_, Infallible>(Frame::data(it)));
        let response = send(&connection, StreamBody::new(stream::iter(frames))).await.unwrap();
        assert!(response.into_body().collect().await.unwrap().to_bytes() == parts.concat());
    }

    #[tokio::test]
    async fn the_server_is_a_window_ahead_at_most() {
        let (connection, far) = connect().await;
        let (sent, mut is_sent) = tokio::sync::watch::channel(0);
        serve(far, move |(_, mut respond)| {
            let sent = sent.clone();
            async move {
                let mut stream = respond.send_response(Response::new(()), false).unwrap();
                loop {
                    stream.reserve_capacity(1000);
                    match std::future::poll_fn(|context| stream.poll_capacity(context)).await {
                        Some(Ok(capacity @ 1..)) => {
                            stream.send_data(Bytes::from(vec![0; capacity.min(1000)]), false).unwrap();
                            sent.send_modify(|it| *it += capacity.min(1000));
                        }
                        Some(Ok(_)) => {}
                        _ => {
                            sent.send_replace(usize::MAX);
                            return;
                        }
                    }
                }
            }
        });
        let mut body = send(&connection, Empty::new()).await.unwrap().into_body();
        is_sent.wait_for(|it| *it >= WINDOW as usize).await.unwrap();
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(*is_sent.borrow(), WINDOW as usize);
        // and goes on when it is read
        let mut read = 0;
        while read <= WINDOW as usize {
            read += body.frame().await.unwrap().unwrap().into_data().unwrap().len();
        }
        // a response that is dropped ends the sending
        drop(body);
        is_sent.wait_for(|it| *it == usize::MAX).await.unwrap();
    }

    #[tokio::test]
    async fn only_a_refused_stream_is_known_to_be_unprocessed() {
        let (connection, far) = connect().await;
        serve(far, |(request, mut respond)| async move {
            let reason =
                if request.uri().path() == "/path" { Reason::REFUSED_STREAM } else { Reason::INTERNAL_ERROR };
            respond.send_reset(reason);
        });
        assert!(send(&connection, Empty::new()).await.err().unwrap().is_unsent);
        let mut other = request(Empty::<Bytes>::new());
        *other.uri_mut() = "http://server/other".parse().unwrap();
        assert!(!connection.ready().await.unwrap().send(other).await.err().unwrap().is_unsent);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_noticed_while_a_stream_is_open() {
        let (connection, far) = connect().await;
        // reads, and says nothing
        let silent = tokio::spawn(async move {
            let mut far = far;
            tokio::io::copy(&mut far, &mut tokio::io::sink()).await
        });
        tokio::time::sleep(PINGS.0 * 10).await;
        assert!(!connection.is_closed(), "an idle connection is not pinged");
        let before = tokio::time::Instant::now();
        assert!(!send(&connection, Full::from("x")).await.err().unwrap().is_unsent);
        assert!(before.elapsed() <= PINGS.0 * 2 + PINGS.1);
        assert!(connection.is_closed() && connection.ready().await.is_err());
        silent.abort();
    }

    #[tokio::test]
    async fn a_body_that_waits_ends_with_its_response() {
        let (connection, far) = connect().await;
        serve(far, |(_request, mut respond)| async move {
            let _stream = respond.send_response(Response::new(()), false).unwrap();
            std::future::pending().await
        });
        let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
        let frames = stream::unfold(receiver, |mut receiver| async move {
            let bytes = receiver.recv().await?;
            Some((Ok::<_, Infallible>(Frame::data(bytes)), receiver))
        });
        let response = send(&connection, StreamBody::new(Box::pin(frames))).await.unwrap();
        assert!(!sender.is_closed());
        drop(response);
        sender.closed().await;
    }
}
