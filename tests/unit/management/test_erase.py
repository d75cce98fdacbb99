"""``payments_erase``, with the arguments that a person types."""

from __future__ import annotations

import io
import sys
from typing import Any
from unittest import mock

import pytest
from django.core.management import CommandError, call_command

from payments_integration import inbox
from payments_integration.models import Erasure, Event, Operation, OperationState, Payment
from tests import factories
from tests.factories import rows
from tests.fake_provider import PAYER

pytestmark = pytest.mark.django_db

VALUES = ["Ana Rojas", "ana@example.com", "+56912345678", "12345678-5"]


#: The first and the last line of what the command does not reach.
ELSEWHERE = (
    "This command does not reach:\n- backups, dumps and snapshots of the database:",
    "that have received the data\n",
)


def run(*words: str, stdin: str = "", is_terminal: bool = False) -> str:
    out, typed = io.StringIO(), io.StringIO(stdin)
    typed.isatty = lambda: is_terminal  # type: ignore[method-assign]
    with mock.patch.object(sys, "stdin", typed):
        call_command("payments_erase", *words, stdout=out)
    return out.getvalue()


@pytest.fixture(autouse=True)
def _there(woken: list[str]) -> None:
    """Two payments of Ana, one of them with a refund, and a payment of another payer."""
    for number in (1, 2):
        data = factories.payment(id=f"pay_{number}", payer=PAYER, merchant_reference=f"order-{number}")
        inbox.receive("default", factories.body(factories.event(data)))
    inbox.receive("default", factories.body(factories.event(factories.payment(id="pay_3", payer={"name": "Ben"}))))
    inbox.receive("default", factories.body(factories.event(factories.refund(payment_id="pay_1"))))
    inbox.process()
    rows.operation(operation="create_payment", result_id="pay_1", result_kind="payment", arguments={"payer": PAYER})


def erased() -> set[str]:
    return set(Payment.objects.exclude(erased_at=None).values_list("pk", flat=True))


def test_erase_by_email() -> None:
    output = run("--email", "ANA@example.com", "--yes")
    done, elsewhere, _ = output.partition(ELSEWHERE[0])
    assert done == (
        "Found: 3 event bodies, 1 operation, 2 payments, 1 refund.\n"
        "Erased: 3 event bodies, 1 operation, 2 payments, 1 refund.\n"
    )
    assert elsewhere
    assert output.endswith(ELSEWHERE[1])
    for place in ("backups", "replicas", "logs", "provider's records", "your own tables, files"):
        assert place in output
    assert erased() == {"pay_1", "pay_2"}
    assert Payment.objects.get(pk="pay_3").payer == {"name": "Ben"}
    assert run("--email", "ana@example.com", "--yes").startswith("Nothing was found.\n" + ELSEWHERE[0])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--phone", "+56 9 1234 5678"], {"pay_1", "pay_2"}),
        (["--document", "12.345.678-5"], {"pay_1", "pay_2"}),
        (["--reference", "order-1"], {"pay_1"}),
        (["--reference", "order-1", "--reference", "order-2"], {"pay_1", "pay_2"}),
        (["--id", "pay_2", "--id", "pay_3"], {"pay_2", "pay_3"}),
        (["--id", "pay_2", "--account", "default"], {"pay_2"}),
        (["--email", "ana@example.com", "--account", "second"], set()),
    ],
)
def test_erase_by_other_identifiers(words: list[str], expected: set[str]) -> None:
    output = run(*words, "--yes")
    assert erased() == expected
    assert not [value for value in VALUES if value in output]


def test_a_dry_run_erases_nothing() -> None:
    output = run("--email", "ana@example.com", "--dry-run")
    assert output.startswith(
        "Found: 3 event bodies, 1 operation, 2 payments, 1 refund.\nNothing was erased.\n" + ELSEWHERE[0]
    )
    assert erased() == set()
    assert not Erasure.objects.exists()


def test_values_are_read_from_standard_input() -> None:
    run("--stdin", "--yes", stdin="email ana@example.com\nid pay_3\n")
    assert erased() == {"pay_1", "pay_2", "pay_3"}


def test_erase_asks_for_confirmation() -> None:
    with pytest.raises(CommandError, match="Nothing was erased"):
        run("--id", "pay_1", stdin="yes\n", is_terminal=True)
    with pytest.raises(CommandError, match="Add --yes") as caught:
        run("--id", "pay_1", stdin="erase\n")
    assert caught.value.returncode == 2
    assert erased() == set()
    run("--id", "pay_1", stdin="erase\n", is_terminal=True)
    assert erased() == {"pay_1"}


def test_the_actor_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    run("--id", "pay_1", "--yes", "--actor", "privacy desk, ticket 12")
    assert set(Erasure.objects.values_list("object_id", "actor")) >= {("pay_1", "privacy desk, ticket 12")}
    monkeypatch.setattr("getpass.getuser", lambda: "ana")
    run("--id", "pay_2", "--yes")
    assert Erasure.objects.get(object_id="pay_2").actor == "payments_erase by ana"
    monkeypatch.setattr("getpass.getuser", mock.Mock(side_effect=OSError))
    run("--id", "pay_3", "--yes")
    assert Erasure.objects.get(object_id="pay_3").actor == "payments_erase"


def test_data_that_must_wait_is_shown() -> None:
    Operation.objects.update(state=OperationState.NEEDS_PERSON)
    Event.objects.filter(object_id="pay_2").update(state="pending")
    output = run("--email", "ana@example.com", "--yes")
    assert "Found: 3 event bodies, 1 open operation, 2 payments, 1 refund." in output
    assert "Left until it is closed or applied: 1 event body, 1 operation." in output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "Choose a payer"),
        (["--yes"], "Choose a payer"),
        (["--email", "ana"], "an e-mail address must contain an @"),
        (["--phone", "12"], "at least 7 digits"),
        (["--id", "pay_404"], "nothing is known of pay_404"),
        (["--id", "evt_1"], "is not the id of a payment"),
        (["--id", "pay_1", "--account", "missing"], "no account"),
    ],
)
def test_wrong_arguments_are_refused(words: list[str], says: str) -> None:
    with pytest.raises(CommandError, match=says) as caught:
        run(*words)
    assert caught.value.returncode == 2
    assert erased() == set()


def test_wrong_lines_on_standard_input_are_refused() -> None:
    for line in ("ana@example.com", "name Ana Rojas", "email"):
        with pytest.raises(CommandError, match="Each line") as caught:
            run("--stdin", "--yes", stdin=f"{line}\n")
        assert "Ana" not in str(caught.value)


def test_one_wrong_id_prevents_the_whole_erasure() -> None:
    with pytest.raises(CommandError):
        run("--id", "pay_1", "--id", "pay_404", "--yes")
    assert erased() == set()


@pytest.mark.case(85)
def test_no_personal_data_is_logged(caplog: pytest.LogCaptureFixture, capsys: Any) -> None:
    caplog.set_level("DEBUG", logger="payments_integration")
    output = run("--email", "ana@example.com", "--phone", "+56912345678", "--document", "12345678-5", "--yes")
    shown = caplog.text + output + "".join(capsys.readouterr())
    assert not [value for value in VALUES if value in shown]
