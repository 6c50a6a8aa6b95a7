"""A page in Chromium as several screens show it, beside each other in one picture, and what a script finds of its sizes
and colours there. Each screen is a frame: a window is never as narrow as a phone."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path

CHROMIUM_MISSING = "Chromium is not installed"
PICTURES = Path(__file__).parents[2] / "build" / "pictures"
HEIGHT_PX = 2600
WITHIN_S = 240
MEASURE = """
<script>
const parts = (color) => color.match(/[0-9.]+/g).map(Number);
const luminance = (color) => {
  const linear = (c) => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
  const [r, g, b] = parts(color).slice(0, 3).map((c) => linear(c / 255));
  return .2126 * r + .7152 * g + .0722 * b;
};
const groundOf = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const color = getComputedStyle(e).backgroundColor;
    if (parts(color).length === 3 || parts(color)[3] > 0) return color;
  }
  return 'rgb(255, 255, 255)';
};
const texts = [...document.body.querySelectorAll('*')].filter((e) =>
  !['SCRIPT', 'STYLE'].includes(e.tagName) && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
const contrasts = texts.map((e) => {
  const [a, b] = [luminance(getComputedStyle(e).color), luminance(groundOf(e))].sort((x, y) => y - x);
  return (a + .05) / (b + .05);
});
parent.document.documentElement.dataset[name] = JSON.stringify({
  width: innerWidth, content_width: document.documentElement.scrollWidth,
  smallest_text_px: Math.min(...texts.map((e) => parseFloat(getComputedStyle(e).fontSize))),
  smallest_contrast: Math.min(...contrasts), ground: getComputedStyle(document.body).backgroundColor,
});
</script>
"""


@dataclass(frozen=True, slots=True)
class Screen:
    width: int
    scheme: str


@dataclass(frozen=True, slots=True)
class Seen:
    width: int
    content_width: int
    smallest_text_px: float
    smallest_contrast: float
    ground: str


def chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def look_at(page: Path, screens: Sequence[Screen], picture: Path) -> list[Seen]:
    picture.parent.mkdir(parents=True, exist_ok=True)
    binary = chromium()
    assert binary is not None
    text = escape(page.read_text(encoding="utf-8") + MEASURE)
    frames = "".join(
        f'<iframe name="screen{place}" srcdoc="{text}" width="{screen.width}" height="{HEIGHT_PX}" '
        f'style="border: 0; color-scheme: {screen.scheme}"></iframe>'
        for place, screen in enumerate(screens)
    )
    wall = page.with_name("screens.html")
    wall.write_text(f'<!doctype html><body style="margin: 0; display: flex">{frames}', encoding="utf-8")
    size = f"--window-size={sum(screen.width for screen in screens)},{HEIGHT_PX}"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", size]
    output = [f"--user-data-dir={page.parent / 'profile'}", f"--screenshot={picture}", "--dump-dom"]
    done = subprocess.run([binary, *options, *output, wall.as_uri()], capture_output=True, text=True, timeout=WITHIN_S)
    found = dict(re.findall(r'data-screen(\d)="([^"]+)"', done.stdout))
    assert len(found) == len(screens), done.stderr[-2000:]
    return [Seen(**json.loads(unescape(found[str(place)]))) for place in range(len(screens))]
