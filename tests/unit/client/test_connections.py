"""Opening connections, with real sockets: what fails before the first byte of a request leaves, and what is reused."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import requests
import responses
from django.conf import settings
from django.test import override_settings

from payments_integration import conf
from payments_integration.client import Client, before_sending, connections
from payments_integration.client.resolver import Resolver
from payments_integration.exceptions import InvalidState, NoAnswer, RateLimited
from payments_integration.sync import get_client
from tests.servers import wait_until
from tests.unit.client.authority import Authority
from tests.unit.client.loopback import (
    Script,
    hangs_up_after,
    http,
    in_turn,
    is_silent_after,
    loopback,
    resets_after,
    sends,
)
from tests.unit.client.proxy import proxy
from tests.unit.client.samples import API_KEY, BODY

pytestmark = pytest.mark.slow

EMPTY = b'{"data": []}'
ANSWER = http(EMPTY)
#: An address that no machine has (RFC 5737).
ELSEWHERE = "203.0.113.7"
REFUSAL = b'{"error": {"type": "invalid_state_error", "code": "c", "message": "m", "request_id": "r"}}'


def options(**values: Any) -> override_settings:
    return override_settings(PAYMENTS_INTEGRATION={**settings.PAYMENTS_INTEGRATION, **values})


NETWORK = {"ALLOW_NETWORK_IN_TESTS": True}


def client_of(url: str, **fields: Any) -> Client:
    return Client(conf.Account("default", url, API_KEY, **fields), sleep=lambda seconds: None)


def read(client: Client) -> Any:
    return client.balances.list()


def write(client: Client, max_wait: float = 0) -> Any:
    return client.payments.create(BODY, idempotency_key="k", max_wait=max_wait)


def error_of(client: Client, call: Any = read) -> NoAnswer:
    """The error, which came in time and says what every error of a connection says."""
    begun = time.monotonic()
    with pytest.raises(NoAnswer) as caught:
        call(client)
    assert time.monotonic() - begun < 15
    assert client.account.base_url in str(caught.value)
    assert API_KEY not in str(caught.value)
    assert caught.value.__context__ is None
    return caught.value


def unsent(client: Client, call: Any = read) -> str:
    """The text of an error before any byte of a request left."""
    error = error_of(client, call)
    assert (error.was_connected, error.was_repeated, error.status_code) == (False, False, None)
    text = str(error)
    assert text.startswith("Nothing was sent: ")
    return text.removeprefix("Nothing was sent: ")


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Names and their addresses, or a function that is called when they are looked up."""
    known: dict[str, Any] = {}
    ask = socket.getaddrinfo

    def look_up(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        found = known.get(host, [host])
        if callable(found):
            found = found()
        return [entry for each in found for entry in ask(each, port, type=socket.SOCK_STREAM)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return known


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses to which a connection was tried. None can be made to another machine."""
    tried: list[str] = []
    connect = socket.socket.connect

    def note(self: socket.socket, address: Any) -> None:
        tried.append(address[0])
        if address[0] not in ("127.0.0.1", "::1"):
            raise OSError(113, "No route to host")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", note)
    return tried


# Tests stay on the machine.


@pytest.mark.case(130)
@pytest.mark.parametrize("call", [read, write], ids=["GET", "POST"])
@pytest.mark.parametrize(
    "addresses", [[ELSEWHERE], ["2001:db8::1"], ["127.0.0.1", ELSEWHERE], ["0.0.0.0"], ["10.0.0.1"]]
)
def test_a_test_connects_to_no_other_machine(
    addresses: list[str], call: Any, hosts: dict[str, Any], peers: list[str]
) -> None:
    """The address decides, not the name."""
    hosts["provider.example"] = addresses
    text = unsent(client_of("https://provider.example"), call)
    assert "https://provider.example is not on this machine" in text
    for named in ("ProviderSandbox", "payments_sandbox", "ALLOW_NETWORK_IN_TESTS"):
        assert named in text
    assert peers == []


@pytest.mark.case(130)
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "::ffff:127.0.0.1"])
def test_a_test_connects_to_this_machine_by_any_name(address: str, hosts: dict[str, Any]) -> None:
    hosts["provider.example"] = [address]
    with loopback(sends(ANSWER)) as server:
        if address == "127.0.0.1":
            assert read(client_of(f"http://provider.example:{server.port}")).data == []
        else:
            assert "not on this machine" not in unsent(client_of(f"http://provider.example:{closed_port()}"))


@pytest.mark.case(130)
def test_a_test_uses_no_proxy(authority: Authority, peers: list[str]) -> None:
    with loopback(sends(ANSWER), authority.context()) as server, proxy() as way:
        text = unsent(client_of(server.url, proxy=f"http://me:hidden@127.0.0.1:{way.port}"))
        assert f"{server.url}, by the proxy http://127.0.0.1:{way.port}, is not on this machine" in text
        assert "ProviderSandbox" in text
    assert peers == []


@pytest.mark.case(130)
def test_an_option_lets_tests_use_the_network(peers: list[str]) -> None:
    with options(**NETWORK):
        assert "cannot be reached" in unsent(client_of(f"https://{ELSEWHERE}"))
    assert peers == [ELSEWHERE]


@pytest.mark.case(130)
def test_a_site_is_not_kept_on_its_machine(peers: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "in_test_environment", lambda: False)
    assert "cannot be reached" in unsent(client_of(f"https://{ELSEWHERE}"))
    assert peers == [ELSEWHERE]


@pytest.mark.case(130)
def test_a_connection_of_another_test_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with loopback(sends(ANSWER)) as server:
        client = client_of(server.url)
        with options(**NETWORK):
            read(client)
            monkeypatch.setattr(connections, "is_loopback", lambda address: False)
            read(client)
        assert "ProviderSandbox" in unsent(client)
        assert len(server.requests) == 2


@pytest.mark.case(130)
def test_mocks_replace_what_is_above() -> None:
    client = client_of("https://provider.example")
    with responses.RequestsMock() as provider:
        provider.get("https://provider.example/v1/balances", json={"data": []})
        assert read(client).data == []
    with responses.RequestsMock() as provider:
        provider.get("https://provider.example/v1/balances", body=requests.ConnectionError("gone"))
        assert error_of(client).was_connected  # a mock's error may stand for any
    with mock.patch("requests.Session.request", side_effect=requests.ReadTimeout), pytest.raises(NoAnswer):
        read(client)


# The deadline covers all, and so must the claim.


@pytest.fixture
def slow_host(hosts: dict[str, Any]) -> Iterator[str]:
    is_over = threading.Event()
    hosts["slow.example"] = lambda: [is_over.wait(60)] and ["127.0.0.1"]
    yield "slow.example"
    is_over.set()


def lookups() -> int:
    return sum(thread.name == "payments_integration-lookup" for thread in threading.enumerate())


@pytest.mark.case(151)
def test_a_slow_lookup_ends_at_the_deadline_and_leaves_one_thread(slow_host: str) -> None:
    client = client_of(f"http://{slow_host}:1")
    with options(REQUEST_DEADLINE=0.2, **NETWORK):
        for _ in range(5):
            assert "the host of http://slow.example:1 was not resolved in time." in unsent(client, write)
    assert lookups() == 1


@pytest.mark.case(151)
def test_a_lookup_is_asked_again_after_it_has_ended(hosts: dict[str, Any]) -> None:
    is_over = threading.Event()
    with loopback(sends(ANSWER)) as server:
        hosts["slow.example"] = lambda: [is_over.wait(60)] and ["127.0.0.1"]
        client = client_of(f"http://slow.example:{server.port}")
        with options(REQUEST_DEADLINE=0.2):
            unsent(client)
        is_over.set()
        assert read(client).data == []


@contextmanager
def black_hole() -> Iterator[int]:
    """A port whose queue is full: connecting to it takes until the timeout."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port: int = listener.getsockname()[1]
        for _ in range(20):
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0.2)
            try:
                waiting.connect(("127.0.0.1", port))
            except TimeoutError:
                break
        else:
            pytest.fail("the queue does not fill")
        yield port


@pytest.mark.case(151)
def test_many_black_holed_addresses_end_at_the_deadline(hosts: dict[str, Any]) -> None:
    hosts["provider.example"] = ["127.0.0.1"] * 50
    with black_hole() as port, options(CONNECT_TIMEOUT=0.4, REQUEST_DEADLINE=2):
        begun = time.monotonic()
        text = unsent(client_of(f"http://provider.example:{port}"), write)
        assert 1.9 < time.monotonic() - begun < 8
    assert f"http://provider.example:{port} did not accept a connection in time." in text


def test_a_failed_lookup_keeps_no_request(hosts: dict[str, Any]) -> None:
    """A lookup is kept until the next one. The traceback of its error would hold the frames of each caller."""

    def fails() -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "not known")

    def frames(error: BaseException) -> set[str]:
        return {frame.name for frame in traceback.extract_tb(error.__traceback__)}

    hosts["provider.example"] = fails
    found = Resolver()
    with pytest.raises(socket.gaierror, match="not known") as raised:
        found.addresses("provider.example", 443, lambda: 9.0)
    [lookup] = found._lookups.values()
    kept = lookup.exception()
    assert kept is not None
    assert "addresses" in frames(raised.value)
    assert "addresses" not in frames(kept)


