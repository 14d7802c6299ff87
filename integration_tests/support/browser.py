"""Debian's chromium, driven: what it shows, what it asks for, and whether people can use it."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from eo_kafka.testing.processes import wait_until

if TYPE_CHECKING:  # every run asks here why there is no browser: that takes no client of one
    from selenium.webdriver import Chrome

PROGRAMS = ("chromium", "chromedriver")
DESKTOP, PHONE = (1280, 900), (360, 740)
QUIET = ("--disable-background-networking", "--disable-component-update", "--no-first-run")
# The text's colour against what is behind it, of all that is seen: WCAG 2, AA.
FAINT = """
const lum = (c) => { const f = c.map((v) => { v /= 255;
  return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
  return .2126 * f[0] + .7152 * f[1] + .0722 * f[2]; };
const rgb = (s) => { const n = s.match(/[\\d.]+/g).map(Number);
  return [n.slice(0, 3), n.length > 3 ? n[3] : 1]; };
const behind = (e) => { for (; e; e = e.parentElement) {
  const [c, a] = rgb(getComputedStyle(e).backgroundColor); if (a === 1) return c; }
  return [255, 255, 255]; };
const found = [];
for (const e of document.querySelectorAll("body *")) {
  const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!own || !e.getClientRects().length || e.closest(".unseen, .skip, svg, noscript")) continue;
  const [a, b] = [lum(rgb(getComputedStyle(e).color)[0]), lum(behind(e))].sort((x, y) => y - x);
  const ratio = (a + .05) / (b + .05);
  if (ratio >= 4.5) continue;
  const text = e.textContent.trim().slice(0, 40);
  found.push(`${e.localName}.${e.className} ${ratio.toFixed(2)}: ${text}`);
}
return found;
"""


def why_not() -> str | None:
    """A sentence, where there is none to drive."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if not missing:
        return None
    return (
        f"There is no {' and no '.join(missing)} on this machine: apt-get install "
        "--no-install-recommends chromium chromium-driver."
    )


class Browser:
    """One window. `asked`: every address that was asked for."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver
        self._asked: list[str] = []

    def open(self, url: str) -> None:
        self.driver.get(url)

    @property
    def text(self) -> str:
        """All that is seen."""
        from selenium.common.exceptions import StaleElementReferenceException

        while True:
            try:
                return self.driver.find_element("tag name", "main").text
            except StaleElementReferenceException:  # it was looked again meanwhile
                continue

    def await_text(self, *wanted: str, timeout: float = 60) -> None:
        """It gets there without a reload."""
        try:
            wait_until(lambda: all(one in self.text for one in wanted), f"{wanted}", timeout)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text}") from None

    def press(self, name: str) -> None:
        """Go to the link or button by the Tab key alone, and press it by the Enter key."""
        from selenium.webdriver.common.keys import Keys

        for _ in range(80):
            self.driver.switch_to.active_element.send_keys(Keys.TAB)
            focused = self.driver.switch_to.active_element
            if focused.text.strip() == name:
                assert self.outline() != "none", "where one is can be seen"
                focused.send_keys(Keys.ENTER)
                return
        raise AssertionError(f"'{name}' is not reached by Tab: {self.text[:2000]}")

    def outline(self) -> str:
        return self.driver.execute_script(
            "return getComputedStyle(document.activeElement).outlineStyle"
        )

    def look(self, size: tuple[int, int] = DESKTOP, *, dark: bool = False) -> None:
        """On a screen of this size, at night."""
        width, height = size
        metrics = {
            "width": width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": size == PHONE,
        }
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def faint(self) -> list[str]:
        """Texts whose contrast is too small."""
        return self.driver.execute_script(FAINT)

    def overflow(self) -> int:
        """How many pixels of it are beyond the right edge."""
        return self.driver.execute_script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )

    def asked(self) -> list[str]:
        """Every address that any page has asked for so far."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self._asked.append(message["params"]["request"]["url"])
        return self._asked

    def foreign(self, own: str) -> list[str]:
        """Those that are not of this server. The browser's own pages load nothing."""
        return [
            url
            for url in self.asked()
            if urlsplit(url).netloc != own and urlsplit(url).scheme not in ("data", "chrome")
        ]

    def complaints(self) -> list[str]:
        """What the browser's console says: a script's error, what the policy has stopped."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def shoot(self, path: Path, height: int | None = None) -> None:
        """The page as a picture, from its top, at most so high."""
        whole = self.driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
        used = self.driver.execute_script(
            "return document.getElementById('main').getBoundingClientRect().bottom + scrollY"
        )
        wanted = min(used, height or used)
        clip = {"x": 0, "y": 0, "width": whole["width"], "height": wanted, "scale": 1}
        asked = {"format": "png", "clip": clip, "captureBeyondViewport": True}
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", asked)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser() -> Iterator[Browser]:
    """With a profile of its own, which goes with it."""
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = str(shutil.which("chromium"))
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        *QUIET,
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    try:
        driver = webdriver.Chrome(options, Service(str(shutil.which("chromedriver"))))
    except WebDriverException as error:
        raise AssertionError(f"chromium does not start: {error}") from error
    try:
        yield Browser(driver)
    finally:
        driver.quit()
