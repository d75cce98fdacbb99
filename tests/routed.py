"""A site with a database of its own for payments, with ATOMIC_REQUESTS on both, and a router that reads elsewhere.

    python -m tests.routed

makes both databases, takes a delivery in, looks from another connection before the answer leaves, and says what is
wrong. Settings are read at import, so this is a process of its own.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

#: What commits together.
APPS = {"payments_integration", "payments_finance", "payments_backoffice"}


class Router:
    """Payments are in "money". Reads are sent to a database that has none of their tables: to the flows a replica that
    lags behind is no better.
    """

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "default"

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "money" if model._meta.app_label in APPS else "default"

    def allow_relation(self, *_: Any, **__: Any) -> bool:
        return True

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return (db == "money") == (app_label in APPS)


def configure() -> None:
    import django  # noqa: PLC0415

    from tests import settings as site  # noqa: PLC0415

    one = site.DATABASES["default"]
    for alias in ("default", "money"):
        name = f"test_routed_{os.getpid()}_{alias}"
        if one["ENGINE"].endswith("sqlite3"):
            name = str(one["TEST"]["NAME"]).replace("test_", f"test_routed_{alias}_")
        site.DATABASES[alias] = {**one, "ATOMIC_REQUESTS": True, "TEST": {"NAME": name}}
    site.DATABASE_ROUTERS = ["tests.routed.Router"]  # type: ignore[attr-defined]
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    from tests.unit.payable import payables  # noqa: F401, PLC0415 -- their tables are made with the databases


def check() -> list[str]:
    """What is wrong."""
    from django.db import connections, transaction  # noqa: PLC0415
    from django.http import HttpRequest, HttpResponse  # noqa: PLC0415
    from django.test import Client, override_settings  # noqa: PLC0415
    from django.urls import path  # noqa: PLC0415

    from payments_integration import inbox, wakeup, webhooks  # noqa: PLC0415
    from payments_integration.models import Event, Payment, StatusChange  # noqa: PLC0415
    from payments_integration.signals import event_received  # noqa: PLC0415
    from payments_integration.testing import signed_delivery  # noqa: PLC0415
    from tests import factories  # noqa: PLC0415

    wrong: list[str] = []
    seen: list[int] = []
    dispatched: list[str] = []
    transactions: list[dict[str, bool]] = []

    def elsewhere() -> None:
        seen.append(Event.objects.count())
        connections.close_all()

    def on_wake(account: str, deadline: float | None) -> None:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join(20)

    def receive(event: Event, **_: Any) -> None:
        dispatched.append(event.id)
        transactions.append({alias: connections[alias].in_atomic_block for alias in connections})

    def atomic_view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(status=200 if connections["money"].in_atomic_block else 418)

    class Urls:
        urlpatterns = [path("hook/", webhooks.webhook), path("other/", atomic_view)]

    def tables_of(alias: str) -> list[Any]:
        with connections[alias].cursor() as cursor:
            return connections[alias].introspection.get_table_list(cursor)

    wakeup.set_hook(on_wake)
    event_received.connect(receive)
    first = factories.life()[0]
    with override_settings(ROOT_URLCONF=Urls):
        if Client().get("/other/").status_code != 200:
            wrong.append("ATOMIC_REQUESTS is not in force")
        answers = [Client().post("/hook/", **signed_delivery(first, "whsec_default")).status_code for _ in range(2)]
    if answers != [200, 200]:
        wrong.append(f"answered {answers}")
    if seen[:1] != [1]:
        wrong.append(f"before the answer another connection saw {seen} events")
    inbox.process()
    inbox.dispatch()
    if dispatched != [first["id"]]:
        wrong.append(f"dispatched {dispatched}")
    if transactions != [{"default": False, "money": True}]:
        wrong.append(f"the receiver ran in the transactions {transactions}")
    for model in (Event, Payment, StatusChange):
        if model.objects.using("money").count() != 1:
            wrong.append(f"{model.__name__} is not where it is written")
    views = {alias: [table.name for table in tables_of(alias) if table.type == "v"] for alias in ("default", "money")}
    if views["default"] or "payments_v_payment" not in views["money"]:
        wrong.append(f"the views are {views}")
    if transaction.get_connection("default").in_atomic_block:
        wrong.append("a transaction was left open")
    wakeup.set_hook(None)
    return wrong + examine() + call_services() + follow()


def examine() -> list[str]:
    """What is wrong with what staff read: it must come from where it was written."""
    from payments_integration import health  # noqa: PLC0415
    from payments_integration.contrib.backoffice import todo  # noqa: PLC0415
    from payments_integration.contrib.backoffice.todo import Asked, Kind  # noqa: PLC0415
    from payments_integration.models import Event, EventState, Payment  # noqa: PLC0415

    wrong: list[str] = []
    Event.objects.update(state=EventState.PARKED)
    [report] = [each for alias, each in health.examine().accounts.items() if alias == "default"]
    if report.statistics.events.parked.count != 1 or report.statistics.last_event_age_seconds is None:
        wrong.append(f"health says {report.statistics.events}")
    Payment.objects.update(status="on_hold")
    if [thing.kind for thing in todo.things(Asked("default", list(Kind)), [])] != [Kind.ON_HOLD]:
        wrong.append("the to-do list does not have what is to be done")
    return wrong


def call_services() -> list[str]:
    """What is wrong with calls: what they return must come from where it was written."""
    from django.db import transaction  # noqa: PLC0415

    from payments_integration import services  # noqa: PLC0415
    from payments_integration.exceptions import TransactionRefused  # noqa: PLC0415
    from payments_integration.models import Operation  # noqa: PLC0415
    from payments_integration.testing import ProviderSandbox  # noqa: PLC0415

    wrong: list[str] = []
    arguments = {"amount": 1000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
    with ProviderSandbox() as sandbox:
        payment = services.create_payment(**arguments)
        sandbox.engine.pay(payment.pk)
        if services.refresh(payment).status != "succeeded":
            wrong.append(f"a refresh says {payment.status}")
        refund = services.create_refund(payment, amount=300)
        if refund.payment is None or refund.payment.status != "succeeded":
            wrong.append(f"a refund is of {refund.payment}")
        operation = services.defer(services.create_payment, **arguments)
        if operation.state != "done":
            wrong.append(f"a deferred call is {operation.state}")
        before = Operation.objects.count()
        try:
            with transaction.atomic(using="money"):
                services.create_payment(**arguments)
        except TransactionRefused as error:
            # The decorator without it exempts a view from the other database's transaction only.
            wrong += [] if "non_atomic_requests(using='money')" in str(error) else [str(error)]
        try:
            with transaction.atomic(using="default"):
                services.defer(services.create_payment, **arguments)
        except TransactionRefused as error:
            wrong += [] if "using='money'" in str(error) else [str(error)]
        else:
            wrong.append("a call is deferred in a transaction that does not hold its record")
        if Operation.objects.count() != before:
            wrong.append("what was refused is recorded")
        with transaction.atomic(using="default"), transaction.atomic(using="money"):
            services.defer(services.create_payment, **arguments)
    return wrong


def follow() -> list[str]:
    """What is wrong with the handler of the quickstart: it locks an order, which is in another database."""
    from payments_integration import services  # noqa: PLC0415
    from payments_integration.management.quickstart import order_files  # noqa: PLC0415
    from payments_integration.signals import status_changed  # noqa: PLC0415
    from payments_integration.testing import ProviderSandbox  # noqa: PLC0415
    from tests.unit.payable.payables import Order  # noqa: PLC0415

    status_changed.receivers = []  # those of the example, which has one database
    status_changed.sender_receivers_cache.clear()
    exec(order_files.handlers(Order), {"__name__": "orders.payment_handlers"})
    order = Order.objects.using("default").create(number="A-1", amount=10_000, currency="CLP")
    with ProviderSandbox() as sandbox:
        payment = services.create_payment(
            amount=10_000, currency="CLP", country="CL", method_code="cl_webpay_card", merchant_reference="A-1"
        )
        sandbox.engine.pay(payment.pk)
        sandbox.settle()
    order.refresh_from_db()
    return [] if order.paid_at else ["the handler did not mark the order as paid"]


def main() -> int:
    configure()
    from django.test.utils import (  # noqa: PLC0415
        setup_databases,
        setup_test_environment,
        teardown_databases,
    )

    setup_test_environment()
    config = setup_databases(verbosity=0, interactive=False)
    try:
        wrong = check()
    finally:
        teardown_databases(config, verbosity=0)
    sys.stdout.write("\n".join(wrong) or "all is well\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
