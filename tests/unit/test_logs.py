"""Log records carry ids and nothing personal, and docs/monitoring.md lists every logger that warns."""

from __future__ import annotations

import ast
import io
import json
import logging
import logging.config
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.contrib.auth.models import User
from django.test import Client

from payments_integration import inbox, services
from payments_integration.exceptions import OutcomeUnknown
from payments_integration.handlers import on_event
from payments_integration.models import Event, Operation
from payments_integration.runtime.logs import get_logger
from payments_integration.sandbox import Fault
from payments_integration.signatures import HEADER
from payments_integration.testing import ProviderSandbox
from tests import factories
from tests.conftest import Receiver
from tests.factories import body

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "monitoring.md").read_text()
IDS = {"account", "event_id", "operation_id", "request_id", "api_request_id"}
#: What the value of each may be, as it is written in the code.
VALUES = {
    "account": r"(\w+\.)?_?account(\.alias)?",
    "event_id": r"event_id|item\.id|due\.object_id",
    "operation_id": r"pk|operation\.pk|due\.object_id",
    "request_id": r"request_id|(error|reply)\.request_id|request_id_of\(error\)( if error else '')?",
    "api_request_id": r"(self\.)?request_id",
}
#: What the transactions are about whose callbacks are logged.
ABOUT = {"account": "account", "event_id": "item.id", "operation_id": "operation.pk"}
#: Records about no account, event, operation or request.
WITHOUT_IDS = {
    "Django's cache does not work. The app goes on without it",
    "A pass failed; it is tried again",
    "No notification arrives through this connection: is it a pooler's? Looking for work every %g s",
    "The database failed with %s; connecting again",
    "The heartbeat %s cannot be written: %s",
    "The project's code has left a transaction open on the database %s: it is rolled back",
    "payments_worker has started for %s",
    "payments_worker has stopped after %d s: %s",
    "The views for reports were not created: %s",
    "A %s number is sent that is not known to be valid",
    "A scrape could not read the database: %s",
    "A %s was needed and not drawn, only its text is shown: %s",
    "A claim could not be released (%s); it ends by itself",
    "A notice by %s about %s could not be sent: %s",
    "No notice to the chat of CHAT_URL: tests stay on this machine, or set ALLOW_NETWORK_IN_TESTS",
    "An observer failed: %r",
    "Retrying a transaction after %s",
    "The handler %s.%s came after the start: processes without its module skip it. Use payment_handlers.py",
    "%s of the database session was %s; it is set back",
    "The link to an order failed in %s.",
    "The link to an order is no http, https or relative address, in %s.",
}
LEVELS = {"exception": "ERROR", "error": "ERROR", "warning": "WARNING", "info": "INFO", "debug": "DEBUG"}
PAYMENT = {"amount": 1000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
PAYER = {"name": "Rosa Luna Vega", "email": "rosa@luna.example", "document": {"type": "RUT", "number": "11111111-1"}}
PERSONAL = ("Rosa", "rosa", "11111111")


@dataclass(frozen=True)
class Call:
    """A call of a logger in the source."""

    logger: str
    level: str
    message: str
    #: How many values it is called with.
    values: int
    #: By name, as it is written.
    ids: dict[str, str]


def calls() -> Iterator[Call]:
    package = ROOT / "payments_integration"
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "sandbox" not in parts:
            module = ".".join(parts).removesuffix(".__init__")
            yield from calls_of(ast.parse(path.read_text()), module)


def calls_of(tree: ast.Module, module: str) -> Iterator[Call]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    logger = ""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("get_logger("):
            name = ast.unparse(node.value)[len("get_logger(") : -1].strip("'")
            logger = module if name == "__name__" else name
    found = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("logger.")
    ]
    assert bool(found) == bool(logger), f"{module} has a logger without a use, or the other way round"
    for node in found:
        extra = next((keyword.value for keyword in node.keywords if keyword.arg == "extra"), None)
        # The innermost function around it.
        within = [each for each in functions if each.lineno <= node.lineno <= (each.end_lineno or 0)]
        ids = ids_of(extra, within[-1], functions)
        assert isinstance(node.args[0], ast.Constant), ast.unparse(node)
        assert isinstance(node.func, ast.Attribute)
        yield Call(logger, LEVELS[node.func.attr], str(node.args[0].value), len(node.args) - 1, ids)


def ids_of(extra: ast.expr | None, within: ast.FunctionDef, functions: list[ast.FunctionDef]) -> dict[str, str]:
    """What ``extra`` holds: a dict, the variable ``extra``, or the result of a function of the module."""
    if extra is None:
        return {}
    if isinstance(extra, ast.Dict):
        found: dict[str, str] = {}
        for key, value in zip(extra.keys, extra.values, strict=True):
            if key is None and not ast.unparse(value).startswith("extra"):
                found |= ids_of(value, within, functions)
            elif key is not None:
                found[ast.literal_eval(key)] = ast.unparse(value)
        return found
    if ast.unparse(extra) == "dict(self._about)":
        return ABOUT
    if isinstance(extra, ast.Call):
        name = ast.unparse(extra.func).rpartition(".")[2]
        [maker] = [each for each in functions if each.name == name] or shared_makers(name)
        return variable(maker, functions)
    assert ast.unparse(extra) == "extra"
    return variable(within, functions)


