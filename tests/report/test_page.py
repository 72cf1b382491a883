"""The page as a reader sees it: on a phone, on a screen, on paper, by day and by night."""

import json
import re
import shutil
import subprocess

import pytest

from dana.report.svg import COLOURS
from dana.stages.report import compare_stage, report_stage

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# What a browser makes of the page, told to the page around it: a window itself is never narrower than 500 pixels.
MEASURE = """<script>
addEventListener("load", () => {
  const box = element => element.getBoundingClientRect();
  const all = chosen => [...document.querySelectorAll(chosen)];
  const style = getComputedStyle(document.body);
  parent.postMessage(JSON.stringify({
    width: innerWidth,
    scrolls: document.documentElement.scrollWidth,
    verdict: box(document.querySelector("h1")).bottom,
    numbers: Math.max(...all("ul.numbers li").map(item => box(item).bottom)),
    ink: style.color, page: style.backgroundColor,
    letters: Math.min(...all("svg text").map(text => box(text).height)),
    hidden: all("details .table").filter(table => !table.checkVisibility({contentVisibilityAuto: true})).length,
    clipped: all(".table, pre").filter(part => part.scrollWidth > part.clientWidth + 1).length,
  }), "*");
});
</script>"""
AROUND = """<!DOCTYPE html><meta name="color-scheme" content="light dark"><title></title>
<script>addEventListener("message", event => { document.title = event.data; });</script>
<iframe src="measured.html" style="border: 0; width: %dpx; height: 800px"></iframe>"""


@pytest.fixture
def page(whole_run):
    (whole_run / "settings.yaml").write_text("weigh:\n  beta: 0.2\n" + f"task: {'long/' * 60}\n")
    return report_stage(whole_run)


def test_the_verdict_comes_first_and_tables_scroll_in_themselves(page):
    html = page.read_text(encoding="utf-8")
    body = html.split("<body>")[1]
    assert body.index("<h1>") < body.index('<ul class="numbers">') < body.index("<section")
    assert 'name="viewport" content="width=device-width, initial-scale=1"' in html
    assert len(re.findall(r'<div class="table">\s*<table>', body)) == body.count("<table>") > 8
    assert re.search(r"^\.table \{[^}]*overflow-x: auto", html, re.M)
    assert re.search(r"^pre \{[^}]*overflow: auto", html, re.M)
    for svg in re.findall(r"<svg [^>]*>", body):
        assert "viewBox" in svg
        assert not re.search(r'\b(width|height)="', svg), "as wide as its column"
        assert float(re.search(r"max-width: ([\d.]+)in", svg)[1]) <= 4.6, "letters shrink with the figure"


def test_every_colour_has_a_value_by_day_and_by_night(page):
    day, night = re.findall(r":root \{(.*?)\}", page.read_text(encoding="utf-8"), re.S)
    values = [dict(re.findall(r"--([\w-]+): (#\w{6})", scheme)) for scheme in (day, night)]
    assert values[0].keys() == values[1].keys() >= COLOURS.keys()
    for name, colour in COLOURS.items():
        assert values[0][name] == colour
    for scheme in values:
        for text in ("ink", "soft"):
            assert contrast(scheme[text], scheme["page"]) > 4.5
            assert contrast(scheme[text], scheme["panel"]) > 4.5
        for mark in COLOURS.keys() - {"ink", "rule"}:
            assert contrast(scheme[mark], scheme["page"]) > 2, mark


def contrast(first, second):
    """Contrast ratio of two colours (WCAG 2.2)."""

    def luminance(colour):
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def measured(page, width, dark=False, paper=False):
    """The page's measures in a frame of 800 pixels' height."""
    html = page.read_text(encoding="utf-8").replace("</body>", f"{MEASURE}</body>")
    copy = page.with_name("measured.html")
    copy.write_text(html.replace("@media print", "@media all") if paper else html, encoding="utf-8")
    around = page.with_name("around.html")
    around.write_text(AROUND % width, encoding="utf-8")
    said = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1300,900", "--dump-dom",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}", around.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return json.loads(re.search(r"<title>(.*?)</title>", said.stdout)[1].replace("&gt;", ">").replace("&lt;", "<"))


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize("width", [400, 1200])
def test_in_a_browser_the_page_never_scrolls_sideways_and_the_answer_is_on_the_first_screen(page, width):
    seen = measured(page, width)
    assert seen["width"] == width
    assert seen["scrolls"] <= width
    assert seen["verdict"] < 400
    assert seen["numbers"] < 800
    assert seen["letters"] > 7
    night = measured(page, width, dark=True)
    assert (seen["page"], night["page"]) == ("rgb(255, 255, 255)", "rgb(20, 23, 26)")
    assert (seen["ink"], night["ink"]) == ("rgb(27, 31, 36)", "rgb(230, 232, 234)")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_on_paper_nothing_is_folded_and_nothing_is_cut_off(page):
    assert measured(page, 1200)["hidden"] > 0
    paper = measured(page, 720, paper=True)  # A4 within its margins
    assert paper["hidden"] == 0
    assert paper["clipped"] == 0


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_comparison_fits_a_phone_too(page, write, tmp_path):
    write["results"](tmp_path / "another")
    seen = measured(compare_stage([page.parent, tmp_path / "another"], tmp_path / "out"), 400)
    assert seen["scrolls"] <= 400
    assert seen["numbers"] < 800