@pytest.mark.case(151)
def test_an_address_that_is_black_holed_does_not_hide_the_next() -> None:
    with black_hole() as port, loopback(sends(ANSWER)) as server, options(CONNECT_TIMEOUT=0.3):

        def both(*args: Any, **kwargs: Any) -> Any:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", each)) for each in (port, server.port)]

        with mock.patch("socket.getaddrinfo", both):
            assert read(client_of("http://provider.example")).data == []


@pytest.mark.case(151)
@pytest.mark.parametrize("drips", [True, False])
def test_a_slow_handshake_ends_at_the_deadline(drips: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        is_over = threading.Event()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc")  # a record and a handshake of 16 KB
                while not is_over.wait(0.05):
                    if drips:
                        connection.sendall(b"\x03")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with options(REQUEST_DEADLINE=2, CONNECT_TIMEOUT=30):
                begun = time.monotonic()
                url = f"https://127.0.0.1:{listener.getsockname()[1]}"
                assert unsent(client_of(url), write) == f"the TLS handshake with {url} did not end in time."
                assert time.monotonic() - begun < 8
        finally:
            is_over.set()
            thread.join(30)


class Late(Exception):
    """A claim that ends."""


@pytest.mark.case(151)
def test_the_lease_is_checked_when_the_first_byte_would_leave(slow_host: str, hosts: dict[str, Any]) -> None:
    asked: list[float] = []

    def check(seconds: float) -> None:
        asked.append(seconds)
        raise Late

    def slowly() -> list[str]:
        time.sleep(0.3)
        return ["127.0.0.1"]

    hosts["provider.example"] = slowly
    with loopback(sends(ANSWER)) as server, options(REQUEST_DEADLINE=10):
        client = client_of(f"http://provider.example:{server.port}")
        with pytest.raises(Late) as caught, before_sending(check):
            write(client)
        assert server.requests == []
        assert 5 < asked[0] < 9.75  # what is left after the lookup
        assert caught.value.__context__ is None
        # Frames of these libraries hold the key and the body.
        for library in ("requests", "urllib3"):
            assert not [frame for frame in caught.traceback if f"site-packages/{library}/" in str(frame.path)]
        read(client)  # outside of the block


@pytest.mark.case(151)
def test_a_lease_that_lasts_lets_the_request_leave() -> None:
    asked: list[float] = []
    with loopback(in_turn(sends(http(b"{", "429 Slow", "Retry-After: 1")), sends(ANSWER))) as server:
        client = client_of(server.url)
        with before_sending(asked.append), pytest.raises(NoAnswer):
            write(client, max_wait=60)
        assert (len(asked), len(server.requests)) == (2, 2)


# TLS.


@pytest.mark.case(152)
@pytest.mark.parametrize("call", [read, write], ids=["GET", "POST"])
@pytest.mark.parametrize(
    ("certificate", "says"),
    [
        ({"ends": -1, "begins": -2}, "has expired."),
        ({"begins": 1, "ends": 2}, "is not valid yet. Is the clock of this machine right?"),
        ({"host": "other.example"}, "is for another host. Check BASE_URL."),
    ],
)
def test_a_wrong_certificate_is_named(certificate: dict[str, Any], says: str, call: Any, authority: Authority) -> None:
    with loopback(sends(ANSWER), authority.context(**certificate)) as server:
        client = client_of(server.url, ca_bundle=str(authority.bundle))
        assert unsent(client, call) == f"the certificate of {server.url} {says}"
        assert server.requests == []


@pytest.mark.case(149)
@pytest.mark.case(152)
def test_an_unknown_authority_leads_to_the_option(authority: Authority) -> None:
    with loopback(sends(ANSWER), authority.context()) as server:
        assert unsent(client_of(server.url)) == (
            f"the certificate of {server.url} is not signed by a trusted authority. "
            "If your network or its proxy signs it, set CA_BUNDLE."
        )
        assert server.requests == []
        assert read(client_of(server.url, ca_bundle=str(authority.bundle))).data == []


@pytest.mark.case(152)
@pytest.mark.parametrize("script", [sends(ANSWER), hangs_up_after(b""), resets_after(b"")])
def test_a_server_without_tls(script: Script) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(100)
                script(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        assert unsent(client_of(url), write) == f"the TLS handshake with {url} failed."
        thread.join(30)


@pytest.mark.case(149)
def test_authorities_that_are_gone_after_the_start(authority: Authority) -> None:
    with loopback(sends(ANSWER), authority.context()) as server:
        client = client_of(server.url, ca_bundle=str(authority.bundle))
        authority.bundle.unlink()
        assert "CA_BUNDLE is gone" in unsent(client, write)


# What there is no connection to.


@pytest.mark.case(150)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
@pytest.mark.parametrize(
    ("network", "advice"),
    [
        (NETWORK, "Is the sandbox running?"),
        (
            {"ALLOW_NETWORK_IN_TESTS": False},
            "In a test, use ProviderSandbox (payments_integration.testing) or the pytest fixture payments_sandbox.",
        ),
    ],
)
def test_a_refused_connection_asks_for_the_sandbox(host: str, network: dict[str, bool], advice: str) -> None:
    url = f"http://{host}:{closed_port()}"
    if host == "[::1]" and not socket.has_ipv6:
        return
    with options(**network):
        assert unsent(client_of(url), write) in (
            f"{url} refused the connection. {advice}",
            f"{url} cannot be reached (Cannot assign requested address). {advice}",  # no IPv6 here
        )


@pytest.mark.case(149)
@pytest.mark.case(150)
@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ConnectionRefusedError(111, "refused"), "refused the connection."),
        (OSError(101, "unreachable"), "cannot be reached (Network is unreachable)."),
        (TimeoutError("timed out"), "did not accept a connection in time."),
    ],
)
def test_another_machine_that_cannot_be_reached_leads_to_the_proxy(error: OSError, says: str) -> None:
    url = f"https://{ELSEWHERE}"
    with options(**NETWORK), mock.patch("socket.socket.connect", side_effect=error):
        assert unsent(client_of(url)) == f"{url} {says} Check BASE_URL. If a proxy is the only way out, set PROXY."


