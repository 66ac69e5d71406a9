"""A Markdown extension: $formulas$ as MathML, which browsers draw by themselves, offline.

Inline `$...$`, and paragraphs of their own between `$$`, as code hosts write them too.
"""

import re
from xml.etree.ElementTree import Element, SubElement

from markdown import Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.util import AtomicString
from math_core import LatexError, LatexToMathML

_INLINE = r"(?<![\\$\w])\$(?=[^\s$])((?:[^$\\]|\\.)+?)(?<!\s)\$(?![\w$])"


_CONVERTER = LatexToMathML(fancy_error=False)


def as_mathml(formula: str, *, display: bool = False) -> str:
    r"""The formula as MathML; a `ValueError` that quotes it, if it is not understood.

    >>> as_mathml("x^2")
    '<math><msup><mi>x</mi><mn>2</mn></msup></math>'
    """
    try:
        return _CONVERTER.convert_with_local_state(formula, displaystyle=display)
    except LatexError as problem:
        raise ValueError(f"the formula {formula!r}: {problem}") from problem


class Inline(InlineProcessor):
    """`$...$` within a line."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:  # noqa: N802
        return self.md.htmlStash.store(as_mathml(m[1])), m.start(0), m.end(0)


class Block(BlockProcessor):
    """A paragraph that begins and ends with `$$`."""

    def test(self, parent: Element, block: str) -> bool:
        text = block.strip()
        return len(text) > 4 and text.startswith("$$") and text.endswith("$$")

    def run(self, parent: Element, blocks: list[str]) -> None:
        formula = blocks.pop(0).strip().removeprefix("$$").removesuffix("$$").strip()
        stashed = self.parser.md.htmlStash.store(as_mathml(formula, display=True))
        SubElement(parent, "div", {"class": "formula"}).text = AtomicString(stashed)


class MathML(Extension):
    """Both of them."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.inlinePatterns.register(Inline(_INLINE, md), "mathml", 185)  # code first, then escapes
        md.parser.blockprocessors.register(Block(md.parser), "mathml", 75)


def makeExtension(**options: object) -> MathML:  # noqa: N802
    """The name by which Markdown asks."""
    return MathML(**options)
