"""The whole way of a delivery: the view behind its middleware, the inbox, the mirror, dispatch; on any database."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.apps import apps
from django.db import connection, models
from django.test import Client

from payments_integration import inbox, wakeup
from payments_integration.inbox import receiving
from payments_integration.models import Event, EventState, Payment, Payout, StatusChange
from payments_integration.signals import event_received, status_changed
from payments_integration.testing import signed_delivery
from tests import factories
from tests.fuzz import oracles

URL = "/payments/webhook/"
SECRET = "whsec_default"
#: Good events around the bad ones: these must be applied in any company.
BEFORE = [factories.life("pay_good")[0], factories.event(factories.payout(id="pout_good"))]
AFTER = [factories.life("pay_good")[3], factories.life("pay_late")[0]]
_OPEN = (EventState.PENDING, EventState.HELD, EventState.APPLIED, EventState.PARKED)


def deliver(*bodies: bytes) -> None:
    """Deliver bodies of one account, each signed, in the middle of good ones; then apply and dispatch.

    Never a 5xx, never an exception, always a row; nothing is stuck, the good ones are applied, and no row has what
    another database would refuse. All rows of the app are deleted first.
    """
    _wipe()
    client = Client()
    all_bodies = [*_encoded(BEFORE), *bodies, *_encoded(AFTER)]
    with _quiet(), _receivers():
        for body in all_bodies:
            _post(client, body)
        _settle()
        _check()
        stored = _stored()
        for body in all_bodies:
            _post(client, body)
        _settle()
        assert _stored() == stored, "a repeated delivery had an effect"


def _post(client: Client, body: bytes) -> None:
    response = client.post(URL, **signed_delivery(body, SECRET))
    assert response.status_code == 200, f"a signed delivery was answered {response.status_code}"
    digest = receiving.read("default", body, source="webhook").content_hash
    kept = receiving.quarantined("default", body, source="webhook", reason="x").pk
    same = Event.objects.filter(content_hash=digest).exists() or Event.objects.filter(pk=kept).exists()
    assert same, "a delivery was answered 200 and not stored"


def _settle() -> None:
    inbox.process()
    inbox.dispatch()


def _check() -> None:
    stuck = [f"{event.state}: {event.error[-500:]}" for event in Event.objects.filter(state__in=_OPEN)]
    assert not stuck, f"events that are neither done nor in quarantine: {stuck}"
    undispatched = StatusChange.objects.exclude(state=EventState.DONE)
    assert not undispatched.exists(), "a change that was not dispatched"
    refused = Event.objects.filter(error__startswith="the database refuses it").values_list("error", flat=True)
    assert not refused, f"only the database noticed: {list(refused)}"
    assert set(Event.objects.values_list("state", flat=True)) <= {EventState.DONE, EventState.QUARANTINED}
    for event in (*BEFORE, *AFTER):
        found = Event.objects.filter(pk=event["id"], account="default").values_list("state", flat=True).first()
        assert found == EventState.DONE, f"a good event among bad ones is {found}"
    for model, key in ((Payment, "pay_good"), (Payment, "pay_late"), (Payout, "pout_good")):
        assert model._default_manager.filter(pk=key).exists(), f"{key} is not mirrored"
    for row in _rows():
        problems = oracles.problems(row)
        assert not problems, f"a row that a database would refuse: {problems}"


def _models() -> list[type[models.Model]]:
    return list(apps.get_app_config("payments_integration").get_models())


def _rows() -> Iterator[models.Model]:
    for model in _models():
        yield from model._default_manager.all()


def _stored() -> dict[str, list[Any]]:
    """Every row, but for what merely says when we looked."""
    return {
        model.__name__: sorted(
            repr([getattr(row, field.attname) for field in model._meta.concrete_fields])
            for row in model._default_manager.all()
        )
        for model in _models()
        if model.__name__ != "ObjectDispatch"
    }


def _wipe() -> None:
    for model in reversed(_models()):
        rows = model._default_manager.all()
        rows._raw_delete(rows.db)


def _encoded(events: list[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(event).encode() for event in events]


@contextmanager
def _receivers() -> Iterator[None]:
    """Receivers that look at all they are given, as merchants' logs do; wake-ups do nothing."""

    def look(sender: type[Any], event: Event, instance: Any, **kwargs: Any) -> None:
        assert str(event) + repr(instance) + str(instance)

    hook = wakeup.set_hook(None)
    event_received.connect(look)
    status_changed.connect(look)
    try:
        yield
    finally:
        event_received.disconnect(look)
        status_changed.disconnect(look)
        wakeup.set_hook(hook)


@contextmanager
def _quiet() -> Iterator[None]:
    """Every quarantined body is logged as an error: thousands of them would bury what is found."""
    logger = logging.getLogger("payments_integration")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def prepare() -> None:
    """A test database for use outside of pytest: SQLite's in memory."""
    if connection.vendor == "sqlite":
        connection.settings_dict["TEST"]["NAME"] = ":memory:"
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
