"""The files of ``docs/deployment.md``: each parses, and names commands, options, units and services that exist."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from celery.bin.beat import beat
from celery.bin.worker import worker
from django.core.management import get_commands, load_command_class

from payments_integration import conf
from payments_integration.schedule import BEAT_SCHEDULE

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "deployment.md").read_text()
#: Each file of the page: its path, which its first line names, and its text.
FILES: dict[str, str] = dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
UNITS = {Path(path).name: text for path, text in FILES.items() if path.startswith("/etc/systemd/")}
COMPOSE = yaml.safe_load(FILES["compose.yaml"])
WITHOUT_CELERY = yaml.safe_load(FILES["compose.worker.yaml"])["services"]["worker"]
GUNICORN = ["yourproject.wsgi", "--workers", "2", "--worker-class", "gthread", "--threads", "4"]


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string(UNITS[name])
    return parser


def command_lines() -> list[list[str]]:
    """Every command of the page, without the folder of its program."""
    lines = [unit(name)["Service"]["ExecStart"] for name in UNITS if name.endswith(".service")]
    services = [*COMPOSE["services"].values(), WITHOUT_CELERY]
    lines += [service["command"] for service in services if "command" in service]
    lines += re.findall(r"^(?:\$|\*/10 \* \* \* \*) +(.*?)(?: +#.*)?$", PAGE, re.MULTILINE)
    split = [part for line in lines for part in re.split(r" && | \|\| ", re.sub(r'sh -c "(.*)"', r"\1", line))]
    words = [shlex.split(part) for part in split]
    exec_line = re.search(r"^CMD (.*)$", FILES["Dockerfile"], re.MULTILINE)
    assert exec_line is not None
    words.append(json.loads(exec_line[1]))
    return [[Path(first).name, *rest] for first, *rest in words]


def test_the_page_has_the_files_that_it_speaks_of() -> None:
    assert set(UNITS) == {
        "shop-web.service",
        "shop-worker.service",
        "shop-beat.service",
        "shop-payments-worker.service",
        "shop-payments.service",
        "shop-payments.timer",
    }
    assert {"/etc/shop.env", "yourproject/settings.py", "Dockerfile", "compose.yaml", "compose.worker.yaml"} <= set(
        FILES
    )


def test_every_management_command_exists_with_its_options() -> None:
    seen = set()
    for words in command_lines():
        if "manage.py" not in words:
            continue
        name, *arguments = words[words.index("manage.py") + 1 :]
        arguments = arguments[: arguments.index(">")] if ">" in arguments else arguments
        load_command_class(get_commands()[name], name).create_parser("manage.py", name).parse_args(arguments)
        seen.add(name)
    assert seen == {
        "migrate", "collectstatic", "payments_process", "payments_worker", "payments_endpoints", "payments_health"
    }  # fmt: skip


def test_celery_runs_the_project_with_options_that_exist() -> None:
    seen = []
    for program, *words in command_lines():
        if program != "celery":
            continue
        assert words[:2] == ["-A", "yourproject"]
        command = {"worker": worker, "beat": beat}[words[2]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words[3:] if word.startswith("--")} <= known
        seen.append(words[2])
    assert sorted(seen) == ["beat", "beat", "worker", "worker"]


def test_gunicorn_runs_as_in_the_tests_of_a_deployment() -> None:
    lines = [words for program, *words in command_lines() if program == "gunicorn"]
    assert len(lines) == 2
    for words in lines:
        at = words.index("--bind")
        assert words[at + 1].endswith(":8000")
        assert words[:at] + words[at + 2 :] == GUNICORN


@pytest.mark.parametrize("name", sorted(UNITS))
def test_a_unit_is_complete(name: str) -> None:
    sections = unit(name)
    if name.endswith(".timer"):
        assert name.replace(".timer", ".service") in UNITS
        assert sections["Install"]["WantedBy"] == "timers.target"
        return
    service = sections["Service"]
    assert service["EnvironmentFile"] in FILES
    assert service["User"] == "shop"
    assert service["ExecStart"].startswith("/srv/shop/venv/bin/")
    assert ("Install" in sections) == (service.get("Type") != "oneshot")
    assert (service.get("Restart") == "always") == (service.get("Type") != "oneshot")


def test_systemctl_names_units_of_the_page() -> None:
    named = [word for words in command_lines() if words[:2] == ["systemctl", "enable"] for word in words[3:]]
    assert {name if "." in name else f"{name}.service" for name in named} == set(UNITS) - {"shop-payments.service"}


def test_the_settings_read_the_environment_of_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for line in FILES["/etc/shop.env"].splitlines():
        name, _, value = line.partition("=")
        monkeypatch.setenv(name, value.replace("…", "x" * 40))
    found: dict[str, Any] = {}
    exec(FILES["yourproject/settings.py"], found)
    assert not list(conf.problems(found["PAYMENTS_INTEGRATION"]))
    assert found["PAYMENTS_INTEGRATION"]["PROCESSING"] == "celery"
    assert found["PAYMENTS_INTEGRATION"]["ENCRYPTION_KEYS"]
    assert found["DATABASES"]["default"]["ENGINE"] == "django.db.backends.postgresql"
    assert found["CELERY_BROKER_URL"].startswith("redis://")
    assert found["CELERY_BEAT_SCHEDULE"] == BEAT_SCHEDULE
    assert found["SECURE_PROXY_SSL_HEADER"]


def test_compose_has_every_process_and_waits_for_the_migration() -> None:
    services = COMPOSE["services"]
    assert set(services) == {"release", "web", "worker", "beat", "postgres", "redis"}
    for name in ("web", "worker", "beat"):
        assert services[name]["depends_on"]["release"] == {"condition": "service_completed_successfully"}
        assert set(services[name]["depends_on"]) <= set(services)
        assert services[name]["env_file"] == ".env"
    set_by_compose = set(services["web"]["environment"])
    set_by_file = {line.partition("=")[0] for line in FILES["/etc/shop.env"].splitlines()}
    assert set_by_compose == {"DATABASE_URL", "CELERY_BROKER_URL"} <= set_by_file
    for dependency in ("postgres", "redis"):
        assert "healthcheck" in services[dependency]
    assert set(COMPOSE["volumes"]) == {services["postgres"]["volumes"][0].partition(":")[0]}


def test_the_worker_without_celery_replaces_the_one_with_it(tmp_path: Path) -> None:
    worker = COMPOSE["services"]["worker"]
    of_celery = {"CELERY_BROKER_URL"}
    assert set(WITHOUT_CELERY["environment"]) == set(worker["environment"]) - of_celery
    for name in WITHOUT_CELERY["environment"]:
        assert WITHOUT_CELERY["environment"][name] == worker["environment"][name]
    assert {**worker, **WITHOUT_CELERY}.keys() == WITHOUT_CELERY.keys(), "each key is set anew"
    # The check of its health: a heartbeat that was touched within five minutes.
    kind, check = WITHOUT_CELERY["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    heartbeat = tmp_path / "alive"
    assert "--heartbeat /tmp/alive" in WITHOUT_CELERY["command"]
    script = check.replace("/tmp/alive", str(heartbeat))
    assert subprocess.run(["sh", "-c", script], check=False, capture_output=True).returncode == 1
    heartbeat.touch()
    assert subprocess.run(["sh", "-c", script], check=False).returncode == 0
    os.utime(heartbeat, (0, 0))
    assert subprocess.run(["sh", "-c", script], check=False).returncode == 1


def test_nginx_lets_a_delivery_through_as_it_is() -> None:
    text = next(text for path, text in FILES.items() if path.startswith("/etc/nginx/"))
    assert text.count("{") == text.count("}")
    webhook = re.search(r"location /payments/webhook \{(.*?)\}", text, re.DOTALL)
    assert webhook is not None
    assert "client_max_body_size 1m;" in webhook[1]
    assert conf.Settings().MAX_WEBHOOK_BYTES == 2**20
    assert "proxy_request_buffering on;" in webhook[1]
    assert "proxy_set_header" not in webhook[1], "one here would replace all those of the server"
    assert "proxy_set_header X-Forwarded-Proto $scheme;" in text