@pytest.mark.case(149)
@pytest.mark.case(150)
@pytest.mark.parametrize("host", ["x" * 60 + ".invalid", "x" * 70 + ".invalid"])
def test_a_host_without_an_address(host: str) -> None:
    client = client_of(f"https://{host}")
    with options(**NETWORK):
        assert unsent(client) == (
            f"the host of https://{host} cannot be resolved. "
            "Check BASE_URL. If a proxy is the only way out, set PROXY."
        )
    # A test's machine may have no DNS.
    assert "ProviderSandbox" in unsent(client)


@pytest.mark.case(150)
def test_an_error_after_the_first_byte_names_the_address() -> None:
    with loopback(hangs_up_after(b"")) as server:
        error = error_of(client_of(server.url), write)
    assert str(error) == f"POST {server.url}/v1/payments: the connection failed"
    assert error.was_connected


@pytest.mark.case(150)
def test_an_error_repeats_no_query() -> None:
    with loopback(hangs_up_after(b"")) as server, pytest.raises(NoAnswer) as caught:
        list(client_of(server.url).payments.list(merchant_reference="hidden"))
    assert "hidden" not in str(caught.value)


# A proxy.


@pytest.mark.case(149)
def test_the_way_out_is_a_proxy_with_its_own_authority(authority: Authority) -> None:
    password = base64.b64encode(b"me:hid:den").decode()
    with loopback(sends(ANSWER), authority.context()) as server, proxy(password) as way, options(**NETWORK):
        fields = {"proxy": f"http://me:hid%3Aden@127.0.0.1:{way.port}"}
        assert "set CA_BUNDLE" in unsent(client_of(server.url, **fields))
        client = client_of(server.url, ca_bundle=str(authority.bundle), **fields)
        for _ in range(3):
            assert read(client).data == []
        assert len(server.requests) == 3
        assert len(way.requests) == 2  # one CONNECT for each client
        for request in way.requests:
            assert request.startswith(f"CONNECT localhost:{server.port} HTTP/1.".encode())
            assert API_KEY.encode() not in request
        assert b"Proxy-Authorization" not in server.requests[0]


