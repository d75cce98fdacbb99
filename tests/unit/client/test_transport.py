"""Real sockets: deadlines, broken answers, and environment variables that must have no effect."""

from __future__ import annotations

import gzip
import importlib.util
import logging
import os
import threading
import time
import tracemalloc
import zlib
from contextlib import nullcontext
from http import client as http_client
from pathlib import Path
from typing import Any

import pytest
import requests
from django.conf import settings
from django.test import override_settings

from payments_integration import conf
from payments_integration.client import Client, at_most, transport
from payments_integration.client.transport import MAX_ANSWER_BYTES
from payments_integration.exceptions import ApiError, NoAnswer, RateLimited
from tests.unit.client.loopback import (
    Script,
    drips,
    hangs_up_after,
    http,
    is_silent_after,
    loopback,
    resets_after,
    sends,
)
from tests.unit.client.samples import API_KEY, BODY

pytestmark = pytest.mark.slow

EMPTY = b'{"data": []}'
HEADERS = b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def limits(*, silence: float, deadline: float) -> override_settings:
    values = {"CONNECT_TIMEOUT": 30.0, "READ_TIMEOUT": silence, "REQUEST_DEADLINE": deadline}
    return override_settings(PAYMENTS_INTEGRATION={**settings.PAYMENTS_INTEGRATION, **values})


def client_of(url: str) -> Client:
    return Client(conf.Account("default", url, API_KEY), sleep=lambda seconds: None)


def read(client: Client) -> Any:
    return client.balances.list()


def write(client: Client) -> Any:
    return client.payments.create(BODY, idempotency_key="k", max_wait=0)


def remove(client: Client) -> Any:
    return client.webhook_endpoints.delete("whk_1")


@pytest.mark.parametrize("call", [read, write], ids=["GET", "POST"])
@pytest.mark.parametrize(
    ("script", "status"),
    [
        pytest.param(drips(HEADERS + b" " * 90, 0), None, id="status line"),
        pytest.param(drips(b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 20 + b"\r\n", 17), None, id="headers"),
        pytest.param(drips(b"HTTP/1.1 100 Continue\r\n\r\n" * 9, 0), None, id="interim answers"),
        pytest.param(drips(HEADERS + b" " * 90, len(HEADERS)), 200, id="body"),
        pytest.param(drips(CHUNKED + b"1\r\n \r\n" * 20, len(CHUNKED)), 200, id="chunks"),
        pytest.param(drips(http(b" " * 90, "500 Oops"), 50), 500, id="error"),
        pytest.param(drips(http(b" " * 90, "302 Found", "Location: /x"), 60), 302, id="redirect"),
    ],
)
def test_a_slow_drip_is_cut_at_the_deadline(call: Any, script: Script, status: int | None) -> None:
    # On a busy machine the second may be over before the headers are in: then once more.
    for _ in range(5):
        with limits(silence=5, deadline=1), loopback(script) as server:
            started = time.monotonic()
            with pytest.raises(NoAnswer) as caught:
                call(client_of(server.url))
            assert 0.9 < time.monotonic() - started < 8
        assert caught.value.__context__ is None
        if caught.value.status_code == status:
            break
    assert caught.value.status_code == status


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\n", HEADERS, HEADERS + b"x"])
def test_silence_is_cut_at_the_read_timeout(sent: bytes) -> None:
    with limits(silence=0.3, deadline=30), loopback(is_silent_after(sent)) as server:
        started = time.monotonic()
        with pytest.raises(NoAnswer, match="no whole answer in time"):
            read(client_of(server.url))
        assert 0.2 < time.monotonic() - started < 20


def test_a_deadline_below_the_read_timeout_applies() -> None:
    with limits(silence=30, deadline=0.3), loopback(is_silent_after(b"")) as server:
        started = time.monotonic()
        with pytest.raises(NoAnswer):
            read(client_of(server.url))
        assert 0.2 < time.monotonic() - started < 20


