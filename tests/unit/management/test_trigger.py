"""``payments_trigger`` against a running sandbox, up to the mirror."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from payments_integration.models import Payment, Refund
from payments_integration.testing import ProviderSandbox

pytestmark = pytest.mark.django_db


def run(*words: str) -> str:
    out = io.StringIO()
    call_command("payments_trigger", *words, stdout=out, stderr=out, no_color=True)
    return out.getvalue()


def refusal(*words: str) -> CommandError:
    with pytest.raises(CommandError) as caught:
        run(*words)
    return caught.value


def test_a_triggered_event_reaches_the_mirror(payments_sandbox: ProviderSandbox) -> None:
    output = run("payment.overpaid", "--set", "amount=11980", "--set", "payer.email=ana@example.cl")
    payments_sandbox.settle()
    payment = Payment.objects.get()
    assert (payment.amount, payment.payer["email"], payment.status) == (11_980, "ana@example.cl", "overpaid")
    events = payments_sandbox.project.events
    assert output.splitlines() == [
        f"{payment.pk}  overpaid",
        *(f"{event['type']:<24} {event['data'].get('id', 'CLP')}  {event['id']}" for event in events),
    ]


def test_an_object_that_exists_and_a_balance(payments_sandbox: ProviderSandbox) -> None:
    payment_id = run("payment.succeeded").split()[0]
    run("refund.succeeded", "--set", f"payment_id={payment_id}", "--set", "amount=40")
    assert run("payment.chargeback", "--object", payment_id).startswith(f"{payment_id}  chargeback\n")
    assert run("balance.updated").startswith("balance  CLP\n")
    payments_sandbox.settle()
    assert Payment.objects.get(pk=payment_id).status == "chargeback"
    assert Refund.objects.get(payment_id=payment_id).amount == 40


def test_the_project_is_that_of_the_account(payments_sandbox: ProviderSandbox, settings: Any) -> None:
    payments_sandbox.engine.add_project("sk_test_other")
    accounts = settings.PAYMENTS_INTEGRATION["ACCOUNTS"]
    other = {"BASE_URL": payments_sandbox.url, "API_KEY": "sk_test_other"}
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": {**accounts, "other": other}}
    output = run("payment.created", "--account", "other")
    assert "No webhook endpoint of the sandbox takes this event" in output
    assert list(payments_sandbox.engine.projects["sk_test_other"].payments) == [output.split()[0]]
    # without the account's key
    assert list(payments_sandbox.engine.payments) == []
    run("payment.created", "--url", f"{payments_sandbox.url}/")
    assert len(payments_sandbox.engine.payments) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["payment.succeeded", "--set", "color=red"], "color: This parameter is not known. (parameter_invalid)"),
        (["payment.succeeded", "--set", "payer.email=no"], "payer.email: This is not an e-mail address."),
        (["payment.suceeded"], "event: There is no event type 'payment.suceeded'. Did you mean payment.succeeded?"),
        (["payment.failed", "--object", "pay_none"], "there is no 'pay_none'"),
    ],
)  # fmt: skip
def test_a_refusal_of_the_sandbox_names_the_field(
    payments_sandbox: ProviderSandbox, words: list[str], message: str
) -> None:
    assert message in str(refusal(*words))
    assert payments_sandbox.project.events == []


def test_an_illegal_change_says_why(payments_sandbox: ProviderSandbox) -> None:
    payment_id = run("payment.failed").split()[0]
    assert "a payment that is failed cannot be charged back" in str(
        refusal("payment.chargeback", "--object", payment_id)
    )


@pytest.mark.parametrize("text", ["amount", "=5", "a..b=1"])
def test_a_value_that_cannot_be_read_is_an_error(payments_sandbox: ProviderSandbox, text: str) -> None:
    error = refusal("payment.created", "--set", text)
    assert str(error).startswith("--set: Write key=value, such as amount=11980")
    assert error.returncode == 2


@pytest.mark.parametrize(
    "url",
    [
        "https://provider.example", "http://provider.example", "http://127.0.0.1.evil.example",
        "http://evil.example#@127.0.0.1", "http://evil.example\\@127.0.0.1", "http://192.0.2.1", "127.0.0.1:8400",
        "http://127.0.0.1@evil.example", "http://[::1", "http://0.0.0.0:8400",
    ],
)  # fmt: skip
def test_any_other_machine_is_refused_before_a_request(url: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("requests.Session.post", lambda *args, **kwargs: pytest.fail("a request was sent"))
    error = refusal("payment.created", "--url", url)
    assert (error.returncode, str(error).startswith(f"--url is {url}, not a sandbox")) == (2, True)


def test_the_real_provider_is_refused_before_a_request(settings: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("requests.Session.post", lambda *args, **kwargs: pytest.fail("a request was sent"))
    accounts = {"default": {"BASE_URL": "https://provider.example", "API_KEY": "sk_live"}}
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": accounts}
    error = str(refusal("payment.created"))
    assert error.startswith(
        'The BASE_URL of account "default" is https://provider.example, not a sandbox on this machine'
    )
    assert "sk_live" not in error


def test_a_server_that_is_no_sandbox_or_does_not_answer(payments_sandbox: ProviderSandbox) -> None:
    error = refusal("payment.created", "--url", f"{payments_sandbox.url}/elsewhere")
    assert "is not a sandbox of this version: it answers 404" in str(error)
    url = payments_sandbox.url
    payments_sandbox._server.stop()
    error = refusal("payment.created", "--url", url)
    assert f"The sandbox at {url} does not answer. Start it with payments-sandbox." in str(error)
    assert error.returncode == 4
    payments_sandbox._server.start()


def test_an_unknown_account_is_an_error() -> None:
    assert refusal("payment.created", "--account", "nobody").returncode == 2
