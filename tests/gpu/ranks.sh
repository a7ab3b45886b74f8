#!/usr/bin/env bash
# Records every two-rank workload of ranks.py (or those in $LOADS) through the real probe into $OUT/recordings.tgz.
LOAD_SCRIPT=tests/gpu/ranks.py
. tests/gpu/rig.sh
nvidia-smi topo -m
loads=${LOADS:-$(python3 -c "import sys; sys.path.insert(0,'tests/gpu'); import ranks; print(*ranks.LOADS)")}
for load in $loads; do
  with_load "$load" 18 record "h200x2-$load" 15
done
