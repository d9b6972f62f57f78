"""Texts that would act if they were shown as anything but text, and results that are full of them."""

HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<svg/onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "a\u202egnp.exe\u2066\u200f",
    "\x1b[31mred\x1b]0;title\x07\x9b2J",
    "n" * 5000,
    "</title></style><style>*{display:none}",
    "javascript:alert(1)",
    "nul\x00 and \ud800 lone",
]

ALERT = "alert(document.domain)"
# What is tried in a browser: by way of tags, of attributes, of what a parser leaves again, of styles, of addresses
PAYLOADS = [
    *HOSTILE,
    *(
        f"<{tag} {event}={ALERT}>"
        for tag in ("img src=x", "svg", "body", "details open", "audio src=x", "input autofocus")
        for event in ("onerror", "onload", "onfocus", "ontoggle")
    ),
    *(
        f"{quote} {event}={ALERT} x={quote}"
        for quote in "'\"`"
        for event in ("onmouseover", "onfocus autofocus", "onerror")
    ),
    *(
        f"{end}<script>{ALERT}</script>"
        for end in (
            "",
            "-->",
            "]]>",
            "</textarea>",
            "</template>",
            "</svg>",
            "</math>",
            "</noscript>",
            "</table>",
            "\n\n",
            "\x00",
        )
    ),
    f"<scr<script>ipt>{ALERT}</scr</script>ipt>",
    f"<<script>{ALERT}//<</script>",
    f"<iframe srcdoc='<script>{ALERT}</script>'>",
    "<iframe src=javascript:alert(1)>",
    "<object data=data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==>",
    "<embed src=data:image/svg+xml,%3Csvg%20onload%3Dalert(1)%3E>",
    "<base href=https://example.org/>",
    "<meta http-equiv=refresh content='0;url=https://example.org/'>",
    "<link rel=stylesheet href=https://example.org/x.css>",
    "<style>@import url(https://example.org/x.css);</style>",
    "<img src=https://example.org/x.png>",
    "<form action=https://example.org/><button formaction=javascript:alert(1)>",
    "<a href=javascript:alert(1)>click</a>",
    "<math><maction actiontype=statusline xlink:href=javascript:alert(1)>",
    "<svg><use href=https://example.org/x.svg#x />",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<svg><style><img src=x onerror=alert(1)>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "url(https://example.org/x.png)",
    "expression(alert(1))",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;alert(1)&#60;/script&#62;",
    "\\u003cscript\\u003ealert(1)\\u003c/script\\u003e",
    "{{constructor.constructor('alert(1)')()}}",
    "${alert(1)}",
    "';alert(1)//",
    '\\";alert(1)//',
    "</script><!--<script>",
    "<!--<script>",
    "\u2028alert(1)\u2029",
    "\ufeff<script>alert(1)</script>",
    "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
]


def poisoned(value, poison):
    """Every string in the results replaced, but for the words that steer the page."""
    if isinstance(value, str):
        return value if value in {"accuracy", "done", "context", "delta", "full", "text", "none", "both"} else poison
    if isinstance(value, dict):
        return {key: poisoned(one, poison) for key, one in value.items()}
    if isinstance(value, list):
        return [poisoned(one, poison) for one in value]
    return value
