"""Add lines to a project's own files. All other bytes stay, and Python is compiled before it is written."""

from __future__ import annotations

import ast
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

Edit = Callable[[str], str]

#: Other modules that offer the same names.
ALIASES = {"django.urls": ("django.urls.conf", "django.conf.urls")}


class NotUnderstood(Exception):
    """The file has a form that cannot be changed safely. The message says why. Nothing was written."""


def change(path: Path, edit: Edit) -> None:
    """Replace the file atomically with what ``edit`` makes of its text. Raises NotUnderstood and OSError.

    ``edit`` gets and returns lines that end with "\\n". The file keeps its own line ends. A missing file is empty.
    """
    path = path.resolve()  # a link stays a link
    try:
        raw = path.read_bytes() if path.exists() else b""
        text = raw.decode()
    except UnicodeDecodeError:
        raise NotUnderstood("it is not UTF-8") from None
    windows = text.count("\r\n")
    if windows not in (0, text.count("\n")) or "\r" in text.replace("\r\n", ""):
        raise NotUnderstood("its lines end in different ways")
    edited = edit(text.replace("\r\n", "\n"))
    if path.suffix == ".py":
        _parsed(edited)
    _write(path, (edited.replace("\n", "\r\n") if windows else edited).encode())


def with_settings(text: str, lines: Iterable[str], *, imports: Mapping[str, str]) -> str:
    """Return a settings module with these lines at its end and with ``imports`` (name: module).

    The lines may change ``INSTALLED_APPS`` and ``DATABASES``. Raises NotUnderstood if the module does not set them.
    """
    bound = _bound(_parsed(text).body)
    for name in ("INSTALLED_APPS", "DATABASES"):
        if not {name, "*"} & bound:
            raise NotUnderstood(f"it does not set {name}")
    text = _with_imports(text, imports).rstrip("\n")
    return "\n".join([text, "", *lines, ""])


def with_url(text: str, entry: str) -> str:
    """Return a URLconf with this call of ``path`` as the first entry of ``urlpatterns``. Raises NotUnderstood.

    As the first entry it stands above any pattern that matches everything.
    """
    patterns = _patterns(text)
    lines = text.split("\n")
    row = patterns.lineno - 1
    # The parser counts bytes, not characters.
    column = len(lines[row].encode()[: patterns.col_offset].decode()) + 1
    first = patterns.elts[0] if patterns.elts else None
    if first is not None and first.lineno > patterns.lineno:
        indent = re.match(r"\s*", lines[first.lineno - 1])
        lines.insert(row + 1, f"{indent[0] if indent else ''}{entry},")
    else:
        lines[row] = f"{lines[row][:column]}{entry}{', ' if first else ''}{lines[row][column:]}"
    text = _with_imports("\n".join(lines), {"include": "django.urls", "path": "django.urls"})
    above = [node for node in _parsed(text).body if node.lineno < _patterns(text).lineno]
    if not {"include", "path"} <= _bound(above):
        raise NotUnderstood("it imports include or path below urlpatterns")
    return text


def with_payable(text: str, name: str, lines: Iterable[str], *, is_payable: bool = False) -> str:
    """Return a module whose model of this name inherits from ``Payable``, with these lines first in its body.

    Only the base ``models.Model`` is replaced, because a model with other bases may get another manager. The text does
    not tell which class a name means, so ask the class itself first. If ``is_payable`` is True, the model inherits
    from ``Payable`` already and keeps its bases. Raises NotUnderstood.
    """
    found = [node for node in _parsed(text).body if isinstance(node, ast.ClassDef) and node.name == name]
    if len(found) != 1:
        raise NotUnderstood(f"it does not define {name} exactly once")
    [model] = found
    lines_of = text.split("\n")
    bases = [ast.unparse(base) for base in model.bases]
    first = model.body[1] if len(model.body) > 1 and ast.get_docstring(model) is not None else model.body[0]
    if first.lineno == model.lineno:
        raise NotUnderstood(f"the body of {name} stands in one line with its name")
    row = min(item.lineno for item in (first, *getattr(first, "decorator_list", []))) - 1
    lines_of[row:row] = [*(f"{' ' * first.col_offset}{line}" for line in lines), ""]
    if is_payable:
        return "\n".join(lines_of)
    if bases not in (["models.Model"], ["Model"]) or model.bases[0].lineno != model.bases[0].end_lineno:
        raise NotUnderstood(f"{name} has other base classes than models.Model")
    [base] = model.bases
    raw = lines_of[base.lineno - 1].encode()
    lines_of[base.lineno - 1] = (raw[: base.col_offset] + b"Payable" + raw[base.end_col_offset :]).decode()
    return _with_imports("\n".join(lines_of), {"Payable": "payments_integration.payable"})


def binds(text: str, name: str) -> bool:
    """Return True if the module gives this name a value. False if it is not valid Python."""
    return name in _bound(_body(text))


