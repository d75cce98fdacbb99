"""Errors arrive whole in another process: by pickle, as from a process pool, and as a result of Celery."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery
from celery.backends.base import Backend

from payments_integration import exceptions
from payments_integration.exceptions import (
    ApprovalRequired,
    InvalidState,
    NoAnswer,
    OperationClosed,
    OutcomeUnknown,
    PaymentsError,
    provider_error,
)
from payments_integration.models import Operation
from tests.factories import rows

pytestmark = [pytest.mark.django_db, pytest.mark.promise(5)]

MAKE: dict[str, Callable[[Operation], PaymentsError]] = {
    "OutcomeUnknown": lambda operation: OutcomeUnknown(operation, NoAnswer("The provider was silent.")),
    "ApprovalRequired": ApprovalRequired,
    "OperationClosed": lambda operation: OperationClosed(operation, "a person closed it"),
}


def by_celery(error: Any) -> Any:
    """As ``AsyncResult.get`` raises it, with Celery's default of JSON."""
    backend = Backend(Celery(set_as_current=False))
    return backend.exception_to_python(backend.decode(backend.encode(backend.prepare_exception(error))))


WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "celery": by_celery,
}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))


def test_every_error_about_an_operation_is_tried() -> None:
    named = {name for name, cls in vars(exceptions).items() if hasattr(cls, "operation") and not name.startswith("_")}
    assert named == set(MAKE)


@each_way
@pytest.mark.parametrize("make", MAKE.values(), ids=list(MAKE))
def test_an_error_about_an_operation_keeps_its_class_and_its_operation(
    make: Callable[[Operation], PaymentsError], way: Callable[[Any], Any]
) -> None:
    operation = rows.operation(arguments={"payer": "Ana Rojas"})
    error = make(operation)
    found = way(error)
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert found.operation == operation


@pytest.mark.parametrize("make", MAKE.values(), ids=list(MAKE))
def test_a_copy_carries_no_data_of_the_operation(make: Callable[[Operation], PaymentsError]) -> None:
    error = make(rows.operation(arguments={"payer": "Ana Rojas"}))
    assert b"Ana Rojas" not in pickle.dumps(error)
    assert "Ana Rojas" not in repr(error)


@each_way
def test_a_refusal_keeps_its_class_and_its_code(way: Callable[[Any], Any]) -> None:
    fields = {
        "type": "invalid_state_error", "status_code": 409, "code": "already_paid", "message": "It is paid.",
        "param": "amount", "request_id": "req_1",
    }  # fmt: skip
    found = way(provider_error(fields))
    assert type(found) is InvalidState
    assert found.fields() == fields
    assert str(found) == "already_paid (HTTP 409, param amount, request req_1): It is paid."


@each_way
def test_a_refusal_of_an_unknown_type_keeps_it(way: Callable[[Any], Any]) -> None:
    found = way(provider_error({"type": "new_error", "status_code": 418, "code": "tea", "message": "No."}))
    assert (type(found).__name__, found.type, found.status_code) == ("ApiError", "new_error", 418)
