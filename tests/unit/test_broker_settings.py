"""The example project uses the settings that the guide recommends for each broker, so broker tests cover them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "install.md"
FOR_ALL = {
    "CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP": True,
    "CELERY_BROKER_CONNECTION_MAX_RETRIES": None,
    "CELERY_WORKER_PREFETCH_MULTIPLIER": 1,
}


def recommended(broker: str) -> dict[str, Any]:
    """The settings in the guide's code block after the broker's name."""
    _, _, rest = GUIDE.read_text().partition(f"for {broker}\n")
    match = re.search(r"```python\n(.*?)```", rest, re.DOTALL)
    assert match is not None
    settings: dict[str, Any] = {}
    exec(match.group(1), {}, settings)
    return settings


def of_the_example(url: str) -> dict[str, Any]:
    code = (
        "import json; from example_project import settings;"
        "ours = {name: value for name, value in vars(settings).items() if name.startswith('CELERY_')};"
        "print(json.dumps(ours))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "BROKER_URL": url, "DJANGO_SETTINGS_MODULE": "example_project.settings"},
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("broker", "url", "names"),
    [
        ("Redis", "redis://127.0.0.1:1/0", {"CELERY_BROKER_TRANSPORT_OPTIONS"}),
        ("RabbitMQ", "amqp://127.0.0.1:1//", {"CELERY_BROKER_TRANSPORT_OPTIONS", "CELERY_BROKER_HEARTBEAT"}),
    ],
)
def test_the_example_uses_the_broker_settings_of_the_guide(broker: str, url: str, names: set[str]) -> None:
    wanted, example = recommended(broker), of_the_example(url)
    assert set(wanted) == names
    assert {name: example[name] for name in names} == wanted
    assert {name: example[name] for name in FOR_ALL} == FOR_ALL
    for name, value in FOR_ALL.items():
        assert f"{name} = {value}" in GUIDE.read_text()
