"""Which command lines start a serving engine, and what their arguments say."""

from __future__ import annotations

import pytest

from moetop.probe.cachefile import describe_flashinfer, stale_reason
from moetop.probe.discover import relevant_env
from moetop.probe.launch import flat_settings, launch_of, parse_arguments, title_engine
from moetop.probe.logplace import manager_of, tee_files
from moetop.probe.tables import NAME, device_part, wanted_table

SERVING = [
    ("python -m sglang.launch_server --model-path m", "sglang"),
    ("python3 -u -X faulthandler -m sglang.launch_server --model m", "sglang"),
    ("/opt/venv/bin/python3.12 /opt/venv/bin/sglang serve --model-path m", "sglang"),
    ("python /workspace/sglang/python/sglang/launch_server.py --tp 8", "sglang"),
    ("/usr/bin/python3 /usr/local/bin/vllm serve m --port 8001", "vllm"),
    ("python3 -m vllm.entrypoints.openai.api_server --model m", "vllm"),
    ("python3 -um vllm.entrypoints.openai.api_server --model m", "vllm"),
    ("/usr/bin/python3 /usr/local/bin/trtllm-serve m --tp_size 8", "tensorrt_llm"),
    ("python3 -m tensorrt_llm.commands.serve serve m", "tensorrt_llm"),
]
NOT_SERVING = [
    "bash -c python -m sglang.launch_server --model-path m",
    "docker run --gpus all lmsysorg/sglang python3 -m sglang.launch_server --model-path m",
    "grep -r sglang.launch_server .",
    "vim vllm/entrypoints/openai/api_server.py",
    "/usr/bin/python3 /usr/local/bin/vllm bench serve --model m",
    "python3 -m sglang_router.launch_router --worker-urls x",
    "python3 -m sglang.bench_serving --backend sglang",
    "python3 -c import_sglang.launch_server",
    "/usr/bin/python3 /usr/local/bin/trtllm-serve disaggregated -c x.yaml",
    "tee sglang.log",
    "python3 autotune.py --vllm serve",
]


@pytest.mark.parametrize(("line", "engine"), SERVING)
def test_start_commands_of_engines_are_known(line: str, engine: str) -> None:
    launch = launch_of(line.split())
    assert launch is not None and launch.engine == engine


@pytest.mark.parametrize("line", NOT_SERVING)
def test_what_only_mentions_an_engine_is_no_server(line: str) -> None:
    assert launch_of(line.split()) is None


def test_titles_of_engine_children() -> None:
    assert title_engine(["sglang::scheduler_TP0"]) == "sglang"
    assert title_engine(["VLLM::Worker_TP0", "", ""]) == "vllm"
    assert title_engine(["python", "VLLM::Worker"]) is None
    assert title_engine([]) is None


def test_sglang_arguments_get_the_names_that_sglang_uses() -> None:
    words = "--model m --tp 8 --moe-runner-backend=flashinfer_cutlass --disable-flashinfer-autotune --page-size 0.85"
    assert parse_arguments("sglang", words.split()) == {
        "model_path": "m",
        "tp_size": 8,
        "moe_runner_backend": "flashinfer_cutlass",
        "disable_flashinfer_autotune": True,
        "page_size": 0.85,
    }


def test_vllm_arguments_with_short_forms_and_negations() -> None:
    words = "m/x -tp 4 --no-enable-flashinfer-autotune -O3 --cuda-graph-sizes 1 2 4 --port 8001 --port 8002 --seed -1"
    assert parse_arguments("vllm", words.split()) == {
        "model": "m/x",
        "tensor_parallel_size": 4,
        "enable_flashinfer_autotune": False,
        "optimization_level": 3,
        "cuda_graph_sizes": [1, 2, 4],
        "port": 8002,
        "seed": -1,
    }


def test_secrets_in_arguments_do_not_travel() -> None:
    found = parse_arguments("sglang", ["--api-key", "sk-1", "--admin-api-key=sk-2", "--tokenizer-path", "t"])
    assert found == {"api_key": "***", "admin_api_key": "***", "tokenizer_path": "t"}


def test_a_settings_file_gives_its_plain_lines() -> None:
    text = (
        "enable_autotuner: false  # x\ncuda_graph_config:\n  max_batch_size: 8\nport: 8010\napi-key: abc\nlist: [1]\n"
    )
    assert flat_settings(text) == {"enable_autotuner": False, "port": 8010, "api_key": "***"}


def test_only_relevant_environment_travels_and_no_secret() -> None:
    env = {"HF_TOKEN": "x", "VLLM_API_KEY": "k", "SGLANG_CACHE_DIR": "/c", "PATH": "/bin", "NCCL_DEBUG": "INFO"}
    assert relevant_env(env) == {"SGLANG_CACHE_DIR": "/c", "NCCL_DEBUG": "INFO"}


