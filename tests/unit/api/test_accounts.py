"""Which accounts a caller may use: one that they may not use is one that does not exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from payments_integration.models import Operation
from payments_integration.outbox import sending
from payments_integration.testing import ProviderSandbox
from tests.factories import rows as stored
from tests.unit.api.conftest import AS_ASKED, CUSTOMERS, DESTINATION, MIRRORED, Caller, make_operation, make_payment

pytestmark = [pytest.mark.case(132), pytest.mark.django_db(transaction=True)]

PAYMENT = {"amount": 10_000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
DEPOSIT = {"country": "CL", "currency": "CLP", "method_code": "cl_deposit"}
PAYOUT = {**PAYMENT, "method_code": "cl_bank_transfer", "destination": DESTINATION}
CREATED = {"payments/": PAYMENT, "payouts/": PAYOUT, "deposit-references/": DEPOSIT}
LISTS = ["payments/", "refunds/", "payouts/", "deposit-references/", "balances/", "events/", "operations/"]
#: Methods of one object, with an id of the account "second"; a body.
OBJECTS: list[tuple[str, str, Any]] = [
    ("POST", "payments/{payment}/cancel/", None),
    ("POST", "payments/{payment}/refunds/", {"amount": 1}),
    ("POST", "refunds/", {"payment_id": "{payment}", "amount": 1}),
    ("POST", "payouts/{payout}/cancel/", None),
    ("GET", "payments/{payment}/", None),
    ("GET", "payments/{payment}/refunds/", None),
    ("GET", "refunds/{refund}/", None),
    ("GET", "payouts/{payout}/", None),
    ("GET", "deposit-references/{deposit}/", None),
    ("GET", "events/{event}/", None),
    ("GET", "operations/{operation}/", None),
]
WRITES = [entry for entry in OBJECTS if entry[0] == "POST"]


def second_only(user: Any, account: str) -> bool:
    """The project's rule. It is asked about configured accounts only."""
    assert account in ("default", "second")
    return account == "second"


def default_only(user: Any, account: str) -> bool:
    return account == "default"


def neither(user: Any, account: str) -> bool:
    return False


def anyone(user: Any, account: str) -> bool:
    return True


async def never_asked(user: Any, account: str) -> bool:
    return False


def everything(queryset: Any, user: Any) -> Any:
    return queryset


def of_second(queryset: Any, user: Any) -> Any:
    return queryset.filter(account="second")


HERE = "tests.unit.api.test_accounts."


@pytest.fixture
def providers(settings: Any, woken: list[str]) -> Any:
    with ProviderSandbox() as first, ProviderSandbox(account="second") as second:
        for provider in (first, second):
            provider.project.fund("CLP", 1_000_000)
        yield {"default": first, "second": second}


@pytest.fixture
def given(settings: Any, providers: Any) -> Callable[..., None]:
    def give(**options: str | list[str]) -> None:
        paths = {
            name: f"{HERE}{value}" if isinstance(value, str) and "." not in value else value
            for name, value in options.items()
        }
        settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, **paths}

    return give


@pytest.fixture
def of_account(db: None) -> Callable[..., dict[str, str]]:
    """One row of each kind in an account; their ids."""

    def make(account: str, by: User | None = None) -> dict[str, str]:
        fields = {**MIRRORED, "account": account}
        place = {"currency": "CLP", "country": "CL", "method_code": "m"}
        payment = make_payment(f"pay_{account}", account=account, status="succeeded", amount_received=1000)
        stored.refund(id=f"ref_{account}", payment=payment, amount=5, currency="CLP", **fields)
        stored.payout(id=f"pout_{account}", destination=DESTINATION, amount=5, **place, **fields)
        stored.deposit_reference(id=f"dep_{account}", **place, **fields)
        stored.balance(account=account, currency="CLP")
        stored.event(id=f"evt_{account}", account=account)
        author = by or User.objects.create_user(f"author-{account}")
        operation = make_operation("create_payment", payment.pk, author, account=account)
        return {
            "payment": payment.pk,
            "refund": f"ref_{account}",
            "payout": f"pout_{account}",
            "deposit": f"dep_{account}",
            "event": f"evt_{account}",
            "operation": operation.pk,
        }

    return make


def answer(response: Any) -> tuple[int, Any]:
    """Status and body, without the request id."""
    body = response.json()
    if "error" in body:
        body["error"].pop("request_id")
    return response.status_code, body


def call(caller: Caller, method: str, path: str, body: Any, ids: dict[str, str]) -> tuple[int, Any]:
    path = path.format(**ids)
    if isinstance(body, dict):
        body = {name: value.format(**ids) if isinstance(value, str) else value for name, value in body.items()}
    return answer(caller.get(path) if method == "GET" else caller.post(path, body, key="key-of-call"))


