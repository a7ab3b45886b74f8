"""Replaces secrets in text, arguments and environments by `***`; must never destroy what a log proves.

Pure. `redact_text` is applied to every line that leaves a host, so a cheap look for hints comes first
and a rule runs only on text that holds one of its hints.
"""

from __future__ import annotations

import functools
import re
from typing import Callable, Dict, List, NamedTuple, Tuple, Union

MASK = "***"

# Names whose value is a secret whatever it looks like. `token` stands apart: in this field most
# tokens are words of text (`eos_token`, `max_total_num_tokens`, `#token: 334`).
_SECRET_WORDS = (
    r"(?:api[_-]?keys?|passw(?:or)?d|passphrase|pwd|secret(?:[_-]?(?:access[_-]?)?key)?"
    r"|(?:access|private|encryption|signing|master|license|account|storage|admin|ngc|wandb|openai|anthropic"
    r"|azure|aws)[_-]?key|credentials?|authorization"
    r"|(?:hf|hub|auth|access|api|bearer|refresh|id|session|admin|github|gitlab|gh|slack|bot|wandb|ngc|secret|jwt|pat"
    r"|security|csrf|user|service|deploy|registry|read|write|vault|face)[_-]?token)"
)
# No prefix is consumed (`my_` of `my_api_key`): a prefix pattern would make the search quadratic.
_SECRET_NAME = r"(?:(?<=[_-])|(?<![A-Za-z0-9#]))" + _SECRET_WORDS
_QUOTE = r"\\{0,3}[\"']"
_PLAIN_VALUE = r"(?:\*\*\*|(?:[^\s,;\"'()\[\]{}\\]|\\(?![\"'n\\]))+)"
# An unclosed quote or bracket hides the rest of the line: too much rather than too little, and linear.
_BYTES = r"(?:b(?=" + _QUOTE + r"))?"
_QUOTED_VALUE = _BYTES + r"(?P<q>" + _QUOTE + r")(?:(?!(?P=q)).)*(?P=q)?"
_LIST_VALUE = r"[\[(]\s*" + _BYTES + _QUOTE + r"[^\])]*[\])]?"
_VALUE = r"(?P<v>" + _LIST_VALUE + r"|" + _QUOTED_VALUE + r"|" + _PLAIN_VALUE + r")"
# vLLM's --api-key takes several keys. Words end where a shell or a sentence would go on with something else.
_SEVERAL = r"(?<![\w-])--?api[_-]keys?"
_WORD = r"(?!-)[^\s,;\"'()\[\]{}|&<>\\#]+"
_QUOTED_WORD = _QUOTE + r"(?!-)[^\"'\\]*" + _QUOTE
_ONE_WORD = re.compile(r"(?P<o>" + _QUOTE + r")[^\"'\\]*(?P<c>" + _QUOTE + r")|" + _WORD)
_AFTER_OPTION = r"(?:" + _QUOTE + r"\s*,\s*|\s*=\s*|\s+)(?!-)"
_KEEP = re.compile(
    r"(?:b(?=[\\\"']))?\\*[\"']?(?:none|null|true|false|undefined|\*{3}|str|string|optional|set|unset|not)?\\*[\"']?",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[\s\\\"'(]*[-+]?[0-9][0-9.,_]*[kKmM%]?[\s\\\"')]*")


class _Rule(NamedTuple):
    hints: Tuple[str, ...]
    pattern: "Callable[[], re.Pattern[str]]"
    put: "Union[str, Callable[[re.Match[str]], str]]"


def _mask_value(match: "re.Match[str]") -> str:
    """Mask group `v`, keeping its quotes and brackets, unless it says that there is no secret."""
    value = match.group("v")
    if _KEEP.fullmatch(value) or ("number" in match.re.groupindex and _NUMBER.fullmatch(value)):
        return match.group()
    start = match.start("v") - match.start()
    opening = value[0] if value[0] in "[(" else ""
    quote = re.match(r"(b?)(" + _QUOTE + r")", value[len(opening) :].lstrip())
    before, mark = quote.groups() if quote else ("", "")
    closing = {"[": "]", "(": ")"}.get(opening, "")
    return match.group()[:start] + opening + before + mark + MASK + mark + closing


def _mask_words(match: "re.Match[str]") -> str:
    """Mask every word of group `v`, keeping quotes, commas and blanks, and words that say that there is no secret."""
    start = match.start("v") - match.start()
    return match.group()[:start] + _ONE_WORD.sub(
        lambda word: (
            word.group() if _KEEP.fullmatch(word.group()) else (word.group("o") or "") + MASK + (word.group("c") or "")
        ),
        match.group("v"),
    )


def _compile(text: str, flags: int = re.IGNORECASE) -> "Callable[[], re.Pattern[str]]":
    """A pattern compiled when first asked for: most programs meet few of the hints, or none."""
    return functools.lru_cache(maxsize=None)(lambda: re.compile(text, flags))


_NAME_HINTS = ("key", "_token", "-token", "secret", "passw", "passphrase", "pwd", "credential", "authorization")

_RULES: Tuple[_Rule, ...] = (
    _Rule(
        ("-----begin",),
        _compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z)", re.S),
        MASK,
    ),
    # Authorization: Bearer X, X-Api-Key: X, Cookie: X
    _Rule(
        ("authorization", "api-key", "cookie"),
        _compile(
            r"(?<![A-Za-z0-9#])(?:authorization|api-key|cookie)(?:" + _QUOTE + r")?\s*[:=]\s*"
            r"(?P<v>" + _QUOTED_VALUE + r"|(?:(?:bearer|basic|token|digest)\s+)?" + _PLAIN_VALUE + r")"
        ),
        _mask_value,
    ),
    _Rule(("bearer ", "basic "), _compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), r"\1 " + MASK),
    # scheme://user:password@host, scheme://token@host
    _Rule(("://",), _compile(r"(://)[^\s/:@\"'<>]{0,256}:[^\s/\"'<>]{1,1024}@"), r"\1" + MASK + "@"),
    _Rule(("://",), _compile(r"(://)[^\s/:@\"'<>]{20,1024}@"), r"\1" + MASK + "@"),
    # https_proxy=user:password@host, without a scheme
    _Rule(
        ("proxy",),
        _compile(
            r"(proxy(?:" + _QUOTE + r")?\s*[:=]\s*(?:" + _QUOTE + r")?)"
            r"[^\s/:@\"'<>]{1,256}:[^\s/\"'<>]{1,1024}@"
        ),
        r"\1" + MASK + "@",
    ),
    _Rule(
        ("?", "&"),
        _compile(
            r"([?&](?:[a-z0-9_-]{0,40}(?:token|api[_-]?key|secret|password|signature|credential)|key|sig|auth|pwd)=)"
            r"[^&\s\"'<>#]+"
        ),
        r"\1" + MASK,
    ),
    # --api-key X Y, '--api-key', 'X', 'Y': up to the next option
    _Rule(("-key",), _compile(_SEVERAL + r"(?P<v>(?:\s+(?:" + _QUOTED_WORD + r"|" + _WORD + r"))+)"), _mask_words),
    _Rule(("-key",), _compile(_SEVERAL + _QUOTE + r"(?P<v>(?:\s*,\s*" + _QUOTED_WORD + r")+)"), _mask_words),
    # --api-key X, --api-key=X, '--api-key', 'X'
    _Rule(
        _NAME_HINTS,
        _compile(r"(?<![\w-])--?(?:\w{1,30}[_-]){0,3}" + _SECRET_WORDS + _AFTER_OPTION + _VALUE),
        _mask_value,
    ),
    _Rule(("--token",), _compile(r"(?<![\w-])--token(?P<number>)" + _AFTER_OPTION + _VALUE), _mask_value),
    # api_key='X', "api_key": "X", API_KEY=X, password: X
    _Rule(_NAME_HINTS, _compile(_SECRET_NAME + r"(?:" + _QUOTE + r")?\s*(?:=>|[:=])\s*" + _VALUE), _mask_value),
    # ('api_key', 'X'), [b"token", b"X"]: pairs of name and value
    _Rule(
        (*_NAME_HINTS, "token'", 'token"', "token\\"),
        _compile(
            r"[(\[]\s{0,4}"
            + _BYTES
            + _QUOTE
            + r"(?:(?:\w{1,30}[_-]){0,3}"
            + _SECRET_WORDS
            + r"|token)"
            + _QUOTE
            + r"\s{0,4},\s{0,4}(?P<v>"
            + _BYTES
            + r"(?P<q>"
            + _QUOTE
            + r")(?:(?!(?P=q))[^\n]){1,1000}(?P=q))"
            + r"(?=\s{0,4},?\s{0,4}[)\]])"
        ),
        _mask_value,
    ),
    # {"name": "API_KEY", "value": "X"}, as containers' environments are printed
    _Rule(
        ("value",),
        _compile(
            r"(?<![A-Za-z])name(?:"
            + _QUOTE
            + r")?\s*[:=]\s*(?:"
            + _QUOTE
            + r")?(?:\w{1,30}[_-]){0,3}"
            + _SECRET_WORDS
            + r"(?:"
            + _QUOTE
            + r")?\s*,\s*(?:"
            + _QUOTE
            + r")?value(?:"
            + _QUOTE
            + r")?\s*[:=]\s*"
            + _VALUE
        ),
        _mask_value,
    ),
    # token='X' and "token": "X" only where the value is quoted or long, or looks like no word of a vocabulary
    _Rule(
        ("token=", "token'", 'token"', "token\\"),
        _compile(
            r"(?<![A-Za-z0-9_#-])token(?P<number>)(?:" + _QUOTE + r"\s*:\s*|\s*=\s*)"
            r"(?=" + _QUOTE + r"[^\"'\s]{8}|[^\s\"']{12}|[\w.+/-]{8})" + _VALUE
        ),
        _mask_value,
    ),
    # shapes that are secrets wherever they stand
    _Rule(("sk-",), _compile(r"(?<![A-Za-z0-9_-])sk-(?=[A-Za-z0-9_-]*[0-9A-Z])[A-Za-z0-9_-]{12,}", 0), MASK),
    _Rule(("hf_",), _compile(r"(?<![A-Za-z0-9_])hf_(?=[A-Za-z0-9]*[0-9A-Z])[A-Za-z0-9]{10,}(?![A-Za-z0-9_])", 0), MASK),
    _Rule(("hf_",), _compile(r"(?<![A-Za-z0-9_])hf_[A-Za-z]{30,}(?![A-Za-z0-9_])", 0), MASK),
    _Rule(("akia", "asia"), _compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", 0), MASK),
    _Rule(
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
        _compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,})", 0),
        MASK,
    ),
    _Rule(("nvapi-",), _compile(r"\bnvapi-[\w-]{16,}", 0), MASK),
    _Rule(("xox",), _compile(r"\bxox[abeoprs]-[\w-]{10,}", 0), MASK),
    _Rule(("aiza",), _compile(r"\bAIza[\w-]{35}", 0), MASK),
    _Rule(("eyj",), _compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?", 0), MASK),
)
_HINTS = tuple(sorted({hint for rule in _RULES for hint in rule.hints}))
_UTF_16 = re.compile(r"(?:[\x20-\x7e]\0){3}|(?:\0[\x20-\x7e]){3}")
_KEY_BODY = re.compile(r"\s*[A-Za-z0-9+/]{64}\s*")
_MIXED = (re.compile(r"[a-z]"), re.compile(r"[A-Z]"), re.compile(r"[0-9]"))

