"""The time of a cluster that was started with a manual clock."""

from __future__ import annotations

import dataclasses
import datetime
import urllib.parse
from typing import Optional, Union

from .connection import Connection, StatusError

PATH = "/simulation/clock"

#: A duration: text such as "1h30m", or a timedelta.
Duration = Union[str, datetime.timedelta]


@dataclasses.dataclass(frozen=True)
class Change:
    """An object that was changed while the clock moved. The type is ADDED, MODIFIED or DELETED."""

    time: datetime.datetime
    type: str
    resource: str
    namespace: str
    name: str


@dataclasses.dataclass(frozen=True)
class ClockMove:
    """What happened while the clock moved."""

    now: datetime.datetime
    changes: list[Change]
    omitted_changes: int


class Clock:
    def __init__(self, connection: Connection):
        self._connection = connection

    def now(self) -> datetime.datetime:
        """The time of the cluster."""
        return _time(self._send("GET", {})["now"])

    def advance(self, by: Duration, *, step: Optional[Duration] = None, pause: Optional[Duration] = None) -> ClockMove:
        """Moves the clock forward. Every timer in between fires at its time. With step and pause it stops after each step
        for so much real time, in which programs outside of the cluster can react."""
        return _move(self._send("POST", {"advance": by, "step": step, "pause": pause}))

    def settle(
        self, limit: Duration = "10m", *, quiet: Duration = "10s", step: Optional[Duration] = None,
        pause: Optional[Duration] = None,
    ) -> ClockMove:
        """Moves the clock forward until nothing has changed for quiet. Raises TimeoutError if objects still change after
        limit."""
        state = self._send("POST", {"settle": limit, "quiet": quiet, "step": step, "pause": pause})
        if not state["settled"]:
            raise TimeoutError(f"the cluster still changes after {limit}")
        return _move(state)

    def _send(self, method: str, parameters: dict[str, Optional[Duration]]) -> dict:
        query = {name: _duration(value) for name, value in parameters.items() if value is not None}
        try:
            return self._connection.request(method, f"{PATH}?{urllib.parse.urlencode(query)}")
        except StatusError as error:
            if error.code == 404:
                raise RuntimeError("the cluster has a real clock: start it with manual_clock=True") from None
            raise


def _duration(value: Duration) -> str:
    if isinstance(value, datetime.timedelta):
        return f"{value / datetime.timedelta(microseconds=1):.0f}us"
    return value


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def _move(state: dict) -> ClockMove:
    changes = [
        Change(_time(it["time"]), it["type"], it["resource"], it.get("namespace", ""), it["name"])
        for it in state["changes"]
    ]
    return ClockMove(_time(state["now"]), changes, state.get("omittedChanges", 0))
