"""One table of the app is lost, or restored from a backup alone: no handler hears again what it has heard."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from payments_integration import inbox, reconciliation
from payments_integration.contrib.backoffice.models import SearchTerm
from payments_integration.models import (
    AccountState,
    DueRefresh,
    Event,
    ObjectDispatch,
    Payment,
    ReconciliationRun,
    StatusChange,
    deletion_allowed,
)
from payments_integration.testing import ProviderSandbox
from tests import factories
from tests.conftest import Receiver
from tests.factories import body
from tests.integration.reconciling import pass_time, pay

pytestmark = [pytest.mark.django_db, pytest.mark.case(156), pytest.mark.usefixtures("search_terms")]


@pytest.fixture
def site(sandbox: ProviderSandbox, receiver: Receiver) -> ProviderSandbox:
    """Three payments of an hour ago, which handlers know."""
    for _ in range(3):
        pay(sandbox)
    pass_time(sandbox, hours=1)
    reconcile()
    assert [status for _, status in receiver.statuses].count("succeeded") == 3
    receiver.events.clear()
    receiver.statuses.clear()
    return sandbox


def reconcile() -> None:
    reconciliation.reconcile_events()
    reconciliation.process_due()
    AccountState.objects.update(swept_at=None)
    reconciliation.reconcile_objects(full=True)
    reconciliation.process_due()


def restored(older: dict[str, Any]) -> None:
    """The table of payments as it was two hours ago."""
    for row in Payment.objects.all():
        for name, value in older.items():
            setattr(row, name, value)
        row.state_at -= timedelta(hours=2)
        row.save()


LOSSES: dict[str, Any] = {
    "payments lost": lambda: Payment.objects.all().delete(),
    "payments restored": lambda: restored({"status": "processing"}),
    "payments restored as created": lambda: restored({"status": "created", "succeeded_at": None}),
    "events lost": lambda: Event.objects.all().delete(),
    "status changes lost": lambda: StatusChange.objects.all().delete(),
    "dispatch states lost": lambda: ObjectDispatch.objects.all().delete(),
    "account states lost": lambda: AccountState.objects.all().delete(),
    "refreshes lost": lambda: DueRefresh.objects.all().delete(),
    "search terms lost": lambda: SearchTerm.objects.all().delete(),
    "runs lost": lambda: ReconciliationRun.objects.all().delete(),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_no_handler_is_called_for_a_status_again(site: ProviderSandbox, receiver: Receiver, loss: str) -> None:
    with deletion_allowed():
        LOSSES[loss]()
    for _ in range(2):
        pass_time(site, minutes=30)
        reconcile()
    assert receiver.statuses == []
    assert set(Payment.objects.values_list("status", flat=True)) == {"succeeded"}
    assert Payment.objects.count() == 3


def test_a_full_pass_that_goes_on_does_not_fill_a_table_that_was_lost_since(site: ProviderSandbox) -> None:
    """The page says to repeat it until no line says that it resumed."""
    AccountState.objects.update(resync_begun_at=timezone.now(), resync_list="refund")
    with deletion_allowed():
        Payment.objects.all().delete()
    assert reconciliation.reconcile_objects(full=True).resumed
    assert not Payment.objects.exists()
    assert not reconciliation.reconcile_objects(full=True).resumed
    assert Payment.objects.count() == 3


def test_a_row_that_an_event_inserts_again_goes_on_from_its_last_status(receiver: Receiver) -> None:
    created, _, _, succeeded, chargeback = factories.life()
    for item in (created, succeeded):
        inbox.receive("default", body(item))
        inbox.process()
        inbox.dispatch()
    with deletion_allowed():
        Payment.objects.all().delete()
    inbox.receive("default", body(chargeback))
    inbox.process()
    inbox.dispatch()
    assert receiver.statuses == [("", "created"), ("created", "succeeded"), ("succeeded", "chargeback")]


def test_an_event_that_comes_again_is_not_dispatched_again(receiver: Receiver) -> None:
    for _ in range(2):
        for item in factories.life():
            inbox.receive("default", body(item))
            inbox.process()
            inbox.dispatch()
        assert len(receiver.events) == len(receiver.statuses) == 5
        Event.objects.all().delete()


def test_it_is_no_history_that_can_be_dispatched_after_all(receiver: Receiver) -> None:
    created = factories.life()[0]
    for _ in range(2):
        inbox.receive("default", body(created))
        inbox.process()
        inbox.dispatch()
        StatusChange.objects.get(dispatched_at__isnull=False)
        dispatched = Event.objects.filter(dispatched_at__isnull=False).delete()[0]
    assert not dispatched
    assert inbox.dispatch_history("default", factories.T0) == 0


def test_a_change_that_is_not_dispatched_yet_is_dispatched_once(receiver: Receiver) -> None:
    created, _, _, succeeded, _ = factories.life()
    inbox.receive("default", body(created))
    inbox.process()
    inbox.dispatch()
    inbox.receive("default", body(succeeded))
    inbox.process()
    with deletion_allowed():
        Payment.objects.all().delete()
    inbox.receive("default", body(factories.event(factories.payment(status="succeeded"), seconds=90, id="evt_later")))
    inbox.process()
    inbox.dispatch()
    assert receiver.statuses == [("", "created"), ("created", "succeeded")]
