"""Receivers that stand still until the test lets them go on.

A payment whose metadata has ``gate`` is held there when it has succeeded: the receiver notes its process in the file
``<gate>.entered`` and waits for the file ``<gate>.open``. It does its work in the database first, so that whatever
ends it there must undo that.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from payments_integration.handlers import on_status
from payments_integration.models import Payment
from tests.receivers.models import Told

GATES = "TEST_GATES"
LONGEST = 60.0


@on_status(Payment, "succeeded")
def stand_still(payment: Payment, **kwargs: Any) -> None:
    Told.objects.create(what="succeeded", object_id=payment.pk)
    name = (payment.metadata or {}).get("gate")
    if not name or GATES not in os.environ:
        return
    folder = Path(os.environ[GATES])
    with (folder / f"{name}.entered").open("a") as entered:
        entered.write(f"{os.getpid()}\n")
    end = time.monotonic() + LONGEST
    while not (folder / f"{name}.open").exists():
        if time.monotonic() > end:
            raise TimeoutError(f"nobody opened the gate {name}")
        time.sleep(0.02)
