"""What staff do with the API: approve and decide, search, sum; and how answers say what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache import cache
from django.urls import NoReverseMatch
from django.utils import timezone

from payments_integration import services
from payments_integration.api.views import read_only
from payments_integration.dates import day_of
from payments_integration.models import Operation, Payment, Payout
from payments_integration.sandbox import Fault
from payments_integration.testing import ProviderSandbox
from tests.unit.api.conftest import DESTINATION, Caller, error, later, make_operation, make_payment

pytestmark = pytest.mark.django_db(transaction=True)

PAYOUT = {
    "amount": 10_000, "currency": "CLP", "country": "CL", "method_code": "cl_bank_transfer",
    "destination": DESTINATION,
}  # fmt: skip
PAYMENT = {"amount": 12_990, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}


@pytest.fixture
def provider(settings: Any, woken: list[str]) -> Any:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "APPROVAL_LIMITS": {"CLP": 5000}}
    with ProviderSandbox() as sandbox:
        sandbox.project.fund("CLP", 1_000_000)
        yield sandbox


@pytest.fixture
def waiting(provider: ProviderSandbox, boss: Caller) -> str:
    """The id of a payout's operation that waits for another person than the boss."""
    response = boss.post("payouts/", PAYOUT)
    assert response.status_code == 202, response.content
    return str(response.json()["id"])


def sent(provider: ProviderSandbox) -> int:
    return len(provider.project.payouts)


class TestApproval:
    def test_another_person_approves(self, provider: Any, waiting: str, staff: Callable[..., Caller]) -> None:
        second = staff("view_operation", "approve_operation")
        shown = second.get(f"operations/{waiting}/").json()
        assert shown["actions"] == ["approve", "reject"]
        assert shown["request"]["destination"]["account_number"] == "123456789"
        response = second.post(f"operations/{waiting}/approve/", {"digest": shown["digest"]}, key=None)
        assert (response.status_code, response.json()["state"]) == (200, "done")
        assert Payout.objects.get().pk == response.json()["result_id"]
        again = second.post(f"operations/{waiting}/approve/", {"digest": shown["digest"]}, key=None)
        assert (again.status_code, again.json()["state"]) == (200, "done")
        assert again["Idempotent-Replayed"] == "true"
        assert sent(provider) == 1
        assert "request" not in second.get(f"operations/{waiting}/").json()

    def test_nobody_approves_what_they_asked_for(self, provider: Any, waiting: str, boss: Caller) -> None:
        assert boss.get(f"operations/{waiting}/").json()["actions"] == ["reject"]
        response = boss.post(f"operations/{waiting}/approve/", {}, key=None)
        assert (response.status_code, error(response)["code"]) == (403, "permission_denied")
        assert sent(provider) == 0

    def test_it_needs_the_permission(self, provider: Any, waiting: str, staff: Callable[..., Caller]) -> None:
        clerk = staff("view_operation", "view_personal_data", "change_operation", "close_operation")
        shown = clerk.get(f"operations/{waiting}/").json()
        assert {"approve", "reject"} & {*shown["actions"]} == set()
        assert "request" not in shown
        for path, body in (("approve", {}), ("reject", {"comment": "no"})):
            response = clerk.post(f"operations/{waiting}/{path}/", body, key=None)
            assert response.status_code == 403
            assert "approve_operation" in error(response)["message"]
        assert Operation.objects.get(pk=waiting).state == "awaiting_approval"

    def test_no_other_request_is_approved(self, provider: Any, waiting: str, staff: Callable[..., Caller]) -> None:
        second = staff("view_operation", "approve_operation")
        response = second.post(f"operations/{waiting}/approve/", {"digest": "0" * 64}, key=None)
        assert (response.status_code, error(response)["code"]) == (422, "invalid_state")
        assert sent(provider) == 0

    def test_a_rejection_closes_it(self, provider: Any, waiting: str, boss: Caller, staff: Any) -> None:
        response = boss.post(f"operations/{waiting}/reject/", {}, key=None)
        assert (response.status_code, error(response)["param"]) == (400, "comment")
        response = boss.post(f"operations/{waiting}/reject/", {"comment": "a typo"}, key=None)
        assert (response.status_code, response.json()["state"]) == (200, "closed")
        late = staff("view_operation", "approve_operation").post(f"operations/{waiting}/approve/", {}, key=None)
        assert (late.status_code, error(late)["code"]) == (422, "invalid_state")
        assert sent(provider) == 0

    def test_a_customer_decides_nothing(self, provider: Any, waiting: str, customer: Caller, opened: None) -> None:
        for path in ("approve", "reject", "decide"):
            assert customer.post(f"operations/{waiting}/{path}/", {}, key=None).status_code == 403

    def test_an_operation_of_another_account_does_not_exist(
        self, provider: Any, waiting: str, staff: Any, settings: Any
    ) -> None:
        settings.PAYMENTS_INTEGRATION = {
            **settings.PAYMENTS_INTEGRATION, "API_ACCOUNT_CHECK": "tests.unit.api.test_back_office.none_of_them"
        }  # fmt: skip
        second = staff("view_operation", "approve_operation")
        assert second.post(f"operations/{waiting}/approve/", {}, key=None).status_code == 404
        assert sent(provider) == 0


