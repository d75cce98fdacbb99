"""``payments_quickstart``: what a project still needs for its first payment, to copy or written."""

from __future__ import annotations

import importlib.util
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

from django.apps import apps
from django.conf import ENVIRONMENT_VARIABLE, settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import BaseCommand
from django.urls import NoReverseMatch, get_resolver, reverse

from payments_integration import conf, handlers, webhook_urls
from payments_integration.management import project_files
from payments_integration.management.project_files import NotUnderstood
from payments_integration.payable import Payable
from payments_integration.signals import event_received, status_changed

ID = "payments_integration"
ENTRY = f'path("payments/", include("{ID}.urls"))'
#: Where ``payments_sandbox`` listens, and its API key.
SANDBOX_URL, SANDBOX_KEY = "http://127.0.0.1:8400", "sk_test_sandbox"
COMMENT = (
    "The sandbox of python manage.py payments_sandbox. Going live: the provider's URL and key, no webhook secret."
)

HANDLER = '''\
"""What happens when a payment changes. payments_integration finds this module by its name."""

{imports}


@on_status(Payment, "succeeded", "overpaid")
def mark_paid(payment, **kwargs):
    """Called once for each payment that is paid. Its database work commits exactly once."""
{body}
'''


@dataclass(frozen=True)
class Gap:
    """Something that is missing: what, in which file, the lines to add, and how they are written (None: by hand)."""

    what: str
    place: str
    snippet: str
    write: Callable[[], None] | None = None


class Command(BaseCommand):
    help = (
        "Shows what the project still needs to take payments: settings, URLs, handlers, .env. With --write adds it. "
        "Changes nothing that is there. Exit code 1 if something is missing."
    )
    # They fail in a project that is not complete.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--write", action="store_true", help="add what is missing to the project's files")

    def handle(self, *args: Any, **options: Any) -> None:
        gaps = list(missing(Path.cwd()))
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
        self.stdout.write(
            "Next: python manage.py migrate, then in two terminals\n"
            "  python manage.py runserver\n"
            f"  python manage.py payments_sandbox --webhook-url {_webhook_url()}"
        )


def _written(gap: Gap) -> str:
    """Why the gap could not be closed; empty if it is."""
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
    """Where runserver takes deliveries."""
    try:
        path = reverse(f"{ID}:webhook")
    except NoReverseMatch:  # written just now
        path = "/payments/webhook/"
    return f"http://127.0.0.1:8000{path}"


def missing(root: Path) -> Iterator[Gap]:
    """What the project in this folder lacks, in the order in which it must be written: ``.env`` before its reader."""
    raw = getattr(settings, conf.NAME, None)
    if raw is None:
        yield from _variables(root)
    yield from _settings(root, is_set=raw is not None)
    if raw is not None and not (isinstance(raw, dict) and raw.get("ACCOUNTS")):
        yield Gap(
            "Account",
            f"{conf.NAME} has no account; add to it",
            f'"ACCOUNTS": {{"default": {{"BASE_URL": "{SANDBOX_URL}", "API_KEY": "{SANDBOX_KEY}"}}}}',
        )
    yield from _ignored(root)
    yield from _urls(root)
    yield from _handlers(root)


def _variables(root: Path) -> Iterator[Gap]:
    path = root / ".env"
    known = project_files.variables_of(path.read_text(errors="replace")) if path.is_file() else {}
    known |= os.environ  # which counts first
    wanted = {"PAYMENTS_BASE_URL": SANDBOX_URL, "PAYMENTS_API_KEY": SANDBOX_KEY}
    if known.get("PAYMENTS_BASE_URL", SANDBOX_URL) == SANDBOX_URL:
        # Not a fixed one: if it stays there by mistake, only its owner can sign with it.
        wanted["PAYMENTS_WEBHOOK_SECRETS"] = f"whsec_{secrets.token_urlsafe(24)}"
    if not known.get("PAYMENTS_BASE_URL") and known.get("PAYMENTS_API_KEY", SANDBOX_KEY) != SANDBOX_KEY:
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
    if not apps.is_installed("rest_framework"):
        installed: Any = settings.INSTALLED_APPS  # a list, or a tuple
        apps_added = '("rest_framework",)' if isinstance(installed, tuple) else '["rest_framework"]'
        lines.append(f"INSTALLED_APPS += {apps_added}")
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
            # Settings that raise would leave a project in which no command runs.
            conf.from_env(env_file=root / ".env")
        project_files.change(_writable(path), partial(project_files.with_settings, lines=lines, imports=imports))

    yield Gap("Settings", f"{_shown(path, root)}, at the end", snippet, write)


