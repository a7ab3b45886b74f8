#!/usr/bin/env bash
# What the rig needs from the system: sshd, ssh, a C compiler, tmux. Installed where root, named where not.
set -euo pipefail
missing=()
command -v sshd >/dev/null || [ -x /usr/sbin/sshd ] || missing+=(openssh-server)
command -v ssh >/dev/null || missing+=(openssh-client)
echo '#include <stdio.h>' | gcc -E -x c - >/dev/null 2>&1 || missing+=(gcc libc6-dev)
command -v tmux >/dev/null || missing+=(tmux)
[ ${#missing[@]} -eq 0 ] && exit 0
by_hand="sudo apt-get install ${missing[*]}"
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  echo "installing for the tests: ${missing[*]}" >&2
  apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null && exit 0
  echo "the tests need these Debian packages and installing them failed: ${missing[*]}" >&2
else
  echo "the tests need these Debian packages: ${missing[*]}  ($by_hand)" >&2
fi
exit 1
