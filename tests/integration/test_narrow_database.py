"""A database that cannot store every character: utf8mb3 or latin1 on MariaDB, LATIN1 on PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import connection, connections
from django.test import Client
from django.utils import timezone

from payments_integration import inbox, reconciliation, services
from payments_integration.db import fields
from payments_integration.models import DueRefresh, Event, Payment, Refund, StatusChange, deletion_allowed
from payments_integration.projection import forget_contacts, forget_secrets
from payments_integration.testing import ProviderSandbox, signed_delivery
from tests import factories
from tests.conftest import Receiver
from tests.databases import MARIADB, POSTGRES, SQLITE, execute
from tests.factories import body, event
from tests.integration.reconciling import pay

EMOJI = "\U0001f600"
#: What is created, by the name of the character set.
DATABASES = {
    "utf8mb3": "CREATE DATABASE {} CHARACTER SET utf8mb3",
    "latin1": "CREATE DATABASE {} CHARACTER SET latin1",
    "LATIN1": "CREATE DATABASE {} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
}

pytestmark = [
    pytest.mark.skipif(SQLITE, reason="SQLite stores every character"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("narrow"),
    pytest.mark.case(133),
]


@contextmanager
def migrated(character_set: str, suffix: str = "") -> Iterator[str]:
    """A database of this character set, beside the one of the other tests."""
    usual = connection.settings_dict["NAME"]
    name = f"{usual}_{character_set.lower()}{suffix}"
    execute(f"DROP DATABASE IF EXISTS {name}", DATABASES[character_set].format(name))
    use(name)
    call_command("migrate", verbosity=0, run_syncdb=True)
    use(usual)
    yield name
    use(usual)
    execute(f"DROP DATABASE {name}")


@pytest.fixture(scope="module", params=["utf8mb3", "latin1"] if MARIADB else ["LATIN1"])
def name(request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    with django_db_blocker.unblock(), migrated(request.param) as name:
        yield name


def use(name: str) -> None:
    connections.close_all()
    connection.settings_dict["NAME"] = name
    forget_secrets()
    forget_contacts()
    fields._character_set.cache_clear()  # as a restart does


@pytest.fixture
def narrow(name: str, transactional_db: None, woken: list[str]) -> Iterator[None]:
    usual = connection.settings_dict["NAME"]
    use(name)
    try:
        yield
        call_command("flush", verbosity=0, interactive=False)
    finally:
        use(usual)


def deliver(item: dict[str, Any]) -> int:
    return int(Client().post("/payments/webhook/", **signed_delivery(item, "whsec_default")).status_code)


def at_provider(sandbox: ProviderSandbox, object_id: str) -> Any:
    """The provider's own object."""
    project = sandbox.engine.project_of(object_id)
    objects = project.payments if object_id.startswith("pay_") else project.refunds
    return next(item for item in objects.items if item["id"] == object_id)


def test_one_emoji_condemns_one_event(attentions: list[dict[str, Any]], receiver: Receiver) -> None:
    items = [item for number in range(20) for item in factories.life(f"pay_{number}")[:2]]
    bad = event(factories.payment(id="pay_bad", failure_reason=f"no {EMOJI}"), id="evt_bad")
    for item in (*items, bad):
        assert deliver(item) == 200
    assert inbox.process() == 41
    inbox.dispatch()
    assert Payment.objects.count() == 20
    assert len(receiver.dispatched) == 40
    stray = Event.objects.get(state="quarantined")
    assert bytes(stray.body or b"") == body(bad)
    assert re.fullmatch(r"the database refuses it: (OperationalError 1366|DataError 22P05)", stray.error)
    assert [seen["reason"] for seen in attentions] == ["event_quarantined"]
    assert not Event.objects.filter(state="pending").exists()
    assert deliver(factories.life("pay_later")[0]) == 200
    assert inbox.process() == 1