def none_of_them(user: Any, account: str) -> bool:
    return False


class TestDecisions:
    @pytest.fixture
    def stuck(self, provider: ProviderSandbox, boss: Caller) -> str:
        """An operation whose outcome a person must say; it made nothing."""
        operation = services.defer(services.create_payment, **PAYMENT)
        Operation.objects.filter(pk=operation.pk).update(state="needs_person", may_have_run=True, result_id="")
        return str(operation.pk)

    def test_a_person_says_that_it_never_happened(
        self, provider: ProviderSandbox, boss: Caller, staff: Callable[..., Caller]
    ) -> None:
        assert boss.user is not None
        operation = make_operation("create_payment", "", boss.user, state="needs_person", may_have_run=True)
        closer = staff("view_operation", "close_operation")
        assert "mark_never_happened" in closer.get(f"operations/{operation.pk}/").json()["actions"]
        body = {"decision": "mark_never_happened", "comment": "asked the provider"}
        response = closer.post(f"operations/{operation.pk}/decide/", body, key=None)
        assert (response.status_code, response.json()["state"]) == (200, "closed"), response.content
        again = closer.post(f"operations/{operation.pk}/decide/", body, key=None)
        assert (again.status_code, error(again)["code"]) == (422, "invalid_state")

    def test_a_look_up_finds_it(self, stuck: str, staff: Callable[..., Caller]) -> None:
        response = staff("view_operation", "change_operation").post(
            f"operations/{stuck}/decide/", {"decision": "look_up"}, key=None
        )
        assert (response.status_code, response.json()["state"]) == (200, "done"), response.content

    @pytest.mark.parametrize(
        ("decision", "needs"),
        [
            ("look_up", "change_operation"), ("retry", "change_operation"), ("mark_happened", "change_operation"),
            ("mark_never_happened", "close_operation"), ("mark_others", "close_operation"),
        ],
    )  # fmt: skip
    def test_each_needs_its_permission(self, stuck: str, staff: Any, decision: str, needs: str) -> None:
        others = {"change_operation", "close_operation"} - {needs}
        body = {"decision": decision, "comment": "x", "object_id": "pay_1", "object_ids": ["pay_1"]}
        response = staff("view_operation", *others).post(f"operations/{stuck}/decide/", body, key=None)
        assert response.status_code == 403
        assert needs in error(response)["message"]
        assert Operation.objects.get(pk=stuck).state == "needs_person"

    @pytest.mark.parametrize(
        ("body", "param"),
        [
            ({}, "decision"), ({"decision": "approve"}, "decision"), ({"decision": ["look_up"]}, "decision"),
            ({"decision": "mark_others", "object_ids": "pay_1"}, "object_ids"), ({"decisions": "x"}, "decisions"),
            ({"decision": "mark_happened", "object_id": "ref_1", "comment": "x"}, "object_id"),
        ],
    )  # fmt: skip
    def test_a_wrong_decision_is_refused(self, stuck: str, boss: Caller, body: Any, param: str) -> None:
        response = boss.post(f"operations/{stuck}/decide/", body, key=None)
        assert (response.status_code, error(response)["param"]) == (400, param)
        assert Operation.objects.get(pk=stuck).state == "needs_person"

    def test_a_wrong_item_of_a_list_is_explained(self, boss: Caller, stuck: str) -> None:
        body = {"decision": "mark_others", "object_ids": ["pay_1", {}, {}]}
        found = error(boss.post(f"operations/{stuck}/decide/", body, key=None))
        assert (found["param"], found["message"]) == ("object_ids", "Not a valid string.")


