"""``payments_rename_account``, and how a renamed alias shows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from payments_integration import health, inbox, services
from payments_integration.checks import check_accounts
from payments_integration.exceptions import IdempotencyMismatch, OutcomeUnknown, RateLimited
from payments_integration.models import (
    AccountState,
    DueRefresh,
    Event,
    EventState,
    ObjectDispatch,
    Operation,
    OperationState,
    Payout,
    ReconciliationRun,
    RunState,
    deletion_allowed,
)
from payments_integration.reconciliation import renaming
from payments_integration.signals import Reason
from tests import factories
from tests.factories import rows
from tests.fake_provider import PAYOUT, Fake, Lost, refusal, timeout
from tests.unit.payable.payables import Sale

pytestmark = [pytest.mark.case(154), pytest.mark.django_db]
OLD = {"BASE_URL": "http://127.0.0.1:9"}
KEYS = {"other": "sk_test_other"}


@pytest.fixture
def named(settings: Any) -> Any:
    """Name the accounts of the setting; they all have the same address and key, but ``other``."""

    def name(*aliases: str) -> None:
        accounts = {alias: {**OLD, "API_KEY": KEYS.get(alias, "sk_test_renamed")} for alias in aliases}
        settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": accounts}

    return name


def rename(old: str = "old", new: str = "new") -> None:
    call_command("payments_rename_account", old, new)


def test_every_table_is_renamed(named: Any, capsys: pytest.CaptureFixture[str]) -> None:
    named("new", "other")
    makers = [*rows.MAKERS.values(), rows.account_state, rows.objectdispatch, rows.due, rows.erasure]
    for maker in makers:
        try:
            maker(account="old")
        except TypeError:
            maker()  # no account column
    rows.payout(account="other")
    AccountState.objects.update(claim_token="")
    ObjectDispatch.objects.update(claim_token="")
    ReconciliationRun.objects.update(state=RunState.DONE)
    before = {model: model._default_manager.filter(account="old").count() for model in renaming.models_with_account()}
    rename()
    printed = capsys.readouterr().out
    for model, count in before.items():
        assert not model._default_manager.filter(account="old").exists(), model
        assert model._default_manager.filter(account="new").count() == count, model
        assert (f"{count} rows of {model._meta.db_table}\n" in printed) is bool(count)
    assert {"Payment", "Event", "Operation", "AccountState", "Movement"} <= {
        model.__name__ for model, count in before.items() if count or model.__name__ == "Movement"
    }
    assert Payout.objects.filter(account="other").count() == 1
    assert "The account old is called new now." in printed


def test_models_that_still_name_the_old_alias_are_named(named: Any, capsys: pytest.CaptureFixture[str]) -> None:
    named("new")
    rows.payout(account="old")
    with mock.patch.object(Sale, "payments_account", "old"):
        rename()
    assert f"{Sale._meta.label} still belongs to old: set its payments_account to new." in capsys.readouterr().out


def test_models_with_the_alias_in_a_column_are_named(named: Any, capsys: pytest.CaptureFixture[str]) -> None:
    named("new")
    rows.payout(account="old")
    with mock.patch.multiple(Sale, payments_account="old", payments_account_field="shop"):
        rename()
    printed = capsys.readouterr().out
    assert f"If rows of {Sale._meta.label} have old in shop, set it to new." in printed
    assert "set its payments_account" not in printed


@pytest.mark.parametrize(
    ("aliases", "words"),
    [(("other",), "new is not configured"), (("new", "other", "old"), "old is still configured")],
)
def test_the_setting_comes_first(settings: Any, aliases: tuple[str, ...], words: str) -> None:
    settings.PAYMENTS_INTEGRATION = {"ACCOUNTS": {alias: {**OLD, "API_KEY": f"sk_test_{alias}"} for alias in aliases}}
    rows.payout(account="old")
    with pytest.raises(CommandError, match=words) as caught:
        rename()
    assert caught.value.returncode == 2
    assert Payout.objects.get().account == "old"


@pytest.mark.parametrize("table", ["payout", "operation", "event", "account_state", "note"])
def test_a_name_that_is_taken_is_refused(named: Any, table: str) -> None:
    named("new")
    rows.payout(account="old")
    rows.event(account="old")
    getattr(rows, table)(account="new")
    with pytest.raises(
        CommandError,
        match=r"under each alias: old has 0 operations and 1 events, new has . operations and . events\."
        " First set DISPATCH_SINCE of the account",
    ) as caught:
        rename()
    assert caught.value.returncode == 1
    assert Payout.objects.filter(account="old").count() == 1


def test_a_name_without_rows_is_a_mistake(named: Any) -> None:
    named("new")
    with pytest.raises(CommandError, match="no table has a row of old; if it was renamed before") as caught:
        rename()
    assert caught.value.returncode == 2


@pytest.mark.parametrize("busy", ["state", "sweep", "operation", "dispatch", "refresh", "run"])
def test_a_process_at_work_is_not_disturbed(named: Any, busy: str) -> None:
    named("new")
    later, now = timezone.now() + timedelta(seconds=10), timezone.now()
    if busy == "state":
        rows.account_state(account="old", claimed_until=later)
    elif busy == "sweep":
        rows.account_state(account="old", sweep_claimed_until=later)
    elif busy == "refresh":
        rows.due(account="old", claimed_until=later, claim_token="x")
    elif busy == "operation":
        rows.operation(account="old", claimed_until=later, claim_token="x")
    elif busy == "dispatch":
        rows.objectdispatch(account="old", claimed_until=later, claim_token="x")
    else:
        rows.run(account="old", state=RunState.RUNNING, started_at=now - timedelta(minutes=1))
    with pytest.raises(CommandError, match="a process works on old now"):
        rename()
    AccountState.objects.update(claimed_until=now, sweep_claimed_until=now)
    DueRefresh.objects.update(claimed_until=now)
    Operation.objects.update(claimed_until=now)
    ObjectDispatch.objects.update(claimed_until=now)
    ReconciliationRun.objects.update(started_at=now - timedelta(hours=1))
    rename()


def test_endpoints_that_name_the_old_alias_are_listed(named: Any, capsys: pytest.CaptureFixture[str]) -> None:
    named("new")
    made = rows.endpoint(account="old", url="https://shop.example/payments/webhook/old/")
    rows.endpoint(account="old", url="https://shop.example/payments/webhook/older/")
    rename()
    assert f"{made.pk} still delivers to https://shop.example/payments/webhook/old/" in capsys.readouterr().out


class TestAStranger:
    """What happens between the change of the setting and the command."""

    @pytest.mark.promise(5)
    @pytest.mark.parametrize("outcome", ["done", "unknown", "due"])
    def test_a_key_of_the_old_alias_sends_nothing(self, fake: Fake, named: Any, outcome: str) -> None:
        named("old")
        call = {**PAYOUT, "idempotency_key": "invoice-1"}
        if outcome == "due":
            fake.script = [refusal(RateLimited, 429, "rate_limited")]
            services.defer(services.create_payout, **call, account="old")
        elif outcome == "unknown":
            fake.script = [Lost(timeout())]
            with pytest.raises(OutcomeUnknown):
                services.create_payout(**call, account="old")
        else:
            services.create_payout(**call, account="old")
        sent = len(fake.calls)
        named("new", "other")
        for function in (services.create_payout, lambda **given: services.defer(services.create_payout, **given)):
            with pytest.raises(IdempotencyMismatch, match="payments_rename_account old new"):
                function(**call, account="new")
        assert len(fake.calls) == sent
        kept = dict(fake.keys)
        fake.keys.clear()  # the provider keeps them by account
        services.create_payout(**call, account="other")
        fake.keys = kept
        assert len(fake.calls) == sent + 1
        with deletion_allowed():
            Operation.objects.filter(account="other").delete()
        rename()
        if outcome == "done":
            assert services.create_payout(**call, account="new").account == "new"
        else:
            with pytest.raises(OutcomeUnknown):
                services.create_payout(**call, account="new")
            Operation.objects.update(next_attempt_at=None, claimed_until=None)
            assert services.resume_operations("new") == {"done": 1}
        assert len(fake.made("payout")) == 2

    def test_a_key_of_another_account_is_free(self, fake: Fake, named: Any) -> None:
        named("old", "other")
        services.create_payout(**PAYOUT, idempotency_key="invoice-1", account="old")
        fake.keys.clear()  # the provider keeps them by account
        services.create_payout(**PAYOUT, idempotency_key="invoice-1", account="other")
        assert len(fake.calls) == 2
        rows.operation(
            account="gone", idempotency_key="invoice-2", state=OperationState.CLOSED, sent_to="", may_have_run=False
        )
        services.create_payout(**PAYOUT, idempotency_key="invoice-2", account="other")

    def test_an_event_finds_its_object_after_the_rename(self, named: Any) -> None:
        named("new")
        made = rows.payout(account="old", status="created")
        rename()
        event = factories.event(factories.payout(id=made.pk, status="paid"), seconds=10**9)
        inbox.receive("new", factories.body(event))
        inbox.process()
        assert Event.objects.get().state != EventState.QUARANTINED
        assert Event.objects.get().account == "new"

    def test_a_check_reports_it(self, named: Any) -> None:
        named("old", "other")
        rows.operation(account="old")
        rows.payout(account="other")
        AccountState.objects.create(account="closed")
        assert [error.id for error in check_accounts(databases=["default"])] == ["payments_integration.E019"]
        AccountState.objects.all().delete()
        assert check_accounts(databases=["default"]) == []
        named("new", "other")
        (error,) = check_accounts(databases=["default"])
        assert "not configured: old." in error.msg
        assert "payments_rename_account" in str(error.hint)
        assert check_accounts() == []
        named("old!")
        assert check_accounts(databases=["default"]) == [], "the setting is wrong, which another check reports"

    def test_without_its_table_a_check_reports_nothing(self, named: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """As before ``migrate``, which runs the check, when an optional app has kept its rows."""
        named("old", "other")
        rows.payout(account="gone")
        assert check_accounts(databases=["default"])
        monkeypatch.setattr(AccountState._meta, "db_table", "payments_integration_not_there")
        assert check_accounts(databases=["default"]) == []

    def test_health_names_the_command(self, fake: Fake, named: Any) -> None:
        named("old", "other")
        services.create_payout(**PAYOUT, account="old")
        AccountState.objects.create(account="old")
        named("new", "other")
        (problem,) = health.examine().problems
        assert problem.code == Reason.REMOVED_ACCOUNT
        assert problem.message.endswith("run payments_rename_account old new")
        rename()
        assert health.examine().problems == []
