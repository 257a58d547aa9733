//! Cluster DNS: answers for services and pods, and forwards the rest.
