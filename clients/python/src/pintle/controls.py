"""What a test does with a cluster, and copies of it."""

from __future__ import annotations

import os
import tempfile
from typing import TypeVar

from .clock import Clock
from .connection import Connection, StatusError
from .faults import Faults

CLUSTERS = "/simulation/clusters"

Self = TypeVar("Self", bound="Controls")


class Controls:
    """What clusters and their forks have in common."""

    #: The path of the administrator's kubeconfig. The file is deleted when the cluster stops.
    kubeconfig_path: str
    #: The administrator's kubeconfig.
    kubeconfig: str

    def _connect(self, path: str, kubeconfig: str) -> None:
        self.kubeconfig_path, self.kubeconfig = path, kubeconfig
        self._connection = Connection(kubeconfig)

    @property
    def url(self) -> str:
        """The address of the API server."""
        return self._connection.url

    @property
    def log(self) -> str:
        """The end of what the server has written to its standard output and error."""
        raise NotImplementedError

    @property
    def clock(self) -> Clock:
        """The time of a cluster with manual_clock."""
        return Clock(self._connection)

    @property
    def faults(self) -> Faults:
        """The faults that requests meet."""
        return Faults(self._connection)

    def request(self, method: str, path: str, body: object = None) -> object:
        """Sends a request as the administrator, with an object as JSON or without one. Returns the object of the
        response. A response with a code of 400 or more raises StatusError."""
        return self._connection.request(method, path, body)

    def fork(self) -> "Fork":
        """Starts a copy of the cluster in the same process: all its objects, keys and certificates, with a port, a clock
        and faults of its own. Prepare a cluster once, and give each test a fork of it. A fork stops with its parent at the
        latest."""
        return Fork(self)

    def stop(self) -> None:
        """Stops the cluster, and waits until it is gone. A second call does nothing."""
        raise NotImplementedError

    @property
    def _has_ended(self) -> bool:
        raise NotImplementedError

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()


class Fork(Controls):
    """A copy of a cluster, made by ``fork``."""

    def __init__(self, parent: Controls):
        answer = parent.request("POST", CLUSTERS)
        self._parent, self._name, self._is_stopped = parent, answer["name"], False
        descriptor, path = tempfile.mkstemp(prefix="pintle-", suffix=".kubeconfig")
        with os.fdopen(descriptor, "w") as file:
            file.write(answer["kubeconfig"])
        self._connect(path, answer["kubeconfig"])

    @property
    def log(self) -> str:
        """The end of what the server of all forks has written to its standard output and error."""
        return self._parent.log

    def stop(self) -> None:
        """Stops the fork and its own forks, and waits until it is gone. A second call does nothing."""
        if self._is_stopped:
            return
        self._is_stopped = True
        os.unlink(self.kubeconfig_path)
        try:
            self._parent.request("DELETE", f"{CLUSTERS}/{self._name}")
        except (OSError, StatusError):
            # it stopped with its parent
            if not self._parent._has_ended:
                raise

    @property
    def _has_ended(self) -> bool:
        return self._is_stopped or self._parent._has_ended
