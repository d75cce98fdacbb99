"""What a call costs the database, in statements; ``benchmarks/calls.py`` says what it costs in CPU.

A machine may be slow, a count may not grow. What begins and ends transactions is counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from payments_integration import services, wakeup
from payments_integration.db import sizes
from payments_integration.exceptions import InvalidState, OutcomeUnknown, PaymentsError
from payments_integration.models import DueRefresh, EventState, RefreshReason, StatusChange
from tests.conftest import Receiver
from tests.fake_provider import DEPOSIT, ENDPOINT, PAYMENT, PAYOUT, Fake, Next, payment, payout, refusal, timeout

pytestmark = pytest.mark.django_db(transaction=True)

#: Where a union cannot lock what it reads, the refunds and the open operations are read one after the other.
LOCKING = 1 if connection.vendor == "mysql" else 0
#: Its driver does not tell if BEGIN as SQL has opened a transaction, so the one INSERT is followed by a COMMIT.
COMMIT = 1 if connection.vendor == "mysql" else 0
CONTROL = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "ROLLBACK")


class Counts(NamedTuple):
    statements: int
    #: BEGIN and COMMIT, SAVEPOINT and RELEASE.
    control: int


#: By service: its arguments, as functions of ``mirrored``; the first call that works; one that the provider refuses or
#: does not answer. The latter end with the operation's outcome, and nothing is mirrored.
ASKED: dict[str, tuple[Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]], Counts, Counts]] = {
    # The INSERT of an operation that nothing is decided about commits it.
    "create_payment": (lambda mirrored: ((), PAYMENT), Counts(6, 2 + COMMIT), Counts(3, 2 + COMMIT)),
    "create_deposit_reference": (lambda mirrored: ((), DEPOSIT), Counts(6, 2 + COMMIT), Counts(3, 2 + COMMIT)),
    # The balance, and payouts of the same reference that no operation made.
    "create_payout": (lambda mirrored: ((), PAYOUT), Counts(8, 4), Counts(5, 4)),
    # The secret.
    "create_webhook_endpoint": (lambda mirrored: ((), ENDPOINT), Counts(8, 4 + COMMIT), Counts(3, 2 + COMMIT)),
    # The row is read, snapped and locked, and compared with what came: "Which state is newer" in docs/architecture.md.
    "cancel_payment": (lambda mirrored: ((mirrored(payment()),), {}), Counts(8, 6), Counts(4, 4)),
    "cancel_payout": (lambda mirrored: ((mirrored(payout()),), {}), Counts(8, 6), Counts(4, 4)),
    # The payment is locked, everything that reduces its rest is counted, and it is marked for a refresh.
    "create_refund": (
        lambda mirrored: ((mirrored(payment(status="succeeded", amount_received=10_000)),), {"amount": 1_000}),
        Counts(9 + LOCKING, 4),
        Counts(5 + LOCKING, 4),
    ),
}
NAMES = list(ASKED)


def counted(call: Callable[[], Any]) -> Counts:
    sizes.packet(connection.alias)  # read once per connection
    with CaptureQueriesContext(connection) as captured:
        call()
    kinds = [query["sql"].split(maxsplit=1)[0] for query in captured.captured_queries]
    control = sum(kind in CONTROL for kind in kinds)
    return Counts(len(kinds) - control, control)


@pytest.fixture
def awake(woken: list[str]) -> Iterator[None]:
    """Wake-ups do their work, as on a site."""
    previous = wakeup.set_hook(wakeup._on_wake)
    yield
    wakeup.set_hook(previous)


def service(name: str, mirrored: Any) -> Callable[[str | None], Any]:
    """The call, by its key."""
    args, kwargs = ASKED[name][0](mirrored)
    return lambda key: getattr(services, name)(*args, **kwargs, idempotency_key=key)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_call_takes_a_fixed_number_of_statements(fake: Fake, mirrored: Any, name: str) -> None:
    call, most = service(name, mirrored), ASKED[name][1]
    assert counted(lambda: call("k1")) == most
    assert len(fake.calls) == 1


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("create_") and name != "create_refund"])
def test_a_creation_takes_at_most_eight_statements(name: str) -> None:
    assert ASKED[name][1].statements <= 8


@pytest.mark.parametrize("name", ["cancel_payment", "cancel_payout"])
def test_a_cancel_takes_at_most_eight_statements(name: str) -> None:
    assert ASKED[name][1].statements <= 8


def test_a_refund_takes_at_most_ten_statements() -> None:
    assert ASKED["create_refund"][1].statements <= 10


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("create_") and name != "create_refund"])
def test_nothing_follows_a_creation_that_left_nothing_to_do(fake: Fake, mirrored: Any, awake: None, name: str) -> None:
    """It was five statements for an empty batch, and what asks for changes and reads that are due."""
    call, most = service(name, mirrored), ASKED[name][1]
    assert counted(lambda: call("k1")) == most
    assert not DueRefresh.objects.exists()
    assert not StatusChange.objects.filter(state=EventState.APPLIED).exists()


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("create_")])
def test_a_creation_wakes_who_calls_the_handlers(
    fake: Fake, mirrored: Any, receiver: Receiver, woken: list[str], name: str
) -> None:
    service(name, mirrored)("k1")
    assert woken == ["default"]
    assert StatusChange.objects.filter(state=EventState.APPLIED).exists()


@pytest.mark.parametrize(("status", "wakes"), [("created", False), ("processing", False), ("succeeded", True)])
def test_a_refund_has_its_payment_read_at_once_only_if_it_moved_money(
    fake: Fake, mirrored: Any, woken: list[str], status: str, wakes: bool
) -> None:
    """Until then the caller would wait for a second request that shows nothing new."""
    fake.script = [lambda made: msgspec.structs.replace(made, status=status)]
    service("create_refund", mirrored)("k1")
    assert woken == ["default"] * wakes
    assert DueRefresh.objects.get().reason == RefreshReason.REFUND_CHANGED


@pytest.mark.parametrize("earlier", [1, 3])
def test_earlier_refunds_cost_one_statement_together(fake: Fake, mirrored: Any, earlier: int) -> None:
    """They are listed, and written only if the mirror has them otherwise."""
    row = mirrored(payment(status="succeeded", amount_received=10_000))
    for _ in range(earlier):
        services.create_refund(row, amount=1_000)
    # A worker has read the payment since.
    DueRefresh.objects.all().delete()
    fake.reads.clear()
    assert counted(lambda: services.create_refund(row, amount=1_000)) == Counts(10 + LOCKING, 4)
    assert fake.reads == ["list refund"]


@pytest.mark.parametrize("name", NAMES)
def test_a_call_without_a_key_looks_for_none(fake: Fake, mirrored: Any, name: str) -> None:
    """A call about an object looks it up together with the object. Without a key a payout has a new reference."""
    call, most = service(name, mirrored), ASKED[name][1]
    about = bool(ASKED[name][0](mirrored)[0])
    less = 2 if name == "create_payout" else 0 if about else 1
    assert counted(lambda: call(None)).statements == most.statements - less


@pytest.mark.parametrize("name", NAMES)
def test_a_repeated_call_only_reads(fake: Fake, mirrored: Any, name: str) -> None:
    """The ledger, the row that was made, and what the call is about; no transaction."""
    call = service(name, mirrored)
    call("k1")
    about = bool(ASKED[name][0](mirrored)[0])
    assert counted(lambda: call("k1")) == Counts(3 + about, 0)
    assert len(fake.calls) == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("answer", "raised"), [(refusal(InvalidState, 422, "invalid_state"), InvalidState), (timeout(), OutcomeUnknown)]
)
def test_a_call_that_fails_takes_a_fixed_number_of_statements(
    fake: Fake, mirrored: Any, name: str, answer: Next, raised: type[PaymentsError]
) -> None:
    call, most = service(name, mirrored), ASKED[name][2]
    fake.script = [answer]

    def failing() -> None:
        with pytest.raises(raised):
            call("k1")

    assert counted(failing) == most
    # The repeated call reads the ledger and the target.
    about = bool(ASKED[name][0](mirrored)[0])
    assert counted(failing) == Counts(2 + about, 0)
    assert len(fake.calls) == 1
