"""Several processes ask for the money of one order at the same moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from payments_integration import conf, services
from payments_integration.testing import ProviderSandbox
from tests.unit.payable.payables import Order

ROOT = Path(__file__).resolve().parents[2]
CARD = {"amount": 10_000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
#: A process of the shop: it starts, says so, and clicks when it is told to.
PROCESS = """
import json, os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
import django
from django.conf import settings
job = json.loads(sys.stdin.readline())
settings.DATABASES["default"]["NAME"] = job["database"]
django.setup()
settings.PAYMENTS_INTEGRATION = job["options"]
from payments_integration import services
from payments_integration.exceptions import OutcomeUnknown
from tests.unit.payable.payables import Order
order = Order.objects.get(pk=job["order"])
print("ready", flush=True)
sys.stdin.readline()
key = order.attempt_key(job["form"])
try:
    made = services.create_payment(**job["card"], merchant_reference=order.number, idempotency_key=key).pk
except OutcomeUnknown:
    made = ""
print(json.dumps([key, made]), flush=True)
"""


@pytest.mark.case(128)
@pytest.mark.promise(5)
@pytest.mark.parametrize("is_form", [True, False])
@pytest.mark.django_db(transaction=True)
def test_several_processes_make_one_new_attempt(payments_sandbox: ProviderSandbox, *, is_form: bool) -> None:
    order = Order.objects.create(number="año-7º")
    first = services.create_payment(**CARD, merchant_reference=order.number, idempotency_key=order.attempt_key())
    payments_sandbox.engine.fail(first.pk)
    payments_sandbox.settle()
    job = {
        "database": str(connection.settings_dict["NAME"]),
        "options": getattr(settings, conf.NAME),
        "order": order.pk,
        "form": order.signed_attempt_key() if is_form else "",
        "card": CARD,
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PROCESS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
            text=True,
        )
        for _ in range(3)
    ]
    try:
        for word in (json.dumps(job), "go"):
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(f"{word}\n")
                process.stdin.flush()
            if word != "go":
                assert [process.stdout.readline() for process in processes if process.stdout] == ["ready\n"] * 3
        answers = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert {key for key, _made in answers} == {order.attempt_key()}
    assert {made for _key, made in answers} - {""} == set(payments_sandbox.engine.payments) - {first.pk}
    assert len(payments_sandbox.engine.payments) == 2
