"""Killed anywhere while the rows of an account are deleted: the next run deletes the rest, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from payments_integration import reconciliation
from payments_integration.models import AccountState
from payments_integration.reconciliation import forgetting
from payments_integration.reconciliation.renaming import models_with_account
from tests.factories import rows
from tests.integration.kill.site import Site

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.case(145)]

TOO_MANY = 600


def fill(account: str) -> None:
    AccountState.objects.create(account=account, has_test_key=True)
    balance = rows.balance(account=account)
    rows.balance_change(balance, available=1)
    payment = rows.payment(account=account)
    rows.event(payment)
    rows.operation(account=account, state="unknown")


def left(account: str) -> int:
    return sum(model._default_manager.filter(account=account).count() for model in models_with_account())


def test_a_kill_at_any_boundary_leaves_an_account_that_waits(site: Site) -> None:
    fill("test")
    others, total = left("test"), reconciliation.count_rows("test")
    fill("default")
    killed: list[str] = []
    for n in range(1, TOO_MANY, 5):
        end = site.run("forget", account="default", die_at=n)
        remaining = left("default")
        if not end.killed:
            assert remaining == 0
            break
        killed.append(end.killed)
        if 0 < remaining < others:
            assert AccountState.objects.get(account="default").forgetting_since, "it waits until the rest is deleted"
        site.later(0.5)
        site.run("forget", account="default")
        assert left("default") == 0
        assert reconciliation.count_rows("default") == {}
        fill("default")
    assert len(killed) > 10
    assert left("test") == others
    assert reconciliation.count_rows("test") == total


def test_a_pass_that_runs_is_not_disturbed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    fill("default")
    monkeypatch.setattr(forgetting, "PATIENCE", timedelta())
    with (
        reconciliation.runs.claimed("default"),
        pytest.raises(reconciliation.ForgetRefused, match="a pass of default"),
    ):
        reconciliation.forget_account("default")
    assert left("default") > 1
    end: Any = site.run("forget", account="default")
    assert not end.killed
    assert left("default") == 0
