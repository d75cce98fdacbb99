"""The provider's side of the demo, over the sandbox's HTTP controls: faults, and the true state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import requests

Json = dict[str, Any]
TIMEOUT = 10


class Provider:
    """The sandbox at ``url``. Independent of the app, so that the app's mistakes cannot hide."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = requests.Session()
        self._http.trust_env = False  # no proxy between us and this machine

    def is_up(self) -> bool:
        try:
            return self._http.get(f"{self.url}/_sandbox/clock", timeout=1).ok
        except requests.RequestException:
            return False

    def fault(self, kind: str, **fields: Any) -> None:
        """Have something go wrong with the next requests or deliveries that fit."""
        self._post("faults", {"kind": kind, **fields})

    def run_behind(self, seconds: float) -> None:
        """Set the provider's clock to real time less this. Catching up later is time that passes, and is over then."""
        self._post("clock", {"offset": -seconds})

    def move(self, collection: str, object_id: str, action: str, **fields: Any) -> Json:
        """Something happens to one object: a transfer arrives, a bank says no."""
        return self._post(f"{collection}/{object_id}/{action}", fields)

    def books(self) -> Books:
        answer = self._http.get(f"{self.url}/_sandbox/books", timeout=TIMEOUT)
        answer.raise_for_status()
        return Books.read(answer.json())

    def _post(self, path: str, body: Json) -> Json:
        answer = self._http.post(f"{self.url}/_sandbox/{path}", json=body, timeout=TIMEOUT)
        if not answer.ok:
            raise RuntimeError(f"the sandbox refused {path}: {answer.status_code} {answer.text}")
        found: Json = answer.json()
        return found


@dataclass(frozen=True, slots=True)
class Books:
    """All data of the provider about this project."""

    payments: list[Json] = field(default_factory=list)
    payouts: list[Json] = field(default_factory=list)
    refunds: list[Json] = field(default_factory=list)
    deposit_references: list[Json] = field(default_factory=list)
    balances: list[Json] = field(default_factory=list)
    events: list[Json] = field(default_factory=list)
    #: One entry per attempt: event_id, event_type, attempt, status, acknowledged, fault.
    deliveries: list[Json] = field(default_factory=list)
    pending: list[Json] = field(default_factory=list)
    faults: list[Json] = field(default_factory=list)
    #: One entry per API request.
    requests: list[Json] = field(default_factory=list)
    #: Inconsistencies in the provider's own books.
    audit: list[str] = field(default_factory=list)
    #: The provider's clock.
    now: str = ""

    @classmethod
    def read(cls, data: Json) -> Books:
        (project,) = data["projects"]
        names = ("payments", "payouts", "refunds", "deposit_references", "balances", "events")
        return cls(
            **{name: project[name] for name in names},
            deliveries=data["deliveries"],
            pending=data["pending_deliveries"],
            faults=data["faults"],
            requests=data["requests"],
            audit=data["audit"],
            now=data["now"],
        )

    @property
    def is_quiet(self) -> bool:
        """No delivery is due: all pending ones are scheduled for later."""
        return all(item["due_at"] > self.now for item in self.pending)

    def payment(self, payment_id: str) -> Json:
        return next(item for item in self.payments if item["id"] == payment_id)

    def struck(self, kind: str) -> list[Json]:
        """The delivery attempts that a kind of fault struck."""
        return [attempt for attempt in self.deliveries if attempt["fault"] == kind]

    def payments_of(self, reference: str) -> list[Json]:
        return [item for item in self.payments if item.get("merchant_reference") == reference]
