"""What is known of SGLang, vLLM, TensorRT-LLM and FlashInfer: line kinds, gates, files, verdict. Pure."""

from moetop.engines.digest import LogDigest, ServerFacts, TuningFacts
from moetop.engines.literals import scan_literals
from moetop.engines.logbook import LogBook

__all__ = ["LogBook", "LogDigest", "ServerFacts", "TuningFacts", "scan_literals"]
