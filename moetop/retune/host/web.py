"""Health and metrics of a server over HTTP on its own host; opens no port and follows no redirect to elsewhere."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request

HTTP_TIMEOUT_S = 25.0
"""SGLang's /health generates a token and answers within SGLANG_HEALTH_CHECK_TIMEOUT (20 s by default)."""
MAX_BYTES = 8 << 20


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: object, **_kwargs: object) -> None:
        return None


def _opener() -> urllib.request.OpenerDirector:
    """No proxy (the host itself is asked) and no check of a certificate made for another name."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({}), _NoRedirect, urllib.request.HTTPSHandler(context=context)
    )


def get(url: str, timeout_s: float = HTTP_TIMEOUT_S) -> tuple[int, str]:
    """(status, body) of a GET; status 0 with the reason where no answer came."""
    try:
        with _opener().open(url, timeout=timeout_s) as reply:
            return int(reply.status), reply.read(MAX_BYTES).decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        return int(error.code), ""
    except (OSError, ValueError) as error:
        return 0, str(getattr(error, "reason", error))[:200]
    except Exception as error:  # http.client raises several unrelated types on a half-dead server
        return 0, f"{type(error).__name__}: {error}"[:200]


def totals(text: str, names: dict[str, list[str]]) -> dict[str, float]:
    """Sum over label sets of the first name present for each wanted number, from Prometheus text."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        if not line or line[0] == "#":
            continue
        plain = line.partition(" # ")[0]
        head, _, tail = plain.rpartition("}") if "{" in plain else plain.partition(" ")
        name = head.partition("{")[0]
        try:
            sums[name] = sums.get(name, 0.0) + float(tail.split()[0])
        except (IndexError, ValueError):
            continue
    return {
        key: sums[first]
        for key, given in names.items()
        for first in [next((n for n in given if n in sums), "")]
        if first
    }


def metrics(url: str | None, names: dict[str, list[str]]) -> dict[str, float]:
    """Running and waiting requests and the count of generated tokens; keys that are not there are absent."""
    if not url:
        return {}
    code, body = get(url, 5.0)
    return totals(body, names) if code == 200 else {}
