"""Hooks of MkDocs: lexers, file names above blocks, copied examples, diagrams, and the list of decisions."""

# See docs/decisions/0355-the-site-is-built-from-installed-packages.md

from __future__ import annotations

import html
import re
import sys
from pathlib import Path
from typing import Any

from pygments.lexers import LEXERS

SCRIPTS = Path(__file__).resolve().parent
LANGUAGES = {".pg": "pg", ".gq": "gq", ".ndjson": "json", ".jsonl": "json", ".yaml": "yaml", ".py": "python"}
NAMED = re.compile(r"^( *)<!-- file: (\S+) -->\n\1```(\w+)$", re.MULTILINE)
SESSION = re.compile(r'<div class="language-(console|pycon) highlight">(.*?)</div>', re.DOTALL)
DIAGRAM = re.compile(r'<img alt="([^"]*)" src="[^"]*?diagrams/([\w-]+)\.svg" ?/?>')


def on_config(config: Any) -> Any:
    """Register the lexers, and list the decisions in the navigation."""
    if str(SCRIPTS) not in sys.path:
        sys.path.append(str(SCRIPTS))
    LEXERS["SchemaLexer"] = ("docs_lexers", "OmniGraph schema", ("pg",), ("*.pg",), ())
    LEXERS["QueryLexer"] = ("docs_lexers", "OmniGraph queries", ("gq",), ("*.gq",), ())
    config.nav = expanded(config.nav, Path(config.docs_dir))
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Show the name of a file above its block, in the colours of its language."""
    return NAMED.sub(_with_title, markdown)


def on_page_content(content: str, config: Any, **_: Any) -> str:
    """Copy commands without prompts and outputs, and show diagrams in the colours of the theme."""
    diagrams = Path(config.docs_dir) / "diagrams"
    return DIAGRAM.sub(
        lambda found: (
            f'<span class="diagram" role="img" aria-label="{found[1]}">'
            + (diagrams / f"{found[2]}.svg").read_text(encoding="utf-8")
            + "</span>"
        ),
        SESSION.sub(_with_copy, content),
    )


def typed(language: str, session: str) -> str:
    """The lines of a session that a user types, without prompts."""
    if language == "pycon":
        return "\n".join(re.findall(r"^(?:>>>|\.\.\.)(?: (.*)|$)", session, re.MULTILINE))
    commands = re.findall(r"^\$ ((?:.*\\\n)*.*)", session, re.MULTILINE)
    return "\n".join(commands)


def expanded(nav: Any, docs: Path) -> Any:
    """The navigation with each `directory/*.md` replaced by its pages, sorted by name, without the index."""
    if isinstance(nav, dict):
        return {title: expanded(entry, docs) for title, entry in nav.items()}
    if not isinstance(nav, list):
        return nav
    entries: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and "*" in entry:
            entries += [page.relative_to(docs).as_posix() for page in sorted(docs.glob(entry)) if page.stem != "index"]
        else:
            entries.append(expanded(entry, docs))
    return entries


def _with_title(found: re.Match[str]) -> str:
    indent, file, language = found.groups()
    language = LANGUAGES.get(Path(file).suffix, language)
    return f'{indent}```{language} title="{file}"'


def _with_copy(found: re.Match[str]) -> str:
    """The block with the text that its button copies."""
    language, block = found.groups()
    text = html.escape(typed(language, html.unescape(re.sub(r"<[^>]+>", "", block))))
    return f'<div class="language-{language} highlight" data-copy="{text}">{block}</div>'
