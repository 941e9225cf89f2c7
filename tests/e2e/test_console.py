"""The console in Debian's Chromium: what it shows, what it does, and that its policy holds. ``pytest -m e2e tests/e2e``.

Set ``LIMPET_SCREENSHOTS`` to a folder to keep pictures of every state.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.browser import Browser
from tests.e2e.conftest import Launch, free_port
from tests.packaging.tools import program
from tests.support.servers import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

Serve = Callable[..., str]


@pytest.fixture
def serve(store_url: str, launch: Launch, limpet_command: list[str]) -> Serve:
    """Starts a service; its address."""

    def start(port: int | None = None, **variables: str) -> str:
        port = port or free_port()
        environ = {"LIMPET_REDIS_URL": store_url, "LIMPET_PARTITIONS": "16", **variables}
        launch(*limpet_command, "serve", "--port", str(port), port=port, **environ)
        return f"http://127.0.0.1:{port}"

    return start


@pytest.fixture
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser that has complained about nothing by the end: no script failed, and nothing broke the policy."""
    program("chromium", "chromium")
    program("chromedriver", "chromium-driver")
    one = Browser(tmp_path_factory.mktemp("browser"))
    one.size(1360, 900)
    yield one
    complaints = one.errors()
    one.close()
    assert complaints == []


@pytest.fixture
def picture(browser: Browser) -> Callable[[str], None]:
    """Keeps a picture, where somebody wants them."""
    folder = os.environ.get("LIMPET_SCREENSHOTS")

    def take(name: str) -> None:
        if folder:
            browser.picture(Path(folder) / f"{name}.png")

    return take


def fill(url: str) -> None:
    """Two workers and a conversation with a past."""
    with httpx.Client(base_url=url, timeout=20) as http:
        for name in ("gpu%2F0", "gpu%2F1"):
            assert http.put(f"/v1/workers/{name}", json={"pool": "p", "address": "http://x", "ttl_ms": 0}).status_code == 200
        for number in range(20):
            bind = {"pool": "p", "commit": True}
            http.post("/v1/resolve", json={"key": f"k{number}", "session_id": "s", "bind": bind}).raise_for_status()
        http.post("/v1/advance", json={"key": "chat <b>7</b>", "reason": "new"})
        http.post("/v1/advance", json={"key": "chat <b>7</b>", "reason": "switch"})
        http.post("/v1/resolve", json={"key": "chat <b>7</b>", "session_id": "s", "bind": {"worker": "gpu/0", "commit": True}})


def test_it_shows_what_is(serve: Serve, browser: Browser, picture: Callable[[str], None]) -> None:
    """Empty, then rates, workers and events, without a reload; the chart says in words what it shows."""
    url = serve()
    browser.open(url)
    browser.wait_for("#status", "Live")
    browser.wait_for("#workers", "No workers are registered")
    picture("empty")
    fill(url)
    browser.wait_for("#workers", "gpu/1")
    browser.wait_for("#card-binds", "21 in all")
    browser.wait_for("#card-resets", "2 in all")
    wait_until(lambda: browser.run("return document.querySelectorAll('#rates canvas, #times canvas').length") == 2, 20, "charts")
    assert "Resolves" in browser.run("return document.querySelector('#rates').getAttribute('aria-label')")
    httpx.post(f"{url}/v1/advance", json={"key": "x", "reason": "seen-by-event"})
    browser.wait_for("#events", "seen-by-event")
    picture("full")


