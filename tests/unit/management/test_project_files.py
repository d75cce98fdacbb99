"""What is added to a project's files, and which files are left alone."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

from payments_integration.management.quickstart import project_files
from payments_integration.management.quickstart.project_files import NotUnderstood

ENTRY = 'path("payments/", include("payments_integration.urls"))'
INCLUDE, BOTH = "from django.urls import include\n", "from django.urls import include, path\n"


def settings(text: str) -> str:
    return project_files.with_settings(text, ["X = conf"], imports={"conf": "payments_integration"})


def urls(text: str) -> str:
    return project_files.with_url(text, ENTRY)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from a import b\n\n\nurlpatterns = [\n    b(),\n]\n", "[\n    {},\n    b(),\n]\n"),
        ("urlpatterns = [b()]\n", "[{}, b()]\n"),
        ("urlpatterns = []\n", "[{}]\n"),
        ("urlpatterns = [\n]\n", "[{}\n]\n"),
        ("urlpatterns = [  # ours\n        b(),  # first\n]", "[  # ours\n        {},\n        b(),  # first\n]"),
        ("urlpatterns: list[str] = [b(),\n    c()]\n", "[{}, b(),\n    c()]\n"),
        ("urlpatterns = [b()] + static('/m/') + x\n", "[{}, b()] + static('/m/') + x\n"),
        ("á = 'é'; urlpatterns = ['ü']\n", "[{}, 'ü']\n"),
        ("urlpatterns = ([\n  b(),\n])\nurlpatterns += [c()]\n", "[\n  {},\n  b(),\n])\nurlpatterns += [c()]\n"),
    ],
)
def test_the_route_is_the_first_of_the_list(before: str, after: str) -> None:
    assert urls(before).endswith(after.format(ENTRY))
    assert "from django.urls import include, path\n" in urls(before) or "import include\n" in urls(before)


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("urlpatterns = i18n_patterns(b())\n", "do not begin with a list"),
        ("x = 1\n", "exactly once"),
        ("urlpatterns = []\nurlpatterns = []\n", "exactly once"),
        ("if x:\n    urlpatterns = []\n", "exactly once"),
        ("from os import path\nurlpatterns = []\n", "path means something else"),
        ("import include\nurlpatterns = []\n", "include means something else"),
        ("urlpatterns = []\nfrom django.urls import include, path\n", "below urlpatterns"),
        ("urlpatterns = [\n", "not valid Python"),
        ("urlpatterns = []\0", "not valid Python"),
    ],
)
def test_a_urlconf_of_another_form_is_left_alone(before: str, why: str) -> None:
    with pytest.raises(NotUnderstood, match=why):
        urls(before)


@pytest.mark.parametrize(
    ("head", "after"),
    [
        ("from django.urls import path\n", "from django.urls import include, path\n"),
        ("from django.urls import re_path, path\n", "from django.urls import include, path, re_path\n"),
        ("from django.urls import (\n    path,\n)\n", "from django.urls import (\n    path,\n)\n" + INCLUDE),
        ("from django.urls import path  # ours\n", "from django.urls import path  # ours\n" + INCLUDE),
        ("from django.urls import include, path\n", "from django.urls import include, path\n"),
        (
            "from django.conf.urls import include\n",
            "from django.conf.urls import include\nfrom django.urls import path\n",
        ),
        ('"""Doc."""\n', f'"""Doc."""\n{BOTH}'),
        ("#!x\n\n", f"#!x\n\n{BOTH}"),
        ("", BOTH),
        ("import a\nimport b\n\nx = 1\nimport c\n", f"import a\nimport b\n{BOTH}\nx = 1\nimport c\n"),
    ],
)
def test_imports_go_to_those_at_the_top(head: str, after: str) -> None:
    assert urls(f"{head}urlpatterns = []\n") == f"{after}urlpatterns = [{ENTRY}]\n"


def test_a_setting_goes_to_the_end_and_its_import_to_the_top() -> None:
    head, rest = '"""Doc."""\n\nimport os\n', "\nINSTALLED_APPS = []\nDATABASES = {}"
    assert settings(head + rest) == f"{head}from payments_integration import conf\n{rest}\n\nX = conf\n"


@pytest.mark.parametrize("text", ["from .base import *\n", "from x import DATABASES, INSTALLED_APPS\n"])
def test_settings_may_come_from_another_module(text: str) -> None:
    assert settings(text).endswith("\n\nX = conf\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("class Dev:\n    INSTALLED_APPS = []\n    DATABASES = {}\n", "does not set INSTALLED_APPS"),
        ("INSTALLED_APPS = []\n", "does not set DATABASES"),
        ("INSTALLED_APPS = []\nDATABASES = {}\nconf = 1\n", "conf means something else"),
    ],
)
def test_settings_of_another_form_are_left_alone(text: str, why: str) -> None:
    with pytest.raises(NotUnderstood, match=why):
        settings(text)


def test_variables_are_added_and_none_is_changed() -> None:
    wanted = {"A": "1", "B": "2", "C": "3", "D": "4"}
    before = "A=mine\nexport B = 'mine'\n# D=4\nC=\nE=5"
    after = "A=mine\nexport B = 'mine'\n# D=4\nC=3\nE=5\n# Why\nD=4\n"
    assert project_files.with_variables(before, wanted, comment="Why") == after
    assert project_files.with_variables(after, wanted, comment="Why") == after
    assert project_files.variables_of(after) == {"A": "mine", "B": "mine", "C": "3", "D": "4", "E": "5"}


def test_a_file_keeps_its_line_ends_its_permissions_and_its_link(tmp_path: Path) -> None:
    file, link = tmp_path / "real.py", tmp_path / "link.py"
    file.write_bytes(b"urlpatterns = [\r\n    1,\r\n]\r\n")
    file.chmod(0o640)
    link.symlink_to(file)
    project_files.change(link, lambda text: text.replace("1,\n", "1,\n    2,\n"))
    assert link.is_symlink()
    assert file.read_bytes() == b"urlpatterns = [\r\n    1,\r\n    2,\r\n]\r\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert runpy.run_path(str(file))["urlpatterns"] == [1, 2]
    assert sorted(os.listdir(tmp_path)) == ["link.py", "real.py"]


@pytest.mark.parametrize(
    ("raw", "why"), [(b"x = '\xe9'\n", "not UTF-8"), (b"a\r\nb\n", "different ways"), (b"a\rb\n", "different ways")]
)
def test_a_file_of_unknown_bytes_is_left_alone(tmp_path: Path, raw: bytes, why: str) -> None:
    (file := tmp_path / "urls.py").write_bytes(raw)
    with pytest.raises(NotUnderstood, match=why):
        project_files.change(file, lambda text: text + "x\n")
    assert file.read_bytes() == raw


def test_nothing_that_does_not_compile_is_written(tmp_path: Path) -> None:
    (file := tmp_path / "urls.py").write_text("x = 1\n")
    with pytest.raises(NotUnderstood, match="not valid Python"):
        project_files.change(file, lambda text: text + "y = (\n")
    assert file.read_text() == "x = 1\n"


def test_a_write_that_fails_leaves_the_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file := tmp_path / "a.txt").write_text("x\n")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        project_files.change(file, lambda text: text + "y\n")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["x\n"]


def test_only_its_owner_reads_new_secrets(tmp_path: Path) -> None:
    project_files.change(tmp_path / ".env", lambda _: "A=1\n")
    project_files.change(tmp_path / "a.py", lambda _: "a = 1\n")
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "a.py").stat().st_mode & 0o777 == 0o644


HEAD = "from django.db import models\n"
IMPORTED = f"{HEAD}from payments_integration.payable import Payable\n"
LINE = 'merchant_reference_field = "id"'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("class A(models.Model):\n    x = 1\n", "class A(Payable):\n    {}\n\n    x = 1\n"),
        ('class A(models.Model):\n  """Ä."""\n\n  x = 1\n', 'class A(Payable):\n  """Ä."""\n\n  {}\n\n  x = 1\n'),
        ("class B(models.Model):\n    y = 1\nclass A(models.Model):  # é\n    @p\n    def f(self): ...\n",
         "class B(models.Model):\n    y = 1\nclass A(Payable):  # é\n    {}\n\n    @p\n    def f(self): ...\n"),
        ("class A(Payable):\n    x = 1\n", "class A(Payable):\n    {}\n\n    x = 1\n"),
    ],
)  # fmt: skip
def test_a_model_becomes_a_payable(before: str, after: str) -> None:
    is_payable = "Payable" in before
    text = (IMPORTED if is_payable else HEAD) + before
    assert project_files.with_payable(text, "A", [LINE], is_payable=is_payable) == IMPORTED + after.format(LINE)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("class A(Base):\n    x = 1\n", "other base classes"),
        ("class A(Mixin, models.Model):\n    x = 1\n", "other base classes"),
        ("class A(models.Model): pass\n", "in one line"),
        ("if True:\n    class A(models.Model):\n        x = 1\n", "exactly once"),
        ("class A(models.Model):\n    x = 1\nPayable = 1\n", "the name Payable means something else"),
    ],
)
def test_a_model_of_another_form_is_left_alone(text: str, why: str) -> None:
    with pytest.raises(NotUnderstood, match=why):
        project_files.with_payable(HEAD + text, "A", [LINE])
