"""Personal data and keys stay out of logs, errors, reprs and error reports."""

from __future__ import annotations

import logging
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.views.debug import ExceptionReporter

from payments_integration import conf, services
from payments_integration.exceptions import InvalidState, OutcomeUnknown
from payments_integration.services import payouts, service
from tests.fake_provider import DESTINATION, PAYER, PAYMENT, PAYOUT, Fake, make_due, only_operation, refusal, timeout

PACKAGE = Path(conf.__file__).parent
PERSONAL = ["Ana Rojas", "ana@example.com", "+56912345678", "12345678-5", "12.345.678-5", "00123456789"]


def secrets() -> list[str]:
    return [*PERSONAL, conf.account().api_key]


def assert_clean(text: str) -> None:
    assert text
    assert [secret for secret in secrets() if secret in text] == []


@pytest.mark.case(85)
@pytest.mark.promise(7)
@pytest.mark.parametrize(
    "script",
    [
        [timeout()],
        [refusal(InvalidState, 422, "insufficient_balance")],
        [RuntimeError("a bug")],
        [timeout(), timeout(), RuntimeError("a bug")],
    ],
)
def test_logs_and_errors_of_a_call_show_no_personal_data(
    fake: Fake, caplog: pytest.LogCaptureFixture, script: list[Any]
) -> None:
    caplog.set_level(logging.DEBUG)
    fake.script = script
    with pytest.raises((OutcomeUnknown, InvalidState)) as caught:
        services.create_payout(**PAYOUT)
    for _ in range(2):
        make_due()
        services.resume_operations()
    assert_clean(
        "".join(traceback.format_exception(caught.value))
        + caplog.text
        + repr(only_operation())
        + only_operation().note
    )


@pytest.mark.case(85)
def test_a_validation_error_repeats_no_value(fake: Fake) -> None:
    wrong = {
        **PAYER,
        "email": "ana@example.com@",
        "phone": "+56912345679 ",
        "document": {"type": "CPF", "number": "12345678-5"},
    }
    with pytest.raises(ValidationError) as caught:
        services.create_payment(**PAYMENT, payer=wrong)
    text = str(caught.value.message_dict) + repr(caught.value)
    assert "912345679" not in text
    assert_clean(text.replace("such as +56912345678", ""))


@pytest.mark.case(85)
def test_the_repr_of_an_intent_shows_no_personal_data(fake: Fake) -> None:
    intent = service._prepare[services.create_payout](**PAYOUT)
    assert_clean(repr(intent))
    assert intent.body is not None


@pytest.mark.case(85)
@pytest.mark.parametrize("function", [services.create_payout, services.defer])
def test_error_reports_of_django_show_no_personal_data(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, function: Any
) -> None:
    """Django mails the variables of every frame to the admins."""

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(payouts.objects, "destination", fail)
    destination = dict(DESTINATION)
    args = [services.create_payout] if function is services.defer else []
    try:
        function(*args, **{**PAYOUT, "destination": destination})
    except RuntimeError:
        reporter = ExceptionReporter(None, *sys.exc_info())
    frames = [
        frame
        for frame in reporter.get_traceback_data()["frames"]
        if Path(frame["filename"]).is_relative_to(PACKAGE) or "/views/decorators/" in frame["filename"]
    ]
    assert frames
    assert_clean(str([frame["vars"] for frame in frames]))
