"""What the project itself lacks: the variables of ``.env``, settings and URLs."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import ENVIRONMENT_VARIABLE, settings

from payments_integration import conf, site_urls
from payments_integration.db.transactions import ledger_database
from payments_integration.management.quickstart import project_files
from payments_integration.management.quickstart.gaps import APP, Gap, as_shown, change, route, source_of, text_of
from payments_integration.sandbox.command import DEFAULT_PORT
from payments_integration.sandbox.engine import DEFAULT_API_KEY
from payments_integration.validation.urls import LOOPBACK_HOSTS

BASE_URL = "PAYMENTS_BASE_URL"
#: The first port that is tried for ``payments_sandbox``, and how many are.
SANDBOX_PORT, PORTS = DEFAULT_PORT, 50
#: The API key of ``payments_sandbox``.
SANDBOX_KEY = DEFAULT_API_KEY
#: The apps that people work with in the admin. The second one needs the first.
BACK_OFFICE = ("payments_integration.contrib.finance", "payments_integration.contrib.backoffice")
COMMENT = (
    "The sandbox of python manage.py payments_sandbox. Going live: the provider's URL and key, no webhook secret."
)


def gaps(root: Path, port: int | None) -> Iterator[Gap]:
    """Yield what is missing, in the order to write it: ``.env`` before its reader."""
    raw = getattr(settings, conf.NAME, None)
    if port is not None:
        yield from _port(root, port)
    if raw is None:
        yield from _variables(root, port)
    yield from _settings(root, is_set=raw is not None)
    if raw is not None and not (isinstance(raw, dict) and raw.get("ACCOUNTS")):
        account = f'{{"BASE_URL": "{_sandbox_url(port)}", "API_KEY": "{SANDBOX_KEY}"}}'
        yield Gap("Account", f"{conf.NAME} has no account; add to it", f'"ACCOUNTS": {{"default": {account}}}')
    yield from _ignored(root)
    yield from _urls(root)


def _sandbox_url(port: int | None) -> str:
    return f"http://127.0.0.1:{port or _free_port()}"


def _free_port() -> int:
    """Return the first port on which nothing listens."""
    for port in range(SANDBOX_PORT, SANDBOX_PORT + PORTS):
        with socket.socket() as connection:
            if connection.connect_ex(("127.0.0.1", port)) != 0:
                return port
    return SANDBOX_PORT


def _port(root: Path, port: int) -> Iterator[Gap]:
    """Yield the change that puts the requested port into the sandbox's address in ``.env``."""
    path = root / ".env"
    url = project_files.variables_of(text_of(path)).get(BASE_URL, "") if path.is_file() else ""
    new = {BASE_URL: _sandbox_url(port)}
    if url in ("", new[BASE_URL]) and (url or not hasattr(settings, conf.NAME)):
        return  # the port is there, or is written with the key
    snippet = f"{BASE_URL}={new[BASE_URL]}"
    if urlsplit(url).hostname not in LOOPBACK_HOSTS:
        yield Gap("Port of the sandbox", ".env has no address of a sandbox; change it where it is", snippet)
    else:
        edit = partial(project_files.with_changed_variables, variables=new)
        yield Gap("Port of the sandbox", ".env", snippet, partial(project_files.change, path, edit))


def _variables(root: Path, port: int | None) -> Iterator[Gap]:
    path = root / ".env"
    known = project_files.variables_of(text_of(path)) if path.is_file() else {}
    known |= os.environ  # takes precedence over .env
    wanted = {BASE_URL: known.get(BASE_URL) or _sandbox_url(port), "PAYMENTS_API_KEY": SANDBOX_KEY}
    if urlsplit(wanted[BASE_URL]).hostname in LOOPBACK_HOSTS:
        # A random secret: if it stays there by mistake, only its owner can sign with it.
        wanted["PAYMENTS_WEBHOOK_SECRETS"] = f"whsec_{secrets.token_urlsafe(24)}"
    if not known.get(BASE_URL) and known.get("PAYMENTS_API_KEY", SANDBOX_KEY) != SANDBOX_KEY:
        why = f".env; your PAYMENTS_API_KEY is not the sandbox's ({SANDBOX_KEY}), so name the provider's address"
        yield Gap("Address of the provider", why, "PAYMENTS_BASE_URL=https://…")
        return
    new = {name: value for name, value in wanted.items() if not known.get(name)}
    if new:
        snippet = "\n".join(f"{name}={value}" for name, value in new.items())
        edit = partial(project_files.with_variables, variables=new, comment=COMMENT)
        yield Gap("Address and key of the provider", ".env", snippet, partial(project_files.change, path, edit))


