#!/usr/bin/env bash
# Records every two-rank workload of ranks.py through the real probe over SSH. Writes $OUT/NAME.jsonl.
LOAD_SCRIPT=tests/gpu/ranks.py
. tests/gpu/rig.sh
OUT=${OUT:-/tmp/out}
nvidia-smi topo -m
loads=${LOADS:-$(python3 -c "import sys; sys.path.insert(0,'tests/gpu'); import ranks; print(*ranks.LOADS)")}
for load in $loads; do
  with_load "$load" 19 timeout 25 python3 -m moetop --host 127.0.0.1:2222 --accept-new-host-keys --interval 0.5 \
    --duration 15 --record "$OUT/h200x2-$load.jsonl"
done
