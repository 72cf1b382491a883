"""Text of a record made from several of its fields: ``{title} {body}`` and the fields' values to one string."""

from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter

from dana.core.config import require


@dataclass(frozen=True)
class Template:
    """A text with the places of fields in it.

    Attributes:
        parts: What stands as it is, each with the field that comes after it; None after the last.
    """

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def parse(cls, template: str) -> "Template":
        """Read ``{title} {body}``; ``{meta.title}`` is a field within another, ``{{`` a brace.

        Raises:
            ConfigError: If no field is named, or braces do not match.
        """
        allowed = "a text with fields in braces, as in '{title} {body}'"
        try:
            found = list(Formatter().parse(template))
        except ValueError:
            found = []
        named = [(name, spec, conversion) for _, name, spec, conversion in found if name is not None]
        good = bool(named) and all(name.strip() and not spec and not conversion for name, spec, conversion in named)
        require(good, "template", template, allowed)
        return cls(tuple((literal, name) for literal, name, _, _ in found))

    @classmethod
    def of_field(cls, name: str) -> "Template":
        """The text of a single field as it is."""
        return cls((("", name),))

    @property
    def fields(self) -> list[str]:
        """The fields that it names, each once."""
        return list(dict.fromkeys(name for _, name in self.parts if name is not None))

    def fill(self, values: Mapping[str, str]) -> str:
        """The text with the values of the fields in their places."""
        return "".join(literal + ("" if name is None else values[name]) for literal, name in self.parts)
