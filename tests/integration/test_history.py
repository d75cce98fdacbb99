"""What was before the installation is mirrored, and handlers are called only for what comes after it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from payments_integration import conf, inbox, projection, reconciliation, services
from payments_integration.handlers import on_event, on_status
from payments_integration.inbox import releasing
from payments_integration.models import (
    AccountState,
    Event,
    Operation,
    Payment,
    ReconciliationRun,
    Refund,
    StatusChange,
)
from payments_integration.reconciliation import objects, runs
from payments_integration.sandbox import Fault
from payments_integration.testing import ProviderSandbox
from tests.integration.mirror import assert_mirror_equals_provider

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.promise(6)]

PAYMENT = {"amount": 1_000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
DAY = 86_400


@pytest.fixture(autouse=True)
def _as_on_a_site(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Django's test environment everything is dispatched."""
    monkeypatch.setattr(conf, "in_test_environment", lambda: False)


@pytest.fixture
def calls() -> Iterator[list[tuple[str, str]]]:
    """What handlers were called for: the type of an event or a status, and the object."""
    seen: list[tuple[str, str]] = []

    @on_status(Payment, "succeeded")
    def pay(payment: Any, **kwargs: Any) -> None:
        seen.append(("succeeded", payment.pk))

    @on_status(Refund)
    def refund(row: Any, status: str, **kwargs: Any) -> None:
        seen.append((status, row.pk))

    @on_event("payment.*", "refund.*")
    def note(event: Any, **kwargs: Any) -> None:
        seen.append((event.type, event.object_id))

    yield seen  # noqa: PT022  (the handlers live as long as the generator)


def make(sandbox: ProviderSandbox, days: float, *, paid: bool = True) -> str:
    """A payment made so many days ago, on the provider's dashboard."""
    sandbox.engine.clock.set_offset(-days * DAY)
    payment = sandbox.project.state.payments.create(dict(PAYMENT))
    if paid:
        sandbox.engine.pay(payment["id"])
    return str(payment["id"])


def pass_over(sandbox: ProviderSandbox) -> None:
    """A pass a moment later: it ends at a Date, which has whole seconds."""
    sandbox.engine.clock.advance(2)
    reconciliation.reconcile_events()


def at_present(sandbox: ProviderSandbox) -> None:
    """The provider's clock is right again, and the app is installed now."""
    sandbox.engine.clock.set_offset(0)
    AccountState.objects.all().delete()


@pytest.fixture
def old(sandbox: ProviderSandbox) -> list[str]:
    """Payments of the last two months; the provider has the events of the last 30 days."""
    ids = [make(sandbox, 60 - number / 4) for number in range(230)]
    at_present(sandbox)
    return ids


@pytest.mark.case(129)
class TestTheFirstSynchronisation:
    def test_no_handler_is_called_for_what_was_before(
        self, sandbox: ProviderSandbox, old: list[str], calls: list[tuple[str, str]]
    ) -> None:
        call_command("payments_reconcile", "--account", "default", "--full", stdout=io.StringIO())
        assert not calls
        assert Payment.objects.filter(status="succeeded").count() == len(old)
        assert Event.objects.filter(state="done", dispatched_at=None).count() == Event.objects.count() > 100
        assert_mirror_equals_provider(sandbox)
        state = AccountState.objects.get()
        assert state.first_contact_at is not None
        assert abs(state.first_contact_at - timezone.now()) < timedelta(minutes=5)
        assert state.first_synced_at is not None

    def test_what_comes_after_it_is_dispatched(
        self, sandbox: ProviderSandbox, old: list[str], calls: list[tuple[str, str]]
    ) -> None:
        call_command("payments_reconcile", "--account", "default", "--full", stdout=io.StringIO())
        new = make(sandbox, 0)
        pass_over(sandbox)
        assert ("payment.succeeded", new) in calls
        assert ("succeeded", new) in calls
        assert {object_id for _, object_id in calls} == {new}
        del calls[:]
        sandbox.engine.chargeback(old[-1])
        pass_over(sandbox)
        assert {(what, pk) for what, pk in calls} == {("payment.chargeback", old[-1])}

    def test_what_was_paid_after_the_contact_is_dispatched_before_the_synchronisation_is_complete(
        self, sandbox: ProviderSandbox, calls: list[tuple[str, str]]
    ) -> None:
        open_one = make(sandbox, 20, paid=False)
        at_present(sandbox)
        services.list_payment_methods()
        sandbox.engine.pay(open_one)
        reconciliation.reconcile_objects(full=True)
        assert calls == [("succeeded", open_one)]

    def test_an_object_of_an_own_operation_has_no_history(
        self, sandbox: ProviderSandbox, old: list[str], calls: list[tuple[str, str]]
    ) -> None:
        # As after a ledger was taken over from another installation.
        by_event, by_answer = old[-1], old[110]
        for number, payment_id in enumerate((by_event, by_answer)):
            Operation.objects.create(
                id=f"op_{number}", account="default", operation="create_payment", state="done", result_kind="payment",
                result_id=payment_id, idempotency_key=str(number),
            )  # fmt: skip
        call_command("payments_reconcile", "--account", "default", "--full", stdout=io.StringIO())
        assert ("succeeded", by_event) in calls
        assert ("payment.succeeded", by_event) in calls
        assert ("succeeded", by_answer) in calls
        assert {object_id for _, object_id in calls} == {by_event, by_answer}

    def test_a_refund_that_was_canceled_before_without_an_event_calls_nothing(
        self, sandbox: ProviderSandbox, calls: list[tuple[str, str]]
    ) -> None:
        payment_id = make(sandbox, 12)
        refund = sandbox.project.state.refunds.create(
            {"payment_id": payment_id, "amount": 100, "destination": None, "reason": None}
        )
        sandbox.engine.cancel_refund(refund["id"])
        at_present(sandbox)
        call_command("payments_reconcile", "--account", "default", "--full", stdout=io.StringIO())
        assert Refund.objects.get().status == "canceled"
        assert not calls

    def test_the_contact_is_the_time_of_the_signature_not_of_the_event(
        self, sandbox: ProviderSandbox, calls: list[Any]
    ) -> None:
        old = make(sandbox, 3)
        at_present(sandbox)
        response = Client().post("/payments/webhook/", data=b"{}", content_type="application/json")
        assert response.status_code == 400
        assert not AccountState.objects.exists()
        sandbox.engine.faults.clear()
        sandbox.engine.deliver_due()
        contact = AccountState.objects.get().first_contact_at
        assert contact is not None
        assert abs(contact - timezone.now()) < timedelta(minutes=5)
        inbox.process()
        inbox.dispatch()
        assert Payment.objects.get().pk == old
        assert not calls