@pytest.mark.parametrize(
    ("path", "manager"),
    [
        ("/system.slice/vllm.service", "systemd:vllm.service"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/sglang.service", "systemd-user:sglang.service"),
        ("/user.slice/user-1000.slice/session-3.scope", "plain"),
        ("/system.slice/ssh.service", "plain"),
        ("/system.slice/cron.service", "plain"),
        ("/system.slice/docker-" + "ab" * 32 + ".scope", "docker:abababababab"),
        ("/docker/" + "cd" * 32, "docker:cdcdcdcdcdcd"),
        ("/machine.slice/libpod-" + "ef" * 32 + ".scope/container", "podman:efefefefefef"),
        ("/kubepods.slice/kubepods-podx.slice/cri-containerd-" + "12" * 32 + ".scope", "containerd:121212121212"),
        ("/", "plain"),
    ],
)
def test_who_manages_a_process_follows_from_its_control_group(path: str, manager: str) -> None:
    assert manager_of([path]) == manager


def test_tee_and_its_files() -> None:
    assert tee_files(["/usr/bin/tee", "-a", "run.log"]) == ["run.log"]
    assert tee_files(["tee", "--", "-odd"]) == ["-odd"]
    assert tee_files(["cat", "x"]) == []


def test_table_names_keep_blanks_and_whole_device_names() -> None:
    match = NAME.match("E=256,N=768,device_name=NVIDIA_H200_NVL,dtype=fp8_w8a8,block_shape=[128, 128]_down.json")
    assert match is not None
    assert match.group("device", "block", "down") == ("NVIDIA_H200_NVL", "128, 128", "_down")
    assert device_part("sglang", "NVIDIA H200 NVL") == "NVIDIA_H200_NVL"
    assert device_part("vllm", "NVIDIA H200 NVL") == "NVIDIA_H200"


def test_the_missing_table_is_named_only_where_nothing_is_guessed(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "config.json").write_text('{"num_experts": 128, "moe_intermediate_size": 768}')
    args = {"model_path": str(tmp_path), "tp_size": 2}
    wanted = wanted_table("sglang", args, {}, "/root", "", "NVIDIA H200")
    assert wanted is not None and wanted.name == "E=128,N=384,device_name=NVIDIA_H200.json"
    assert wanted_table("sglang", {**args, "ep_size": 2}, {}, "/root", "", "NVIDIA H200") is None
    assert wanted_table("sglang", {**args, "quantization": "fp8"}, {}, "/root", "", "NVIDIA H200") is None
    (tmp_path / "config.json").write_text(
        '{"n_routed_experts": 256, "moe_intermediate_size": 2048, "n_shared_experts": 1}'
    )
    assert wanted_table("sglang", args, {}, "/root", "", "NVIDIA H200") is None


def test_a_flashinfer_cache_tells_its_operations_buckets_and_fallbacks(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "rank_tp3_pp0_dp0.json"
    path.write_text(
        '{"_metadata": {"flashinfer_version": "0.6.12", "gpu": "NVIDIA B200"},'
        " \"('trtllm::fused_moe::gemm1', 'MoERunner', ((64, 3072), (256, 512, 448)))\": [\"MoERunner\", 14],"
        " \"('trtllm::fused_moe::gemm1', 'MoERunner', ((128, 3072), (256, 512, 448)), ())\": [\"MoERunner\", [1, 2]],"
        " \"('trtllm::fused_moe::gemm2', 'MoERunner', ((64, 3072),))\": [\"MoERunner\", -1]}"
    )
    facts, metadata = describe_flashinfer(str(path))
    assert facts == {
        "rank": "tp3_pp0_dp0",
        "entries": 3,
        "fallback_only": 1,
        "ops": {
            "trtllm::fused_moe::gemm1": {"entries": 2, "buckets": [64, 128]},
            "trtllm::fused_moe::gemm2": {"entries": 1, "buckets": []},
        },
    }
    why = stale_reason(metadata, {"flashinfer": "0.6.17"}, ["NVIDIA RTX PRO 6000 Blackwell Server Edition"])
    assert why is not None and "0.6.12" in why and "NVIDIA B200" in why
    assert stale_reason(metadata, {}, []) is None
    assert stale_reason({"flashinfer_version": "*"}, {"flashinfer": "1"}, []) is None


def test_a_broken_cache_is_said_to_count_for_nothing(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "autotune_configs.json"
    path.write_text('{"half": ')
    assert "not valid JSON" in describe_flashinfer(str(path))[0]["unreadable"]
