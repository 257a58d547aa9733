//! A server and clients of it in one process, over real sockets and real TLS.

mod certificates;
mod deadlines;
mod ending;
mod identity;
mod requests;
mod setup;
mod streams;
