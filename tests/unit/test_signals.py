"""Receivers that could not run in their transaction are refused."""

from __future__ import annotations

import functools
import gc
import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from asgiref.sync import async_to_sync, markcoroutinefunction
from django.apps import apps
from django.contrib.auth.models import User
from django.test.utils import isolate_apps

from payments_integration import conf, handlers, inbox, signals
from payments_integration.attention import call_attention
from payments_integration.checks import check_handlers
from payments_integration.models import Balance, Event, EventState, Mirror, Payment, StatusChange
from payments_integration.signals import (
    Reason,
    SynchronousSignal,
    are_database_only,
    attention,
    event_received,
    mirror_deleted,
    mirror_written,
    on_mirror_deleted,
    on_mirror_written,
    status_changed,
)
from tests import factories


async def deliver(instance: Any = None, **kwargs: Any) -> None: ...


def begin(instance: Any = None, **kwargs: Any) -> Any:
    yield instance


async def generate(instance: Any = None, **kwargs: Any) -> Any:
    yield instance


class Deliver:
    async def __call__(self, instance: Any = None, **kwargs: Any) -> None: ...

    async def deliver(self, instance: Any = None, **kwargs: Any) -> None: ...


def hide_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that does not know that the function is async, or has a yield."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


ASYNC: dict[str, Callable[..., Any]] = {
    "a function": deliver,
    "a generator": generate,
    "a method": Deliver().deliver,
    "an object": Deliver(),
    "a partial": functools.partial(deliver, extra=1),
    "a partial of an object": functools.partial(functools.partial(Deliver(), extra=1), more=2),
}
if sys.version_info < (3, 12):  # later ones look at the function of a partial, and Django calls it as any other
    ASYNC["a partial that is marked"] = markcoroutinefunction(functools.partial(hide_async(deliver)))


@pytest.mark.case(108)
@pytest.mark.parametrize("name", ASYNC)
def test_async_handlers_are_refused_when_they_are_registered(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "registered", [])
    for decorate in (handlers.on_event("payment.*"), handlers.on_status(Payment, "succeeded")):
        with pytest.raises(TypeError, match=r"is async\. .*async_to_sync"):
            decorate(ASYNC[name])
    assert handlers.registered == []
    assert not event_received.has_listeners(Payment)
    assert not status_changed.has_listeners(Payment)


