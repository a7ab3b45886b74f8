"""minimoe's tuner with faults: one word in the file `tune_fault` beside the server."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, os.environ["MINIMOE_SRC"])
import moeconfig
import tune

fault_file = Path(os.environ["RIG_HOME"]) / "tune_fault"
fault = fault_file.read_text().strip() if fault_file.exists() else ""
name = moeconfig.config_name(moeconfig.load_shape(sys.argv[sys.argv.index("--model") + 1]))
if fault == "fails":
    sys.exit("RuntimeError: CUDA error: no kernel image is available")
if fault == "hangs":
    print("Start tuning over 1 configurations", flush=True)
    time.sleep(600)
if fault == "slow":
    time.sleep(2)
if fault == "nothing":
    sys.exit(0)
if fault == "garbage":
    Path(name).write_text("{this is no JSON")
    sys.exit(0)
if fault == "other_name":
    Path("E=1,N=1,device_name=other.json").write_text("{}")
    sys.exit(0)
sys.exit(tune.main())
