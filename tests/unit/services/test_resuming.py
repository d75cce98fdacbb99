"""Due operations are brought to an end: with the same key while that is safe, then by looking."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.core.exceptions import ValidationError
from django.db import DataError, OperationalError
from django.test import override_settings
from django.utils import timezone

from payments_integration import conf, projection, services
from payments_integration.exceptions import ApiError, OperationClosed, OutcomeUnknown, RateLimited
from payments_integration.models import Operation, OperationState
from payments_integration.services import leases, resuming, sending

from .conftest import make_due, only
from .fakes import PAYMENT, PAYOUT, Fake, Lost, payout, refusal, timeout

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def unknown(fake: Fake, *, executed: bool = True, **changes: Any) -> Operation:
    fake.script = [Lost(timeout()) if executed else timeout()]
    with pytest.raises(OutcomeUnknown) as caught:
        services.create_payout(**{**PAYOUT, **changes})
    operation = caught.value.operation
    assert isinstance(operation, Operation)
    return operation


@pytest.mark.case(59)
def test_waits_grow_and_are_bounded(fake: Fake) -> None:
    with time_machine.travel(START, tick=False) as clock:
        unknown(fake)
        waits: list[float] = []
        for _ in range(14):
            operation = only()
            assert operation.next_attempt_at is not None
            waits.append((operation.next_attempt_at - timezone.now()).total_seconds())
            assert services.resume_operations() == {}, "not due yet"
            clock.move_to(operation.next_attempt_at)
            fake.script = [refusal(ApiError, 503, "service_unavailable")]
            assert services.resume_operations() == {"unknown": 1}
        assert 4 <= waits[0] <= 6
        for number, wait in enumerate(waits):
            nominal = min(5 * 2**number, 900)
            assert 0.8 * nominal <= wait <= 1.2 * nominal
    assert len({call.key for call in fake.calls}) == 1


@pytest.mark.case(58)
def test_retry_after_is_honoured_within_bounds(fake: Fake) -> None:
    with time_machine.travel(START, tick=False):
        for asked, least, most in ((300.0, 300, 300), (999_999.0, 900, 1080), (None, 4, 6)):
            fake.script = [refusal(RateLimited, 429, "rate_limited", retry_after=asked)]
            operation = services.defer(services.create_payment, **PAYMENT)
            assert operation.next_attempt_at is not None
            wait = (operation.next_attempt_at - timezone.now()).total_seconds()
            assert least <= wait <= most


@pytest.mark.case(60)
@pytest.mark.promise(5)
@pytest.mark.parametrize(("hours", "resent"), [(22.9, True), (23.0, False), (25, False), (24 * 90, False)])
def test_after_23_hours_it_is_only_looked_up(fake: Fake, hours: float, resent: bool) -> None:
    with time_machine.travel(START, tick=False) as clock:
        unknown(fake)
        clock.shift(timedelta(hours=hours))
        make_due()
        assert services.resume_operations() == {"done": 1}
    assert len(fake.calls) == (2 if resent else 1)
    assert len(fake.made("payout")) == 1
    assert only().result_id == fake.made("payout")[0].id


@pytest.mark.case(60)
def test_after_23_hours_and_not_found_is_for_a_person(fake: Fake, attention: list[str]) -> None:
    with time_machine.travel(START, tick=False) as clock:
        unknown(fake, executed=False)
        clock.shift(timedelta(hours=23))
        make_due()
        assert services.resume_operations() == {"needs_person": 1}
        assert services.resume_operations() == {}
    assert len(fake.calls) == 1
    assert attention == ["operation_needs_person"]


@pytest.mark.case(91)
@pytest.mark.promise(5)
@pytest.mark.parametrize("change", [{"API_KEY": "sk_test_new"}, {"BASE_URL": "https://elsewhere.example"}])
@pytest.mark.parametrize("executed", [True, False])
def test_with_another_key_or_address_it_is_only_looked_up(fake: Fake, change: dict[str, str], executed: bool) -> None:
    unknown(fake, executed=executed)
    make_due()
    accounts = {"default": {"BASE_URL": "http://127.0.0.1:9", "API_KEY": "sk_test_default", **change}}
    with override_settings(PAYMENTS_INTEGRATION={"ACCOUNTS": accounts}):
        assert services.resume_operations() == ({"done": 1} if executed else {"needs_person": 1})
    assert len(fake.calls) == 1


def test_one_never_sent_goes_out_under_the_new_key(fake: Fake) -> None:
    fake.script = [refusal(RateLimited, 429, "rate_limited")]
    services.defer(services.create_payout, **PAYOUT)
    make_due()
    accounts = {"default": {"BASE_URL": "http://127.0.0.1:9", "API_KEY": "sk_test_new"}}
    with override_settings(PAYMENTS_INTEGRATION={"ACCOUNTS": accounts}):
        assert services.resume_operations() == {"done": 1}


def test_the_fingerprint_shows_no_key() -> None:
    assert conf.account().api_key not in leases.fingerprint("default")
    assert leases.fingerprint("default") != leases.fingerprint("second")


def test_the_first_sending_that_counts_is_the_one_that_may_have_run(fake: Fake) -> None:
    with time_machine.travel(START, tick=False) as clock:
        fake.script = [refusal(RateLimited, 429, "rate_limited"), timeout()]
        services.defer(services.create_payout, **PAYOUT)
        clock.shift(timedelta(hours=5))
        assert services.resume_operations() == {"unknown": 1}
        assert only().first_sent_at == START + timedelta(hours=5)
        clock.shift(timedelta(hours=22))
        make_due()
        assert services.resume_operations() == {"done": 1}
        assert only().first_sent_at == START + timedelta(hours=5)
    assert len(fake.calls) == 3


def test_unsent_for_24_hours_is_for_a_person(fake: Fake, attention: list[str]) -> None:
    with time_machine.travel(START, tick=False) as clock:
        fake.script = [refusal(RateLimited, 429, "rate_limited")] * 2
        services.defer(services.create_payout, **PAYOUT)
        clock.shift(timedelta(hours=24))
        assert services.resume_operations() == {"due": 1}
        clock.shift(timedelta(hours=1))
        make_due()
        assert services.resume_operations() == {"needs_person": 1}
    assert len(fake.calls) == 2
    assert attention == ["operation_needs_person"]


@pytest.mark.case(42)
def test_a_lease_keeps_others_away_until_it_runs_out(fake: Fake) -> None:
    with time_machine.travel(START, tick=False) as clock:
        fake.script = [Lost(KeyboardInterrupt())]
        with pytest.raises(KeyboardInterrupt):
            services.create_payout(**PAYOUT)
        operation = only()
        assert operation.lease_until is not None
        assert operation.lease_until - START >= timedelta(seconds=conf.current().REQUEST_DEADLINE + 10)
        assert services.resume_operations() == {}
        Operation.objects.update(next_attempt_at=None)
        assert services.resume_operations() == {}, "also when somebody made it due"
        assert leases.claim_to_send(operation, resuming.RESUMABLE) is None
        assert leases.claim_to_resolve(operation, resuming.RESUMABLE) is None
        clock.move_to(operation.lease_until + timedelta(seconds=1))
        assert services.resume_operations() == {"done": 1}
    assert len(fake.made("payout")) == 1


@pytest.mark.case(41)
def test_of_two_claims_one_wins(fake: Fake) -> None:
    unknown(fake)
    mine, theirs = only(), only()
    claim = leases.claim_to_send(mine, resuming.RESUMABLE)
    assert claim is not None
    assert claim.repeated
    assert leases.claim_to_send(theirs, resuming.RESUMABLE) is None


def test_what_changed_since_it_was_read_is_not_claimed(fake: Fake) -> None:
    unknown(fake)
    old = only()
    make_due()
    fake.script = [timeout()]
    services.resume_operations()
    assert leases.claim_to_send(old, resuming.RESUMABLE) is None


def test_limit_deadline_and_account(fake: Fake) -> None:
    for _ in range(3):
        unknown(fake)
    unknown(fake, account="second")
    make_due()
    assert services.resume_operations(deadline=time.monotonic() - 1) == {}
    assert services.resume_operations("second") == {"done": 1}
    assert services.resume_operations("default", limit=2) == {"done": 2}
    assert services.resume_operations(limit=100, deadline=time.monotonic() + 60) == {"done": 1}


@pytest.mark.parametrize("was_sent", [True, False])
def test_an_account_that_is_not_configured_any_more_is_for_a_person(
    fake: Fake, attention: list[str], woken: list[str], was_sent: bool
) -> None:
    fake.script = [Lost(timeout()) if was_sent else refusal(RateLimited, 429, "rate_limited")]
    services.defer(services.create_payout, **PAYOUT, account="second")
    make_due()
    woken.clear()
    accounts = {"default": {"BASE_URL": "http://127.0.0.1:9", "API_KEY": "sk_test_default"}}
    with override_settings(PAYMENTS_INTEGRATION={"ACCOUNTS": accounts}):
        assert services.resume_operations("default") == {}
        assert services.resume_operations() == {"needs_person": 1}
        assert services.resume_operations() == {}
        assert "the account second is not configured any more" in only().note
        for decide in (services.look_up, services.retry):
            with pytest.raises(ValidationError, match="The account second is not configured"):
                decide(only())
    assert attention == ["operation_needs_person"]
    assert woken == []
    assert len(fake.calls) == 1
    assert services.retry(only()).state == OperationState.DONE
    assert len(fake.made("payout")) == 1


def test_ones_trouble_does_not_stop_the_others(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    unknown(fake)
    unknown(fake)
    make_due()
    fake.script = [ValueError("a bug"), None]
    assert services.resume_operations() == {"failed": 1, "done": 1}
    assert "a bug" in caplog.text
    assert Operation.objects.filter(state=OperationState.UNKNOWN).count() == 1
    make_due()
    assert services.resume_operations() == {"done": 1}


def test_jobs_do_not_wait_long_on_limits(fake: Fake) -> None:
    unknown(fake)
    make_due()
    services.resume_operations()
    assert fake.calls[1].max_wait < fake.calls[0].max_wait


def test_erased_ones_are_not_sent(fake: Fake) -> None:
    unknown(fake)
    make_due()
    Operation.objects.update(body=None)
    assert services.resume_operations() == {"done": 1}
    assert len(fake.calls) == 1


def test_final_ones_are_left_alone(fake: Fake, mirrored: Any) -> None:
    services.create_payout(**PAYOUT)
    for state in OperationState:
        if state not in resuming.RESUMABLE:
            Operation.objects.update(state=state)
            assert services.resume_operations() == {}
    assert len(fake.calls) == 1


def test_the_note_does_not_repeat_itself(fake: Fake) -> None:
    mirror = payout()
    assert mirror
    unknown(fake)
    for _ in range(5):
        fake.script = [timeout()]
        make_due()
        services.resume_operations()
    assert only().note.count("\n") == 0


def test_who_waits_for_changes_is_woken_once(fake: Fake, woken: list[str]) -> None:
    services.create_payout(**PAYOUT)
    assert woken == ["default"]
    unknown(fake)
    unknown(fake)
    unknown(fake, account="second")
    woken.clear()
    make_due()
    services.resume_operations()
    assert sorted(woken) == ["default", "second"]
    woken.clear()
    services.defer(services.create_payout, **PAYOUT)
    assert woken == ["default"]
    services.resume_operations()
    assert woken == ["default"]


def test_a_pass_ends_by_itself(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown(fake)
    make_due()
    monkeypatch.setattr(resuming, "PASS_SECONDS", -1.0)
    assert services.resume_operations() == {}


@pytest.mark.case(60)
@pytest.mark.promise(5)
@pytest.mark.parametrize(("ahead", "resent"), [(timedelta(minutes=4), True), (timedelta(hours=30), False)])
def test_one_sent_in_the_future_is_only_looked_up(fake: Fake, ahead: timedelta, resent: bool) -> None:
    """Our clock was ahead when it was sent: how old the key is, nobody knows."""
    with time_machine.travel(START + ahead, tick=False) as clock:
        unknown(fake)
        clock.move_to(START)
        make_due()
        services.resume_operations()
    assert len(fake.calls) == (2 if resent else 1)
    assert len(fake.made("payout")) == 1


def test_a_lease_of_a_clock_that_was_ahead_holds_nothing_back(fake: Fake) -> None:
    with time_machine.travel(START + timedelta(days=2), tick=False) as clock:
        fake.script = [Lost(RuntimeError("a bug of ours"))]
        with pytest.raises(OutcomeUnknown):
            services.create_payout(**PAYOUT)
        assert only().lease_token
        clock.move_to(START)
        assert services.resume_operations() == {"done": 1}


def test_an_attempt_planned_by_a_clock_that_was_ahead_is_due(fake: Fake) -> None:
    with time_machine.travel(START + timedelta(days=2), tick=False) as clock:
        fake.script = [refusal(RateLimited, 429, "rate_limited")]
        services.defer(services.create_payout, **PAYOUT)
        clock.move_to(START)
        assert services.resume_operations() == {"done": 1}


@pytest.mark.case(42)
@pytest.mark.promise(5)
def test_who_stood_still_past_the_lease_sends_nothing(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between claim and request; meanwhile it was looked up, not found, and closed."""
    with time_machine.travel(START, tick=False) as clock:

        def stand_still(account: str = "default") -> Fake:
            monkeypatch.setattr(sending, "get_client", lambda account="default": fake)
            clock.shift(timedelta(hours=24))
            assert services.resume_operations() == {"needs_person": 1}
            services.mark_never_happened(only(), "ana", "it is not there")
            return fake

        monkeypatch.setattr(sending, "get_client", stand_still)
        with pytest.raises(OperationClosed):
            services.create_payout(**PAYOUT)
    assert fake.calls == []


