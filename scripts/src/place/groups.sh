#!/bin/sh
# Runs a command in control groups of its own, which look to it like all that there are: groups.sh NAME COMMAND…. What it
# makes there, such as groups of containers, is in the machine's groups NAME, which scripts/place removes.

set -eu

name=$1
shift

entered=
# Mounts of hierarchies, as in: 35 25 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
for mount in $(awk '{ for (i = 7; $i != "-"; i++); if ($(i + 1) ~ /^cgroup2?$/) print $5 }' /proc/self/mountinfo); do
  # In the first version, limits of this process stay. In the second one, groups below that of a process get no controllers.
  own=$(awk -F : -v name="${mount##*/}" '$2 == name || $2 == "name=" name { print $3 }' /proc/self/cgroup)
  parent=$mount${own%/}
  # A container may see its own group as the first one.
  [ -d "$parent" ] || parent=$mount
  mkdir -p "$parent/$name" 2>/dev/null || continue
  # The first version wants these before the first process.
  if [ -e "$parent/$name/cpuset.memory_migrate" ]; then
    for file in cpuset.cpus cpuset.mems; do cat "$parent/$file" >"$parent/$name/$file"; done
  fi
  echo 0 >"$parent/$name/cgroup.procs"
  mkdir -p /run/cgroup
  mount --bind "$parent/$name" /run/cgroup
  umount "$mount"
  mount --move /run/cgroup "$mount"
  entered=yes
done
[ -n "$entered" ] || exec "$@"
rmdir /run/cgroup

exec unshare --cgroup sh -ec '
  cd /sys/fs/cgroup
  if [ -n "$(cat cgroup.controllers 2>/dev/null)" ]; then
    mkdir -p first
    echo 0 >first/cgroup.procs
    sed "s/[^ ][^ ]*/+&/g" cgroup.controllers >cgroup.subtree_control
  fi
  cd "$OLDPWD"
  exec "$@"' sh "$@"
