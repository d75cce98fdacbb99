"""The documentation site has every page, says what the docstrings say, and asks no other host for anything."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from payments_integration import exceptions, models, services, signals
from payments_integration.contrib.finance.models import Movement
from payments_integration.contrib.receipts.models import ReceiptMail
from payments_integration.models.base import Row
from tests.projects.site.built import Site

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
SOURCES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
#: Pages that the build makes of files in the root.
OF_THE_ROOT = ["changelog.md", "code-of-conduct.md", "contributing.md", "license.md", "security.md"]
# Those for async views have the same documentation.
FUNCTIONS = [
    name
    for name in vars(services)["__all__"]
    if inspect.isfunction(found := getattr(services, name)) and not inspect.iscoroutinefunction(found)
]
ERRORS = [
    name
    for name, value in vars(exceptions).items()
    if isinstance(value, type)
    and issubclass(value, Exception)
    and value.__module__ == exceptions.__name__
    and not name.startswith("_")
]
MODELS: list[type[Row]] = [
    models.Payment,
    models.Payout,
    models.Refund,
    models.DepositReference,
    models.Balance,
    models.WebhookEndpoint,
    models.Event,
    models.StatusChange,
    models.Operation,
    models.ReconciliationRun,
    Movement,
    ReceiptMail,
]


def first_sentence(text: str) -> str:
    """Of a docstring, without the marks of code, as a page shows it."""
    plain = " ".join(re.sub(r":\w+:`([^`]+)`", r"\1", text).replace("`", "").split())
    return plain.partition(". ")[0].rstrip(".")


def test_every_page_is_built_and_in_the_navigation(site: Site) -> None:
    home = site.pages["index.html"]
    linked = {urlsplit(link).path.strip("./") for link in home.links}
    for source in [*SOURCES, *OF_THE_ROOT]:
        name = source.removesuffix(".md")
        assert site.page(source).text, source
        assert name == "index" or name in linked, source


def test_no_page_asks_another_host_for_anything(site: Site) -> None:
    asked = site.asked()
    assert any(name.endswith(".css") for name in asked)
    for name, urls in asked.items():
        assert [url for url in urls if urlsplit(url).netloc] == [], name
    # The theme fetches a script from a foreign host for a diagram.
    assert [name for name, page in site.pages.items() if 'class="mermaid"' in page.path.read_text()] == []


def test_links_within_the_site_lead_to_a_page_and_a_heading(site: Site) -> None:
    assert site.dead_links() == []


def test_the_search_index_has_every_page(site: Site) -> None:
    index = json.loads((site.folder / "search" / "search_index.json").read_text())
    found = {urlsplit(entry["location"]).path.strip("/") for entry in index["docs"]}
    assert {source.removesuffix(".md").removesuffix("index") for source in [*SOURCES, *OF_THE_ROOT]} <= found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_service_has_its_docstring_signature_and_result(site: Site, name: str) -> None:
    page, function = site.page("api/services.md"), getattr(services, name)
    shown = page.sections[f"payments_integration.services.{name}"]
    documentation = inspect.getdoc(function)
    assert documentation
    assert first_sentence(documentation) in shown
    parameters = inspect.signature(function).parameters
    for parameter in parameters:
        assert re.search(rf"\b{parameter}\b", shown), parameter
    result = inspect.signature(function).return_annotation
    if isinstance(result, type):
        assert f") -> {'None' if result is type(None) else result.__name__} " in shown


@pytest.mark.parametrize("name", ERRORS)
def test_each_error_has_its_docstring(site: Site, name: str) -> None:
    page = site.page("api/exceptions.md")
    documentation = inspect.getdoc(getattr(exceptions, name))
    assert documentation
    assert first_sentence(documentation) in page.sections[f"payments_integration.exceptions.{name}"]


def test_each_signal_has_its_description(site: Site) -> None:
    page = site.page("api/signals.md")
    names = [name for name, value in vars(signals).items() if isinstance(value, signals.SynchronousSignal)]
    source = inspect.getsource(signals)
    for name in names:
        first = re.search(rf"((?:^#:.*\n)+){name}\b", source, re.MULTILINE)
        assert first is not None
        assert first_sentence(first[1].replace("#:", "")) in page.sections[f"payments_integration.signals.{name}"]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_each_model_has_a_table_of_its_fields(site: Site, model: type[Row]) -> None:
    if model in (Movement, ReceiptMail):
        shown = site.page("api/contrib.md").sections[f"{model.__module__}.{model.__name__}"]
    else:
        shown = site.page("api/models.md").sections[f"payments_integration.models.{model.__name__}"]
    assert "Fields: Name Type Description" in shown
    inherited = {field.name for base in model.__mro__[1:] if hasattr(base, "_meta") for field in base._meta.fields}
    for field in model._meta.concrete_fields:
        if field.name not in {*inherited, "id"}:
            assert f" {field.name} " in shown, field.name


def test_the_api_pages_show_no_private_names(site: Site) -> None:
    for source in SOURCES:
        if source.startswith("api/"):
            named = [name for name in site.page(source).ids if name.startswith("payments_integration.")]
            assert named, source
            private = [name for name in named if re.search(r"\._|\.Meta\b|\.objects\b|\.migrations\b", name)]
            assert private == [], source


def test_lists_and_code_are_shown_as_such(site: Site) -> None:
    """What is nested in a list needs four spaces here; forges take fewer."""
    for source in SOURCES:
        text = re.sub(r"^( *)```.*?^\1```", "", (DOCS / source).read_text(), flags=re.MULTILINE | re.DOTALL)
        assert re.findall(r"^ {1,3}(?:[-*|]|\d+\.) .*", text, re.MULTILINE) == [], source
    for name, page in site.pages.items():
        assert "```" not in page.prose, name
        assert re.findall(r"^ *[-*] .*", page.prose, re.MULTILINE) == [], name
        assert r"\|" not in page.text, name


def test_versions_are_published_side_by_side(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    names = {f"GIT_{role}_{what}": "docs" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **names, "VENV": sys.prefix, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    # Only what is published is of interest: a page is enough.
    (clone / "mkdocs.yml").write_text("site_name: payments_integration\ndocs_dir: pages\n")
    (clone / "pages").mkdir()
    (clone / "pages" / "index.md").write_text("# payments_integration\n")

    def publish(name: str) -> None:
        subprocess.run([clone / "docs" / "site" / "publish", name], cwd=clone, env=environment, check=True)

    def read(path: str) -> str:
        shown = subprocess.run(
            ["git", "show", f"gh-pages:{path}"], cwd=clone, check=True, capture_output=True, text=True
        )
        return shown.stdout

    publish("main")
    assert "url=dev/" in read("index.html")
    for name in ("v1.2.3", "v1.3.0", "v1.2.4", "v2.0.0rc1", "main"):
        publish(name)
    found = {each["version"]: each["aliases"] for each in json.loads(read("versions.json"))}
    assert found == {"dev": [], "1.2": [], "1.3": ["latest"]}
    assert "url=latest/" in read("index.html")
    assert "payments_integration" in read("1.3/index.html")
