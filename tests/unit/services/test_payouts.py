"""Whether the balance covers a payout, as far as anybody can know before."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import transaction

from payments_integration import services
from payments_integration.exceptions import InvalidState, NoAnswer, TransactionRefused
from payments_integration.models import Balance, Operation, OperationState, Payout
from tests.fake_provider import PAYOUT, Fake, only_operation, refusal, timeout


@pytest.fixture
def known(fake: Fake) -> Fake:
    """The mirror has a balance of 6,000."""
    fake.available = 6_000
    services.sync_balances()
    fake.reads.clear()
    return fake


def test_a_payout_that_the_balance_covers_is_sent_without_reading_it(known: Fake) -> None:
    assert isinstance(services.create_payout(**{**PAYOUT, "amount": 6_000}), Payout)
    assert known.reads == []


def test_a_payout_over_the_balance_is_refused_with_the_figures(known: Fake) -> None:
    with pytest.raises(ValidationError) as caught:
        services.create_payout(**{**PAYOUT, "amount": 6_001})
    (message,) = caught.value.message_dict["amount"]
    assert "6,000" in message
    assert "hold CLP\xa030" in message
    assert caught.value.error_dict["amount"][0].code == "insufficient_balance"
    assert known.reads == ["list balances"], "once more, before it is refused"
    assert known.calls == []
    assert not Operation.objects.exists()


def test_a_payout_is_refused_while_there_is_a_debt(known: Fake) -> None:
    known.debt = 20
    services.sync_balances()
    known.reads.clear()
    with pytest.raises(ValidationError, match=r"a debt \(CLP\\xa020\)\. Available: CLP\\xa06,000"):
        services.create_payout(**{**PAYOUT, "amount": 1})
    assert known.reads == ["list balances"]
    assert known.calls == []


def test_a_debt_that_is_paid_does_not_refuse_a_payout(known: Fake) -> None:
    known.debt = 20
    services.sync_balances()
    known.debt = 0
    assert services.create_payout(**{**PAYOUT, "amount": 1})


def test_an_old_balance_is_read_again_before_a_payout_is_refused(known: Fake) -> None:
    known.available = 7_000
    assert services.create_payout(**{**PAYOUT, "amount": 6_500})
    assert known.reads == ["list balances"]


def test_no_payout_is_sent_if_the_balance_cannot_be_read_again(known: Fake) -> None:
    known.read_script = [timeout()]
    with pytest.raises(NoAnswer):
        services.create_payout(**{**PAYOUT, "amount": 6_500})
    assert not Operation.objects.exists()


@pytest.mark.parametrize("change", [{"account": "second"}, {"currency": "PEN"}])
def test_the_provider_decides_about_a_payout_without_a_mirrored_balance(known: Fake, change: dict[str, Any]) -> None:
    known.script = [refusal(InvalidState, 422, "insufficient_balance")]
    with pytest.raises(InvalidState):
        services.create_payout(**{**PAYOUT, "amount": 6_500, **change})


@pytest.mark.parametrize("within", [False, True])
def test_the_provider_decides_about_a_deferred_payout(
    known: Fake, within: bool, django_capture_on_commit_callbacks: Any
) -> None:
    given = {**PAYOUT, "amount": 6_500}
    if within:
        with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
            services.defer(services.create_payout, **given)
    else:
        services.defer(services.create_payout, **given)
    assert only_operation().state == OperationState.DONE
    assert known.reads == []


def test_a_repeated_key_is_answered_without_checking_the_balance(known: Fake) -> None:
    first = services.create_payout(**PAYOUT, idempotency_key="k1")
    known.available = 0
    services.sync_balances()
    assert services.create_payout(**PAYOUT, idempotency_key="k1") == first


def test_payout_cover_reads_the_balance_at_the_provider(known: Fake, woken: list[str]) -> None:
    woken.clear()
    known.available = 1_000
    cover = services.payout_cover("CLP")
    assert cover is not None
    assert (cover.available, cover.hold, cover.debt) == (1_000, 30, 0)
    assert Balance.objects.get().available == 1_000
    assert woken == []
    assert services.payout_cover("USD") is None
    known.available = None
    assert services.payout_cover("CLP", account="second") is None


def test_payout_cover_of_an_unknown_currency_is_refused(known: Fake) -> None:
    with pytest.raises(ValidationError) as caught:
        services.payout_cover("EUR")
    assert list(caught.value.message_dict) == ["currency"]
    with transaction.atomic(), pytest.raises(TransactionRefused):
        services.payout_cover("CLP")
    assert known.reads == []
