"""Maintenance: rotating a secret, replaying an event, running reconciliation, listing payment methods."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from payments_integration import services
from payments_integration.models import Event, EventState, ReconciliationRun, StatusChange, WebhookEndpoint
from payments_integration.testing import ProviderSandbox
from tests.browser import provider_data
from tests.browser.conftest import Person, Visit, address
from tests.browser.visitor import Visitor
from tests.conftest import Receiver


def answer(visitor: Visitor, action: str) -> None:
    """Press a button that asks for confirmation, and confirm."""
    form = visitor.find(f"form[action='{action}']")
    visitor.find("details.pi-tool").filter(has=form).locator("summary").click()
    visitor.press(form.locator("button"))


def test_a_secret_is_rotated_and_never_shown(
    visit: Visit, person: Person, provider: ProviderSandbox, language: str
) -> None:
    services.sync_webhook_endpoints()
    endpoint = WebhookEndpoint.objects.get()
    before = provider.engine.endpoint(endpoint.pk).secret
    visitor = visit(person("ana", "view_webhookendpoint", "rotate_webhookendpoint"), language=language)
    visitor.open(address("webhookendpoint", "change", endpoint))
    answer(visitor, address("webhookendpoint", "rotate", endpoint))
    assert len(visitor.messages("success")) == 1
    after = provider.engine.endpoint(endpoint.pk).secret
    assert after != before
    html = visitor.page.content()
    assert after not in html
    assert before not in html
    endpoint.refresh_from_db()
    assert endpoint.secret_token != ""
    # A delivery signed with the new secret is accepted.
    provider.engine.open_checkout(services.create_payment(amount=5000, currency="CLP", country="CL",
                                                          method_code=provider_data.CARD).pk)  # fmt: skip
    provider.settle()
    assert Event.objects.filter(state=EventState.DONE).exists()


@pytest.mark.parametrize("model", [Event, StatusChange])
def test_a_parked_event_is_replayed(
    visit: Visit, person: Person, provider: ProviderSandbox, receiver: Receiver, no_retries: None, model: type
) -> None:
    receiver.fail = lambda what: True
    with pytest.warns(UserWarning, match="A handler failed"):
        provider_data.paid(provider)
    parked = model._default_manager.filter(state=EventState.PARKED).first()
    if parked is None:
        pytest.fail(f"no {model.__name__} was parked: {list(model._default_manager.values('state', 'attempts'))}")
    kind = model._meta.model_name
    visitor = visit(person("ana", f"view_{kind}", "replay_event", "view_personal_data"))
    visitor.open(address(kind, "change", parked))
    assert "receiver fails" in visitor.find("#content").inner_text()
    receiver.fail = lambda what: False
    answer(visitor, address(kind, "replay", parked))
    assert len(visitor.messages("success")) == 1
    parked.refresh_from_db()
    assert parked.state == EventState.DONE


def test_a_run_is_started(visit: Visit, person: Person, provider: ProviderSandbox, language: str) -> None:
    provider_data.paid(provider)
    visitor = visit(person("ana", "view_reconciliationrun", "run_reconciliation"), language=language)
    visitor.open(address("reconciliationrun", "changelist"))
    answer(visitor, address("reconciliationrun", "run"))
    assert visitor.messages() != []
    assert ReconciliationRun.objects.count() == 1


def test_payment_methods_are_listed(visit: Visit, person: Callable[..., object], provider: ProviderSandbox) -> None:
    visitor = visit(person("ana", "view_payment"))
    visitor.open(address("payment", "methods"))
    visitor.page.select_option("[name=country]", "CL")
    visitor.press("#content .pi-main[type=submit]")
    assert provider_data.CARD in visitor.find("#content").inner_text()
