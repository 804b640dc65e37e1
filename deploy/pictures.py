"""`python -m deploy.pictures`: the pictures of the page in docs/images, light and dark, from a run of the real pair.

Needs SmolLM2 (`make smollm2`) and Chromium with its driver (`make test-tools`). The figures in the pictures are those
of the machine that runs this, so nothing else should run there.
"""

import argparse
import asyncio
import shutil
from pathlib import Path

from rich.console import Console
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from command.pair.local_pair import LOOPBACK, announce, free_port, ignore_line, plan_service, run_children, unless_dead

IMAGES = Path(__file__).parents[1] / "docs" / "images"
PROMPT = "A letter to a friend who moved to another city.\n\nDear Anna,"
FIELDS = {"temperature": "0", "max_tokens": "110", "seed": "7"}
WIDTH, HEIGHT = 1180, 1720
WARM_UPS = 2
"""Runs before that of the picture: the number of proposed tokens is learnt from them."""
PATIENCE = 120


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m deploy.pictures", description=__doc__)
    parser.add_argument("--out", type=Path, default=IMAGES, metavar="FOLDER", help="where to write page-*.png")
    asyncio.run(take(parser.parse_args().out))


async def take(folder: Path) -> None:
    """Starts the pair, takes both pictures, stops it."""
    http_port = free_port()
    model = {"--model": "smollm2", "--metrics-port": 0}
    draft = plan_service("draft", {**model, "--quantization": "int4"}, host=LOOPBACK, port=free_port())
    target = plan_service("target", {**model, "--dtype": "bfloat16"}, host=LOOPBACK, port=free_port())
    flags = {"--draft": draft.address, "--target": target.address, "--http-port": http_port}
    coordinator = plan_service("coordinator", flags, host=LOOPBACK, port=free_port())
    async with run_children([draft, target, coordinator], ignore_line) as children:
        await unless_dead(children, announce(children, Console(stderr=True, highlight=False)))
        for scheme in ("light", "dark"):
            work = asyncio.to_thread(
                photograph, f"http://{LOOPBACK}:{http_port}/", folder / f"page-{scheme}.png", scheme
            )
            await unless_dead(children, work)


def photograph(address: str, file: Path, scheme: str) -> None:
    """Runs the prompt on the page and writes what it shows at the end."""
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        driver.set_window_size(WIDTH, HEIGHT)
        driver.get(address)
        fill(driver)
        for _ in range(WARM_UPS + 1):
            run(driver)
        driver.save_screenshot(str(file))
    finally:
        driver.quit()


def fill(driver: webdriver.Chrome) -> None:
    form = driver.find_element(By.ID, "request")
    for name, value in {"prompt": PROMPT, **FIELDS}.items():
        field = form.find_element(By.NAME, name)
        field.clear()
        field.send_keys(value)
    numbers = form.find_element(By.NAME, "num_speculative_tokens")
    WebDriverWait(driver, PATIENCE).until(lambda _: numbers.find_elements(By.CSS_SELECTOR, "option[value='']"))
    Select(numbers).select_by_value("")  # auto


def run(driver: webdriver.Chrome) -> None:
    """Starts a run and waits for its end."""
    driver.find_element(By.ID, "start").click()
    stop = driver.find_element(By.ID, "stop")
    WebDriverWait(driver, PATIENCE).until(lambda _: stop.is_enabled())
    WebDriverWait(driver, PATIENCE).until(lambda _: not stop.is_enabled())


if __name__ == "__main__":
    main()