def sets(text: str, name: str, value: str) -> bool:
    """Return True if the module gives this name this value, as a literal."""
    return any(isinstance(node, ast.Assign) and ast.unparse(node) == f"{name} = {value!r}" for node in _body(text))


def with_variables(text: str, variables: Mapping[str, str], *, comment: str) -> str:
    """Return a file ``.env`` with these variables. A variable that has a value keeps it."""
    added = []
    for name, value in variables.items():
        line = re.compile(rf"^([ \t]*(?:export[ \t]+)?{name}[ \t]*=)[ \t'\"]*$", re.MULTILINE)
        if name in variables_of(text):
            continue
        if line.search(text):
            # The first of two lines counts, so fill in an empty line instead of adding another.
            text = line.sub(lambda match, value=value: match[1] + value, text, count=1)  # type: ignore[misc]
        else:
            added.append(f"{name}={value}")
    if not added:
        return text
    return "\n".join([*([text.rstrip("\n")] if text else []), f"# {comment}", *added, ""])


def with_changed_variables(text: str, variables: Mapping[str, str]) -> str:
    """Return a file ``.env`` with new values for these variables, which it already has."""
    for name, value in variables.items():
        line = re.compile(rf"^([ \t]*(?:export[ \t]+)?{name}[ \t]*=).*$", re.MULTILINE)
        text = line.sub(lambda match, value=value: match[1] + value, text)  # type: ignore[misc]
    return text


def variables_of(text: str) -> dict[str, str]:
    """Return the variables of a file ``.env`` that are not empty."""
    pairs = re.findall(r"^[ \t]*(?:export[ \t]+)?(\w+)[ \t]*=[ \t]*(.*)$", text, re.MULTILINE)
    return {name: value for name, raw in pairs if (value := raw.strip().strip("'\""))}


def _parsed(text: str) -> ast.Module:
    try:
        compile(text, "<file>", "exec", dont_inherit=True)
        return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise NotUnderstood(f"it is not valid Python: {error}") from None


def _body(text: str) -> list[ast.stmt]:
    try:
        return _parsed(text).body
    except NotUnderstood:
        return []


def _patterns(text: str) -> ast.List:
    """Return the list that ``urlpatterns`` begins with. Raises NotUnderstood if there is none."""
    found = [
        node.value for node in _parsed(text).body if isinstance(node, ast.Assign | ast.AnnAssign) and _is_urls(node)
    ]
    if len(found) != 1:
        raise NotUnderstood("it does not assign urlpatterns exactly once")
    patterns = found[0]
    while isinstance(patterns, ast.BinOp):  # [...] + static(...)
        patterns = patterns.left
    if not isinstance(patterns, ast.List):
        raise NotUnderstood("its urlpatterns do not begin with a list; write urlpatterns = [this path] + …")
    return patterns


def _is_urls(node: ast.Assign | ast.AnnAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(target, ast.Name) and target.id == "urlpatterns" for target in targets)


def _with_imports(text: str, imports: Mapping[str, str]) -> str:
    """Return the module with these names imported at its top. Raises NotUnderstood if a name means something else."""
    for name, module in imports.items():
        tree = _parsed(text)
        nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom) and not node.level]
        if any(node.module in (module, *ALIASES.get(module, ())) and _gives(node, name) for node in nodes):
            continue
        if name in _bound(tree.body):
            raise NotUnderstood(f"the name {name} means something else in it")
        text = _with_import(text, tree, name, module)
    return text


def _gives(node: ast.ImportFrom, name: str) -> bool:
    return any(alias.name == name and alias.asname in (None, name) for alias in node.names)


def _with_import(text: str, tree: ast.Module, name: str, module: str) -> str:
    lines = text.split("\n")
    row = 0
    for node in tree.body:
        if (
            isinstance(node, ast.ImportFrom)
            and node.module == module
            and re.fullmatch(rf"from {re.escape(module)} import \w+(, \w+)*", lines[node.lineno - 1])
        ):
            names = sorted([*(alias.name for alias in node.names), name])
            lines[node.lineno - 1] = f"from {module} import {', '.join(names)}"
            return "\n".join(lines)
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not isinstance(node, ast.Import | ast.ImportFrom):
            # Without imports, insert above the first statement and its decorators.
            row = row or min(item.lineno for item in (node, *getattr(node, "decorator_list", []))) - 1
            break
        row = node.end_lineno or node.lineno
    lines.insert(row, f"from {module} import {name}")
    return "\n".join(lines)


def _bound(body: Iterable[ast.AST]) -> set[str]:
    """Return the names that the statements of a module give a value, and ``*`` if it imports a star."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif not isinstance(node, ast.Lambda):
            found |= _bound(ast.iter_child_nodes(node))
    return found


def _write(path: Path, content: bytes) -> None:
    """Write the file completely or not at all, with the permissions that it had."""
    mode = path.stat().st_mode & 0o777 if path.exists() else None
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        # A new file is readable like any other new file, except ``.env``, which holds secrets.
        Path(name).chmod(mode if mode is not None else 0o600 if path.name == ".env" else 0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
