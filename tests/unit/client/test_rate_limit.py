"""Waiting after a 429, and before a request when the provider reports that no request is left."""

from __future__ import annotations

from typing import Any

import pytest
import responses

from payments_integration import conf
from payments_integration.client import Client
from payments_integration.client.requestor import RateLimiter
from payments_integration.exceptions import RateLimited
from tests.unit.client import samples
from tests.unit.client.conftest import Clock
from tests.unit.client.samples import API_KEY, BASE, BODY, CASES, Case

every_case = pytest.mark.parametrize("case", CASES, ids=str)


def left(limit: Any, remaining: Any, reset: Any) -> dict[str, str]:
    headers = {"RateLimit-Limit": limit, "RateLimit-Remaining": remaining, "RateLimit-Reset": reset}
    return {name: str(value) for name, value in headers.items() if value is not None}


def refuse(provider: responses.RequestsMock, case: Case, times: int, seconds: int = 2) -> None:
    for _ in range(times):
        provider.add(case.method, BASE + case.path, status=429, json={}, headers={"Retry-After": str(seconds)})
    provider.add(case.method, BASE + case.path, json=case.reply)


@every_case
def test_after_a_429_the_same_request_is_sent_again(
    case: Case, client: Client, provider: responses.RequestsMock, clock: Clock
) -> None:
    refuse(provider, case, 3)
    assert case.call(client).status_code == 200
    assert clock.slept == [2, 2, 2]
    sent = [call.request for call in provider.calls]
    assert len(sent) == 4
    assert len({(one.method, one.url, one.body, one.headers.get("Idempotency-Key")) for one in sent}) == 1


@pytest.mark.parametrize("code", ["provider_unavailable", "idempotency_in_progress", "idempotency_conflict"])
@every_case
def test_a_429_whose_code_does_not_say_that_nothing_was_done_is_repeated_by_reads_only(
    code: str, case: Case, client: Client, provider: responses.RequestsMock
) -> None:
    kind = "idempotency_error" if code.startswith("idempotency") else "api_error"
    error = {"type": kind, "code": code, "message": "", "request_id": ""}
    provider.add(case.method, BASE + case.path, status=429, json={"error": error})
    if case.method == "GET":
        provider.add(case.method, BASE + case.path, json=case.reply)
        assert case.call(client).status_code == 200
    else:
        with pytest.raises(RateLimited):
            case.call(client)
    assert len(provider.calls) == 1 + (case.method == "GET")


@every_case
def test_waiting_ends_after_max_wait(
    case: Case, client: Client, provider: responses.RequestsMock, clock: Clock
) -> None:
    refuse(provider, case, 9, seconds=3)
    with pytest.raises(RateLimited) as caught:
        case.call(client, max_wait=10.0)
    assert clock.slept == [3, 3, 3]
    assert caught.value.retry_after == 3
    assert len(provider.calls) == 4


def test_waiting_ends_also_while_the_clock_stands(provider: responses.RequestsMock) -> None:
    slept: list[float] = []
    client = Client(
        conf.Account("default", "https://pay.example", API_KEY), sleep=slept.append, monotonic=lambda: 1000.0
    )
    refuse(provider, CASES[0], 9, seconds=3)
    with pytest.raises(RateLimited):
        CASES[0].call(client, max_wait=10.0)
    assert slept == [3, 3, 3]


@every_case
def test_interactive_calls_wait_10_seconds(
    case: Case, client: Client, provider: responses.RequestsMock, clock: Clock
) -> None:
    refuse(provider, case, 20, seconds=1)
    with pytest.raises(RateLimited):
        case.call(client)
    assert clock.slept == [1] * 10


@every_case
def test_without_max_wait_a_429_is_raised_at_once(
    case: Case, client: Client, provider: responses.RequestsMock, clock: Clock
) -> None:
    refuse(provider, case, 1, seconds=0)
    with pytest.raises(RateLimited):
        case.call(client, max_wait=0)
    assert clock.slept == []


def test_only_a_429_is_sent_again(client: Client, provider: responses.RequestsMock, clock: Clock) -> None:
    """Only a 429 means that nothing was done, even if another status has the envelope of a 429."""
    error = {"type": "rate_limit_error", "code": "rate_limited", "message": "m", "request_id": "r"}
    provider.post(f"{BASE}/payments", json={"error": error}, status=403)
    with pytest.raises(RateLimited):
        client.payments.create(BODY, idempotency_key="k")
    assert clock.slept == []
    assert len(provider.calls) == 1


def test_time_spent_on_429s_counts_as_waiting(client: Client, provider: responses.RequestsMock, clock: Clock) -> None:
    """A worker that has a claim on an operation must know when its last request can begin."""
    asked: list[float] = []

    def slow(request: Any) -> tuple[int, dict[str, str], str]:
        asked.append(clock.now)
        clock.now += 6
        return 429, {"Retry-After": "1"}, "{}"

    started = clock.now
    provider.add_callback(responses.POST, f"{BASE}/payments", callback=slow)
    with pytest.raises(RateLimited):
        client.payments.create(BODY, idempotency_key="k", max_wait=10)
    assert [at - started for at in asked] == [0, 7]


def test_background_calls_wait_longer(client: Client, provider: responses.RequestsMock, clock: Clock) -> None:
    refuse(provider, next(case for case in CASES if case.name == "events.list"), 2, seconds=60)
    client.events.newest(background=True)
    assert clock.slept == [60, 60]