def _ignored(root: Path) -> Iterator[Gap]:
    path = root / ".gitignore"
    if path.is_file() and ((root / ".env").exists() or not hasattr(settings, conf.NAME)):
        lines = {line.strip() for line in path.read_text(errors="replace").splitlines()}
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
            yield Gap("URLs", place, snippet, lambda: project_files.change(_writable(path), edit))
    except Exception as error:  # the project's own modules may raise any error
        yield Gap("URLs", f"{place}; {name} cannot be imported: {type(error).__name__}: {error}", snippet)
    else:
        if webhook_urls.target(url).account is None:
            yield Gap("URLs", f"another route takes {url}; move this one to the top of urlpatterns", f"{ENTRY},")


def _handlers(root: Path) -> Iterator[Gap]:
    own = [found for found in apps.get_app_configs() if _is_own(Path(found.path), root)]
    modules = [function.__module__ for function, _, _ in handlers.registered]
    if any(not name.startswith(f"{ID}.") for name in modules):
        return
    mine = [path for found in own if (path := Path(found.path) / "payment_handlers.py").exists()]
    if mine and (event_received.receivers or status_changed.receivers):
        return  # it may connect to the signals themselves
    models = [model for found in own for model in found.get_models() if issubclass(model, Payable)]
    home = apps.get_app_config(models[0]._meta.app_label) if models else next(iter(own), None)
    snippet = handler_module(models[0] if models else None)
    if home is None:
        place = "payment_handlers.py, in an app of yours (python manage.py startapp orders)"
        yield Gap("Handlers", place, snippet)
        return
    if mine:
        yield Gap("Handlers", f"{_shown(mine[0], root)} has none for a paid payment; for example", snippet)
        return
    path = Path(home.path) / "payment_handlers.py"
    write = partial(project_files.change, path, lambda _: snippet)
    yield Gap("Handlers", f"{_shown(path, root)}, a new file", snippet, write)


def handler_module(model: type[Payable] | None) -> str:
    """A module with a handler for paid payments; it marks an order as paid if the model has the fields to do so."""
    if model is None:
        imports = [f"from {ID}.handlers import on_status", f"from {ID}.models import Payment"]
        body = """\
            logger.info("%s is paid: %s %s", payment.merchant_reference, payment.amount, payment.currency)
            # Mark your order as paid here.
        """
        imports = ["import logging", "", *imports, "", "logger = logging.getLogger(__name__)"]
    else:
        names = {field.name for field in model._meta.get_fields()}
        imports = [f"from {ID}.handlers import on_status", f"from {ID}.models import Payment", ""]
        imports.append(f"from {model.__module__} import {model.__name__}")
        condition = "order is not None"
        if "amount" in names:
            condition += f" and order.is_paid(order.amount, {'order' if 'currency' in names else 'payment'}.currency)"
        action = "...  # Mark the order as paid here."
        if "paid_at" in names:
            imports.insert(0, "from django.utils import timezone")
            action = 'order.paid_at = timezone.now()\n                order.save(update_fields=["paid_at"])'
        body = f"""\
            order = {model.__name__}.objects.select_for_update().of(payment)
            if {condition}:
                {action}
        """
    return HANDLER.format(imports="\n".join(imports), body=indent(dedent(body).rstrip(), "    "))


def _is_own(path: Path, root: Path) -> bool:
    """Whether a file or folder is the project's, and not of an installed package."""
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return path.is_relative_to(root) and not installed and path.name != ID


def _source(module: str | None) -> Path | None:
    """The file of a module; None if it has none."""
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
