"""Sessions of connections. What a handler's ``SET TIME ZONE`` would do is in tests/integration/test_border.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from django.core.signals import request_finished
from django.db import OperationalError, close_old_connections, connection as the_connection, transaction
from django.db.transaction import TransactionManagementError
from django.test import Client

from payments_integration import inbox, services
from payments_integration.db.border import end_session, restore_session
from payments_integration.db.transactions import in_transaction
from payments_integration.exceptions import TransactionRefused
from payments_integration.models import Event, Operation
from payments_integration.testing import signed_delivery
from tests import factories
from tests.fake_provider import PAYOUT, Fake


def connection(reported: list[str | None]) -> Any:
    """A connection to PostgreSQL that reports these zones, one after the other."""
    zones = iter(reported)
    usual = {"DateStyle": "ISO, MDY", "client_encoding": "UTF8"}
    status = mock.Mock(side_effect=lambda name: usual[name] if name in usual else next(zones))
    session = SimpleNamespace(info=SimpleNamespace(parameter_status=status))
    return SimpleNamespace(
        vendor="postgresql", connection=session, timezone_name="UTC", cursor=mock.MagicMock(),
        wrap_database_errors=nullcontext(),
    )  # fmt: skip


@pytest.mark.parametrize(("reported", "statements"), [(["UTC"], 0), ([None], 0), (["Asia/Tokyo", "UTC"], 1)])
def test_only_a_zone_that_was_changed_costs_a_statement(
    reported: list[str | None], statements: int, caplog: pytest.LogCaptureFixture
) -> None:
    tried = connection(reported)
    restore_session(tried)
    assert tried.cursor.call_count == len(caplog.messages) == statements


def test_behind_a_pooler_that_reports_no_change_the_zone_is_set_once(caplog: pytest.LogCaptureFixture) -> None:
    tried = connection(["GMT"] * 4)
    for _ in range(3):
        restore_session(tried)
    assert tried.cursor.call_count == 1
    assert caplog.messages == []
    tried.connection = connection(["GMT"] * 2).connection
    restore_session(tried)
    assert tried.cursor.call_count == 2


def test_other_databases_and_closed_connections_are_left_alone() -> None:
    tried = connection([])
    tried.vendor = "sqlite"
    restore_session(tried)
    tried.vendor, tried.connection = "postgresql", None
    restore_session(tried)
    assert not tried.cursor.called


BODY = json.dumps(factories.event(factories.payment())).encode()


def run(sql: str) -> None:
    with the_connection.cursor() as cursor:
        cursor.execute(sql)


def switch_autocommit_off() -> None:
    the_connection.ensure_connection()
    session: Any = the_connection.connection
    if the_connection.vendor == "sqlite":
        session.isolation_level = "DEFERRED"
    elif the_connection.vendor == "postgresql":
        session.autocommit = False
    else:
        run("SET autocommit = 0")


@pytest.fixture
def _fresh() -> Iterator[None]:
    """What a test leaves open ends with its connection."""
    yield
    the_connection.close()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_fresh", "fake")
def test_a_connection_that_was_lost_as_django_made_it_refuses_no_later_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error of a deferred call is logged, not raised: the caller goes on with the same connection."""

    def lose(*_: Any) -> None:
        switch_autocommit_off()
        raise OperationalError("the server has gone away")

    monkeypatch.setattr("payments_integration.outbox.recovery.send", lose)
    with transaction.atomic():
        services.defer(services.create_payout, **PAYOUT)
    assert not in_transaction()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_fresh")
class TestHiddenTransactions:
    """The project's code begins a transaction without Django, and does not end it."""

    @pytest.fixture(autouse=True, params=["BEGIN", "autocommit"])
    def _begun(self, request: pytest.FixtureRequest, db: None) -> None:
        self.hidden_from_us = request.param == "BEGIN" and the_connection.vendor == "mysql"
        if request.param == "BEGIN":
            run("BEGIN")
        else:
            switch_autocommit_off()

    @pytest.mark.promise(1)
    @pytest.mark.usefixtures("woken")
    def test_a_delivery_is_acknowledged_only_if_it_is_committed(self, client: Client) -> None:
        answers = [client.post("/payments/webhook/", **signed_delivery(BODY, "whsec_default")).status_code]
        # Django's test client does not end requests as a server does.
        close_old_connections(signal=request_finished)
        if answers == [503]:
            assert not Event.objects.exists()
            answers.append(client.post("/payments/webhook/", **signed_delivery(BODY, "whsec_default")).status_code)
        assert answers == ([200] if self.hidden_from_us else [503, 200])
        the_connection.close()
        assert Event.objects.count() == 1

    @pytest.mark.promise(1)
    def test_a_body_is_taken_in_only_if_it_is_committed(self) -> None:
        if self.hidden_from_us:
            inbox.receive("default", BODY)
        else:
            with pytest.raises(TransactionManagementError):
                inbox.receive("default", BODY)
        the_connection.close()
        assert Event.objects.count() == self.hidden_from_us

    @pytest.mark.promise(5)
    def test_a_call_is_not_deferred_into_it(self, fake: Fake) -> None:
        if self.hidden_from_us:
            pytest.skip("MariaDB's driver does not tell of BEGIN")
        payment = {"amount": 500, "currency": "CLP", "country": "CL", "method_code": "cl_card"}
        with pytest.raises(TransactionRefused, match=r"transaction\.atomic"):
            services.defer(services.create_payment, **payment)  # type: ignore[arg-type]
        the_connection.close()
        assert not Operation.objects.exists()

    @pytest.mark.promise(5)
    def test_a_call_is_sent_only_if_it_is_committed(self, fake: Fake) -> None:
        payment = {"amount": 500, "currency": "CLP", "country": "CL", "method_code": "cl_card"}
        if self.hidden_from_us:
            services.create_payment(**payment)  # type: ignore[arg-type]
        else:
            with pytest.raises(TransactionRefused, match="BEGIN"):
                services.create_payment(**payment)  # type: ignore[arg-type]
        the_connection.close()
        assert Operation.objects.count() == len(fake.calls) == self.hidden_from_us


@pytest.mark.parametrize("has_pool", [True, False])
def test_a_session_that_ends_is_closed_before_a_pool_gets_it_back(has_pool: bool) -> None:
    calls = mock.Mock()
    wrapper = SimpleNamespace(
        connection=SimpleNamespace(close=calls.end), pool=object() if has_pool else None, close=calls.give_back
    )
    end_session(wrapper)  # type: ignore[arg-type]
    assert calls.mock_calls == [*([mock.call.end()] if has_pool else []), mock.call.give_back()]
