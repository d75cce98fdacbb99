"""The provider's closed sets: literals for type checkers are what the app knows and what the sandbox sends."""

from __future__ import annotations

from typing import Any, get_args, get_overloads, get_type_hints

import pytest
from django.db.models import TextChoices

from payments_integration import enums, handlers
from payments_integration.models import MIRRORS
from payments_integration.sandbox import protocol


@pytest.mark.parametrize(
    ("literals", "choices"),
    [
        (enums.PaymentStatusName, enums.PaymentStatus),
        (enums.PayoutStatusName, enums.PayoutStatus),
        (enums.RefundStatusName, enums.RefundStatus),
        (enums.ActiveStatusName, enums.ActiveStatus),
        (enums.ActiveStatusName, enums.DepositReferenceStatus),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_literals_of_a_status_are_its_choices(literals: Any, choices: type[TextChoices]) -> None:
    assert list(get_args(literals)) == choices.values


def test_the_event_types_are_those_of_the_provider() -> None:
    assert enums.EVENT_TYPES == protocol.EVENT_TYPES
    assert len(set(enums.EVENT_TYPES)) == len(enums.EVENT_TYPES)


def test_the_event_types_of_a_kind_begin_with_its_name() -> None:
    for kind in ("payment", "payout", "refund", "balance"):
        literals = get_args(getattr(enums, f"{MIRRORS[kind].__name__}EventType"))
        assert literals == tuple(name for name in enums.EVENT_TYPES if name.startswith(f"{kind}."))


def test_there_is_a_pattern_for_each_kind_and_for_each_end_of_an_event_type() -> None:
    parts = [name.split(".") for name in enums.EVENT_TYPES]
    patterns = {"*", *(f"{kind}.*" for kind, _ in parts), *(f"*.{end}" for _, end in parts)}
    assert sorted(get_args(enums.EventPattern)) == sorted(patterns)


def test_on_status_has_an_overload_for_each_model_with_a_status() -> None:
    overloads = [get_type_hints(overload)["model"] for overload in get_overloads(handlers.on_status)]
    assert overloads == [type[model] for model in MIRRORS.values() if hasattr(model, "Status")]
