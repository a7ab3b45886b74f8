"""Lines of FlashInfer's tuner, printed inside every engine. A table, no code."""

from __future__ import annotations

from moetop.engines import fields as f
from moetop.engines.rule import FI, Rule
from moetop.model import EventKind as K
from moetop.model import EventSeverity as S

RULES: tuple[Rule, ...] = (
    Rule(
        id="fi.tune.start",
        kind=K.AUTOTUNE_START,
        severity=S.INFO,
        engines=FI,
        pattern=r"\[Autotuner\]: Autotuning process starts",
        literals=("autotuning process starts",),
        meaning="tuning context opened (proves the gate passed, not that anything was tuned)",
        source="flashinfer autotuner.py:972 @ fb28d72",
        example=(
            "(Worker_TP0 pid=271) 2026-02-02 13:25:05,231 - INFO - autotuner.py:256 - flashinfer.jit: "
            "[Autotuner]: Autotuning process starts ..."
        ),
        not_heads=("trt",),
    ),
    Rule(
        id="fi.tune.end",
        kind=K.AUTOTUNE_END,
        severity=S.INFO,
        engines=FI,
        pattern=r"\[Autotuner\]: Autotuning process ends",
        literals=("autotuning process ends",),
        meaning="tuning context closed; start→end < ~1 s with no fi.tune.progress between = vacuous",
        source="flashinfer autotuner.py:995 @ fb28d72",
        example=(
            "(Worker_TP0 pid=2412213) 2025-12-11 00:06:54,231 - INFO - autotuner.py:262 - flashinfer.jit: "
            "[Autotuner]: Autotuning process ends"
        ),
        not_heads=("trt",),
    ),
    Rule(
        id="fi.tune.progress",
        kind=K.AUTOTUNE_PROGRESS,
        severity=S.INFO,
        engines=FI,
        pattern=(
            r"\[Auto[Tt]unn?er\]: Tuning (?P<op>\S{1,200}):\s{0,9}(?P<pct>\d+)%\|[^|]{0,300}\|\s{0,9}(?P<n>\d+)/(?"
            r"P<tot>\d+) \[(?P<el>[\d:]+)<(?P<eta>[\d:?]+)(?:,\s{0,9}(?P<rate>[\d.?]+)\s{0,9}(?P<unit>profile/s|s/"
            r"profile))?"
        ),
        literals=(
            "[autotuner]: tuning ",
            "[autotunner]: tuning ",
        ),
        meaning="tqdm bar, one per (op, call) that really profiles; stderr, uses \\r; FI ≥0.6.8",
        source="flashinfer autotuner.py:1767 @ fb28d72",
        example=(
            "[AutoTuner]: Tuning flashinfer::trtllm_fp4_block_scale_moe:  19%|#9        | 4/21 [00:38<02:45,  "
            "9.72s/profile]"
        ),
        parse=f.tuning_bar,
    ),
    Rule(
        id="fi.bundled.hit",
        kind=K.NOTE,
        severity=S.GOOD,
        engines=FI,
        pattern=r"\[Autotuner\]: Loading configs for (?P<key>.{1,2000}?) from file\.\s{0,20}$",
        literals=("autotuner]",),
        meaning="bundled per-GPU .py config used (needs FLASHINFER_AUTOTUNER_LOAD_FROM_FILE=1)",
        source="flashinfer autotuner.py:1187 @ fb28d72",
        example=(
            "2026-02-02 13:25:05,231 - INFO - autotuner.py:256 - flashinfer.jit: [Autotuner]: Loading configs "
            "for ('trtllm::fused_moe::gemm1', 'MoERunner', ((64, 3584), (256, 512, 448), (0,), (256, 7168, 16), "
            "(0,))) from file."
        ),
    ),
    Rule(
        id="fi.bundled.miss",
        kind=K.NOTE,
        severity=S.WARN,
        engines=FI,
        pattern=(
            r"\[Autotuner\]: Loading configs for (?P<key>.{1,2000}?) from file failed; Using default configs "
            r"instead"
        ),
        literals=("autotuner]",),
        meaning=(
            "bundled config lookup missed → (False,0,-1,None) → tactic -1. Only printed when LOAD_FROM_FILE=1 "
            "and not tuning"
        ),
        source="flashinfer autotuner.py:1190 @ fb28d72",
        example=(
            "2026-02-02 13:25:05,231 - INFO - autotuner.py:256 - flashinfer.jit: [Autotuner]: Loading configs "
            "for ('trtllm::fused_moe::gemm1', 'MoERunner', 1, ((64, 3072),)) from file failed; Using default "
            "configs instead."
        ),
    ),
    Rule(
        id="fi.jit.load",
        kind=K.JIT_START,
        severity=S.INFO,
        engines=FI,
        pattern=r"(?<!Finished )[Ll]oading JIT ops: (?P<what>\S{1,200})",
        literals=("loading jit ops: ",),
        meaning="a JIT module is being built or loaded",
        source="flashinfer jit/core.py",
        example="2025-12-20 04:21:17,836 - INFO - flashinfer.jit: Loading JIT ops: norm",
    ),
    Rule(
        id="fi.jit.done",
        kind=K.JIT_KERNEL,
        severity=S.INFO,
        engines=FI,
        pattern=r"Finished loading JIT ops: (?P<what>\S{1,200})",
        literals=("finished loading jit ops: ",),
        meaning="a JIT module is ready",
        source="flashinfer jit/core.py",
        example="2025-12-20 04:21:30,232 - INFO - flashinfer.jit: Finished loading JIT ops: norm",
    ),
    Rule(
        id="fi.cache.hit",
        kind=K.AUTOTUNE_CACHE_HIT,
        severity=S.GOOD,
        engines=FI,
        pattern=r"\[Autotuner\]: Config cache hit for (?P<op>\S+) \(runner=(?P<runner>\w+), source=config file\)",
        literals=("autotuner]",),
        meaning="JSON cache supplied a tactic (once per op+runner)",
        source="flashinfer autotuner.py:1488 @ fb28d72",
        example=(
            "2026-02-02 13:25:05,231 - INFO - autotuner.py:256 - flashinfer.jit: [Autotuner]: Config cache hit "
            "for trtllm::fused_moe::gemm1 (runner=MoERunner, source=config file)"
        ),
    ),
    Rule(
        id="fi.cache.saved0",
        kind=K.AUTOTUNE_CACHE_SAVED,
        severity=S.NOTICE,
        engines=FI,
        pattern=(
            r"\[Autotuner\]: Saved (?P<n>0) configs to (?P<path>\S.{0,1000}?)(?: \((?P<new>0) new, (?P<old>0) "
            r"from previous config\)|$)"
        ),
        literals=("[autotuner]: saved ",),
        meaning="JSON cache written with nothing in it: right only where no kernel needed tuning",
        source="flashinfer autotuner.py:2653 @ fb28d72",
        example=(
            "(Worker_TP0 pid=199) 2026-08-26 11:09:24,329 - INFO - autotuner.py:2269 - flashinfer.jit: "
            "[Autotuner]: Saved 0 configs to /c/autotune_configs.json (0 new, 0 from previous config)"
        ),
        parse=f.saved_cache,
    ),
    Rule(
        id="fi.cache.saved",
        kind=K.AUTOTUNE_CACHE_SAVED,
        severity=S.GOOD,
        engines=FI,
        pattern=(
            r"\[Autotuner\]: Saved (?P<n>\d+) configs to (?P<path>\S.{0,1000}?)(?: \((?P<new>\d+) new, "
            r"(?P<old>\d+) from previous config\)|$)"
        ),
        literals=("[autotuner]: saved ",),
        meaning="JSON cache written",
        source="flashinfer autotuner.py:2653 @ fb28d72",
        example=(
            "2026-02-02 13:25:05,231 - INFO - autotuner.py:256 - flashinfer.jit: [Autotuner]: Saved 42 configs "
            "to /root/.cache/sglang/flashinfer/autotune/0.6.12/sm120/88ed2caa135f6803/rank_tp0_pp0_dp0.json (42 "
            "new, 0 from previous config)"
        ),
        parse=f.saved_cache,
    ),
    Rule(
        id="fi.cache.loaded",
        kind=K.AUTOTUNE_CACHE_LOADED,
        severity=S.GOOD,
        engines=FI,
        pattern=r"\[Autotuner\]: Loaded (?P<n>\d+) configs from (?P<path>\S.{0,1000}?)\s{0,20}$",
        literals=("[autotuner]: loaded ",),
        meaning="JSON cache read and accepted",
        source="flashinfer autotuner.py:2791 @ fb28d72",
        example=(
            "2026-02-02 13:25:05,231 - INFO - autotuner.py:256 - flashinfer.jit: [Autotuner]: Loaded 42 configs "
            "from /root/.cache/x/rank_tp0_pp0_dp0.json"
        ),
        parse=f.loaded_cache,
    ),
    Rule(
        id="fi.cache.env",
        kind=K.AUTOTUNE_CACHE_REJECTED,
        severity=S.WARN,
        engines=FI,
        pattern=(
            r"\[Autotuner\]: Cache file (?P<path>\S.{0,1000}?) was created in a different environment(?: "
            r"\((?P<diff>.{0,4000}?)\)\. Ignoring cached configs)?"
        ),
        literals=("was created in a different environment",),
        meaning="JSON cache rejected: metadata differs → retune, and (hard mismatch) never saved",
        source="flashinfer autotuner.py:2749 @ fb28d72",
        example=(
            "2026-02-02 13:25:05,231 - WARNING - autotuner.py:256 - flashinfer.jit: [Autotuner]: Cache file "
            "/c/a.json was created in a different environment (flashinfer_version: saved=0.6.12 vs "
            "current=0.6.17). Ignoring cached configs. Results will not be saved to this file to avoid "
            "overwriting configs from a different environment."
        ),
        parse=f.cache_mismatch,
    ),
    Rule(
        id="fi.cache.notsaved",
        kind=K.AUTOTUNE_CACHE_REJECTED,
        severity=S.WARN,
        engines=FI,
        pattern=(
            r"\[Autotuner\]: Not saving configs to (?P<path>\S.{0,1000}?): the file was created in a different "
            r"environment"
        ),
        literals=("autotuner]",),
        meaning="save skipped: file belongs to another environment",
        source="flashinfer autotuner.py:2565 @ fb28d72",
        example=(
            "2026-02-02 13:25:05,231 - WARNING - autotuner.py:256 - flashinfer.jit: [Autotuner]: Not saving "
            "configs to /c/a.json: the file was created in a different environment (gpu: saved=NVIDIA B200 vs "
            "current=NVIDIA RTX PRO 6000 Blackwell Server Edition). Use a different cache path"
        ),
        versions="FlashInfer >=0.6.16",
        echo=True,
    ),
    Rule(
        id="fi.cache.legacy",
        kind=K.NOTE,
        severity=S.NOTICE,
        engines=FI,
        pattern=r"\[Autotuner\]: Skipped (?P<n>\d+) legacy cuDNN config",
        literals=("legacy cudnn config",),
        meaning="old cuDNN integer tactics dropped",
        source="flashinfer autotuner.py:2784 @ fb28d72",
        example=(
            "2026-02-02 13:25:05,231 - WARNING - autotuner.py:256 - flashinfer.jit: [Autotuner]: Skipped 3 "
            "legacy cuDNN config(s) using integer plan-index tactics. They will be re-tuned when autotuning is "
            "enabled."
        ),
        versions="FlashInfer >=0.6.16",
    ),
    Rule(
        id="fi.tactic.skip1",
        kind=K.AUTOTUNE_TACTIC_SKIPPED,
        severity=S.NOTICE,
        engines=FI,
        pattern=(
            r"\[Autotuner\]: (?:Skipping tactic (?P<runner>.{1,400}?) (?P<tac>[^\s\[\]]{1,80}|\[[^\]]{0,400}\]), "
            r"due to failure while profiling(?:: (?P<err>.{0,4000})|\.)|Failed when profiling )"
        ),
        literals=(
            "autotuner]: skipping tactic ",
            "autotuner]: failed when profiling ",
        ),
        meaning="one tactic failed in profiling",
        source="flashinfer 0.6.7 autotuner.py:760",
        example=(
            "2026-02-02 13:25:05,231 - WARNING - autotuner.py:256 - flashinfer.jit: [Autotuner]: Skipping tactic "
            "<flashinfer.fused_moe.core.get_cutlass_fused_moe_module.<locals>.MoERunner object at 0x7f> 14, due "
            "to failure while profiling: GPU lacks the shared memory resources"
        ),
        versions="ERROR <=0.4.x, WARNING 0.5.0–0.6.7, DEBUG >=0.6.8",
        parse=f.skipped_tactic,
        not_heads=("trt",),
    ),
    Rule(
        id="fi.tactic.skipn",
        kind=K.AUTOTUNE_TACTIC_SKIPPED,
        severity=S.NOTICE,
        engines=FI,
        pattern=r"\[Autotuner\]: Skipped (?P<n>\d+) unsupported tactic\(s\) for (?P<op>\S+)",
        literals=("unsupported tactic(s) for ",),
        meaning="summary of failed tactics per profile",
        source="flashinfer autotuner.py:1870 @ fb28d72",
        example=(
            "2026-02-02 13:25:05,231 - INFO - autotuner.py:256 - flashinfer.jit: [Autotuner]: Skipped 6 "
            "unsupported tactic(s) for trtllm::fused_moe::gemm1 (enable debug logs to see details)"
        ),
        versions="FlashInfer >=0.6.8",
    ),
    Rule(
        id="fi.oom",
        kind=K.AUTOTUNE_OOM_FALLBACK,
        severity=S.ERROR,
        engines=FI,
        pattern=r"\[Autotuner\]: OOM detected, falling back to default tactic",
        literals=("oom detected, falling back to default tactic",),
        meaning="OOM during profiling → that op stays on tactic -1",
        source="flashinfer autotuner.py:1897 @ fb28d72",
        example=(
            "2026-02-02 13:25:05,231 - WARNING - autotuner.py:256 - flashinfer.jit: [Autotuner]: OOM detected, "
            "falling back to default tactic"
        ),
        versions="FlashInfer >=0.6.3",
    ),
    Rule(
        id="fi.fallback",
        kind=K.AUTOTUNE_UNCOVERED_SHAPE,
        severity=S.WARN,
        engines=FI,
        pattern=r"\[AutoTunn?er\]: Using fallback tactic for (?P<op>\S+) with input shapes",
        literals=("using fallback tactic for ",),
        meaning="untuned shape served",
        source="flashinfer 0.6.3 autotuner.py:445",
        example=(
            "2026-02-19 01:10:00,001 - DEBUG - autotuner.py:444 - flashinfer.jit: [AutoTunner]: Using fallback "
            "tactic for trtllm::fused_moe::gemm1 with input shapes ((64, 3072), (0,))"
        ),
        versions="DEBUG only; spelled AutoTunner in FlashInfer <=0.6.7",
    ),
    Rule(
        id="fi.fallback.oor",
        kind=K.AUTOTUNE_UNCOVERED_SHAPE,
        severity=S.WARN,
        engines=FI,
        pattern=(
            r"\[AutoTuner\]: No tuned config covers (?P<op>\S+)(?: input_shapes=(?P<shapes>.{1,2000}?); falling "
            r"back to runner=(?P<runner>\w+) tactic=-1)?"
        ),
        literals=("autotuner]",),
        meaning="op was tuned but this shape is outside the tuned buckets",
        source="flashinfer autotuner.py:1689 @ fb28d72",
        example=(
            "2026-02-02 13:25:05,231 - WARNING - autotuner.py:256 - flashinfer.jit: [AutoTuner]: No tuned config "
            "covers trtllm::fused_moe::gemm1 input_shapes=((4096, 3072), (256, 512, 448)); falling back to "
            "runner=MoERunner tactic=-1.  This shape is outside the tuning bucket range"
        ),
        versions="once per shape; FlashInfer >=0.6.11",
    ),
    Rule(
        id="fi.skipop",
        kind=K.NOTE,
        severity=S.INFO,
        engines=FI,
        pattern=r"\[AutoTuner\]: Skipping autotuning for '(?P<op>[^']+)'",
        literals=("skipping autotuning for ",),
        meaning="op excluded with skip_ops",
        source="flashinfer autotuner.py:1616 @ fb28d72",
        example=(
            "2026-07-30 10:00:00,000 - DEBUG - autotuner.py:1616 - flashinfer.jit: [AutoTuner]: Skipping "
            "autotuning for 'fp4_gemm' (in skip_ops). Using fallback tactic."
        ),
        versions="DEBUG; FlashInfer >=0.6.13",
    ),
    Rule(
        id="fi.blocklist.missing",
        kind=K.NOTE,
        severity=S.WARN,
        engines=FI,
        pattern=r"\[Autotuner\]: Tactics blocklist file not found at (?P<path>\S+)",
        literals=("tactics blocklist file not found",),
        meaning="FLASHINFER_TACTICS_BLOCKLIST points nowhere",
        source="flashinfer autotuner.py:1268 @ fb28d72",
        example=(
            "2026-02-02 13:25:05,231 - WARNING - autotuner.py:256 - flashinfer.jit: [Autotuner]: Tactics "
            "blocklist file not found at /etc/x.json"
        ),
        versions="FlashInfer >=0.6.15",
    ),
    Rule(
        id="fi.blocklist.loaded",
        kind=K.NOTE,
        severity=S.INFO,
        engines=FI,
        pattern=r"\[TacticsBlocklist\]: Loaded (?P<n>\d+) invalid tactic\(s\)",
        literals=("[tacticsblocklist]: loaded ",),
        meaning="blocklist loaded",
        source="flashinfer tactics_blocklist.py:101 @ fb28d72",
        example=(
            "2026-02-02 13:25:05,231 - INFO - autotuner.py:256 - flashinfer.jit: [TacticsBlocklist]: Loaded 7 "
            "invalid tactic(s) across 2 operation(s) from /etc/x.json"
        ),
    ),
    Rule(
        id="fi.timer",
        kind=K.NOTE,
        severity=S.WARN,
        engines=FI,
        pattern=r"\[Autotuner\] globaltimer kernel unavailable",
        literals=("autotuner]",),
        meaning="confidential-compute timer missing; tactic choice may be poor",
        source="flashinfer autotuner.py:1330 @ fb28d72",
        example=(
            "2026-02-02 13:25:05,231 - WARNING - autotuner.py:256 - flashinfer.jit: [Autotuner] globaltimer "
            "kernel unavailable; falling back to cudaEvent timing."
        ),
        versions="FlashInfer >=0.6.16",
    ),
    Rule(
        id="fi.occupancy",
        kind=K.NOTE,
        severity=S.NOTICE,
        engines=FI,
        pattern=r"get_tactic_occupancy failed for tactic (?P<t>\d+)",
        literals=("get_tactic_occupancy failed",),
        meaning="occupancy probe failed; tactic kept",
        source="flashinfer core.py:760 @ fb28d72",
        example=(
            "2026-02-02 13:25:05,231 - WARNING - autotuner.py:256 - flashinfer.jit: get_tactic_occupancy failed "
            "for tactic 3: err; including in autotuner"
        ),
        versions="FlashInfer >=0.6.8",
    ),
    Rule(
        id="fi.v2.attach",
        kind=K.NOTE,
        severity=S.INFO,
        engines=FI,
        pattern=r"\[Autotuner\]: Managed autotune cache attached for this process: (?P<store>.*)",
        literals=("managed autotune cache attached",),
        meaning="managed v2 store attached (post-0.6.18 FlashInfer)",
        source="flashinfer/autotune_cache.py",
        example=(
            "2026-02-02 13:25:05,231 - INFO - autotuner.py:256 - flashinfer.jit: [Autotuner]: Managed autotune "
            "cache attached for this process: ManagedAutotuneCache(env_dir='/root/.cache/flashinfer/autotune/v2/a"
            "b12', hits=0, misses=0)"
        ),
    ),
    Rule(
        id="fi.v2.bad",
        kind=K.AUTOTUNE_CACHE_REJECTED,
        severity=S.WARN,
        engines=FI,
        pattern=r"\[Autotuner\]: Ignoring invalid managed cache entry (?P<path>\S+)",
        literals=("autotuner]",),
        meaning="v2 entry unreadable, treated as miss",
        source="flashinfer/autotune_cache.py@14f91bc7",
        example=(
            "2026-02-02 13:25:05,231 - WARNING - autotuner.py:256 - flashinfer.jit: [Autotuner]: Ignoring "
            "invalid managed cache entry /r/.cache/e.json for key k: err. Treating as a cache miss."
        ),
    ),
)
