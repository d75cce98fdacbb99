"""Register webhook endpoints, rotate secrets and watch their health ("Webhook endpoint", "Webhook endpoints")."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from .clock import Clock, iso
from .protocol import DAY, EVENT_TYPES, MAX_ACTIVE_ENDPOINTS, ApiError, Json
from .resources import UnknownObjectError, new_id
from .validation import Fields

CREATE_FIELDS: Final = ("url", "events")
OLD_SECRET_VALIDITY: Final = timedelta(seconds=DAY)
FAILING_AFTER: Final = timedelta(seconds=3 * DAY)
DISABLED_AFTER: Final = timedelta(seconds=7 * DAY)


@dataclass
class Endpoint:
    """One registered address. ``failing_since`` is the time of the first failure since the last success."""

    id: str
    url: str
    events: list[str]
    created_at: str
    secret: str
    status: str = "active"
    old_secret: str | None = None
    old_secret_until: datetime | None = None
    failing_since: datetime | None = None
    failing: bool = False

    def wire(self, *, with_secret: bool = False) -> Json:
        """Return the endpoint as the API shows it, with the secret only on creation and rotation."""
        item: Json = {
            "id": self.id,
            "object": "webhook_endpoint",
            "url": self.url,
            "events": list(self.events),
            "status": self.status,
            "created_at": self.created_at,
        }
        return {**item, "secret": self.secret} if with_secret else item

    def health(self) -> Json:
        """Return the endpoint's health, which the API does not show."""
        return {
            "id": self.id,
            "failing": self.failing,
            "failing_since": None if self.failing_since is None else iso(self.failing_since),
        }

    def secrets_at(self, now: datetime) -> list[str]:
        """Return the secrets that sign a delivery: the new one, and for 24 hours after a rotation the old one."""
        if self.old_secret is not None and self.old_secret_until is not None and now < self.old_secret_until:
            return [self.secret, self.old_secret]
        return [self.secret]


class Endpoints:
    """The webhook endpoints of one project, and the messages to their owner."""

    def __init__(self, clock: Clock) -> None:
        self.by_id: dict[str, Endpoint] = {}
        self.notifications: list[Json] = []
        self._clock = clock

    # requests of the API

    def create(self, body: Json) -> Json:
        """POST /webhook-endpoints. Required: url. Without events, the endpoint subscribes to all types.

        Raises limit_exceeded if ten endpoints are active.
        """
        fields = Fields(body, CREATE_FIELDS)
        url, events = fields.endpoint_url(), fields.event_types()
        if sum(endpoint.status == "active" for endpoint in self.by_id.values()) >= MAX_ACTIVE_ENDPOINTS:
            raise ApiError("limit_exceeded", f"At most {MAX_ACTIVE_ENDPOINTS} endpoints can be active.")
        return self.add(url, events).wire(with_secret=True)

    def rotate(self, endpoint_id: str) -> Json:
        """POST /webhook-endpoints/{id}/rotate-secret. For 24 hours, deliveries are signed with both secrets."""
        endpoint = self.get_or_404(endpoint_id)
        endpoint.old_secret = endpoint.secret
        endpoint.old_secret_until = self._clock.now() + OLD_SECRET_VALIDITY
        endpoint.secret = new_secret()
        return endpoint.wire(with_secret=True)

    def delete(self, endpoint_id: str) -> Json:
        """DELETE /webhook-endpoints/{id}. Its queued deliveries are never sent."""
        endpoint = self.get_or_404(endpoint_id)
        del self.by_id[endpoint_id]
        return {"id": endpoint.id, "object": "webhook_endpoint", "deleted": True}

    def get_or_404(self, endpoint_id: str) -> Endpoint:
        """Return the endpoint, for the API. Raises resource_not_found."""
        if endpoint_id not in self.by_id:
            raise ApiError("resource_not_found", f"There is no object with the id {endpoint_id!r}.")
        return self.by_id[endpoint_id]

    def subscribers(self, event_type: str) -> list[Endpoint]:
        """Return the active endpoints that take this event type."""
        return [item for item in self.by_id.values() if item.status == "active" and event_type in item.events]

    # controls

    def add(self, url: str, events: list[str] | None = None, secret: str | None = None) -> Endpoint:
        """Register an endpoint without a request, with the given or a new secret.

        Without events, it subscribes to all types. Raises ValueError for events that the API would refuse.
        """
        try:
            types = Fields({"events": events}, CREATE_FIELDS).event_types()
        except ApiError as error:
            raise ValueError(f"events: {error.message} Known: {', '.join(EVENT_TYPES)}.") from None
        endpoint = Endpoint(new_id("whk"), url, types, iso(self._clock.now()), secret or new_secret())
        self.by_id[endpoint.id] = endpoint
        return endpoint

    def enable(self, endpoint_id: str) -> Endpoint:
        """Make a disabled endpoint active again."""
        endpoint = self.find(endpoint_id)
        endpoint.status, endpoint.failing, endpoint.failing_since = "active", False, None
        return endpoint

    def find(self, endpoint_id: str) -> Endpoint:
        """Return the endpoint, for the controls. Raises UnknownObjectError."""
        if endpoint_id not in self.by_id:
            raise UnknownObjectError(f"there is no {endpoint_id!r} in the sandbox")
        return self.by_id[endpoint_id]

    # health

    def record_success(self, endpoint: Endpoint) -> None:
        """End a series of failures after an acknowledged delivery."""
        endpoint.failing, endpoint.failing_since = False, None

    def record_failure(self, endpoint: Endpoint) -> None:
        """Start or continue a series of failures, which disables the endpoint after 7 days."""
        now = self._clock.now()
        endpoint.failing_since = endpoint.failing_since or now
        self.mark_failing()
        if endpoint.status == "active" and now - endpoint.failing_since >= DISABLED_AFTER:
            endpoint.status = "disabled"
            self._notify(endpoint, "disabled")

    def mark_failing(self) -> None:
        """Mark the endpoints that have failed for 3 days without a success."""
        now = self._clock.now()
        for endpoint in self.by_id.values():
            since = endpoint.failing_since
            if since is not None and not endpoint.failing and now - since >= FAILING_AFTER:
                endpoint.failing = True

    def _notify(self, endpoint: Endpoint, what: str) -> None:
        self.notifications.append(
            {"at": iso(self._clock.now()), "endpoint_id": endpoint.id, "url": endpoint.url, "what": what}
        )


def new_secret() -> str:
    """Return a new signing secret."""
    return f"whsec_{secrets.token_hex(24)}"
