"""Schemathesis tries what the description of the REST API allows, and what it does not, as a superuser.

    python -m pytest tests/projects/contract/test_own_api.py

Nothing may be answered that the description does not say: no 5xx, no other status, header or shape; what it forbids is
refused. The provider is the sandbox, in this process. Not part of ``make test``: it needs the extra ``contract``, and
a minute or two.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.conf import settings as project
from django.contrib.auth.models import User
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.test import override_settings
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.config import SchemathesisConfig

from payments_integration import services
from payments_integration.api.schema import describe
from payments_integration.api.urls import described
from payments_integration.models import Event, Operation
from payments_integration.testing import ProviderSandbox

pytestmark = pytest.mark.django_db

#: Who calls is always the same: whose password is wrong is another matter.
CONFIG = SchemathesisConfig.from_dict({"seed": 20260301, "generation": {"with-security-parameters": False}})
PASSWORD = "correct horse"
BASIC = ["rest_framework.authentication.BasicAuthentication"]
DESTINATION = {
    "type": "bank_account", "account_number": "123456789", "holder_name": "Ana Rojas",
    "holder_document": {"type": "RUT", "number": "11111111-1"},
}  # fmt: skip
load_all_checks()
#: Not ``positive_data_acceptance``: what the provider's methods, countries and documents allow, no schema says.
JUDGES = CHECKS.get_by_names(
    [
        "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
        "response_headers_conformance", "negative_data_rejection", "missing_required_header", "unsupported_method",
        "allow_header_conformance",
    ]
)  # fmt: skip


@pytest.fixture
def ids(db: None, settings: Any) -> Iterator[dict[str, list[str]]]:
    """A provider, somebody who may do everything, and by the address what is there; of each also what is not."""
    settings.PAYMENTS_INTEGRATION = {
        **settings.PAYMENTS_INTEGRATION,
        "API_AUTHENTICATION_CLASSES": BASIC,
        "API_THROTTLE_CLASSES": [],
        "APPROVAL_LIMITS": {"CLP": 900_000},
    }
    User.objects.create_superuser("boss", password=PASSWORD)
    with ProviderSandbox() as sandbox:
        sandbox.project.fund("CLP", 10_000_000)
        money = {"amount": 10_000, "currency": "CLP", "country": "CL"}
        paid = services.create_payment(**money, method_code="cl_webpay_card")
        sandbox.engine.pay(paid.pk)
        fresh = services.create_payment(**money, method_code="cl_bank_transfer")
        payout = services.create_payout(**money, method_code="cl_bank_transfer", destination=DESTINATION)
        deposit = services.create_deposit_reference(country="CL", currency="CLP", method_code="cl_deposit")
        refund = services.create_refund(paid, amount=10)
        services.sync_balances()
        sandbox.settle()
        yield {
            "payments": [paid.pk, fresh.pk],
            "payouts": [payout.pk],
            "refunds": [refund.pk],
            "deposit-references": [deposit.pk],
            "events": [Event.objects.order_by("pk")[0].pk],
            "operations": [Operation.objects.order_by("pk")[0].pk],
        }


class Application(WSGIHandler):
    """A request closes the connection: here it is the test's own, with its transaction."""

    def __call__(self, environ: Any, start_response: Any) -> Any:
        for signal in (request_started, request_finished):
            # Django's test client, by which the sandbox delivers, connects them again.
            signal.disconnect(close_old_connections)
        return super().__call__(environ, start_response)


def _schema() -> Any:
    options = {**project.PAYMENTS_INTEGRATION, "API_AUTHENTICATION_CLASSES": BASIC}
    with override_settings(PAYMENTS_INTEGRATION=options):
        found = schemathesis.openapi.from_dict(describe(described, "/payments/api"), config=CONFIG)
    found.app = Application()
    return found


schema = _schema()


@schema.parametrize()
@settings(max_examples=20, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_the_api_answers_as_its_schema_says(case: Any, ids: dict[str, list[str]]) -> None:
    known = ids.get(case.path.split("/")[1], [])
    asked = case.path_parameters.get("id") if case.path_parameters else None
    if known and isinstance(asked, str) and len(asked) % 3:
        # Nothing that is made up is there; two of three ask for what is.
        case.path_parameters["id"] = known[len(asked) % len(known)]
    sign_in = base64.b64encode(f"boss:{PASSWORD}".encode()).decode()
    case.call_and_validate(headers={"Authorization": f"Basic {sign_in}"}, checks=JUDGES)
