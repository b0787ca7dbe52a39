"""Names of types and properties, made from the names of files and columns."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection

_TOKEN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[A-Z]+")
_RESERVED = frozenset({"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"})
_IRREGULAR = {"people": "person", "children": "child", "men": "man", "women": "woman", "movies": "movie"}
_NO_PLURAL = ("ss", "us", "is", "news", "series", "species")


_LETTERS = str.maketrans({"ß": "ss", "ø": "o", "Ø": "O", "æ": "ae", "Æ": "Ae", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D"})


def _latin(name: str) -> str:
    """The name without accents, because names in a schema are ASCII."""
    if name.isascii():
        return name
    letters = unicodedata.normalize("NFKD", name.translate(_LETTERS))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def tokens(name: str) -> list[str]:
    """The words of a name in lower case.

    >>> tokens("fromNodeID"), tokens("Person1Id"), tokens("ORDER_ID"), tokens("Länder code")
    (['from', 'node', 'id'], ['person', '1', 'id'], ['order', 'id'], ['lander', 'code'])
    """
    return [word.lower() for word in _TOKEN.findall(_latin(name))]


def singular(word: str) -> str:
    """The singular of an English word, by its ending.

    >>> singular("movies"), singular("cities"), singular("addresses"), singular("status"), singular("boxes")
    ('movie', 'city', 'address', 'status', 'box')
    """
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith(_NO_PLURAL) or not word.endswith("s") or len(word) < 3:
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    return word[:-1]


def table_words(stem: str) -> list[str]:
    """The words of the name of a table, without numbers of parts at the end: `person_0_0`."""
    words = tokens(stem)
    while len(words) > 1 and words[-1].isdigit():
        words.pop()
    return words or ["row"]


def type_name(stem: str, *, plural: bool = False) -> str:
    """The name of a type.

    >>> type_name("movies"), type_name("order_details", plural=True), type_name("2019-flights")
    ('Movie', 'OrderDetails', 'T2019Flight')
    """
    words = table_words(stem)
    if not plural:
        words[-1] = singular(words[-1])
    name = "".join(word.capitalize() for word in words)
    return name if name[0].isalpha() else f"T{name}"


def property_name(column: str, taken: Collection[str], reserved: Collection[str] = ()) -> str:
    """The name of the property of a column: the name of the column where that is allowed.

    >>> property_name("full name", []), property_name("ID", ["id"]), property_name("Age", []), property_name("2nd", [])
    ('full_name', 'id_2', 'age', '_2nd')
    >>> property_name("Customer ID", []), property_name("E-Mail", []), property_name("CreatorPersonId", [])
    ('customer_id', 'e_mail', 'creatorPersonId')
    """
    name = re.sub(r"[^A-Za-z0-9_]+", "_", _latin(column)).strip("_") or "column"
    name = "_".join(part.lower() if part.isupper() else part[:1].lower() + part[1:] for part in name.split("_"))
    if not re.match(r"[a-z_]", name):
        name = f"_{name}"
    if name in reserved or name in _RESERVED:
        name += "_"
    first, number = name, 2
    while name in taken:
        name, number = f"{first}_{number}", number + 1
    return name


def unique_name(name: str, taken: Collection[str]) -> str:
    """A name that is not yet in use, also if case is ignored."""
    folded = {each.lower() for each in taken}
    first, number = name, 2
    while name.lower() in folded:
        name, number = f"{first}{number}", number + 1
    return name
