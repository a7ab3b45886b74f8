"""From a report to a plan: which tuner, which files, which refusals, and words that hold no secret."""

from __future__ import annotations

import json

import pytest

from moetop.config.schema import Command, LogSpec, ServerMatch, ServerSpec, Timeouts
from moetop.model import (
    Confidence,
    Engine,
    EventKind,
    EventSeverity,
    Finding,
    FindingKind,
    HostReport,
    LogEvent,
    Phase,
    ServerMetrics,
    ServerReport,
    Severity,
    Tuning,
    TuningFile,
    Verdict,
)
from moetop.retune import cli, recipes
from moetop.retune.plan import find_server, make_plan, survey_request
from moetop.retune.types import CommandLine, Overrides, Refusal, Tuner, overrides_for

TABLE = "/d/configs/triton_3_6_0/E=256,N=512,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json"
CACHE = "/root/.cache/sglang/flashinfer/autotune/0.6.14/sm120/88ed2caa135f6803/rank_tp3_pp0_dp0.json"


def event(kind: EventKind, run: int = 1, **fields: object) -> LogEvent:
    return LogEvent(kind=kind, rule="x", severity=EventSeverity.INFO, line="", run=run, fields=fields)


def server(**changes: object) -> ServerReport:
    given: dict[str, object] = {
        "name": "sglang:8000",
        "engine": Engine.SGLANG,
        "version": "0.5.18",
        "pid": 4242,
        "argv": ("python3", "-m", "sglang.launch_server", "--model-path", "M", "--api-key", "***"),
        "args": {"model_path": "M", "tp_size": 8, "moe_runner_backend": "triton"},
        "port": 8000,
        "phase": Phase.READY,
        "ready": True,
        "metrics": ServerMetrics(running=0.0),
        "tuning": Tuning(verdict=Verdict.UNTUNED),
        "events": (event(EventKind.MOE_CONFIG_DEFAULT, path=TABLE),),
    }
    return ServerReport(**{**given, **changes})


def survey(**changes: object) -> dict[str, object]:
    process = {
        "alive": True, "pid": 4242, "uid": 1000, "user": "serve", "program": "/venv/bin/python3", "cwd": "/srv",
        "cwd_ok": True, "env_names": ["PATH"], "argv": ["python3", "-m", "sglang.launch_server", "--api-key", "***"],
        "ident": {"pid": 4242, "ticks": 1, "boot": "b"}, "manager": {"kind": "plain", "name": ""},
        "stdout": {"kind": "file", "target": "/srv/log"}, "stderr": {"kind": "file", "target": "/srv/log"},
    }  # fmt: skip
    process.update(changes.pop("process", {}))
    given = {
        "uid": 1000, "user": "serve", "server": process, "state": {"path": "/s", "free_mib": 9000, "error": None},
        "tuners": ["/sgl-workspace/sglang/benchmark/kernels/fused_moe_triton/tuning_fused_moe_triton.py"],
        "gpu": {"smi": True, "error": None, "processes": [{"pid": 4242, "gpu": "U", "ours": True, "name": "p"}]},
        "files": [], "targets": [], "not_movable": {}, "requests": {"running": 0.0}, "missing_packages": [],
        "lock": None, "interrupted": [], "logind_kills": False,
    }  # fmt: skip
    return {**given, **changes}


def plan(one: ServerReport | None = None, said: dict[str, object] | None = None, **given: object):
    one = one or server()
    report = HostReport(name="gpu1", headline="x", servers=(one,), findings=given.pop("findings", ()))
    return make_plan(report, one, given.pop("overrides", Overrides()), said)


def codes(made) -> list[str]:
    return [refusal.code for refusal in made.refusals]


def test_triton_is_tuned_offline_with_the_engines_own_script_for_the_very_file_it_looked_for():
    made = plan(said=survey())
    assert (made.recipe, made.tuner, made.refused) == ("sglang-triton", Tuner.OFFLINE, False)
    assert [step.id for step in made.steps] == [
        "check", "baseline", "stop", "free", "tune", "install", "start", "ready", "verify", "measure",
    ]  # fmt: skip
    assert made.spec["tune"]["argv"] == [
        "/venv/bin/python3", "/sgl-workspace/sglang/benchmark/kernels/fused_moe_triton/tuning_fused_moe_triton.py",
        "--model", "M", "--tp-size", "8", "--dtype", "fp8_w8a8", "--tune",
    ]  # fmt: skip
    assert made.spec["tune"]["outputs"] == [{"name": TABLE.rpartition("/")[2], "target": TABLE}]
    assert made.spec["health_url"] == "http://127.0.0.1:8000/health"


