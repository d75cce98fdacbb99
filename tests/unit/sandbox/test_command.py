"""``payments-sandbox`` and ``manage.py payments_sandbox``: their options, and each once as a process of its own."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import subprocess
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from django.core.management.base import CommandError

from payments_integration.management.commands.payments_sandbox import Command, _secret_of
from payments_integration.sandbox import SandboxServer
from payments_integration.sandbox.__main__ import main
from payments_integration.sandbox.command import CommandFailedError, add_options, funding, port, seconds, start
from payments_integration.sandbox.engine import DEFAULT_API_KEY, DEFAULT_FUNDS

ROOT = Path(__file__).resolve().parents[3]
MANAGE = """
import sys
import django
from django.conf import settings
settings.configure(SECRET_KEY="x", DATABASES={}, INSTALLED_APPS=[])
django.setup()
from payments_integration.management.commands.payments_sandbox import Command
Command().run_from_argv(["manage.py", "payments_sandbox", *sys.argv[1:]])
"""
PAYMENT = {"amount": 1250, "currency": "CLP", "country": "CL", "method_code": "cl_khipu"}
Process = Callable[..., "tuple[subprocess.Popen[str], str]"]
Start = Callable[..., "tuple[SandboxServer, str]"]


def headers(api_key: str = DEFAULT_API_KEY) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}", "Idempotency-Key": "once"}


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    processes: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> tuple[subprocess.Popen[str], str]:
        started = subprocess.Popen(
            [sys.executable, "-W", "error", *arguments, "--port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "no_such.settings"},
        )  # fmt: skip
        processes.append(started)
        assert started.stdout is not None
        shown = ""
        while "cl_khipu" not in shown:
            line = started.stdout.readline()
            assert line, shown
            shown += line
        return started, shown

    yield run
    for started in processes:
        if started.poll() is None:
            started.kill()
        started.wait()
        assert started.stdout is not None
        started.stdout.close()


def url_in(shown: str) -> str:
    """The printed address, as a line that can be pasted into a .env file."""
    match = re.search(r"^PAYMENTS_BASE_URL=(http://\S+)$", shown, re.MULTILINE)
    assert match is not None, shown
    return match[1]


def test_without_a_project_it_serves_pages_and_api_and_a_killed_one_goes_on(process: Process, tmp_path: Path) -> None:
    command = ("-m", "payments_integration.sandbox", "--state", str(tmp_path / "state.json"))
    first, shown = process(*command)
    url = url_in(shown)
    assert f"\nPAYMENTS_API_KEY={DEFAULT_API_KEY}\n" in shown
    assert f"curl {url}/v1/payments" in shown
    made = requests.post(f"{url}/v1/payments", json=PAYMENT, headers=headers(), timeout=30)
    assert made.status_code == 201
    for path, status in (("/", 200), (f"/checkout/{made.json()['id']}", 200), ("/openapi.json", 200), ("/no", 404)):
        assert requests.get(f"{url}{path}", timeout=30).status_code == status
    first.kill()
    first.wait()

    second, shown = process(*command)
    url = url_in(shown)
    again = requests.post(f"{url}/v1/payments", json=PAYMENT, headers=headers(), timeout=30)
    assert again.content == made.content
    found = requests.get(f"{url}/v1/payments/{made.json()['id']}", headers=headers(), timeout=30).json()
    assert found["status"] == "requires_action"
    second.send_signal(signal.SIGTERM)
    assert second.communicate(timeout=60)[0].endswith("Stopped.\n")
    assert second.returncode == 0


def test_the_management_command_serves_until_ctrl_c(process: Process) -> None:
    started, shown = process("-c", MANAGE, "--api-key", "sk_test_mine")
    assert requests.get(f"{url_in(shown)}/v1/balances", headers=headers("sk_test_mine"), timeout=30).ok
    started.send_signal(signal.SIGINT)
    assert started.communicate(timeout=60)[0].endswith("Stopped.\n")
    assert started.returncode == 0


# in this process


@pytest.fixture
def begin() -> Iterator[Start]:
    servers: list[SandboxServer] = []

    def run(*arguments: str) -> tuple[SandboxServer, str]:
        servers.append(start(options(*arguments), output := io.StringIO()))
        return servers[-1], output.getvalue()

    yield run
    for server in servers:
        server.stop()


def options(*arguments: str) -> Namespace:
    parser = ArgumentParser()
    add_options(parser)
    return parser.parse_args(["--port", "0", *arguments])


def available(server: SandboxServer) -> dict[str, int]:
    return {currency: item["available"] for currency, item in server.engine.balances.items() if item["available"]}


def test_the_options_reach_the_engine(begin: Start) -> None:
    server, shown = begin(
        "--api-key", "sk_test_mine", "--fund", "clp=5000", "--fund", "USD=7", "--auto-progress", "-1",
        "--webhook-url", "http://127.0.0.1:9/hook", "--webhook-secret", "whsec_mine", "--no-rate-limits",
        "--public-url", "http://sandbox.example",
    )  # fmt: skip
    assert url_in(shown) == server.url
    assert "\nPAYMENTS_API_KEY=sk_test_mine\n" in shown
    assert "whsec_mine" not in shown, "whoever gave a secret knows it"
    assert available(server) == {"CLP": 5_000, "USD": 7}
    (endpoint,) = server.engine.endpoints.values()
    assert endpoint["url"] == "http://127.0.0.1:9/hook"
    assert server.engine.auto_progress is None
    assert not server.engine.limiter.limits.enforced
    assert server.engine.page_url("x") == "http://sandbox.example/checkout/x"


def test_it_starts_with_money_in_every_currency(begin: Start) -> None:
    server, shown = begin()
    assert available(server) == DEFAULT_FUNDS
    assert "Everything is in memory" in shown
    assert "WEBHOOK_SECRETS" not in shown


def test_a_restart_with_the_same_options_keeps_the_endpoint_the_money_and_the_key(
    begin: Start, tmp_path: Path
) -> None:
    mine = ("--state", str(tmp_path / "s.json"), "--webhook-url", "http://127.0.0.1:9/hook", "--fund", "CLP=5000")
    first, shown = begin("--api-key", "sk_test_mine", *mine)
    assert f"keeps everything in {tmp_path / 's.json'}" in shown
    first.engine.fund("PEN", 3)
    first.engine.checkpoint(True)
    first.stop()
    (secret,) = re.findall("WEBHOOK_SECRETS=(.*)", shown)
    second, shown = begin(*mine)
    assert f"WEBHOOK_SECRETS={secret}\n" in shown
    assert "PAYMENTS_API_KEY=sk_test_mine\n" in shown
    assert available(second) == {"CLP": 5_000, "PEN": 3}
    assert len(second.engine.endpoints) == 1
    second.stop()
    third, shown = begin(*mine, "--webhook-secret", "whsec_chosen")
    assert "WEBHOOK_SECRETS" not in shown
    (endpoint,) = third.engine.default_project.state.endpoints.by_id.values()
    assert endpoint.secret == "whsec_chosen"
    assert len(third.engine.endpoints) == 1
    with pytest.raises(CommandFailedError, match="is sk_test_mine: leave out --api-key"):
        begin(*mine, "--api-key", "sk_test_other")


def test_a_state_that_cannot_be_written_or_read_stops_the_start(begin: Start, tmp_path: Path) -> None:
    with pytest.raises(CommandFailedError, match=r"cannot write .*no/such/folder"):
        begin("--state", str(tmp_path / "no" / "such" / "folder"))
    (foreign := tmp_path / "foreign").write_text("[]")
    with pytest.raises(CommandFailedError, match="is not the state of a sandbox"):
        begin("--state", str(foreign))


def test_a_used_port_is_an_error_that_leaves_the_state_alone(
    begin: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        arguments = ["--port", str(taken.getsockname()[1]), "--state", str(tmp_path / "s.json")]
        assert main(arguments) == 1
        with pytest.raises(CommandError, match="cannot listen"):
            Command().handle(**vars(options(*arguments)))
    error = capsys.readouterr().err
    assert error.startswith(f"payments-sandbox: cannot listen on 127.0.0.1:{arguments[1]}: ")
    assert "--port" in error
    assert list(tmp_path.iterdir()) == []


def test_a_reader_may_close_the_pipe_after_the_first_lines() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as output:
        server = start(options(), output)
        server.stop()
        output.write("more")  # goes nowhere


@pytest.mark.parametrize("arguments", [["--webhook-secret", "x"], ["--fund", "EUR=5"]])
def test_options_that_do_not_fit_are_refused(arguments: list[str], begin: Start) -> None:
    with pytest.raises(CommandFailedError):
        begin(*arguments)


@pytest.mark.parametrize(
    ("read", "good", "bad"),
    [
        (port, {"0": 0, "65535": 65_535}, ["-1", "65536", "x", "٣", ""]),
        (seconds, {"0.5": 0.5, "-1": -1.0}, ["nan", "inf", "x"]),
        (funding, {"clp=100": ("CLP", 100)}, ["CLP", "CLP=", "CLP=1.5", "CLP=-1"]),
    ],
)
def test_each_value_is_read_or_refused(read: Callable[[str], Any], good: dict[str, Any], bad: list[str]) -> None:
    assert {text: read(text) for text in good} == good
    for text in bad:
        with pytest.raises(ArgumentTypeError, match="give"):
            read(text)


def test_the_management_command_needs_no_checks_and_no_migrations() -> None:
    assert Command.requires_system_checks == []
    assert Command.requires_migrations_checks is False


def test_the_console_script_is_the_module() -> None:
    scripts = (ROOT / "pyproject.toml").read_text().partition("[project.scripts]\n")[2].partition("\n\n")[0]
    assert scripts == f'payments-sandbox = "{main.__module__}:{main.__name__}"'


def test_deliveries_are_signed_with_the_secret_of_the_project_s_account(settings: Any) -> None:
    account = {"BASE_URL": "http://127.0.0.1:8400", "API_KEY": DEFAULT_API_KEY}
    for secrets, chosen in ((["whsec_one", "whsec_two"], "whsec_one"), ([], None)):
        settings.PAYMENTS_INTEGRATION = {"ACCOUNTS": {"default": {**account, "WEBHOOK_SECRETS": secrets}}}
        assert _secret_of(DEFAULT_API_KEY) == chosen
        assert _secret_of("sk_test_other") is None
    settings.PAYMENTS_INTEGRATION = {"ACCOUNTS": []}
    assert _secret_of(DEFAULT_API_KEY) is None, "settings that are wrong keep nobody from a sandbox"
