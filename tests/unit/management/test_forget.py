"""``payments_forget``: every row of one alias, no row of another."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connection, models
from django.utils import timezone

from payments_integration import conf, reconciliation
from payments_integration.contrib.backoffice.models import SearchTerm
from payments_integration.models import (
    AccountState,
    Event,
    Operation,
    OperationState,
    Payment,
    Payout,
    Refund,
    WebhookEndpoint,
)
from payments_integration.reconciliation import forgetting
from payments_integration.reconciliation.renaming import models_with_account
from payments_integration.sync import project_keys
from tests.factories import rows

pytestmark = [pytest.mark.case(145), pytest.mark.django_db(transaction=True)]


TRUST = forgetting.TRUST


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "TRUST", timedelta())


def fill(account: str, *, is_test: bool | None = True) -> None:
    for maker in (*rows.MAKERS.values(), rows.objectdispatch, rows.due, rows.erasure):
        maker(account=account)
    balance = rows.balance(account=account, currency="USD")
    for _ in range(3):
        rows.balance_change(balance, available=1)
    rows.account_state(account=account, has_test_key=is_test, claim_token="", claimed_until=None)
    Operation.objects.filter(account=account).update(state=OperationState.DONE)


def counted(account: str) -> dict[str, int]:
    found = {
        model._meta.db_table: model._default_manager.filter(account=account).count() for model in models_with_account()
    }
    return {table: count for table, count in found.items() if count}


def forget(alias: str = "default", *arguments: str) -> str:
    out = io.StringIO()
    call_command("payments_forget", alias, "--no-input", *arguments, stdout=out, no_color=True)
    return out.getvalue()


def test_every_row_of_the_alias_and_none_of_another(search_terms: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "BATCH", 2)
    fill("default")
    fill("other")
    rows.refund(account="other", payment_id=Payment.objects.filter(account="default").first().pk)  # type: ignore[union-attr]
    here, there = counted("default"), counted("other")
    assert {"payments_integration_payment", "payments_finance_balancechange", "payments_backoffice_note"} <= {*here}
    assert reconciliation.count_rows("default") == here
    printed = forget()
    assert counted("default") == {}
    assert counted("other") == there
    assert {line for line in printed.splitlines() if " rows of " in line} == {
        f"{count} rows of {table}" for table, count in here.items()
    }
    assert "Nothing is left of default." in printed


def test_search_terms_go_with_their_rows(search_terms: None) -> None:
    from payments_integration.contrib.backoffice import index  # noqa: PLC0415

    for account in ("default", "other"):
        rows.payment(account=account, merchant_reference=f"order-{account}")
        index.rebuild(account)
        rows.account_state(account=account, claim_token="", claimed_until=None)
    stored = SearchTerm.objects.count()
    assert stored
    forget()
    assert SearchTerm.objects.count() == stored / 2
    assert set(SearchTerm.objects.values_list("object_id", flat=True)) == set(
        Payment.objects.values_list("pk", flat=True)
    )


@pytest.mark.parametrize("state", ["unknown", "due", "awaiting_approval", "needs_person"])
def test_money_under_way_is_not_forgotten(state: str) -> None:
    fill("default", is_test=False)
    operation = rows.operation(account="default", state=state)
    before = counted("default")
    with pytest.raises(CommandError, match=rf"not finished, such as {operation.pk}: money may be under way.*--force"):
        forget()
    assert counted("default") == before
    assert AccountState.objects.get().forgetting_since is None
    forget("default", "--force")
    assert counted("default") == {}


@pytest.mark.parametrize("force", [False, True])
def test_a_live_account_is_not_forgotten_to_be_filled_again(settings: Any, force: bool) -> None:
    """Without its ledger and its erasures."""
    fill("default", is_test=False)
    before = counted("default")
    settings.PAYMENTS_INTEGRATION = {
        "ACCOUNTS": {"default": {"BASE_URL": "https://a.example", "API_KEY": "sk_live_1"}}
    }
    AccountState.objects.update(key_hash=conf.key_hash("default"))
    if force:
        forget("default", "--force")
        assert counted("default") == {}
        return
    with pytest.raises(CommandError, match="has the live API_KEY that filled it"):
        forget()
    assert counted("default") == before
    settings.PAYMENTS_INTEGRATION = {
        "ACCOUNTS": {"default": {"BASE_URL": "https://a.example", "API_KEY": "sk_live_2"}}
    }
    forget()
    assert counted("default") == {}


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the command waits, in which nothing happens unless a test makes it happen."""
    found: list[float] = []
    monkeypatch.setattr(forgetting, "TRUST", TRUST)
    monkeypatch.setattr(forgetting, "time", SimpleNamespace(sleep=found.append, monotonic=time.monotonic))
    return found


