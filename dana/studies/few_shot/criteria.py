"""Criteria that a model has named: its reply to the first turn, a list or paragraphs, to one line each."""

import re

_NUMBERED = re.compile(r"^\W*(?:criteri(?:on|um|a)\s*)?#?(\d{1,2})\s*[.):\-]", re.IGNORECASE)
_BULLET = re.compile(r"^\s*[-*\u2022]\s+")


def list_criteria(reply: str) -> list[str]:
    """The criteria in a reply: its numbered points, else its bullets, else its paragraphs but those ending in a colon.

    Args:
        reply: To a prompt that asks for criteria.

    Returns:
        A line each, without number and markdown, in their order; what stands before the first point is left out.
    """
    lines = reply.strip().splitlines()
    for mark in (_NUMBERED, _BULLET):
        if any(mark.match(line) for line in lines):
            points: list[list[str]] = []
            for line in lines:
                if mark.match(line):
                    points.append([mark.sub("", line, count=1)])
                elif points:
                    points[-1].append(line)
            return [_in_one_line(" ".join(point)) for point in points]
    paragraphs = [_in_one_line(part) for part in re.split(r"\n\s*\n", reply)]
    return [part for part in paragraphs if part and not part.endswith(":")]


def _in_one_line(text: str) -> str:
    return " ".join(re.sub(r"[*_`#]{1,3}", "", text).split())