class TestSearch:
    @pytest.fixture(autouse=True)
    def payments(self, db: None) -> None:
        ana = {"email": "Ana@Example.com", "document": {"type": "RUT", "number": "11.111.111-1"}}
        make_payment("pay_a", amount=500, payer=ana, payer_email="ana@example.com", payer_document="111111111")
        make_payment("pay_b", status="failed", created_at=later(1))
        make_payment("pay_c", status="succeeded", amount_received=900, created_at=later(2))

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("status=failed,succeeded", ["pay_c", "pay_b"]),
            ("status=failed", ["pay_b"]),
            ("payer=ANA@example.com", ["pay_a"]),
            ("payer=11.111.111-1", ["pay_a"]),
            ("payer=nobody@example.com", []),
            ("payer=@", []),
            ("payer=---", []),
            ("amount=500&created_from=2020-01-01", ["pay_a"]),
            ("created_from={day}&created_to={day}", ["pay_c", "pay_b", "pay_a"]),
            ("created_to=2020-01-01", []),
            ("created_from=0001-01-01&created_to=9999-12-31", ["pay_c", "pay_b", "pay_a"]),
        ],
    )
    def test_what_is_found(self, boss: Caller, query: str, found: list[str]) -> None:
        day = day_of(later(0)).isoformat()
        response = boss.get(f"payments/?{query.format(day=day)}")
        assert [row["id"] for row in response.json()["data"]] == found

    @pytest.mark.parametrize(
        ("query", "param"),
        [
            ("status=failed,payed", "status"), ("status=,", "status"), ("status=failed,", "status"),
            ("amount=500", "created_from"),
            ("created_from=2026-02-30", "created_from"),
            ("amount=x&created_from=2020-01-01", "amount"), ("amount=1.5&created_from=2020-01-01", "amount"),
            ("amount=5.000&created_from=2020-01-01", "amount"), ("amount=%2B5&created_from=2020-01-01", "amount"),
            ("amount=%D9%A5&created_from=2020-01-01", "amount"),
        ],
    )  # fmt: skip
    def test_what_is_wrong(self, boss: Caller, query: str, param: str) -> None:
        response = boss.get(f"payments/?{query}")
        assert (response.status_code, error(response)["param"]) == (400, param)

    def test_a_day_is_the_sites(self, boss: Caller, settings: Any) -> None:
        settings.TIME_ZONE = "America/Santiago"
        make_payment("pay_d", created_at="2026-02-02T02:59:59Z")  # 23:59:59 of the first in Santiago
        assert [row["id"] for row in boss.get("payments/?created_to=2026-02-01").json()["data"]] == ["pay_d"]
        found = boss.get("payments/?created_from=2026-02-02&created_to=2026-02-02").json()["data"]
        assert found == []

    def test_who_may_not_see_payers_does_not_find_out_by_searching(
        self, staff: Callable[..., Caller], customer: Caller, opened: None
    ) -> None:
        response = staff("view_payment").get("payments/?payer=ana@example.com")
        assert response.status_code == 403
        assert "view_personal_data" in error(response)["message"]
        assert customer.get("payments/?payer=ana@example.com").status_code == 403

    def test_sums_by_currency_and_status(self, boss: Caller) -> None:
        make_payment("pay_e", currency="USD", amount=7)
        make_payment("pay_f", amount=30)
        found = boss.get("payments/totals/?created_from=2020-01-01").json()["data"]
        assert [(row["currency"], row["status"], row["count"], row["amount"]) for row in found] == [
            ("CLP", "created", 2, 530), ("CLP", "failed", 1, 1000), ("CLP", "succeeded", 1, 1000),
            ("USD", "created", 1, 7),
        ]  # fmt: skip
        assert [row["amount_received"] for row in found] == [0, 0, 900, 0]
        only = boss.get("payments/totals/?created_from=2020-01-01&status=failed,succeeded&currency=CLP").json()["data"]
        assert [row["status"] for row in only] == ["failed", "succeeded"]
        response = boss.get("payments/totals/")
        assert (response.status_code, error(response)["param"]) == (400, "created_from")

    @pytest.mark.case(112)
    def test_sums_leave_out_what_is_gone_and_may_be_larger_than_a_column(self, boss: Caller) -> None:
        for number in range(2):
            make_payment(f"pay_big_{number}", currency="USD", status="succeeded", amount=2**62 + 5)
        make_payment("pay_gone", currency="USD", status="succeeded", amount=1, gone_at=timezone.now())
        (found,) = boss.get("payments/totals/?created_from=2020-01-01&currency=USD").json()["data"]
        assert (found["count"], found["amount"]) == (2, 2**63 + 10)


