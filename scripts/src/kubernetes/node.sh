#!/bin/sh
# Process 1 of a node, in namespaces of its own: node.sh NAME BRIDGE_NF READY. What a machine keeps in files is in memory.

set -eu

name=$1
bridge_nf=$2
ready=$3

hostname "$name"
# What is below /sys/class/net is that of the namespace in which it was mounted.
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/cgroup
mount --move /sys/fs/cgroup /run/cgroup
mount -t sysfs sysfs /sys
mount --move /run/cgroup /sys/fs/cgroup
for directory in /var/lib /var/log /opt /etc/cni /etc/default /etc/kubernetes; do
  mkdir -p "$directory"
  mount -t tmpfs -o mode=755 tmpfs "$directory"
done
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir -p /run/lock /opt/cni/bin /etc/cni/net.d
# A name server that nobody has: pods must not ask the machine's.
echo nameserver 192.0.2.53 >/run/resolv.conf

# The kubelet would set these of the whole machine, and leaves them alone where they have its values.
mkdir /run/sysctl
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  file=/run/sysctl/$(echo "${setting%=*}" | tr / .)
  echo "${setting#*=}" >"$file"
  mount --bind "$file" "/proc/sys/${setting%=*}"
done

ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
for each in all default; do
  echo 1 >"/proc/sys/net/ipv6/conf/$each/forwarding"
  echo 0 >"/proc/sys/net/ipv6/conf/$each/accept_ra"
done
# In a pod, an address is usable at once.
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
for file in /proc/sys/net/bridge/bridge-nf-call-ip*tables; do
  [ ! -e "$file" ] || echo "$bridge_nf" >"$file"
done
# Volumes that a kubelet mounts are seen by containers that run.
mount --make-rshared /
: >"$ready"
# A shell as process 1 takes in orphans.
sleep infinity &
wait