@pytest.mark.case(42)
@pytest.mark.promise(5)
@pytest.mark.parametrize("set_back", [True, False])
def test_who_stood_still_leaves_it_to_the_next(fake: Fake, monkeypatch: pytest.MonkeyPatch, set_back: bool) -> None:
    """By either clock: the wall's may be set back while nothing moves."""

    def stand_still(account: str = "default") -> Fake:
        if set_back:
            later = time.monotonic() + leases.LEASE_MARGIN
            patched.setattr(leases.time, "monotonic", lambda: later)
        else:
            clock.shift(leases.LEASE_MARGIN)
        return fake

    with time_machine.travel(START, tick=False) as clock:
        with monkeypatch.context() as patched:
            patched.setattr(sending, "get_client", stand_still)
            with pytest.raises(OutcomeUnknown):
                services.create_payout(**PAYOUT)
        assert fake.calls == []
        make_due()
        assert services.resume_operations() == {"done": 1}
    assert len(fake.calls) == 1


@pytest.mark.promise(5)
def test_who_stood_still_while_the_database_went_away(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any, **__: Any) -> Any:
        raise OperationalError("the connection is lost")

    def lost(*_: Any) -> None:
        monkeypatch.setattr(Operation, "refresh_from_db", gone)
        raise leases.LeaseLost

    monkeypatch.setattr(leases.Claim, "ensure_time", lost)
    with pytest.raises(OutcomeUnknown):
        services.create_payout(**PAYOUT)
    assert fake.calls == []


