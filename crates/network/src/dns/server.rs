//! The sockets of the server: UDP and TCP at each address.
//!
//! A query about the cluster is answered where it is received; one for other servers in a task of its own, of which the
//! number is bounded. So is that of connections. Invariant: a connection that sends nothing for [`IDLE`] is closed.

use super::handler::{Handler, Reply};
use super::reply::Transport;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// The time for the next query of a connection, and for the client to take an answer.
const IDLE: Duration = Duration::from_secs(10);
/// The most connections at a time.
const MAX_CONNECTIONS: usize = 512;
/// The most queries over UDP that wait for other servers.
const MAX_PENDING: usize = 2048;
/// The largest query: those of clients are below 300 bytes, with options.
const MAX_QUERY: usize = 4096;
/// The room for queries that wait in the kernel.
const RECEIVE_BUFFER: usize = 1 << 20;
/// The pause after an error of a socket, such as too many open files.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// Bound sockets.
pub struct Listeners {
    udp: Vec<Arc<UdpSocket>>,
    tcp: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
}

/// Binds both protocols at each address. Port 0 is chosen by the system, the same for both protocols.
pub async fn bind(addresses: &[SocketAddr]) -> io::Result<Listeners> {
    let mut listeners = Listeners { udp: Vec::new(), tcp: Vec::new(), addresses: Vec::new() };
    for address in addresses {
        let tcp = TcpListener::bind(address).await?;
        let address = tcp.local_addr()?;
        let udp = UdpSocket::bind(address).await?;
        // the default holds a few hundred queries only; a kernel that allows less takes what it allows
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&udp, RECEIVE_BUFFER);
        listeners.addresses.push(address);
        listeners.udp.push(Arc::new(udp));
        listeners.tcp.push(tcp);
    }
    Ok(listeners)
}

impl Listeners {
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Serves for ever.
    pub async fn serve(self, handler: Arc<Handler>) {
        let mut tasks = JoinSet::new();
        let pending = Arc::new(Semaphore::new(MAX_PENDING));
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        for socket in self.udp {
            tasks.spawn(serve_udp(socket, handler.clone(), pending.clone()));
        }
        for listener in self.tcp {
            tasks.spawn(serve_tcp(listener, handler.clone(), connections.clone()));
        }
        // they end with a panic only
        while tasks.join_next().await.is_some() {}
    }
}

async fn serve_udp(socket: Arc<UdpSocket>, handler: Arc<Handler>, pending: Arc<Semaphore>) {
    let mut tasks = JoinSet::new();
    let (mut packet, mut out) = (vec![0; MAX_QUERY], Vec::with_capacity(MAX_QUERY));
    loop {
        let (length, source) = match socket.recv_from(&mut packet).await {
            Ok(received) => received,
            // the error of an earlier answer, to a port that is closed
            Err(why) if why.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(why) => {
                tracing::warn!(%why, "cannot receive DNS queries");
                env::io::sleep(ERROR_PAUSE).await;
                continue;
            }
        };
        while tasks.try_join_next().is_some() {}
        match handler.handle(&packet[..length], source.ip(), Transport::Udp, &mut out) {
            Reply::None => continue,
            Reply::Ready => {}
            Reply::Pending(query) => match pending.clone().try_acquire_owned() {
                Ok(permit) => {
                    let (socket, handler) = (socket.clone(), handler.clone());
                    tasks.spawn(async move {
                        let _permit: OwnedSemaphorePermit = permit;
                        let mut out = Vec::new();
                        handler.finish(*query, &mut out).await;
                        // a client that is gone needs no answer
                        let _ = socket.send_to(&out, source).await;
                    });
                    continue;
                }
                Err(_) => handler.fail(&query, &mut out),
            },
        }
        // if the kernel has no room, the client asks again
        if socket.try_send_to(&out, source).is_err_and(|why| why.kind() == io::ErrorKind::WouldBlock) {
            let _ = socket.send_to(&out, source).await;
        }
    }
}

async fn serve_tcp(listener: TcpListener, handler: Arc<Handler>, connections: Arc<Semaphore>) {
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        // clients beyond the limit wait in the kernel's queue; the semaphore is never closed
        let Ok(permit) = connections.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, source)) => {
                let handler = handler.clone();
                tasks.spawn(async move {
                    let _permit: OwnedSemaphorePermit = permit;
                    // a connection that breaks is the client's loss
                    let _ = serve_connection(stream, source, &handler).await;
                });
            }
            Err(why) => {
                tracing::warn!(%why, "cannot accept DNS connections");
                env::io::sleep(ERROR_PAUSE).await;
            }
        }
    }
}

async fn serve_connection(mut stream: TcpStream, source: SocketAddr, handler: &Handler) -> io::Result<()> {
    let (mut packet, mut out, mut framed) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let read = async {
            let length = usize::from(stream.read_u16().await?);
            packet.resize(length.min(MAX_QUERY), 0);
            stream.read_exact(&mut packet).await?;
            io::Result::Ok(length)
        };
        let Ok(length) = env::io::timeout(IDLE, read).await else { return Ok(()) };
        if length? > MAX_QUERY {
            return Ok(());
        }
        match handler.handle(&packet, source.ip(), Transport::Tcp, &mut out) {
            Reply::None => return Ok(()),
            Reply::Ready => {}
            Reply::Pending(query) => handler.finish(*query, &mut out).await,
        }
        let Ok(length) = u16::try_from(out.len()) else { return Ok(()) };
        framed.clear();
        framed.extend_from_slice(&length.to_be_bytes());
        framed.extend_from_slice(&out);
        match env::io::timeout(IDLE, stream.write_all(&framed)).await {
            Ok(written) => written?,
            Err(_) => return Ok(()),
        }
    }
}
