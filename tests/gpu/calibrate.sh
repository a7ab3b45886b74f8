#!/usr/bin/env bash
# Records every workload of loads.py (or those in $LOADS) through the real probe over SSH into $OUT/recordings.tgz.
. tests/gpu/rig.sh
loads=${LOADS:-$(python3 -c "import sys; sys.path.insert(0,'tests/gpu'); import loads; print(*loads.LOADS)")}
for load in $loads; do
  with_load "$load" 9 record "h200-$load" 6
done
