"""Calls through real connections: what is sent again by itself, and what must not leave."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.test import override_settings
from django.utils import timezone

from payments_integration import services
from payments_integration.client import connections, resolver
from payments_integration.exceptions import PaymentsError
from payments_integration.models import Operation
from payments_integration.outbox import outcomes
from payments_integration.testing import ProviderSandbox
from tests.fake_provider import PAYOUT, make_due, only_operation
from tests.unit.client.authority import Authority
from tests.unit.client.proxy import pass_on

pytestmark = pytest.mark.django_db


def account(**fields: Any) -> override_settings:
    """The account, with these keys changed."""
    setting = settings.PAYMENTS_INTEGRATION
    accounts = {**setting["ACCOUNTS"], "default": {**setting["ACCOUNTS"]["default"], **fields}}
    return override_settings(PAYMENTS_INTEGRATION={**setting, "ACCOUNTS": accounts})


class Front:
    """TLS before the sandbox, with a certificate that can be changed."""

    def __init__(self, target: str, context: ssl.SSLContext) -> None:
        self.context = context
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://localhost:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        where = urlsplit(self._target)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.enter_context(connection)
            connection.settimeout(30)
            ours = stack.enter_context(self.context.wrap_socket(connection, server_side=True))
            behind = stack.enter_context(socket.create_connection((where.hostname, where.port), timeout=30))
            self._open.append(ours)
            back = threading.Thread(target=pass_on, args=(behind, ours))
            back.start()
            pass_on(ours, behind)
            back.join(30)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)


@pytest.fixture
def one_request_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request opens a connection."""
    monkeypatch.setattr(connections, "MAX_IDLE", -1.0)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def front(sandbox: ProviderSandbox, authority: Authority, one_request_each: None) -> Iterator[Front]:
    front = Front(sandbox.url, authority.context())
    with account(BASE_URL=front.url, CA_BUNDLE=authority.bundle):
        try:
            yield front
        finally:
            front.close()


@pytest.mark.case(152)
@pytest.mark.promise(5)
@pytest.mark.parametrize("certificate", [{"begins": -2, "ends": -1}, {"host": "other.example"}])
def test_a_call_during_an_outage_of_tls_is_sent_when_it_is_over(
    certificate: dict[str, Any], sandbox: ProviderSandbox, front: Front, authority: Authority
) -> None:
    sound, front.context = front.context, authority.context(**certificate)
    services.defer(services.create_payout, **PAYOUT)
    for _ in range(3):
        make_due()
        services.resume_operations()
        operation = only_operation()
        assert not operation.may_have_run, "a worker looks up what may have been executed, and a person decides"
    assert not sandbox.project.payouts
    front.context = sound
    make_due()
    assert services.resume_operations() == {"done": 1}
    assert len(sandbox.project.payouts) == 1


@pytest.mark.case(151)
@pytest.mark.promise(5)
def test_no_call_leaves_after_its_claim(
    sandbox: ProviderSandbox, one_request_each: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lookup of the host outlasts the claim, in which another worker may have taken the operation."""
    passed = timedelta(0)
    ask = socket.getaddrinfo

    def now() -> datetime:
        return timezone.now() + passed

    def slowly(host: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal passed
        if host == "localhost" and Operation.objects.exists():
            passed = timedelta(minutes=2)
        return ask("127.0.0.1", *args, **kwargs)

    # A thread of its own does not see the rows of this test.
    monkeypatch.setattr(resolver, "Thread", _AtOnce)
    monkeypatch.setattr(outcomes, "timezone", SimpleNamespace(now=now))
    with account(BASE_URL=sandbox.url.replace("127.0.0.1", "localhost")):
        services.sync_balances()
        with mock.patch("socket.getaddrinfo", slowly), pytest.raises(PaymentsError):
            services.create_payout(**PAYOUT)
        assert passed
        assert not sandbox.project.payouts
        monkeypatch.setattr(outcomes, "timezone", timezone)
        make_due()
        assert services.resume_operations() == {"done": 1}
        assert len(sandbox.project.payouts) == 1


class _AtOnce(threading.Thread):
    def start(self) -> None:
        self.run()
