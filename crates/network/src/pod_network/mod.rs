//! Addresses of pods: the CNI plugin of this program, and the routes between nodes.
