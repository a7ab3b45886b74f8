"""What is known of SGLang, vLLM, TensorRT-LLM and FlashInfer: line kinds, gates, files, verdict. Pure."""

from moetop.engines.digest import LogDigest, ServerFacts, TuningFacts
from moetop.engines.literals import scan_literals
from moetop.engines.logbook import LogBook
from moetop.engines.verdict import judge_tuning

__all__ = ["LogBook", "LogDigest", "ServerFacts", "TuningFacts", "judge_tuning", "scan_literals"]