def test_an_emoji_in_the_type_of_an_event_is_answered_200(attentions: list[dict[str, Any]]) -> None:
    strange = {**event(factories.payment()), "id": "evt_strange", "type": f"payment.{EMOJI}"}
    assert [deliver(strange), deliver(strange)] == [200, 200]
    fresh = event(factories.payment(), id="evt_fresh")
    counts = inbox.receive_many("default", [body(fresh), body(strange)], source="reconciliation")
    assert {receipt.value: count for receipt, count in counts.items()} == {"new": 1, "known": 1}
    assert Event.objects.get(state="quarantined").error.startswith("the database refuses it")


def test_a_sweep_leaves_out_the_object_and_names_it(sandbox: ProviderSandbox) -> None:
    payments = [pay(sandbox) for _ in range(5)]
    refund = services.create_refund(payments[2], amount=1000)
    with deletion_allowed():
        Payment.objects.all().delete()
        Refund.objects.all().delete()
    StatusChange.objects.all().delete()
    at_provider(sandbox, payments[1].pk)["failure_reason"] = f"no {EMOJI}"
    at_provider(sandbox, refund.pk)["reason"] = EMOJI
    run = reconciliation.reconcile_objects(full=True)
    assert run.state == "failed"
    assert re.search(rf"{payments[1].pk}: the database refuses it: \w+ (1366|22P05)", run.error)
    assert refund.pk in run.error
    assert set(Payment.objects.values_list("pk", flat=True)) == {row.pk for row in payments} - {payments[1].pk}


def test_an_object_that_cannot_be_stored_delays_no_other_read(sandbox: ProviderSandbox) -> None:
    first, second = pay(sandbox), pay(sandbox)
    at_provider(sandbox, first.pk)["failure_reason"] = f"no {EMOJI}"
    for row in (first, second):
        DueRefresh.objects.update_or_create(
            account="default", object_kind="payment", object_id=row.pk, defaults={"due_at": timezone.now()}
        )
    reconciliation.process_due()
    due = DueRefresh.objects.get()
    assert (due.object_id, due.attempts) == (first.pk, 1)
    assert due.error.startswith("the database refuses it")


def test_a_handler_that_fails_with_an_emoji_is_counted_and_parked(receiver: Receiver, settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "RECEIVER_RETRIES": []}

    def fail(what: str) -> bool:
        raise RuntimeError(f"{what} {EMOJI} ñ")

    receiver.fail = fail
    inbox.receive("default", body(factories.life()[0]))
    inbox.process()
    inbox.dispatch()
    parked = Event.objects.get()
    assert parked.state == "parked"
    assert "\\U0001f600 ñ" in parked.error


def test_what_staff_type_is_refused_before_money_moves(sandbox: ProviderSandbox) -> None:
    payment = pay(sandbox)
    with pytest.raises(ValidationError, match=f"cannot store the character {EMOJI}") as caught:
        services.create_refund(payment, amount=1000, reason=f"sorry {EMOJI}")
    assert list(caught.value.message_dict) == ["reason"]
    refund = services.create_refund(payment, amount=1000, reason="año")
    assert refund.reason == "año"


def test_the_check_warns() -> None:
    assert "payments_integration.W016" in {message.id for message in run_checks(databases=["default"])}


@pytest.mark.skipif(POSTGRES, reason="PostgreSQL converts no database")
def test_the_statements_of_the_documentation_convert_the_columns() -> None:
    page = (Path(__file__).parents[2] / "docs" / "install.md").read_text()
    (query,) = re.findall(r"```sql\n(SELECT CONCAT.*?);\n```", page, re.DOTALL)
    usual = connection.settings_dict["NAME"]
    with migrated("latin1", "_converted") as name:
        use(name)
        with connection.cursor() as cursor:
            cursor.execute(query)
            found = [row[0] for row in cursor.fetchall()]
        execute(*found)
        use(name)
        inbox.receive("default", body(event(factories.payment(failure_reason=EMOJI))))
        inbox.process()
        assert Payment.objects.get().failure_reason == EMOJI
        assert "payments_integration.W016" not in {message.id for message in run_checks(databases=["default"])}
        use(usual)