_SECRET_OPTION = re.compile(r"--?(?:(?:\w{1,30}[_-]){0,3}" + _SECRET_WORDS + r"|token)", re.IGNORECASE)
_SEVERAL_VALUES = re.compile(r"--?api[_-]?keys?", re.IGNORECASE)  # vLLM's --api-key takes a list
_SECRET_ENV = re.compile(r"(?:\w{0,60}_)?(?:" + _SECRET_WORDS + r"|token|auth|cookie)", re.IGNORECASE)


def redact_text(text: str) -> str:
    """`text` with every secret replaced by `***`; a second run changes nothing.

    The NULs between the letters of UTF-16 (a log that PowerShell wrote) would hide a secret: they go as well.
    """
    if "\0" in text and _UTF_16.search(text):
        text = text.replace("\0", "")
    low = text.lower()
    if not any(hint in low for hint in _HINTS):
        return _hide_key_body(text)
    for rule in _RULES:
        if any(hint in low for hint in rule.hints):
            text = rule.pattern().sub(rule.put, text)
    return text


def _hide_key_body(line: str) -> str:
    """A line of a private key's body: 64 letters of base64 alone on the line."""
    if 64 <= len(line) <= 80 and _KEY_BODY.fullmatch(line) and all(mixed.search(line) for mixed in _MIXED):
        return MASK
    return line


def redact_argv(argv: "List[str]") -> "List[str]":
    """Arguments with secret values replaced; options and their number stay as they are."""
    out: List[str] = []
    hide = 0  # how many following arguments are values of a secret option
    for arg in argv:
        if hide and not arg.startswith("-"):
            out.append(MASK)
            hide -= 1
            continue
        hide = 0
        name, equals, _ = arg.partition("=")
        if _SECRET_OPTION.fullmatch(name):
            if equals:
                out.append(name + "=" + MASK)
            else:
                out.append(arg)
                hide = 64 if _SEVERAL_VALUES.fullmatch(name) else 1
            continue
        out.append(redact_text(arg))
    return out


def redact_env(env: "Dict[str, str]") -> "Dict[str, str]":
    """Environment with the values of secret names replaced and the rest searched for secrets."""
    return {
        name: (MASK if value and _SECRET_ENV.fullmatch(name) else redact_text(name + "=" + value).partition("=")[2])
        for name, value in env.items()
    }
