"""Elements of an XML file with their lines; nothing outside the file is ever read, and a DOCTYPE is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from tunescope.data.rows_of_file import content
from tunescope.errors import UserError


@dataclass
class Node:
    """An element: its name, attributes, line (from 1), children, and its own text without theirs."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Node] = field(default_factory=list)
    text: str = ""

    def all(self, tag: str) -> Iterator[Node]:
        """The elements of that name below this one, in the order of the file."""
        waiting = self.children[::-1]  # no recursion: a file may nest as deep as it likes
        while waiting:
            node = waiting.pop()
            if node.tag == tag:
                yield node
            waiting.extend(node.children[::-1])


def root(path: Path) -> Node:
    """The outermost element of a file, plain or gzipped.

    Raises:
        UserError: the file cannot be read, is not well formed, or has a DOCTYPE: entities declared there can grow
            without bound or name other files, and none of these corpora needs them.
    """
    top = Node("", {}, 0)
    open_nodes = [top]
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def start(tag: str, attributes: dict[str, str]) -> None:
        node = Node(tag, attributes, parser.CurrentLineNumber)
        open_nodes[-1].children.append(node)
        open_nodes.append(node)

    def text(data: str) -> None:
        open_nodes[-1].text += data

    def doctype(*_: object) -> NoReturn:
        raise UserError(
            f"{path} line {parser.CurrentLineNumber} has a DOCTYPE, which is not read here. Delete that declaration."
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: open_nodes.pop()
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = doctype
    given = content(path)
    try:
        parser.Parse(given, True)
    except expat.ExpatError as error:
        raise UserError(
            f"{path} line {error.lineno} is not XML: {expat.ErrorString(error.code)}. Take the file anew."
        ) from error
    except UserError:
        raise
    except (LookupError, ValueError) as error:
        raise UserError(f"{path} says an encoding that is not known ({error}). Take the file anew.") from error
    return top.children[0]
