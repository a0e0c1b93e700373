"""Reader of the manifest: `tomllib` of Python 3.11 and later, and on 3.10 a small reader of the same form.

The small reader knows all of TOML that a manifest can contain: tables, arrays of tables, inline tables, dotted keys,
all forms of texts, integers, floats, booleans and arrays. It has no dates and times, which no key of a manifest takes.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from .errors import ManifestError

if sys.version_info >= (3, 11):
    import tomllib

    def parse_toml(text: str) -> dict[str, Any]:
        """Table of a TOML document; raises `ManifestError` with the place of a mistake."""
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ManifestError(str(error)) from None

else:

    def parse_toml(text: str) -> dict[str, Any]:
        """Table of a TOML document; raises `ManifestError` with the place of a mistake."""
        return TomlReader(text).document()


_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_NUMBER = re.compile(
    r"[+-]?(?:0x[0-9A-Fa-f_]+|0o[0-7_]+|0b[01_]+|(?:inf|nan)|[0-9][0-9_]*(?:\.[0-9][0-9_]*)?(?:[eE][+-]?[0-9_]+)?)"
)
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}


class TomlReader:
    """Recursive-descent reader of one document."""

    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._position = 0
        self._root: dict[str, Any] = {}
        self._defined: set[tuple[Any, ...]] = set()
        self._closed: set[int] = set()

    def document(self) -> dict[str, Any]:
        """The table of the whole document."""
        table = self._root
        while True:
            self._skip(lines=True)
            if self._position >= len(self._text):
                return self._root
            if self._peek() == "[":
                table = self._header()
            else:
                self._pair(table)
            self._end_line()

    def _error(self, message: str) -> ManifestError:
        before = self._text[: self._position]
        return ManifestError(
            f"{message} (at line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))})"
        )

    def _peek(self, length: int = 1) -> str:
        return self._text[self._position : self._position + length]

    def _skip(self, lines: bool = False) -> None:
        while self._position < len(self._text):
            letter = self._peek()
            if letter in " \t" or (lines and letter == "\n"):
                self._position += 1
            elif letter == "#":
                end = self._text.find("\n", self._position)
                self._position = len(self._text) if end < 0 else end
            else:
                return

    def _expect(self, text: str) -> None:
        if self._peek(len(text)) != text:
            raise self._error(f"expected {text!r}")
        self._position += len(text)

    def _end_line(self) -> None:
        self._skip()
        if self._position < len(self._text) and self._peek() != "\n":
            raise self._error("expected the end of the line")

    def _header(self) -> dict[str, Any]:
        is_array = self._peek(2) == "[["
        self._expect("[[" if is_array else "[")
        self._skip()
        keys = self._keys()
        self._skip()
        self._expect("]]" if is_array else "]")
        parent = self._descend(self._root, keys[:-1])
        last = keys[-1]
        if is_array:
            tables = parent.setdefault(last, [])
            if not isinstance(tables, list) or id(tables) in self._closed:
                raise self._error(f"{'.'.join(keys)} is not an array of tables")
            tables.append({})
            return tables[-1]  # type: ignore[no-any-return]
        table = parent.setdefault(last, {})
        if not isinstance(table, dict) or id(table) in self._closed:
            raise self._error(f"{'.'.join(keys)} is defined twice")
        if (id(table),) in self._defined:
            raise self._error(f"the table {'.'.join(keys)} is defined twice")
        self._defined.add((id(table),))
        return table

    def _descend(self, table: dict[str, Any], keys: list[str]) -> dict[str, Any]:
        for key in keys:
            value = table.setdefault(key, {})
            if isinstance(value, list) and value and id(value) not in self._closed:
                value = value[-1]
            if not isinstance(value, dict) or id(value) in self._closed:
                raise self._error(f"{key} is not a table")
            table = value
        return table

    def _pair(self, table: dict[str, Any]) -> None:
        keys = self._keys()
        self._skip()
        self._expect("=")
        self._skip()
        value = self._value()
        parent = self._descend(table, keys[:-1])
        if keys[-1] in parent:
            raise self._error(f"{'.'.join(keys)} is defined twice")
        parent[keys[-1]] = value

    def _keys(self) -> list[str]:
        keys = []
        while True:
            if self._peek() in ('"', "'"):
                keys.append(self._text_value())
            else:
                match = _BARE_KEY.match(self._text, self._position)
                if match is None:
                    raise self._error("expected a key")
                keys.append(match.group())
                self._position = match.end()
            self._skip()
            if self._peek() != ".":
                return keys
            self._position += 1
            self._skip()

    def _value(self) -> Any:
        letter = self._peek()
        if letter and letter in "\"'":
            return self._text_value()
        if letter == "[":
            return self._array()
        if letter == "{":
            return self._inline_table()
        for word, value in (("true", True), ("false", False)):
            if self._peek(len(word)) == word:
                self._position += len(word)
                return value
        match = _NUMBER.match(self._text, self._position)
        if match is None:
            raise self._error("expected a value")
        self._position = match.end()
        word = match.group().replace("_", "")
        if self._peek() in ("-", ":", "T"):
            raise self._error("dates and times are not supported")
        if re.fullmatch(r"[+-]?[0-9]+", word):
            return int(word)
        if re.fullmatch(r"0[xob].*", word):
            return int(word, 0)
        return float(word)

    def _array(self) -> list[Any]:
        self._expect("[")
        items: list[Any] = []
        while True:
            self._skip(lines=True)
            if self._peek() == "]":
                break
            items.append(self._value())
            self._skip(lines=True)
            if self._peek() != ",":
                break
            self._position += 1
        self._expect("]")
        self._closed.add(id(items))
        return items

    def _inline_table(self) -> dict[str, Any]:
        self._expect("{")
        table: dict[str, Any] = {}
        self._skip()
        while self._peek() != "}":
            self._pair(table)
            self._skip()
            if self._peek() != ",":
                break
            self._position += 1
            self._skip()
        self._expect("}")
        self._closed.add(id(table))
        return table

    def _text_value(self) -> str:
        quote = self._peek()
        is_long = self._peek(3) == quote * 3
        end_mark = quote * 3 if is_long else quote
        self._position += len(end_mark)
        if is_long and self._peek() == "\n":
            self._position += 1
        letters: list[str] = []
        while True:
            letter = self._peek()
            if not letter or (letter == "\n" and not is_long):
                raise self._error("the text has no end")
            if self._peek(len(end_mark)) == end_mark:
                self._position += len(end_mark)
                while is_long and self._peek() == quote:  # up to two quotes before the end belong to the text
                    letters.append(quote)
                    self._position += 1
                return "".join(letters)
            self._position += 1
            letters.append(self._escape(is_long) if letter == "\\" and quote == '"' else letter)

    def _escape(self, is_long: bool) -> str:
        letter = self._peek()
        self._position += 1
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter and letter in "uU":
            length = 4 if letter == "u" else 8
            digits = self._peek(length)
            if not re.fullmatch(rf"[0-9A-Fa-f]{{{length}}}", digits):
                raise self._error("the escape is not valid")
            self._position += length
            return chr(int(digits, 16))
        if is_long and letter and letter in " \t\n":
            self._position -= 1
            match = re.compile(r"[ \t]*\n\s*").match(self._text, self._position)
            if match is not None:
                self._position = match.end()
                return ""
        raise self._error("the escape is not valid")
