"""The page at `/` in a real browser, against the three processes of the bundled pair, and its logic in Node."""

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests.end_to_end.test_specpair import COMMAND, free_ports, running_up
from tests.needs import find_chromium

ROOT = Path(__file__).parents[2]
PATIENCE = 60
needs_browser = pytest.mark.needs("chromium")

pytestmark = pytest.mark.timeout(300)


@pytest.mark.needs("node")
def test_the_logic_of_the_page() -> None:
    done = subprocess.run(["node", "--test", "tests/page/"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def target_port() -> int:
    """Of the target behind the page."""
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def address(target_port: int) -> Iterator[str]:
    """Of the page."""
    (port,) = free_ports(1)
    with running_up("--target-port", str(target_port), http_port=port):
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(flag)
    options.binary_location = find_chromium() or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.set_window_size(1180, 1500)
        yield driver
    finally:
        driver.quit()


class Page:
    """The page as somebody uses it."""

    def __init__(self, browser: webdriver.Chrome, address: str):
        self.browser = browser
        self.complaints()  # about the page before
        browser.get(address)

    def element(self, name: str) -> Any:
        return self.browser.find_element(By.ID, name)

    def fill(self, **fields: str) -> None:
        """Sets fields by their names; an empty text clears one."""
        for name, value in fields.items():
            field = self.element("request").find_element(By.NAME, name)
            if field.tag_name == "select":
                self.wait(lambda name=name, value=value: self._choose(name, value))
            else:
                field.clear()
                field.send_keys(value)

    def _choose(self, name: str, value: str) -> bool:
        """Again, where the page put other options in place of the old ones at that moment."""
        with suppress(StaleElementReferenceException):
            Select(self.element("request").find_element(By.NAME, name)).select_by_value(value)
            return True
        return False

    def start(self) -> None:
        self.element("start").click()

    def wait(self, condition: Callable[[], object]) -> None:
        WebDriverWait(self.browser, PATIENCE, poll_frequency=0.1).until(lambda _: condition())

    def status(self) -> str:
        """What the run says at its end."""
        self.wait(lambda: self.element("start").is_enabled() and not self.element("stop").is_enabled())
        return self.element("status").text

    def tokens(self, kind: str = "token") -> list[str]:
        found = self.element("tokens").find_elements(By.CSS_SELECTOR, f".{kind}")
        return [one.get_attribute("textContent") for one in found]

    def text(self) -> str:
        """The output, without what was rejected."""
        kept = "return [...document.querySelectorAll('#tokens .token:not(.rejected)')].map(one => one.textContent)"
        return "".join(self.browser.execute_script(kept))

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.browser.get_log("browser")]


@pytest.fixture
def page(browser: webdriver.Chrome, address: str) -> Page:
    return Page(browser, address)


@needs_browser
def test_a_run_shows_each_round(page: Page) -> None:
    page.fill(num_speculative_tokens="4", temperature="0", max_tokens="60", seed="3")
    page.start()
    status = page.status()
    assert re.search(r"Finished: 60 tokens in .* tokens per round, seed 3", status), status
    assert page.tokens("accepted") and page.tokens("rejected") and page.tokens("correction")
    kept = len(page.tokens("accepted") + page.tokens("correction") + page.tokens("bonus") + page.tokens("target"))
    assert kept >= 60
    rate = int(page.element("acceptance").text.split()[0])
    assert 0 < rate < 100
    rounds = page.element("rounds").find_elements(By.TAG_NAME, "tr")
    assert len(rounds) >= 60 / 5 and page.element("positions").find_elements(By.TAG_NAME, "li")
    assert page.element("timeline").find_elements(By.TAG_NAME, "svg")
    assert page.complaints() == []


@needs_browser
def test_a_tree_is_drawn_with_the_path_that_was_taken(page: Page) -> None:
    page.fill(num_speculative_tokens="4", num_tree_tokens="8", temperature="0", max_tokens="40", seed="3")
    page.start()
    assert "Finished: 40 tokens" in page.status()
    first = page.element("rounds").find_element(By.CSS_SELECTOR, "td .tree")
    assert len(first.find_elements(By.CSS_SELECTOR, ".proposal")) == 8
    assert first.find_elements(By.CSS_SELECTOR, ".tree .tree"), "a token that follows another stands in its branch"
    assert page.element("rounds").find_elements(By.CSS_SELECTOR, ".tree .accepted")
    assert page.complaints() == []


@needs_browser
def test_a_seed_repeats_the_text_and_k_is_obeyed(page: Page) -> None:
    texts = []
    for k in ("0", "3"):
        page.fill(num_speculative_tokens=k, rule="coupled", temperature="1", max_tokens="30", seed="5")
        page.start()
        page.status()
        assert bool(page.tokens("rejected")) is (k != "0")
        texts.append(page.text())
    assert texts[0] == texts[1], "the coupled rule gives the same text for a seed at any K"


@needs_browser
def test_stop_stops(page: Page) -> None:
    page.fill(num_speculative_tokens="2", max_tokens="1900", temperature="1", seed="1")
    page.start()
    page.wait(page.text)  # one look: to count tokens takes a call to the browser for each, while more come
    page.element("stop").click()
    assert page.status().startswith("Stopped")
    assert 0 < len(page.tokens("token:not(.rejected)")) < 1900


@needs_browser
def test_the_keyboard_is_enough(page: Page) -> None:
    page.fill(num_speculative_tokens="3", temperature="0.5", max_tokens="24", seed="2")
    page.element("prompt").send_keys(Keys.CONTROL, Keys.ENTER)
    page.status()
    tokens = page.element("tokens")
    tokens.send_keys(Keys.HOME)
    for _ in range(6):
        tokens.send_keys(Keys.ARROW_RIGHT)
    chosen = page.browser.find_element(By.ID, tokens.get_attribute("aria-activedescendant"))
    assert chosen.get_attribute("aria-selected") == "true" and chosen.get_attribute("aria-label")
    assert page.element("details").is_displayed() and "round" in page.element("details").text
    tokens.send_keys(Keys.ESCAPE)
    assert not page.element("details").is_displayed()


@needs_browser
def test_errors_are_said_in_words(page: Page) -> None:
    page.browser.execute_script("document.getElementById('max-tokens').removeAttribute('min')")
    page.fill(max_tokens="0")
    page.start()
    page.status()
    assert "max_tokens" in page.element("failure").text


@needs_browser
def test_every_control_has_a_name_and_narrow_windows_suffice(page: Page) -> None:
    page.fill(num_speculative_tokens="4", max_tokens="40", seed="1")
    page.start()
    page.status()
    for control in page.browser.find_elements(By.CSS_SELECTOR, "input, select, textarea, button"):
        assert control.accessible_name or not control.is_displayed(), control.get_attribute("outerHTML")
    page.browser.set_window_size(500, 900)
    page.browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    try:
        page.wait(lambda: page.browser.execute_script("return document.documentElement.scrollWidth") == 360)
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.browser.set_window_size(1180, 1500)


@needs_browser
def test_the_form_offers_what_the_server_takes(page: Page, address: str) -> None:
    model = httpx.get(f"{address}v1/models").json()["data"][0]
    select = Select(page.element("k"))
    page.wait(lambda: len(select.options) == 2 + model["max_num_speculative_tokens"])
    assert [option.get_attribute("value") for option in select.options[:3]] == ["", "0", "1"]
    assert select.first_selected_option.get_attribute("value") == "5"
    assert page.element("max-tokens").get_attribute("max") == str(model["max_model_len"] - 1)
    longest = str(model["max_num_speculative_tokens"])
    page.fill(num_speculative_tokens=longest, temperature="0", max_tokens="40", seed="3")
    page.start()
    assert page.status().startswith("Finished"), page.element("failure").text


@needs_browser
@pytest.mark.parametrize(
    ("sabotage", "said"),
    [
        ("", "Copied"),
        ("delete Navigator.prototype.clipboard", "Copied"),  # as on plain connections to other machines
        ("delete Navigator.prototype.clipboard; document.execCommand = () => false", "Could not be copied"),
    ],
    ids=["clipboard", "no clipboard", "nothing"],
)
def test_copying_copies_or_says_that_it_cannot(page: Page, sabotage: str, said: str) -> None:
    page.browser.execute_script(sabotage)
    page.fill(num_speculative_tokens="3", temperature="0", max_tokens="12", seed="1")
    page.start()
    page.status()
    copy = page.element("copy")
    copy.click()
    page.wait(lambda: copy.text == said)
    if said == "Copied":
        prompt = page.element("prompt")
        prompt.clear()
        prompt.send_keys(Keys.CONTROL, "v")
        assert prompt.get_attribute("value") == page.text() != ""
    page.wait(lambda: copy.text == "Copy")
    assert page.complaints() == []


@needs_browser
def test_the_switches_do_what_they_say(page: Page) -> None:
    page.fill(num_speculative_tokens="4", temperature="0.5", max_tokens="60", seed="3")
    page.start()
    page.status()
    rejected = page.element("tokens").find_element(By.CSS_SELECTOR, ".rejected")
    assert rejected.is_displayed()
    page.element("show-rejected").click()
    assert not rejected.is_displayed()
    whole = page.element("timeline").find_element(By.TAG_NAME, "svg").get_attribute("outerHTML")
    page.element("zoom").click()
    assert page.element("timeline").find_element(By.TAG_NAME, "svg").get_attribute("outerHTML") != whole
    assert page.element("zoom").get_attribute("aria-pressed") == "true"
    token = page.element("tokens").find_element(By.CSS_SELECTOR, ".accepted")
    ActionChains(page.browser).move_to_element(token).perform()
    assert re.search(r"draft\s+[\d.]+\s+target\s+[\d.]+", page.element("details").text)


@needs_browser
def test_a_coordinator_that_is_gone_is_said_in_words(page: Page) -> None:
    page.browser.execute_cdp_cmd("Network.enable", {})
    conditions = {"latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    page.browser.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": True, **conditions})
    try:
        page.start()
        page.wait(lambda: "cannot be reached" in page.element("failure").text)
    finally:
        page.browser.execute_cdp_cmd("Network.disable", {})
    page.complaints()  # the browser's own, about the connection
    assert not page.element("token").is_displayed()
    page.fill(max_tokens="8")
    page.start()
    assert page.status().startswith("Finished") and not page.element("failure").text


