//! Packet filter rules (nf_tables) and tracked connections, over netlink.
