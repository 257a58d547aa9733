//! The service proxy: addresses and ports of services, translated to those of their endpoints.
