"""docs/sandbox.md lists every method, error, fault and control."""

from __future__ import annotations

import json
import re
import shlex
from argparse import ArgumentParser
from pathlib import Path

import pytest
import yaml
from django.core.management.base import CommandParser

from payments_integration import sandbox
from payments_integration.management.commands.payments_sandbox import Command
from payments_integration.sandbox import Engine
from payments_integration.sandbox.catalog import FEE_BASIS_POINTS, METHODS, PAYOUT_FEES
from payments_integration.sandbox.command import DEFAULT_PORT, add_options
from payments_integration.sandbox.control_api import LISTS, OBJECT_ACTIONS, PROJECT_ACTIONS
from payments_integration.sandbox.control_fields import OBJECT_FIELDS, PROJECT_FIELDS
from payments_integration.sandbox.controls import SETTABLE_TERMS, Controls
from payments_integration.sandbox.engine import DEFAULT_FUNDS
from payments_integration.sandbox.faults import DELIVERY_KINDS, REQUEST_KINDS, Fault
from payments_integration.sandbox.magic import TABLE
from payments_integration.sandbox.operations import OPERATIONS
from payments_integration.sandbox.protocol import CATALOGUE
from payments_integration.sandbox.triggering import add_sandbox_arguments, add_trigger_arguments

from .support import Client

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "sandbox.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_docs_list_every_payment_method() -> None:
    rows = re.findall(r"^\| (\w+), (\w+) \| (.+) \|$", section("Payment methods"), re.MULTILINE)
    shown = [(code, family, action) for family, action, codes in rows for code in re.findall(r"`(\w+)`", codes)]
    assert sorted(shown) == sorted((method.code, method.family, method.next_action) for method in METHODS.values())


def test_the_country_currency_and_uses_of_a_method_are_as_the_docs_say() -> None:
    currencies = {"CL": "CLP", "CO": "COP", "EC": "USD", "PE": "PEN", "MX": "MXN", "BR": "BRL"}
    uses = {"bank_transfer": ("payment", "payout"), "deposit_reference": ("deposit_reference",)}
    for code, method in METHODS.items():
        country = code[:2].upper()
        assert method.country == country, code
        assert method.currency == ("USD" if code == "pe_bank_transfer_usd" else currencies[country]), code
        assert tuple(method.uses) == uses.get(method.family, ("payment",)), code


def test_the_docs_list_every_fee() -> None:
    text = " ".join(section("Payment methods").split())
    for family, points in FEE_BASIS_POINTS.items():
        assert f"{family} {points / 100:g} %" in text
    for currency, fee in PAYOUT_FEES.items():
        assert f"{currency} {fee}" in text


def test_the_docs_list_what_a_sandbox_starts_with() -> None:
    text = " ".join(section("Use it in tests").split())
    assert ", ".join(f"{currency} {amount}" for currency, amount in DEFAULT_FUNDS.items()) in text


def test_the_docs_list_every_error_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) (\w+) \|", section("How to reach each error code"), re.MULTILINE)
    assert {code: (int(status), kind) for code, status, kind in rows} == CATALOGUE


def test_the_docs_list_every_fault_and_where_the_operations_are() -> None:
    text = section("Faults")
    for name in (*REQUEST_KINDS, *DELIVERY_KINDS, *Fault.__dataclass_fields__):
        assert f"`{name}`" in text, name
    assert "an `operationId` of `/openapi.json`" in text
    paths = json.loads((Path(sandbox.__file__).parent / "openapi.json").read_text())["paths"]
    calls = [call for path in paths.values() for call in path.values() if isinstance(call, dict)]
    assert {call["operationId"] for call in calls if "operationId" in call} == {*OPERATIONS}
    assert len(OPERATIONS) == 21


def test_the_docs_list_every_control() -> None:
    text = section("What you can do at the controls")
    names = [name for name in vars(Controls) if not name.startswith("_") and name not in ("lock", "project_of")]
    assert [name for name in names if f"`{name}" not in text] == []
    interface = section("The control interface over HTTP")
    assert [action for _, action in OBJECT_ACTIONS if not re.search(rf"`{action}`|/{action}`", interface)] == []
    assert [name for name in LISTS if not re.search(rf"\| `GET .*/_sandbox/{name}`", interface)] == []
    assert [action for _, action in PROJECT_ACTIONS if f"/_sandbox/{action}" not in interface] == []
    assert [name for name in SETTABLE_TERMS if f"`{name}`" not in interface] == []


def test_the_command_explains_every_option() -> None:
    parser = CommandParser(add_help=False)
    Command().add_arguments(parser)
    assert len([option for action in parser._actions for option in action.option_strings]) == 13
    assert [action.dest for action in parser._actions if not action.help] == []


def test_the_docs_list_every_magic_value() -> None:
    rows = re.findall(
        r"^\| `([^`]+@[^`]+)` \| `([\w-]+)` \| `(\d+)` \| (.+?) \| (\w+) \|$", section("Magic values"), re.MULTILINE
    )
    assert rows == [
        (row.email, row.reference, str(row.amount), row.effect, ", ".join(row.families) or "all") for row in TABLE
    ]


def test_the_docs_list_every_field_of_a_control() -> None:
    interface = section("The control interface over HTTP")
    for fields in (*PROJECT_FIELDS.values(), *OBJECT_FIELDS.values()):
        if fields is not PROJECT_FIELDS["faults"]:
            assert [name for name in fields if not re.search(rf"[\"`]{name}[\"`]", interface)] == []


def test_the_docs_show_the_options_of_the_trigger() -> None:
    parser = ArgumentParser(add_help=False)
    add_trigger_arguments(parser)
    add_sandbox_arguments(parser)
    options = [option for action in parser._actions for option in action.option_strings]
    assert len(options) == 4
    assert [option for option in options if f"`{option}" not in section("Trigger an event")] == []


def test_the_workflow_in_the_docs_starts_what_there_is() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", section("In CI, without Python in your project"), re.DOTALL)
    runs = [step["run"] for step in yaml.safe_load(text)["jobs"]["test"]["steps"] if "run" in step]
    (started,) = (run for run in runs if "payments-sandbox " in run)
    words = shlex.split(started.partition(" --no-color")[0])
    parser = ArgumentParser()
    add_options(parser)
    assert parser.parse_args(words[1:]).no_rate_limits
    assert f"http://127.0.0.1:{DEFAULT_PORT}/_sandbox/clock" in started


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_the_examples_in_the_docs_run(block: str) -> None:
    engine = Engine(rate_limits=False)
    exec(block, {"engine": engine, "Fault": Fault, "client": Client(engine)})