@pytest.mark.promise(6)
def test_a_handler_that_only_some_processes_import_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as one in ``views.py``, which no worker imports."""
    monkeypatch.setattr(handlers, "registered", [])
    monkeypatch.setattr(conf, "in_test_environment", lambda: False)

    def deliver(instance: Any, **kwargs: Any) -> None: ...

    connected = mock.Mock()
    monkeypatch.setattr(status_changed, "connect", connected)
    monkeypatch.setattr(apps, "ready", False)
    handlers.on_status(Payment, "succeeded")(deliver)
    assert caplog.messages == []
    monkeypatch.setattr(apps, "ready", True)
    handlers.on_status(Payment, "succeeded")(deliver)
    [message] = caplog.messages
    assert f"{__name__}.{deliver.__qualname__}" in message
    assert "payment_handlers.py" in message
    assert connected.call_count == 2


@pytest.mark.promise(6)
@pytest.mark.parametrize("handler", ["deliver", "partial(deliver)", "Deliver", "Deliver()", "async_to_sync(later)"])
def test_a_module_of_handlers_that_is_imported_under_two_names_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, handler: str
) -> None:
    """Such as where ``manage.py`` puts the folder of the apps on the path. Each handler would be called twice."""
    (tmp_path / "site_of_a_shop").mkdir()
    (tmp_path / "site_of_a_shop" / "handlers_of_a_shop.py").write_text(
        "from functools import partial\n\n"
        "from asgiref.sync import async_to_sync\n"
        "from payments_integration.handlers import on_event\n\n\n"
        "def deliver(event=None, **kwargs): ...\n\n\n"
        "async def later(event=None, **kwargs): ...\n\n\n"
        "class Deliver:\n    __init__ = __call__ = lambda self, **kwargs: None\n\n\n"
        f'for event_type in ("payment.succeeded", "payment.failed"):\n    on_event(event_type)({handler})\n'
    )
    monkeypatch.setattr(handlers, "registered", [])
    monkeypatch.setattr(event_received, "connect", mock.Mock())
    for folder in (tmp_path, tmp_path / "site_of_a_shop"):
        monkeypatch.syspath_prepend(folder)
    names = ("site_of_a_shop.handlers_of_a_shop", "handlers_of_a_shop")
    with mock.patch.dict(sys.modules):
        importlib.import_module(names[0])
        with pytest.raises(TypeError, match=f"imported as {names[0]} and as {names[1]}"):
            importlib.import_module(names[1])
    assert len(handlers.registered) == 2


def test_a_handler_with_a_yield_is_refused() -> None:
    def deliver(**kwargs: Any) -> Any:
        yield kwargs

    for decorate in (handlers.on_event("payment.*"), handlers.on_status(Payment, "succeeded")):
        with pytest.raises(TypeError, match="has a yield"):
            decorate(deliver)


def test_a_handler_that_wants_an_argument_that_it_does_not_get_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "registered", [])

    def of_a_payment(payment: Any, **kwargs: Any) -> None: ...
    def by_position(event: Any, instance: Any, /, **kwargs: Any) -> None: ...
    def of_nothing() -> None: ...
    def of_an_order(payment: Any, order: Any, **kwargs: Any) -> None: ...
    @async_to_sync
    async def later(payment: Any, order: Any, **kwargs: Any) -> None: ...

    for handler in (of_a_payment, by_position, of_an_order, later):
        with pytest.raises(
            TypeError, match=r"cannot be called: .*\. Write it as def handler\(event, instance, \*\*kwargs\)"
        ):
            handlers.on_event("payment.*")(handler)
    for handler in (of_an_order, of_nothing, later):
        with pytest.raises(TypeError, match=r"Write it as def handler\(instance, \*\*kwargs\)"):
            handlers.on_status(Payment, "succeeded")(handler)
    assert handlers.registered == []
    assert not event_received.has_listeners(Payment)
    assert not status_changed.has_listeners(Payment)


@pytest.mark.parametrize("statuses", [["succeeded", "overpaid"], ("succeeded",), {"succeeded"}, None])
def test_statuses_that_are_not_arguments_of_their_own_are_refused(statuses: Any) -> None:
    with pytest.raises(TypeError, match="each status as an argument of its own"):
        handlers.on_status(Payment, statuses)


@pytest.mark.parametrize("model", ["Payment", Balance, Event, User, int])
def test_a_model_without_a_mirrored_status_is_refused(model: Any) -> None:
    with pytest.raises(TypeError, match="takes a mirrored model with a status"):
        handlers.on_status(model, "succeeded")


@isolate_apps("tests.factories.receivers")
def test_a_handler_of_a_proxy_is_called_for_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    class ShopPayment(Payment):
        class Meta:
            app_label = "receivers"
            proxy = True

    monkeypatch.setattr(handlers, "registered", [])

    @handlers.on_status(ShopPayment, "succeeded")
    def deliver(payment: Any, **kwargs: Any) -> None: ...

    assert handlers.registered == [(deliver, Payment, ("succeeded",))]
    assert status_changed.has_listeners(Payment)


@pytest.mark.case(108)
@pytest.mark.parametrize("signal", [event_received, status_changed, attention])
@pytest.mark.parametrize("name", ASYNC)
def test_async_receivers_are_refused_when_they_are_connected(name: str, signal: SynchronousSignal) -> None:
    before = list(signal.receivers)
    with pytest.raises(TypeError, match=r"is async\. .*async_to_sync"):
        signal.connect(ASYNC[name], weak=False)
    assert signal.receivers == before


@pytest.mark.case(108)
@pytest.mark.parametrize("register", [on_mirror_written, on_mirror_deleted])
@pytest.mark.parametrize("name", ASYNC)
def test_async_listeners_of_the_mirror_are_refused(register: Callable[..., None], name: str) -> None:
    with pytest.raises(TypeError, match=r"is async\. .*async_to_sync"):
        register(ASYNC[name])


@pytest.mark.case(108)
@pytest.mark.parametrize(
    ("register", "call"), [(on_mirror_written, mirror_written), (on_mirror_deleted, mirror_deleted)]
)
def test_a_listener_of_the_mirror_that_runs_nothing_behind_a_decorator_has_failed(
    register: Callable[..., None], call: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_mirror_listeners", "_deletion_listeners"):
        monkeypatch.setattr(signals, name, [])
    register(hide_async(deliver))
    with pytest.raises(TypeError, match="returned a coroutine"):
        call([Payment()])


@pytest.mark.promise(6)
@pytest.mark.parametrize("signal", [event_received, status_changed, attention])
def test_a_receiver_that_is_made_inside_a_function_stays_connected(
    signal: SynchronousSignal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in ``AppConfig.ready``. Django's signals drop it with the end of that function."""
    monkeypatch.setattr(signal, "receivers", [])

    def ready() -> None:
        signal.connect(lambda **_: None, sender=Payment)

    ready()
    gc.collect()
    assert len(signal._live_receivers(Payment)[0]) == 1


class Wanting:
    """A receiver with names of its own."""

    wants = ("payment.created",)
    database_only = True

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, event: Event, **kwargs: Any) -> None:
        self.seen.append(event.id)


