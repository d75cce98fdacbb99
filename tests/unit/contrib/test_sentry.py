"""What leaves with Sentry's SDK and its defaults: no payer, no bank account, no secret. The SDK is the real one."""

from __future__ import annotations

import copy
import importlib
import json
import logging
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from django.core import checks
from django.http import Http404, HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import include, path
from django.views.decorators.csrf import csrf_exempt
from sentry_sdk.scope import Scope
from sentry_sdk.transport import Transport

import payments_integration
from payments_integration import exceptions, services
from payments_integration.checks import check_sentry
from payments_integration.client import errors as client_errors
from payments_integration.contrib import sentry
from payments_integration.models import MIRRORS, Event
from payments_integration.services import payouts
from payments_integration.signals import event_received
from payments_integration.testing import signed_delivery
from tests import factories
from tests.fake_provider import DESTINATION, PAYER, PAYOUT, Fake, timeout

pytestmark = [pytest.mark.case(107), pytest.mark.promise(7), pytest.mark.any_database]

PERSONAL = (
    "Ana Rojas", "ana@example.com", "56912345678", "12345678-5", "12.345.678-5", "00123456789", "203.0.113.9",
    "device-1", "sk_test_", "whsec_",
)  # fmt: skip


class Recorder(Transport):
    """Keeps what would be sent."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.events: list[dict[str, Any]] = []
        self.raw: list[str] = []

    def capture_envelope(self, envelope: Any) -> None:
        self.raw.append(envelope.serialize().decode(errors="replace"))
        for item in envelope.items:
            if item.type in {"event", "transaction"}:
                self.events.append(json.loads(item.get_bytes()))

    def leaks(self) -> list[str]:
        sent = "".join(self.raw)
        return [value for value in PERSONAL if value in sent or value.encode("unicode_escape").decode() in sent]


Init = Callable[..., Recorder]


@pytest.fixture
def init() -> Iterator[Init]:
    def start(**options: Any) -> Recorder:
        recorder = Recorder()
        sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", transport=recorder, **options)
        return recorder

    yield start
    sentry_sdk.get_client().close(timeout=0)
    for scope in (Scope.get_global_scope(), Scope.get_isolation_scope(), Scope.get_current_scope()):
        scope.clear()
    Scope.get_global_scope().set_client(None)


@pytest.fixture
def sent(init: Init) -> Recorder:
    return init(before_send=sentry.before_send, before_send_transaction=sentry.before_send, traces_sample_rate=1.0)


# the project's views


@csrf_exempt
def pay_out(request: HttpRequest) -> HttpResponse:
    """A merchant's own view, whose variables nothing marks as sensitive."""
    form = json.loads(request.body)
    holder = form["destination"]["holder_name"]
    logging.getLogger("shop").warning("Paying %s", holder)
    services.create_payout(**{**PAYOUT, "destination": form["destination"]})
    return HttpResponse(holder)


urlpatterns = [path("pay-out/", pay_out), path("payments/", include("payments_integration.urls"))]


def _classes() -> list[type[BaseException]]:
    """Every exception class of the app."""
    for module in pkgutil.walk_packages(payments_integration.__path__, "payments_integration."):
        # The last one needs Django 6.0, and has no class.
        if ".migrations" not in module.name and not module.name.endswith(("__main__", "contrib.django_tasks")):
            importlib.import_module(module.name)
    found: list[type[BaseException]] = [BaseException]
    for each in found:
        found += [sub for sub in each.__subclasses__() if sub not in found]
    return sorted((each for each in found if each.__module__.startswith("payments_integration.")), key=str)


#: Without the sandbox's, without those that Django makes for each model, and without a 404, which is not reported.
CLASSES = [
    each
    for each in _classes()
    if ".sandbox" not in each.__module__ and "." not in each.__qualname__ and not issubclass(each, Http404)
]