def made(providers: Any) -> list[str]:
    """Where something was asked for."""
    return [
        f"{alias} {entry['path']}"
        for alias, provider in providers.items()
        for entry in provider.engine.requests
        if entry["method"] == "POST"
    ]


def refused_alike(caller: Caller, account: str | None, providers: Any) -> None:
    """All addresses answer for this account as they do for one that does not exist."""
    named = {} if account is None else {"account": account}
    query = "" if account is None else f"?account={account}"
    for path, body in CREATED.items():
        status, shown = answer(caller.post(path, {**body, **named}))
        assert (status, shown) == answer(caller.post(path, {**body, "account": "nowhere"}))
        if status != 403:
            assert (status, shown["error"]["param"]) == (400, "account")
    unknown = answer(caller.get("payment-methods/?account=nowhere"))
    assert answer(caller.get(f"payment-methods/{query}")) == unknown
    assert unknown[0] == 400
    assert made(providers) == []
    assert not Operation.objects.filter(idempotency_key__contains="key-1").exists()


class TestWithoutACheck:
    def test_staff_who_see_all_rows_act_in_every_account(self, providers: Any, boss: Caller) -> None:
        for path, body in CREATED.items():
            response = boss.post(path, {**body, "account": "second"}, key=path)
            assert (response.status_code, response.json()["account"]) == (201, "second"), response.content
        assert boss.get("payment-methods/?account=second").status_code == 200
        assert {entry.partition(" ")[0] for entry in made(providers)} == {"second"}

    def test_a_customer_acts_in_default_only(self, providers: Any, given: Any, customer: Caller) -> None:
        given(API_PERMISSION_CLASSES=[CUSTOMERS], API_PAYMENT=AS_ASKED)
        refused_alike(customer, "second", providers)
        assert customer.post("payments/", PAYMENT).json()["account"] == "default"
        assert customer.get("payment-methods/?account=default").status_code == 200

    @pytest.mark.parametrize("rows_of", ["everything", "of_second"])
    def test_staff_under_the_projects_own_queryset_act_in_default_only(
        self, providers: Any, given: Any, boss: Caller, of_account: Any, rows_of: str
    ) -> None:
        given(API_QUERYSET=rows_of)
        refused_alike(boss, "second", providers)
        ids = of_account("second")
        absent = {name: f"{pk}-absent" for name, pk in ids.items()}
        for method, path, body in WRITES:
            assert call(boss, method, path, body, ids) == call(boss, method, path, body, absent)
            assert call(boss, method, path, body, ids)[0] == 404
        # What they see is still the queryset's decision.
        assert [row["id"] for row in boss.get("payments/?account=second").json()["data"]] == ["pay_second"]
        assert made(providers) == []

    def test_a_customer_does_not_cancel_their_payment_of_another_account(
        self, providers: Any, given: Any, customer: Caller, of_account: Any
    ) -> None:
        given(API_PERMISSION_CLASSES=[CUSTOMERS], API_PAYMENT=AS_ASKED)
        ids = of_account("second", customer.user)
        assert customer.get(f"payments/{ids['payment']}/").status_code == 200
        assert customer.post(f"payments/{ids['payment']}/cancel/").status_code == 404
        assert made(providers) == []

    def test_an_object_of_an_account_that_is_not_configured_is_unknown(
        self, providers: Any, boss: Caller, of_account: Any
    ) -> None:
        ids = of_account("gone")
        for method, path, body in WRITES:
            assert call(boss, method, path, body, ids)[0] == 404


