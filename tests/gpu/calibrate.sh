#!/usr/bin/env bash
# Records every workload of loads.py through the real probe over SSH. Writes $OUT/NAME.jsonl.
. tests/gpu/rig.sh
OUT=${OUT:-/tmp/out}
loads=${LOADS:-$(python3 -c "import sys; sys.path.insert(0,'tests/gpu'); import loads; print(*loads.LOADS)")}
for load in $loads; do
  with_load "$load" 11 python3 -m moetop --host 127.0.0.1:2222 --accept-new-host-keys --interval 0.5 --duration 8 \
    --record "$OUT/h200-$load.jsonl"
done
