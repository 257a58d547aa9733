"""The process of a cluster: start, readiness, stop."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import threading
import time
from typing import Optional, Sequence, Union

from .connection import StatusError
from .controls import Controls

BINARY_VARIABLE = "PINTLE"
ADVICE = f"build it (packaging/build), then set the variable {BINARY_VARIABLE} to its path, or add it to PATH"
KEPT_LINES = 2000
STOP_TIMEOUT = 30


class StartError(Exception):
    """A cluster that did not start."""


class Cluster(Controls):
    """A running cluster; see ``pintle up --help``.

    nodes: the number of simulated nodes.
    profile: the file with a SimulationProfile: shapes of nodes, and how pods behave.
    manual_clock: the time of the cluster stands still until ``clock`` moves it.
    seed: names and placements follow from the requests; with manual_clock.
    components: those of ``--components``; None for the default.
    faults: rules of faults that requests meet from the start; ``faults`` of the cluster changes them.
    args: further arguments of ``pintle up``.
    binary: the path of the program; else that of the variable PINTLE, or pintle in PATH.
    start_timeout: how many seconds a start may take.
    """

    def __init__(
        self,
        *,
        nodes: int = 0,
        profile: Union[str, os.PathLike, None] = None,
        manual_clock: bool = False,
        seed: Optional[int] = None,
        components: Optional[Sequence[str]] = None,
        faults: Sequence[dict] = (),
        args: Sequence[str] = (),
        binary: Union[str, os.PathLike, None] = None,
        start_timeout: float = 60,
    ):
        arguments = [find_binary(binary), "up", "--ephemeral", "--secure-port", "0", "--exit-on-stdin-close"]
        arguments += ["--faults", json.dumps({"rules": list(faults)})]
        if nodes:
            arguments += ["--nodes", str(nodes)]
        if profile is not None:
            arguments += ["--simulation-profile", os.fspath(profile)]
        if manual_clock:
            arguments += ["--clock", "manual"]
        if seed is not None:
            arguments += ["--seed", str(seed)]
        if components is not None:
            arguments += ["--components", ",".join(components)]
        self._lines: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        self._greeting = threading.Event()
        self._path: Optional[str] = None
        # the server ends when its standard input is closed, by stop() or by the death of this process
        self._process = subprocess.Popen(
            [*arguments, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._reader = threading.Thread(target=self._read, name="pintle output", daemon=True)
        self._reader.start()
        try:
            self._await_ready(time.monotonic() + start_timeout, nodes, components)
        except Exception as error:
            self._end()
            raise StartError(f"the cluster did not start: {error}; its output:\n{self.log}") from error
        except BaseException:
            self._end()
            raise

    def _read(self) -> None:
        """Keeps the last lines of the server, and finds the one with the kubeconfig."""
        for line in self._process.stdout:
            line = line.decode(errors="replace")
            self._lines.append(line)
            if self._path is None and "export KUBECONFIG=" in line:
                self._path = shlex.split(line)[1].partition("=")[2]
                self._greeting.set()
        # an end without a greeting is noticed, too
        self._greeting.set()

    def _await_ready(self, deadline: float, nodes: int, components: Optional[Sequence[str]]) -> None:
        """Waits for the greeting, the service account without which pods are refused, and the nodes."""
        self._greeting.wait(max(0, deadline - time.monotonic()))
        if self._path is None:
            ended = self._process.poll()
            raise TimeoutError("it was not ready in time") if ended is None else RuntimeError(f"it ended: {ended}")
        self._connect(self._path, pathlib.Path(self._path).read_text())
        if components is None or "controller-manager" in components:
            self._until(deadline, "there is no default service account", self._has_service_account)
        if nodes:
            self._until(deadline, "the nodes are not ready", lambda: self._ready_nodes() >= nodes)

    def _until(self, deadline: float, problem: str, holds) -> None:
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(problem)
            time.sleep(0.005)

    def _has_service_account(self) -> bool:
        try:
            self.request("GET", "/api/v1/namespaces/default/serviceaccounts/default")
        except StatusError as error:
            if error.code != 404:
                raise
            return False
        return True

    def _ready_nodes(self) -> int:
        nodes = self.request("GET", "/api/v1/nodes")["items"]
        conditions = (it for node in nodes for it in node.get("status", {}).get("conditions", []))
        return sum(it["type"] == "Ready" and it["status"] == "True" for it in conditions)

    @property
    def log(self) -> str:
        """The end of what the server has written to its standard output and error."""
        return "".join(self._lines.copy())

    def stop(self) -> None:
        """Stops the cluster and its forks, and waits until it is gone. A second call does nothing."""
        status = self._end()
        if status:
            raise RuntimeError(f"the cluster ended with status {status}; its output:\n{self.log}")

    def _end(self) -> int:
        self._process.stdin.close()
        try:
            status = self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        return status

    @property
    def _has_ended(self) -> bool:
        return self._process.poll() is not None


def find_binary(given: Union[str, os.PathLike, None]) -> str:
    name = os.fspath(given or os.environ.get(BINARY_VARIABLE) or "pintle")
    path = shutil.which(name)
    if path is None:
        raise StartError(f"there is no program {name}: {ADVICE}")
    return path
