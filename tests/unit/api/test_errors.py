"""Errors that a form can show: every wrong field by its name, and words for the person who reads them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.core.signals import got_request_exception
from django.test import Client
from django.utils import translation
from rest_framework.authentication import TokenAuthentication

from payments_integration.api import errors
from payments_integration.exceptions import ApiError, InvalidRequest, InvalidState, PermissionRefused
from payments_integration.models import Operation
from payments_integration.testing import ProviderSandbox
from payments_integration.validation.validator import NestedError, Validator
from tests.unit.api.conftest import API, Caller, error, make_payment

pytestmark = pytest.mark.django_db(transaction=True)

PAYMENT = {"amount": 12_990, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}


@pytest.fixture
def provider(woken: list[str]) -> Any:
    with ProviderSandbox() as sandbox:
        yield sandbox


def test_every_wrong_field_is_named_at_once(provider: ProviderSandbox, boss: Caller) -> None:
    payer = {
        "email": "no address", "phone": "12", "document": {"type": "RUT", "number": "11111111-2"}, "name": "Ana",
    }  # fmt: skip
    response = boss.post("payments/", {"amount": 1.5, "currency": "EUR", "country": "CL", "payer": payer})
    assert response.status_code == 400
    found = error(response)
    named = {each["param"]: each["code"] for each in found["errors"]}
    assert named == {
        "amount": "parameter_invalid", "currency": "parameter_invalid", "method_code": "parameter_missing",
        "payer.email": "parameter_invalid", "payer.phone": "parameter_invalid",
        "payer.document.number": "parameter_invalid",
    }  # fmt: skip
    first = found["errors"][0]
    assert (found["param"], found["code"], found["message"]) == (first["param"], first["code"], first["message"])
    messages = {each["param"]: each["message"] for each in found["errors"]}
    assert messages["payer.email"] == "This is not an e-mail address.", "the place is not in the words as well"
    assert "no address" not in response.content.decode()
    assert not Operation.objects.exists()


def test_a_missing_nested_field_is_missing(provider: ProviderSandbox, boss: Caller) -> None:
    found = error(boss.post("payments/", {**PAYMENT, "payer": {"document": {"type": "RUT"}}}))
    assert (found["param"], found["code"]) == ("payer.document.number", "parameter_missing")


def test_all_unknown_fields_and_all_wrong_filters_are_named(boss: Caller) -> None:
    assert [each["param"] for each in error(boss.post("payments/", {"a": 1, "b": 2}))["errors"]] == ["a", "b"]
    found = error(boss.get("payments/?status=x&created_from=yesterday"))
    assert {each["param"] for each in found["errors"]} == {"status", "created_from"}


def test_a_name_that_is_none_is_not_repeated(boss: Caller) -> None:
    assert "errors" not in error(boss.post("payments/", {"<script>": 1}))


def test_other_errors_have_no_fields(boss: Caller) -> None:
    assert "errors" not in error(boss.get("payments/pay_none/"))


def test_an_error_inside_an_argument_says_where(provider: ProviderSandbox) -> None:
    validator = Validator()
    validator.fail("payer.document.number", "100% wrong")
    with pytest.raises(ValidationError) as raised:
        validator.finish()
    [found] = raised.value.error_dict["payer"]
    assert isinstance(found, NestedError)
    assert (found.place, found.reason, found.messages) == (
        "document.number", "100% wrong", ["document.number: 100% wrong"]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("refusal", "status", "type"),
    [
        (InvalidRequest("not in English", status_code=400, code="parameter_invalid", param="payer.email"), 400, ""),
        (InvalidRequest("…", status_code=422, code="method_not_available", param="method_code"), 422, ""),
        (InvalidRequest("…", status_code=422, code="amount_out_of_range", param="amount"), 422, ""),
        (PermissionRefused("…", status_code=403, code="blocked_payer", param="payer"), 422, ""),
        (PermissionRefused("…", status_code=403, code="country_not_allowed", param="country"), 422, ""),
        (InvalidState("…", status_code=422, code="insufficient_balance", param="amount"), 422, "invalid_state_error"),
    ],
)
def test_the_providers_refusals_are_translated(refusal: Any, status: int, type: str) -> None:
    sent = ("payer", "method_code", "amount", "country")
    words = {}
    for language in ("en", "es", "pt-br"):
        with translation.override(language):
            problem = errors.problem_of(refusal, sent, is_change=True)
        assert problem is not None
        assert (problem.status, problem.code, problem.param) == (status, refusal.code, refusal.param)
        assert problem.type == (type or "invalid_request_error")
        assert [each.param for each in problem.errors] == [refusal.param]
        words[language] = problem.message
    assert len(set(words.values())) == 3
    assert refusal.message not in words.values()


def test_a_refusal_that_this_version_does_not_know_keeps_the_providers_words() -> None:
    refusal = InvalidRequest("Such is life.", status_code=400, code="new_code", param="not_sent")
    problem = errors.problem_of(refusal, ("amount",), is_change=True)
    assert problem is not None
    assert (problem.message, problem.code, problem.param) == ("Such is life.", "new_code", None)


def test_a_refusal_of_access_is_not_the_callers() -> None:
    refusal = PermissionRefused("…", status_code=403, code="merchant_not_active")
    problem = errors.problem_of(refusal, (), is_change=True)
    assert problem is not None
    assert (problem.status, problem.code) == (502, "provider_unavailable")
    # It leaves the key free.
    assert problem.message.endswith("Repeat the request with the same Idempotency-Key.")


def test_another_try_after_a_final_answer_needs_another_key() -> None:
    refusal = ApiError("…", status_code=418, code="new_code")
    [changed, read] = [errors._of_provider(refusal, (), is_change=is_change) for is_change in (True, False)]
    assert changed.message == f"{read.message} Nothing was done. Another try needs another Idempotency-Key."


def test_a_blocked_payer_reads_about_it_in_the_form(provider: ProviderSandbox, boss: Caller) -> None:
    response = boss.post("payments/", {**PAYMENT, "payer": {"email": "blocked@example.com"}})
    assert response.status_code == 422, response.content
    assert (error(response)["code"], error(response)["param"]) == ("blocked_payer", "payer")


class TestWhoIsNotSignedIn:
    def test_no_credentials(self) -> None:
        response = Caller().get("payments/")
        assert (response.status_code, error(response)["code"]) == (401, "not_authenticated")

    def test_a_token_that_no_class_reads(self, caplog: pytest.LogCaptureFixture) -> None:
        """The default reads sessions only. The log names the option, and the answer does not."""
        caplog.set_level("WARNING", logger="payments_integration.api")
        response = Caller().get("payments/", Authorization="Bearer eyJ")
        assert (response.status_code, error(response)["code"]) == (401, "not_authenticated")
        assert "API_" not in response.content.decode()
        [line] = [record.getMessage() for record in caplog.records if "integration.api" in record.name]
        assert line.endswith("no class of the option API_AUTHENTICATION_CLASSES takes this Authorization header")
        assert "eyJ" not in line

    def test_a_session_that_is_over(self, boss: Caller) -> None:
        Session.objects.all().delete()
        response = boss.get("payments/")
        assert (response.status_code, error(response)["code"]) == (401, "credentials_invalid")
        assert response["WWW-Authenticate"]

    def test_a_session_in_which_nobody_signed_in(self) -> None:
        caller = Caller()
        session = caller.client.session
        session["cart"] = "full"
        session.save()
        assert error(caller.get("payments/"))["code"] == "not_authenticated"

    def test_a_token_that_is_not_valid(self, settings: Any, boss: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
        named = f"{__name__}.Tokens"
        settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "API_AUTHENTICATION_CLASSES": [named]}
        response = Caller().get("payments/", Authorization="Token expired")
        assert (response.status_code, error(response)["code"]) == (401, "credentials_invalid")
        assert response["WWW-Authenticate"] == "Token"
        assert error(Caller().get("payments/"))["code"] == "not_authenticated"


class Tokens(TokenAuthentication):
    def authenticate_credentials(self, key: str) -> Any:
        from rest_framework.exceptions import AuthenticationFailed  # noqa: PLC0415

        raise AuthenticationFailed


class TestWhoMayNot:
    def test_a_member_of_staff_learns_the_permission(self, staff: Callable[..., Caller]) -> None:
        found = error(staff("view_payout").get("payments/"))
        assert found["code"] == "permission_denied"
        assert "payments_integration.view_payment" in found["message"]

    def test_a_customer_learns_of_no_permission_and_no_option(self, customer: Caller, opened: None) -> None:
        make_payment()
        for response in (customer.get("payouts/"), customer.get("events/"), customer.post("refunds/", {})):
            assert response.status_code == 403
            assert "payments_integration" not in response.content.decode()
            assert "API_" not in response.content.decode()


class TestAnUnexpectedError:
    @pytest.fixture
    def broken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("payments_integration.api.lists.KeysetPages.paginate_queryset", lambda *a, **k: 1 / 0)

    def test_it_has_the_envelope(self, boss: Caller, broken: None, caplog: pytest.LogCaptureFixture) -> None:
        boss.client.raise_request_exception = False
        seen: list[Any] = []

        def reporter(request: Any, **kwargs: Any) -> None:
            seen.append(request.path)

        got_request_exception.connect(reporter)
        try:
            response = boss.get("payments/")
        finally:
            got_request_exception.disconnect(reporter)
        assert (response.status_code, response["Content-Type"]) == (500, "application/json")
        assert (error(response)["type"], error(response)["code"]) == ("api_error", "internal_error")
        assert response["Cache-Control"] == "private, no-store"
        # Reported like any other: to Sentry by the signal, to the admins by the log.
        assert seen == [f"{API}payments/"]
        [record] = [each for each in caplog.records if each.name == "django.request" and each.levelno == logging.ERROR]
        assert record.exc_info is not None
        assert record.exc_info[0] is ZeroDivisionError

    def test_it_shows_nothing_with_debug(self, boss: Caller, broken: None, settings: Any) -> None:
        settings.DEBUG = True
        boss.client.raise_request_exception = False
        assert error(boss.get("payments/"))["code"] == "internal_error"

    def test_it_is_raised_in_tests_of_a_project(self, broken: None, boss: Caller) -> None:
        assert isinstance(boss.client, Client)
        with pytest.raises(ZeroDivisionError):
            boss.get("payments/")
