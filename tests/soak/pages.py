"""Payloads in every text of every page, opened in a real browser: nothing runs, nothing is fetched.

Needs Debian's `chromium`, and `pip install playwright axe-core-python`; without them it says so and tries nothing.
"""

import copy
import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "report")]
MISSING = "chromium, playwright or axe-core-python is missing"
OUTCOMES = ("weights needed", "context suffices")
WAIT = 150  # ms for what would run late
HANDLERS = (
    "() => [...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames()).filter(n => n.startsWith('on'))"
)


def run(folder, seed, count):
    """A page of every kind with each payload everywhere, and each page as it should be held against axe's rules."""
    from payloads import PAYLOADS

    try:
        from axe_core_python.sync_playwright import Axe
        from playwright.sync_api import sync_playwright
    except ImportError:
        return {"faults": [], "skipped": MISSING, "tries": 0}
    browser_path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if browser_path is None:
        return {"faults": [], "skipped": MISSING, "tries": 0}
    tried, faults, violations = 0, [], {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for payload in PAYLOADS[: count or None]:
            for kind, html in made(payload).items():
                faults += [f"{kind}, {payload[:60]!r}: {fault}" for fault in opened(browser, folder, html)]
                tried += 1
        for kind, html in made(None).items():
            faults += [f"{kind}: {fault}" for fault in opened(browser, folder, html)]
            violations[kind] = against_axe(browser, folder, html, Axe())
        version = browser.version
        browser.close()
    faults += [f"{kind}: {found}" for kind, page in violations.items() for found in page]
    return {"faults": faults, "tries": tried, "payloads": len(PAYLOADS[: count or None]), "browser": version}


def made(payload):
    """Kind -> the page, with the payload in the place of every text that a user or a model may have written."""
    import test_answers
    import test_outputs
    import test_recipe_page
    from payloads import poisoned
    from report_example import example

    from tunescope import report
    from tunescope.report import findings_page, index, two_runs

    pages = {"recipe": test_recipe_page.made(payload)}
    for outcome in OUTCOMES:
        results = example(outcome) | {"examples": test_outputs.written()["examples"]}
        if payload is not None:
            results = poisoned(copy.deepcopy(results), payload)
        pages[f"comparison, {outcome}"] = report.html(results)
    labelled = test_answers.labelled(), test_answers.labelled()
    said = payload or "words"
    if payload is not None:
        labelled = tuple(poisoned(one, payload) for one in labelled)
    for row in labelled[1]["examples"]["rows"][:3]:
        row["outputs"] = [f"{said} {at}" for at in range(len(row["outputs"]))]
    pages["labels"] = report.html(labelled[0])
    pages["two runs"] = two_runs.html(two_runs.two_runs(*labelled, (said, said)))
    pages["index"] = index.html([entry(labelled[0], said)], said)
    pages["probe"] = findings_page.page([finding(said)], {"model": said, said: said}, [said], said, said)
    return pages


def entry(results, said):
    """A run's row in the index, as if it lay in a folder of that name."""
    from urllib.parse import quote

    from tunescope.report import index, text
    from tunescope.report.view import view

    link = f"./{quote(said.encode('utf-8', 'replace'))}/report.html"
    return {"run": text.clean(said), "link": link, "problem": ""} | index._row(view(results))


def finding(said):
    """With every kind of picture, all of whose words are these."""
    from tunescope.report.finding import AttentionMap, Finding, HeatMap, Pair

    seen = AttentionMap(said, [said, said], ["c0", said, said], [[0.5, 0.5, 0], [0.1, 0.2, 0.7]], 1, 1)
    bare = AttentionMap(said, [said, said], [said, said], [[1, 0], [0.4, 0.6]], 0, 1)
    pictures = [HeatMap(said, [said, said], [said], [[0.25], [1.0]]), seen, Pair(said, bare, bare)]
    return Finding(said, said, said, ("layer", said), [(said, 0.5)], pictures)


def opened(browser, folder, html):
    """What went wrong: dialogs, requests, errors, handlers."""
    path = Path(folder) / "page.html"
    path.write_bytes(html.encode("utf-8", "replace"))
    context, found = browser.new_context(), []
    page = context.new_page()
    page.on("dialog", lambda dialog: (found.append("a dialog was opened"), dialog.dismiss()))
    page.on("request", lambda request: request.url == path.as_uri() or found.append(f"asked for {request.url[:80]}"))
    page.on("console", lambda said: said.type in ("error", "warning") and found.append(f"console: {said.text[:200]}"))
    page.on("pageerror", lambda problem: found.append(f"error: {problem}"))
    page.goto(path.as_uri())
    for field in page.query_selector_all("input, summary")[:20]:
        field.focus()
    page.wait_for_timeout(WAIT)
    if handlers := page.evaluate(HANDLERS):
        found.append(f"handlers: {handlers[:3]}")
    if page.url != path.as_uri():
        found.append(f"went to {page.url[:80]}")
    context.close()
    return found


def against_axe(browser, folder, html, axe):
    """The rules that the page breaks, light and dark; axe is a script, which the page's policy would keep out."""
    path = Path(folder) / "page.html"
    path.write_bytes(html.encode())
    found = []
    for scheme in ("light", "dark"):
        context = browser.new_context(bypass_csp=True, color_scheme=scheme)
        page = context.new_page()
        page.goto(path.as_uri())
        result = axe.run(page)
        found += [f"{scheme}: {one['id']} ({len(one['nodes'])}): {one['help']}" for one in result["violations"]]
        context.close()
    return found