@pytest.mark.parametrize("sent", [b"", HEADERS])
def test_at_most_shortens_the_deadline(sent: bytes) -> None:
    with limits(silence=30, deadline=30), loopback(is_silent_after(sent)) as server:
        started = time.monotonic()
        with at_most(0.3), pytest.raises(NoAnswer):
            read(client_of(server.url))
        assert 0.2 < time.monotonic() - started < 20


@pytest.mark.parametrize("seconds", [30.0, None])
def test_at_most_never_adds_time_and_ends_with_its_block(seconds: float | None) -> None:
    with limits(silence=30, deadline=0.3), loopback(is_silent_after(b"")) as server:
        with at_most(0.001 if seconds is None else seconds):
            pass
        started = time.monotonic()
        with pytest.raises(NoAnswer), at_most(seconds) if seconds is not None else nullcontext():
            read(client_of(server.url))
        assert 0.2 < time.monotonic() - started < 20


def test_at_most_zero_seconds_is_not_no_limit() -> None:
    with limits(silence=30, deadline=30), loopback(is_silent_after(b"")) as server:
        started = time.monotonic()
        with at_most(-1.0), pytest.raises(NoAnswer):
            read(client_of(server.url))
        assert time.monotonic() - started < 20


def test_an_answer_slower_than_the_read_timeout_is_read() -> None:
    answer = http(EMPTY)
    with limits(silence=2, deadline=30), loopback(drips(answer, len(answer) - len(EMPTY), 0.2)) as server:
        answered = read(client_of(server.url))
    assert answered.data == []
    assert answered.duration > 2.1


