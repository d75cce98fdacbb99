"""The HTTP server: connections, bodies, threads."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
import requests
from django.test import override_settings

from payments_integration.sandbox import Clock, Engine, SandboxServer

from .support import CARD

AUTH = {"Authorization": "Bearer sk_test_sandbox"}


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.headers.update(AUTH)
        session.trust_env = False
        yield session


def post(session: requests.Session, server: SandboxServer, path: str, body: Any, key: str) -> requests.Response:
    return session.post(
        f"{server.url}/v1{path}", json=body, headers={"Idempotency-Key": key}, timeout=30, allow_redirects=False
    )


def raw(server: SandboxServer, data: bytes, *, read_until_close: bool = True) -> bytes:
    host, port = server.url.removeprefix("http://").split(":")
    with closing(socket.create_connection((host, int(port)), timeout=30)) as connection:
        connection.sendall(data)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
            if not read_until_close and b"\r\n\r\n" in answer:
                break
        return answer


def test_the_api_answers_over_http(server: SandboxServer, session: requests.Session, clock: Clock) -> None:
    created = post(session, server, "/payments", CARD, "k")
    assert created.status_code == 201
    assert created.headers["Content-Type"] == "application/json"
    assert parsedate_to_datetime(created.headers["Date"]) == clock.now().replace(microsecond=0)
    payment = created.json()
    assert payment["checkout_url"] == f"{server.url}/checkout/{payment['id']}"
    assert session.get(f"{server.url}/v1/payments/{payment['id']}", timeout=30).json() == payment


def test_a_connection_is_kept_alive(server: SandboxServer) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    request = b"GET /v1/balances HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sk_test_sandbox\r\n\r\n"
    with closing(socket.create_connection((host, int(port)), timeout=30)) as connection:
        for _ in range(3):
            connection.sendall(request)
            head, _, rest = connection.recv(65_536).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            while len(rest) < length:
                rest += connection.recv(65_536)
            assert len(rest) == length


def test_unread_bodies_do_not_break_the_connection(server: SandboxServer, session: requests.Session) -> None:
    for _ in range(2):
        refused = session.post(f"{server.url}/v1/nothing", data=b"x" * 1_000_000, timeout=30)
        assert refused.status_code == 404
        assert session.get(f"{server.url}/v1/balances", data=b"ignored", timeout=30).status_code == 200


def test_a_large_body_is_refused_with_an_error_envelope(server: SandboxServer, session: requests.Session) -> None:
    body = {**CARD, "metadata": {"a": "x" * 300_000}}
    refused = post(session, server, "/payments", body, "k")
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "parameter_invalid")


def test_a_chunked_body_is_accepted(server: SandboxServer, session: requests.Session) -> None:
    pieces = iter([json.dumps(CARD).encode()[:20], json.dumps(CARD).encode()[20:]])
    created = session.post(
        f"{server.url}/v1/payments",
        data=pieces,
        headers={"Idempotency-Key": "k", "Content-Type": "application/json"},
        timeout=30,
    )
    assert created.status_code == 201
    assert session.get(f"{server.url}/v1/balances", timeout=30).status_code == 200


@pytest.mark.parametrize(
    "head",
    [b"Content-Length: abc", b"Content-Length: -5", b"Transfer-Encoding: chunked\r\n\r\nzz", b"Content-Length: 50"],
)
def test_an_invalid_content_length_or_chunk_is_refused(server: SandboxServer, engine: Engine, head: bytes) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with closing(socket.create_connection((host, int(port)), timeout=30)) as connection:
        connection.sendall(b"POST /v1/payments HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\nshort")
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 400")
    assert engine.requests == []


def test_expect_100_continue_is_answered_at_once(server: SandboxServer) -> None:
    body = json.dumps(CARD).encode()
    host, port = server.url.removeprefix("http://").split(":")
    with closing(socket.create_connection((host, int(port)), timeout=30)) as connection:
        connection.sendall(
            b"POST /v1/payments HTTP/1.1\r\nHost: localhost\r\n"
            b"Authorization: Bearer sk_test_sandbox\r\nIdempotency-Key: k\r\n"
            b"Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 201")


def test_http_1_0_is_answered_and_invalid_http_is_refused(server: SandboxServer) -> None:
    assert raw(server, b"GET /v1/balances HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 401")
    assert b"400" in raw(server, b"nonsense\r\n\r\n").split(b"\r\n")[0]


def test_a_response_to_head_has_no_body(server: SandboxServer) -> None:
    answer = raw(server, b"HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert body == b""


def test_many_clients_are_served_at_once(server: SandboxServer, engine: Engine) -> None:
    statuses: list[int] = []

    def work(number: int) -> None:
        with requests.Session() as own:
            own.headers.update(AUTH)
            for index in range(5):
                statuses.append(post(own, server, "/payments", CARD, f"{number}-{index}").status_code)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [201] * 50
    assert len(engine.payments) == 50


def test_stopping_ends_all_threads_and_connections(engine: Engine, session: requests.Session) -> None:
    before = set(threading.enumerate())
    server = SandboxServer(engine)
    server.start()
    url = server.url
    session.get(f"{url}/v1/balances", timeout=30)  # keeps a connection open
    began = time.monotonic()
    server.stop()
    server.stop()
    assert time.monotonic() - began < 20
    assert set(threading.enumerate()) <= before  # threads of other tests may end meanwhile
    assert engine.base_url is None
    with pytest.raises(requests.ConnectionError):
        session.get(f"{url}/v1/balances", timeout=30)
    with pytest.raises(RuntimeError):
        _ = server.url
    with server:  # it can be started again
        assert session.get(f"{server.url}/v1/balances", timeout=30).status_code == 200
        with pytest.raises(RuntimeError):
            server.start()


def test_a_port_in_use_raises_an_error(server: SandboxServer) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    second = SandboxServer(Engine(), port=port)
    with pytest.raises(OSError, match="in use"):
        second.start()
    second.stop()


def test_a_given_base_url_is_kept(clock: Clock) -> None:
    engine = Engine(clock=clock, base_url="https://sandbox.example/")
    with SandboxServer(engine, deliver=False):
        assert engine.page_url("pay_1") == "https://sandbox.example/checkout/pay_1"
    assert engine.base_url == "https://sandbox.example/"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9", "LOCALHOST", "[::1]:8400", "sandbox.example:8400"])
def test_the_sandbox_answers_to_names_of_this_machine(clock: Clock, host: str) -> None:
    with SandboxServer(Engine(clock=clock, base_url="https://sandbox.example:8400"), deliver=False) as server:
        assert requests.get(f"{server.url}/", headers={"Host": host}, timeout=30).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8400", "127.0.0.1.evil.example", "[::1", "192.0.2.1", ""]
)
@pytest.mark.parametrize("path", ["/", "/v1/balances", "/checkout/pay_1", "/_sandbox/books"])
def test_the_sandbox_refuses_the_names_of_other_machines(server: SandboxServer, host: str, path: str) -> None:
    answer = raw(server, f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 421 ")
    assert f"not to {host!r}".encode() in answer
    assert server.engine.requests == []


def test_a_sandbox_that_listens_on_another_address_answers_to_any_name(clock: Clock) -> None:
    with SandboxServer(Engine(clock=clock), host="0.0.0.0", deliver=False) as server:
        assert requests.get(f"{server.url}/", headers={"Host": "sandbox.lan"}, timeout=30).status_code == 200


@override_settings(
    ROOT_URLCONF="no.such.module",
    MIDDLEWARE=["no.such.Middleware"],
    TEMPLATES=[],
    ALLOWED_HOSTS=[],
    DATA_UPLOAD_MAX_MEMORY_SIZE=1,
    DATA_UPLOAD_MAX_NUMBER_FIELDS=0,
    APPEND_SLASH=True,
    FORCE_SCRIPT_NAME="/app",
    USE_THOUSAND_SEPARATOR=True,
    SECURE_SSL_REDIRECT=True,
)
def test_the_sandbox_does_not_depend_on_the_merchants_settings(
    server: SandboxServer, session: requests.Session
) -> None:
    payment = post(session, server, "/payments", CARD, "k").json()
    assert session.get(f"{server.url}/v1/payments?limit=1&status=created", timeout=30).json()["data"] == [payment]
    page = session.get(payment["checkout_url"], timeout=30)
    assert page.status_code == 200
    assert "$10.000" in page.text
    paid = session.post(payment["checkout_url"], data={"action": "pay"}, timeout=30, allow_redirects=False)
    assert paid.status_code == 303
    assert session.get(f"{server.url}/", timeout=30).status_code == 200
