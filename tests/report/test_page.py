"""The page on a phone, on a screen and on paper, in light and dark colours."""

import json
import re
import shutil
import subprocess

import pytest

from dana.report.svg import COLOURS
from dana.stages.report import compare_stage, report_stage
from tests.report.conftest import write_results

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# Measures the page in a frame and reports to the page around it: a window is never narrower than
# 500 pixels.
MEASURE = """<script>
addEventListener("load", () => {
  const box = element => element.getBoundingClientRect();
  const all = selector => [...document.querySelectorAll(selector)];
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


def in_browser(test):
    return pytest.mark.slow(pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")(test))


@pytest.fixture(scope="module")
def page(shared_run, tmp_path_factory):
    run = shutil.copytree(shared_run, tmp_path_factory.mktemp("page") / "toy-run")
    (run / "recipe.yaml").write_text("weigh:\n  beta: 0.2\n" + f"task: {'long/' * 60}\n")
    return report_stage(run)


def test_the_verdict_comes_first_and_every_cell_names_its_column(page):
    html = page.read_text(encoding="utf-8")
    body = html.split("<body>")[1]
    assert body.index("<h1>") < body.index('<ul class="numbers">') < body.index("<section")
    assert 'name="viewport" content="width=device-width, initial-scale=1"' in html
    for table in re.findall(r"<table>.*?</table>", body, re.S):
        titles = re.findall(r"<th [^>]*>([^<]*)</th>", table)
        for row in re.findall(r"<tr[^>]*>(<td.*?)</tr>", table):
            assert re.findall(r'data-title="([^"]*)"', row) == titles, "shown on a phone"
    assert body.count("<table>") > 8
    for svg in re.findall(r"<svg [^>]*>", body):
        assert "viewBox" in svg
        assert not re.search(r'\b(width|height)="', svg)
        assert (
            float(re.search(r"max-width: ([\d.]+)in", svg)[1]) <= 4.6
        )  # larger figures shrink their letters


def test_colours_have_enough_contrast_in_light_and_dark(page):
    day, night = re.findall(r":root \{(.*?)\}", page.read_text(encoding="utf-8"), re.S)
    values = [dict(re.findall(r"--([\w-]+): (#\w{6})", scheme)) for scheme in (day, night)]
    assert values[0].keys() == values[1].keys() >= COLOURS.keys()
    assert {name: values[0][name] for name in COLOURS} == COLOURS
    for scheme in values:
        for text in ("ink", "soft"):
            assert min(contrast(scheme[text], scheme[back]) for back in ("page", "panel")) > 4.5
        for mark in COLOURS.keys() - {"ink", "rule"}:
            assert contrast(scheme[mark], scheme["page"]) > 2, mark


def contrast(first, second):
    """Contrast ratio of two colours (WCAG 2.2)."""

    def luminance(colour):
        parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def measure_page(page, width, dark=False, paper=False):
    """Measure the page in a frame 800 pixels high."""
    html = page.read_text(encoding="utf-8").replace("</body>", f"{MEASURE}</body>")
    copy = page.with_name("measured.html")
    copy.write_text(html.replace("@media print", "@media all") if paper else html, encoding="utf-8")
    around = page.with_name("around.html")
    around.write_text(AROUND % width, encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1300,900", "--dump-dom"]
    command = [
        CHROMIUM,
        *flags,
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        around.as_uri(),
    ]
    browser = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return json.loads(
        re.search(r"<title>(.*?)</title>", browser.stdout)[1]
        .replace("&gt;", ">")
        .replace("&lt;", "<")
    )


@in_browser
@pytest.mark.parametrize("width", [400, 800, 1200])
def test_in_a_browser_the_answer_is_on_the_first_screen(page, width):
    measures, night = measure_page(page, width), measure_page(page, width, dark=True)
    assert measures["width"] == width
    assert measures["scrolls"] <= width
    assert measures["verdict"] < 400
    assert measures["clipped"] == 0
    assert measures["numbers"] < 800
    assert measures["letters"] > 7
    assert (measures["page"], night["page"]) == ("rgb(255, 255, 255)", "rgb(20, 23, 26)")
    assert (measures["ink"], night["ink"]) == ("rgb(27, 31, 36)", "rgb(230, 232, 234)")


@in_browser
def test_on_paper_nothing_is_folded_or_clipped(page):
    assert measure_page(page, 1200)["hidden"] > 0
    paper = measure_page(page, 720, paper=True)  # A4 within its margins
    assert (paper["hidden"], paper["clipped"]) == (0, 0)


@in_browser
def test_a_comparison_fits_a_phone(page, tmp_path):
    write_results(tmp_path / "another")
    measures = measure_page(
        compare_stage([page.parent, tmp_path / "another"], tmp_path / "out"), 400
    )
    assert measures["scrolls"] <= 400
    assert measures["numbers"] < 800
