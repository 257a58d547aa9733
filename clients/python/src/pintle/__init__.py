"""Clusters for tests: a whole Kubernetes control plane in a process of its own, with simulated nodes and a clock that the
test holds.

    with pintle.Cluster(nodes=3) as cluster:
        kubernetes.config.load_kube_config(cluster.kubeconfig_path)

The package needs nothing but the standard library. A cluster goes at the end of its block, and when the test process dies.
"""

from .clock import Change, Clock, ClockMove
from .cluster import Cluster, StartError
from .connection import StatusError
from .controls import Fork
from .faults import FaultCount, Faults

__all__ = ["Change", "Clock", "ClockMove", "Cluster", "FaultCount", "Faults", "Fork", "StartError", "StatusError"]