class TestWithACheck:
    def test_every_user_acts_where_the_project_allows_it(
        self, providers: Any, given: Any, boss: Caller, customer: Caller
    ) -> None:
        given(API_PERMISSION_CLASSES=[CUSTOMERS], API_PAYMENT=AS_ASKED, API_ACCOUNT_CHECK="second_only")
        for caller in (boss, customer):
            assert caller.post("payments/", {**PAYMENT, "account": "second"}).json()["account"] == "second"
            assert caller.get("payment-methods/?account=second").status_code == 200
        before = made(providers)
        for caller in (boss, customer):
            for account in (None, "default"):
                named = {} if account is None else {"account": account}
                refused = answer(caller.post("payments/", {**PAYMENT, **named}, key="key-2"))
                assert refused == answer(caller.post("payments/", {**PAYMENT, "account": "nowhere"}, key="key-2"))
                assert refused[0] == 400
        assert made(providers) == before

    @pytest.mark.parametrize("check", ["default_only", "neither", "never_asked"])
    @pytest.mark.filterwarnings("ignore:coroutine")
    def test_a_forbidden_account_answers_as_an_unknown_one(
        self, providers: Any, given: Any, boss: Caller, of_account: Any, check: str
    ) -> None:
        given(API_ACCOUNT_CHECK=check)
        of_account("default")
        ids = of_account("second")
        absent = {name: f"{pk}-absent" for name, pk in ids.items()}
        refused_alike(boss, "second", providers)
        for method, path, body in OBJECTS:
            assert call(boss, method, path, body, ids) == call(boss, method, path, body, absent), path
            assert call(boss, method, path, body, ids)[0] == 404
        for path in LISTS:
            found = answer(boss.get(f"{path}?account=second"))
            assert found == answer(boss.get(f"{path}?account=nowhere"))
            assert (found[0], found[1]["data"]) == (200, [])
            seen = {row["account"] for row in boss.get(path).json()["data"]}
            assert seen == ({"default"} if check == "default_only" else set())
        assert made(providers) == []

    def test_without_default_a_request_that_names_no_account_is_refused(
        self, providers: Any, given: Any, boss: Caller
    ) -> None:
        given(API_ACCOUNT_CHECK="second_only")
        refused_alike(boss, None, providers)

    def test_what_is_sent_as_an_account_is_not_given_to_the_check(
        self, providers: Any, given: Any, boss: Caller
    ) -> None:
        given(API_ACCOUNT_CHECK="second_only")
        for odd in ("", "Second", " second", 7, True, ["second"], {"a": 1}):
            assert boss.post("payments/", {**PAYMENT, "account": odd}).status_code == 400
        assert made(providers) == []


def test_the_description_names_no_account(providers: Any, given: Any, boss: Caller, staff: Any) -> None:
    given(API_ACCOUNT_CHECK="default_only")
    text = boss.get("schema/").content.decode()
    assert "second" not in text.replace("Seconds", "").replace("a second person", "").replace("second person's", "")
    assert staff().get("schema/").content.decode() == text


@pytest.mark.promise(5)
def test_a_key_is_not_used_a_second_time_in_another_account(providers: Any, boss: Caller) -> None:
    """API_PAYMENT may choose another account when the caller tries again."""
    body = {**PAYMENT, "merchant_reference": "order-1"}
    made = boss.post("payments/", body).json()
    status, refused = answer(boss.post("payments/", {**body, "account": "second"}))
    assert (status, refused["error"]["code"]) == (409, "idempotency_conflict")
    assert not providers["second"].project.payments
    assert boss.post("payments/", body).json()["id"] == made["id"]
    closed = {"state": "closed", "error": {"status_code": 429, "type": "rate_limit_error", "code": "rate_limited"}}
    Operation.objects.update(**closed, body=b"{}")
    assert boss.post("payments/", {**body, "account": "second"}).status_code == 201


@pytest.mark.promise(5)
def test_two_posts_at_once_do_not_both_send_through_two_accounts(
    providers: Any, boss: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider is slow before the first is recorded, and the client tries again."""
    usual, second = sending.latest_answer, []
    body = {**PAYMENT, "merchant_reference": "order-1"}

    def slow(client: Any) -> Any:
        if client.account.alias == "default" and not second:
            second.append(None)
            second[0] = answer(boss.post("payments/", {**body, "account": "second"}))
        return usual(client)

    monkeypatch.setattr(sending, "latest_answer", slow)
    status, refused = answer(boss.post("payments/", body))
    assert (second[0][0], status, refused["error"]["code"]) == (201, 422, "operation_closed")
    assert not providers["default"].project.payments


ACCOUNTS: list[str] = []


def key_of_the_order(request: Any, body: Any) -> dict[str, Any]:
    """A project's ``API_PAYMENT``. Each request gets another account."""
    return {**PAYMENT, "merchant_reference": body["order"], "idempotency_key": "1", "account": ACCOUNTS.pop(0)}


@pytest.mark.promise(5)
def test_a_key_of_the_projects_own_is_not_used_twice_for_an_order(
    providers: Any, given: Any, customer: Caller
) -> None:
    ACCOUNTS[:] = ["default", "second", "second"]
    given(API_PERMISSION_CLASSES=[CUSTOMERS], API_PAYMENT="key_of_the_order", API_ACCOUNT_CHECK="anyone")
    assert customer.post("payments/", {"order": "order-1"}).status_code == 201
    status, refused = answer(customer.post("payments/", {"order": "order-1"}))
    assert (status, refused["error"]["code"]) == (409, "idempotency_conflict")
    assert "Idempotency-Key" not in str(refused)  # another one would change nothing
    assert not providers["second"].project.payments
    # Another brand's order has the same number.
    assert customer.post("payments/", {"order": "brand-1"}).status_code == 201
