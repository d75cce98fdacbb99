"""``payments_quickstart``: show or write what a project still needs for its first payment."""

from __future__ import annotations

import importlib.util
import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Any
from urllib.parse import urlsplit

from django.apps import AppConfig, apps
from django.conf import ENVIRONMENT_VARIABLE, settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError
from django.db import models
from django.db.migrations.loader import MigrationLoader
from django.urls import NoReverseMatch, get_resolver, reverse

from payments_integration import conf, handlers, site_urls
from payments_integration.management import order_files, order_model, project_files
from payments_integration.management.command import PaymentsCommand
from payments_integration.management.order_model import OrderModel
from payments_integration.management.project_files import NotUnderstood
from payments_integration.payable import Payable
from payments_integration.sandbox.command import DEFAULT_PORT, port as port_number
from payments_integration.sandbox.engine import DEFAULT_API_KEY
from payments_integration.signals import event_received, status_changed
from payments_integration.validation.urls import LOOPBACK_HOSTS

ID = "payments_integration"
BASE_URL = "PAYMENTS_BASE_URL"
ENTRY = f'path("payments/", include("{ID}.urls"))'
#: The first port that is tried for ``payments_sandbox``, and its API key.
SANDBOX_PORT, SANDBOX_KEY = DEFAULT_PORT, DEFAULT_API_KEY
#: The apps that people work with in the admin. The second one needs the first.
BACK_OFFICE = ("payments_integration.contrib.finance", "payments_integration.contrib.backoffice")
#: The number of ports that are tried.
PORTS = 50
#: Usual names of models that payments are for, the likeliest first.
ORDERS = ("Order", "Invoice", "Purchase", "Booking", "Reservation", "Sale", "Donation")
COMMENT = (
    "The sandbox of python manage.py payments_sandbox. Going live: the provider's URL and key, no webhook secret."
)


@dataclass(frozen=True)
class Gap:
    """Something that is missing: what, in which file, the lines to add, and how to write them (None: by hand)."""

    what: str
    place: str
    snippet: str
    write: Callable[[], None] | None = None