def test_nothing_is_deleted_before_other_processes_have_seen_the_mark(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill("default", is_test=False)
    AccountState.objects.update(key_hash="")
    before = counted("default")
    seen = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        state = AccountState.objects.get(pk="default")
        seen.append((state.forgetting_since is not None, state.claim_token != "", counted("default") == before))

    monkeypatch.setattr(forgetting.time, "sleep", sleep)
    printed = forget()
    assert sum(slept) == TRUST.total_seconds() > project_keys._TRUST_SECONDS
    assert max(slept) < reconciliation.runs.PASS.length.total_seconds(), "the claim is renewed in between"
    assert set(seen) == {(True, True, True)}
    assert "Nothing is deleted for 65 seconds" in printed
    assert counted("default") == {}


def test_an_operation_that_is_recorded_after_the_mark_is_not_forgotten(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill("default", is_test=False)
    before = counted("default")
    made: list[Operation] = []

    def sleep(seconds: float) -> None:
        if not made:
            made.append(rows.operation(account="default", state="unknown"))

    monkeypatch.setattr(forgetting.time, "sleep", sleep)
    with pytest.raises(CommandError, match="Nothing was deleted: operations of default are not finished"):
        forget()
    table = Operation._meta.db_table
    assert counted("default") == {**before, table: before.get(table, 0) + 1}
    state = AccountState.objects.get(pk="default")
    assert (state.forgetting_since, state.claim_token, state.sweep_claim_token) == (None, "", ""), "it goes on"


def test_a_mark_that_every_process_has_seen_is_not_waited_for(slept: list[float]) -> None:
    fill("default")
    rows_of = AccountState.objects.filter(pk="default")
    rows_of.update(forgetting_since=timezone.now() - TRUST)
    assert "seconds" not in forget()
    assert slept == []
    assert counted("default") == {}


def test_rows_that_are_written_behind_the_page_go_too(monkeypatch: pytest.MonkeyPatch) -> None:
    fill("default")
    real, late = forgetting._delete_page, ["pay_0001", "pay_0000"]

    def delete_page(model: type[Any], account: str, page: list[Any]) -> int:
        count = real(model, account, page)
        if model is Payment and late:
            rows.payment(account="default", id=late.pop())
        return count

    monkeypatch.setattr(forgetting, "_delete_page", delete_page)
    assert "3 rows of payments_integration_payment" in forget()
    assert counted("default") == {}


def test_what_goes_on_writing_must_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    fill("default")
    real = forgetting._delete_page

    def delete_page(model: type[Any], account: str, page: list[Any]) -> int:
        count = real(model, account, page)
        if model is Payment:
            rows.payment(account="default", id="pay_0000")
        return count

    monkeypatch.setattr(forgetting, "_delete_page", delete_page)
    with pytest.raises(CommandError, match="Not everything was deleted: other processes still write rows of default"):
        forget()
    state = AccountState.objects.get(pk="default")
    assert (state.forgetting_since is None, state.claim_token) == (False, "")


# Rows of the merchant


class Hiding(models.Manager[Any]):
    """As of a project whose deleted rows stay in the table."""

    def get_queryset(self) -> models.QuerySet[Any]:
        return super().get_queryset().none()


@contextmanager
def parcels(*, base_manager_name: str = "objects", **fields: Any) -> Iterator[Any]:
    """A model of the merchant with these fields, and its table. Its manager ``visible`` hides every row."""
    before = {*apps.all_models["receivers"]}
    meta = type("Meta", (), {"app_label": "receivers", "base_manager_name": base_manager_name})
    fields = {"objects": models.Manager(), "visible": Hiding(), **fields}
    names = {"__module__": "shop.models", "__str__": lambda parcel: "", "Meta": meta, **fields}
    model: Any = type("Parcel", (models.Model,), names)
    with connection.schema_editor() as editor:
        editor.create_model(model)
    try:
        yield model
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(model)
        for name in {*apps.all_models["receivers"]} - before:
            del apps.all_models["receivers"][name]
        apps.clear_cache()


def payment_of(account: str) -> Payment:
    return Payment.objects.filter(account=account)[0]


@pytest.mark.parametrize("name", ["+", "parcels"])
@pytest.mark.parametrize(
    ("on_delete", "constraint"),
    [
        (models.CASCADE, False),
        (models.PROTECT, False),
        (models.RESTRICT, False),
        (models.DO_NOTHING, True),
    ],
)
def test_rows_of_the_merchant_stay(on_delete: Any, constraint: bool, name: str) -> None:
    key: Any = models.ForeignKey(Payment, on_delete, related_name=name, db_constraint=constraint)
    with parcels(payment=key, base_manager_name="visible") as model:
        fill("default")
        fill("other")
        before = counted("default")
        model.objects.create(payment=payment_of("other"))
        parcel = model.objects.create(payment=payment_of("default"))
        with pytest.raises(CommandError, match=r"Nothing was deleted: rows of receivers.Parcel refer .* \(payment\)"):
            forget()
        assert counted("default") == before
        assert model.objects.count() == 2
        parcel.delete()
        forget()
        assert counted("default") == {}
        model.objects.all().delete()


def test_rows_of_a_relation_to_many_stay() -> None:
    many: Any = models.ManyToManyField(Payment, related_name="+")
    with parcels(payments=many) as model:
        fill("default")
        parcel = model.objects.create()
        parcel.payments.add(payment_of("default"))
        with pytest.raises(CommandError, match=r"rows of receivers.Parcel_payments refer .* \(payment\)"):
            forget()
        assert parcel.payments.count() == 1
        parcel.payments.clear()
        forget()


@pytest.mark.parametrize(("on_delete", "left"), [(models.SET_NULL, None), (models.DO_NOTHING, "pay_of_the_parcel")])
def test_rows_that_need_no_payment_are_not_in_the_way(on_delete: Any, left: str | None) -> None:
    key: Any = models.ForeignKey(Payment, on_delete, null=True, related_name="+", db_constraint=False)
    with parcels(payment=key) as model:
        fill("default")
        parcel = model.objects.create(payment=rows.payment(account="default", id="pay_of_the_parcel"))
        forget()
        parcel.refresh_from_db()
        assert parcel.payment_id == left
        parcel.delete()


@pytest.mark.parametrize("on_delete", [models.PROTECT, models.RESTRICT])
def test_a_row_that_comes_in_between_is_named(on_delete: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    key: Any = models.ForeignKey(Payment, on_delete, related_name="+", db_constraint=False)
    with parcels(payment=key) as model:
        fill("default")
        model.objects.create(payment=payment_of("default"))
        monkeypatch.setattr(forgetting, "_refuse_relation", lambda *_: None)
        with pytest.raises(CommandError, match=r"Not everything was deleted: rows of receivers.Parcel refer to rows"):
            forget()
        assert not WebhookEndpoint.objects.filter(account="default").exists()
        assert AccountState.objects.get(pk="default").forgetting_since is not None
        model.objects.all().delete()


def test_a_test_project_has_no_money_under_way() -> None:
    fill("default", is_test=True)
    rows.operation(account="default", state="unknown")
    forget()
    assert counted("default") == {}


@pytest.mark.parametrize(
    ("key", "sent_to", "is_refused"),
    [("sk_live_1", None, True), ("sk_test_1", None, False), ("sk_test_1", "hash-of-the-live-key", True)],
)
def test_the_key_says_it_if_no_pass_has(settings: Any, key: str, sent_to: str | None, is_refused: bool) -> None:
    """Unless an open operation was recorded or sent with another key: that may have been a live one."""
    settings.PAYMENTS_INTEGRATION = {"ACCOUNTS": {"default": {"BASE_URL": "http://127.0.0.1:9", "API_KEY": key}}}
    rows.operation(account="default", state="done", sent_to="hash-of-the-live-key")
    rows.operation(account="default", state="unknown", sent_to=sent_to or conf.fingerprint("default"))
    if is_refused:
        with pytest.raises(CommandError, match="money may be under way"):
            forget()
    else:
        forget()
    assert Operation.objects.exists() is is_refused


def test_an_alias_that_has_no_rows_is_a_mistake() -> None:
    rows.payout(account="other")
    with pytest.raises(CommandError, match=r"No table has a row of default\. Accounts with rows: other\."):
        forget()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "is_deleted"), [("default", True), ("yes", False), ("", False)])
def test_the_alias_is_typed(monkeypatch: pytest.MonkeyPatch, typed: str, is_deleted: bool) -> None:
    fill("default")
    out = io.StringIO()
    monkeypatch.setattr("sys.stdin", Terminal(f"{typed}\n"))
    if is_deleted:
        call_command("payments_forget", "default", stdout=out, no_color=True)
    else:
        with pytest.raises(CommandError, match="Nothing was deleted"):
            call_command("payments_forget", "default", stdout=out, no_color=True)
    assert bool(counted("default")) is not is_deleted
    assert "1 rows of payments_integration_payment\n" in out.getvalue(), "counted before it asks"


def test_without_a_terminal_it_does_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    fill("default")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(CommandError, match="--no-input"):
        call_command("payments_forget", "default")
    assert counted("default")


def test_an_interrupted_run_leaves_an_account_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    fill("default")
    monkeypatch.setattr(conf, "in_test_environment", lambda: False)
    real, done = forgetting._delete_page, 0

    def delete_page(model: type[models.Model], account: str, keys: list[Any]) -> int:
        nonlocal done
        done += 1
        if done == 4:
            raise KeyboardInterrupt
        return real(model, account, keys)

    monkeypatch.setattr(forgetting, "_delete_page", delete_page)
    with pytest.raises(KeyboardInterrupt):
        forget()
    state = AccountState.objects.get()
    assert state.forgetting_since is not None
    assert state.claim_token == ""
    problem = reconciliation_problem()
    assert "payments_forget has begun" in problem
    forget()
    assert counted("default") == {}


def reconciliation_problem() -> str:
    from payments_integration import health  # noqa: PLC0415

    return health.examine("default").accounts["default"].statistics.key_replaced


def test_the_statements_are_bounded(django_assert_max_num_queries: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement reads or deletes a batch, however many rows there are of other accounts."""
    for _ in range(12):
        rows.payment(account="other")
    rows.payment(account="default")
    monkeypatch.setattr(forgetting, "BATCH", 5)
    from django.db import connection  # noqa: PLC0415
    from django.test.utils import CaptureQueriesContext  # noqa: PLC0415

    with CaptureQueriesContext(connection) as seen:
        assert [len(page) for page in forgetting._pages(Payment, "default")].count(1) == 1
    assert all("LIMIT 5" in query["sql"] for query in seen.captured_queries)
    assert len(seen.captured_queries) == 4


def test_unrelated_tables_are_named_once() -> None:
    """Every table with an account is reached, by the list that renaming uses."""
    assert {Payment, Payout, Refund, Event, Operation} <= {*forgetting._models()}
    assert AccountState not in forgetting._models()
    assert {*forgetting._models(), AccountState} == {*models_with_account()}
