#!/usr/bin/env bash
# On a machine with one NVIDIA GPU, offline: minimoe untuned under a steady load is found, judged, retuned and proven.
# Needs python3 with torch and triton; .whl/ (moetop's dependencies as wheels) or them on PYTHONPATH. With .debs/ it goes
# through a real sshd, else it watches this machine. With KEYS=1 the app does it, by its keys (retune_keys.py).
# Writes plan, report or screens, snapshots and a recording under $OUT.
set -u
OUT=${OUT:-/tmp/out}
PORT=${PORT:-30000}
mkdir -p "$OUT"
if [ -d .debs ]; then
  . tests/gpu/rig.sh
  HOST=127.0.0.1:2222
else
  if [ -d .whl ]; then
    python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site .whl/*.whl
  fi
  export PYTHONPATH=$PWD:/tmp/site${PYTHONPATH:+:$PYTHONPATH}
  HOST=localhost
  moetop() { python3 -m moetop "$@"; }
fi
AIM=(--host "$HOST")
[ "$HOST" = localhost ] && AIM=()
ACCEPT=(--accept-new-host-keys)
export SGLANG_MOE_CONFIG_DIR=${SGLANG_MOE_CONFIG_DIR:-/tmp/minimoe-tables}
rm -rf "$SGLANG_MOE_CONFIG_DIR"

figures() { # FILE: one line a GPU and a server
  python3 - "$1" <<'P'
import json, sys

snapshot = json.load(open(sys.argv[1]))
for host in snapshot["hosts"]:
    print(host["name"], host["status"], host["headline"], host["error"] or "")
    for gpu in host["gpus"]:
        gpm = gpu["gpm"] or {}
        print(f"  gpu {gpu['index']} {gpu['state']} ({gpu['confidence']}) util {gpu['util_gpu_pct']} power {gpu['power_w']} W"
              f" SM {gpm.get('sm_active_pct')} tensor {gpm.get('tensor_pct')} DRAM {gpm.get('dram_pct')}")
    for server in host["servers"]:
        print(f"  {server['name']} {server['phase']} tuning {server['tuning']['verdict']} {server['metrics']}")
        print("   ", *server["tuning"]["evidence"], sep="\n    ")
    for finding in host["findings"]:
        print(f"  {finding['severity']} {finding['kind']} ({finding['confidence']}): {finding['summary']}")
P
}

echo "== minimoe's kernel"
python3 tests/gpu/check_minimoe.py || exit 1

echo "== minimoe, untuned, under a steady load"
setsid nohup python3 examples/minimoe/sglang/launch_server.py --port "$PORT" >>"$OUT/minimoe.log" 2>&1 </dev/null &
for _ in $(seq 120); do
  python3 -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$PORT/health', timeout=5)" 2>/dev/null && break
  sleep 1
done
tail -3 "$OUT/minimoe.log"
python3 examples/minimoe/load.py --port "$PORT" --concurrency 32 --seconds 900 >"$OUT/load.log" 2>&1 &
LOAD=$!
sleep 12
moetop "${AIM[@]}" "${ACCEPT[@]}" --window 5 --snapshot "$OUT/before.json"
figures "$OUT/before.json"
moetop "${AIM[@]}" "${ACCEPT[@]}" --duration "${RECORD_S:-300}" --record "$OUT/retune.jsonl" >"$OUT/record.log" 2>&1 &
RECORD=$!

if [ -n "${KEYS:-}" ]; then
  echo "== retune from the keyboard"
  python3 -m tests.gpu.retune_keys "$HOST" /tmp/screens
  CODE=$?
  tar -C /tmp/screens -czf "$OUT/screens.tgz" .
else
  echo "== moetop --retune"
  moetop --retune "$HOST" "${ACCEPT[@]}" --dry-run >"$OUT/plan.txt"
  cat "$OUT/plan.txt"
  moetop --retune "$HOST" "${ACCEPT[@]}" --yes --format md >"$OUT/report.md"
  CODE=$?
  cat "$OUT/report.md"
fi
echo "exit code $CODE"

echo "== after"
moetop "${AIM[@]}" "${ACCEPT[@]}" --window 5 --snapshot "$OUT/after.json"
figures "$OUT/after.json"
kill $LOAD $RECORD 2>/dev/null
echo "== load as its client saw it"
sed -n '2,4p;$p' "$OUT/load.log"
ls "$SGLANG_MOE_CONFIG_DIR"/configs/*/
PID=$(python3 -c "
from moetop.retune.host import control
print(control.listening_pid($PORT) or '')")
[ -n "$PID" ] && kill "$PID"
exit $CODE
