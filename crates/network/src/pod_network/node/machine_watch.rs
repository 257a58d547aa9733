//! Notices changes of the machine that may take routes to nodes with them, so that they are written anew at once.
//!
//! The kernel says that a link went down, but not which IPv4 routes it dropped with it; so every change of a link counts.
//! Links of pods do not.

use super::super::netlink::NetlinkError;
use super::plan::ROUTE_PROTOCOL;
use env::World;
use futures_util::{FutureExt, StreamExt};
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage};
use rtnetlink::packet_route::route::{RouteMessage, RouteProtocol};
use rtnetlink::{MulticastGroup, new_multicast_connection};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The time for changes that come together.
const SETTLE: Duration = Duration::from_millis(500);

/// Notifies of changes until the future is dropped.
pub async fn run(world: &World, changed: Arc<Notify>) -> Result<(), NetlinkError> {
    let groups = [MulticastGroup::Link, MulticastGroup::Ipv4Route, MulticastGroup::Ipv6Route];
    let opened = new_multicast_connection(&groups);
    let (connection, _handle, mut messages) =
        opened.map_err(|why| NetlinkError::new("watch links and routes", why))?;
    let watch = async {
        while let Some((message, _)) = messages.next().await {
            let NetlinkPayload::InnerMessage(message) = message.payload else { continue };
            if is_relevant(&message) {
                env::sleep(world, SETTLE).await;
                // one look covers what has come meanwhile
                while let Some(Some(_)) = messages.next().now_or_never() {}
                changed.notify_one();
            }
        }
    };
    tokio::select! {
        () = connection => Ok(()),
        () = watch => Ok(()),
    }
}

fn is_relevant(message: &RouteNetlinkMessage) -> bool {
    match message {
        RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link) => !is_of_pod(link),
        RouteNetlinkMessage::DelRoute(route) => is_own(route) || is_of_others(route),
        RouteNetlinkMessage::NewRoute(route) => is_of_others(route),
        _ => false,
    }
}

fn is_of_pod(link: &LinkMessage) -> bool {
    let is_name = |attribute: &LinkAttribute| matches!(attribute, LinkAttribute::IfName(name) if name.starts_with("veth"));
    link.attributes.iter().any(is_name)
}

fn is_own(route: &RouteMessage) -> bool {
    route.header.protocol == RouteProtocol::Other(ROUTE_PROTOCOL)
}

/// Routes that people and other programs make. Those of the kernel come and go with links and addresses.
fn is_of_others(route: &RouteMessage) -> bool {
    !matches!(route.header.protocol, RouteProtocol::Kernel | RouteProtocol::Other(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_pods_are_not_those_of_the_machine() {
        let link = |name: &str| {
            let mut link = LinkMessage::default();
            link.attributes.push(LinkAttribute::IfName(name.to_owned()));
            link
        };
        let route = |protocol| {
            let mut route = RouteMessage::default();
            route.header.protocol = protocol;
            route
        };
        let own = RouteProtocol::Other(ROUTE_PROTOCOL);
        for (message, expected) in [
            (RouteNetlinkMessage::NewLink(link("eth0")), true),
            (RouteNetlinkMessage::DelLink(link("pintle-vxlan")), true),
            (RouteNetlinkMessage::NewLink(link("veth0123456789a")), false),
            (RouteNetlinkMessage::DelRoute(route(own)), true),
            // written by this program itself
            (RouteNetlinkMessage::NewRoute(route(own)), false),
            // a pod's
            (RouteNetlinkMessage::DelRoute(route(RouteProtocol::Other(113))), false),
            (RouteNetlinkMessage::NewRoute(route(RouteProtocol::Kernel)), false),
            (RouteNetlinkMessage::NewRoute(route(RouteProtocol::Dhcp)), true),
            (RouteNetlinkMessage::DelRoute(route(RouteProtocol::Boot)), true),
        ] {
            assert_eq!(is_relevant(&message), expected, "{message:?}");
        }
    }
}
