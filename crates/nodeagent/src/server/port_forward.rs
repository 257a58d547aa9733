//! Ports of a pod over a client's connection.
//!
//! Over SPDY each connection to a port is a pair of streams, data and error, with the same request id. Over a WebSocket
//! each port has two channels, which begin with the number of the port.

use super::body::{self, Body};
use super::query;
use super::service::Service;
use super::upgrade::{self, Upgrade, UpgradedIo};
use crate::runtime::SharedRuntime;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use names::streams::{COMMAND_V4, COMMAND_V4_BASE64};
use std::collections::HashMap;
use std::io;
use std::time::Duration;
use streams::protocol::{PORT_FORWARD_V1, header, stream_type};
use streams::spdy::{Connection, Role, Stream};
use streams::websocket::{self, codec};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;

/// How long the second stream of a pair may take.
const CREATION_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the data of a port that has ended may take to reach the client.
const LAST_DATA_TIMEOUT: Duration = Duration::from_secs(10);
const PIPE: usize = 32 << 10;
const WEBSOCKET_PROTOCOLS: [&str; 2] = [COMMAND_V4, COMMAND_V4_BASE64];

pub async fn port_forward(service: &Service, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().trim_start_matches("/portForward").trim_matches('/');
    let parts: Vec<&str> = path.split('/').collect();
    let [namespace, name, ..] = parts[..] else { return body::not_found() };
    let Some(pod) = service.deps.pods.pod(namespace, name) else {
        return body::text(StatusCode::NOT_FOUND, "pod does not exist");
    };
    let sandboxes = match service.deps.runtime.sandboxes(Some(&pod.metadata.uid)).await {
        Ok(sandboxes) => sandboxes,
        Err(why) => return body::error(StatusCode::INTERNAL_SERVER_ERROR, &why.to_string()),
    };
    let mut ready = sandboxes.into_iter().filter(|it| it.is_ready);
    let Some(sandbox) = ready.next().map(|it| it.id) else {
        let message = format!("pod not found (\"{name}_{namespace}\")");
        return body::text(StatusCode::INTERNAL_SERVER_ERROR, message);
    };
    let ports = query::pairs(request.uri().query());
    let ports: Vec<&str> =
        ports.iter().filter(|(key, _)| key == "port").flat_map(|(_, it)| it.split(',')).collect();
    let ports: Result<Vec<u16>, _> = ports.into_iter().map(str::parse).collect();
    let deps = &service.deps;
    start(deps.runtime.clone(), request, sandbox, ports.ok(), deps.idle_timeout)
}

/// Switches protocols and forwards ports of a sandbox. Clients of a WebSocket have named the ports before; those of SPDY
/// name them with each stream.
pub fn start(
    runtime: SharedRuntime,
    mut request: Request<Incoming>,
    sandbox: String,
    ports: Option<Vec<u16>>,
    idle_timeout: Duration,
) -> Response<Body> {
    let headers = request.headers();
    let accepted = match upgrade::requested(headers) {
        None => Err(Box::new(body::error(StatusCode::BAD_REQUEST, "Upgrade request required"))),
        Some(Upgrade::Spdy) => upgrade::spdy(headers, &[PORT_FORWARD_V1]).map(|it| (Upgrade::Spdy, it)),
        Some(Upgrade::WebSocket) => match &ports {
            Some(ports) if !ports.is_empty() && ports.len() <= 100 => {
                upgrade::websocket(headers, &WEBSOCKET_PROTOCOLS).map(|it| (Upgrade::WebSocket, it))
            }
            _ => Err(Box::new(body::error(StatusCode::BAD_REQUEST, "query parameter \"port\" is required"))),
        },
    };
    let (kind, (protocol, response)) = match accepted {
        Ok(accepted) => accepted,
        Err(refused) => return *refused,
    };
    let ports = ports.unwrap_or_default();
    upgrade::serve(&mut request, idle_timeout, move |io| async move {
        match kind {
            Upgrade::Spdy => over_spdy(io, runtime, sandbox).await,
            Upgrade::WebSocket => over_websocket(io, protocol, runtime, sandbox, ports).await,
        }
    });
    response
}

