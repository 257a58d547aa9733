//! A service of tests on a bus: one of its own, or a real one.

use super::connection::{BUS, Bus};
use super::message::{Message, MessageKind, Method, Value, encode_reply, encode_signal};
use parking_lot::Mutex;
use rustix::cmsg_space;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How a service answers a call.
pub enum Answer {
    Value(Option<Value>),
    Error(&'static str),
    Descriptor(OwnedFd),
}

type Respond = Arc<dyn Fn(&Message) -> Answer + Send + Sync>;

/// See the module.
#[derive(Clone)]
pub struct FakeService {
    respond: Respond,
    /// The calls in their order.
    calls: Arc<watch::Sender<Vec<String>>>,
    /// Connections that receive signals.
    streams: Arc<Mutex<Vec<UnixStream>>>,
}

impl FakeService {
    pub fn new(respond: impl Fn(&Message) -> Answer + Send + Sync + 'static) -> Self {
        FakeService { respond: Arc::new(respond), calls: Arc::default(), streams: Arc::default() }
    }

    pub fn calls(&self) -> Vec<String> {
        self.calls.borrow().clone()
    }

    /// Waits until a method was called so many times.
    pub async fn called(&self, member: &str, times: usize) {
        let mut calls = self.calls.subscribe();
        let enough = calls.wait_for(|calls| calls.iter().filter(|it| *it == member).count() >= times);
        env::io::timeout(Duration::from_secs(60), enough).await.unwrap().unwrap();
    }

    fn record(&self, call: &str) {
        self.calls.send_modify(|calls| calls.push(call.to_owned()));
    }

    /// Serves a bus of its own, on which it is the only service.
    pub fn listen(&self, socket: &Path) {
        let listener = UnixListener::bind(socket).unwrap();
        let this = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, this) = (stream.unwrap(), this.clone());
                std::thread::spawn(move || this.accept(stream));
            }
        });
    }

    fn accept(&self, stream: UnixStream) {
        let mut bus = Bus::new(stream);
        for answer in ["OK 1234\r\n", "AGREE_UNIX_FD\r\n", ""] {
            let Ok(line) = bus.read_line() else { return };
            self.record(line.trim_matches(['\0', '\r', '\n']));
            bus.send(answer.as_bytes()).unwrap();
        }
        self.serve(bus);
    }

    /// Serves a name on a bus that exists.
    pub fn join(&self, socket: &Path, name: &str) {
        let mut bus = Bus::connect(socket).unwrap();
        let arguments = [Value::Text(name.to_owned()), Value::U32(0)];
        bus.call(Method { member: "RequestName", ..BUS }, &arguments).unwrap();
        bus.wait_long().unwrap();
        self.streams.lock().push(bus.handle().unwrap());
        let this = self.clone();
        std::thread::spawn(move || this.serve(bus));
    }

    fn serve(&self, mut bus: Bus) {
        while let Ok(call) = bus.next_message() {
            if call.kind != MessageKind::Call {
                continue;
            }
            let answer = match &*call.member {
                "Hello" => Answer::Value(Some(Value::Text(":1.1".to_owned()))),
                "AddMatch" => {
                    self.streams.lock().push(bus.handle().unwrap());
                    Answer::Value(None)
                }
                _ => (self.respond)(&call),
            };
            self.record(&call.member);
            let serial = bus.next_serial();
            match answer {
                Answer::Value(value) => bus.send(&encode_reply(serial, &call, None, value)).unwrap(),
                Answer::Error(name) => {
                    let why = Some(Value::Text("why".to_owned()));
                    bus.send(&encode_reply(serial, &call, Some(name), why)).unwrap();
                }
                Answer::Descriptor(descriptor) => {
                    let reply = encode_reply(serial, &call, None, Some(Value::Descriptor(0)));
                    send_descriptor(&bus.handle().unwrap(), &reply, &descriptor);
                }
            }
        }
    }

    /// Sends a signal to all connections that wait for one.
    pub fn signal(&self, method: Method<'_>, value: &Value) {
        for mut stream in self.streams.lock().iter() {
            // a connection that has ended receives nothing
            let _ = stream.write_all(&encode_signal(1 << 20, method, value.clone()));
        }
    }
}

fn send_descriptor(stream: &UnixStream, bytes: &[u8], descriptor: &OwnedFd) {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
    assert_eq!(sent, bytes.len());
}
