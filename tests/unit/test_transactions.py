"""Transactions that are repeated."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, OperationalError, transaction

from payments_integration.transactions import ATTEMPTS, is_transient, repeatable
from tests.receivers.models import Told


class Cause(Exception):
    def __init__(self, *args: object, sqlstate: str | None = None) -> None:
        super().__init__(*args)
        self.sqlstate = sqlstate


def error(*args: object, sqlstate: str | None = None, text: str = "") -> OperationalError:
    result = OperationalError(text)
    result.__cause__ = Cause(*args, sqlstate=sqlstate)
    return result


@pytest.mark.case(38)
@pytest.mark.parametrize(
    ("raised", "transient"),
    [
        (error(1213, "deadlock"), True),
        (error(1205, "lock wait timeout"), True),
        (error(1045, "access denied"), False),
        (error(sqlstate="40P01"), True),
        (error(sqlstate="40001"), True),
        (error(sqlstate="53100"), False),
        (error(text="database is locked"), True),
        (error(text="disk I/O error"), False),
        (OperationalError("no cause"), False),
    ],
)
def test_which_errors_ask_for_another_try(raised: OperationalError, transient: bool) -> None:
    assert is_transient(raised) is transient


@pytest.mark.django_db(transaction=True)
@pytest.mark.case(35)
@pytest.mark.case(39)
def test_the_whole_transaction_is_rolled_back_and_repeated() -> None:
    tries: list[int] = []

    def work() -> str:
        tries.append(1)
        Told.objects.create(what="try", object_id=str(len(tries)))
        if len(tries) < 3:
            raise error(1213, "deadlock")
        return "done"

    assert repeatable(work, using="default") == "done"
    assert [told.object_id for told in Told.objects.all()] == ["3"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("raised", "times"), [(IntegrityError(), ATTEMPTS), (error(text="disk full"), 1)])
def test_it_gives_up_in_the_end(raised: Exception, times: int) -> None:
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        raise raised

    with pytest.raises(type(raised)):
        repeatable(work, using="default")
    assert len(tries) == times


@pytest.mark.django_db
def test_within_another_transaction_it_runs_once() -> None:
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        raise error(1213, "deadlock")

    with pytest.raises(OperationalError), transaction.atomic():
        repeatable(work, using="default")
    assert tries == [1]