def shared_makers(name: str) -> list[ast.FunctionDef]:
    """The function of another module of the package that makes ``extra``."""
    sources = (path.read_text() for path in (ROOT / "payments_integration").rglob("*.py"))
    trees = [ast.parse(source) for source in sources if f"def {name}(" in source]
    return [node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]


def variable(function: ast.FunctionDef, functions: list[ast.FunctionDef]) -> dict[str, str]:
    """All that is assigned to ``extra`` or to a key of it, or returned as a dict."""
    found: dict[str, str] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict):
            found |= ids_of(node.value, function, functions)
        if not isinstance(node, ast.Assign):
            continue
        if ast.unparse(node.targets[0]) == "extra":
            found |= ids_of(node.value, function, functions)
        elif ast.unparse(node.targets[0]).startswith("extra["):
            found[ast.unparse(node.targets[0])[len("extra['") : -2]] = ast.unparse(node.value)
    return found


def test_every_record_has_the_values_that_its_message_shows() -> None:
    """The app contains errors of logging, so a record that cannot be written would fail no other test."""
    for call in calls():
        shown = re.findall(r"%[.\d]*(.)", call.message.replace("%%", ""))
        assert {*shown} <= {*"srdgf"}, call
        assert len(shown) == call.values, call


def test_every_record_has_the_ids_that_are_known_and_nothing_else() -> None:
    found = list(calls())
    assert len(found) > 40
    assert {call.message for call in found if not call.ids} == WITHOUT_IDS
    for call in found:
        assert call.ids.keys() <= IDS, call
        for name, value in call.ids.items():
            assert re.fullmatch(VALUES[name], value), call


def test_the_table_has_every_logger_that_warns() -> None:
    section = PAGE.partition("\n## Logs\n")[2].partition("\n### ")[0]
    rows = [
        (f"payments_integration.{name}", level)
        for level, names in re.findall(r"^\| [^|`]+ \| ([A-Z]+) \| (.+) \|$", section, re.MULTILINE)
        for name in re.findall(r"`([\w.]+)`", names)
    ]
    shown = set(rows)
    assert len(shown) == len(rows)
    assert shown == {(call.logger, call.level) for call in calls() if call.level in ("ERROR", "WARNING")}
    explained = re.findall(r"^\| `(\w+)` \| [^|]+ \|$", section, re.MULTILINE)
    assert set(explained) == IDS


BLANK = vars(logging.makeLogRecord({})).keys() | {"message", "asctime"}


def extras(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in BLANK}


class Records:
    """What the app's loggers wrote, down to DEBUG."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def of(self, logger: str, level: str) -> list[dict[str, Any]]:
        return [
            extras(record)
            for record in self._caplog.records
            if (record.name, record.levelname) == (f"payments_integration.{logger}", level)
        ]

    def assert_nothing_personal(self) -> None:
        for record in self._caplog.records:
            if record.name.startswith("payments_integration.") and "sandbox" not in record.name:
                assert extras(record).keys() <= IDS, record.name
                shown = f"{extras(record)} {record.getMessage()}"
                assert not [text for text in PERSONAL if text in shown], shown


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> Iterator[Records]:
    caplog.set_level("DEBUG", "payments_integration")
    found = Records(caplog)
    yield found
    found.assert_nothing_personal()


@pytest.mark.django_db
@pytest.mark.usefixtures("woken", "attention_at_once")
def test_records_of_a_delivery_name_account_and_event(records: Records, client: Client, settings: Any) -> None:
    @on_event("payment.*")
    def handler(**kwargs: object) -> None:
        raise LookupError("out of stock")

    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "RECEIVER_RETRIES": []}
    client.post("/payments/webhook/second/", b"{}", "application/json", headers={HEADER: "t=1"})
    assert records.of("webhooks", "WARNING") == [{"account": "second"}]
    event = factories.event(factories.payment(payer=PAYER))
    inbox.receive("default", body(event))
    inbox.process()
    inbox.dispatch()
    about = {"account": "default", "event_id": event["id"]}
    assert records.of("inbox.dispatching", "ERROR") == [about]
    assert records.of("attention", "ERROR") == [about]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("woken")
def test_records_of_a_call_name_operation_and_request(records: Records) -> None:
    with ProviderSandbox() as sandbox:
        sandbox.engine.faults.add(Fault("error", operation="create_payment", status=500, work=True))
        with pytest.raises(OutcomeUnknown):
            services.create_payment(**PAYMENT, payer=PAYER, merchant_reference="order-1")
    operation = Operation.objects.get()
    assert operation.request_ids
    assert records.of("outbox.outcomes", "WARNING") == [
        {"account": "default", "operation_id": operation.pk, "request_id": operation.request_ids[-1]}
    ]
    assert records.of("client", "DEBUG")[-1].keys() == {"account", "request_id"}
    assert {each["account"] for each in records.of("client", "DEBUG")} == {"default"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("woken")
def test_records_of_the_api_name_its_own_request(records: Records, client: Client) -> None:
    client.force_login(User.objects.create_superuser("staff"))
    with ProviderSandbox():
        answer = client.post(
            "/payments/api/payments/", json.dumps({**PAYMENT, "payer": PAYER}), "application/json",
            headers={"Idempotency-Key": "key-1"},
        )  # fmt: skip
        assert answer.status_code == 201
        refused = client.get("/payments/api/payments/pay_of_nobody/")
    assert records.of("api.views.sending", "INFO") == [
        {"account": "default", "api_request_id": answer.headers["Request-Id"]}
    ]
    assert records.of("api.errors", "INFO") == [{"api_request_id": refused.headers["Request-Id"], "request_id": ""}]


class Chat(logging.Handler):
    """As many projects write one: nothing catches what ``emit`` raises."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ConnectionError("the chat does not answer")


