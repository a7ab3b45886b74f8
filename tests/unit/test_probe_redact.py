"""Secrets go, evidence stays."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetop.probe.redact import redact_argv, redact_env, redact_text

CASES = sorted((Path(__file__).parents[1] / "data" / "cases").glob("*.yaml"))

KEY = "q7Zp2Lw9xTr4"  # stands for a secret in every sentence below

SECRET_LINES = [
    f"python -m vllm serve m --api-key {KEY} --port 1",
    f"--api-key={KEY}",
    f"vllm serve m --api-key {KEY} x{KEY} y{KEY} --port 1",
    f"vllm serve --api-key '{KEY} a' \"{KEY}\" {KEY}",
    f"['vllm', 'serve', '--api-key', '{KEY}', '{KEY}', '{KEY} b', '--port', '1']",
    f'{{\\"argv\\": [\\"--api-key\\", \\"{KEY}\\", \\"{KEY}\\"]}}',
    f"https_proxy=http://user:{KEY}@proxy.lab:3128",
    f"HTTPS_PROXY: 'http://user:p@{KEY}@proxy.lab:3128'",
    f"http_proxy=user:{KEY}@proxy.lab:3128",
    f"'ALL_PROXY': 'user:{KEY}@proxy.lab:3128'",
    f"AWS_SECRET_ACCESS_KEY={KEY}",
    f"AWS_SECRET_ACCESS_KEY: {KEY}",
    f"HUGGING_FACE_HUB_TOKEN: {KEY}",
    f"env: [{{name: HUGGING_FACE_HUB_TOKEN, value: {KEY}}}]",
    f'"HUGGING_FACE_HUB_TOKEN": "{KEY}"',
    f'{{"name": "HF_TOKEN", "value": "{KEY}"}}',
    f"environ({{'HF_TOKEN': '{KEY}', 'AWS_SECRET_ACCESS_KEY': '{KEY}'}})",
    f"headers={{'Authorization': 'Bearer {KEY}'}}",
    f"('Authorization', 'Bearer {KEY}')",
    f"-e HF_TOKEN={KEY} --env=AWS_SESSION_TOKEN={KEY}",
    f"--hf-token {KEY}",
    f"--ssl-keyfile-password {KEY}",
    f"ServerArgs(model_path='m', tokenizer='t', api_key='{KEY}', admin_api_key='{KEY}')",
    f"non-default args: {{'model': 'm', 'api_key': ['{KEY}', '{KEY}']}}",
    f'{{"api_key": "{KEY}", "port": 1}}',
    f'{{"message": "args {{\\"api_key\\": \\"{KEY}\\"}}"}}',
    f"['vllm', 'serve', '--api-key', '{KEY}', '--port', '1']",
    f"HF_TOKEN={KEY} HUGGING_FACE_HUB_TOKEN={KEY} vllm serve m",
    f"export AWS_SECRET_ACCESS_KEY={KEY}/x+y=",
    f"Authorization: Bearer {KEY}",
    f"curl -H 'Authorization: Bearer {KEY}' http://localhost/",
    f"headers={{'authorization': 'Basic {KEY}=='}}",
    f"X-Api-Key: {KEY}",
    f"Cookie: session={KEY}",
    f"downloading https://user:{KEY}@hub.example/m",
    f"git clone https://{KEY}{KEY}@github.com/a/b",
    f"GET /v1/models?token={KEY}&x=1",
    f"https://bucket/x?X-Amz-Signature={KEY}&a=b",
    f"password: {KEY}",
    f"db_password = '{KEY} with blanks'",
    f"--token {KEY}",
    f"token='{KEY}'",
    f"a note with token={KEY[:9]} in it",
    f"{{'admin_api_key': b'{KEY}'}}",
    f'api_key=[b"{KEY}", b"{KEY}"]',
    f"[('secret','{KEY}')]",
    f"headers: [(b'x-api-key', b'{KEY}'), ('token', '{KEY}')]",
    f'[[\\"hf_token\\", \\"{KEY}\\"]]',
    "using key sk-proj-" + KEY,
    "hf_" + KEY * 3,
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_" + KEY * 3,
    "nvapi-" + KEY * 2,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4",
    f"-----BEGIN RSA PRIVATE KEY-----\\n{KEY}\\n-----END RSA PRIVATE KEY-----",
    f"-----BEGIN PRIVATE KEY----- {KEY}",
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDRnUd5jmO6p7aB",
]
EVIDENCE = [
    "ServerArgs(tokenizer='deepseek-ai/DeepSeek-R1', max_total_num_tokens=123, api_key=None, hf_token=None)",
    "Decode batch. #running-req: 1, #token: 2048, token usage: 0.10, gen throughput (token/s): 12.1, #queue-req: 0",
    "Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 1 reqs",
    "eos_token='</s>', bos_token: '<s>', pad_token_id=2, stop_token_ids=[1, 2], num_token: 3, token=12",
    "[AutoTuner]: Loading configs for ('trtllm::fused_moe::gemm1', 'MoERunner', ((64, 3584),)) from file.",
    "{'admin_api_key': None, 'api_key': b''} ['api_key', 'port', 'host'] token=<|im_end|> token=hello token=1234567890",
    "cache_key=ab12cd34 profile_key: ('a', 1) ssl_keyfile='/etc/x.key'",
    "Using default MoE config. Config file not found at /x/configs/E=64,N=768,device_name=NVIDIA_H200.json",
    "{'trust_remote_code': True, 'secret': None, 'skip_tokenizer_init': False}",
    "task-runner-1234567890AB disk-cache-0123456789AB hf_overrides={} hf_transformers",
    "NVRM: Xid (PCI:0000:06:00): 79, pid=1234, name=python3, GPU has fallen off the bus.",
    "vllm serve m --served-model-name a b --tokenizer-mode auto --port 1",
    "https_proxy=http://proxy.lab:3128 no_proxy=localhost,10.0.0.1",
    '{"name": "MODEL", "value": "m"}, {"name": "tokenizer", "value": "t"}',
    "https://example.com/a?b=c&page=2 ssh://git@host/x",
]


@pytest.mark.parametrize("line", SECRET_LINES)
def test_no_secret_is_left(line: str) -> None:
    clean = redact_text(line)
    assert KEY not in clean
    assert "***" in clean
    assert redact_text(clean) == clean


@pytest.mark.parametrize("line", EVIDENCE)
def test_evidence_stays_as_it_was(line: str) -> None:
    assert redact_text(line) == line


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_secret_in_utf_16_is_no_better_hidden(encoding: str) -> None:
    line = f"args api_key='{KEY}' port=1".encode(encoding).decode("utf-8", errors="replace")
    assert redact_text(line) == "args api_key='***' port=1"


def test_what_stands_beside_a_secret_stays() -> None:
    line = f"ServerArgs(model_path='m', api_key='{KEY}', tp_size=8, moe_runner_backend='flashinfer_cutlass')"
    assert redact_text(line) == line.replace(KEY, "***")


def test_of_several_keys_none_is_left_and_the_next_option_is() -> None:
    assert redact_text(f"vllm serve m --api-key {KEY} {KEY} --served-model-name a b --port 1") == (
        "vllm serve m --api-key *** *** --served-model-name a b --port 1"
    )
    assert redact_text(f"['--api-key', '{KEY}', '{KEY}', '--served-model-name', 'a', 'b']") == (
        "['--api-key', '***', '***', '--served-model-name', 'a', 'b']"
    )


def test_a_proxy_keeps_its_place() -> None:
    assert redact_text(f"http_proxy=http://me:{KEY}@proxy.lab:3128/ no_proxy=localhost") == (
        "http_proxy=http://***@proxy.lab:3128/ no_proxy=localhost"
    )
    assert redact_env({"https_proxy": f"me:{KEY}@proxy.lab:3128"}) == {"https_proxy": "***@proxy.lab:3128"}


def test_arguments_keep_their_options_and_their_number() -> None:
    argv = ["vllm", "serve", "m", "--api-key", KEY, KEY, "--port", "8000", f"--hf-token={KEY}", "--tokenizer", "t"]
    assert redact_argv(argv) == [
        "vllm", "serve", "m", "--api-key", "***", "***", "--port", "8000", "--hf-token=***", "--tokenizer", "t",
    ]  # fmt: skip


def test_environments_hide_the_values_of_secret_names_and_secrets_in_other_values() -> None:
    env = {"HF_TOKEN": KEY, "VLLM_API_KEY": KEY, "TOKENIZERS_PARALLELISM": "false", "PROXY": f"http://u:{KEY}@p:1"}
    assert redact_env(env) == {
        "HF_TOKEN": "***",
        "VLLM_API_KEY": "***",
        "TOKENIZERS_PARALLELISM": "false",
        "PROXY": "http://***@p:1",
    }


@pytest.mark.parametrize(
    "hostile",
    [
        "key" + "a-" * 30000,
        "api_key=" + "\\" * 60000,
        "token " + "_a" * 30000 + "=b",
        "secret=['" * 7000,
        "http://" * 9000 + "?",
        "--api-key" * 7000,
        "eyJ" * 20000,
        'api_key="' * 7000,
        "['secret','" * 7000,
        "('token'," + "b'" * 30000,
        "-----BEGIN PRIVATE KEY-----" * 2000,
        "--api-key" + " a" * 32000,
        "'--api-key'" + ", 'a'" * 12000,
        "proxy=" * 10000,
        "proxy=a:" + "b@" * 30000,
        '"name": "api_key", ' * 3000,
    ],
)
def test_hostile_lines_of_64_kib_take_no_long_time(hostile: str) -> None:
    start = time.process_time()
    redact_text(hostile)
    assert time.process_time() - start < 2.0


PIECES = [
    "api_key",
    "token",
    "--hf-token",
    "password",
    "=",
    ": ",
    " ",
    "'",
    '"',
    "\\",
    "[",
    "]",
    "(",
    ")",
    ",",
    "***",
    KEY,
]
PIECES += ["Authorization", "Bearer ", "https://", "@", "?", "&", "None", "sk-", "hf_", "eyJ", ".", "\n", "é"]


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_any_text_can_be_redacted_and_again_without_change(text: str) -> None:
    clean = redact_text(text)
    assert redact_text(clean) == clean


def test_the_logs_of_the_field_hold_no_line_that_redaction_destroys() -> None:
    changed = [
        line
        for path in CASES
        for line in path.read_text().splitlines()
        if redact_text(line) != line and "api_key" not in line
    ]
    assert CASES
    assert changed == []