def _settings(root: Path, *, is_set: bool) -> Iterator[Gap]:
    path = source_of(os.environ.get(ENVIRONMENT_VARIABLE))
    if not settings.USE_TZ:
        why = (
            f"{as_shown(path, root)}; SQLite and MariaDB then read times that are stored already as UTC: convert them"
        )
        yield Gap("Time zones", why, "USE_TZ = True")
    lines = []
    imports = {}
    # A project that has the setting may have left out the back office on purpose. It is pages of the admin.
    wanted = (
        ["rest_framework"]
        if is_set or not apps.is_installed("django.contrib.admin")
        else ["rest_framework", *BACK_OFFICE]
    )
    if missing := [name for name in wanted if not apps.is_installed(name)]:
        listed = ", ".join(f'"{name}"' for name in missing)
        installed: Any = settings.INSTALLED_APPS  # a list, or a tuple
        lines.append(
            f"INSTALLED_APPS += ({listed},)" if isinstance(installed, tuple) else f"INSTALLED_APPS += [{listed}]"
        )
    if not is_set:
        imports["conf"] = APP
        lines.append(f"{conf.NAME} = conf.from_env()  # PAYMENTS_BASE_URL and PAYMENTS_API_KEY, from .env")
    alias = ledger_database()
    database = settings.DATABASES.get(alias, {})
    if database.get("ENGINE", "").endswith("sqlite3") and not database.get("OPTIONS"):
        # The line asks for the engine, because the same settings may name PostgreSQL on the server.
        lines.append(f'if DATABASES["{alias}"]["ENGINE"].endswith("sqlite3"):  # against "database is locked"')
        lines.append(f'    DATABASES["{alias}"]["OPTIONS"] = {{"transaction_mode": "IMMEDIATE", "timeout": 20}}')
    if not lines:
        return
    snippet = "\n".join([*(f"from {module} import {name}" for name, module in imports.items()), "", *lines]).lstrip()

    def write() -> None:
        if not is_set:
            # Try it first: settings that raise would leave a project in which no command runs.
            conf.from_env(env_file=root / ".env")
        change(path, partial(project_files.with_settings, lines=lines, imports=imports))

    shared = "; move the lines to the module that production shares" if path and " import *" in text_of(path) else ""
    yield Gap("Settings", f"{as_shown(path, root)}, at the end{shared}", snippet, write)


def _ignored(root: Path) -> Iterator[Gap]:
    path = root / ".gitignore"
    if path.is_file() and ((root / ".env").exists() or not hasattr(settings, conf.NAME)):
        lines = {line.strip() for line in text_of(path).splitlines()}
        if not lines & {".env", "/.env", "*.env", ".env*", ".env/", "**/.env"}:
            write = partial(
                project_files.change, path, lambda text: "\n".join([text.rstrip("\n"), ".env", ""]).lstrip()
            )
            yield Gap("Secrets out of the repository", ".gitignore", ".env", write)


def _urls(root: Path) -> Iterator[Gap]:
    url = ""

    def is_there() -> bool:
        nonlocal url
        url = site_urls.webhook_path(conf.DEFAULT_ACCOUNT)
        return bool(url)

    yield from route(root, "URLs", "payments/", f"{APP}.urls", is_there)
    if url and site_urls.target(url).account is None:
        why = f"another route takes {url}; move this one to the top of urlpatterns"
        yield Gap("URLs", why, f'path("payments/", include("{APP}.urls")),')
