"""A new call of the provider needs one class and one service function: everything else asks the class.

The test adds an advance: a payout under another name, which the sandbox answers like a payout.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from payments_integration import services
from payments_integration.client import Client as ProviderClient
from payments_integration.enums import Kind
from payments_integration.exceptions import ApprovalRequired, OutcomeUnknown
from payments_integration.models import Operation, OperationState, Payout
from payments_integration.outbox import Intent
from payments_integration.outbox.operations import Candidates, base
from payments_integration.outbox.operations.base import Creation, reaches_approval_limit
from payments_integration.sandbox import Fault
from payments_integration.services.service import creation, service
from payments_integration.testing import ProviderSandbox
from payments_integration.validation.validator import Validator

pytestmark = pytest.mark.django_db(transaction=True)

DESTINATION = {
    "type": "bank_account",
    "account_number": "00123456789",
    "holder_name": "Ana Rojas",
    "holder_document": {"type": "RUT", "number": "12345678-5"},
}


class CreateAdvance(Creation):
    name, label, kind = "create_advance", "new advance", Kind.PAYOUT
    permission = "create_payout"
    approval_request = "%(who)s asked on %(at)s to advance %(amount)s."

    def needs_approval(self, intent: Intent) -> bool:
        return reaches_approval_limit(intent.amount, intent.currency)

    def look_up(self, client: ProviderClient, operation: Operation) -> Candidates:
        listed = client.payouts.list(merchant_reference=operation.merchant_reference, background=True)
        return self.candidates(operation, listed)


@service(Payout)
def create_advance(
    *, amount: int, account: str = "default", idempotency_key: str | None = None, actor: object = None
) -> Intent:
    validator = Validator()
    body = {
        "amount": validator.amount("amount", amount),
        "currency": "CLP",
        "country": "CL",
        "method_code": "cl_bank_transfer",
        "destination": DESTINATION,
    }
    return creation(
        validator,
        body,
        account=account,
        idempotency_key=idempotency_key,
        actor=actor,
        fills_reference=True,
    )


@pytest.fixture
def provider(sandbox: ProviderSandbox, settings: Any, monkeypatch: pytest.MonkeyPatch) -> ProviderSandbox:
    monkeypatch.setitem(base._calls, "create_advance", CreateAdvance())
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "APPROVAL_LIMITS": {"CLP": 9_000}}
    sandbox.engine.fund("CLP", 1_000_000)
    return sandbox


def staff(name: str, *codenames: str) -> User:
    user = User.objects.create(username=name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_it_is_sent_once_per_key_and_can_be_deferred(provider: ProviderSandbox) -> None:
    payout = create_advance(amount=5_000, idempotency_key="k1")
    assert isinstance(payout, Payout)
    assert create_advance(amount=5_000, idempotency_key="k1") == payout
    with transaction.atomic():
        services.defer(create_advance, amount=4_000)
    assert [operation.state for operation in Operation.objects.filter(operation="create_advance")] == ["done", "done"]
    assert len(provider.engine.payouts) == 2


def test_staff_need_its_permission(provider: ProviderSandbox) -> None:
    with pytest.raises(PermissionDenied):
        create_advance(amount=5_000, actor=staff("luz"))
    assert create_advance(amount=5_000, actor=staff("ana", "create_payout"))


def test_from_the_limit_on_a_second_person_approves_it(provider: ProviderSandbox) -> None:
    with pytest.raises(ApprovalRequired) as caught:
        create_advance(amount=9_000, actor=staff("ana", "create_payout"))
    assert not provider.engine.payouts
    operation = caught.value.operation
    checker = staff("luz", "approve_operation", "view_operation")
    page = browser(checker).get(reverse("admin:payments_integration_operation_change", args=[quote(operation.pk)]))
    assert "ana asked on" in page.content.decode()
    assert "to advance CLP" in page.content.decode() or "to advance $" in page.content.decode()
    assert services.approve(operation, checker).amount == 9_000
    assert len(provider.engine.payouts) == 1


def test_a_lost_answer_is_sent_again_under_its_key(provider: ProviderSandbox) -> None:
    provider.engine.faults.add(Fault("reset", operation="create_payout", work=True))
    with pytest.raises(OutcomeUnknown):
        create_advance(amount=5_000)
    Operation.objects.update(next_attempt_at=None, claimed_until=None)
    assert services.resume_operations() == {"done": 1}
    assert len(provider.engine.payouts) == 1


def test_a_lost_answer_is_looked_up_when_the_key_is_too_old(provider: ProviderSandbox) -> None:
    provider.engine.faults.add(Fault("reset", operation="create_payout", work=True))
    with pytest.raises(OutcomeUnknown):
        create_advance(amount=5_000)
    long_ago = timezone.now() - timedelta(hours=30)
    Operation.objects.update(next_attempt_at=None, claimed_until=None, first_sent_at=long_ago)
    assert services.resume_operations() == {"done": 1}
    assert Operation.objects.get().result_id == Payout.objects.get().pk
    assert len(provider.engine.payouts) == 1


def test_a_person_resolves_it_in_the_admin(provider: ProviderSandbox) -> None:
    provider.engine.faults.add(Fault("reset", operation="create_payout", work=True))
    with pytest.raises(OutcomeUnknown):
        create_advance(amount=5_000)
    Operation.objects.update(state=OperationState.NEEDS_PERSON, claimed_until=None)
    operation = Operation.objects.get()
    boss = browser(User.objects.create_superuser("boss"))
    listed = boss.get(reverse("admin:payments_integration_operation_changelist"), {"operation": "create_advance"})
    assert "new advance" in listed.content.decode()
    boss.post(reverse("admin:payments_integration_operation_look-up", args=[quote(operation.pk)]))
    operation.refresh_from_db()
    assert operation.state == OperationState.DONE


def test_the_api_lists_the_operation_and_its_payout(provider: ProviderSandbox, settings: Any) -> None:
    payout = create_advance(amount=5_000)
    boss = browser(User.objects.create_superuser("boss"))
    listed = boss.get("/payments/api/operations/", {"operation": "create_advance"})
    assert listed.status_code == 200, listed.content
    assert [item["result_id"] for item in listed.json()["data"]] == [payout.pk]
    assert services.operations.creating(Kind.PAYOUT) == ["create_payout", "create_advance"]