@pytest.fixture(params=["handler", "filter", "factory", "stderr"])
def broken_logging(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The project's logging raises at the line that logs, or already has attributes of the app's names."""
    chat: logging.Handler = Chat() if request.param == "handler" else logging.StreamHandler(io.StringIO())
    usual = logging.getLogRecordFactory()

    def refuse(record: logging.LogRecord) -> bool:
        raise AttributeError("the record has no request")

    def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = usual(*args, **kwargs)
        vars(record).update(dict.fromkeys(IDS, "of the project"))
        return record

    if request.param == "filter":
        chat.addFilter(refuse)
    if request.param == "factory":
        monkeypatch.setattr(logging, "_logRecordFactory", make)
    if request.param == "stderr":  # a daemon has closed it; pytest replaces it before each test
        closed = io.StringIO()
        closed.close()
        chat = logging.StreamHandler(closed)
        chat.addFilter(lambda record: monkeypatch.setattr(sys, "stderr", closed) or True)
    logging.getLogger("payments_integration").addHandler(chat)
    yield
    logging.getLogger("payments_integration").removeHandler(chat)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("woken", "broken_logging")
def test_a_failing_receiver_is_counted_and_delays_no_other_object_if_logging_fails(receiver: Receiver) -> None:
    bad, good = (factories.event(factories.payment(id=f"pay_{n}")) for n in "12")
    receiver.fail = lambda what: what == bad["id"]
    for event in (bad, good):
        inbox.receive("default", body(event))
    inbox.process()
    inbox.dispatch()
    assert receiver.dispatched == [good["id"]]
    assert Event.objects.get(pk=bad["id"]).attempts == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("woken", "broken_logging")
def test_an_unknown_outcome_is_recorded_if_logging_fails() -> None:
    with ProviderSandbox() as sandbox:
        sandbox.engine.faults.add(Fault("error", operation="create_payment", status=500, work=True))
        with pytest.raises(OutcomeUnknown, match="HTTP 500"):
            services.create_payment(**PAYMENT, merchant_reference="order-1")
    operation = Operation.objects.get()
    assert "HTTP 500" in operation.note
    assert operation.request_ids
    assert operation.claim_token == ""


@pytest.mark.usefixtures("broken_logging")
@pytest.mark.parametrize("broken_logging", ["factory"], indirect=True)
def test_a_record_keeps_what_a_record_factory_has_set_and_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    get_logger("payments_integration.x").error("Reading %s failed", "pay_1", extra={"account": "br"})
    [record] = caplog.records
    assert (record.getMessage(), record.funcName) == (
        "Reading pay_1 failed",
        "test_a_record_keeps_what_a_record_factory_has_set_and_its_place",
    )
    assert vars(record)["account"] == "of the project"


def test_an_interruption_of_a_record_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("payments_integration.x"), "handle", mock.Mock(side_effect=SystemExit))
    with pytest.raises(SystemExit):
        get_logger("payments_integration.x").error("Reading failed")


def test_the_formatter_of_the_page_writes_json() -> None:
    section = PAGE.partition("\n### Logs as JSON\n")[2]
    formatter, configuration = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict[str, Any] = {}
    exec(formatter, names)
    exec(configuration, names)
    chosen = names["LOGGING"]
    assert chosen["formatters"]["json"]["()"] == "yourproject.logs.JsonFormatter"
    chosen["formatters"]["json"]["()"] = names["JsonFormatter"]
    shown = logging.config.DictConfigurator(chosen).configure_formatter(chosen["formatters"]["json"])
    record = logging.makeLogRecord(
        {
            "name": "payments_integration.webhooks",
            "levelname": "WARNING",
            "msg": "of %s",
            "args": ("br",),
            "account": "br",
        }
    )
    written = json.loads(shown.format(record))
    assert {**written, "time": ""} == {
        "time": "", "level": "WARNING", "logger": "payments_integration.webhooks", "message": "of br", "account": "br",
    }  # fmt: skip
