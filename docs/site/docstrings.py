"""What the API pages know beyond plain docstrings (a Griffe extension). It reads the source and imports nothing of it.

- ``#:`` comments above an attribute are its docstring.
- The fields of a model and the values of a choice stand in a table in their class.
- A function under ``@service(Model)`` returns the model, and the default account is named.
- Sphinx roles become code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import griffe

_ROLE = re.compile(r":(?:func|class|meth|data|mod|attr):`~?([^`]+)`")
_TYPES = {
    "BigIntegerField": "int",
    "BinaryField": "bytes",
    "BooleanField": "bool",
    "CharField": "str",
    "DateField": "date",
    "DateTimeField": "datetime",
    "ExactCharField": "str",
    "FloatField": "float",
    "JSONField": "JSON",
    "PositiveBigIntegerField": "int",
    "PositiveIntegerField": "int",
    "TextField": "str",
}
_KEYS = {"ForeignKey", "SameAccountKey", "OneToOneField"}


class Extension(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if isinstance(obj, griffe.Attribute) and obj.docstring is None and (text := _comment(obj)):
            obj.docstring = griffe.Docstring(text, parent=obj)
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(r"`\1`", obj.docstring.value)

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        for decorator in func.decorators:
            call = decorator.value
            if isinstance(call, griffe.ExprCall) and call.canonical_path.endswith(".service.service"):
                result = call.arguments[0]
                func.returns = "None" if str(result) == "type(None)" else result
        for parameter in func.parameters:
            if str(parameter.default) == "conf.DEFAULT_ACCOUNT":
                parameter.default = '"default"'

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        if any(str(base).endswith("TextChoices") for base in cls.bases):
            _append(cls, griffe.DocstringSectionText("\n".join(_choices(cls))))
        elif "models" in cls.path.split(".") and (rows := list(_fields(cls))):
            _append(cls, griffe.DocstringSectionAttributes(rows, title="Fields:"))


def _append(cls: griffe.Class, section: griffe.DocstringSection) -> None:
    if cls.docstring is None:
        cls.docstring = griffe.Docstring("", parent=cls)
    text = [part for part in cls.docstring.parsed if part.value]
    # A cached property: the sections are parsed once.
    cls.docstring.__dict__["parsed"] = [*text, section]


def _attributes(cls: griffe.Class) -> dict[str, griffe.Attribute]:
    """Those of the class itself, not inherited ones."""
    return {name: member for name, member in cls.members.items() if isinstance(member, griffe.Attribute)}


def _comment(attribute: griffe.Attribute) -> str:
    """The ``#:`` lines directly above."""
    if attribute.lineno is None:
        return ""
    lines = attribute.lines_collection[attribute.filepath]
    found: list[str] = []
    for line in reversed(lines[: attribute.lineno - 1]):
        if not line.strip().startswith("#:"):
            break
        found.append(line.strip().removeprefix("#:").strip())
    return "\n".join(reversed(found))


def _fields(cls: griffe.Class) -> Iterator[griffe.DocstringAttribute]:
    for member in _attributes(cls).values():
        call = member.value
        if not isinstance(call, griffe.ExprCall):
            continue
        kind = str(call.function).rpartition(".")[2]
        arguments = [str(argument) for argument in call.arguments]
        if member.annotation is not None and not str(member.annotation).startswith("models."):
            yield _row(member, str(member.annotation))
            continue
        if kind in _KEYS:
            shown = arguments[0].strip("'\"").rpartition(".")[2]
        elif kind in _TYPES:
            shown = _TYPES[kind]
        else:
            continue
        if "null=True" in arguments:
            shown += " | None"
        yield _row(member, shown)


def _row(field: griffe.Attribute, shown: str) -> griffe.DocstringAttribute:
    text = field.docstring.value if field.docstring else _comment(field)
    return griffe.DocstringAttribute(field.name, annotation=shown, description=_ROLE.sub(r"`\1`", text))


def _choices(cls: griffe.Class) -> Iterator[str]:
    """A table of the members, which are written ``NAME = "value", _("label")``."""
    yield "| value | name | meaning |\n|---|---|---|"
    for name, member in _attributes(cls).items():
        parsed = ast.parse(str(member.value), mode="eval").body
        if isinstance(parsed, ast.Tuple):
            value = ast.literal_eval(parsed.elts[0])
            label = [node.value for node in ast.walk(parsed.elts[1]) if isinstance(node, ast.Constant)][-1]
            yield f'| `"{value}"` | `{name}` | {label} |'