def test_vllm_triton_says_where_to_save_and_takes_the_last_place_it_searched():
    places = ["/folder/E=8,N=1,device_name=X.json", "/site/configs/E=8,N=1,device_name=X.json"]
    one = server(
        engine=Engine.VLLM, version="0.11.0", args={"model": "M", "tensor_parallel_size": 2, "moe_backend": "triton"},
        events=(event(EventKind.MOE_CONFIG_DEFAULT, paths=places),),
    )  # fmt: skip
    made = plan(one, survey())
    assert made.spec["tune"]["outputs"][0]["target"] == places[-1]
    assert made.spec["tune"]["argv"][-2:] == ["--save-dir", "{out}"]


def test_flashinfer_is_tuned_at_the_start_once_the_caches_of_all_ranks_are_away():
    one = server(
        args={"moe_runner_backend": "flashinfer_cutlass"}, events=(event(EventKind.AUTOTUNE_START, path=CACHE),)
    )
    made = plan(one, survey(files=[{"path": CACHE, "size": 3}]))
    assert made.tuner == Tuner.AT_START
    assert made.spec["moves"] == [CACHE.rpartition("/")[0] + "/rank_tp*_pp*_dp*.json"]
    assert "tune" not in [step.id for step in made.steps]
    assert made.spec["timeouts"]["start_s"] == 5400.0
    assert not any("MoE kernel config" in pattern for pattern in made.spec["lines"]["untuned"])


def test_tensorrt_llm_moves_the_cache_its_environment_names_and_those_of_the_ranks():
    one = server(
        engine=Engine.TENSORRT_LLM, args={}, events=(), env={"TLLM_AUTOTUNER_CACHE_PATH": "/c/auto.json"},
        version="1.0.0",
    )  # fmt: skip
    assert plan(one, survey()).spec["moves"] == ["/c/auto.json", "/c/auto.rank*.json"]


def test_only_the_newest_run_tells_the_backend_and_the_file():
    old = event(EventKind.MOE_BACKEND_SELECTED, run=1, backend="flashinfer_trtllm")
    one = server(events=(old, event(EventKind.MOE_CONFIG_DEFAULT, run=2, path=TABLE)))
    assert plan(one, survey()).backend == "triton"


@pytest.mark.parametrize(
    ("verdict", "code", "advice"),
    [
        (Verdict.NEVER_RAN, "never_ran", "0.5.16"),
        (Verdict.NOT_TUNABLE, "not_tunable", "backend"),
        (Verdict.OFF, "tuning_off", "start:"),
        (Verdict.RUNNING, "tuning_now", "wait"),
    ],
)
def test_what_a_restart_cannot_cure_gets_advice_instead(verdict, code, advice):
    made = plan(server(tuning=Tuning(verdict=verdict)), survey())
    assert codes(made) == [code] and made.steps == () and made.spec is None
    assert advice in made.refusals[0].advice


def test_the_reference_case_is_refused_with_the_upgrade_that_cures_it():
    remedy = ("upgrade to SGLang 0.5.16 or later and keep the same backend",)
    one = server(
        version="0.5.9", args={"moe_runner_backend": "flashinfer_cutlass"}, events=(),
        tuning=Tuning(verdict=Verdict.NEVER_RAN, remedy=remedy),
    )  # fmt: skip
    made = plan(one)
    assert codes(made) == ["never_ran"] and remedy[0] in made.refusals[0].advice
    assert "Refused, nothing will be touched" in made.to_text()


@pytest.mark.parametrize(
    ("one", "code"),
    [
        (server(phase=Phase.LOADING), "starting"),
        (server(phase=Phase.CRASHED), "not_running"),
        (server(gone=True), "not_running"),
        (server(pid=None), "no_process"),
        (server(engine=None), "no_engine"),
        (server(args={}, events=()), "no_tuner"),
        (server(args={"moe_runner_backend": "marlin"}, events=()), "no_tuner"),
        (server(events=()), "no_target"),
    ],
)
def test_a_server_that_is_not_in_a_state_to_be_restarted_is_refused(one, code):
    assert codes(plan(one, survey())) == [code]


@pytest.mark.parametrize(
    ("kind", "words"), [(FindingKind.GPU_LOST, "is lost"), (FindingKind.DRIVER_MISMATCH, "until a reboot")]
)
def test_a_host_on_which_no_new_process_could_use_the_gpus_is_refused(kind, words):
    finding = Finding(kind=kind, severity=Severity.CRITICAL, confidence=Confidence.MEASURED, summary="x")
    made = plan(said=survey(), findings=(finding,))
    assert codes(made) == [str(kind)] and words in made.refusals[0].text


