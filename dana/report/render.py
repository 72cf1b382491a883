"""A report as one self-contained HTML file and as Markdown."""

from pathlib import Path

from dana.report.sections import Report


def to_html(report: Report) -> str:
    """A page with its drawings and styles inside: light, dark and paper, no script."""
    return _fill("report.html.jinja", report, escape=True)


def to_markdown(report: Report) -> str:
    """The same words and tables, without the drawings."""
    return _fill("report.md.jinja", report, escape=False)


def _fill(template: str, report: Report, escape: bool) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["drawing"] = Markup  # ours, with its text escaped by svg.inline
    environment.filters["plain"] = markdown_text
    return environment.get_template(template).render(report=report)


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, also within a table: its marks escaped, on one line."""
    escaped = "".join(f"\\{letter}" if letter in r"\`*_{}[]<>#|~$" else letter for letter in text)
    return " ".join(escaped.split())
