"""What only a real server decides: requests that no client should send, byte by byte."""

from __future__ import annotations

import pytest

from tests.servers import wait_until
from tests.systems.deploy.conftest import PATIENCE, Served, delivery, head, length

CHUNKED = b"Transfer-Encoding: chunked\r\n"


def chunks(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


def test_a_delivery_is_stored(served: Served) -> None:
    """The tests below refuse for their own reason, not because nothing works."""
    signature, body = delivery("evt_plain")
    assert served.send(head(signature, length(body)), body).status == 200
    assert "evt_plain" in served.stored()


@pytest.mark.case(14)
@pytest.mark.promise(7)
@pytest.mark.parametrize("order", ["length first", "chunked first"])
@pytest.mark.parametrize("framing", ["chunked", "whole"])
def test_a_request_with_two_lengths_is_refused(served: Served, order: str, framing: str) -> None:
    """A proxy that believes one header and a server that believes the other see different requests."""
    event = f"evt_two_{order[0]}_{framing}"
    signature, body = delivery(event)
    smuggled_signature, smuggled_body = delivery(f"{event}_smuggled")
    smuggled = head(smuggled_signature, length(smuggled_body)) + smuggled_body
    payload = chunks(body) if framing == "chunked" else body
    both = [length(payload), CHUNKED] if order == "length first" else [CHUNKED, length(payload)]
    answer = served.send(head(signature, *both), payload, smuggled, end=True)
    assert answer.status == 400
    assert answer.raw.count(b"HTTP/1.1 ") == 1, "neither was taken in, nor what was hidden behind it"
    assert not {event, f"{event}_smuggled"} & served.stored()


@pytest.mark.case(14)
@pytest.mark.promise(7)
@pytest.mark.parametrize(
    "lines",
    [
        (b"Content-Length: %d\r\n", b"Content-Length: 5\r\n"),
        (b"Content-Length: %d\r\n", b"Transfer-Encoding: identity, chunked\r\n"),
        (b"Content-Length: %d\r\n", b"Transfer-Encoding : chunked\r\n"),
        (b"Content-Length: %d\r\n", b"Transfer-Encoding: xchunked\r\n"),
    ],
    ids=["two lengths", "a list", "a blank before the colon", "an unknown coding"],
)
def test_smuggled_requests_are_refused(served: Served, lines: tuple[bytes, bytes]) -> None:
    event = f"evt_hidden_{abs(hash(lines[1]))}"
    signature, body = delivery(event)
    answer = served.send(head(signature, lines[0] % len(body), lines[1]), body, end=True)
    assert answer.status in (400, 501)
    assert event not in served.stored()


@pytest.mark.case(9)
def test_a_chunked_body_is_refused_and_the_log_says_why(served: Served) -> None:
    signature, body = delivery("evt_chunked")
    assert served.send(head(signature, CHUNKED), chunks(body)).status == 400
    assert "evt_chunked" not in served.stored()
    hint = "the body was sent in chunks, which WSGI does not pass on: let the proxy buffer requests"
    wait_until(lambda: hint in served.log.read_text(), PATIENCE, "the hint in the log")


@pytest.mark.case(10)
@pytest.mark.promise(7)
@pytest.mark.parametrize("value", [b"abc", b"-1", b"+12", b"1_0", b"0x10", b"1e3", b" ", b"1" * 5000])
def test_a_length_that_is_no_number_is_refused(served: Served, value: bytes) -> None:
    signature, body = delivery("evt_no_length")
    answer = served.send(head(signature, b"Content-Length: %s\r\n" % value), body, end=True)
    assert answer.status in (400, 413, 431)
    assert "evt_no_length" not in served.stored()


@pytest.mark.case(10)
@pytest.mark.promise(7)
def test_a_body_that_ends_too_soon_is_refused(served: Served) -> None:
    signature, body = delivery("evt_short")
    assert served.send(head(signature, length(body)), body[:-1], end=True).status == 400
    assert "evt_short" not in served.stored()


@pytest.mark.case(11)
@pytest.mark.promise(7)
def test_a_body_over_the_limit_is_refused_before_it_is_read(served: Served) -> None:
    """Nothing of the two megabytes was sent when the answer comes."""
    signature, _ = delivery("evt_large")
    assert served.send(head(signature, b"Content-Length: 2000000\r\n")).status == 413


@pytest.mark.case(13)
@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS"])
@pytest.mark.parametrize("path", [b"/payments/webhook/", b"/payments/webhook"])
def test_other_methods_are_refused_and_never_redirected(served: Served, method: bytes, path: bytes) -> None:
    answer = served.send(head(b"Content-Length: 0\r\n", request=method + b" " + path))
    assert answer.status == 405
    assert b"\r\nAllow: POST\r\n" in answer.raw


@pytest.mark.case(13)
def test_a_missing_slash_is_not_redirected(served: Served) -> None:
    signature, body = delivery("evt_slash")
    request = b"POST /payments/webhook"
    assert served.send(head(signature, length(body), request=request), body).status == 200
    assert "evt_slash" in served.stored()