def test_the_duration_is_that_of_the_last_attempt(
    client: Client, provider: responses.RequestsMock, clock: Clock
) -> None:
    refuse(provider, next(case for case in CASES if case.name == "balances.list"), 3)
    assert client.balances.list().duration < 1
    assert sum(clock.slept) == 6


def test_a_call_waits_for_the_reset_when_no_request_is_left(
    client: Client, provider: responses.RequestsMock, clock: Clock
) -> None:
    provider.get(f"{BASE}/balances", json={"data": []}, headers=left(100, 0, 7))
    client.balances.list()
    with pytest.raises(RateLimited, match="nothing was sent") as caught:
        client.balances.list(max_wait=6)
    assert caught.value.retry_after == 7
    assert caught.value.status_code == 429
    assert len(provider.calls) == 1
    client.balances.list(max_wait=7)
    assert clock.slept == [7]
    assert len(provider.calls) == 2


def test_rate_limit_and_429_share_one_wait(client: Client, provider: responses.RequestsMock, clock: Clock) -> None:
    provider.get(f"{BASE}/balances", json={"data": []}, headers=left(100, 0, 6))
    provider.get(f"{BASE}/balances", status=429, headers={"Retry-After": "5"})
    client.balances.list()
    with pytest.raises(RateLimited):
        client.balances.list(max_wait=10)
    assert clock.slept == [6]


def test_reads_and_writes_have_separate_limits(client: Client, provider: responses.RequestsMock, clock: Clock) -> None:
    provider.get(f"{BASE}/balances", json={"data": []}, headers=left(100, 0, 7))
    provider.post(f"{BASE}/payments", json=samples.PAYMENT, headers=left(20, 0, 3))
    client.balances.list()
    client.payments.create(BODY, idempotency_key="k")
    assert clock.slept == []
    client.payments.create(BODY, idempotency_key="k")
    assert clock.slept == [3]


def test_the_limit_is_free_again_after_the_reset(
    client: Client, provider: responses.RequestsMock, clock: Clock
) -> None:
    provider.get(f"{BASE}/balances", json={"data": []}, headers=left(100, 0, 7))
    client.balances.list()
    clock.now += 7
    client.balances.list(max_wait=0)
    assert clock.slept == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        left(100, 0, None),
        left(100, None, 7),
        left(100, "none", 7),
        left(100, 0, "soon"),
        left(100, 0, -7),
        left(100, -1, 7),
        left(100, 0, "7.5"),
        left(100, "9" * 5000, 7),
        left(100, 0, "٣"),
        left(100, 0, 0),
        left("x", 1, 7),
    ],
    ids=range(12),
)
def test_malformed_rate_limit_headers_change_nothing(
    headers: dict[str, str], client: Client, provider: responses.RequestsMock, clock: Clock
) -> None:
    provider.get(f"{BASE}/balances", json={"data": []}, headers=headers)
    for _ in range(2):
        client.balances.list(max_wait=0)
    assert clock.slept == []


def test_a_reset_far_in_the_future_blocks_for_a_minute_only(
    client: Client, provider: responses.RequestsMock, clock: Clock
) -> None:
    provider.get(f"{BASE}/balances", json={"data": []}, headers=left(100, 0, 999_999))
    client.balances.list()
    client.balances.list(max_wait=60)
    assert clock.slept == [60]


@pytest.mark.parametrize(("remaining", "slept"), [(31, []), (30, [7]), (1, [7]), (0, [7])])
def test_background_calls_leave_a_reserve(
    remaining: int, slept: list[float], client: Client, provider: responses.RequestsMock, clock: Clock
) -> None:
    provider.get(f"{BASE}/events", json=samples.page(), headers=left(100, remaining, 7))
    client.events.newest(background=True)
    client.events.newest(background=True)
    assert clock.slept == slept


@pytest.mark.parametrize("call", ["list", "pages", "get"])
def test_every_background_read_leaves_the_reserve(
    call: str, client: Client, provider: responses.RequestsMock, clock: Clock
) -> None:
    provider.get(f"{BASE}/payments", json=samples.page(samples.PAYMENT), headers=left(100, 20, 7))
    provider.get(f"{BASE}/payments/pay_1", json=samples.PAYMENT, headers=left(100, 20, 7))
    for background, slept in ((False, []), (False, []), (True, [7.0])):
        if call == "get":
            client.payments.get("pay_1", background=background)
        else:
            list(getattr(client.payments, call)(background=background))
        assert clock.slept == slept


def test_interactive_calls_use_the_reserve(client: Client, provider: responses.RequestsMock, clock: Clock) -> None:
    provider.get(f"{BASE}/balances", json={"data": []}, headers=left(100, 1, 7))
    client.balances.list()
    client.balances.list()
    assert clock.slept == []


def test_a_background_call_leaves_the_reserve_for_one_window_only(
    provider: responses.RequestsMock, clock: Clock
) -> None:
    """Interactive calls use up the limit in every window."""
    provider.get(f"{BASE}/events", json=samples.page(), headers=left(100, 5, 7))

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        client.events.newest()

    client = Client(conf.Account("default", "https://pay.example", samples.API_KEY), sleep=sleep, monotonic=clock)
    client.events.newest()
    client.events.newest(background=True)
    assert clock.slept == [7]


def test_requests_are_counted_before_they_are_answered(clock: Clock) -> None:
    limiter = RateLimiter(clock)
    assert limiter.acquire("read") == 0  # nothing known yet
    limiter.update("read", left(100, 2, 7))
    assert [limiter.acquire("read") for _ in range(4)] == [0, 0, 7, 7]
    assert limiter.acquire("write") == 0
