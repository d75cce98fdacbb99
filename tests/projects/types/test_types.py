"""What type checkers know in the project of a user: mypy and pyright, with the types of Django and without.

    python -m pytest tests/projects/types

Not part of ``make test``: it needs the extra ``types``. The checkers run in an environment whose site-packages is made
of links, so that they read the app as an installed package, and Django's types are there or not.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sysconfig
import textwrap
import venv
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
INSTALLED = Path(sysconfig.get_path("purelib"))
PYTHON = re.compile(r"^ *```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
STRICT = {"typeCheckingMode": "strict"}
PLUGIN = (
    "plugins = mypy_django_plugin.main",
    "[mypy.plugins.django-stubs]",
    'django_settings_module = "shop.settings"',
)
#: In the user's own models, only the plugin knows what the fields hold.
OWN_MODELS = "shop/models.py"
#: What pyright cannot know of an example, which shows a part of a program.
UNKNOWN = {"reportUndefinedVariable", "reportMissingImports"}
#: In messages about examples: only the hosted flow has a checkout page to redirect to, the order's methods are the
#: reader's, environ's annotations know fewer defaults than environ takes, and a Meta need not inherit that of an
#: abstract model.
LEFT_TO_THE_READER = ('"to" of type', '"redirect_to" of type', '"mark_paid"', '"NoValue"', '"Meta" overrides')
#: What has no annotation for others, because it is not for others. Each is used within its module or by Django only.
INTERNAL = {"Meta", "mirrored", "personal", "logger"}
GUESSED = re.compile("Type is missing type annotation|Ambiguous base class override")
#: The modules that the reference lists for users.
PUBLIC = re.compile(
    r"payments_integration\.(attention|conf|enums|exceptions|handlers|models|money|next_action|payable|schemas|services|"
    r"signals|signatures|testing)\b"
)

#: By file, the lines with an error.
Lines = dict[str, list[int]]


def environment(folder: Path, *, with_types_of_django: bool) -> Path:
    """A virtual environment with what is installed here, and the app of this tree; returns its Python."""
    builder = venv.EnvBuilder(symlinks=True)
    builder.create(folder)
    python = Path(builder.ensure_directories(folder).env_exe)
    packages = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(folder)}))
    for entry in INSTALLED.iterdir():
        is_app = entry.name.startswith("payments_integration") or entry.suffix == ".pth"
        if not is_app and (with_types_of_django or entry.name not in ("django-stubs", "rest_framework-stubs")):
            (packages / entry.name).symlink_to(entry)
    (packages / "payments_integration").symlink_to(ROOT / "payments_integration")
    return python


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("typed"), with_types_of_django=True)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("bare"), with_types_of_django=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(Path(__file__).with_name("project"), tmp_path / "project"))


def run(*command: str | Path, python: Path, folder: Path) -> str:
    """What a checker prints. It ends with 1 if it found something, and with more if it could not run."""
    variables = {
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
        "HOME": str(folder),
    }
    ended = subprocess.run(
        [python, "-m", *command], cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=600
    )
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    return ended.stdout


def pyright(python: Path, folder: Path, *arguments: str) -> Any:
    return json.loads(run("pyright", "--outputjson", *arguments, python=python, folder=folder))


def pyright_lines(python: Path, folder: Path, **options: Any) -> Lines:
    (folder / "pyrightconfig.json").write_text(json.dumps({"include": ["shop"], **options}))
    found = pyright(python, folder)
    assert found["summary"]["filesAnalyzed"] == len([*folder.glob("shop/*.py")])
    errors = [error for error in found["generalDiagnostics"] if error["severity"] == "error"]
    return lines((Path(error["file"]).name, error["range"]["start"]["line"] + 1) for error in errors)


def mypy_lines(python: Path, folder: Path, *options: str) -> Lines:
    (folder / "mypy.ini").write_text("\n".join(["[mypy]", "strict = true", *options]))
    printed = run("mypy", "shop", python=python, folder=folder)
    assert "checked" in printed, printed
    return lines(
        (name, int(line)) for name, line in re.findall(r"^shop/(\w+\.py):(\d+): error:", printed, re.MULTILINE)
    )


def lines(found: Any) -> Lines:
    by_file: dict[str, set[int]] = {}
    for name, line in found:
        by_file.setdefault(name, set()).add(line)
    return {name: sorted(numbers) for name, numbers in by_file.items()}


def mistakes(folder: Path) -> Lines:
    """The lines that are marked as errors."""
    marked = (folder / "shop" / "mistakes.py").read_text().splitlines()
    return {"mistakes.py": [number for number, line in enumerate(marked, 1) if line.endswith("  # error")]}


def test_pyright_knows_everything_in_its_strict_mode(typed: Path, project: Path) -> None:
    assert pyright_lines(typed, project, **STRICT, ignore=[OWN_MODELS]) == mistakes(project)


def test_pyright_knows_the_app_without_the_types_of_django(bare: Path, project: Path) -> None:
    # Without them, pyright takes the fields of the user's own models for what they are given, and knows no queryset.
    (project / "shop" / "querysets.py").unlink()
    assert pyright_lines(bare, project) == mistakes(project)


def test_mypy_knows_everything(typed: Path, project: Path) -> None:
    assert mypy_lines(typed, project, "[mypy-shop.models]", "ignore_errors = true") == mistakes(project)


def test_mypy_knows_everything_with_the_plugin_of_django_stubs(typed: Path, project: Path) -> None:
    assert mypy_lines(typed, project, *PLUGIN) == mistakes(project)


def test_the_examples_of_the_docs_have_no_error(typed: Path, project: Path) -> None:
    (project / "pyrightconfig.json").write_text(json.dumps({"include": ["examples"]}))
    examples = project / "examples"
    examples.mkdir()
    for page in PAGES:
        for number, block in enumerate(PYTHON.findall(page.read_text())):
            text = textwrap.dedent(block)
            # Others show a line of a file, or leave something out.
            if "payments_integration" in text and is_whole(text):
                (examples / f"{page.stem}_{number}.py").write_text(text)
    found = pyright(typed, project)
    assert found["summary"]["filesAnalyzed"] == len([*examples.iterdir()]) > 20
    errors = [error for error in found["generalDiagnostics"] if error.get("rule", next(iter(UNKNOWN))) not in UNKNOWN]
    ours = [error for error in errors if not any(text in error["message"] for text in LEFT_TO_THE_READER)]
    assert [error for error in ours if error["severity"] == "error"] == []


def is_whole(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def test_each_public_name_has_a_type(typed: Path, project: Path) -> None:
    found = pyright(typed, project, "--verifytypes", "payments_integration", "--ignoreexternal")["typeCompleteness"]
    exported = [symbol for symbol in found["symbols"] if symbol["isExported"]]
    assert len(exported) > 4_000
    # django-health-check, whose class they inherit, says nothing of its types.
    checks = {f"payments_integration.contrib.health_check.{name}" for name in ("Liveness", "Readiness", "Money")}
    unknown = [symbol for symbol in exported if not symbol["isTypeKnown"] and not symbol["isTypeAmbiguous"]]
    unknown = [symbol for symbol in unknown if symbol["name"] not in checks]
    assert unknown == []
    # A name is also ambiguous for pyright if its type has an attribute that is.
    guessed = [
        symbol["name"]
        for symbol in exported
        if PUBLIC.match(symbol["name"]) and any(GUESSED.match(error["message"]) for error in symbol["diagnostics"])
    ]
    assert [name for name in guessed if not INTERNAL & {*name.split(".")}] == []
