"""Print a random sample of docstrings, comments, error messages and guide pages for a reader new to the code.

The reader marks every sentence that cannot be understood without the code. The goal is at most 2 of 100.

    python scripts/word_sample.py [SEED]
"""

from __future__ import annotations

import ast
import io
import random
import sys
import tokenize
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCSTRINGS_AND_COMMENTS = 60
MESSAGES = 20
PAGES = 6
_SHORTEST = 20
"""Comments and messages below this length, such as `# noqa`, are skipped."""


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield body[0].lineno, f"{getattr(node, 'name', 'module')}: {text}"
        for before, after in pairwise(body):
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if is_text and isinstance(before, ast.Assign | ast.AnnAssign):
                yield after.lineno, f"{ast.unparse(before)[:80]}: {after.value.value}"


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Comments of their own lines and at the ends of lines; adjacent lines are one comment."""
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.string.startswith(("# noqa", "# type:", "# See docs/")):
            continue
        line = token.start[0]
        if block and line != last + 1:
            yield first, " ".join(block)
            block = []
        if not block:
            first = line
        block.append(token.string.lstrip("# "))
        last = line
    if block:
        yield first, " ".join(block)


def _messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The texts of calls that create an error of the family: the message and the hint."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if not (name.endswith("Error") or name in ("fail", "problem")):
            continue
        texts = [*node.args, *(each.value for each in node.keywords if each.arg == "hint")]
        literals = [ast.unparse(text) for text in texts if isinstance(text, ast.Constant | ast.JoinedStr)]
        literals = [text for text in literals if len(text) > _SHORTEST]
        if literals:
            yield node.lineno, f"{name}: {' | '.join(literals)}"


def main() -> None:
    """Print the sample."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.SystemRandom().randrange(1_000_000)
    chance = random.Random(seed)
    prose: list[str] = []
    messages: list[str] = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        tree, place = ast.parse(source), path.relative_to(ROOT).as_posix()
        prose += [f"{place}:{line}: {text}" for line, text in _docstrings(tree)]
        prose += [f"{place}:{line}: # {text}" for line, text in _comments(source) if len(text) > _SHORTEST]
        messages += [f"{place}:{line}: {text}" for line, text in _messages(tree)]
    pages = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "guide").glob("*.md"))
    print(f"seed {seed}: {len(prose)} docstrings and comments, {len(messages)} messages, {len(pages)} guide pages")
    for title, texts, count in (
        ("Docstrings and comments", prose, DOCSTRINGS_AND_COMMENTS),
        ("Error messages", messages, MESSAGES),
        ("Guide pages", pages, PAGES),
    ):
        print(f"\n## {title}\n")
        for number, text in enumerate(chance.sample(texts, count), 1):
            print(f"{number}. {text}\n")


if __name__ == "__main__":
    main()
