"""An attempt is canceled for its payer, or the caller learns what is wrong with the call."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError

from payments_integration.checkout import cancel_attempt, close_attempts
from payments_integration.models import Operation
from tests.fake_provider import Fake, payment

pytestmark = pytest.mark.any_database


def test_a_double_click_cancels_once(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payment(status="requires_action"))
    assert cancel_attempt(row, "form-1")
    assert cancel_attempt(row, "form-1")
    assert [call.name for call in fake.calls] == ["cancel_payment"]


def test_what_has_ended_meanwhile_is_nothing_to_cancel(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payment(status="requires_action"))
    type(row).objects.update(status="succeeded")
    fake.objects[row.pk].status = "succeeded"
    assert not cancel_attempt(row, "form-1")
    close_attempts([row])
    assert not Operation.objects.exists()


@pytest.mark.parametrize("wrong", [{"submission": ""}, {"submission": None}, {"actor": 7}], ids=str)
def test_a_mistake_in_the_call_is_not_an_attempt_that_has_ended(fake: Fake, mirrored: Any, wrong: Any) -> None:
    """The payer would read that nothing can be canceled, and could still pay."""
    row = mirrored(payment(status="requires_action"))
    with pytest.raises(ValidationError):
        cancel_attempt(row, **{"submission": "form-1", **wrong})
    if "actor" in wrong:
        with pytest.raises(ValidationError):
            close_attempts([row], **wrong)