def test_what_our_database_never_takes_is_for_a_person(
    fake: Fake, attention: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise DataError("value out of range: Ana Rojas")

    monkeypatch.setattr(projection, "write_answer", refuse)
    monkeypatch.setattr(projection, "record_identity", refuse)
    with time_machine.travel(START, tick=False) as clock:
        with pytest.raises(OutcomeUnknown):
            services.create_payout(**PAYOUT)
        for hours in (1, 25, 48):
            clock.move_to(START + timedelta(hours=hours))
            make_due()
            assert services.resume_operations() == {"failed": 1}
        assert attention == []
        clock.shift(timedelta(hours=1))
        make_due()
        assert services.resume_operations() == {"needs_person": 1}
        assert services.resume_operations() == {}
    assert attention == ["operation_needs_person"]
    assert "DataError" in only().note
    assert "Ana" not in only().note
    assert only().lease_token == ""


def test_where_handing_over_fails_too_the_others_go_on(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise DataError

    with time_machine.travel(START, tick=False) as clock:
        unknown(fake)
        clock.shift(timedelta(days=3))
        make_due()
        with monkeypatch.context() as patched:
            patched.setattr(resuming.lookups, "look_up", refuse)
            patched.setattr(resuming.outcomes, "person", refuse)
            assert services.resume_operations() == {"failed": 1}
        make_due()
        assert services.resume_operations() == {"done": 1}