@pytest.mark.case(149)
def test_this_machine_is_reached_without_the_proxy() -> None:
    with loopback(sends(ANSWER)) as server, options(**NETWORK):
        assert read(client_of(server.url, proxy="http://127.0.0.1:1")).data == []


@pytest.mark.case(149)
@pytest.mark.parametrize(
    ("script", "says"),
    [
        (sends(b"HTTP/1.1 407 Who\r\n\r\n"), "wants a user and a password (HTTP 407)"),
        (sends(b"HTTP/1.1 403 hidden\r\n\r\n"), "did not connect to it (HTTP 403)"),
        (sends(b"HTTP/1.1 502 hidden\r\n\r\n"), "did not connect to it (HTTP 502)"),
        (sends(b"SSH-2.0-hidden\r\n"), "ended the connection without a usable answer"),
        (hangs_up_after(b""), "ended the connection without a usable answer"),
        (resets_after(b""), "ended the connection without a usable answer"),
        (is_silent_after(b""), "did not answer in time"),
        (is_silent_after(b"HTTP/1.1 200 OK\r\n"), "did not answer in time"),
    ],
)
def test_a_proxy_that_does_not_connect(script: Script, says: str) -> None:
    patience = 0.5 if says == "did not answer in time" else 10
    with loopback(script) as way, options(**NETWORK, READ_TIMEOUT=patience):
        url = f"https://{ELSEWHERE}"
        text = unsent(client_of(url, proxy=f"http://me:hidden@127.0.0.1:{way.port}"), write)
    assert text == f"on the way to {url}, the proxy http://127.0.0.1:{way.port} {says}. Check PROXY."