class TestAnswers:
    def test_a_replayed_answer_is_marked(self, provider: Any, boss: Caller) -> None:
        first, again = boss.post("payments/", PAYMENT), boss.post("payments/", PAYMENT)
        assert "Idempotent-Replayed" not in first
        assert again["Idempotent-Replayed"] == "true"
        assert first.json()["id"] == again.json()["id"]
        other = boss.post("payments/", {**PAYMENT, "amount": 1})
        assert other.status_code == 409
        assert "Idempotent-Replayed" not in boss.post("payments/", PAYMENT, key="key-2")

    def test_the_call_that_is_sent_after_a_temporary_refusal_is_no_replay(self, provider: Any, boss: Caller) -> None:
        provider.engine.faults.add(Fault("rate_limited", operation="create_payment", retry_after=60, times=1))
        assert boss.post("payments/", PAYMENT).status_code == 503
        sent = boss.post("payments/", PAYMENT)
        assert (sent.status_code, "Idempotent-Replayed" in sent) == (201, False)
        assert boss.post("payments/", PAYMENT)["Idempotent-Replayed"] == "true"

    def test_a_page_that_did_not_change_is_304(self, boss: Caller) -> None:
        payment = make_payment()
        for path in ("payments/", "payments/pay_1/"):
            first = boss.get(path)
            same = boss.get(path, **{"If-None-Match": first["ETag"]})
            assert (same.status_code, same.content, same["ETag"]) == (304, b"", first["ETag"])
            assert same["Request-Id"] != first["Request-Id"]
            assert same["Cache-Control"] == "private, no-store"
            payment.status = {"payments/": "failed", "payments/pay_1/": "expired"}[path]
            payment.save()
            assert boss.get(path, **{"If-None-Match": first["ETag"]}).status_code == 200
        assert "ETag" not in boss.get("payments/none/")

    def test_every_answer_says_what_is_left_of_the_rate(self, boss: Caller, settings: Any) -> None:
        settings.PAYMENTS_INTEGRATION = {
            **settings.PAYMENTS_INTEGRATION, "API_THROTTLE_RATES": {"read": "2/minute", "write": None}
        }  # fmt: skip
        cache.clear()
        left = []
        for _ in range(3):
            response = boss.get("payments/")
            assert response["RateLimit-Limit"] == "2"
            assert 0 < int(response["RateLimit-Reset"]) <= 60
            left.append(response["RateLimit-Remaining"])
        assert left == ["1", "0", "0"]
        assert response.status_code == 429
        assert "RateLimit-Limit" not in boss.post("payments/", {}, key=None)

    def test_methods_are_read_once_a_minute(self, provider: Any, boss: Caller) -> None:
        def reads() -> int:
            return sum(1 for each in provider.engine.requests if each["operation"] == "list_payment_methods")

        first = boss.get("payment-methods/?country=CL")
        before = reads()
        assert boss.get("payment-methods/?country=CL").json() == first.json()
        assert reads() == before
        assert boss.get("payment-methods/?country=CO").json() != first.json()
        assert boss.get("payment-methods/?country=CL&account=nowhere").status_code == 400


class TestIndex:
    def test_it_links_and_says_what_the_caller_may_do(self, staff: Callable[..., Caller], rows: Any) -> None:
        clerk = staff("view_payment", "refund_payment")
        found = clerk.get("").json()
        assert found["calls"] == [
            "create_refund", "get_payment", "list_payment_methods", "list_payments", "refund_payment",
            "total_payments",
        ]  # fmt: skip
        assert {"payments", "payouts", "events", "operations", "schema"} <= {*found["links"]}
        del found["links"]["payment-methods"]  # there is no provider here
        assert found["links"].keys() >= {"try"}
        for url in found["links"].values():
            assert clerk.client.get(url).status_code in (200, 403)
        assert clerk.client.get(found["links"]["payments"]).status_code == 200
        assert found["accounts"] == ["default", "second"]

    def test_staff_find_the_exports_of_lists_that_they_may_see(self, staff: Callable[..., Caller], rows: Any) -> None:
        clerk = staff("view_payment", "view_refund")
        found = clerk.get("").json()["exports"]
        assert {*found} == {"payments", "refunds"}
        response: Any = clerk.client.get(found["payments"])
        assert response["Content-Disposition"].startswith("attachment")
        assert response.getvalue().decode().count("pay_") == Payment.objects.count() > 0

    def test_without_the_back_office_there_is_no_export(
        self, staff: Callable[..., Caller], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def reverse(name: str) -> str:
            raise NoReverseMatch(name)

        monkeypatch.setattr(read_only, "reverse", reverse)
        assert staff("view_payment").get("").json()["exports"] == {}

    def test_a_customer_sees_the_calls_for_customers(self, customer: Caller, opened: None) -> None:
        found = customer.get("").json()
        assert "create_payment" in found["calls"]
        assert not {"create_payout", "create_refund", "approve_operation", "list_events"} & {*found["calls"]}
        assert found["exports"] == {}

    def test_it_is_not_for_everybody(self, customer: Caller) -> None:
        assert Caller().get("").status_code == 401
        assert customer.get("").status_code == 403


def test_a_paid_payment_links_to_its_receipt(boss: Caller) -> None:
    make_payment("pay_1", status="succeeded", amount_received=1000)
    url = boss.get("payments/pay_1/").json()["receipt_url"]
    assert boss.client.get(url).status_code == 200
    make_payment("pay_2")
    assert boss.get("payments/pay_2/").json()["receipt_url"] is None
