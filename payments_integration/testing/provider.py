"""Run the sandbox as a context manager that changes the settings to use it."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db.models import Model
from django.test import Client, override_settings
from django.urls import NoReverseMatch
from django.utils import timezone

from payments_integration import conf, reconciliation
from payments_integration.exceptions import SignatureError
from payments_integration.models import AccountState, Event, EventState, StatusChange
from payments_integration.sandbox import Engine, Project, SandboxServer
from payments_integration.sandbox.engine import DEFAULT_FUNDS
from payments_integration.signatures import verify
from payments_integration.site_urls import path_of, without_script_prefix

API_KEY = "sk_test_sandbox"
WEBHOOK_SECRET = "whsec_sandbox"  # noqa: S105  (a test's provider)
#: The host in the endpoint's URL. Django's test client carries the deliveries to the webhook view.
MERCHANT = "https://testserver"
#: Answers of a middleware, such as one that asks for a login, or of another route.
NOT_OF_THE_VIEW = frozenset({301, 302, 307, 308, 401, 403, 404})


class ProviderSandbox:
    """A sandbox on a free port of this machine. Inside the ``with`` block the account's settings use it.

    It sends nothing on its own. :meth:`deliver` posts the due deliveries to your project's webhook view, and
    :meth:`settle` also does the work of a worker. The sandbox has money in every currency.

    Args:
        account: The alias of the account that uses the sandbox.
        webhook_url: Deliver over HTTP to this URL instead, for a live server.
        options: Override keys of PAYMENTS_INTEGRATION.
        settings: pytest-django's fixture, if you call this in a fixture of your own. The changes of the sandbox and of
            the test are then undone in the right order.
        engine: Other arguments for the sandbox's ``Engine``. ``funds={}`` starts without money, to test a refusal.
    """

    def __init__(
        self,
        *,
        account: str = conf.DEFAULT_ACCOUNT,
        webhook_url: str | None = None,
        options: dict[str, Any] | None = None,
        settings: Any = None,
        **engine: Any,
    ) -> None:
        engine.setdefault("rate_limits", False)
        engine.setdefault("funds", DEFAULT_FUNDS)
        self.account = account
        self.engine: Engine = Engine(API_KEY, **engine)
        self.webhook_secret = WEBHOOK_SECRET
        self._webhook_url = webhook_url
        self._options = options or {}
        self._settings = settings
        self._server = SandboxServer(self.engine, deliver=False)
        self._override: override_settings | None = None
        self._unanswered: list[str] = []
        #: The failed attempts of events and changes that settle() has warned of.
        self._failures: dict[tuple[type[Model], Any], int] = {}

    @property
    def url(self) -> str:
        """The address of the sandbox, without ``/v1``."""
        return self._server.url

    @property
    def project(self) -> Project:
        """The sandbox's project for this account."""
        return self.engine.default_project

    def deliver(self) -> int:
        """Post every delivery that is due. Returns the number of attempts."""
        return self._deliver()

    def settle(self) -> None:
        """Deliver and process until nothing is due. No event waits for REORDER_WINDOW.

        A handler that failed is a UserWarning. If your test is about that, use ``pytest.warns`` or ``assertWarns``.
        """
        changed = {conf.NAME: {**getattr(settings, conf.NAME), "REORDER_WINDOW": 0}}
        with override_settings(**changed) if conf.current().REORDER_WINDOW else nullcontext():
            # What a pass does may send calls, whose events are due then, and may leave work to the next pass.
            quiet = 0
            while quiet < 2:
                quiet = 0 if self._deliver() else quiet + 1
                reconciliation.process_due(self.account)
        for problem in self._new_failures():
            warnings.warn(problem, stacklevel=2)

    def _deliver(self) -> int:
        attempts = self.engine.deliver_due()
        # Here, and not in _post: to the engine an exception is a failed delivery, even a warning under ``-W error``.
        unanswered, self._unanswered = self._unanswered, []
        for problem in dict.fromkeys(unanswered):
            # Otherwise only an assertion about the payment would fail.
            warnings.warn(problem, stacklevel=3)
        return attempts

    def _new_failures(self) -> list[str]:
        """Name each event and change whose handlers have failed since the last call, with the last line of why."""
        problems: list[str] = []
        for model in (Event, StatusChange):
            waiting = model._default_manager.filter(
                account=self.account, state__in=(EventState.APPLIED, EventState.PARKED)
            )
            for item in waiting.exclude(error="").order_by("pk"):
                if self._failures.get((model, item.pk)) == item.attempts:
                    continue
                self._failures[model, item.pk] = item.attempts
                what = f"the status {item.status} of {item.object_id}" if isinstance(item, StatusChange) else item
                problems.append(f"A handler failed for {what}: {item.error.strip().splitlines()[-1]}")
        return problems

    def __enter__(self) -> ProviderSandbox:
        self._server.start()
        configured = dict(getattr(settings, conf.NAME, {}))
        accounts = dict(configured.get("ACCOUNTS", {}))
        accounts[self.account] = {"BASE_URL": self.url, "API_KEY": API_KEY, "WEBHOOK_SECRETS": [self.webhook_secret]}
        changed = {**configured, **self._options, "ACCOUNTS": accounts}
        if self._settings is not None:
            setattr(self._settings, conf.NAME, changed)
        else:
            self._override = override_settings(**{conf.NAME: changed})
            self._override.enable()
        self._add_endpoint()
        self.engine.clock.subscribe(self._follow_clock)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._override is not None:
            self._override.disable()
        self._server.stop()

    def __deepcopy__(self, memo: Any) -> ProviderSandbox:
        # Django copies what ``setUpTestData`` keeps.
        raise TypeError(
            "A ProviderSandbox is for one test: start it in setUp or in a fixture. Django undoes what a test wrote to "
            "the database, and not what the sandbox knows."
        )

    def _follow_clock(self) -> None:
        """Store the clock offset, as reconciliation would, because tests move the sandbox's clock by days."""
        offset = (self.engine.clock.now() - timezone.now()).total_seconds()
        AccountState.objects.update_or_create(account=self.account, defaults={"clock_offset": offset})

    def _add_endpoint(self) -> None:
        if self._webhook_url is None:
            try:
                path = path_of("payments_integration:webhook-account", kwargs={"account": self.account})
            except NoReverseMatch:
                return  # the project has no webhook view
            self.engine.transport = self._post
        url = self._webhook_url or f"{MERCHANT}{path}"
        self.engine.add_endpoint(url, secret=self.webhook_secret)
        self.engine.first_endpoint = url, self.webhook_secret  # a reset adds it again

    def _post(self, url: str, headers: dict[str, str], body: bytes) -> int:
        path = without_script_prefix(urlsplit(url).path)
        try:
            response = Client().post(
                path,
                data=body,
                content_type="application/json",
                headers={"Service-Signature": headers["Service-Signature"]},
                secure=True,
            )
        except Exception as error:
            self._unanswered.append(f"No webhook view answered at {path}: {type(error).__name__}: {error}")
            raise
        status = response.status_code
        if status in NOT_OF_THE_VIEW:
            to = f" to {response.headers['Location']}" if response.has_header("Location") else ""
            self._unanswered.append(f"No webhook view answered at {path}: HTTP {status}{to}.")
        elif status >= 400 and self._is_signed(headers, body):
            self._unanswered.append(f"The webhook view refused a delivery: HTTP {status}. Its log says why.")
        return status

    def _is_signed(self, headers: dict[str, str], body: bytes) -> bool:
        """Return False for a delivery that a fault of the test has signed with a wrong secret."""
        try:
            verify(body, headers["Service-Signature"], secrets=[self.webhook_secret], tolerance=10**9)
        except SignatureError:
            return False
        return True
