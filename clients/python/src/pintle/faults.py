"""Faults that requests to a cluster meet."""

from __future__ import annotations

import dataclasses
from typing import Optional, Sequence

from .connection import Connection

PATH = "/simulation/faults"


@dataclasses.dataclass(frozen=True)
class FaultCount:
    """How many requests a rule has selected, and how many of them met its fault."""

    matched: int
    injected: int


class Faults:
    def __init__(self, connection: Connection):
        self._connection = connection

    def set(self, rules: Sequence[dict], *, seed: Optional[int] = None) -> None:
        """Replaces all faults by rules such as ``{"verbs": ["update"], "status": 409, "rate": 0.3}``; docs/testing.md has
        all fields. Rules with mistakes are refused with all of them, and change nothing. The seed decides which requests
        meet faults with a rate; without one it is drawn."""
        document: dict[str, object] = {"rules": list(rules)}
        if seed is not None:
            document["seed"] = seed
        self._connection.request("PUT", PATH, document)

    def clear(self) -> None:
        """Removes all faults."""
        self._connection.request("DELETE", PATH)

    def counts(self) -> list[FaultCount]:
        """How often each rule has matched and fired, in the order of the rules."""
        status = self._connection.request("GET", PATH).get("status", {})
        return [FaultCount(it["matched"], it["injected"]) for it in status.get("rules", [])]