@pytest.mark.case(149)
def test_a_proxy_that_is_not_there(slow_host: str) -> None:
    port = closed_port()
    for host, deadline, says in (
        ("127.0.0.1", 10, f"the proxy http://127.0.0.1:{port} refused the connection"),
        ("x.invalid", 10, f"the host of the proxy http://x.invalid:{port} cannot be resolved"),
        (slow_host, 1, f"the host of the proxy http://{slow_host}:{port} was not resolved in time"),
    ):
        with options(**NETWORK, REQUEST_DEADLINE=deadline):
            text = unsent(client_of("https://provider.example", proxy=f"http://me:hidden@{host}:{port}"))
            assert text == f"on the way to https://provider.example, {says}. Check PROXY."


@pytest.mark.case(149)
def test_another_way_out_is_another_client(authority: Authority) -> None:
    account = {"BASE_URL": "https://provider.example", "API_KEY": API_KEY}
    clients = []
    for fields in ({}, {"PROXY": "http://proxy.example:3128"}, {"CA_BUNDLE": authority.bundle}, {}):
        with options(ACCOUNTS={"default": {**account, **fields}}):
            clients.append(get_client())
    assert len(set(map(id, clients))) == 4


# Connections that are used again.

LOST = [hangs_up_after(b""), resets_after(b"")]


def refuses(status: str = "422 No") -> Script:
    return sends(http(REFUSAL, status))


@pytest.mark.case(127)
@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.parametrize("lost", LOST, ids=["closed", "reset"])
@pytest.mark.parametrize("call", [read, write], ids=["GET", "POST"])
def test_a_request_on_a_forgotten_connection_is_sent_again(
    call: Any, lost: Script, secure: bool, authority: Authority
) -> None:
    context = authority.context() if secure else None
    with loopback(in_turn(sends(ANSWER), lost, refuses()), context) as server:
        client = client_of(server.url, ca_bundle=str(authority.bundle))
        assert read(client).was_repeated is False
        with pytest.raises(InvalidState) as caught:
            call(client)
        assert caught.value.was_repeated
        assert server.requests[1] == server.requests[2]
        assert (len(server.requests), server.connections) == (3, 2)
        with pytest.raises(InvalidState) as caught:
            call(client)
        assert not caught.value.was_repeated


@pytest.mark.case(127)
@pytest.mark.parametrize("lost", LOST, ids=["closed", "reset"])
def test_an_answer_says_that_its_request_was_sent_again(lost: Script) -> None:
    with loopback(in_turn(sends(ANSWER), lost, sends(ANSWER), sends(http(b"<html>")))) as server:
        client = client_of(server.url)
        assert [read(client).was_repeated for _ in range(2)] == [False, True]
    with loopback(in_turn(sends(ANSWER), lost, sends(http(b"<html>")))) as server:
        client = client_of(server.url)
        read(client)
        with pytest.raises(NoAnswer) as caught:
            write(client)
        assert (caught.value.was_repeated, caught.value.status_code) == (True, 200)