@pytest.mark.case(156)
@pytest.mark.parametrize("left", ["runs", "events"])
def test_what_was_missed_before_the_state_was_lost_is_no_history(
    sandbox: ProviderSandbox, calls: list[tuple[str, str]], left: str
) -> None:
    """The site was away for five hours, and came back without this one row."""
    history = make(sandbox, 10)
    at_present(sandbox)
    pass_over(sandbox)
    installed = timezone.now() - timedelta(days=3)
    if left == "runs":
        Event.objects.all().delete()
        ReconciliationRun.objects.update(started_at=installed)
    else:
        ReconciliationRun.objects.all().delete()
        Event.objects.update(received_at=installed)
    missed = make(sandbox, 5 / 24)
    at_present(sandbox)
    projection.forget_contacts()
    pass_over(sandbox)
    assert {object_id for _, object_id in calls} == {missed}
    assert Payment.objects.filter(pk__in=(history, missed)).count() == 2


def dispatch_since(settings: Any, at: datetime | None) -> None:
    configured = getattr(settings, conf.NAME)
    accounts = {"default": {**configured["ACCOUNTS"]["default"], "DISPATCH_SINCE": at}}
    setattr(settings, conf.NAME, {**configured, "ACCOUNTS": accounts})


@pytest.mark.case(129)
class TestDispatchSince:
    def test_it_overrides_the_first_contact(
        self, sandbox: ProviderSandbox, settings: Any, calls: list[tuple[str, str]]
    ) -> None:
        before, after = make(sandbox, 10), make(sandbox, 8)
        by_list = make(sandbox, 50)
        at_present(sandbox)
        dispatch_since(settings, timezone.now() - timedelta(days=9))
        call_command("payments_reconcile", "--account", "default", "--full", stdout=io.StringIO())
        assert {object_id for _, object_id in calls} == {after}
        assert Payment.objects.filter(pk__in=(before, by_list)).count() == 2

    def test_it_holds_in_the_test_environment_too(
        self, sandbox: ProviderSandbox, settings: Any, calls: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(conf, "in_test_environment", lambda: True)
        make(sandbox, 2)
        at_present(sandbox)
        dispatch_since(settings, timezone.now())
        pass_over(sandbox)
        assert not calls

    def test_the_test_environment_dispatches_everything_by_default(
        self, sandbox: ProviderSandbox, calls: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(conf, "in_test_environment", lambda: True)
        payment_id = make(sandbox, 2)
        at_present(sandbox)
        pass_over(sandbox)
        assert ("succeeded", payment_id) in calls
        assert AccountState.objects.get().first_contact_at is None


@pytest.mark.case(129)
class TestDispatchHistory:
    @pytest.mark.parametrize("size", [1, 200])
    def test_it_dispatches_in_order_what_was_never_dispatched(
        self, sandbox: ProviderSandbox, calls: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, size: int
    ) -> None:
        monkeypatch.setattr(releasing, "_PAGE", size)
        monkeypatch.setattr(releasing, "_KEYS", size)
        listed, older, newer = make(sandbox, 33), make(sandbox, 20), make(sandbox, 5)
        at_present(sandbox)
        call_command("payments_reconcile", "--account", "default", "--full", stdout=io.StringIO())
        assert not calls
        since = (timezone.now() - timedelta(days=10)).isoformat()
        output = io.StringIO()
        call_command("payments_reconcile", "--account=default", "--dispatch-history", "--since", since, stdout=output)
        types = [event_type for event_type, object_id in calls if object_id == newer]
        assert types.index("payment.created") < types.index("payment.succeeded")
        assert {object_id for _, object_id in calls} == {newer}
        count = Event.objects.filter(object_id=newer).count()
        assert f"{count} events and changes since" in output.getvalue()
        assert f"{count} dispatched" in output.getvalue()
        del calls[:]
        since = (timezone.now() - timedelta(days=40)).isoformat()
        call_command("payments_reconcile", "--account=default", "--dispatch-history", "--since", since, stdout=output)
        assert {object_id for _, object_id in calls} == {listed, older}

    def test_what_no_receiver_wants_stays_done(self, sandbox: ProviderSandbox) -> None:
        make(sandbox, 5)
        at_present(sandbox)
        call_command("payments_reconcile", "--account", "default", "--full", stdout=io.StringIO())
        assert inbox.dispatch_history("default", timezone.now() - timedelta(days=10)) == 0
        assert set(Event.objects.values_list("state", flat=True)) == {"done"}

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            ([], "needs --since"),
            (["--since", "2026-01-01", "--full"], "--since and --account only"),
            (["--since", "2026-01-01", "--until", "2026-02-01"], "--since and --account only"),
        ],
    )
    def test_it_says_what_it_needs(self, words: list[str], says: str) -> None:
        with pytest.raises(CommandError, match=says):
            call_command("payments_reconcile", "--dispatch-history", *words)