def test_a_conversation(serve: Serve, browser: Browser, picture: Callable[[str], None]) -> None:
    """By keyboard alone: looked up, released, advanced with a reason; markup in a key is text."""
    url = serve()
    fill(url)
    browser.open(url)
    browser.wait_for("#status", "Live")
    browser.run("document.querySelector('#key').focus()")
    browser.type("#key", "chat <b>7</b>")
    browser.press("enter")
    browser.wait_for("#found", "gpu/0")
    assert "switch" in browser.text(".past li:nth-child(1)")
    assert "new" in browser.text(".past li:nth-child(2)")
    browser.run("document.querySelector('#release').focus()")
    browser.press("enter")
    assert browser.run("return document.activeElement.id") == "confirm-no"  # nothing dangerous by a second Enter
    browser.press("escape")
    assert browser.run("return document.activeElement.id") == "release"
    assert "gpu/0" in browser.text("#found")
    browser.press("enter")
    browser.press("tab")
    picture("confirm")
    browser.press("enter")
    browser.wait_for("#found", "none; the next turn")
    browser.click("#advance")
    browser.run("document.querySelector('#confirm-input').value = ''")
    browser.type("#confirm-input", "operator-says")
    browser.press("enter")
    browser.wait_for("#found", "operator-says")
    browser.run("document.querySelector('#key').value = ''")
    browser.type("#key", "nobody")
    browser.press("enter")
    browser.wait_for("#found", "No record of that key")


def test_a_drain(serve: Serve, browser: Browser) -> None:
    """Drained and undrained, each after a question."""
    url = serve()
    fill(url)
    browser.open(url)
    browser.wait_for("#workers", "gpu/0")
    browser.click('[data-id="drain:gpu/0"]')
    browser.click("#confirm-yes")
    browser.wait_for("#workers", "may stop")
    listed = {each["worker"]: each for each in httpx.get(f"{url}/v1/workers").json()["workers"]}
    assert (listed["gpu/0"]["state"], listed["gpu/0"]["bindings"]) == ("draining", 0)
    browser.click('[data-id="undrain:gpu/0"]')
    browser.click("#confirm-yes")
    wait_until(lambda: "Draining" not in browser.text("#workers"), 15, "the worker to be live again")


def test_signing_in(serve: Serve, browser: Browser, picture: Callable[[str], None]) -> None:
    """A wrong token is told; a right one works, is in no URL, survives a reload, and is gone after signing out."""
    token = {"sha256": hashlib.sha256(b"hush").hexdigest(), "namespace": "prod", "rights": ["resolve", "admin"]}
    browser.open(serve(LIMPET_TOKENS=json.dumps([token])))
    browser.wait_for("#login", "Token")
    picture("login")
    browser.type("#token", "wrong")
    browser.press("enter")
    browser.wait_for("#login-problem", "not known")
    browser.type("#token", "hush")
    browser.press("enter")
    browser.wait_for("#status", "Live")
    browser.wait_for("#namespace", "prod")
    assert "hush" not in browser.run("return location.href + document.documentElement.outerHTML + JSON.stringify(localStorage)")
    urls = browser.run("return performance.getEntriesByType('resource').map((entry) => entry.name).join()")
    assert "hush" not in urls
    browser.run("location.reload()")
    browser.wait_for("#status", "Live")
    browser.click("#account")
    browser.wait_for("#status", "Signed out")
    assert browser.run("return sessionStorage.length") == 0


def test_a_token_that_may_only_resolve(serve: Serve, browser: Browser) -> None:
    """It is told what it cannot see; the rest works."""
    token = {"sha256": hashlib.sha256(b"hush").hexdigest(), "namespace": "prod", "rights": ["resolve"]}
    browser.open(serve(LIMPET_TOKENS=json.dumps([token])))
    browser.wait_for("#login", "Token")
    browser.type("#token", "hush")
    browser.press("enter")
    browser.wait_for("#stats-note", "right admin")
    browser.wait_for("#workers", "No workers are registered")


def test_a_service_that_goes_away(
    browser: Browser, launch: Launch, picture: Callable[[str], None], store_url: str, limpet_command: list[str]
) -> None:
    """It is said, and the console goes on by itself when the service is back."""
    port = free_port()
    environ = {"LIMPET_REDIS_URL": store_url, "LIMPET_PARTITIONS": "16"}
    first = launch(*limpet_command, "serve", "--port", str(port), port=port, **environ)
    browser.open(f"http://127.0.0.1:{port}")
    browser.wait_for("#status", "Live")
    first.stop()
    browser.wait_for("#banner", "does not answer")
    picture("away")
    launch(*limpet_command, "serve", "--port", str(port), port=port, **environ)
    browser.wait_for("#status", "Live", 30)
    assert browser.text("#banner") == ""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(360, 740), (768, 1024), (1920, 1080)])
