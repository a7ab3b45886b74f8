#!/usr/bin/env bash
# What the rig needs from the system: sshd, ssh, a C compiler, tmux. Installed where root, named where not.
set -euo pipefail
missing=()
[ -x /usr/sbin/sshd ] || missing+=(openssh-server)
command -v ssh >/dev/null || missing+=(openssh-client)
command -v gcc >/dev/null || missing+=(gcc libc6-dev)
command -v tmux >/dev/null || missing+=(tmux)
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
  echo "tests need these Debian packages: ${missing[*]}  (sudo apt-get install ${missing[*]})" >&2
  exit 1
fi