PIPE = {"kind": "pipe", "target": "pipe:[1]", "reader": "tee (pid 9)"}


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (survey(process={"stdout": PIPE}), "output_lost"),
        (survey(process={"stderr": {"kind": "terminal", "target": "/dev/pts/3"}}), "output_lost"),
        (survey(process={"program": None}), "command_lost"),
        (survey(process={"cwd_ok": False}), "cwd_lost"),
        (survey(process={"uid": 0, "user": "root"}), "not_permitted"),
        (survey(process={"pid": 1}), "cluster_managed"),
        (survey(process={"manager": {"kind": "kubernetes", "name": "pod"}}), "cluster_managed"),
        (survey(process={"manager": {"kind": "systemd", "name": "a.service", "user": False}}), "not_permitted"),
        (survey(process={"manager": {"kind": "docker", "name": "c0ffee"}}), "in_container"),
        (survey(process={"package": {"version": "0.5.9", "newer_than_process": True}}), "version_changed"),
        (survey(process={"same_mounts": False}), "other_namespace"),
        (survey(lock="ann@desk since noon (job 1)"), "locked"),
        (survey(interrupted=[{"job": "j", "operator": "ann"}]), "interrupted"),
        (survey(server={"alive": False, "pid": 4242}), "no_process"),
        (survey(state={"path": "/s", "free_mib": 3, "error": None}), "disk_full"),
        (survey(tuners=[]), "no_script"),
        (survey(missing_packages=["ray"]), "no_package"),
        (survey(targets=[{"path": TABLE, "exists": False, "why_not": "no right to write"}]), "no_target"),
        (survey(gpu={"smi": True, "error": "nvidia-smi fails: mismatch", "processes": None}), "smi_fails"),
        (
            survey(gpu={"smi": True, "error": None, "processes": [
                {"pid": 4242, "gpu": "U", "ours": True, "name": "p"},
                {"pid": 7, "gpu": "U", "ours": False, "name": "q"},
            ]}),
            "gpu_shared",
        ),
    ],
)  # fmt: skip
def test_what_the_host_says_can_refuse_it_before_anything_is_touched(said, code):
    made = plan(said=said)
    assert codes(made) == [code] and made.spec is None


def test_a_configured_start_makes_a_lost_command_no_obstacle():
    overrides = Overrides(start=CommandLine(("/srv/run.sh",), output="/srv/log"))
    made = plan(said=survey(process={"stdout": PIPE, "program": None}), overrides=overrides)
    assert not made.refused
    assert made.spec["start"] == made.spec["old_start"] == {
        "how": "command", "argv": ["/srv/run.sh"], "cwd": None, "output": "/srv/log",
    }  # fmt: skip


def test_a_unit_and_a_container_go_through_their_managers():
    said = survey(uid=0, user="root", process={"manager": {"kind": "systemd", "name": "moe.service", "user": False}})
    made = plan(said=said)
    assert made.spec["stop"]["argv"] == ["systemctl", "--no-ask-password", "stop", "--", "moe.service"]
    assert made.spec["log"] == {"kind": "journal", "target": "moe.service", "user": False}
    flashinfer = server(args={"moe_runner_backend": "flashinfer_cutlass"}, events=(event(EventKind.AUTOTUNE_START),))
    made = plan(flashinfer, survey(uid=0, process={"manager": {"kind": "docker", "name": "c0ffee"}}))
    assert made.spec["stop"]["argv"] == ["docker", "stop", "-t", "300", "c0ffee"]
    assert made.spec["old_start"]["argv"] == ["docker", "start", "c0ffee"]


def test_a_containers_caches_are_moved_only_where_a_volume_reaches_them():
    docker = {"manager": {"kind": "docker", "name": "c0ffee"}}
    args = {"moe_runner_backend": "flashinfer_cutlass"}
    one = server(args=args, events=(event(EventKind.AUTOTUNE_START, path=CACHE),))
    reached = survey(process=docker, moves=["/var/lib/docker/volumes/c/rank_tp*_pp*_dp*.json"], unmapped=[])
    assert plan(one, reached).spec["moves"] == ["/var/lib/docker/volumes/c/rank_tp*_pp*_dp*.json"]
    lost = plan(one, survey(process=docker, moves=[], unmapped=[CACHE]))
    assert codes(lost) == ["in_container"] and "on a volume" in lost.refusals[0].text


@pytest.mark.parametrize(
    ("running", "confirm"), [({"running": 0.0}, None), ({"running": 4.0}, "gpu1"), ({"waiting": 1.0}, None), ({}, None)]
)
def test_running_or_waiting_requests_need_the_hosts_name(running, confirm):
    assert plan(said=survey(requests=running)).confirm == confirm


def test_requests_that_are_not_known_need_the_hosts_name_too():
    made = plan(server(metrics=None), survey(requests={}))
    assert made.confirm == "gpu1" and "not known" in made.confirm_why


