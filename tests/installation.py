"""``python -m tests.installation PYTHON``: what works in an environment with the package and one extra, or none.

``PYTHON`` is the interpreter of an environment in which only ``pip install payments-integration`` was run, or
``payments-integration[EXTRA]`` with ``--extra EXTRA``. Fails if the package is not installed whole, if the webhook or
the checkout do not answer, if anything that needs an extra works without it or does not work with it, or if
``payments-sandbox`` does not serve. A bare install also fails if it has too many packages or takes too much of the
disk.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MAX_PACKAGES = 33
MAX_MEGABYTES = 145

#: What each extra brings, as TRY reports it.
BRINGS = {
    "none": set(),
    "api": {"api"},
    "checkout": {"codes"},
    "xlsx": {"xlsx"},
    "redis": {"redis"},
    "beat": {"beat"},
    "postgres": {"postgres"},
    "mysql": {"mysql"},
    "gunicorn": {"gunicorn"},
    "sentry": {"sentry"},
    "health-check": {"health-check"},
    "opentelemetry": {"opentelemetry"},
    "prometheus": {"prometheus"},
    "all": {
        "api",
        "codes",
        "xlsx",
        "redis",
        "postgres",
        "gunicorn",
        "sentry",
        "health-check",
        "opentelemetry",
        "prometheus",
    },
}

MEASURE = """
import importlib.metadata, json, os, sysconfig

TOOLS = {"pip", "setuptools", "wheel"}
packages = sorted({found.metadata["Name"] for found in importlib.metadata.distributions()} - TOOLS)
tools = tuple(f"{tool}{end}" for tool in TOOLS for end in ("", "-")) + ("pkg_resources", "_distutils_hack")
taken = 0
for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
    for folder, _, names in os.walk(place):
        top = os.path.relpath(folder, place).split(os.sep)[0]
        if top in tools or top.startswith(tuple(f"{tool}-" for tool in TOOLS)):
            continue
        # Without the folders themselves: their size depends on the file system.
        taken += sum(os.lstat(os.path.join(folder, name)).st_blocks * 512 for name in names)
print(json.dumps({"packages": packages, "megabytes": taken / 2**20}))
"""

TRY = """
import importlib.util, json, sysconfig
from pathlib import Path
import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

installed = {
    name for name, module in {
        "redis": "redis", "postgres": "psycopg", "mysql": "MySQLdb", "gunicorn": "gunicorn.app.wsgiapp",
        "sentry": "sentry_sdk", "prometheus": "prometheus_client",
        "api": "drf_spectacular", "xlsx": "xlsxwriter",
        "beat": "django_celery_beat",
    }.items() if importlib.util.find_spec(module.partition(".")[0]) and importlib.import_module(module)
}
apps = ["drf_spectacular"] if "api" in installed else []
settings.configure(
    SECRET_KEY="a-key-for-this-try-only",
    ALLOWED_HOSTS=["testserver"],
    INSTALLED_APPS=[
        "django.contrib.contenttypes", "django.contrib.auth", "rest_framework", "payments_integration", *apps,
    ],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": ":memory:",
            "OPTIONS": {"transaction_mode": "IMMEDIATE"},
        }
    },
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
    PAYMENTS_INTEGRATION={
        "ACCOUNTS": {
            "default": {
                "BASE_URL": "https://provider.example", "API_KEY": "sk_test_x", "WEBHOOK_SECRETS": ["whsec_try"],
            }
        }
    },
)
django.setup()
from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.test import Client
from django.urls import include, path

class Urls:
    urlpatterns = [path("", include("payments_integration.urls"))]

settings.ROOT_URLCONF = Urls

call_command("migrate", verbosity=0)
call_command("check", fail_level="WARNING")
call_command("makemigrations", check=True, dry_run=True, verbosity=0)

import payments_integration
from payments_integration import handlers, services, signals, signatures, tasks, testing
from payments_integration.models import MIRRORS, Event, Operation, Payment
from payments_integration.sandbox import Engine
from payments_integration.schedule import BEAT_SCHEDULE
from payments_integration.next_action.codes import barcode, qr_code

if qr_code("a payment") and barcode("12345"):
    installed.add("codes")
if "sentry" in installed:
    from payments_integration.contrib.sentry import before_send
    assert before_send({"message": "m"}, {}) is not None
# Each names its extra if that is missing.
for extra, use in {
    "health-check": lambda: importlib.import_module("payments_integration.contrib.health_check"),
    "opentelemetry": lambda: AppConfig.create("payments_integration.contrib.opentelemetry").ready(),
}.items():
    try:
        use()
        installed.add(extra)
    except ImproperlyConfigured as error:
        assert f"payments-integration[{extra}]" in str(error), error
try:
    from payments_integration.contrib.prometheus import exposition
except ImproperlyConfigured as error:
    assert "prometheus" not in installed and "payments-integration[prometheus]" in str(error), error
