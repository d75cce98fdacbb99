"""The page "Going live", and the checks that follow it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.core import checks
from django.core.checks import registry

from payments_integration.checks import check_endpoints
from tests.factories import rows

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "going-live.md").read_text()
ACCOUNT = {"BASE_URL": "https://provider.example", "API_KEY": "sk_live_1"}


@pytest.fixture
def accounts(settings: Any) -> Any:
    def configure(**accounts: dict[str, Any]) -> None:
        settings.PAYMENTS_INTEGRATION = {"ACCOUNTS": {alias: {**ACCOUNT, **more} for alias, more in accounts.items()}}

    return configure


@pytest.mark.django_db
def test_an_account_without_an_endpoint_and_a_secret_is_reported(accounts: Any) -> None:
    accounts(
        default={"API_KEY": "sk_live_1"},
        known={"API_KEY": "sk_live_2"},
        secret={"API_KEY": "sk_live_3", "WEBHOOK_SECRETS": ["whsec_1"]},
        deleted={"API_KEY": "sk_live_4"},
        elsewhere={"API_KEY": "sk_live_5"},
    )
    rows.endpoint(account="known")
    rows.endpoint(account="elsewhere", url="https://erp.example/hooks/", secret_token="")
    endpoint = rows.endpoint(account="deleted")
    endpoint.deleted_at = endpoint.created_at or endpoint.synced_at
    endpoint.save()
    found = check_endpoints(databases=["default"])
    assert {message.id for message in found} == {"payments_integration.W025"}
    assert [re.search(r"of the account (\w+)", message.msg)[1] for message in found] == [
        "default",
        "deleted",
        "elsewhere",
    ]  # type: ignore[index]
    assert str(found[0].hint).endswith("payments_endpoints create https://…/payments/webhook/")
    assert str(found[1].hint).endswith("create https://…/payments/webhook/deleted/ --account deleted")
    assert check_endpoints(databases=[]) == []


@pytest.mark.django_db
def test_it_is_a_check_of_a_deployment_that_reads_the_database(accounts: Any) -> None:
    accounts(default={})

    def ids(**options: Any) -> set[str | None]:
        found = checks.run_checks(tags=[checks.Tags.database], databases=["default"], **options)
        return {message.id for message in found}

    assert "payments_integration.W025" in ids(include_deployment_checks=True)
    assert "payments_integration.W025" not in ids()


def test_the_page_names_every_check_of_a_deployment() -> None:
    """So do the docstrings of the checks, which say when each is reported."""
    found = registry.registry.deployment_checks
    mine = [check for check in found if check.__module__ == "payments_integration.checks"]
    ids = {f"W{number}" for check in mine for number in re.findall(r"W(\d{3})", check.__doc__ or "")} | {"W012"}
    assert ids >= {"W003", "W004", "W011", "W012", "W013", "W025", "W030"}
    assert ids - {"W007"} <= set(re.findall(r"`(W\d{3})`", PAGE))


def test_the_steps_are_numbered() -> None:
    steps = [
        int(number) for number in re.findall(r"^(\d+)\. \*\*", PAGE.partition("## Start afresh")[0], re.MULTILINE)
    ]
    assert steps == [*range(1, 13)]