@pytest.fixture
def guarded_address(address: str, target_port: int, tmp_path: Path) -> Iterator[str]:
    """Of the page of another coordinator for the same target, which requires a token."""
    tokens = tmp_path / "tokens"
    tokens.write_text("somebody:a-token-of-somebody\n")
    port, http_port = free_ports(2)
    flags = ["--target", f"127.0.0.1:{target_port}", "--draft", "none", "--tokens-file", str(tokens)]
    flags += ["--port", str(port), "--http-port", str(http_port)]
    with subprocess.Popen([*COMMAND, "serve", "coordinator", *flags], stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{http_port}/"
        finally:
            process.terminate()


@needs_browser
def test_a_coordinator_that_wants_a_token_gets_one(browser: webdriver.Chrome, guarded_address: str) -> None:
    wait_until_ready(f"{guarded_address}health")
    page = Page(browser, guarded_address)
    page.wait(lambda: page.element("token").is_displayed())
    page.fill(max_tokens="8")
    page.start()
    page.wait(lambda: "requires a token" in page.element("failure").text)
    assert not page.element("model").is_displayed()
    page.element("token").send_keys("a-token-of-somebody")
    page.start()
    assert page.status().startswith("Finished") and not page.element("failure").text
    page.wait(lambda: page.element("model").is_displayed())
    page.complaints()  # the browser's own, about 401


def wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            if httpx.get(url).status_code == 200:
                return
        time.sleep(0.1)
    raise AssertionError(f"{url} is not ready")


CONTRASTS = Path(__file__).with_name("contrast.js").read_text()


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_either_scheme(page: Page, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    try:
        page.fill(num_speculative_tokens="4", temperature="0", max_tokens="60", seed="3")
        page.start()
        page.status()
        found = page.browser.execute_script(CONTRASTS, ".token, .note, .hint, p, dt, dd, h1, h2, label span, button")
        assert len(found) > 60 and [entry for entry in found if entry[1] < 4.5] == []
    finally:
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
