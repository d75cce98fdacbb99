"""The journal's files as beancount and hledger read them.

    python -m pytest tests/systems/bookkeeping

Not part of ``make test``: it needs the extra ``bookkeeping``, and hledger.
"""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.core.management import call_command
from hypothesis import HealthCheck, given, settings, strategies as st

from payments_integration import signals
from payments_integration.contrib.finance.apps import record
from payments_integration.contrib.finance.journal import Period, statements
from payments_integration.contrib.finance.models import Movement, MovementKind
from payments_integration.money import INT64_MAX, to_major
from payments_integration.testing import ProviderSandbox
from tests.integration.bookkeeping import BEFORE, MONTH, trade

pytestmark = pytest.mark.django_db

BEAN_CHECK = Path(sys.executable).with_name("bean-check")


def written(period: Period, name: str) -> str:
    out = io.StringIO()
    call_command(
        "payments_journal", since=period.since, until=period.until, format=name, stdout=out, stderr=io.StringIO()
    )
    return out.getvalue()


def accepted(command: list[str | Path], file: Path) -> str:
    """What the program prints. It fails the test with the program's complaint."""
    ended = subprocess.run([*command, file], capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def check_all(period: Period, folder: Path) -> None:
    """Both programs accept the files, and have the sums of the statements."""
    beancount, hledger = folder / "journal.beancount", folder / "journal.journal"
    beancount.write_text(written(period, "beancount"))
    hledger.write_text(written(period, "hledger"))
    accepted([BEAN_CHECK], beancount)
    accepted(["hledger", "check", "--strict", "-f"], hledger)
    expected = {
        f"Assets:Payments:{item.account.capitalize()}:{item.currency}": to_major(item.total, item.currency)
        for item in statements(period)
        if item.total
    }
    assert assets_in_hledger(hledger) == expected
    assert assets_in_beancount(beancount) == expected


def assets_in_hledger(file: Path) -> dict[str, Decimal]:
    text = accepted(["hledger", "balance", "--flat", "--no-total", "-O", "csv", "Assets", "-f"], file)
    return {name: Decimal(amount.split()[0]) for name, amount in list(csv.reader(io.StringIO(text)))[1:]}


def assets_in_beancount(file: Path) -> dict[str, Decimal]:
    from beancount import loader  # noqa: PLC0415  (of the extra)
    from beancount.core.data import Transaction  # noqa: PLC0415

    entries, errors, _ = loader.load_file(str(file))
    assert not errors
    sums: dict[str, Decimal] = {}
    for entry in entries:
        for posting in entry.postings if isinstance(entry, Transaction) else ():
            if posting.account.startswith("Assets"):
                sums[posting.account] = sums.get(posting.account, Decimal()) + posting.units.number
    return {name: amount for name, amount in sums.items() if amount}


@pytest.fixture
def month(_no_optional_apps: None, woken: list[str]) -> Iterator[ProviderSandbox]:
    """A month of business with the sandbox, booked."""
    signals.on_mirror_written(record)
    with time_machine.travel(BEFORE) as clock, ProviderSandbox() as sandbox:
        trade(sandbox, clock)
        yield sandbox


def test_both_accept_a_month_of_business(month: ProviderSandbox, tmp_path: Path) -> None:
    assert Movement.objects.count() > 10
    check_all(MONTH, tmp_path)


def test_both_accept_an_empty_month(tmp_path: Path) -> None:
    check_all(MONTH, tmp_path)


def test_a_wrong_file_is_not_accepted(month: ProviderSandbox, tmp_path: Path) -> None:
    """The checks above can fail."""
    for name, command in (("beancount", [BEAN_CHECK]), ("hledger", ["hledger", "check", "--strict", "-f"])):
        file = tmp_path / f"wrong.{name}"
        file.write_text(written(MONTH, name).replace("10000 CLP", "10001 CLP", 1))
        with pytest.raises(AssertionError, match="balance"):
            accepted(command, file)


DAYS = st.dates(date(2026, 3, 1), date(2026, 3, 31))
MOVEMENTS: Any = st.fixed_dictionaries(
    {
        "account": st.sampled_from(["default", "second", "2nd"]),
        "kind": st.sampled_from(MovementKind.values),
        "currency": st.sampled_from(["CLP", "BRL", "USD"]),
        "amount": st.integers(-INT64_MAX, INT64_MAX).filter(bool),
        "object_id": st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=20),
        "booked_on": DAYS,
        "days_before": st.sampled_from([0, 0, 40]),
    }
)


@given(found=st.lists(MOVEMENTS, max_size=8))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_accept_any_movements(found: list[dict[str, Any]], tmp_path: Path) -> None:
    """Ids are any printable ASCII: quotes, commas, semicolons."""
    Movement.objects.all().delete()
    for item in found:
        values = dict(item)
        occurred_on = values["booked_on"] - timedelta(days=values.pop("days_before"))
        moment = datetime.fromisoformat(f"{occurred_on}T12:00:00+00:00")
        # Far from the end of the range, so that no database refuses a sum.
        values["amount"] //= 16
        Movement.objects.create(
            **values, occurred_on=occurred_on, occurred_at=moment, recorded_at=moment, object_kind="payment"
        )
    check_all(MONTH, tmp_path)
