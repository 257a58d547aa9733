//! Tracked connections: deletes those whose destination is translated to an endpoint that is gone.
//!
//! A connection keeps its translation as long as it is tracked, and UDP has no end that would be seen: packets to a
//! service would go to an old endpoint, or to none, for as long as they follow each other.

use std::net::IpAddr;

use super::attribute::{ACK, Attributes, Header};
use super::connection::{Connection, Error};
use super::statement::Family;
use super::value::Protocol;

const SUBSYSTEM: u16 = 1 << 8;
const GET: u16 = SUBSYSTEM | 1;
const DELETE: u16 = SUBSYSTEM | 2;

const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const ID: u16 = 12;
const ZONE: u16 = 18;

/// Selects connections; a field that is absent matches all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionFilter {
    pub protocol: Protocol,
    /// The destination that the client sent to.
    pub destination: Option<IpAddr>,
    pub destination_port: Option<u16>,
    /// The address that answers: that of the endpoint.
    pub reply_source: Option<IpAddr>,
}

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: Protocol,
    pub source_port: u16,
    pub destination_port: u16,
}

/// A connection as the kernel tracks it.
#[derive(Debug, Clone)]
pub struct TrackedConnection {
    pub original: Flow,
    pub reply: Flow,
    /// The attributes that name the connection in requests.
    original_attributes: Vec<u8>,
    id: Vec<u8>,
    zone: Option<Vec<u8>>,
}

impl ConnectionFilter {
    fn matches(&self, connection: &TrackedConnection) -> bool {
        let TrackedConnection { original, reply, .. } = connection;
        original.protocol == self.protocol
            && self.destination.is_none_or(|address| address == original.destination)
            && self.destination_port.is_none_or(|port| port == original.destination_port)
            && self.reply_source.is_none_or(|address| address == reply.source)
    }
}

impl Connection {
    /// The tracked connections of a family.
    pub fn tracked_connections(&mut self, family: Family) -> Result<Vec<TrackedConnection>, Error> {
        self.dump(GET, family.number(), |_| (), read)
    }

    /// Deletes the connections that any of the filters selects, and returns their number.
    pub fn delete_tracked(&mut self, family: Family, filters: &[ConnectionFilter]) -> Result<usize, Error> {
        if filters.is_empty() {
            return Ok(0);
        }
        self.delete_tracked_where(family, |connection| {
            filters.iter().any(|filter| filter.matches(connection))
        })
    }

    /// Deletes the connections that a function selects, and returns their number.
    pub fn delete_tracked_where(
        &mut self,
        family: Family,
        is_selected: impl Fn(&TrackedConnection) -> bool,
    ) -> Result<usize, Error> {
        let stale = self.dump(GET, family.number(), |_| (), |found| read(found).filter(&is_selected))?;
        let mut count = 0;
        for connection in stale {
            let header = Header { kind: DELETE, flags: ACK, family: family.number(), resource: 0 };
            let deleted = self.request(
                header,
                |out| {
                    out.nested(ORIGINAL, |out| out.raw(&connection.original_attributes));
                    out.bytes(ID, &connection.id);
                    if let Some(zone) = &connection.zone {
                        out.bytes(ZONE, zone);
                    }
                },
                |_| (),
            );
            match deleted {
                Ok(_) => count += 1,
                // it ended by itself
                Err(error) if error.is_not_found() => (),
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }
}

fn read(found: Attributes<'_>) -> Option<TrackedConnection> {
    Some(TrackedConnection {
        original: read_flow(found.nested(ORIGINAL)?)?,
        reply: read_flow(found.nested(REPLY)?)?,
        original_attributes: found.bytes(ORIGINAL)?.to_vec(),
        id: found.bytes(ID)?.to_vec(),
        zone: found.bytes(ZONE).map(<[u8]>::to_vec),
    })
}

fn read_flow(tuple: Attributes<'_>) -> Option<Flow> {
    let addresses = tuple.nested(1)?;
    let protocol = tuple.nested(2)?;
    let address = |v4, v6| {
        let v4 = addresses.bytes(v4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        let v6 = addresses.bytes(v6).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
        v4.map(IpAddr::from).or(v6.map(IpAddr::from))
    };
    Some(Flow {
        source: address(1, 3)?,
        destination: address(2, 4)?,
        protocol: Protocol(protocol.u8(1)?),
        // protocols without ports have none
        source_port: protocol.u16(2).unwrap_or_default(),
        destination_port: protocol.u16(3).unwrap_or_default(),
    })
}
