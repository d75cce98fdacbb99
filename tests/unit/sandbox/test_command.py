"""``payments-sandbox`` and ``manage.py payments_sandbox``: their options, and each once as a process of its own."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from django.core.management import call_command
from django.core.management.base import CommandError
from django.core.management.color import no_style

import payments_integration
from payments_integration.management.commands import payments_sandbox
from payments_integration.management.commands.payments_sandbox import Command
from payments_integration.sandbox import SandboxServer, live_log
from payments_integration.sandbox.__main__ import main
from payments_integration.sandbox.command import (
    OTHER_PORTS,
    CommandFailedError,
    add_options,
    funding,
    port,
    seconds,
    start,
)
from payments_integration.sandbox.engine import DEFAULT_API_KEY, DEFAULT_FUNDS
from payments_integration.sandbox.live_log import LiveLog

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
    assert "Everything is in memory (--state FILE keeps it)" in shown
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


def test_a_busy_port_makes_it_the_next_free_one_and_says_what_to_change(begin: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server, shown = begin("--port", str(port))
    chosen = int(server.url.rpartition(":")[2])
    assert port < chosen <= port + OTHER_PORTS
    assert f"Port {port} is in use, so it listens on {chosen}. Put the first line into your .env:" in shown
    assert url_in(shown) == server.url


def test_with_links_that_contain_it_a_busy_port_is_an_error(begin: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words in (("--state", str(tmp_path / "s.json")), ("--public-url", f"http://localhost:{port}")):
            with pytest.raises(CommandFailedError, match=f"cannot listen on 127.0.0.1:{port}"):
                begin("--port", str(port), *words)
    assert list(tmp_path.iterdir()) == []


def test_an_address_that_is_not_ours_is_an_error_that_leaves_the_state_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--host", "192.0.2.1", "--port", "8400", "--state", str(tmp_path / "s.json")]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("payments-sandbox: cannot listen on 192.0.2.1:8400: ")
    assert "--port" in error
    with pytest.raises(CommandError, match="cannot listen"):
        Command().handle(**vars(options(*arguments)))
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


def test_deliveries_are_signed_with_the_secret_of_the_project_s_account(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed: list[str | None] = []
    monkeypatch.setattr(
        payments_sandbox, "serve", lambda options, output, style: signed.append(options.webhook_secret)
    )
    account = {"BASE_URL": "http://127.0.0.1:8400", "API_KEY": DEFAULT_API_KEY}
    two = {**account, "WEBHOOK_SECRETS": ["whsec_one", "whsec_two"]}
    # A sandbox starts even if the settings are wrong.
    for accounts, words in (
        ({"default": two}, []),
        ({"default": two}, ["--api-key", "sk_test_other"]),
        ({"default": two}, ["--webhook-secret", "whsec_three"]),
        ({"default": account}, []),
        ([], []),
    ):
        settings.PAYMENTS_INTEGRATION = {"ACCOUNTS": accounts}
        call_command("payments_sandbox", "--webhook-url", "http://127.0.0.1:8000/payments/webhook/", *words)
    assert signed == ["whsec_one", None, "whsec_three", None, None]


def test_it_listens_where_the_project_looks_for_it(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(payments_sandbox, "serve", lambda options, output, style: asked.append(options.port))
    account = {"BASE_URL": "http://localhost:8411", "API_KEY": DEFAULT_API_KEY}
    for changed, words in (
        ({}, []),
        ({}, ["--port", "8412"]),
        ({"API_KEY": "sk_live_1"}, []),
        ({"BASE_URL": "https://provider.example:444"}, []),
    ):
        settings.PAYMENTS_INTEGRATION = {"ACCOUNTS": {"default": {**account, **changed}}}
        call_command("payments_sandbox", *words)
    assert asked == [8411, 8412, 8400, 8400]


# the live log


def lines_until(process: subprocess.Popen[str], text: str) -> list[str]:
    """What it prints up to the line with this text. Without it, the process is killed after a minute."""
    assert process.stdout is not None
    lines: list[str] = []
    killer = threading.Timer(60, process.kill)
    killer.start()
    try:
        while not lines or text not in lines[-1]:
            line = process.stdout.readline()
            assert line, lines
            lines.append(line)
    finally:
        killer.cancel()
    return lines


def test_each_request_and_each_delivery_is_a_line(process: Process) -> None:
    with socket.create_server(("127.0.0.1", 0)) as receiver:
        hook = f"http://127.0.0.1:{receiver.getsockname()[1]}/hook"
    started, shown = process(
        "-m", "payments_integration.sandbox", "--webhook-url", hook, "--force-color", "--auto-progress", "-1"
    )
    url = url_in(shown)
    made = requests.post(f"{url}/v1/payments", json=PAYMENT, headers=headers(), timeout=30).json()
    requests.post(f"{url}/v1/payments", json=PAYMENT, headers=headers(), timeout=30)
    lines = lines_until(started, "payment.created")
    requests.get(f"{url}/v1/payments/pay_%1b[2J", headers=headers(), timeout=30)
    lines += lines_until(started, "resource_not_found")
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in lines]
    first = next(line for line in plain if line.endswith("POST /v1/payments  201"))
    assert re.match(r"\d\d:\d\d:\d\d  POST", first)
    assert any(line.endswith("POST /v1/payments  201 (the stored answer of its key)") for line in plain)
    assert any(re.search(rf"payment\.created evt_\w+ to {hook}  no answer: ConnectionError$", line) for line in plain)
    assert plain[-1].endswith("GET /v1/payments/pay_?[2J  404 resource_not_found")
    assert "\x1b[2J" not in "".join(lines)
    colours = {line[: line.index("m") + 1] for line in lines if line.startswith("\x1b")}
    assert len(colours) == 3, "success, refusal and failure differ"
    assert made["id"] not in "".join(plain), "the bodies are on the page"


def test_a_terminal_that_lacks_a_character_loses_no_line(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    started, shown = process("-m", "payments_integration.sandbox")
    for number in (1, 2):
        requests.get(f"{url_in(shown)}/v1/payments/\u4e2d{number}", headers=headers(), timeout=30)
    started.send_signal(signal.SIGTERM)
    rest = started.communicate(timeout=60)[0]
    assert r"GET /v1/payments/\u4e2d1  404" in rest
    assert r"GET /v1/payments/\u4e2d2  404" in rest
    assert rest.endswith("Stopped.\n")


def test_quiet_and_without_colours(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    for words in (["-q", "--force-color"], []):
        started, shown = process("-m", "payments_integration.sandbox", *words)
        requests.get(f"{url_in(shown)}/v1/balances", headers=headers(), timeout=30)
        started.send_signal(signal.SIGTERM)
        rest = started.communicate(timeout=60)[0]
        assert ("GET /v1/balances  200" in rest) is not bool(words)
        assert "\x1b" not in rest
        assert rest.endswith("Stopped.\n")


def test_a_reader_that_does_not_read_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_log, "CAPACITY", 3)
    monkeypatch.setattr(live_log, "STOP_SECONDS", 0.1)
    waits, reads = threading.Event(), threading.Event()
    printed: list[str] = []

    def write(text: str) -> None:
        waits.set()
        reads.wait(60)
        printed.append(text)

    log = LiveLog(write, no_style())
    entry = {
        "at": "2026-01-31T12:00:00Z",
        "method": "GET",
        "path": "/",
        "error": None,
        "replayed": False,
        "fault": None,
    }
    log.request({**entry, "status": 200})
    waits.wait(60)
    for status in range(201, 210):
        log.request({**entry, "status": status})
    log.stop("never printed")
    monkeypatch.setattr(live_log, "STOP_SECONDS", 60)
    reads.set()
    log.stop("Stopped.\n")
    shown = "".join(printed)
    lines = [f"12:00:00  GET /  {status}" for status in (200, 201, 202, 203)]
    assert shown.splitlines() == [*lines, "(6 lines are left out.)", "Stopped."]


def test_a_line_says_what_a_delivery_came_to() -> None:
    printed: list[str] = []
    log = LiveLog(printed.append, no_style())
    entry = {
        "at": "2026-01-31T12:00:00Z", "event_type": "payment.succeeded", "event_id": "evt_1", "url": "http://x/",
        "attempt": 1, "status": 200, "error": None, "acknowledged": True, "fault": None,
    }  # fmt: skip
    log.delivery(entry)
    log.delivery({**entry, "status": 500, "acknowledged": False, "attempt": 3})
    log.delivery({**entry, "status": None, "fault": "drop"})
    log.request(
        {
            "at": entry["at"],
            "method": "GET",
            "path": "/v1/x",
            "status": None,
            "error": None,
            "replayed": False,
            "fault": "reset",
        }
    )
    log.stop("")
    assert [line.rstrip("\n") for line in printed if line] == [
        "12:00:00  payment.succeeded evt_1 to http://x/  200",
        "12:00:00  payment.succeeded evt_1 to http://x/  500 (attempt 3)",
        "12:00:00  payment.succeeded evt_1 to http://x/  not sent [fault: drop]",
        "12:00:00  GET /v1/x  no answer [fault: reset]",
    ]


# the other words of payments-sandbox


def test_it_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"payments-sandbox {payments_integration.__version__}\n"


def test_it_triggers_an_event_of_a_sandbox_that_runs(begin: Start, capsys: pytest.CaptureFixture[str]) -> None:
    server, _ = begin()
    engine = server.engine
    assert main(["trigger", "payment.overpaid", "--set", "amount=11980", "--url", f"{server.url}/"]) == 0
    shown, warned = capsys.readouterr()
    (payment,) = engine.payments.values()
    assert (payment["status"], payment["amount"]) == ("overpaid", 11_980)
    assert shown.splitlines() == [
        f"{payment['id']}  overpaid",
        *(f"{event['type']:<24} {event['data'].get('id', 'CLP')}  {event['id']}" for event in engine.events),
    ]
    assert warned == "No webhook endpoint of the sandbox takes this event.\n"
    engine.add_endpoint("http://127.0.0.1:9/hook")
    two = engine.add_project("sk_test_two")
    two.add_endpoint("http://127.0.0.1:9/hook")
    assert main(["trigger", "payment.created", "--url", server.url, "--api-key", "sk_test_two"]) == 0
    assert len(two.payments) == 1
    assert main(["trigger", "balance.updated", "--url", server.url]) == 0
    shown, warned = capsys.readouterr()
    assert "\nbalance  CLP\n" in shown
    assert warned == ""


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["payment.created", "--set", "colour=red"], 1, "colour: This parameter is not known. (parameter_invalid)"),
        (["payment.suceeded"], 1, "event: There is no event type 'payment.suceeded'. Did you mean payment.succeeded?"),
        (["payment.failed", "--object", "pay_none"], 1, "there is no 'pay_none'"),
        (["payment.created", "--set", "amount"], 2, "--set: Write key=value, such as amount=11980"),
        (["payment.created", "--set", "a=1", "--set", "a.b=1"], 2, "--set a.b: An earlier value leaves no room"),
        (["payment.created", "--api-key", "sk_none"], 1, "project: No project of this sandbox has this API key."),
        (["payment.created", "--url", "https://provider.example"], 2, "--url is https://provider.example, not"),
        (["payment.created", "--url", "127.0.0.1:8400"], 2, "--url is 127.0.0.1:8400, not a sandbox on this machine"),
        (["payment.created", "--url", "http://127.0.0.1@evil.example"], 2, "not a sandbox on this machine"),
        (["payment.created", "--url", "{url}/elsewhere"], 1, "is not a sandbox of this version: it answers 404."),
    ],
)  # fmt: skip
def test_a_refused_trigger_says_why(
    begin: Start, capsys: pytest.CaptureFixture[str], words: list[str], code: int, text: str
) -> None:
    server, _ = begin()
    words = [word.replace("{url}", server.url) for word in words]
    assert main(["trigger", *words, *([] if "--url" in words else ["--url", server.url])]) == code
    shown, problem = capsys.readouterr()
    assert (shown, problem.startswith("payments-sandbox: ")) == ("", True)
    assert text in problem
    assert server.engine.payments == {}
    server.stop()
    if code == 1:
        assert main(["trigger", "payment.created", "--url", "http://127.0.0.1:9"]) == 4
        assert "The sandbox at http://127.0.0.1:9 does not answer. Start it" in capsys.readouterr().err


def test_neither_drf_nor_celery_is_imported() -> None:
    program = """
