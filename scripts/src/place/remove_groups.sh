#!/bin/sh
# Removes control groups of places that have ended, and those of the place that is named: remove_groups.sh [NAME].

set -eu

remove() {
  # Its last processes may still be ending.
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    find "$1" -depth -type d -exec rmdir {} + 2>/dev/null && return
    sleep 0.1
  done
}

# Before its first process, only its script tells.
is_live() {
  [ -n "$(cat "$1/cgroup.procs" "$1/first/cgroup.procs" 2>/dev/null)" ] ||
    grep -qs "scripts/place" "/proc/${1##*.}/cmdline"
}

for group in $(find /sys/fs/cgroup -type d -name "cni-place.*" -prune 2>/dev/null); do
  [ "${group##*/}" != "${1-}" ] && is_live "$group" || remove "$group"
done
