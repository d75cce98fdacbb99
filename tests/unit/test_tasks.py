"""Tasks and the schedule: every one callable without arguments and for one account."""

from __future__ import annotations

import subprocess
import sys
from typing import Any
from unittest import mock

import pytest

from payments_integration import inbox, tasks
from payments_integration.apps import _on_wake, _publisher
from payments_integration.models import Event, ReconciliationRun
from payments_integration.schedule import BEAT_SCHEDULE
from payments_integration.testing import ProviderSandbox
from tests import factories
from tests.conftest import Receiver

PUBLIC = ("process_events", "reconcile_events", "reconcile_objects", "resume_operations", "sync_balances", "prune")


def test_the_schedule_names_every_task_and_no_other() -> None:
    assert {entry["task"] for entry in BEAT_SCHEDULE.values()} == {f"payments_integration.tasks.{n}" for n in PUBLIC}
    for entry in BEAT_SCHEDULE.values():
        name = entry["task"].rpartition(".")[2]
        assert getattr(tasks, name).name == entry["task"]
        assert entry["schedule"] > 0


def test_what_the_schedule_gives_out_expires() -> None:
    """A worker that was away finds no pile; and no message expires by clocks that differ, or before its turn."""
    for entry in BEAT_SCHEDULE.values():
        assert entry["options"]["expires"] >= max(entry["schedule"], 900)
        assert entry["options"]["expires"] <= 30 * entry["schedule"]


def test_the_schedule_is_importable_from_settings() -> None:
    """Without models, Celery or configured settings."""
    code = (
        "import sys; from payments_integration.schedule import BEAT_SCHEDULE; assert BEAT_SCHEDULE;"
        "bad = {m.split('.')[0] for m in sys.modules} & {'celery', 'django', 'rest_framework'}; assert not bad, bad"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.mark.django_db
@pytest.mark.parametrize("account", [None, "default"])
@pytest.mark.parametrize("name", PUBLIC)
def test_with_and_without_an_account(
    name: str, account: str | None, payments_sandbox: ProviderSandbox, settings: Any, woken: list[str]
) -> None:
    only = settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": {"default": only}}
    task = getattr(tasks, name)
    task() if account is None else task(account=account)
    assert not ReconciliationRun.objects.exclude(state="done").exists()


@pytest.mark.django_db
def test_process_events_does_all_that_is_due(receiver: Receiver, woken: list[str]) -> None:
    inbox.receive("default", factories.body(factories.life()[0]))
    tasks.process_events()
    assert Event.objects.get().state == "done"
    assert len(receiver.events) == 1


@pytest.mark.django_db
def test_inline_the_request_itself_works_it_off(receiver: Receiver) -> None:
    inbox.receive("default", factories.body(factories.life()[0]))
    _on_wake("default", None)
    assert len(receiver.events) == 1


def test_with_celery_a_message_is_published(settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "PROCESSING": "celery"}
    with mock.patch.object(tasks.process_events, "apply_async") as published:
        _on_wake("default", None)
        _publisher.flush()
    published.assert_called_once_with(kwargs={"account": "default"}, retry=False, expires=60)