class Command(PaymentsCommand):
    help = (
        "Shows what the project still needs to take payments: settings, URLs, handlers, .env. With --write adds it. "
        "Changes nothing that is there. Exit code 1 if something is missing."
    )
    # The checks fail in a project that is not complete.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: Any) -> None:
        how = parser.add_mutually_exclusive_group()
        how.add_argument("--write", action="store_true", help="add what is missing to the project's files")
        how.add_argument("--dry-run", action="store_true", help="only show it, as without --write")
        parser.add_argument(
            "--order",
            metavar="APP.MODEL",
            nargs="?",
            const="",
            help="also a view, its URL and a test, for this model of your shop; without a name it is found",
        )
        parser.add_argument("--amount", metavar="FIELD", help="with --order: the field with the price")
        parser.add_argument("--currency", metavar="FIELD|CODE", help="with --order: the field, or one for all orders")
        parser.add_argument("--model", metavar="APP.MODEL", help="the model that payments are for (found by its name)")
        parser.add_argument(
            "--port", type=port_number, help=f"the sandbox's port, for .env (from {SANDBOX_PORT} on, one that is free)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        order = None
        if options["order"] is not None:
            model = _ordered(Path.cwd(), options["order"])
            order = order_model.read(model, amount=options["amount"], currency=options["currency"])
            if _is_installed(Path(_app_of(order).path)):
                raise CommandError(
                    f"{model._meta.label} is of an installed package. Put a proxy of it into an app of yours, and "
                    f"name that one: --order yourapp.{order_files.PROXY}\n\n{order_files.proxy(order)}"
                )
        gaps = list(missing(Path.cwd(), model=options["model"], port=options["port"], order=order))
        left = 0
        for gap in gaps:
            problem = _written(gap) if options["write"] else "missing"
            left += bool(problem)
            style = self.style.WARNING if problem else self.style.SUCCESS
            self.stdout.write(style(f"{gap.what}: {problem or 'added'}"))
            self.stdout.write(f"  {gap.place}:\n\n{indent(gap.snippet.rstrip(), '    ')}\n")
        if left:
            how = "Add what is missing by hand."
            if not options["write"]:
                how = "Add what is missing, or run: python manage.py payments_quickstart --write"
            self.stderr.write(self.style.ERROR(f"Not complete yet. {how}"))
            raise SystemExit(1)
        self.stdout.write(self.style.SUCCESS("All is there now." if gaps else "All is there; nothing was changed."))
        first = "".join(f"python manage.py makemigrations {label}, " for label in _without_migration())
        self.stdout.write(
            f"Next: {first}python manage.py migrate, then in two terminals\n"
            "  python manage.py runserver\n"
            f"  python manage.py payments_sandbox --webhook-url {_webhook_url()}"
        )
        if order is not None:
            self.stdout.write(f"Test the way of an order: python manage.py test {_app_of(order).name}")


def _without_migration() -> list[str]:
    """Return the apps with a Payable and an empty folder of migrations: ``migrate`` alone would make no table."""
    loader = MigrationLoader(None, ignore_no_migrations=True)
    labels = {model._meta.app_label for model in apps.get_models() if issubclass(model, Payable)}
    return sorted(label for label in labels & loader.migrated_apps if not loader.graph.leaf_nodes(label))


def _written(gap: Gap) -> str:
    """Close the gap. Returns why it could not be closed; empty if it was."""
    if gap.write is None:
        return "not written, because only you can decide how"
    try:
        gap.write()
    except (NotUnderstood, ImproperlyConfigured) as error:
        return f"not written: {error}"
    except OSError as error:
        return f"not written: {error.strerror}"
    return ""


def _webhook_url() -> str:
    """Return the address at which runserver takes deliveries."""
    try:
        path = reverse(f"{ID}:webhook")
    except NoReverseMatch:  # the route was written just now
        path = "/payments/webhook/"
    return f"http://127.0.0.1:8000{path}"


def missing(
    root: Path, *, model: str | None = None, port: int | None = None, order: OrderModel | None = None
) -> Iterator[Gap]:
    """Yield what the project in this folder lacks, in the order to write it: ``.env`` before its reader."""
    raw = getattr(settings, conf.NAME, None)
    if port is not None:
        yield from _port(root, port)
    if raw is None:
        yield from _variables(root, port)
    yield from _settings(root, is_set=raw is not None)
    if raw is not None and not (isinstance(raw, dict) and raw.get("ACCOUNTS")):
        yield Gap(
            "Account",
            f"{conf.NAME} has no account; add to it",
            f'"ACCOUNTS": {{"default": {{"BASE_URL": "{_sandbox_url(port)}", "API_KEY": "{SANDBOX_KEY}"}}}}',
        )
    yield from _ignored(root)
    yield from _urls(root)
    if order is not None:
        yield from _order(root, order)
    yield from _handlers(root, model, order)


def _order(root: Path, order: OrderModel) -> Iterator[Gap]:
    """Yield what the app of the order's model lacks. A file that exists stays as it is."""
    yield from _model(root, order)
    folder = Path(_app_of(order).path)
    tests = folder / "tests" if (folder / "tests").is_dir() else folder
    views, urls = folder / "payment_views.py", folder / "payment_urls.py"
    has_view = not views.exists() or project_files.binds(_text(views), "pay")
    has_urls = not urls.exists() or project_files.sets(_text(urls), "app_name", "pay")
    # A URLconf that imports something missing would keep the site from starting.
    by_hand = not (has_view and has_urls)
    for what, path, text, lacking in (
        ("View", views, order_files.views(order), "" if has_view else "has no pay"),
        ("URL of the view", urls, order_files.urls(order), "" if has_urls else 'does not set app_name = "pay"'),
        ("Test", tests / "test_payments.py", order_files.tests(order), ""),
    ):
        if lacking:
            yield Gap(what, f"{_shown(path, root)}, which {lacking}; add to it", text)
        elif not path.exists():
            place = f"{_shown(path, root)}, a new file"
            if "=..." in text:
                place += "; give a value to each field that it sets to ..."
            yield Gap(what, place, text, None if by_hand and what != "Test" else partial(_new, path, text))
    yield from _route(root, f'path("pay/", include("{_app_of(order).name}.payment_urls"))', by_hand=by_hand)


def _model(root: Path, order: OrderModel) -> Iterator[Gap]:
    """Yield the change that makes the model a Payable."""
    if not (lines := order.options):
        return
    source = _source(order.model.__module__)
    shown = "\n".join(f"    {line}" for line in lines)
    place = f"{_shown(source, root)}; the table stays as it is, and no migration is made"
    snippet = f"class {order.name}({_bases(order)}):\n{shown}"
    if not order.is_payable:
        snippet = f"from payments_integration.payable import Payable\n\n{snippet}"
    write: Callable[[], None] | None = None
    if not order.is_payable and any(not manager.auto_created for manager in order.model._meta.managers):
        place += ". Let its manager inherit from payments_integration.payable.PayableManager"
    elif order.is_payable or order.model.__bases__ == (models.Model,):
        edit = partial(project_files.with_payable, name=order.name, lines=lines, is_payable=order.is_payable)
        write = partial(_change, source, edit)
    yield Gap(f"{order.name} as a Payable", place, snippet, write)


def _bases(order: OrderModel) -> str:
    """Return the base classes that the model needs: its own, with Payable in the place of ``models.Model``."""
    found = list(order.model.__bases__)
    if not order.is_payable:
        found = [Payable if base is models.Model else base for base in found]
        found += [] if Payable in found else [Payable]
    return ", ".join(base.__name__ for base in found)


def _route(root: Path, entry: str, *, by_hand: bool) -> Iterator[Gap]:
    name = getattr(settings, "ROOT_URLCONF", None)
    path = _source(name)
    place = f"{_shown(path, root)}, first in urlpatterns"
    try:
        resolver = get_resolver()
        if "pay" in resolver.namespace_dict:
            return
        taken = [str(found.pattern) for found in resolver.url_patterns if str(found.pattern).startswith("pay/")]
    except Exception as error:  # the project's own modules may raise any error; it may have the route already
        why = f"{place}, if it is not there; {name} cannot be imported: {type(error).__name__}: {error}"
        yield Gap("Route of the view", why, f"{entry},")
        return
    if taken:
        why = f"{place}; the project has routes under pay/ already, so choose another prefix"
        yield Gap("Route of the view", why, entry.replace('"pay/"', '"…/"'))
        return
    edit = partial(project_files.with_url, entry=entry)
    yield Gap("Route of the view", place, f"{entry},", None if by_hand else partial(_change, path, edit))


def _text(path: Path) -> str:
    return path.read_text(errors="replace")


def _change(path: Path | None, edit: project_files.Edit) -> None:
    project_files.change(_writable(path), edit)


def _new(path: Path, text: str) -> None:
    if not _is_own(path, Path.cwd()):
        raise NotUnderstood("it is not in the current folder")
    project_files.change(path, lambda _: text)


def _app_of(order: OrderModel) -> AppConfig:
    return apps.get_app_config(order.model._meta.app_label)


def _ordered(root: Path, named: str) -> type[models.Model]:
    """Return the model that --order names, or the only candidate. If there are several, ask the person."""
    if named:
        return _named_model("--order", named)
    own = [found for found in apps.get_app_configs() if _is_own(Path(found.path), root)]
    labels = {model._meta.label: model for model in _candidates(own)}
    if not labels:
        raise CommandError("No model of yours has the name of an order. Name the one: --order app.Model")
    if len(labels) > 1 and sys.stdin.isatty():
        answer = input(f"What are payments for: {', '.join(labels)}? ").strip()
        labels = {label: model for label, model in labels.items() if label == answer}
    if len(labels) != 1:
        names = " or ".join(f"--order {model._meta.label}" for model in _candidates(own))
        raise CommandError(f"Several models may be what payments are for. Name one: {names}")
    return next(iter(labels.values()))


def _named_model(option: str, name: str) -> type[models.Model]:
    try:
        return apps.get_model(name)
    except (LookupError, ValueError) as error:
        raise CommandError(f"{option} {name}: {error}. Name it as app.Model.") from error


def _candidates(own: list[AppConfig]) -> list[type[models.Model]]:
    """Return the models that payments may be for, likeliest first: every ``Payable``, otherwise by name."""
    found = [model for app in own for model in app.get_models()]
    payables = [model for model in found if issubclass(model, Payable)]
    likely = [model for name in ORDERS for model in found if model.__name__.endswith(name)]
    return list(dict.fromkeys(sorted(payables, key=lambda model: model not in likely) or likely))


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
    url = project_files.variables_of(_text(path)).get(BASE_URL, "") if path.is_file() else ""
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
    known = project_files.variables_of(_text(path)) if path.is_file() else {}
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
    lines = []
    imports = {}
    # A project that has the setting may have left out the back office on purpose.
    wanted = ["rest_framework"] if is_set else ["rest_framework", *BACK_OFFICE]
    if missing := [name for name in wanted if not apps.is_installed(name)]:
        listed = ", ".join(f'"{name}"' for name in missing)
        installed: Any = settings.INSTALLED_APPS  # a list, or a tuple
        lines.append(
            f"INSTALLED_APPS += ({listed},)" if isinstance(installed, tuple) else f"INSTALLED_APPS += [{listed}]"
        )
    if not is_set:
        imports["conf"] = ID
        lines.append(f"{conf.NAME} = conf.from_env()  # PAYMENTS_BASE_URL and PAYMENTS_API_KEY, from .env")
    database = settings.DATABASES.get("default", {})
    if database.get("ENGINE", "").endswith("sqlite3") and not database.get("OPTIONS"):
        lines.append('# Without this, two writers at once fail with "database is locked".')
        lines.append('DATABASES["default"]["OPTIONS"] = {"transaction_mode": "IMMEDIATE", "timeout": 20}')
    if not lines:
        return
    path = _source(os.environ.get(ENVIRONMENT_VARIABLE))
    snippet = "\n".join([*(f"from {module} import {name}" for name, module in imports.items()), "", *lines]).lstrip()

    def write() -> None:
        if not is_set:
            # Try it first: settings that raise would leave a project in which no command runs.
            conf.from_env(env_file=root / ".env")
        _change(path, partial(project_files.with_settings, lines=lines, imports=imports))

    yield Gap("Settings", f"{_shown(path, root)}, at the end", snippet, write)


def _ignored(root: Path) -> Iterator[Gap]:
    path = root / ".gitignore"
    if path.is_file() and ((root / ".env").exists() or not hasattr(settings, conf.NAME)):
        lines = {line.strip() for line in _text(path).splitlines()}
        if not lines & {".env", "/.env", "*.env", ".env*", ".env/", "**/.env"}:
            write = partial(
                project_files.change, path, lambda text: "\n".join([text.rstrip("\n"), ".env", ""]).lstrip()
            )
            yield Gap("Secrets out of the repository", ".gitignore", ".env", write)


def _urls(root: Path) -> Iterator[Gap]:
    name = getattr(settings, "ROOT_URLCONF", None)
    path = _source(name)
    place = f"{_shown(path, root)}, first in urlpatterns"
    snippet = f"from django.urls import include, path\n\n{ENTRY},"
    try:
        url = reverse(f"{ID}:webhook")
    except NoReverseMatch:
        taken = [
            str(found.pattern) for found in get_resolver().url_patterns if str(found.pattern).startswith("payments/")
        ]
        if taken:
            why = f"{place}; the project has routes under payments/ already, so choose another prefix"
            yield Gap("URLs", why, snippet.replace('"payments/"', '"…/"'))
        else:
            edit = partial(project_files.with_url, entry=ENTRY)
            yield Gap("URLs", place, snippet, partial(_change, path, edit))
    except Exception as error:  # the project's own modules may raise any error
        yield Gap("URLs", f"{place}; {name} cannot be imported: {type(error).__name__}: {error}", snippet)
    else:
        if site_urls.target(url).account is None:
            yield Gap("URLs", f"another route takes {url}; move this one to the top of urlpatterns", f"{ENTRY},")


def _handlers(root: Path, named: str | None, order: OrderModel | None) -> Iterator[Gap]:
    own = [found for found in apps.get_app_configs() if _is_own(Path(found.path), root)]
    model, assumed = (order.model, f"for {order.model._meta.label}") if order else _subject(own, named)
    modules = [function.__module__ for function, _, _ in handlers.registered]
    if any(not name.startswith(f"{ID}.") for name in modules):
        return
    mine = [path for found in own if (path := Path(found.path) / "payment_handlers.py").exists()]
    if mine and (event_received.receivers or status_changed.receivers):
        return  # the module may connect to the signals directly
    snippet = order_files.handlers(model, is_priced=order is not None)
    mine_first = [found for found in own if model is not None and found.label == model._meta.app_label] + own
    if not mine_first:
        place = "payment_handlers.py, in an app of yours (python manage.py startapp orders)"
        yield Gap("Handlers", place, snippet)
        return
    if mine:
        yield Gap("Handlers", f"{_shown(mine[0], root)} has none for a change of a payment; for example", snippet)
        return
    path = Path(mine_first[0].path) / "payment_handlers.py"
    write = partial(project_files.change, path, lambda _: snippet)
    yield Gap("Handlers", f"{_shown(path, root)}, a new file; {assumed}", snippet, write)


def _subject(own: list[AppConfig], named: str | None) -> tuple[type[models.Model] | None, str]:
    """Return the model that payments are for, and the assumption that found it."""
    if named:
        return _named_model("--model", named), f"for {named}"
    candidates = _candidates(own)
    if not candidates:
        return None, "no model of yours has the name of an order: if there is one, name it with --model app.Model"
    why = "it is a Payable" if issubclass(candidates[0], Payable) else "by its name; it is no Payable yet"
    labels = [model._meta.label for model in candidates]
    others = f", and not for {' or '.join(labels[1:])}" if labels[1:] else ""
    return candidates[0], f"assumed: payments are for {labels[0]} ({why}){others}; name another with --model app.Model"


def _is_own(path: Path, root: Path) -> bool:
    """Return True if a file or folder belongs to the project and not to an installed package."""
    return path.is_relative_to(root) and not _is_installed(path) and path.name != ID


def _is_installed(path: Path) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(path.parts)


def _source(module: str | None) -> Path | None:
    """Return the file of a module; None if it has none."""
    try:
        spec = importlib.util.find_spec(module) if module else None
    except (ImportError, ValueError):
        spec = None
    return Path(spec.origin) if spec is not None and spec.origin is not None and spec.has_location else None


def _writable(path: Path | None) -> Path:
    if path is None:
        raise NotUnderstood("it has no file")
    if not _is_own(path, Path.cwd()):
        raise NotUnderstood("it is not in the current folder")
    return path


def _shown(path: Path | None, root: Path) -> str:
    if path is None:
        return "a module without a file"
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
