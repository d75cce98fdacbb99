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
from payments_integration.db.claims import ClaimLost
from payments_integration.exceptions import ApiError, NoAnswer, OperationClosed, OutcomeUnknown, RateLimited
from payments_integration.models import Operation, OperationState
from payments_integration.outbox import ledger, look_ups, outcomes, recovery
from tests.fake_provider import PAYMENT, PAYOUT, Fake, Lost, make_due, only_operation, payout, refusal, timeout

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def unknown(fake: Fake, *, executed: bool = True, **changes: Any) -> Operation:
    fake.script = [Lost(timeout()) if executed else timeout()]
    with pytest.raises(OutcomeUnknown) as caught:
        services.create_payout(**{**PAYOUT, **changes})
    operation = caught.value.operation
    assert isinstance(operation, Operation)
    return operation


@pytest.mark.case(59)
def test_waits_between_attempts_grow_up_to_a_limit(fake: Fake) -> None:
    with time_machine.travel(START, tick=False) as clock:
        unknown(fake)
        waits: list[float] = []
        for _ in range(14):
            operation = only_operation()
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
def test_retry_after_is_honoured_up_to_a_limit(fake: Fake) -> None:
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
def test_after_23_hours_an_operation_is_only_looked_up(fake: Fake, hours: float, resent: bool) -> None:
    with time_machine.travel(START, tick=False) as clock:
        unknown(fake)
        clock.shift(timedelta(hours=hours))
        make_due()
        assert services.resume_operations() == {"done": 1}
    assert len(fake.calls) == (2 if resent else 1)
    assert len(fake.made("payout")) == 1
    assert only_operation().result_id == fake.made("payout")[0].id


@pytest.mark.case(60)
def test_a_person_decides_if_nothing_is_found_after_23_hours(fake: Fake, attention: list[str]) -> None:
    with time_machine.travel(START, tick=False) as clock:
        unknown(fake, executed=False)
        clock.shift(timedelta(hours=23))
        make_due()
        assert services.resume_operations() == {"needs_person": 1}
        assert services.resume_operations() == {}
    assert len(fake.calls) == 1
    assert attention == ["operation_needs_resolution"]


@pytest.mark.case(91)
@pytest.mark.promise(5)
@pytest.mark.parametrize("change", [{"API_KEY": "sk_test_new"}, {"BASE_URL": "https://elsewhere.example"}])
@pytest.mark.parametrize("executed", [True, False])
def test_with_another_api_key_or_address_an_operation_is_only_looked_up(
    fake: Fake, change: dict[str, str], executed: bool
) -> None:
    unknown(fake, executed=executed)
    make_due()
    accounts = {"default": {"BASE_URL": "http://127.0.0.1:9", "API_KEY": "sk_test_default", **change}}
    with override_settings(PAYMENTS_INTEGRATION={"ACCOUNTS": accounts}):
        assert services.resume_operations() == ({"done": 1} if executed else {"needs_person": 1})
    assert len(fake.calls) == 1


def test_an_operation_that_was_never_sent_goes_out_under_the_new_api_key(fake: Fake) -> None:
    fake.script = [refusal(RateLimited, 429, "rate_limited")]
    services.defer(services.create_payout, **PAYOUT)
    make_due()
    accounts = {"default": {"BASE_URL": "http://127.0.0.1:9", "API_KEY": "sk_test_new"}}
    with override_settings(PAYMENTS_INTEGRATION={"ACCOUNTS": accounts}):
        assert services.resume_operations() == {"done": 1}


def test_the_fingerprint_of_an_account_shows_no_api_key() -> None:
    assert conf.account().api_key not in conf.fingerprint("default")
    assert conf.fingerprint("default") != conf.fingerprint("second")


def test_first_sent_at_is_the_first_attempt_that_may_have_run(fake: Fake) -> None:
    with time_machine.travel(START, tick=False) as clock:
        fake.script = [refusal(RateLimited, 429, "rate_limited"), timeout()]
        services.defer(services.create_payout, **PAYOUT)
        clock.shift(timedelta(hours=5))
        assert services.resume_operations() == {"unknown": 1}
        assert only_operation().first_sent_at == START + timedelta(hours=5)
        clock.shift(timedelta(hours=22))
        make_due()
        assert services.resume_operations() == {"done": 1}
        assert only_operation().first_sent_at == START + timedelta(hours=5)
    assert len(fake.calls) == 3