def test_a_tuned_server_can_be_retuned_but_the_plan_says_that_it_would_hardly_gain():
    tuned = Tuning(verdict=Verdict.TUNED)
    table = server(tuning=tuned, events=(event(EventKind.MOE_CONFIG_TUNED, path=TABLE),))
    caches = server(
        args={"moe_runner_backend": "flashinfer_cutlass"}, tuning=tuned,
        events=(event(EventKind.AUTOTUNE_CACHE_LOADED, path=CACHE),),
    )  # fmt: skip
    for one, tuner in ((table, Tuner.OFFLINE), (caches, Tuner.AT_START)):
        made = plan(one, survey())
        assert not made.refused and made.tuner == tuner
        assert "▲ already tuned: a retune would measure again, a gain is unlikely" in made.to_text()
    assert "already tuned" not in plan(said=survey()).to_text()


def test_a_preview_can_be_shown_but_holds_nothing_to_start():
    made = plan()
    assert made.steps and made.spec is None and "A preview" in made.to_text()
    assert survey_request(server())["targets"] == [TABLE]


def test_neither_text_nor_json_of_a_plan_holds_a_secret_or_a_raw_escape():
    overrides = Overrides(
        start=CommandLine(("run", "--api-key", "sk-verysecret123456")), env={"HF_TOKEN": "hf_verysecret123456"}
    )
    evil = survey(process={"cwd": "/srv/\x1b]0;pwned\x07"})
    made = plan(said=evil, overrides=overrides)
    for text in (made.to_text(), made.to_json()):
        assert "verysecret" not in text
    assert "\x1b" not in plan(said=evil).to_text()
    assert "HF_TOKEN" in made.to_text(), "the name of an override is shown, its value is not"
    assert json.loads(made.to_json())["needs_confirmation"] is False


def test_one_of_several_servers_has_to_be_named():
    report = HostReport(name="h", headline="x", servers=(server(), server(name="other")))
    found = find_server(report, None)
    assert isinstance(found, Refusal) and "sglang:8000, other" in found.advice
    assert find_server(report, "other").name == "other"
    assert find_server(report, "none").code == "no_server"
    assert find_server(HostReport(name="h", headline="x"), None).code == "no_server"


def test_configuration_is_matched_to_the_server_it_is_for():
    spec = ServerSpec(
        match=ServerMatch(port=8000), log=LogSpec(path="/l"), stop=Command(argv=("stop",)), health="/ping",
        env={"A": "b"}, timeouts=Timeouts(drain_s=7, health_s=9),
    )  # fmt: skip
    found = overrides_for([spec], server())
    assert found.stop == CommandLine(("stop",)) and found.timeouts == {"drain_s": 7, "health_s": 9}
    made = plan(said=survey(), overrides=found)
    assert made.spec["timeouts"]["verify_s"] == 9 and made.spec["health_url"] == "http://127.0.0.1:8000/ping"
    assert overrides_for([spec], server(port=1)) == Overrides()


def test_every_wait_of_a_job_can_be_configured_and_a_longer_window_holds_on_both_sides():
    names = {"verify_s" if name == "health_s" else name for name in vars(Timeouts())}
    assert names == set(recipes.DEFAULT_TIMEOUTS)
    spec = ServerSpec(match=ServerMatch(port=8000), timeouts=Timeouts(baseline_s=30, ask_s=5, settle_s=90))
    made = plan(said=survey(), overrides=overrides_for((spec,), server()))
    assert [made.spec["timeouts"][name] for name in ("baseline_s", "ask_s", "settle_s")] == [30, 5, 90]
    assert "SIGKILL after another 5 s" in " ".join(made.to_text().split())
    assert cli.window_of(made, 10.0) == 30 and cli.window_of(plan(said=survey()), 10.0) == 10


def test_every_recipe_has_a_source_and_patterns_that_compile():
    import re

    for engine in recipes.ENGINES.values():
        for line in (*engine.ready, *engine.failed, *engine.tuned, *engine.untuned):
            assert re.compile(line.pattern) and line.source
    assert all(row.source for row in (*recipes.TUNERS, *recipes.REFUSALS))
    assert all(row.scripts and row.argv for row in recipes.TUNERS if row.tuner == Tuner.OFFLINE)
    assert all("SIGQUIT" in rule for rule in recipes.ENGINES[Engine.SGLANG].never[:1])


def test_an_existing_inventory_entry_names_the_table_when_the_log_does_not():
    wanted = TuningFile(path=TABLE, role="triton_config", exists=False, facts={"from": "config.json"})
    other = TuningFile(path="/d/E=1,N=1.json", role="triton_config", exists=True, facts={"E": 1})
    one = server(events=(), files=(wanted, other))
    assert [out["target"] for out in plan(one, survey()).spec["tune"]["outputs"]] == [TABLE]