def test_every_error_is_tested() -> None:
    errors = {value for value in vars(exceptions).values() if isinstance(value, type)}
    assert {each for each in errors if issubclass(each, BaseException)} < set(CLASSES)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_no_exception_carries_personal_data(
    cls: type[BaseException], sent: Recorder, fake: Fake, monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    """Each is raised deep within a call of a project's view, with what the provider might repeat in its message."""

    error = cls.__new__(cls)
    error.args = (message := "the holder Ana Rojas, ana@example.com, is unknown",)
    fields = {"message": message, "status_code": 422, "code": "x", "param": "destination", "request_id": "req_1"}
    vars(error).update(fields, status=422, operation=services.defer(services.create_payout, **PAYOUT))

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(payouts.objects, "destination", fail)
    assert pay(client) == 500
    [report] = [event for event in sent.events if "exception" in event]
    assert report["exception"]["values"][-1]["type"] == cls.__qualname__
    assert sent.leaks() == []


def post(client: Client, url: str, **kwargs: Any) -> Any:
    client.raise_request_exception = False
    with override_settings(ROOT_URLCONF=__name__):
        return client.post(url, **kwargs)


def pay(client: Client) -> int:
    body: Any = {"destination": DESTINATION}
    return int(post(client, "/pay-out/", data=body, content_type="application/json").status_code)


def test_the_defaults_of_the_sdk_would_send_it(init: Init, fake: Fake, client: Client) -> None:
    recorder = init()
    fake.script = [timeout()]
    assert pay(client) == 500
    assert {"Ana Rojas", "00123456789"} <= set(recorder.leaks())


@pytest.mark.django_db
def test_an_unknown_outcome_of_a_real_request_carries_none(sent: Recorder, client: Client, woken: list[str]) -> None:
    """The frames of requests and urllib3 have the body and the key too."""
    with pytest.MonkeyPatch.context() as patch:
        # Otherwise the first request of the process only asks what time it is.
        patch.setattr("payments_integration.outbox.sending.latest_answer", lambda client: None)
        patch.setattr("urllib3.connection.HTTPConnection.connect", _break)
        assert pay(client) == 500
    reports = [event for event in sent.events if "exception" in event]
    types = {each["type"] for event in reports for each in event["exception"]["values"]}
    assert types == {"OutcomeUnknown", "RuntimeError"}
    assert sent.leaks() == []


def _break(*_: Any) -> None:
    raise RuntimeError("a bug")


@pytest.mark.django_db
@pytest.mark.parametrize("pii", [False, True])
def test_a_failing_handler_carries_none(init: Init, client: Client, pii: bool) -> None:
    """The report is made within the webhook's request, whose body has the payer."""
    with warnings.catch_warnings():
        # The option is deprecated in the newest SDK, and all that older ones have.
        warnings.simplefilter("ignore", DeprecationWarning)
        sent = init(before_send=sentry.before_send, attach_stacktrace=True, send_default_pii=pii)

    # Far from the lines that raise: a report has the lines around them.
    body = factories.body(factories.event(factories.payment(payer=PAYER, metadata={"for": "Ana Rojas"})))

    def book(sender: Any, instance: Any, event: Any, **kwargs: Any) -> None:
        who = instance.payer["name"]
        mail = f"to {who}"
        try:
            raise KeyError(who)
        except KeyError as error:
            raise LookupError(f"no customer {mail}") from error

    event_received.connect(book)
    try:
        assert post(client, "/payments/webhook/", **signed_delivery(body, "whsec_default")).status_code == 200
    finally:
        event_received.disconnect(book)
    assert [sorted(event["request"]) for event in sent.events if "exception" in event]
    values = [each for event in sent.events for each in event["exception"]["values"]]
    assert [each["type"] for each in values] == ["KeyError", "LookupError"]
    assert values[-1]["stacktrace"]["frames"][-1]["function"] == "book"
    assert sent.leaks() == []
    assert Event.objects.get().attempts == 1


@pytest.mark.django_db
def test_a_transaction_carries_none(init: Init, client: Client, fake: Fake) -> None:
    sent = init(before_send_transaction=sentry.before_send, traces_sample_rate=1.0)
    with sentry_sdk.start_transaction(op="http.server", name="pay"):
        assert pay(client) == 200
    [transaction] = [event for event in sent.events if event.get("type") == "transaction"]
    assert transaction["contexts"]["trace"]["trace_id"]
    assert any("INSERT" in span["description"] for span in transaction["spans"])
    assert sent.leaks() == []


def test_the_arguments_of_a_command_are_removed(sent: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["manage.py", "payments_erase", "--reference", "gift for Ana Rojas"])
    sentry_sdk.capture_message("a bug")
    [event] = sent.events
    assert event["extra"]["sys.argv"] == ["manage.py", "payments_erase", "[Filtered]", "[Filtered]"]
    assert sent.leaks() == []


def test_a_report_of_the_project_keeps_what_is_harmless(sent: Recorder) -> None:
    order = {"number": 17, "total": 500, "payer": PAYER, "note": json.dumps({"email": "x@example.org"})}
    total = order["total"]
    try:
        raise ValueError(f"order of {total} for ana@example.com")
    except ValueError:
        sentry_sdk.capture_exception()
    [event] = sent.events
    [error] = event["exception"]["values"]
    assert error["value"] == "order of 500 for [Filtered]"
    shown = error["stacktrace"]["frames"][-1]["vars"]
    assert shown["total"] == "500"
    assert shown["order"] == {
        "number": "[Filtered]", "total": "500", "payer": "[Filtered]", "note": "[Filtered]",
    }  # fmt: skip
    assert event["contexts"]["runtime"]["name"] == "CPython"
    assert sent.leaks() == []


@pytest.mark.parametrize("query", ["", "?key=AnotherSecret"])
def test_the_address_of_the_chat_is_removed_also_in_parts(query: str) -> None:
    chat = f"https://chat.example/services/T0/SecretOfTheHook{query}"
    texts = [chat, f"POST {chat.partition('?')[0]}", chat.removeprefix("https://chat.example"), query.strip("?")]
    event = {"type": "transaction", "spans": [{"description": text, "data": {"http.query": text}} for text in texts]}
    with override_settings(PAYMENTS_NOTIFY={"CHAT_URL": chat}, PAYMENTS_METRICS_TOKEN="TokenOfTheMetrics"):
        cleaned = str(sentry.before_send({**event, "extra": {"said": "with TokenOfTheMetrics"}}))
    assert "Secret" not in cleaned
    assert "TokenOf" not in cleaned
    assert "POST" in cleaned


@pytest.mark.parametrize(
    "text",
    [
        "/admin/payments_integration/payment/?q=Ana+Rojas&o=1",
        "https://shop.example/admin/payments_integration/payment/?q=Ana",
        "<WSGIRequest: GET '/admin/payments_integration/payout/?q=Ana'>",
        "/search/?q=ana%40example.com",
        "/search/?q=%2B56912345678",
        "/payments/checkout/status/Ana-0123456789abcdef/data/",
        "https://shop.example/payments/checkout/return/Ana:0123456789abcdef/?from=card",
        "/payments/receipt/Ana-0123456789abcdef/",
    ],
)
def test_urls_name_no_payer_and_open_no_payers_page(text: str) -> None:
    event = {"type": "transaction", "request": {"url": text, "headers": {"Referer": text}}, "extra": {"said": text}}
    for part in ("request", "extra"):
        cleaned = str(sentry.before_send({"type": "transaction", part: event[part]}))
        assert not any(word in cleaned for word in ("Ana", "ana%40", "56912345678", "0123456789abcdef")), part
        assert text.partition("?")[0][:12] in cleaned


def test_the_query_of_a_page_of_the_app_is_removed() -> None:
    request = {"url": "https://shop.example/admin/payments_integration/payment/", "query_string": "q=Ana"}
    cleaned = sentry.before_send({"type": "transaction", "request": request})
    assert cleaned["request"]["query_string"] == sentry.FILTERED


def test_every_personal_field_is_known() -> None:
    names = {name for model in MIRRORS.values() for name in model.personal}
    names |= client_errors._PERSONAL | set(PAYER) | {"account_number", "holder_name", "holder_document"}
    assert [name for name in sorted(names) if not sentry._is_personal(name)] == []


@pytest.mark.parametrize(
    "event", [None, [], {"exception": {"values": [1]}}, {"request": "Ana Rojas"}, {"x": Ellipsis}]
)
def test_it_never_raises(event: Any) -> None:
    cleaned = sentry.before_send(copy.deepcopy(event), {})
    assert "Ana" not in repr(cleaned)


def test_if_it_fails_the_data_is_removed(sent: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentry._Cleaner, "_text", lambda self, text: 1 / 0)
    payer = PAYER
    try:
        raise ValueError(payer["name"])
    except ValueError:
        sentry_sdk.capture_exception()
    with sentry_sdk.start_transaction(name="Ana Rojas"):
        pass
    [event] = sent.events
    assert event["logentry"]["message"].startswith("payments_integration.contrib.sentry failed with ZeroDivisionError")
    assert "exception" not in event
    assert sent.leaks() == []


# the system check


def warned() -> list[str]:
    return [message.msg for message in check_sentry()]


@pytest.mark.django_db  # Django's own checks ask the database
def test_the_check_is_registered_for_deployment(init: Init) -> None:
    init()
    found = [message.id for message in checks.run_checks(include_deployment_checks=True)]
    assert "payments_integration.W030" in found
    assert "payments_integration.W030" not in [message.id for message in checks.run_checks()]


def test_without_a_client_there_is_nothing_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_sentry() == []
    monkeypatch.delitem(sys.modules, "sentry_sdk")
    assert check_sentry() == []


@pytest.mark.parametrize("function", [None, lambda event, hint: event, lambda event, hint: 1 / 0])
def test_a_client_that_sends_personal_data_is_reported(init: Init, function: Any) -> None:
    init(before_send=function)
    [message] = warned()
    assert ": before_send does not" in message
    init(before_send=function, before_send_transaction=function, traces_sample_rate=0.1)
    [message] = warned()
    assert ": before_send and before_send_transaction does not" in message


@pytest.mark.parametrize(
    "function",
    [
        sentry.before_send,
        lambda event, hint: sentry.before_send({**event, "tags": {}}, hint),
        lambda event, hint: None,
    ],
)
def test_a_function_that_removes_the_data_is_accepted(init: Init, function: Any) -> None:
    init(before_send=function, before_send_transaction=function, traces_sample_rate=0.1)
    assert check_sentry() == []


def test_it_is_used_without_the_sdk() -> None:
    source = Path(sentry.__file__).read_text()
    assert "import sentry_sdk" not in source
    assert "from sentry_sdk" not in source
