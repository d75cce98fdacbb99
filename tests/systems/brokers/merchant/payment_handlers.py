"""Receivers that stand still until the test lets them go on.

A payment whose metadata has ``gate`` is held there when it has succeeded: the receiver notes its process in the file
``<gate>.entered`` and waits for the file ``<gate>.open``. It does its work in the database first, so that
a kill there must undo that.

Where the file ``batches`` names a gate, a batch of events is held there too: as it inserts payments, in the middle of
its transaction.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.dispatch import receiver

from payments_integration.handlers import on_status
from payments_integration.models import Payment
from tests.factories.receivers.models import ReceiverCall

GATES = "TEST_GATES"
LONGEST = 60.0
BATCHES = "batches"
_INSERTS_PAYMENTS = re.compile(r"INSERT INTO .payments_integration_payment.")


@on_status(Payment, "succeeded")
def stand_still(payment: Payment, **kwargs: Any) -> None:
    ReceiverCall.objects.create(what="succeeded", object_id=payment.pk)
    if GATES in os.environ and (name := (payment.metadata or {}).get("gate")):
        stand_at(Path(os.environ[GATES]), name)


def stand_at(folder: Path, name: str) -> None:
    with (folder / f"{name}.entered").open("a") as entered:
        entered.write(f"{os.getpid()}\n")
    end = time.monotonic() + LONGEST
    while not (folder / f"{name}.open").exists():
        if time.monotonic() > end:
            raise TimeoutError(f"the gate {name} was not opened")
        time.sleep(0.02)


def hold_batch(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
    result = execute(sql, params, many, context)
    batches = Path(os.environ[GATES]) / BATCHES
    if _INSERTS_PAYMENTS.match(sql) and batches.exists():
        stand_at(batches.parent, batches.read_text())
    return result


@receiver(connection_created)
def watch(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    if GATES in os.environ and hold_batch not in connection.execute_wrappers:
        connection.execute_wrappers.append(hold_batch)