def test_a_person_decides_about_an_operation_unsent_for_24_hours(fake: Fake, attention: list[str]) -> None:
    with time_machine.travel(START, tick=False) as clock:
        fake.script = [refusal(RateLimited, 429, "rate_limited")] * 2
        services.defer(services.create_payout, **PAYOUT)
        clock.shift(timedelta(hours=24))
        assert services.resume_operations() == {"due": 1}
        clock.shift(timedelta(hours=1))
        make_due()
        assert services.resume_operations() == {"needs_person": 1}
    assert len(fake.calls) == 2
    assert attention == ["deferred_refused", "operation_needs_resolution"]


@pytest.mark.case(42)
def test_a_claim_keeps_others_away_until_it_runs_out(fake: Fake) -> None:
    with time_machine.travel(START, tick=False) as clock:
        fake.script = [Lost(KeyboardInterrupt())]
        with pytest.raises(KeyboardInterrupt):
            services.create_payout(**PAYOUT)
        operation = only_operation()
        assert operation.claimed_until is not None
        assert operation.claimed_until - START >= timedelta(seconds=conf.current().REQUEST_DEADLINE + 10)
        assert services.resume_operations() == {}
        Operation.objects.update(next_attempt_at=None)
        assert services.resume_operations() == {}, "also when somebody made it due"
        assert outcomes.claim_to_send(operation, recovery.RESUMABLE) is None
        assert outcomes.claim_to_resolve(operation, recovery.RESUMABLE) is None
        clock.move_to(operation.claimed_until + timedelta(seconds=1))
        assert services.resume_operations() == {"done": 1}
    assert len(fake.made("payout")) == 1


@pytest.mark.case(41)
def test_one_of_two_claims_wins(fake: Fake) -> None:
    unknown(fake)
    mine, theirs = only_operation(), only_operation()
    claim = outcomes.claim_to_send(mine, recovery.RESUMABLE)
    assert claim is not None
    assert claim.earlier_may_have_run
    assert outcomes.claim_to_send(theirs, recovery.RESUMABLE) is None


def test_an_operation_that_changed_since_it_was_read_is_not_claimed(fake: Fake) -> None:
    unknown(fake)
    old = only_operation()
    make_due()
    fake.script = [timeout()]
    services.resume_operations()
    assert outcomes.claim_to_send(old, recovery.RESUMABLE) is None


def test_a_pass_keeps_to_its_limit_deadline_and_account(fake: Fake) -> None:
    for _ in range(3):
        unknown(fake)
    unknown(fake, account="second")
    make_due()
    assert services.resume_operations(deadline=time.monotonic() - 1) == {}
    assert services.resume_operations("second") == {"done": 1}
    assert services.resume_operations("default", limit=2) == {"done": 2}
    assert services.resume_operations(limit=100, deadline=time.monotonic() + 60) == {"done": 1}


@pytest.mark.parametrize("was_sent", [True, False])
def test_a_person_decides_about_operations_of_a_removed_account(
    fake: Fake, attention: list[str], woken: list[str], was_sent: bool
) -> None:
    fake.script = [Lost(timeout()) if was_sent else refusal(RateLimited, 429, "rate_limited")]
    services.defer(services.create_payout, **PAYOUT, account="second")
    make_due()
    woken.clear()
    accounts = {"default": {"BASE_URL": "http://127.0.0.1:9", "API_KEY": "sk_test_default"}}
    with override_settings(PAYMENTS_INTEGRATION={"ACCOUNTS": accounts}):
        assert services.resume_operations() == {}
        Operation.objects.update(created_at=timezone.now() - timedelta(hours=25))
        assert services.resume_operations("default") == {}
        assert services.resume_operations() == {"needs_person": 1}
        assert services.resume_operations() == {}
        assert "the account second is not configured any more" in only_operation().note
        for decide in (services.look_up, services.retry):
            with pytest.raises(ValidationError, match="The account second is not configured"):
                decide(only_operation())
    assert attention == ["operation_needs_resolution"]
    assert woken == []
    assert len(fake.calls) == 1
    assert services.retry(only_operation()).state == OperationState.DONE
    assert len(fake.made("payout")) == 1