else:
    assert "prometheus" in installed and b"payments_up 1.0" in exposition()[0]

package = Path(payments_integration.__file__).parent
assert package.is_relative_to(sysconfig.get_path("purelib")), package
assert (package / "py.typed").exists()
assert not Event.objects.exists() and not Operation.objects.exists() and MIRRORS and BEAT_SCHEDULE
Engine()

payment = {
    "id": "pay_1", "object": "payment", "status": "succeeded", "amount": 1000, "amount_received": 1000,
    "currency": "CLP", "country": "CL", "method_code": "cl_webpay", "method_family": "card",
    "created_at": "2026-01-01T00:00:00Z",
}
event = {
    "id": "evt_1", "object": "event", "type": "payment.succeeded", "created_at": "2026-01-01T00:00:01Z",
    "data": payment,
}
client = Client(raise_request_exception=False)
body = json.dumps(event).encode()
accepted = client.post("/webhook/", **testing.signed_delivery(body, "whsec_try"))
refused = client.post("/webhook/", body, content_type="application/json")
api = {path: client.get(path) for path in ("/api/payments/", "/api/schema/")}
print(json.dumps({
    "version": f"{payments_integration.__version__} on Django {django.__version__}",
    "webhook": accepted.status_code,
    "webhook without signature": refused.status_code,
    "mirrored": list(Payment.objects.values_list("pk", "status")),
    "events": list(Event.objects.values_list("pk", "state")),
    "checkout": client.get("/checkout/return/no-such-token/").status_code,
    "installed": sorted(installed),
    "api": {path: [answer.status_code, answer.content.decode()] for path, answer in api.items()},
}))
"""

SERVE = """
import json, subprocess, sysconfig, urllib.request
from pathlib import Path

script = Path(sysconfig.get_path("scripts"), "payments-sandbox")
with subprocess.Popen([script, "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
    try:
        shown = {}
        while "PAYMENTS_API_KEY" not in shown:
            line = process.stdout.readline()
            assert line, "payments-sandbox ended before it printed its API key"
            name, _, shown[name] = line.strip().partition("=")
        key = {"Authorization": "Bearer " + shown["PAYMENTS_API_KEY"]}
        request = urllib.request.Request(shown["PAYMENTS_BASE_URL"] + "/v1/payments", headers=key)
        with urllib.request.urlopen(request, timeout=30) as answer:
            listed = json.load(answer)["data"]
    finally:
        process.terminate()
print(json.dumps({"payments": listed, "exit code": process.returncode}))
"""


def run(python: str, code: str) -> dict[str, Any]:
    # Away from the clone: the installed package is the one that is tried.
    with tempfile.TemporaryDirectory() as elsewhere:
        (script := Path(elsewhere) / "script.py").write_text(code)
        command = [python, "-W", "error", str(script)]
        ended = subprocess.run(command, cwd=elsewhere, stdout=subprocess.PIPE, text=True, check=False, timeout=120)
    if ended.returncode:
        raise SystemExit("The installation does not work; see above.")
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def too_large(measured: dict[str, Any]) -> list[str]:
    found = []
    if len(measured["packages"]) > MAX_PACKAGES:
        found.append(f"more than {MAX_PACKAGES} packages: {', '.join(measured['packages'])}")
    if measured["megabytes"] > MAX_MEGABYTES:
        found.append(f"more than {MAX_MEGABYTES} MB")
    return found


def problems(tried: dict[str, Any], brings: set[str]) -> list[str]:
    expected = {
        "webhook": 200,
        "webhook without signature": 400,
        "mirrored": [["pay_1", "succeeded"]],
        "events": [["evt_1", "done"]],
        "checkout": 404,
        "installed": sorted(brings),
    }
    found = [f"{name}: {tried[name]}, not {value}" for name, value in expected.items() if tried[name] != value]
    for path, (status, text) in tried["api"].items():
        if "api" in brings:
            if status != 401:  # nobody is logged in
                found.append(f"{path} answers {status} and not 401: {text[:200]}")
        elif status != 501 or "payments-integration[api]" not in text:
            found.append(f"{path} answers {status} and not 501 with the name of the extra: {text[:200]}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", help="the interpreter of the environment")
    parser.add_argument("--extra", choices=BRINGS, default="none", help="the extra that is installed with the package")
    options = parser.parse_args()
    python = str(Path(options.python).absolute())
    measured = run(python, MEASURE)
    print(f"{len(measured['packages'])} packages, {measured['megabytes']:.1f} MB; extra: {options.extra}")
    tried = run(python, TRY)
    print(f"payments_integration {tried['version']}")
    found = problems(tried, BRINGS[options.extra])
    if options.extra == "none":
        found += too_large(measured)
    served = run(python, SERVE)
    print(f"payments-sandbox: {served}")
    if served != {"payments": [], "exit code": 0}:
        found.append("payments-sandbox does not serve, or does not end as it should")
    for problem in found:
        print(f"  {problem}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