@pytest.mark.promise(6)
@pytest.mark.django_db
def test_a_receiver_may_be_an_object_with_any_names(woken: list[str]) -> None:
    receiver = Wanting()
    event_received.connect(receiver)
    try:
        assert not are_database_only(event_received, Payment, "payment.created")
        inbox.receive("default", factories.body(factories.life()[0]))
        inbox.process()
        inbox.dispatch()
    finally:
        event_received.disconnect(receiver)
    assert receiver.seen == [Event.objects.get(state=EventState.DONE).id]


@pytest.mark.promise(6)
@pytest.mark.django_db
def test_a_mock_is_a_receiver_like_another(woken: list[str]) -> None:
    """It has an attribute of any name."""
    receiver = mock.Mock()
    event_received.connect(receiver)
    try:
        assert not are_database_only(event_received, Payment, "payment.created")
        inbox.receive("default", factories.body(factories.life()[0]))
        inbox.process()
        inbox.dispatch()
    finally:
        event_received.disconnect(receiver)
    receiver.assert_called_once()
    assert len(receiver.mock_calls) == 1, "none of its attributes is called"


@pytest.mark.promise(6)
@isolate_apps("tests.factories.receivers")
def test_a_sender_that_sends_nothing_is_refused() -> None:
    """Signals of models take a name. A plain signal would call the receiver for nothing, as for a proxy."""

    class ShopPayment(Payment):
        class Meta:
            app_label = "receivers"
            proxy = True

    for sender in ("payments_integration.Payment", ShopPayment, Mirror, User, int):
        with pytest.raises(TypeError, match=rf"^{re.escape(repr(sender))} sends nothing"):
            status_changed.connect(print, sender=sender)
    for model in (Event, Balance, StatusChange):
        with pytest.raises(TypeError, match="sends no status_changed"):
            status_changed.connect(print, sender=model)


@pytest.mark.case(108)
@pytest.mark.django_db
@pytest.mark.parametrize("register", [handlers.on_event("payment.*"), handlers.on_status(Payment)])
@pytest.mark.parametrize(
    ("handler", "what"), [(deliver, "a coroutine"), (begin, "a generator"), (generate, "a generator")]
)
def test_a_handler_that_runs_nothing_behind_a_decorator_has_failed(
    register: Any, handler: Any, what: str, woken: list[str]
) -> None:
    register(hide_async(handler))
    inbox.receive("default", factories.body(factories.life()[0]))
    inbox.process()
    inbox.dispatch()
    event = Event.objects.get()
    assert event.state == EventState.APPLIED
    assert f"returned {what}" in event.error


@pytest.mark.case(108)
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("receiver", "what"), [(deliver, "a coroutine"), (begin, "a generator"), (generate, "a generator")]
)
def test_a_receiver_of_attention_that_runs_nothing_behind_a_decorator_has_failed(
    receiver: Any, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    hidden = hide_async(receiver)
    attention.connect(hidden)
    try:
        call_attention(Event(account="default"), Reason.PROVIDER_CLOCK, "late")
    finally:
        attention.disconnect(hidden)
    assert f"returned {what}" in caplog.text


@pytest.mark.django_db
def test_async_work_runs_through_async_to_sync(woken: list[str]) -> None:
    seen = []

    async def work(payment_id: str) -> None:
        seen.append(payment_id)

    @handlers.on_event("payment.*")
    def handle(instance: Any, **kwargs: Any) -> None:
        async_to_sync(work)(instance.pk)

    inbox.receive("default", factories.body(factories.life()[0]))
    inbox.process()
    inbox.dispatch()
    assert seen == [Event.objects.get().object_id]
    assert Event.objects.get().state == EventState.DONE


@pytest.mark.django_db
def test_an_async_handler_may_be_decorated_with_async_to_sync(
    woken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "registered", [])
    seen = []

    @handlers.on_event("payment.*")
    @async_to_sync
    async def handle(event: Event, **kwargs: Any) -> None:
        seen.append(event.id)

    inbox.receive("default", factories.body(factories.life()[0]))
    inbox.process()
    inbox.dispatch()
    assert seen == [Event.objects.get(state=EventState.DONE).id]
    assert check_handlers() == []


@pytest.mark.promise(6)
def test_a_pass_calls_no_receivers_of_other_apps_for_the_rows_that_it_writes() -> None:
    """One that fails would end it. Left out: what a person starts, and what comes before a notice is sent."""
    package = Path(handlers.__file__).parent
    paths = [package / "attention.py", package / "contrib/notify/notices.py"]
    for folder in ("inbox", "projection", "reconciliation", "erasure"):
        paths += sorted((package / folder).glob("*.py"))
    with_signals = re.compile(r"\.save\(|objects\.create\b|(?:get|update)_or_create\(|\.delete\(\)")
    found = {path.name for path in paths if with_signals.search(path.read_text())}
    assert found == {"forgetting.py", "notices.py"}
