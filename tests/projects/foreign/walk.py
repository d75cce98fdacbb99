"""The walk through a site: what a merchant's staff, the provider and cron do, over HTTP and ``manage.py`` only."""

from __future__ import annotations

import re
from urllib.parse import urljoin

import requests

from payments_integration.sandbox import Engine, Fault
from tests.projects.foreign.installation import PASSWORD, USER, Installation
from tests.projects.foreign.pages import Page
from tests.unit.admin.routes import ROUTES

SECONDS = 60
CORE, OPTIONAL = "payments_integration", ("payments_finance", "payments_backoffice", "payments_receipts")
#: What ``check --deploy`` says of a sandbox's key and address.
SANDBOXED = {"W011", "W012"}
#: Pages of Django's own models, which show what the site itself writes into its admin.
FOREIGN_PAGES = ("", "password_change/", "auth/group/", "auth/group/add/", "auth/group/?q=a")


class Walk:
    def __init__(self, installation: Installation, engine: Engine) -> None:
        self.installation = installation
        self.site = installation.site
        self.engine = engine
        self.payments: list[str] = []
        self.browser = requests.Session()

    def prepare(self) -> None:
        manage, site = self.installation.manage, self.site
        if site.apps:
            manage("makemigrations", *site.apps, "--verbosity", "0")
        for alias in site.databases:
            manage("migrate", "--verbosity", "0", "--database", alias)
        # Whatever DEFAULT_AUTO_FIELD and the user model of the site are.
        manage("makemigrations", CORE, *OPTIONAL, "--check", "--dry-run")
        checks = manage("check", "--deploy", *(part for alias in site.databases for part in ("--database", alias)))
        ours = set(re.findall(r"\(payments_\w+\.(\w+)\)", checks.stdout + checks.stderr))
        assert ours == SANDBOXED, checks.stderr
        manage("collectstatic", "--noinput", "--verbosity", "0")
        manage("createsuperuser", "--noinput", "--username", USER, "--email", "walker@example.com")

    def create(self) -> None:
        self.payments = self.installation.ask("create")
        self.installation.manage("payments_erase", "--id", self.payments[3], "--yes")

    def log_in(self) -> None:
        self.browser = requests.Session()
        page = Page(self._get(self.site.login).text)
        name, password = self.site.login_fields
        form = page.form(field=password)
        data = {**form.fields, name: USER, password: PASSWORD, "next": self.site.admin}
        answer = self._post(urljoin(self.site.login, form.action), data)
        assert answer.url == self.installation.url + self.site.admin, (answer.url, Page(answer.text).forms)

    def take_deliveries(self) -> None:
        """The provider delivers what is due, signed; the mirror has it."""
        known = len(self.engine.deliveries)
        assert self.engine.deliver_due() > 0
        assert {attempt["status"] for attempt in self.engine.deliveries[known:]} == {200}
        self.assert_mirrored()

    def refuse_forgeries(self) -> None:
        """A delivery without a valid signature is refused, and needs neither a session nor a CSRF token."""
        answer = requests.post(f"{self.installation.url}/payments/webhook/", json={"id": "evt_1"}, timeout=SECONDS)
        assert answer.status_code == 400, answer.status_code

    def open_pages(self, *, debug: bool) -> int:
        """Every page that a superuser may open answers 200. Returns how many there are."""
        found: dict[str, list[str]] = self.installation.ask("pages")
        absent = {route.full_name for route in ROUTES.values()} - set(found)
        assert not absent, f"pages that this site's admin has not: {absent}"
        allowed = {line for path in FOREIGN_PAGES for line in Page(self._get(self.site.admin + path).text).inline}
        refused = {}
        addresses = [address for name, all_of in found.items() if self._opens(name) for address in all_of]
        addresses += [
            f"{address}?format={written}"
            for name, all_of in found.items() if name.endswith("_export")
            for address in all_of for written in ("csv-comma", "xlsx")
        ]  # fmt: skip
        for address in addresses:
            answer = self._get(address)
            assert not answer.history, f"{address} redirects to {answer.url}"
            if "html" not in answer.headers["Content-Type"]:
                continue
            if debug:
                assert self.site.debug_mark in answer.text, address
            if self.site.strict:
                assert "script-src" in answer.headers["Content-Security-Policy"], address
                if ours := set(Page(answer.text).inline) - allowed:
                    refused[address] = ours
        assert not refused, f"the site's policy refuses: {refused}"
        self._without_rows(found)
        return len(addresses)

    def press_refresh(self) -> None:
        """Every button that reads something from the provider, within whatever transactions the site makes."""
        for name, addresses in self.installation.ask("pages").items():
            for address in addresses if name.endswith(("_refresh", "_refresh-all")) else ():
                known = len(self.engine.requests)
                found = self._post(address, {"csrfmiddlewaretoken": self.browser.cookies["csrftoken"]})
                assert found.history, f"{address} does not redirect"
                assert len(self.engine.requests) > known, f"{address} has asked the provider for nothing"

    def refund(self, payment: str, amount: int) -> None:
        """Refund a part of a payment in the admin: search it, open its page and the form, review, confirm."""
        found = Page(self._get(f"{self.site.admin}{CORE}/payment/?q={payment}").text)
        number = payment.removeprefix("pay_")  # the admin quotes the underscore
        found = Page(self._get(found.link(number, "/change/")).text)
        address = found.link(number, "/refund/")
        form = Page(self._get(address).text).form("refund_form")
        review = self._post(address, {**form.fields, "amount": str(amount), "reason": "the walk", "step": "review"})
        form = Page(review.text).form("confirm_form")
        done = self._post(address, {**form.fields, "step": "confirm"})
        assert done.history, "no redirect to the payment's page"
        made = [item for item in self.engine.refunds.values() if item["payment_id"] == payment]
        assert [item["amount"] for item in made] == [amount], made
        assert made[0]["id"] in done.text, "the page does not show the refund"

    def miss_an_event(self, payment: str) -> None:
        """A delivery is lost on its way; a reconciliation finds the event."""
        self.engine.faults.add(Fault("drop", times=None))
        self.engine.pay(payment)
        self.engine.deliver_due()
        self.engine.faults.clear()
        said = self.installation.manage("payments_reconcile").stdout
        assert re.search(r"events: done, .* [1-9]\d* recovered", said), said
        self.installation.manage("payments_process")
        self.assert_mirrored()

    def assert_mirrored(self) -> None:
        """Every payment and refund is in the mirror with its status; the handler was called for each paid payment."""
        theirs = {**self.engine.payments, **self.engine.refunds}
        paid = sorted(id for id, item in self.engine.payments.items() if item["status"] == "succeeded")
        expected = {"statuses": {id: item["status"] for id, item in theirs.items()}, "handled": paid}
        assert self.installation.ask("mirrored") == expected

    def _opens(self, name: str) -> bool:
        route = next((route for route in ROUTES.values() if route.full_name == name), None)
        others = ("_add", "_delete", "_saved-filters", "_send-again", "_of-payment")
        return route.get == 200 if route else not name.endswith(others)

    def _without_rows(self, found: dict[str, list[str]]) -> None:
        empty = {name for name, addresses in found.items() if not addresses and self._opens(name)}
        assert not empty, f"the walk has no row for {empty}"

    def _get(self, path: str) -> requests.Response:
        answer = self.browser.get(urljoin(self.installation.url, path), timeout=SECONDS)
        assert answer.status_code == 200, f"{path}: {answer.status_code}\n{answer.text[:2000]}"
        return answer

    def _post(self, path: str, data: dict[str, str]) -> requests.Response:
        url = urljoin(self.installation.url, path)
        answer = self.browser.post(url, data, headers={"Referer": url}, timeout=SECONDS)
        assert answer.status_code == 200, f"POST {path}: {answer.status_code}\n{answer.text[:2000]}"
        return answer
