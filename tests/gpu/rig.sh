# Sourced on a machine with a GPU and no sshd: a real sshd on 127.0.0.1:2222, a client key, an ordinary user.
# Needs .debs/ (openssh packages, see docs/testing.md) and .whl/ (moetop's dependencies as wheels).
set -u
OUT=${OUT:-/tmp/out}
mkdir -p "$OUT"
ROOT=$PWD
TOP=/tmp/moetop-rig
mkdir -p "$TOP/deb" /run/sshd
for deb in .debs/*.deb; do dpkg -x "$deb" "$TOP/deb"; done
LIBS="$TOP/deb/usr/lib/x86_64-linux-gnu:$TOP/deb/lib/x86_64-linux-gnu"
id sshd >/dev/null 2>&1 || useradd -r -M -d /run/sshd -s /usr/sbin/nologin sshd
id watcher >/dev/null 2>&1 || useradd -m -s /bin/bash watcher
usermod -p '*' watcher
mkdir -p ~/.ssh && chmod 700 ~/.ssh
KEYGEN() { LD_LIBRARY_PATH=$LIBS "$(command -v ssh-keygen || echo "$TOP/deb/usr/bin/ssh-keygen")" "$@"; }
[ -f "$TOP/hostkey" ] || KEYGEN -q -t ed25519 -N '' -f "$TOP/hostkey"
[ -f ~/.ssh/id_ed25519 ] || KEYGEN -q -t ed25519 -N '' -f ~/.ssh/id_ed25519
cp ~/.ssh/id_ed25519.pub "$TOP/authorized" && chmod 755 "$TOP" && chmod 644 "$TOP/authorized"
env LD_LIBRARY_PATH="$LIBS" "$TOP/deb/usr/sbin/sshd" -f /dev/null -p 2222 -h "$TOP/hostkey" \
  -o ListenAddress=127.0.0.1 -o AuthorizedKeysFile="$TOP/authorized" -o StrictModes=no -o UsePAM=no -E "$TOP/sshd.log"
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site .whl/*.whl
export PYTHONPATH=$ROOT:/tmp/site
moetop() { python3 -m moetop "$@"; }
with_load() { # NAME SECONDS COMMAND...: run COMMAND while the load runs and has settled
  local name=$1 seconds=$2
  shift 2
  mkfifo "$TOP/ready.$name" 2>/dev/null
  timeout ${LOAD_TIMEOUT:-60} python3 "${LOAD_SCRIPT:-tests/gpu/loads.py}" "$name" "$seconds" >"$TOP/ready.$name" 2>"$TOP/load.$name.err" &
  local pid=$!
  { read -r _ && sleep 1.5 && "$@"; cat; } <"$TOP/ready.$name"
  wait $pid || tail -3 "$TOP/load.$name.err"
}
record() { # NAME SECONDS: one recording through the real probe, kept in one archive (few files come back from a rented machine)
  mkdir -p "$TOP/recordings"
  timeout $(($2 + 10)) python3 -m moetop --host 127.0.0.1:2222 --accept-new-host-keys --interval 0.5 \
    --duration "$2" --record "$TOP/recordings/$1.jsonl"
  tar -C "$TOP/recordings" -czf "$OUT/recordings.tgz" .
}
