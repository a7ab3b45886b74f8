#!/usr/bin/env bash
# The main job on a real card: an untuned and a tuned MoE kernel, seen over SSH as root and as an ordinary user.
# Writes everything under $OUT.
. tests/gpu/rig.sh
for load in moe_untuned moe_tuned; do
  with_load $load 16 bash -c "
    python3 -m moetop --host 127.0.0.1:2222 --accept-new-host-keys --snapshot '$OUT/$load.root.json'; echo rc=\$?
    python3 -m moetop --host watcher@127.0.0.1:2222 --accept-new-host-keys --snapshot '$OUT/$load.user.json'; echo rc=\$?"
  for who in root user; do
    python3 - "$OUT/$load.$who.json" <<'P'
import json, sys
s = json.load(open(sys.argv[1]))
for h in s["hosts"]:
    print(h["name"], h["status"], h["error"], h["headline"], h["driver"], h["source"])
    for g in h["gpus"]:
        print("  ", g["name"], g["state"], g["confidence"], g["util_gpu_pct"], g["power_w"], g["gpm"] and (g["gpm"]["sm_active_pct"], g["gpm"]["tensor_pct"], g["gpm"]["dram_pct"]), g["processes"])
    for f in h["findings"]:
        print("  ", f["kind"], f["severity"], f["confidence"], f["summary"])
P
  done
done
