"""An instance that is older than its row does not set the row back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import models
from django.db.models.signals import pre_save
from django.utils import timezone

from payments_integration import services
from payments_integration.exceptions import StaleRow
from payments_integration.models import MIRRORS, EventState, Mirror, Operation, OperationState, Payment
from payments_integration.projection import erase_row
from tests.factories import rows
from tests.fake_provider import DEPOSIT, ENDPOINT, PAYMENT, PAYOUT, Fake, payment

pytestmark = pytest.mark.django_db


def written(row: models.Model, **values: Any) -> None:
    """The app writes the row, behind the back of the instance."""
    assert type(row).objects.filter(pk=row.pk).update(**values) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("model", MIRRORS.values(), ids=list(MIRRORS))
@pytest.mark.parametrize("options", [{}, {"update_fields": ["extra"]}], ids=["whole", "one field"])
def test_a_mirror_that_was_written_since_is_not_saved(model: type[Mirror], options: dict[str, Any]) -> None:
    row = rows.MAKERS[str(model._meta.model_name)]()
    written(row, version=row.version + 1, extra={"new": True})
    with pytest.raises(StaleRow, match=f"{type(row).__name__} {row.pk} was written since"):
        row.save(**options)
    assert type(row).objects.get().extra == {"new": True}


def test_a_mirror_that_is_as_new_as_its_row_is_saved() -> None:
    row = rows.payment()
    row.metadata = {"seen": "yes"}
    row.save()
    assert Payment.objects.get().metadata == {"seen": "yes"}


def test_a_copy_under_another_id_is_a_new_row() -> None:
    row = rows.payment()
    row.pk = "pay_copy"
    row.save()
    assert Payment.objects.count() == 2


def test_a_part_of_a_row_is_not_saved_over_a_newer_one() -> None:
    row = rows.payment(status="pending")
    part = Payment.objects.only("status", "version").get()
    written(row, version=2, status="succeeded")
    with pytest.raises(StaleRow):
        part.save()
    assert Payment.objects.get().status == "succeeded"


def test_an_instance_from_before_an_erasure_does_not_bring_the_personal_data_back() -> None:
    row = rows.payment(payer={"name": "Ana"})
    erase_row(row.account, row.kind, row.pk)
    with pytest.raises(StaleRow):
        row.save()
    assert not Payment.objects.get().payer


@pytest.mark.promise(5)
@pytest.mark.parametrize("written_since", [{"attempts": 1}, {"closed_at": timezone.now()}], ids=["sent", "closed"])
def test_an_operation_that_was_sent_does_not_become_due_again(written_since: dict[str, Any]) -> None:
    row = rows.operation(state=OperationState.DUE, attempts=0, closed_at=None)
    written(row, state=OperationState.DONE, **written_since)
    with pytest.raises(StaleRow):
        row.save()
    assert Operation.objects.get().state == OperationState.DONE


@pytest.mark.promise(2)
@pytest.mark.parametrize("make", [rows.event, rows.change])
def test_what_was_dispatched_does_not_wait_again(make: Callable[..., Any]) -> None:
    row = make(state=EventState.APPLIED, dispatched_at=None)
    written(row, state=EventState.DONE, dispatched_at=timezone.now())
    with pytest.raises(StaleRow):
        row.save()
    assert type(row).objects.get().state == EventState.DONE


@pytest.mark.django_db(transaction=True)
def test_a_project_that_cleans_every_row_before_it_is_saved_can_make_every_call(fake: Fake, mirrored: Any) -> None:
    """A receiver of every model's ``pre_save``, as some projects and packages have one."""

    def clean(sender: Any, instance: Any, **kwargs: Any) -> None:
        instance.full_clean()

    paid = mirrored(payment(status="succeeded", amount_received=10_000))
    calls: list[tuple[Callable[..., Any], dict[str, Any]]] = [
        (services.create_payment, PAYMENT),
        (services.create_payout, PAYOUT),
        (services.create_refund, {"payment": paid, "amount": 10}),
        (services.create_deposit_reference, DEPOSIT),
        (services.create_webhook_endpoint, ENDPOINT),
    ]
    pre_save.connect(clean)
    try:
        made = [call(**arguments) for call, arguments in calls]
    finally:
        pre_save.disconnect(clean)
    assert set(Operation.objects.values_list("state", flat=True)) == {"done"}
    for row in made:
        row.full_clean()
