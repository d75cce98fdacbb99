"""Docstrings and comments are plain English: the verb first, and none of the habits that made readers stumble."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

PACKAGE = Path(__file__).resolve().parents[2] / "payments_integration"
#: What not to write, and what to write instead.
HABITS = {
    r'^(?:"""|#:? )(?:Whether|Those|Of|Which)\b': "begin with a verb, or with True if",
    r"\b[Oo]f (?:which|whom)\b": "make it two sentences",
    r"\b[Tt]hose (?:of|that|who|whose|which|in|with|from|for)\b": "name them again",
    r"\bthat of\b": "name it again",
    r"\b[Ww]hether\b": "if",
    r"; returns\b": "a sentence: Returns …",
    r"\bany more\b": "no longer",
    r"\bso (?:long|many|few)\b": "this long, this many",
    r"\b[Aa]lso (?:if|when)\b": "even if",
    r"\b(?:[Nn]obody|[Ww]hoever|[Ww]hatever|[Bb]esides)\b": "name who or what",
}
#: A function's docstring says what it does: a noun or pronoun at its head does not.
NOUNS = frozenset({"A", "All", "An", "Each", "Every", "How", "It", "Its", "The", "These", "This", "What", "Why"})

FILES = sorted(file for file in PACKAGE.rglob("*.py") if "migrations" not in file.parts)


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Every comment and docstring on one line each, with the number of its first line."""
    block: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if block and (token.start[0], token.start[1]) != (block[-1].start[0] + 1, block[0].start[1]):
                yield block[0].start[0], joined(block)
                block = []
            block.append(token)
        elif token.type == tokenize.STRING and token.line.lstrip().startswith('"""'):
            yield token.start[0], " ".join(token.string.split())
    if block:
        yield block[0].start[0], joined(block)


def joined(block: list[tokenize.TokenInfo]) -> str:
    first, *others = (token.string for token in block)
    return " ".join([first, *(other.lstrip("#: ") for other in others)])


def functions(source: str) -> Iterator[tuple[int, str]]:
    """The docstrings of functions. A property is named like a value, so a noun may describe it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documentation = ast.get_docstring(node)
            if documentation and not any("property" in ast.unparse(each) for each in node.decorator_list):
                yield node.lineno, documentation


def test_no_comment_has_an_old_habit() -> None:
    found = [
        f"{file.relative_to(PACKAGE)}:{line}: {match[0]!r} → {better}"
        for file in FILES
        for line, text in texts(file.read_text())
        for habit, better in HABITS.items()
        for match in re.finditer(habit, text)
    ]
    assert not found, "\n".join(found)


def test_a_function_says_what_it_does() -> None:
    found = [
        f"{file.relative_to(PACKAGE)}:{line}: {documentation.splitlines()[0]}"
        for file in FILES
        for line, documentation in functions(file.read_text())
        if documentation.split()[0] in NOUNS
    ]
    assert not found, "\n".join(found)


def test_both_rules_see_a_break() -> None:
    source = dedent('''\
        """Whether."""

        def rows():
            """The rows, of
            which."""
            # not any
            # more
            return 1  # so long
        ''')
    seen = [habit for _, text in texts(source) for habit in HABITS if re.search(habit, text)]
    assert len(seen) == 5
    assert [documentation.split()[0] for _, documentation in functions(source)] == ["The"]