def test_an_account_that_one_deploy_lacked_has_its_operations_sent_afterwards(
    fake: Fake, attention: list[str]
) -> None:
    fake.script = [Lost(timeout())]
    services.defer(services.create_payout, **PAYOUT, account="second")
    make_due()
    accounts = {"default": {"BASE_URL": "http://127.0.0.1:9", "API_KEY": "sk_test_default"}}
    with override_settings(PAYMENTS_INTEGRATION={"ACCOUNTS": accounts}):
        assert services.resume_operations() == {}
    assert services.resume_operations() == {"done": 1}
    assert attention == []
    assert len(fake.made("payout")) == 1


def test_an_error_with_one_operation_does_not_stop_the_others(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    unknown(fake)
    unknown(fake)
    make_due()
    fake.script = [ValueError("a bug"), None]
    assert services.resume_operations() == {"failed": 1, "done": 1}
    assert "a bug" in caplog.text
    assert Operation.objects.filter(state=OperationState.UNKNOWN).count() == 1
    make_due()
    assert services.resume_operations() == {"done": 1}


def test_a_worker_waits_only_shortly_for_the_rate_limit(fake: Fake) -> None:
    unknown(fake)
    make_due()
    services.resume_operations()
    assert fake.calls[1].max_wait < fake.calls[0].max_wait


def test_an_erased_operation_is_not_sent(fake: Fake) -> None:
    unknown(fake)
    make_due()
    Operation.objects.update(body=None)
    assert services.resume_operations() == {"done": 1}
    assert len(fake.calls) == 1


def test_a_finished_operation_is_not_resumed(fake: Fake, mirrored: Any) -> None:
    services.create_payout(**PAYOUT)
    for state in OperationState:
        if state not in recovery.RESUMABLE:
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
    assert only_operation().note.count("\n") == 0


def test_each_account_is_woken_once_per_pass(fake: Fake, woken: list[str]) -> None:
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


def test_a_pass_ends_after_its_time_limit(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown(fake)
    make_due()
    monkeypatch.setattr(recovery, "PASS_SECONDS", -1.0)
    assert services.resume_operations() == {}


@pytest.mark.case(60)
@pytest.mark.case(99)
@pytest.mark.promise(5)
@pytest.mark.parametrize(
    "ahead", [timedelta(minutes=4), timedelta(minutes=90), timedelta(hours=3), -timedelta(hours=6)]
)
@pytest.mark.parametrize(("hours", "resent"), [(1, True), (22.9, True), (24.2, False)])
def test_the_provider_s_clock_says_how_old_the_key_is(
    fake: Fake, ahead: timedelta, hours: float, resent: bool
) -> None:
    """Our clock was wrong when it was sent, and is right again."""
    with time_machine.travel(START + ahead, tick=False) as clock:
        fake.ahead = -ahead
        unknown(fake)
        fake.ahead = timedelta()
        clock.move_to(START + timedelta(hours=hours))
        make_due()
        services.resume_operations()
        # Our own clock may only shorten the time.
        resent = resent and hours + -ahead / timedelta(hours=1) < 23
        assert len(fake.calls) == (2 if resent else 1)
        assert len(fake.made("payout")) == 1
        assert only_operation().state == OperationState.DONE


@pytest.mark.case(99)
@pytest.mark.promise(5)
def test_a_clock_that_is_set_back_makes_no_key_younger(fake: Fake) -> None:
    with time_machine.travel(START, tick=False) as clock:
        unknown(fake)
        clock.shift(timedelta(hours=22))  # 24.2 hours have passed
        fake.ahead = timedelta(hours=2, minutes=12)
        fake.keys.clear()  # the provider has forgotten it
        make_due()
        assert services.resume_operations() == {"done": 1}
    assert len(fake.calls) == 1
    assert len(fake.made("payout")) == 1


@pytest.mark.case(99)
@pytest.mark.promise(5)
@pytest.mark.parametrize("ahead", [timedelta(hours=3), timedelta(minutes=90)])
def test_not_even_a_person_sends_again_under_an_old_key(fake: Fake, ahead: timedelta) -> None:
    with time_machine.travel(START + ahead, tick=False) as clock:
        fake.ahead = -ahead
        unknown(fake)
        fake.ahead = timedelta()
        clock.move_to(START + timedelta(hours=24, minutes=12))
        fake.keys.clear()
        Operation.objects.update(state=OperationState.NEEDS_PERSON)
        with pytest.raises(ValidationError, match="the provider may have forgotten its key"):
            services.retry(only_operation(), actor="ana")
        operation = only_operation()
        assert (operation.state, operation.claim_token) == (OperationState.NEEDS_PERSON, "")
        assert services.look_up(operation).state == OperationState.DONE
    assert len(fake.calls) == 1


@pytest.mark.case(99)
@pytest.mark.promise(5)
@pytest.mark.parametrize("when", ["sent", "sent again", "behind"])
def test_without_a_date_the_age_of_a_key_is_uncertain(fake: Fake, when: str) -> None:
    fake.has_dates = when != "sent"
    unknown(fake)
    fake.has_dates = when != "sent again"
    fake.ahead = -timedelta(minutes=6) if when == "behind" else timedelta()
    make_due()
    assert services.resume_operations() == {"done": 1}
    assert len(fake.calls) == 1


@pytest.mark.case(153)
@pytest.mark.parametrize("seconds", [20, 60, 240])
@pytest.mark.parametrize("executed", [True, False])
def test_servers_of_the_provider_whose_clocks_differ_leave_the_key_valid(
    fake: Fake, seconds: int, executed: bool
) -> None:
    """The server that answers next is behind the one whose ``Date`` was stored."""
    unknown(fake, executed=executed)
    fake.ahead = -timedelta(seconds=seconds)
    make_due()
    assert services.resume_operations() == {"done": 1}
    assert len(fake.calls) == 2
    assert len(fake.made("payout")) == 1


@pytest.mark.promise(5)
def test_nothing_is_sent_again_before_the_provider_has_said_what_time_it_is(fake: Fake) -> None:
    unknown(fake)
    make_due()
    fake.read_script = [timeout()]
    assert services.resume_operations() == {"unknown": 1}
    assert len(fake.calls) == 1
    assert only_operation().state == OperationState.UNKNOWN


def test_the_time_of_the_first_attempt_is_the_provider_s_latest(fake: Fake) -> None:
    fake.ahead = timedelta(hours=3)
    unknown(fake)
    assert fake.reads == []
    assert abs(sent_after() - fake.now()) < timedelta(minutes=1)


def test_a_process_that_has_heard_nothing_asks_before_it_sends(fake: Fake) -> None:
    fake.has_answered, fake.ahead = False, timedelta(hours=3)
    unknown(fake)
    assert fake.reads == ["ask"]
    assert abs(sent_after() - fake.now()) < timedelta(minutes=1)


def test_an_operation_sent_without_a_date_is_only_looked_up(fake: Fake) -> None:
    fake.has_answered, fake.read_script = False, [timeout()]
    unknown(fake)
    assert only_operation().sent_after is None
    make_due()
    assert services.resume_operations() == {"done": 1}
    assert len(fake.calls) == 1


def test_a_worker_sends_nothing_while_the_provider_is_away(fake: Fake) -> None:
    fake.script = [refusal(RateLimited, 429, "rate_limited")]
    services.defer(services.create_payout, **PAYOUT)
    fake.has_answered, fake.read_script = False, [timeout()]
    make_due()
    assert services.resume_operations() == {"due": 1}
    operation = only_operation()
    assert (operation.may_have_run, operation.sent_after) == (False, None)
    assert operation.next_attempt_at > timezone.now()
    make_due()
    assert services.resume_operations() == {"done": 1}


def test_a_deferred_request_that_found_no_connection_goes_out_as_if_for_the_first_time(fake: Fake) -> None:
    fake.script = [NoAnswer("POST /payouts: the connection failed", was_connected=False)]
    operation = services.defer(services.create_payout, **PAYOUT)
    assert (operation.state, operation.may_have_run) == (OperationState.DUE, False)
    assert "Nothing was sent: POST /payouts: the connection failed" in operation.note
    make_due()
    assert services.resume_operations() == {"done": 1}
    assert len(fake.made("payout")) == 1


def sent_after() -> datetime:
    found = only_operation().sent_after
    assert found is not None
    return found


def test_a_claim_taken_while_the_clock_was_ahead_is_free(fake: Fake) -> None:
    with time_machine.travel(START + timedelta(days=2), tick=False) as clock:
        fake.script = [Lost(RuntimeError("a bug of ours"))]
        with pytest.raises(OutcomeUnknown):
            services.create_payout(**PAYOUT)
        assert only_operation().claim_token
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
def test_a_process_that_paused_past_its_claim_sends_nothing(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between claim and request; meanwhile it was looked up, not found, and closed."""
    with time_machine.travel(START, tick=False) as clock:

        def stand_still(*_: Any) -> None:
            monkeypatch.setattr(outcomes.Claim, "ensure_time", ensure_time)
            clock.shift(timedelta(hours=24))
            assert services.resume_operations() == {"needs_person": 1}
            services.mark_never_happened(only_operation(), "ana", "it is not there")
            return ensure_time(*_)

        ensure_time = outcomes.Claim.ensure_time
        monkeypatch.setattr(outcomes.Claim, "ensure_time", stand_still)
        with pytest.raises(OperationClosed):
            services.create_payout(**PAYOUT)
    assert fake.calls == []


@pytest.mark.case(42)
@pytest.mark.promise(5)
@pytest.mark.parametrize("set_back", [True, False])
def test_a_process_that_paused_leaves_the_operation_to_the_next(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, set_back: bool
) -> None:
    """By either clock: the wall's may be set back while nothing moves."""

    def stand_still(*_: Any) -> None:
        if set_back:
            later = time.monotonic() + ledger.CLAIM_MARGIN
            patched.setattr(outcomes.time, "monotonic", lambda: later)
        else:
            clock.shift(ledger.CLAIM_MARGIN)
        return ensure_time(*_)

    ensure_time = outcomes.Claim.ensure_time
    with time_machine.travel(START, tick=False) as clock:
        with monkeypatch.context() as patched:
            patched.setattr(outcomes.Claim, "ensure_time", stand_still)
            with pytest.raises(OutcomeUnknown):
                services.create_payout(**PAYOUT)
        assert fake.calls == []
        make_due()
        assert services.resume_operations() == {"done": 1}
    assert len(fake.calls) == 1


@pytest.mark.promise(5)
def test_a_pause_and_a_lost_database_are_an_unknown_outcome(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any, **__: Any) -> Any:
        raise OperationalError("the connection is lost")

    def lost(*_: Any) -> None:
        monkeypatch.setattr(Operation, "refresh_from_db", gone)
        raise ClaimLost

    monkeypatch.setattr(outcomes.Claim, "ensure_time", lost)
    with pytest.raises(OutcomeUnknown):
        services.create_payout(**PAYOUT)
    assert fake.calls == []


def test_a_person_decides_about_an_answer_that_the_database_never_accepts(
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
    assert attention == ["operation_needs_resolution"]
    assert "DataError" in only_operation().note
    assert "Ana" not in only_operation().note
    assert only_operation().claim_token == ""


def test_the_other_operations_go_on_if_handing_one_to_a_person_fails(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise DataError

    with time_machine.travel(START, tick=False) as clock:
        unknown(fake)
        clock.shift(timedelta(days=3))
        make_due()
        with monkeypatch.context() as patched:
            patched.setattr(look_ups, "resolve_by_reading", refuse)
            patched.setattr(recovery.outcomes, "needs_person", refuse)
            assert services.resume_operations() == {"failed": 1}
        make_due()
        assert services.resume_operations() == {"done": 1}