def test_every_size_and_scheme(
    serve: Serve, browser: Browser, picture: Callable[[str], None], scheme: str, width: int, height: int
) -> None:
    """Nothing is wider than the screen, text has enough contrast, and fingers find what they tap."""
    url = serve()
    fill(url)
    browser.scheme(scheme)
    browser.size(width, height, phone=width < 600)
    browser.open(url)
    browser.wait_for("#workers", "gpu/0")
    browser.type("#key", "chat <b>7</b>")
    browser.press("enter")
    browser.wait_for("#found", "gpu/0")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    picture(f"{scheme}-{width}")
    assert browser.run(CONTRAST) == []
    if width < 600:
        assert browser.run(SMALL) == []
    first = browser.run("return getComputedStyle(document.body).backgroundColor")
    browser.run("document.querySelector('#theme').click(); document.querySelector('#theme').click()")
    assert browser.run("return document.documentElement.dataset.theme") == "dark"
    assert (browser.run("return getComputedStyle(document.body).backgroundColor") == first) is (scheme == "dark")


def test_names_for_those_who_do_not_see(serve: Serve, browser: Browser) -> None:
    """Every control has a name, in the order in which Tab reaches it; the first Tab skips to the content."""
    url = serve()
    fill(url)
    browser.open(url)
    browser.wait_for("#workers", "gpu/0")
    assert browser.run(NAMELESS) == []
    browser.press("tab")
    assert browser.run("return document.activeElement.className") == "skip"
    order = []
    for _ in range(9):
        browser.press("tab")
        order.append(browser.run(FOCUSED))
    assert order == ["API", "theme", "account", "drain:gpu/0", "drain:gpu/1", "key", "Look up", "kind", "pause"]


def test_the_policy(serve: Serve) -> None:
    """Nothing from elsewhere, nothing inline, no framing; files that the page does not have are 404."""
    url = serve()
    page = httpx.get(url)
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert " style=" not in page.text
    assert "http" not in page.text
    assert (
        httpx.get(
            f"{url}/console/main.js", headers={"if-none-match": httpx.get(f"{url}/console/main.js").headers["etag"]}
        ).status_code
        == 304
    )
    for name in ("none.js", "uplot.LICENSE.txt", "..%2F__init__.py", "__init__.py"):
        assert httpx.get(f"{url}/console/{name}").status_code == 404


CONTRAST = """
const lum = ([r, g, b]) => [r, g, b].map((c) => { c /= 255; return c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4; })
  .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
const canvas = document.createElement('canvas'); canvas.width = canvas.height = 1;
const paint = canvas.getContext('2d', { willReadFrequently: true });
const rgb = (...colours) => {
  paint.clearRect(0, 0, 1, 1);
  for (const c of colours) { paint.fillStyle = c; paint.fillRect(0, 0, 1, 1); }
  return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3); };
const out = [];
for (const node of document.querySelectorAll('body *')) {
  if (!node.offsetParent || ![...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim())) continue;
  const stack = [];
  for (let at = node; at; at = at.parentElement) stack.unshift(getComputedStyle(at).backgroundColor);
  const back = rgb('#fff', ...stack), ink = rgb('#fff', ...stack, getComputedStyle(node).color);
  const [high, low] = [lum(back), lum(ink)].sort((a, b) => b - a), ratio = (high + .05) / (low + .05);
  if (ratio < 4.5) out.push(`${node.tagName}.${node.className} ${node.textContent.slice(0, 20)} ${ratio.toFixed(2)}`);
}
return out;
"""
NAMELESS = """
return [...document.querySelectorAll('button, input, select, a, [role=img], progress')].filter((node) => node.offsetParent
  && !(node.getAttribute('aria-label') || node.textContent.trim() || node.closest('label')?.textContent.trim()))
  .map((node) => node.outerHTML);
"""
SMALL = """
return [...document.querySelectorAll('button, input, select')].filter((node) => node.offsetParent && node.offsetHeight < 40)
  .map((node) => node.outerHTML);
"""
FOCUSED = "const at = document.activeElement; return at.id || at.dataset.id || at.textContent"
