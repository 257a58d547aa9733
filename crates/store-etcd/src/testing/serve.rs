//! The fake etcd's gRPC server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::{TcpListener, TcpStream};

use super::data::{Data, HistoryEntry, StoredValue};
use super::state::{Door, Faults, Inner, OVERTAKING};
use crate::messages::{COMPACT, GRANT, RANGE, STATUS, TXN, WATCH};
use crate::wire::{Writer, fields};

/// The gRPC status of a failed call.
struct RpcStatus(u16, &'static str);

const CUT: RpcStatus = RpcStatus(0, "");

pub(super) async fn listen(listener: TcpListener, door: Arc<Door>, inner: Arc<Inner>) {
    while let Ok((stream, _)) = listener.accept().await {
        if door.open.load(Ordering::SeqCst) {
            tokio::spawn(connection(stream, door.clone(), inner.clone()));
        }
    }
}

async fn connection(stream: TcpStream, door: Arc<Door>, inner: Arc<Inner>) {
    let mut cuts = door.cuts.subscribe();
    let serve = async {
        let Ok(mut connection) = h2::server::handshake(stream).await else { return };
        while let Some(Ok((request, respond))) = connection.accept().await {
            tokio::spawn(answer(request, respond, inner.clone(), door.clone()));
        }
    };
    tokio::select! {
        () = serve => (),
        _ = cuts.changed() => (),
    }
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    inner: Arc<Inner>,
    door: Arc<Door>,
) {
    let path = request.uri().path().to_owned();
    let mut incoming = Incoming { body: request.into_body(), read: BytesMut::new() };
    if path == WATCH {
        watch(&mut incoming, respond, &inner).await;
        return;
    }
    let Some(message) = incoming.next().await else { return };
    match call(&path, message, &inner).await {
        Ok(answer) => {
            let Ok(mut stream) = respond.send_response(Response::new(()), false) else { return };
            // the client may be gone
            let _ = stream.send_data(framed(&answer), false);
            let trailers = [("grpc-status".parse(), HeaderValue::from_static("0"))];
            let trailers: HeaderMap =
                trailers.into_iter().filter_map(|(name, value)| Some((name.ok()?, value))).collect();
            let _ = stream.send_trailers(trailers);
        }
        Err(RpcStatus(0, _)) => door.cuts.send_modify(|cuts| *cuts += 1),
        Err(RpcStatus(code, message)) => {
            let refused = Response::builder().header("grpc-status", code).header("grpc-message", message);
            if let Ok(refused) = refused.body(()) {
                let _ = respond.send_response(refused, true);
            }
        }
    }
}

async fn call(path: &str, message: Bytes, inner: &Inner) -> Result<Vec<u8>, RpcStatus> {
    let faults = &inner.faults;
    if Faults::one_of(&faults.unavailable) {
        return Err(RpcStatus(14, "etcdserver: leader changed"));
    }
    if message.len() > faults.largest.load(Ordering::SeqCst) {
        return Err(RpcStatus(3, "etcdserver: request is too large"));
    }
    match path {
        RANGE => {
            faults.ranges_asked.fetch_add(1, Ordering::SeqCst);
            let data = inner.data.lock();
            range(&data, &message)
        }
        TXN => {
            if Faults::one_of(&faults.lose_questions) {
                return Err(CUT);
            }
            let done = txn(inner, &message);
            if Faults::one_of(&faults.lose_answers) {
                return Err(CUT);
            }
            let _ = faults.hold_answers.subscribe().wait_for(|held| !held).await;
            done
        }
        COMPACT => {
            let mut data = inner.data.lock();
            let revision = number(&message, 1);
            if revision <= data.compacted {
                return Err(RpcStatus(11, "etcdserver: mvcc: required revision has been compacted"));
            }
            data.compacted = revision;
            Ok(header(&data))
        }
        GRANT => {
            let mut data = inner.data.lock();
            let seconds = number(&message, 1) as i64;
            let id = data.grant(seconds);
            let mut out = Writer::new(64);
            out.number(3, seconds as u64).number(2, id as u64);
            write_header(&mut out, &data);
            Ok(out.finish())
        }
        STATUS => {
            let data = inner.data.lock();
            let mut out = Writer::new(64);
            out.number(3, 4096 + data.keys.len() as u64).bytes(2, data.version.as_bytes());
            write_header(&mut out, &data);
            Ok(out.finish())
        }
        _ => Err(RpcStatus(12, "unknown method")),
    }
}

fn range(data: &Data, message: &Bytes) -> Result<Vec<u8>, RpcStatus> {
    let (key, end) = (part(message, 1), part(message, 2));
    let (limit, revision) = (number(message, 3) as usize, number(message, 4));
    if revision > data.revision {
        return Err(RpcStatus(11, "etcdserver: mvcc: required revision is a future revision"));
    }
    if revision > 0 && revision < data.compacted {
        return Err(RpcStatus(11, "etcdserver: mvcc: required revision has been compacted"));
    }
    let then = (revision > 0).then(|| data.at(revision));
    let keys = then.as_ref().unwrap_or(&data.keys);
    let found: Vec<_> = keys.iter().filter(|(it, _)| within(it, &key, &end)).collect();
    let taken = if limit == 0 { found.len() } else { limit.min(found.len()) };
    let mut out = Writer::new(256);
    out.number(4, found.len() as u64).flag(3, taken < found.len());
    for (key, stored) in found[..taken].iter().rev() {
        out.message(2, |out| write_pair(out, key, stored, number(message, 8) == 0));
    }
    write_header(&mut out, data);
    Ok(out.finish())
}

fn within(key: &[u8], from: &[u8], end: &[u8]) -> bool {
    match end {
        b"" => key == from,
        b"\0" => key >= from,
        end => (from..end).contains(&key),
    }
}

fn txn(inner: &Inner, message: &Bytes) -> Result<Vec<u8>, RpcStatus> {
    let mut data = inner.data.lock();
    let mut holds = true;
    each(message, 1, |compare| {
        let stored = data.keys.get(&part(&compare, 3));
        let (result, target) = (number(&compare, 1), number(&compare, 2));
        let (actual, expected) = match target {
            0 => (stored.map_or(0, |it| it.version), number(&compare, 4)),
            1 => (stored.map_or(0, |it| it.created), number(&compare, 5)),
            _ => (stored.map_or(0, |it| it.modified), number(&compare, 6)),
        };
        holds &= if result == 1 { actual > expected } else { actual == expected };
    });
    let mut lease_missing = false;
    let mut answers = Vec::new();
    if holds {
        let revision = data.change(|data| {
            each(message, 2, |act| {
                each(&act, 2, |put| {
                    let lease = number(&put, 3) as i64;
                    if lease != 0 && !data.leases.contains_key(&lease) {
                        lease_missing = true;
                        return;
                    }
                    data.put(part(&put, 1), part(&put, 2), lease);
                });
                each(&act, 3, |delete| data.delete(&part(&delete, 1)));
            });
        });
        inner.newest.send_replace(revision);
    } else {
        each(message, 3, |act| {
            each(&act, 1, |asked| answers.extend(range(&data, &asked).ok()));
        });
    }
    if lease_missing {
        return Err(RpcStatus(5, "etcdserver: requested lease not found"));
    }
    let mut out = Writer::new(256);
    for answer in answers.iter().rev() {
        out.message(3, |out| {
            out.bytes(1, answer);
        });
    }
    out.flag(2, holds);
    write_header(&mut out, &data);
    Ok(out.finish())
}

/// Serves a stream with one watch.
async fn watch(incoming: &mut Incoming, mut respond: SendResponse<Bytes>, inner: &Inner) {
    let Some(first) = incoming.next().await else { return };
    let asked = part(&first, 1);
    let (key, end, from) = (part(&asked, 1), part(&asked, 2), number(&asked, 3));
    inner.faults.watches_opened.fetch_add(1, Ordering::SeqCst);
    let Ok(mut stream) = respond.send_response(Response::new(()), false) else { return };
    let created = {
        let data = inner.data.lock();
        let mut out = Writer::new(64);
        out.flag(3, true);
        write_header(&mut out, &data);
        out.finish()
    };
    if stream.send_data(framed(&created), false).is_err() {
        return;
    }
    let (mut next, mut newest) = (from, inner.newest.subscribe());
    let mut held = inner.faults.hold_watches.subscribe();
    loop {
        let is_held = *held.borrow_and_update();
        if !is_held {
            newest.borrow_and_update();
            let (messages, goes_on) = watch_responses(inner, &key, &end, &mut next);
            for message in messages {
                if stream.send_data(framed(&message), false).is_err() {
                    return;
                }
            }
            if !goes_on {
                // the stream stays open without a watch
                while incoming.next().await.is_some() {}
                return;
            }
        }
        tokio::select! {
            message = incoming.next() => {
                if message.is_none() {
                    return;
                }
                inner.faults.progress_asked.fetch_add(1, Ordering::SeqCst);
                let data = inner.data.lock();
                // events in flight delay the progress response, except in versions that let it overtake
                if (is_held || next <= data.revision) && data.version != OVERTAKING {
                    continue;
                }
                let mut out = Writer::new(64);
                out.number(2, -1i64 as u64);
                write_header(&mut out, &data);
                if stream.send_data(framed(&out.finish()), false).is_err() {
                    return;
                }
            }
            _ = newest.changed(), if !is_held => (),
            _ = held.changed() => (),
        }
    }
}

/// The responses for a watch from a revision on, and whether the watch continues.
fn watch_responses(inner: &Inner, key: &[u8], end: &[u8], next: &mut u64) -> (Vec<Vec<u8>>, bool) {
    let data = inner.data.lock();
    if *next <= data.compacted && *next <= data.revision {
        let mut out = Writer::new(64);
        out.number(5, data.compacted).flag(4, true);
        write_header(&mut out, &data);
        return (vec![out.finish()], false);
    }
    let changes: Vec<_> =
        data.history.iter().filter(|it| it.revision >= *next && within(&it.key, key, end)).collect();
    *next = data.revision + 1;
    if changes.is_empty() {
        return (Vec::new(), true);
    }
    let size = if inner.faults.fragments.load(Ordering::SeqCst) { 1 } else { changes.len() };
    let pieces = changes.chunks(size);
    let last = pieces.len() - 1;
    (pieces.enumerate().map(|(at, piece)| events(&data, piece, at < last)).collect(), true)
}

fn events(data: &Data, changes: &[&HistoryEntry], fragment: bool) -> Vec<u8> {
    let mut out = Writer::new(256);
    for entry in changes.iter().rev() {
        out.message(11, |out| match &entry.stored {
            Some(stored) => {
                out.message(2, |out| write_pair(out, &entry.key, stored, true));
            }
            None => {
                out.message(2, |out| {
                    out.number(3, entry.revision).bytes(1, &entry.key);
                });
                out.number(1, 1);
            }
        });
    }
    out.flag(7, fragment);
    write_header(&mut out, data);
    out.finish()
}

fn write_pair(out: &mut Writer, key: &[u8], stored: &StoredValue, value: bool) {
    out.number(6, stored.lease as u64);
    if value {
        out.bytes(5, &stored.value);
    }
    out.number(4, stored.version).number(3, stored.modified).number(2, stored.created).bytes(1, key);
}

fn header(data: &Data) -> Vec<u8> {
    let mut out = Writer::new(32);
    write_header(&mut out, data);
    out.finish()
}

fn write_header(out: &mut Writer, data: &Data) {
    out.message(1, |out| {
        out.number(3, data.revision).number(1, data.cluster);
    });
}

/// A number in a message; 0 if it is absent.
fn number(message: &Bytes, at: i32) -> u64 {
    let mut found = 0;
    let _ = fields(message, |number, field| {
        if number == at {
            found = field.number();
        }
        Ok(())
    });
    found
}

fn part(message: &Bytes, at: i32) -> Bytes {
    let mut found = Bytes::new();
    each(message, at, |part| found = part);
    found
}

fn each(message: &Bytes, at: i32, mut each: impl FnMut(Bytes)) {
    let _ = fields(message, |number, field| {
        if number == at {
            each(field.bytes());
        }
        Ok(())
    });
}

fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(5 + message.len());
    framed.put_u8(0);
    framed.put_u32(message.len() as u32);
    framed.put_slice(message);
    framed.freeze()
}

/// The client's messages.
struct Incoming {
    body: RecvStream,
    read: BytesMut,
}

impl Incoming {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(mut prefix) = self.read.get(..5) {
                prefix.advance(1);
                let length = prefix.get_u32() as usize;
                if self.read.len() >= 5 + length {
                    self.read.advance(5);
                    return Some(self.read.split_to(length).freeze());
                }
            }
            let data = self.body.data().await?.ok()?;
            let _ = self.body.flow_control().release_capacity(data.len());
            self.read.extend_from_slice(&data);
        }
    }
}