import sys, threading
import requests
from payments_integration.sandbox import command
from payments_integration.sandbox.__main__ import main

class Stopped(threading.Event):
    def wait(self, timeout=None):
        server = servers[0]
        for path in ("/", "/live.js", "/openapi.json", "/v1/balances", "/_sandbox/books"):
            headers = {"Authorization": "Bearer sk_test_sandbox"}
            assert requests.get(server.url + path, headers=headers, timeout=30).status_code == 200, path
        assert main(["trigger", "payment.succeeded", "--url", server.url]) == 0
        return True

class Threading:
    Event = Stopped

servers, start = [], command.start
command.threading = Threading
command.start = lambda *args: servers.append(start(*args)) or servers[0]
assert main(["--port", "0", "-q"]) == 0
print("modules:", *sorted(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], check=False, capture_output=True, text=True, timeout=120,
        cwd=ROOT, env={**os.environ, "DJANGO_SETTINGS_MODULE": "no_such.settings"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    modules = set(done.stdout.partition("modules: ")[2].split())
    assert {"django", "requests", "payments_integration.sandbox"} <= modules
    heavy = {"rest_framework", "celery", "kombu", "msgspec", "cryptography", "babel", "drf_spectacular"}
    assert heavy & modules == set()
    own = {name for name in modules if name.startswith("payments_integration.")}
    assert [name for name in sorted(own) if not name.startswith("payments_integration.sandbox")] == []


def test_a_reset_brings_the_endpoint_of_the_options_back(begin: Start) -> None:
    server, shown = begin("--webhook-url", "http://127.0.0.1:9/hook")
    (secret,) = re.findall("WEBHOOK_SECRETS=(.*)", shown)
    assert requests.delete(f"{server.url}/_sandbox/projects", timeout=30).status_code == 200
    (endpoint,) = server.engine.default_project.state.endpoints.by_id.values()
    assert (endpoint.url, endpoint.secret) == ("http://127.0.0.1:9/hook", secret)
    assert available(server) == DEFAULT_FUNDS