/// Connects a client's stream to a port; the text is for the error stream.
async fn forward(
    runtime: &SharedRuntime,
    sandbox: &str,
    port: u16,
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> Result<(), String> {
    let failed = |why: crate::runtime::RuntimeError| match why.message.starts_with("error forwarding port") {
        true => why.message,
        false => format!("error forwarding port {port} to pod {sandbox}, uid : {}", why.message),
    };
    let stream = runtime.port_forward(sandbox, port).await.map_err(failed)?;
    let (mut from_port, mut to_port) = tokio::io::split(stream.data);
    let (mut from_client, mut to_client) = tokio::io::split(client);
    // an end of either side is not an error of the port
    let up = async {
        let _ = tokio::io::copy(&mut from_client, &mut to_port).await;
        let _ = to_port.shutdown().await;
    };
    let down = async {
        let _ = tokio::io::copy(&mut from_port, &mut to_client).await;
        let _ = to_client.shutdown().await;
    };
    tokio::pin!(up, down);
    let mut end = stream.end;
    let (mut has_up, mut has_down) = (true, true);
    let ended = loop {
        tokio::select! {
            ended = &mut end => break ended,
            () = &mut up, if has_up => has_up = false,
            () = &mut down, if has_down => has_down = false,
        }
    };
    // clients that wait for the end of the port keep their own direction open
    if has_down {
        let _ = env::io::timeout(LAST_DATA_TIMEOUT, down).await;
    }
    ended.map_err(failed)
}

/// The streams of a request id, until both are there.
#[derive(Default)]
struct Pair {
    data: Option<Stream>,
    error: Option<Stream>,
}

async fn over_spdy(io: UpgradedIo, runtime: SharedRuntime, sandbox: String) -> io::Result<()> {
    let (connection, mut incoming) = Connection::start(io, Role::Server);
    let mut pairs: HashMap<String, Pair> = HashMap::new();
    let mut forwards = JoinSet::new();
    loop {
        let next = async {
            match pairs.is_empty() {
                true => Ok(incoming.next().await),
                false => env::io::timeout(CREATION_TIMEOUT, incoming.next()).await,
            }
        };
        let stream = tokio::select! {
            stream = next => stream,
            Some(_) = forwards.join_next() => continue,
        };
        let stream = match stream {
            Ok(Some(stream)) => stream,
            Ok(None) => break,
            Err(_) => {
                // the other stream of a pair never came
                pairs.clear();
                continue;
            }
        };
        let get = |name: &str| stream.headers().get(name).unwrap_or("").to_owned();
        let (id, ty, port) = (get(header::REQUEST_ID), get(header::STREAM_TYPE), get(header::PORT));
        // clients without request ids open the streams of a pair one after the other
        let id = if id.is_empty() { (stream.id().saturating_sub(1) / 4).to_string() } else { id };
        let pair = pairs.entry(id.clone()).or_default();
        match ty.as_str() {
            stream_type::ERROR => pair.error = Some(stream),
            stream_type::DATA => pair.data = Some(stream),
            _ => continue,
        }
        let complete = pairs.remove(&id).and_then(|pair| match pair {
            Pair { data: Some(data), error: Some(error) } => Some((data, error)),
            rest => {
                pairs.insert(id, rest);
                None
            }
        });
        if let Some((mut data, mut error)) = complete {
            let (runtime, sandbox) = (runtime.clone(), sandbox.clone());
            forwards.spawn(async move {
                let result = match port.parse::<u16>() {
                    Ok(port) if port > 0 => forward(&runtime, &sandbox, port, &mut data).await,
                    _ => Err(format!("unable to parse {port:?} as a port")),
                };
                if let Err(why) = result {
                    let _ = error.write_all(why.as_bytes()).await;
                }
                let _ = error.shutdown().await;
                let _ = data.shutdown().await;
            });
        }
    }
    drop(forwards);
    connection.close(incoming).await;
    Ok(())
}

async fn over_websocket(
    io: UpgradedIo,
    protocol: &'static str,
    runtime: SharedRuntime,
    sandbox: String,
    ports: Vec<u16>,
) -> io::Result<()> {
    let codec = codec(protocol).ok_or_else(|| io::Error::other("unknown subprotocol"))?;
    let (sender, mut messages) = websocket::start(io, codec);
    let mut forwards = JoinSet::new();
    let mut inputs = Vec::new();
    for (at, port) in ports.into_iter().enumerate() {
        let (data, error) = ((at * 2) as u8, (at * 2 + 1) as u8);
        for channel in [data, error] {
            sender.send(channel, Bytes::copy_from_slice(&port.to_le_bytes())).await?;
        }
        let (mut ours, theirs) = tokio::io::duplex(PIPE);
        let (mut reader, writer) = tokio::io::split(theirs);
        inputs.push(writer);
        let (runtime, sandbox, replies) = (runtime.clone(), sandbox.clone(), sender.clone());
        let errors = sender.clone();
        forwards.spawn(async move {
            let reply = async {
                let mut piece = vec![0; PIPE];
                while let Ok(count) = reader.read(&mut piece).await {
                    if count == 0
                        || replies.send(data, Bytes::copy_from_slice(&piece[..count])).await.is_err()
                    {
                        break;
                    }
                }
            };
            let work = async {
                let result = forward(&runtime, &sandbox, port, &mut ours).await;
                drop(ours);
                result
            };
            if let (Err(why), ()) = tokio::join!(work, reply) {
                let _ = errors.send(error, why).await;
            }
        });
    }
    let receive = async {
        while let Some(message) = messages.recv().await {
            let input = inputs.get_mut(usize::from(message.channel / 2)).filter(|_| message.channel % 2 == 0);
            if let Some(input) = input {
                // data for a port that is closed is dropped
                let _ = input.write_all(&message.data).await;
            }
        }
    };
    tokio::select! {
        () = receive => {}
        () = async { while forwards.join_next().await.is_some() {} } => {}
    }
    sender.close().await;
    Ok(())
}
