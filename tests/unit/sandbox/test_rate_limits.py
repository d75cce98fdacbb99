from __future__ import annotations

import pytest

from payments_integration.sandbox import Clock, Engine, RateLimits
from payments_integration.sandbox.common_rules import RateLimiter

from .support import CARD, Client

HEADERS = {"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}


class Seconds:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("write", "rate"), [(False, 100), (True, 20)])
def test_bursts_of_twice_the_rate_are_allowed(write: bool, rate: int) -> None:
    seconds = Seconds()
    limiter = RateLimiter(RateLimits(), seconds)
    taken = [limiter.take("k", write=write) for _ in range(2 * rate + 1)]
    assert [allowed for allowed, _ in taken] == [True] * (2 * rate) + [False]
    assert taken[0][1] == {
        "RateLimit-Limit": str(2 * rate), "RateLimit-Remaining": str(2 * rate - 1), "RateLimit-Reset": "1",
    }  # fmt: skip
    assert taken[-1][1] == {
        "RateLimit-Limit": str(2 * rate), "RateLimit-Remaining": "0", "RateLimit-Reset": "2", "Retry-After": "1",
    }  # fmt: skip
    seconds.now += 1
    assert sum(limiter.take("k", write=write)[0] for _ in range(2 * rate)) == rate
    seconds.now += 100
    assert sum(limiter.take("k", write=write)[0] for _ in range(3 * rate)) == 2 * rate


def test_each_api_key_has_separate_read_and_write_limits() -> None:
    limiter = RateLimiter(RateLimits(reads=1, writes=1, burst=1), Seconds())
    for key, write in (("a", True), ("a", False), ("b", True), ("b", False)):
        assert limiter.take(key, write=write)[0] is True
        assert limiter.take(key, write=write)[0] is False


def test_a_request_after_retry_after_is_allowed() -> None:
    seconds = Seconds()
    limiter = RateLimiter(RateLimits(writes=0.25, burst=4), seconds)
    limiter.take("k", write=True)
    allowed, headers = limiter.take("k", write=True)
    assert (allowed, headers["Retry-After"]) == (False, "4")
    seconds.now += 4
    assert limiter.take("k", write=True)[0] is True


def test_requests_above_the_limit_are_answered_429(clock: Clock) -> None:
    engine = Engine(clock=clock, rate_limits=RateLimits(reads=0.001, writes=0.001, burst=2_000))
    client = Client(engine)
    assert [client.post("/payments", CARD, key="k").status for _ in range(2)] == [201, 201]
    refused = client.post("/payments", CARD, key="new")
    assert (refused.status, refused.error["type"], refused.error["code"]) == (429, "rate_limit_error", "rate_limited")
    assert int(refused.headers["Retry-After"]) > 0
    assert refused.headers["RateLimit-Remaining"] == "0"
    assert len(engine.payments) == 1
    assert [client.get("/balances").status for _ in range(3)] == [200, 200, 429]
    assert engine.requests[-1]["status"] == 429
    engine.limiter = engine.gateway._limiter = RateLimiter(RateLimits())
    assert client.post("/payments", CARD, key="new").status == 201  # a 429 is not stored under its key


def test_every_response_has_the_rate_limit_headers(engine: Engine, client: Client) -> None:
    replies = [
        client.get("/balances"),
        client.get("/nothing"),
        client.get("/payments/none"),
        client.post("/payments", CARD),
        client.post("/payments", {}),
        client.call("PUT", "/v1/payments"),
        client.delete("/webhook-endpoints/none"),
        Client(engine, None).get("/balances"),
    ]
    for reply in replies:
        assert set(reply.headers) >= HEADERS
        assert all(reply.headers[name].isdigit() for name in HEADERS)


def test_the_header_remaining_counts_down() -> None:
    client = Client(Engine(rate_limits=RateLimits(reads=0.001, burst=10_000)))
    counts = [int(client.get("/balances").headers["RateLimit-Remaining"]) for _ in range(3)]
    assert counts == [9, 8, 7]


def test_without_limits_no_request_is_refused(client: Client) -> None:
    assert {client.get("/balances").status for _ in range(300)} == {200}


def test_limits_do_not_depend_on_a_frozen_clock(clock: Clock) -> None:
    client = Client(Engine(clock=clock, rate_limits=RateLimits(reads=1_000, burst=0.001)))
    assert client.get("/balances").status == 200
    for _ in range(1_000):
        if client.get("/balances").status == 200:
            return
    pytest.fail("the bucket fills in real time")


def test_limits_are_per_api_key(clock: Clock) -> None:
    engine = Engine(clock=clock, rate_limits=RateLimits(reads=0.001, burst=1_000))
    engine.add_key("sk_test_second")
    first, second = Client(engine), Client(engine, "sk_test_second")
    assert [first.get("/balances").status for _ in range(2)] == [200, 429]
    assert second.get("/balances").status == 200
