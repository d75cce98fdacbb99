"""The commands, with the arguments that a person types."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.conf.urls.i18n import i18n_patterns
from django.core.management import CommandError, call_command, get_commands, load_command_class
from django.db import OperationalError, connection, transaction
from django.urls import clear_script_prefix, include, path, set_script_prefix
from django.utils import timezone, translation

from payments_integration import health, inbox, services
from payments_integration.contrib.backoffice.models import SearchTerm
from payments_integration.management.command import PaymentsCommand
from payments_integration.models import AccountState, Event, OperationState, ReconciliationRun, WebhookEndpoint
from payments_integration.reconciliation.commands import Poll
from payments_integration.sandbox import Fault
from payments_integration.signals import Reason
from payments_integration.testing import ProviderSandbox
from tests import factories
from tests.conftest import Receiver
from tests.factories import rows

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parents[3]


def run(*words: str, **options: Any) -> str:
    out = io.StringIO()
    call_command(*words, stdout=out, stderr=out, **options)
    return out.getvalue()


def assert_wrong(*words: str, says: str) -> None:
    with pytest.raises(CommandError, match=says) as caught:
        run(*words)
    # A command that code calls leaves the exit to its parser, which ends a process with 2.
    assert caught.value.returncode == 2 or str(caught.value).startswith("Error: ")


@pytest.fixture
def sandbox(payments_sandbox: ProviderSandbox, settings: Any) -> ProviderSandbox:
    """A sandbox with one account; it drops every delivery."""
    only = settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": {"default": only}}
    payments_sandbox.engine.faults.add(Fault("drop", times=None))
    return payments_sandbox


def missed_payment(sandbox: ProviderSandbox) -> None:
    payment = services.create_payment(amount=1000, currency="CLP", country="CL", method_code="cl_webpay_card")
    sandbox.engine.pay(payment.id)
    sandbox.deliver()
    sandbox.engine.clock.advance(10)


class TestATerminalWithoutUnicode:
    """Such as of cron with LC_ALL=C, or of an old Windows console."""

    @staticmethod
    def printed(function: Callable[..., object], *arguments: str) -> str:
        terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
        with redirect_stdout(terminal):
            function(*arguments)
        terminal.seek(0)
        return terminal.read()

    def test_health_ends_with_its_exit_code(self, sandbox: ProviderSandbox) -> None:
        def health() -> None:
            with pytest.raises(SystemExit) as ended:
                call_command("payments_health")
            assert ended.value.code == 1

        assert "last event \\u2013, last webhook \\u2013" in self.printed(health)

    def test_a_list_without_endpoints_says_so(self, sandbox: ProviderSandbox) -> None:
        for endpoint in services.sync_webhook_endpoints():
            call_command("payments_endpoints", "delete", endpoint.pk, stdout=io.StringIO())
        output = self.printed(call_command, "payments_endpoints", "list")
        assert "payments_endpoints create https://\\u2026/payments/webhook/" in output

    @pytest.mark.parametrize(
        "name",
        sorted(
            name
            for name, app in get_commands().items()
            if str(app).startswith("payments_integration") or name == "demo"
        ),
    )
    def test_every_command_shows_its_help(self, name: str) -> None:
        command = load_command_class(get_commands()[name], name)
        assert isinstance(command, PaymentsCommand)
        assert "usage: manage.py " in self.printed(command.print_help, "manage.py", name)


class TestReconcile:
    def test_reconcile_finds_missed_events(self, sandbox: ProviderSandbox) -> None:
        missed_payment(sandbox)
        output = run("payments_reconcile")
        assert f"default events: done, {len(sandbox.project.events)} seen" in output
        assert Event.objects.count() == len(sandbox.project.events)

    def test_reconcile_full_compares_every_object(self, sandbox: ProviderSandbox) -> None:
        run("payments_reconcile", "--full", "--account", "default")
        assert ReconciliationRun.objects.filter(kind="full", state="done").exists()

    def test_reconcile_reads_only_a_given_range(self, sandbox: ProviderSandbox) -> None:
        missed_payment(sandbox)
        assert "0 recovered" in run("payments_reconcile", "--since", "2020-01-01", "--until", "2020-01-02T00:00:00Z")
        assert not Event.objects.exists()

    def test_the_last_day_of_a_range_is_read_whole(self, settings: Any) -> None:
        settings.TIME_ZONE = "America/Santiago"
        with mock.patch("payments_integration.reconciliation.reconcile_events", return_value=rows.run()) as read:
            run("payments_reconcile", "--account=default", "--since", "2026-01-31", "--until", "2026-01-31")
            run("payments_reconcile", "--account=default", "--until", "2026-01-31T12:00:00")
        days, noon = [call.kwargs for call in read.call_args_list]
        assert [days[name].isoformat() for name in ("since", "until")] == [
            "2026-01-31T00:00:00-03:00", "2026-01-31T23:59:59.999999-03:00"
        ]  # fmt: skip
        assert noon["until"].isoformat() == "2026-01-31T12:00:00-03:00"

    def test_a_terminal_shows_the_progress(self, sandbox: ProviderSandbox) -> None:
        missed_payment(sandbox)
        terminal = io.StringIO()
        terminal.isatty = lambda: True  # type: ignore[method-assign]
        call_command("payments_reconcile", stdout=io.StringIO(), stderr=terminal, no_color=True)
        assert "default events: 0 objects" in terminal.getvalue()
        assert terminal.getvalue().endswith("\r\x1b[K")

    def test_reconcile_exits_with_an_error_if_a_pass_fails(self, sandbox: ProviderSandbox) -> None:
        sandbox.engine.faults.add(Fault("html", operation="list_events", times=None))
        with pytest.raises(CommandError, match="continues there"):
            run("payments_reconcile")

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (["--account", "missing"], "no account"),
            (["--since", "yesterday"], "write 2026-01-31"),
            (["--since", "2026-13-01"], "not a time"),
            (["--until", "9999-12-31"], "not a time"),
            (["--since", "2026-01-02", "--until", "2026-01-01"], "before --until"),
            (["--since", "0001-01-01"], "between 1970 and now"),
            (["--since", "2926-01-01"], "between 1970 and now"),
            (["--dispatch-history"], "needs --since"),
            (["--dispatch-history", "--since", "2026-01-01", "--full"], "goes with --since"),
        ],
    )
    def test_reconcile_refuses_wrong_arguments(self, words: list[str], says: str) -> None:
        assert_wrong("payments_reconcile", *words, says=says)


class TestProcess:
    def test_process_does_what_a_worker_would_do(
        self, sandbox: ProviderSandbox, receiver: Receiver, woken: list[str]
    ) -> None:
        inbox.receive("default", factories.body(factories.life()[0]))
        missed_payment(sandbox)
        run("payments_process", verbosity=2)
        assert len(receiver.events) == 1 + len(sandbox.project.events)
        assert set(ReconciliationRun.objects.values_list("kind", flat=True)) >= {"events", "objects", "balances"}

    def test_process_reconciles_as_often_as_the_schedule_says(self, sandbox: ProviderSandbox) -> None:
        run("payments_process")
        count = ReconciliationRun.objects.count()
        run("payments_process")
        assert ReconciliationRun.objects.count() == count
        run("payments_process", "--all")
        assert ReconciliationRun.objects.count() == count + 3
        ReconciliationRun.objects.update(started_at=timezone.now() - timedelta(minutes=6))
        run("payments_process")
        assert ReconciliationRun.objects.count() == count + 4

    def test_a_pass_that_failed_is_an_exit_code(self) -> None:
        failed = ReconciliationRun(account="default", kind="objects", state="failed", error="WireError: no id")
        with mock.patch("payments_integration.reconciliation.run_due", return_value=[failed]):
            error = ended("payments_process", "--account", "default", "--verbosity", "0")
        assert error.returncode == 1
        assert str(error) == "Not everything was done. objects of default: WireError: no id"

    def test_search_terms_are_written_again(self, sandbox: ProviderSandbox) -> None:
        made = services.create_payment(
            amount=990, currency="CLP", country="CL", method_code="cl_webpay_card", merchant_reference="order-7"
        )
        terms = SearchTerm.objects.filter(object_id=made.pk)
        assert not terms.exists()  # as where the back office was not installed
        run("payments_search_terms")
        assert {"order-7", "$990 clp"} <= set(terms.values_list("term", flat=True))


def ended(*words: str) -> CommandError:
    with pytest.raises(CommandError) as caught:
        run(*words)
    return caught.value


@pytest.mark.case(111)
class TestProviderFailures:
    """A wrong API key is exit code 3, a provider that cannot be reached 4."""

    @pytest.fixture(autouse=True)
    def _change(self, sandbox: ProviderSandbox, settings: Any) -> None:
        self.account = dict(settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"])
        self.settings = settings

    def use(self, **changes: str) -> None:
        options = self.settings.PAYMENTS_INTEGRATION
        self.settings.PAYMENTS_INTEGRATION = {**options, "ACCOUNTS": {"default": {**self.account, **changes}}}

    @pytest.mark.parametrize("words", [["payments_process"], ["payments_reconcile"], ["payments_reconcile", "--full"]])
    def test_a_refused_key_has_its_exit_code(self, words: list[str]) -> None:
        self.use(API_KEY="sk_test_wrong")
        for _ in range(2):
            error = ended(*words)
            assert error.returncode == 3
            assert "refuses the API key of account default: AuthenticationFailed: api_key_invalid" in str(error)
        out = io.StringIO()
        with pytest.raises(SystemExit):
            call_command("payments_health", stdout=out)
        assert (
            "api_key_refused: the provider refuses the API key (AuthenticationFailed: api_key_invalid"
            in out.getvalue()
        )
        self.use()
        run(*words)
        assert health.examine().accounts["default"].statistics.provider_error == ""

    @pytest.mark.parametrize("words", [["payments_process"], ["payments_reconcile"], ["payments_reconcile", "--full"]])
    def test_an_unreachable_provider_has_its_exit_code(self, words: list[str]) -> None:
        self.use(BASE_URL="http://127.0.0.1:9")
        error = ended(*words)
        assert error.returncode == 4
        assert "cannot be reached for account default: NoAnswer:" in str(error)
        problems = {problem.code: problem.message for problem in health.examine().accounts["default"].problems}
        assert "cannot be reached" in problems[Reason.PROVIDER_UNREACHABLE]

    @pytest.mark.parametrize(
        ("changes", "code"), [({"API_KEY": "sk_wrong"}, 3), ({"BASE_URL": "http://127.0.0.1:9"}, 4)]
    )
    def test_open_work_does_not_hide_the_exit_code(self, changes: dict[str, str], code: int, woken: list[str]) -> None:
        rows.due(account="default", due_at=timezone.now() - timedelta(minutes=1))
        for state in (OperationState.DUE, OperationState.UNKNOWN):
            rows.operation(state=state, created_at=timezone.now() - timedelta(minutes=1), first_sent_at=None)
        self.use(**changes)
        assert ended("payments_process").returncode == code

    def test_an_error_of_the_provider_counts_as_unreachable(self, sandbox: ProviderSandbox) -> None:
        sandbox.engine.faults.add(Fault("error", times=None, status=503))
        assert ended("payments_reconcile").returncode == 4

    def test_a_refused_key_goes_before_an_unreachable_provider(self) -> None:
        self.use(API_KEY="sk_test_wrong")
        accounts = {"away": {**self.account, "BASE_URL": "http://127.0.0.1:9"}}
        accounts |= self.settings.PAYMENTS_INTEGRATION["ACCOUNTS"]
        self.settings.PAYMENTS_INTEGRATION = {**self.settings.PAYMENTS_INTEGRATION, "ACCOUNTS": accounts}
        assert ended("payments_reconcile").returncode == 3

    def test_endpoints_and_listen_have_the_same_exit_codes(self) -> None:
        self.use(API_KEY="sk_test_wrong")
        assert ended("payments_endpoints", "list").returncode == 3
        error = ended("payments_listen")
        assert error.returncode == 3
        assert "refuses the API key: api_key_invalid" in str(error)
        self.use(BASE_URL="http://127.0.0.1:9")
        assert ended("payments_endpoints", "list").returncode == 4
        error = ended("payments_listen", "--once")
        assert (error.returncode, "The provider did not answer" in str(error)) == (4, True)

    def test_listen_says_that_the_provider_answered_with_an_error(self, sandbox: ProviderSandbox) -> None:
        sandbox.engine.faults.add(Fault("error", times=1, status=503))
        output = str(ended("payments_listen", "--once"))
        assert "answered with an error" in output
        assert "did not answer" not in output


@pytest.mark.parametrize(
    "words",
    [
        ["payments_process"],
        ["payments_reconcile"],
        ["payments_prune"],
        ["payments_listen", "--once"],
        ["payments_endpoints", "create", "https://shop.example/payments/webhook/"],
    ],
    ids=" ".join,
)
def test_before_migrate_a_command_says_so_in_one_line(words: list[str], tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'empty.sqlite3'}"
    done = subprocess.run(
        [sys.executable, "-W", "error", "manage.py", *words],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "example_project.settings", "DATABASE_URL": database},
        check=False, cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "CommandError: The tables of payments_integration do not exist yet. Run manage.py migrate first."
    )
    assert "Traceback" not in done.stderr


def test_without_its_database_a_command_says_so_in_one_line() -> None:
    """Cron mails what a command prints, every minute."""
    gone = mock.patch.object(connection.introspection, "table_names", side_effect=OperationalError("no server"))
    with gone, pytest.raises(CommandError, match="The database cannot be read: no server"):
        run("payments_process")


@pytest.mark.parametrize(
    "words",
    [
        ["payments_process"],
        ["payments_reconcile"],
        ["payments_prune"],
        ["payments_listen", "--once"],
        ["payments_worker"],
        ["payments_rename_account", "default", "other"],
        ["payments_forget", "default"],
        ["payments_endpoints", "list"],
    ],
    ids=" ".join,
)
def test_a_command_in_a_transaction_says_that_it_commits(words: list[str]) -> None:
    with transaction.atomic(), pytest.raises(CommandError, match="cannot run inside a database transaction"):
        run(*words)
    assert not ReconciliationRun.objects.exists()


@pytest.mark.parametrize("name", ["process", "reconcile", "prune", "health"])
def test_commands_for_cron_do_not_print_warnings_of_checks(name: str) -> None:
    assert load_command_class("payments_integration", f"payments_{name}").requires_system_checks == []


class TestEndpoints:
    URL = "https://shop.example/payments/webhook/"

    @pytest.mark.case(110)
    @pytest.mark.parametrize(
        ("url", "says"),
        [
            (URL, ""),
            ("https://shop.example/payments/webhook", ""),
            ("https://shop.example/payments/webhook/default/", ""),
            ("https://shop.example/payment/webhook/", "path /payment/webhook/ leads to no view"),
            ("https://shop.example/admin/login/", "path /admin/login/ leads to another view (admin:login)"),
            ("https://shop.example/payments/webhook/second/", "deliveries of account second, not of default"),
        ],
    )
    def test_create_warns_if_the_url_leads_elsewhere(self, sandbox: ProviderSandbox, url: str, says: str) -> None:
        output = run("payments_endpoints", "create", url)
        assert WebhookEndpoint.objects.filter(url=url).exists()
        assert says in output
        assert ("no delivery will arrive" in output) == bool(says)
        assert "All processes know it in ten seconds. Then have the provider create an event" in output
        assert ("The webhook's path is /payments/webhook/." in output) == bool(says)

    @pytest.mark.parametrize(
        ("routes", "says"),
        [
            (
                i18n_patterns(path("payments/", include("payments_integration.urls"))),
                "path is /en/payments/webhook/.",
            ),
            ([], "Your URLconf has no webhook view (manage.py check)."),
        ],
        ids=["below a language", "nowhere"],
    )
    def test_create_names_the_path_of_the_urlconf(
        self, routes: list[Any], says: str, sandbox: ProviderSandbox, settings: Any
    ) -> None:
        settings.ROOT_URLCONF = type("Routes", (), {"urlpatterns": routes})
        with translation.override("en-us"):  # a request of another test leaves its language active
            assert says in run("payments_endpoints", "create", self.URL)

    @pytest.mark.case(110)
    @pytest.mark.parametrize(
        ("address", "is_right"),
        [("/es/payments/webhook/", True), ("/es-cl/payments/webhook/", False), ("/payments/webhook/", False)],
    )
    def test_below_a_language_only_an_address_with_a_language_of_the_site_is_right(
        self, address: str, is_right: bool, sandbox: ProviderSandbox, settings: Any
    ) -> None:
        routes = i18n_patterns(path("payments/", include("payments_integration.urls")))
        settings.ROOT_URLCONF = type("Routes", (), {"urlpatterns": routes})
        settings.LANGUAGE_CODE = "es-cl"  # not one of LANGUAGES
        assert (
            "leads to no view" in run("payments_endpoints", "create", f"https://shop.example{address}")
        ) != is_right

    @pytest.mark.parametrize(
        ("hosts", "debug", "url", "is_told"),
        [
            ([".shop.example"], False, URL, False),
            (["shop.example"], False, "https://tunnel.example:8443/payments/webhook/", True),
            ([], True, "https://tunnel.example/payments/webhook/", True),
            ([], True, "http://127.0.0.1:8000/payments/webhook/", False),
        ],
    )
    def test_create_warns_of_a_host_that_django_refuses(
        self, sandbox: ProviderSandbox, settings: Any, hosts: list[str], debug: bool, url: str, is_told: bool
    ) -> None:
        """Each delivery would get a 400 before the view sees it, and the provider would disable the endpoint."""
        settings.ALLOWED_HOSTS, settings.DEBUG = hosts, debug
        told = run("payments_endpoints", "create", url)
        assert ("unless a proxy changes the host, each delivery gets a 400" in told) == is_told
        assert WebhookEndpoint.objects.filter(url=url).exists()

    @pytest.mark.parametrize("url", ["https://[shop.example/", "https://shop.example:port/", "/payments/"])
    def test_create_refuses_what_is_no_address(self, sandbox: ProviderSandbox, url: str) -> None:
        with pytest.raises(CommandError, match="must be an https:// address"):
            run("payments_endpoints", "create", url)

    @pytest.mark.case(110)
    def test_only_an_address_below_the_path_of_the_site_is_right(self, sandbox: ProviderSandbox) -> None:
        set_script_prefix("/shop/")
        try:
            output = run("payments_endpoints", "create", "https://shop.example/shop/payments/webhook/")
            beside = run("payments_endpoints", "create", self.URL)
        finally:
            clear_script_prefix()
        assert "no delivery will arrive" not in output
        assert "path /payments/webhook/ does not begin with /shop/." in beside
        assert "The webhook's path is /shop/payments/webhook/." in beside

    @pytest.mark.case(110)
    def test_a_second_endpoint_for_a_url_must_be_confirmed(self, sandbox: ProviderSandbox) -> None:
        run("payments_endpoints", "create", self.URL)
        first = WebhookEndpoint.objects.get(url=self.URL).pk
        before = list(sandbox.project.endpoints)
        with mock.patch("builtins.input", return_value="n") as asked, pytest.raises(CommandError, match="Nothing was"):
            run("payments_endpoints", "create", self.URL)
        assert first in asked.call_args.args[0]
        with mock.patch("builtins.input", side_effect=EOFError), pytest.raises(CommandError, match="Nothing was"):
            run("payments_endpoints", "create", self.URL)
        with mock.patch("builtins.input") as asked, pytest.raises(CommandError, match=f"rotate {first}"):
            run("payments_endpoints", "create", self.URL, "--no-input")
        assert not asked.called
        for same in ("https://Shop.Example/payments/webhook", "HTTPS://shop.example:443/payments/webhook/"):
            with pytest.raises(CommandError, match=f"rotate {first}"):
                run("payments_endpoints", "create", same, "--no-input")
        assert list(sandbox.project.endpoints) == before
        with mock.patch("builtins.input", return_value="y"):
            run("payments_endpoints", "create", self.URL)
        assert len(sandbox.project.endpoints) == len(before) + 1
        for other in ("https://other.example/payments/webhook/", "https://shop.example/Payments/webhook/"):
            run("payments_endpoints", "create", other, "--no-input")

    def test_endpoints_can_be_created_listed_rotated_and_deleted(self, sandbox: ProviderSandbox) -> None:
        output = run("payments_endpoints", "create", self.URL)
        endpoint = WebhookEndpoint.objects.get(url=self.URL)
        assert endpoint.pk in output
        assert "whsec" not in output
        assert "secret known" in run("payments_endpoints", "list")
        WebhookEndpoint.objects.update(secret_token="")
        assert "secret not stored, WEBHOOK_SECRETS are tried" in run("payments_endpoints", "list")
        WebhookEndpoint.objects.update(secret_token="encrypted with a lost key")
        assert "no key can read its secret" in run("payments_endpoints", "list")
        assert '"secret_is_known": true' not in run("payments_endpoints", "list", "--json")
        WebhookEndpoint.objects.update(secret_token=endpoint.secret_token)
        first = endpoint.secret_token
        rotated = run("payments_endpoints", "rotate", endpoint.pk, "--show-secret")
        endpoint.refresh_from_db()
        assert endpoint.secret_token != first
        (secret,) = [line.rpartition(" ")[2] for line in rotated.splitlines() if "shown only now" in line]
        assert secret in sandbox.project.endpoint(endpoint.pk).secrets_at(sandbox.engine.clock.now())
        run("payments_endpoints", "delete", endpoint.pk)
        endpoint.refresh_from_db()
        assert endpoint.deleted_at is not None
        assert endpoint.pk not in sandbox.project.endpoints

    def test_show_secret_prints_the_secret_of_a_new_endpoint(self, sandbox: ProviderSandbox) -> None:
        output = run("payments_endpoints", "create", self.URL, "--show-secret", "--events", "payment.succeeded")
        assert "shown only now" in output
        assert WebhookEndpoint.objects.get(url=self.URL).events == ["payment.succeeded"]

    def test_endpoints_shows_errors(self, sandbox: ProviderSandbox) -> None:
        assert_wrong("payments_endpoints", "create", "http://shop.example/", says=r"(?i)https")
        assert_wrong("payments_endpoints", "delete", "pay_1", says="not the id of a webhook endpoint")
        with pytest.raises(CommandError, match="resource_not_found"):
            run("payments_endpoints", "rotate", "whk_unknown")
        with pytest.raises(CommandError, match="no account"):
            run("payments_endpoints", "list", "--account", "missing")


def later() -> datetime:
    """Return a time after the sandbox's newest event."""
    return timezone.now() + timedelta(hours=1)


