"""The NVML binding as it travels: less of it, and nothing that the probe can reach is lost or changed."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pynvml

from moetop.transport.binding import cut

PROBE = [path.read_text("utf-8") for path in (Path(__file__).parents[2] / "moetop" / "probe").glob("*.py")]
WHOLE = Path(pynvml.__file__).read_text("utf-8")


def module_of(source: str, name: str) -> types.ModuleType:
    module = types.ModuleType(name)
    sys.modules[name] = module
    try:
        exec(compile(source, name, "exec"), module.__dict__)
    finally:
        del sys.modules[name]
    return module


def test_every_name_the_probe_asks_of_the_binding_is_there_as_it_was() -> None:
    short, whole = module_of(cut(WHOLE, PROBE), "short"), module_of(WHOLE, "whole")
    asked = {word for text in PROBE for word in re.findall(r"\b(?:nvml|NVML|c_nvml)\w+", text)}
    there = {name for name in asked if hasattr(whole, name)}
    assert {"nvmlInit", "nvmlDeviceGetFieldValues", "nvmlGpmMetricsGet", "NVMLError", "nvmlMemory_v2"} <= there
    for name in there:
        value = getattr(whole, name)
        kept = getattr(short, name)
        assert kept == value if isinstance(value, (int, str)) else type(kept) is type(value), name


def test_every_error_has_its_class_and_its_words() -> None:
    short, whole = module_of(cut(WHOLE, PROBE), "short"), module_of(WHOLE, "whole")
    codes = {name: value for name, value in vars(whole).items() if name.startswith("NVML_ERROR_")}
    assert len(codes) > 20
    for code in codes.values():
        mine, real = short.NVMLError(code), whole.NVMLError(code)
        assert (type(mine).__name__, str(mine)) == (type(real).__name__, str(real))


def test_no_function_that_is_left_names_one_that_is_gone() -> None:
    short, whole = module_of(cut(WHOLE, PROBE), "short"), module_of(WHOLE, "whole")
    for name, value in vars(short).items():
        if isinstance(value, types.FunctionType):
            missing = [used for used in value.__code__.co_names if hasattr(whole, used) and not hasattr(short, used)]
            assert not missing, name


def test_most_of_it_stays_at_home_and_its_licence_travels() -> None:
    short = cut(WHOLE, PROBE)
    assert len(short) < len(WHOLE) / 4
    assert short.startswith(WHOLE[:400])


def test_what_is_not_reached_is_left_out_with_its_decorators_and_lines() -> None:
    source = '''"""Text
"""
import sys
@wrap
def used(
    x
):
    return helper(x)

@wrap
@twice
def unused():
    return """
    text"""
class Helper: pass
helper = Helper
NVML_ERROR_X = 1
OTHER = 2
def wrap(f): return f
'''
    assert cut(source, ["call used"]) == source.replace(
        '@wrap\n@twice\ndef unused():\n    return """\n    text"""\n', ""
    ).replace("OTHER = 2\n", "")


def test_a_layout_that_cannot_be_cut_travels_whole() -> None:
    source = 'def unused():\n    """text\nthat is at the margin"""\n    return 1\n'
    assert cut(source, []) == source
