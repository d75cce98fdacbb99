"""A call is interrupted at any line: no error but OutcomeUnknown while the ledger has its operation.

The usual run takes a sample of what runs. Each line, the first and the last time that it runs, which takes hours:

    TEST_LINES=all python -m pytest tests/unit/outbox/test_interruptions.py
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import django
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import override_settings

import payments_integration
from payments_integration import services
from payments_integration.db.reconnecting import discard
from payments_integration.exceptions import ApprovalRequired, OutcomeUnknown
from payments_integration.models import Operation, OperationState
from tests.fake_provider import PAYOUT, Fake

#: Only lines in these folders count: an exception inside the interpreter's own modules may leave their locks taken.
FOLDERS = tuple(f"{Path(str(module.__file__)).parent}{os.sep}" for module in (django, payments_integration))
#: Functions of Django's that are spared: two hold a lock for a line, of the connection and of a signal, and an error
#: from the trace at its end would leave it taken; the third has made a connection that only it knows.
SPARED = {"allow_thread_sharing", "_live_receivers", "get_new_connection"}
#: How many moments of each call are tried, with each exception; 0: the first and the last run of each line.
#: Few of the lines are a server's.
SAMPLE = int(os.environ.get("TEST_LINES", "20" if "TEST_DATABASE_URL" in os.environ else "50").replace("all", "0"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
    pytest.mark.case(123),
    pytest.mark.promise(5),
    # Python ignores what is raised in a destructor, also in this one of Django's models.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class TimeLimit(Exception):
    """As Celery's SoftTimeLimitExceeded."""


class Timeout(BaseException):
    """As gevent's."""


#: A file, a line in it, and how often this line runs in this call up to now.
Moment = tuple[str, int, int]


class Interruption:
    """Notes each moment of a call, and raises the error at one of them."""

    def __init__(self, moment: Moment | None, error: BaseException) -> None:
        self.moments: list[Moment] = []
        self._moment, self._error = moment, error
        self._runs: Counter[tuple[str, int]] = Counter()
        #: The files whose lines count. For one moment its own does: to look at all takes twice the time.
        self._files = FOLDERS if moment is None else (moment[0],)

    def __enter__(self) -> Interruption:
        self._previous = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._previous)

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        return self._at_line if code.co_filename.startswith(self._files) and code.co_name not in SPARED else None

    def _at_line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            line = frame.f_code.co_filename, frame.f_lineno
            self._runs[line] += 1
            moment = (*line, self._runs[line])
            self.moments.append(moment)
            if moment == self._moment:
                raise self._error
        return self._at_line


def chosen(moments: list[Moment], offset: int) -> list[Moment]:
    if SAMPLE:
        step = max(1, len(moments) // SAMPLE)
        # Around the check each line counts.
        border = [moment for moment in moments if moment[0].endswith(("services/service.py", "outbox/ledger.py"))]
        return sorted({*moments[offset % step :: step], *border})
    first_and_last = {moment[:2]: moment for moment in reversed(moments)}, {moment[:2]: moment for moment in moments}
    return sorted({moment for each in first_and_last for moment in each.values()})


Do = Callable[[str], Any]


@pytest.fixture
def payout(fake: Fake) -> Do:
    return lambda key: services.create_payout(**PAYOUT, idempotency_key=key)


@pytest.fixture
def deferred(fake: Fake) -> Do:
    return lambda key: services.defer(services.create_payout, **PAYOUT, idempotency_key=key)


@pytest.fixture
def again(fake: Fake) -> Do:
    """A call whose key is free after a refusal."""

    def call(key: str) -> Any:
        operation = Operation.objects.get(idempotency_key=key)
        assert operation.state == OperationState.CLOSED
        return services.create_payout(**PAYOUT, idempotency_key=key)

    return call


@pytest.fixture
def approval(fake: Fake) -> Iterator[Do]:
    checker = User.objects.create(username="berta", is_staff=True, is_superuser=True)
    with override_settings(
        PAYMENTS_INTEGRATION={**settings.PAYMENTS_INTEGRATION, "APPROVAL_LIMITS": {"CLP": PAYOUT["amount"]}}
    ):
        yield lambda key: services.approve(Operation.objects.get(idempotency_key=key), checker)


def prepare(name: str, key: str) -> None:
    """What must be there before the call."""
    if name == "approval":
        with pytest.raises(ApprovalRequired):
            services.create_payout(**PAYOUT, idempotency_key=key, actor="ana")
    elif name == "again":
        services.create_payout(**PAYOUT, idempotency_key=key)
        Operation.objects.filter(idempotency_key=key).update(
            state=OperationState.CLOSED, may_have_run=False, error={"status_code": 401, "code": "api_key_invalid"}
        )


def comes_of(raised: BaseException | None, kind: type[BaseException]) -> bool:
    """Whether this is such an error, or one that Django raises when it ends the transaction after it."""
    while raised is not None and not isinstance(raised, kind):
        raised = raised.__context__
    return raised is not None


#: An error says that it was not executed, and will not be.
WITHOUT_EFFECT = (OperationState.CLOSED, OperationState.REJECTED, OperationState.AWAITING_APPROVAL)


@pytest.mark.any_database  # the exceptions are not the database's
@pytest.mark.parametrize("kind", [TimeLimit, Timeout])
@pytest.mark.parametrize("name", ["payout", "deferred", "approval", "again"])
def test_an_exception_at_any_line_is_an_unknown_outcome_if_the_operation_is_recorded(
    name: str, kind: type[BaseException], fake: Fake, request: pytest.FixtureRequest
) -> None:
    call: Do = request.getfixturevalue(name)
    fake.available = 10**9

    def run(number: int, moment: Moment | None) -> tuple[Interruption, BaseException | None]:
        discard("default")
        key = f"{name}-{kind.__name__}-{number}"
        prepare(name, key)
        raised: BaseException | None = None
        with Interruption(moment, kind()) as interruption:
            try:
                call(key)
            except BaseException as error:
                raised = error
        discard("default")
        return interruption, raised

    def run_apart(number: int, moment: Moment | None) -> tuple[Interruption, BaseException | None]:
        # A thread of its own: an interrupted ``with`` leaves its context variables as they are, and CPython leaves the
        # exception that an interrupted handler was handling.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(run, number, moment).result()

    run_apart(-2, None)  # what is done once per process
    whole, raised = run_apart(-1, None)
    assert raised is None
    # Another sample for each call: together they come to more lines.
    moments = chosen(whole.moments, offset=sum(f"{name}{kind.__name__}".encode()))
    wrong, unknown = [], 0
    for number, moment in enumerate(moments):
        _, raised = run_apart(number, moment)
        operation = Operation.objects.filter(idempotency_key=f"{name}-{kind.__name__}-{number}").first()
        unknown += isinstance(raised, OutcomeUnknown)
        if raised is not None and not isinstance(raised, OutcomeUnknown):
            if operation is not None and operation.state not in WITHOUT_EFFECT:
                wrong.append(f"{moment}: {raised!r}, {operation.state}")
            if not comes_of(raised, kind):
                wrong.append(f"{moment}: {raised!r} instead of {kind.__name__}")
    assert wrong == []
    assert unknown > 0