@pytest.mark.case(127)
@pytest.mark.parametrize(
    "script",
    [is_silent_after(b""), hangs_up_after(b"H"), hangs_up_after(b"HTTP/1.1 100 Continue\r\n\r\n")],
    ids=["timeout", "closed after a byte", "closed after an interim answer"],
)
def test_what_may_have_an_answer_is_not_sent_again(script: Script) -> None:
    with loopback(in_turn(sends(ANSWER), script)) as server:
        client = client_of(server.url)
        read(client)
        with options(READ_TIMEOUT=0.3):
            error = error_of(client, write)
        assert (error.was_connected, error.was_repeated) == (True, False)
        # On a busy machine, the client may have given up before it is read.
        wait_until(lambda: len(server.requests) > 1, 30, "the server to read it")
    assert len(server.requests) == 2


@pytest.mark.case(127)
@pytest.mark.parametrize("lost", LOST, ids=["closed", "reset"])
def test_a_new_connection_that_ends_is_not_replaced(lost: Script) -> None:
    with loopback(lost) as server:
        error = error_of(client_of(server.url), write)
        assert (error.was_connected, error.was_repeated) == (True, False)
        assert len(server.requests) == 1


@pytest.mark.case(127)
@pytest.mark.parametrize("lost", LOST, ids=["closed", "reset"])
def test_a_request_is_sent_again_once(lost: Script) -> None:
    with loopback(in_turn(sends(ANSWER), lost)) as server:
        client = client_of(server.url)
        read(client)
        error = error_of(client, write)
        assert (error.was_connected, error.was_repeated) == (True, True)
        assert len(server.requests) == 3


@pytest.mark.case(127)
def test_the_second_request_uses_no_connection_of_the_pool() -> None:
    """A gateway forgets all idle connections at once."""
    meet = threading.Barrier(2, timeout=30)

    def together(connection: socket.socket) -> None:
        meet.wait()
        connection.sendall(ANSWER)

    with loopback(in_turn(together, together, *LOST[:1], sends(ANSWER))) as server:
        client = client_of(server.url)
        threads = [threading.Thread(target=read, args=(client,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert server.connections == 2
        assert read(client).was_repeated
        assert server.connections == 3


@pytest.mark.case(127)
def test_a_first_request_that_left_is_not_forgotten_when_there_is_no_other_connection() -> None:
    def ends(connection: socket.socket) -> None:
        server.close_listener()
        connection.shutdown(socket.SHUT_RDWR)

    with loopback(in_turn(sends(ANSWER), ends)) as server:
        client = client_of(server.url)
        read(client)
        error = error_of(client, write)
        assert (error.was_connected, error.was_repeated) == (True, True)
        assert "Nothing was sent" not in str(error)
        assert "refused the connection" in str(error)


@pytest.mark.case(127)
@pytest.mark.case(151)
def test_no_second_request_leaves_after_the_lease() -> None:
    asked: list[float] = []

    def check(seconds: float) -> None:
        asked.append(seconds)
        if len(asked) > 1:
            raise Late

    with loopback(in_turn(sends(ANSWER), LOST[0])) as server:
        client = client_of(server.url)
        read(client)
        with before_sending(check):
            error = error_of(client, write)
        assert (error.was_connected, error.was_repeated) == (True, True)
        assert (len(asked), len(server.requests)) == (2, 2)


@pytest.mark.case(127)
def test_a_429_after_a_second_request_is_the_callers() -> None:
    """The first one may have been executed, so the client does not go on as if it had not."""
    with loopback(in_turn(sends(ANSWER), LOST[0], sends(http(b"{", "429 Slow")))) as server:
        client = client_of(server.url)
        read(client)
        with pytest.raises(RateLimited) as caught:
            write(client, max_wait=60)
        assert caught.value.was_repeated
        assert len(server.requests) == 3


@pytest.mark.case(127)
def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connections.MAX_IDLE == 30
    with loopback(sends(ANSWER)) as server:
        client = client_of(server.url)
        for _ in range(2):
            read(client)
        assert server.connections == 1
        monkeypatch.setattr(connections, "MAX_IDLE", -1.0)
        read(client)
        assert server.connections == 2


@pytest.mark.case(127)
def test_keep_alive_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[socket.socket] = []
    open_socket = connections.open_socket
    monkeypatch.setattr(connections, "open_socket", lambda *target: opened.append(open_socket(*target)) or opened[-1])
    with loopback(sends(ANSWER)) as server:
        client = client_of(server.url)
        read(client)
        (only,) = opened
        assert only.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert only.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert only.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= connections.MAX_IDLE