@pytest.mark.parametrize("call", [read, write], ids=["GET", "POST"])
@pytest.mark.parametrize("end", [hangs_up_after, resets_after], ids=["closed", "reset"])
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", None),
        (b"HTTP/1.1 200", 200),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n" + EMPTY, None),
        (b"HTTP/1.1 200 OK\r\nContent-Le", None),
        (http(b'{"data": []', length=12), 200),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b'{"data": [', 200),
        (CHUNKED + b'c\r\n{"data": []}\r\n', 200),
        (CHUNKED + b"zz\r\n", 200),
        (http(b"<html></html>"), 200),
        (http(EMPTY, "200 OK", "Content-Encoding: gzip"), 200),
        (http(gzip.compress(EMPTY)[:-12], "200 OK", "Content-Encoding: gzip"), 200),
        (http(b"{", "503 Oops"), 503),
        (b"SSH-2.0-OpenSSH\r\n", None),
        (b"HTTP/1.1 999999 OK\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 70_000 + b"\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 200 + b"\r\n", None),
    ],
    ids=range(16),
)
def test_a_broken_answer_is_no_answer(
    call: Any, end: Any, sent: bytes, status: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    with loopback(end(sent)) as server:
        with pytest.raises(NoAnswer) as caught:
            call(client_of(server.url))
        assert len(server.requests) == 1
    # A reset may overtake the headers.
    assert caught.value.status_code in ({status, None} if end is resets_after else {status})
    assert API_KEY not in str(vars(caught.value))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("script", [hangs_up_after(http(b"{", length=9)), is_silent_after(HEADERS)])
def test_delete_needs_only_the_status(script: Script) -> None:
    with limits(silence=2, deadline=30), loopback(script) as server:
        assert remove(client_of(server.url)).status_code == 200


def test_429_needs_only_the_headers() -> None:
    answer = http(b"{", "429 Slow", "Retry-After: 9", length=99)
    with loopback(hangs_up_after(answer)) as server, pytest.raises(RateLimited) as caught:
        write(client_of(server.url))
    assert caught.value.retry_after == 9


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_an_answer_that_is_too_large_is_refused(encoding: str) -> None:
    body = b" " * (MAX_ANSWER_BYTES + 1)
    if encoding == "gzip":
        body = gzip.compress(body, 1)
    answer = http(body, "200 OK", f"Content-Encoding: {encoding}")
    with loopback(sends(answer)) as server, pytest.raises(NoAnswer, match="too large"):
        read(client_of(server.url))


def bomb(gigabytes: int) -> bytes:
    """So many gigabytes of spaces, in a few megabytes."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    part = b" " * 2**20
    return b"".join(packer.compress(part) for _ in range(gigabytes * 1024)) + packer.flush()


@pytest.fixture(scope="module")
def two_gigabytes() -> bytes:
    return bomb(2)


@pytest.mark.case(106)
@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("status", ["200 OK", "422 Oops"])
def test_two_gigabytes_that_are_packed_cost_little(two_gigabytes: bytes, times: int, status: str) -> None:
    body = two_gigabytes
    for _ in range(times - 1):
        body = gzip.compress(body)
    answer = http(body, status, f"Content-Encoding: {', '.join(['gzip'] * times)}")
    with loopback(sends(answer)) as server:
        client = client_of(server.url)
        tracemalloc.start()
        try:
            begun = time.monotonic()
            with pytest.raises(NoAnswer, match="too large"):
                read(client)
            assert time.monotonic() - begun < 10
            assert tracemalloc.get_traced_memory()[1] < 4 * MAX_ANSWER_BYTES
        finally:
            tracemalloc.stop()


@pytest.mark.case(106)
@pytest.mark.parametrize("times", [1, 2])
def test_an_answer_that_is_packed_is_read(times: int) -> None:
    body = EMPTY
    for _ in range(times):
        body = gzip.compress(body)
    with loopback(sends(http(body, "200 OK", f"Content-Encoding: {', '.join(['gzip'] * times)}"))) as server:
        assert read(client_of(server.url)).data == []


@pytest.mark.case(106)
@pytest.mark.parametrize("headers", [(), ("Content-Encoding: gzip",)], ids=["identity", "gzip"])
@pytest.mark.parametrize("at_once", [20, 90])
def test_an_answer_that_drips_ends_at_the_deadline(headers: tuple[str, ...], at_once: int) -> None:
    answer = http(gzip.compress(b" " * 10**6) if headers else b" " * 10**6, "200 OK", *headers)
    with limits(silence=1, deadline=1.5), loopback(drips(answer, at_once, 0.05)) as server:
        begun = time.monotonic()
        with pytest.raises(NoAnswer, match="no whole answer in time"):
            read(client_of(server.url))
        assert time.monotonic() - begun < 20


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_a_large_answer_is_read(encoding: str) -> None:
    body = EMPTY + b" " * (MAX_ANSWER_BYTES - len(EMPTY))
    if encoding == "gzip":
        body = gzip.compress(body, 1)
    with loopback(sends(http(body, "200 OK", f"Content-Encoding: {encoding}"))) as server:
        assert read(client_of(server.url)).data == []


def test_the_bytes_of_a_request() -> None:
    with loopback(sends(http(b"{}", "500 Oops"))) as server:
        client = client_of(server.url)
        for call in (
            lambda: client.payments.create(BODY, idempotency_key="k"),
            lambda: client.payments.cancel("pay_1", idempotency_key="k"),
            lambda: client.webhook_endpoints.delete("whk_1"),
        ):
            with pytest.raises(NoAnswer):
                call()
        create, cancel, delete = server.requests
    assert create.startswith(b"POST /v1/payments HTTP/1.1\r\n")
    assert create.endswith(b"\r\n\r\n" + BODY)
    assert cancel.startswith(b"POST /v1/payments/pay_1/cancel HTTP/1.1\r\n")
    assert b"\r\nContent-Length: 0\r\n" in cancel
    assert b"Content-Type" not in cancel
    assert cancel.endswith(b"\r\n\r\n")
    assert delete.startswith(b"DELETE /v1/webhook-endpoints/whk_1 HTTP/1.1\r\n")
    assert b"Idempotency-Key" not in delete
    for request in server.requests:
        assert b"\r\nAuthorization: Bearer " + API_KEY.encode() + b"\r\n" in request
        assert b"Cookie" not in request


@pytest.mark.promise(7)
def test_a_project_that_debugs_its_requests_prints_no_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(http_client.HTTPConnection, "debuglevel", 1)
    with loopback(sends(http(EMPTY))) as server:
        read(client_of(server.url))
    assert capsys.readouterr().out == ""


@pytest.mark.case(67)
def test_a_netrc_does_not_replace_our_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with loopback(sends(http(EMPTY))) as server:
        read(client_of(server.url))
        assert f"Authorization: Bearer {API_KEY}".encode() in server.requests[0]


def test_a_proxy_from_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with loopback(sends(http(EMPTY))) as server:
        read(client_of(server.url))
        assert server.requests[0].startswith(b"GET /v1/balances ")


@pytest.mark.case(55)
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See", "307 Temporary", "308 Permanent"])
def test_a_redirect_is_not_followed(status: str) -> None:
    with loopback(sends(http(EMPTY))) as other:
        with loopback(sends(http(b"", status, f"Location: {other.url}/v1/payments"))) as server:
            with pytest.raises(NoAnswer, match="redirect"):
                write(client_of(server.url))
            assert len(server.requests) == 1
        assert other.requests == []


def test_the_body_of_a_redirect_is_not_read() -> None:
    """requests would read the whole body of a redirect, even with allow_redirects=False."""
    endless = b"HTTP/1.1 302 Found\r\nLocation: http://[\r\n\r\n" + b"x" * (MAX_ANSWER_BYTES + 1)
    with loopback(hangs_up_after(endless)) as server, pytest.raises(NoAnswer, match="redirect") as caught:
        write(client_of(server.url))
    assert caught.value.status_code == 302


def test_cookies_are_not_kept() -> None:
    with loopback(sends(http(EMPTY, "200 OK", "Set-Cookie: a=b; Path=/"))) as server:
        client = client_of(server.url)
        read(client)
        read(client)
        assert b"Cookie" not in server.requests[1]


def test_connections_are_reused() -> None:
    with loopback(sends(http(EMPTY))) as server:
        client = client_of(server.url)
        for _ in range(5):
            read(client)
        assert server.connections == 1
        assert len(server.requests) == 5


def test_a_closed_idle_connection_is_replaced() -> None:
    with loopback(hangs_up_after(http(EMPTY))) as server:
        client = client_of(server.url)
        for _ in range(3):
            read(client)
            server.wait_until_it_has_hung_up()
        assert len(server.requests) == 3


def test_an_unread_answer_is_not_taken_for_the_next_one() -> None:
    """The rest of a cut answer must not be read as the beginning of the next one."""
    with (
        limits(silence=1, deadline=30),
        loopback(is_silent_after(http(b'{"da', length=12))) as server,
    ):
        client = client_of(server.url)
        for _ in range(2):
            with pytest.raises(NoAnswer):
                read(client)
        assert server.connections == 2


def test_threads_share_a_client() -> None:
    answers: list[Any] = []
    with loopback(sends(http(EMPTY))) as server:
        client = client_of(server.url)
        threads = [
            threading.Thread(target=lambda: answers.extend(read(client).data == [] for _ in range(20)))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [True] * 160
        assert server.connections <= 8


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_process_opens_its_own_connection() -> None:
    with loopback(sends(http(EMPTY))) as server:
        client = client_of(server.url)
        read(client)
        child = os.fork()
        if child == 0:
            try:
                read(client)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert server.connections == 2
        read(client)
        assert server.connections == 2


def test_a_session_class_that_answers_from_a_cache_is_left_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """``requests_cache.install_cache()`` does it. A cached GET would show a payment as it was."""

    class CachedSession(requests.Session):
        def send(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("the cache is asked")

    monkeypatch.setattr(requests, "Session", CachedSession)
    spec = importlib.util.find_spec(transport.__name__)
    assert spec is not None
    assert spec.loader is not None
    loaded_later = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded_later)
    session = loaded_later._session(conf.Account("default", "http://127.0.0.1:9", API_KEY))
    assert isinstance(session, requests.sessions.Session)
    assert not isinstance(session, CachedSession)


def test_a_well_formed_5xx_is_an_api_error() -> None:
    body = b'{"error": {"type": "api_error", "code": "internal_error", "message": "m", "request_id": "r"}}'
    with loopback(sends(http(body, "500 Oops"))) as server, pytest.raises(ApiError) as caught:
        write(client_of(server.url))
    assert caught.value.status_code == 500