def listen_from_later() -> None:
    """Listen to what an earlier listener has left only."""
    with mock.patch("payments_integration.management.commands.payments_listen.require_past"):
        run("payments_listen", "--once", since=later())


class TestListen:
    @pytest.mark.parametrize("since", ["2926-01-01", "9999-12-31", "0001-01-01"])
    def test_listen_refuses_a_time_when_nothing_can_have_happened(self, since: str) -> None:
        assert_wrong("payments_listen", "--once", "--since", since, says="between 1970 and now")

    def test_listen_puts_events_into_the_inbox(self, sandbox: ProviderSandbox, receiver: Receiver) -> None:
        missed_payment(sandbox)
        output = run("payments_listen", "--once")
        assert "payment.succeeded" in output
        assert receiver.events

    def test_listen_stops_with_ctrl_c_and_survives_an_outage(self, sandbox: ProviderSandbox) -> None:
        sandbox.engine.faults.add(Fault("html", operation="list_events", times=1))
        with mock.patch("time.sleep", side_effect=[None, KeyboardInterrupt]):
            output = run("payments_listen")
        assert "The provider did not answer" in output
        assert "Stopped." in output

    @pytest.mark.parametrize("interrupted", ["process", "release"])
    def test_listen_dispatches_what_an_interrupted_one_has_left(
        self, sandbox: ProviderSandbox, receiver: Receiver, interrupted: str
    ) -> None:
        missed_payment(sandbox)
        with mock.patch.object(inbox, interrupted, side_effect=KeyboardInterrupt):
            assert "Stopped." in run("payments_listen")
        assert Event.objects.exists()
        assert not receiver.events
        AccountState.objects.update(window_from=later())
        listen_from_later()
        assert not receiver.events, "they are left to the pass that has this window"
        AccountState.objects.update(window_from=None)
        listen_from_later()
        assert len(receiver.events) == Event.objects.count()

    def test_listen_begins_now_if_an_earlier_one_was_interrupted_long_ago(
        self, sandbox: ProviderSandbox, receiver: Receiver
    ) -> None:
        missed_payment(sandbox)
        with mock.patch.object(inbox, "release", side_effect=KeyboardInterrupt):
            run("payments_listen")
        left = Event.objects.count()
        Event.objects.update(received_at=timezone.now() - timedelta(hours=2))
        missed_payment(sandbox)
        listen_from_later()
        assert len(receiver.events) == Event.objects.count() == left

    def test_listen_prints_the_types_asked_for_and_receives_all(self, sandbox: ProviderSandbox) -> None:
        missed_payment(sandbox)
        output = run("payments_listen", "--once", "--events", "*.updated", "--events", "payment.succeeded", "refund.*")
        assert re.findall(r"^[0-9:]{8}  (\S+)", output, re.MULTILINE) == ["payment.succeeded", "balance.updated"]
        assert Event.objects.count() == len(sandbox.project.events) > 2

    def test_listen_warns_of_a_pattern_that_matches_no_known_type(self, sandbox: ProviderSandbox) -> None:
        output = run("payments_listen", "--once", "--events", "payments.*", "payout.*")
        assert "matches 'payments.*'" in output
        assert "payment.succeeded, " in output
        assert "'payout.*'" not in output

    def test_listen_prints_each_event_as_one_line_of_json(self, sandbox: ProviderSandbox) -> None:
        services.create_payment(
            amount=1000, currency="CLP", country="CL", method_code="cl_webpay_card", metadata={"a": "b\u2028ñ"}
        )
        missed_payment(sandbox)
        out, err = io.StringIO(), io.StringIO()
        with mock.patch("time.sleep", side_effect=KeyboardInterrupt):
            call_command("payments_listen", "--json", stdout=out, stderr=err)
        printed = [json.loads(line) for line in out.getvalue().split("\n")[:-1]]
        assert printed == sorted(sandbox.project.events, key=itemgetter("created_at"))
        assert "Listening" in err.getvalue()
        assert "Stopped." in err.getvalue()

    def test_what_is_not_json_is_not_printed_as_json(self, db: None) -> None:
        out, err = io.StringIO(), io.StringIO()
        found = Poll([rows.event(body=b"\xff"), rows.event(body=None)], timezone.now())
        with mock.patch("payments_integration.reconciliation.poll", return_value=found):
            call_command("payments_listen", "--once", "--json", stdout=out, stderr=err)
        assert out.getvalue() == ""
        assert err.getvalue().count("Not JSON") == 2

    def test_listen_ends_when_its_reader_has_gone(self, sandbox: ProviderSandbox) -> None:
        missed_payment(sandbox)
        reading, writing = os.pipe()
        os.close(reading)
        with open(writing, "w") as out:
            call_command("payments_listen", "--json", "--interval", "1000", stdout=out, stderr=io.StringIO())
            out.write("goes nowhere")
        assert Event.objects.count() == len(sandbox.project.events)
