//! Brings up the loopback interface of a new network namespace, by one message to the kernel.

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use std::io;

const NEW_LINK: u16 = 16;
/// A request that is answered.
const REQUEST_ACK: u16 = 0x5;
const LOOPBACK_INDEX: i32 = 1;
const UP: u32 = 1;

pub fn bring_up() -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    // the protocol of routes and links is the first
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    send(&socket, &message(), SendFlags::empty())?;
    let mut answer = [0u8; 1024];
    let (count, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    // after the header of the message: the error, negative, or zero
    let code =
        answer.get(16..20).filter(|_| count >= 20).and_then(|it| it.try_into().ok()).map(i32::from_ne_bytes);
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn message() -> Vec<u8> {
    let body = [&[0u8; 4][..], &LOOPBACK_INDEX.to_ne_bytes(), &UP.to_ne_bytes(), &UP.to_ne_bytes()].concat();
    let length = (16 + body.len()) as u32;
    let header = [
        &length.to_ne_bytes()[..],
        &NEW_LINK.to_ne_bytes(),
        &REQUEST_ACK.to_ne_bytes(),
        &1u32.to_ne_bytes(),
        &0u32.to_ne_bytes(),
    ];
    [&header.concat()[..], &body].concat()
}
