"""Claims: one worker at a time has a row."""

from __future__ import annotations

from datetime import timedelta

import pytest
import time_machine
from django.utils import timezone

from payments_integration.db.claims import ClaimLost, Claims
from payments_integration.models import AccountState
from tests.factories import rows

pytestmark = pytest.mark.django_db

CLAIMS = Claims(timedelta(seconds=30), prefix="sweep_")
STATE = AccountState.objects.filter(pk="default")


@pytest.fixture(autouse=True)
def state() -> None:
    rows.account_state(account="default")


def test_a_row_is_free_when_it_is_released_or_the_claim_has_ended() -> None:
    with time_machine.travel(timezone.now(), tick=False) as clock:
        first = CLAIMS.take(STATE)
        assert first is not None
        assert CLAIMS.take(STATE) is None
        clock.shift(29)
        first.renew()
        clock.shift(29)
        assert CLAIMS.take(STATE) is None
        clock.shift(1)
        second = CLAIMS.take(STATE)
        assert second is not None
        second.release()
        assert CLAIMS.take(STATE) is not None


def test_a_claim_that_was_taken_while_a_clock_was_ahead_has_ended() -> None:
    with time_machine.travel(timezone.now() + timedelta(hours=1)):
        assert CLAIMS.take(STATE)
    assert CLAIMS.take(STATE)


def test_values_are_written_with_the_claim_and_under_it_alone() -> None:
    held = CLAIMS.take(STATE, cursor="a")
    assert held is not None
    assert STATE.get().cursor == "a"
    held.write(cursor="b")
    other = CLAIMS.seize(STATE)
    for write in (held.write, held.release):
        with pytest.raises(ClaimLost):
            write(cursor="c")
    with held:
        pass
    assert (STATE.get().cursor, STATE.get().sweep_claim_token) == ("b", other.token)
    with other:
        pass
    assert (STATE.get().sweep_claim_token, STATE.get().sweep_claimed_until) == ("", None)


def test_claims_with_other_columns_are_others() -> None:
    assert CLAIMS.take(STATE)
    assert Claims(timedelta(seconds=15)).take(STATE)