def interrupted(monkeypatch: pytest.MonkeyPatch, *, after: int, error: type[BaseException]) -> Callable[[], None]:
    """The pass dies before it has compared the page of this number; returns how to repair that."""
    real, pages = objects._compare, []

    def compare(*args: Any) -> Any:
        pages.append(1)
        if len(pages) > after:
            raise error
        return real(*args)

    monkeypatch.setattr(objects, "_compare", compare)
    return lambda: monkeypatch.setattr(objects, "_compare", real)


@pytest.mark.case(129)
class TestInterrupted:
    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
    def test_the_same_command_resumes_at_the_page(
        self, sandbox: ProviderSandbox, old: list[str], monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
    ) -> None:
        repair = interrupted(monkeypatch, after=1, error=error)
        with pytest.raises(CommandError if error is KeyboardInterrupt else error) as raised:
            call_command("payments_reconcile", "--account", "default", "--full", stdout=io.StringIO())
        if error is KeyboardInterrupt:
            assert "goes on where it stopped" in str(raised.value)
            assert raised.value.returncode == 130
        repair()
        output = io.StringIO()
        call_command("payments_reconcile", "--account", "default", "--full", stdout=output)
        assert "resumed the full resync of" in output.getvalue()
        run = ReconciliationRun.objects.filter(kind="full").latest("pk")
        # The first page of a hundred was read by the first one.
        assert (run.state, run.seen) == ("done", len(old) - 100)
        assert_mirror_equals_provider(sandbox)
        state = AccountState.objects.get()
        assert (state.resync_list, state.resync_cursor, state.resync_begun_at) == ("", "", None)
        output = io.StringIO()
        call_command("payments_reconcile", "--account", "default", "--full", stdout=output)
        assert "resumed" not in output.getvalue()

    def test_what_the_first_part_confirmed_is_not_read_again(
        self, sandbox: ProviderSandbox, old: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        repair = interrupted(monkeypatch, after=1, error=KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            objects.resync("default")
        repair()
        gets = []
        monkeypatch.setattr(objects, "_request", lambda *args: gets.append(args))
        objects.resync("default")
        assert not gets

    def test_a_cursor_that_the_provider_does_not_know_starts_the_list_again(
        self, sandbox: ProviderSandbox, old: list[str]
    ) -> None:
        AccountState.objects.create(
            account="default", resync_begun_at=timezone.now(), resync_list="payment", resync_cursor="pay_unknown"
        )
        run = objects.resync("default")
        assert (run.state, run.seen) == ("done", len(old))

    def test_one_that_was_begun_long_ago_starts_again(self, sandbox: ProviderSandbox, old: list[str]) -> None:
        begun = timezone.now() - timedelta(days=2)
        AccountState.objects.create(
            account="default", resync_begun_at=begun, resync_list="payment", resync_cursor=old[3]
        )
        run = objects.resync("default")
        assert (run.state, run.seen, run.resumed) == ("done", len(old), "")

    def test_one_that_died_while_it_read_single_objects_reads_no_list_again(
        self, sandbox: ProviderSandbox, old: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(objects, "_repair", _die)
            with pytest.raises(KeyboardInterrupt):
                objects.resync("default")
        run = objects.resync("default")
        assert (run.state, run.pages) == ("done", 0)


def _die(*args: Any, **kwargs: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.case(129)
class TestProgress:
    def test_the_runs_row_shows_it(
        self, sandbox: ProviderSandbox, old: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(runs, "SAVE_SECONDS", 0.0)
        stored: list[int] = []

        def note(run: ReconciliationRun) -> None:
            stored.append(ReconciliationRun.objects.get(pk=run.pk).seen)

        objects.resync("default", progress=note)
        # The progress is shown before it is saved.
        assert stored[:3] == [0, 100, 200]

    def test_a_terminal_shows_rate_and_place(self, sandbox: ProviderSandbox, old: list[str]) -> None:
        terminal = io.StringIO()
        terminal.isatty = lambda: True  # type: ignore[method-assign]
        call_command(
            "payments_reconcile",
            "--account",
            "default",
            "--full",
            stdout=io.StringIO(),
            stderr=terminal,
            no_color=True,
        )
        assert re.search(r"default full: 100 objects, \d+/s, payments, back to \d{4}-\d\d-\d\d", terminal.getvalue())

    def test_elsewhere_it_is_a_line_a_minute(
        self, sandbox: ProviderSandbox, old: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from payments_integration.management import progress  # noqa: PLC0415

        quiet, spoken = io.StringIO(), io.StringIO()
        call_command("payments_reconcile", "--account", "default", "--full", stdout=io.StringIO(), stderr=quiet)
        assert not quiet.getvalue()
        monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
        call_command("payments_reconcile", "--account", "default", "--full", stdout=io.StringIO(), stderr=spoken)
        lines = spoken.getvalue().splitlines()
        assert len(lines) > 3
        assert all(line.startswith("default ") for line in lines)
        assert any("min left" in line for line in lines)

    def test_the_full_comparison_runs_once(self, sandbox: ProviderSandbox, old: list[str]) -> None:
        call_command("payments_reconcile", "--account", "default", "--full", stdout=io.StringIO())
        assert ReconciliationRun.objects.filter(kind="full").count() == 1


class TestInsertedInSets:
    def test_a_page_of_absent_objects_takes_few_statements(self, sandbox: ProviderSandbox, old: list[str]) -> None:
        with CaptureQueriesContext(connection) as queries:
            run = objects.resync("default")
        assert run.recovered == len(old)
        assert len(queries) < len(old)
        assert StatusChange.objects.filter(object_kind="payment").count() == len(old)

    def test_an_object_that_comes_meanwhile_leaves_the_others(
        self, sandbox: ProviderSandbox, old: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = projection.write_new

        def late(account: str, resources: Any, **options: Any) -> Any:
            projection.write_answer(account, resources[0], before=projection.ABSENT, **options)
            return real(account, resources, **options)

        monkeypatch.setattr(projection, "write_new", late)
        objects.resync("default")
        assert Payment.objects.count() == len(old)
        assert StatusChange.objects.filter(object_kind="payment").count() == len(old)
        assert_mirror_equals_provider(sandbox)

    def test_refunds_refresh_their_payments(self, sandbox: ProviderSandbox) -> None:
        payment_id = make(sandbox, 50)
        sandbox.project.state.refunds.create(
            {"payment_id": payment_id, "amount": 100, "destination": None, "reason": None}
        )
        at_present(sandbox)
        sandbox.engine.faults.add(Fault("html", operation="get_payment", times=1))
        objects.resync("default")
        assert Refund.objects.get().payment_id == payment_id
        assert Payment.objects.get().pk == payment_id


def test_the_first_contact_is_stored_once(sandbox: ProviderSandbox) -> None:
    services.list_payment_methods()
    first = AccountState.objects.get().first_contact_at
    assert first is not None
    sandbox.engine.clock.set_offset(300)
    projection.forget_contacts()
    services.list_payment_methods()
    pass_over(sandbox)
    assert AccountState.objects.get().first_contact_at == first


def test_a_wrong_date_is_no_contact(sandbox: ProviderSandbox) -> None:
    projection.note_contact("default", datetime.now(UTC) + timedelta(days=365))
    projection.note_contact("default", None)
    assert not AccountState.objects.filter(first_contact_at__isnull=False).exists()
