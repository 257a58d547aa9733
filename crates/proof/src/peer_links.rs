//! The connections between the members of an etcd, through which each can be cut off from the others.
//!
//! ```text
//! m0 ─► the peer address of m1, a proxy ─► the address at which m1 listens
//! ```
//!
//! Members call each other at advertised addresses. A proxy at each of them knows who calls from the header
//! `X-Server-From` of the first request, with which members of etcd begin their streams. What has no such header (a probe)
//! can become another's request later, and is cut wherever a member is cut off; members that reach each other call again.

use std::collections::HashMap;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The largest beginning of a request.
const HEAD: usize = 16 << 10;

/// The members that are cut off, as their own ids and as their places.
#[derive(Debug, Clone, Default)]
struct Cut {
    members: HashMap<usize, u64>,
}

impl Cut {
    /// Whether a connection may be: from the member with an id, if it is known, to the one at a place.
    fn permits(&self, from: Option<u64>, to: usize) -> bool {
        self.members.is_empty()
            || !self.members.contains_key(&to)
                && from.is_some_and(|from| self.members.values().all(|it| *it != from))
    }
}

/// See the module.
pub struct PeerLinks {
    cut: Arc<watch::Sender<Cut>>,
}

impl PeerLinks {
    pub fn new() -> Self {
        PeerLinks { cut: Arc::new(watch::Sender::new(Cut::default())) }
    }

    /// Leads connections from an address to the member at a place, which listens at another address.
    pub fn lead(&self, from: std::net::TcpListener, to: usize, address: String) -> anyhow::Result<()> {
        from.set_nonblocking(true)?;
        let listener = TcpListener::from_std(from)?;
        let cut = Arc::downgrade(&self.cut);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Some(cut) = cut.upgrade() else { return };
                let changes = cut.subscribe();
                let address = address.clone();
                tokio::spawn(async move { drop(connect(stream, to, &address, changes).await) });
            }
        });
        Ok(())
    }

    /// Cuts a member off from the others, given its own id.
    pub fn cut_off(&self, at: usize, id: u64) {
        self.cut.send_modify(|cut| {
            cut.members.insert(at, id);
        });
    }

    /// Lets all members reach each other.
    pub fn restore(&self) {
        self.cut.send_modify(|cut| cut.members.clear());
    }
}

/// Copies both directions until one ends, or until the connection is cut.
async fn connect(
    mut stream: TcpStream,
    to: usize,
    address: &str,
    mut changes: watch::Receiver<Cut>,
) -> anyhow::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|it| it == b"\r\n\r\n") && head.len() < HEAD {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let from = sender(&head);
    if !changes.borrow_and_update().permits(from, to) {
        return Ok(());
    }
    let mut member = TcpStream::connect(address).await?;
    member.write_all(&head).await?;
    tokio::select! {
        copied = copy_bidirectional(&mut stream, &mut member) => drop(copied?),
        // an error is the end of the run
        _ = changes.wait_for(|cut| !cut.permits(from, to)) => {}
    }
    Ok(())
}

/// The id of the member that sent a request.
fn sender(head: &[u8]) -> Option<u64> {
    let head = String::from_utf8_lossy(head);
    let value = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("x-server-from").then(|| value.trim().to_owned())
    });
    u64::from_str_radix(&value?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member that answers every connection with what it has read.
    async fn echo() -> anyhow::Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut reads, mut writes) = stream.split();
                    tokio::io::copy(&mut reads, &mut writes).await
                });
            }
        });
        Ok(address)
    }

    async fn call(address: std::net::SocketAddr, head: &str) -> anyhow::Result<TcpStream> {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(head.as_bytes()).await?;
        Ok(stream)
    }

    /// Whether the other end sends as many bytes as it was sent.
    async fn answers(stream: &mut TcpStream, head: &str) -> bool {
        stream.read_exact(&mut vec![0; head.len()]).await.is_ok()
    }

    #[tokio::test]
    async fn a_member_that_is_cut_off_neither_calls_nor_is_called_and_others_call_on() {
        let links = PeerLinks::new();
        let mut addresses = Vec::new();
        for at in 0..3 {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            addresses.push(listener.local_addr().unwrap());
            links.lead(listener, at, echo().await.unwrap()).unwrap();
        }
        let head = |from: u64| format!("GET /raft/stream HTTP/1.1\r\nX-Server-From: {from:x}\r\n\r\n");
        let probe = "GET /raft/probing HTTP/1.1\r\n\r\n";
        let ids = [0x1a, 0x2b, 0x3c];
        let mut streams = Vec::new();
        for (from, to) in [(0, 1), (1, 0), (1, 2)] {
            let mut stream = call(addresses[to], &head(ids[from])).await.unwrap();
            assert!(answers(&mut stream, &head(ids[from])).await);
            streams.push(stream);
        }
        let mut probing = call(addresses[2], probe).await.unwrap();
        assert!(answers(&mut probing, probe).await);

        links.cut_off(0, ids[0]);
        for cut in [0, 1] {
            assert!(!answers(&mut streams[cut], "x").await, "the connection {cut} is cut");
        }
        assert!(!answers(&mut probing, "x").await, "one whose sender is not known is cut");
        streams[2].write_all(b"more").await.unwrap();
        assert!(answers(&mut streams[2], "more").await, "others go on");
        for (from, to) in [(0, 1), (2, 0)] {
            let mut refused = call(addresses[to], &head(ids[from])).await.unwrap();
            assert!(!answers(&mut refused, "x").await, "from {from} to {to}");
        }
        links.restore();
        let mut again = call(addresses[1], &head(ids[0])).await.unwrap();
        assert!(answers(&mut again, &head(ids[0])).await);
    }
}
