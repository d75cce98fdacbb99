"""GET into the mirror."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.test.utils import CaptureQueriesContext

from payments_integration import services
from payments_integration.exceptions import NoAnswer, NotFound
from payments_integration.models import Balance, Payment
from payments_integration.testing import ProviderSandbox
from tests.conftest import Receiver
from tests.fake_provider import MAKERS, Fake, payment, timeout


@pytest.mark.parametrize("kind", ["payment", "payout", "refund", "deposit_reference", "webhook_endpoint"])
def test_refresh_updates_and_returns_the_same_instance(fake: Fake, mirrored: Any, kind: str) -> None:
    row = mirrored(MAKERS[kind]())
    fake.objects[row.pk].status = "disabled"
    assert services.refresh(row) is row
    assert row.status == "disabled"


def test_refresh_of_an_id_returns_its_row(fake: Fake, mirrored: Any) -> None:
    made = fake.add(payment())
    row = services.refresh(made.id)
    assert isinstance(row, Payment)
    assert row.account == "default"
    other = mirrored(payment(), account="second")
    assert services.refresh(other.pk).account == "second"
    assert services.refresh(fake.add(payment()).id, account="second").account == "second"
    with pytest.raises(ValidationError):
        services.refresh("evt_1")


def test_refresh_marks_an_object_that_is_gone(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payment(), known=False)
    with pytest.raises(NotFound):
        services.refresh(row)
    row.refresh_from_db()
    assert row.gone_at is not None


def test_refresh_raises_no_answer(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payment())
    fake.read_script = [timeout()]
    with pytest.raises(NoAnswer):
        services.refresh(row)


@pytest.mark.parametrize("kind", ["payment", "payout", "refund", "deposit_reference"])
def test_only_a_read_that_brought_a_change_wakes(
    fake: Fake, mirrored: Any, woken: list[str], receiver: Receiver, kind: str
) -> None:
    row = mirrored(MAKERS[kind]())
    services.refresh(row)
    services.refresh(row.pk)
    assert woken == []
    fake.objects[row.pk].status = "disabled"
    services.refresh(row)
    assert woken == ["default"]
    services.refresh(fake.add(MAKERS[kind]()).id)
    assert woken == ["default"] * 2


def test_balances_are_read_and_refreshed_per_account(fake: Fake, woken: list[str]) -> None:
    (row,) = services.sync_balances()
    assert (row.currency, row.available, row.account) == ("CLP", 7, "default")
    assert services.refresh(row) is row
    services.sync_balances(account="second")
    assert Balance.objects.count() == 2
    assert woken == [], "a balance has no status that a handler waits for"
    gone = Balance.objects.get(account="second")
    gone.currency = "USD"
    with pytest.raises(NotFound):
        services.refresh(gone)


@pytest.mark.django_db
@pytest.mark.parametrize("obj", [5, None, "evt_1", object()])
def test_an_object_that_cannot_be_refreshed_is_refused(obj: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        services.refresh(obj)
    assert "obj" in caught.value.message_dict


@pytest.mark.django_db(transaction=True)
def test_a_read_of_the_balances_takes_seven_statements_however_many_there_are(
    payments_sandbox: ProviderSandbox,
) -> None:
    """BEGIN and COMMIT left out."""
    taken = []
    for currency in ("CLP", "USD", "PEN"):
        payments_sandbox.engine.fund(currency, 1000)
        services.sync_balances()
        with CaptureQueriesContext(connection) as queries:
            services.sync_balances()
        made = [query["sql"] for query in queries if query["sql"].startswith(("SELECT", "INSERT", "UPDATE", "DELETE"))]
        taken.append(len(made))
    assert max(taken) == min(taken) <= 7
