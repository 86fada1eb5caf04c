#!/bin/sh
# Run in a place by enter.sh: network.sh PLACE COMMAND…. The network is a namespace of its own, whose way out is a
# program: neither the machine's links nor its rules change.

set -eu

touch /run/network
unshare --net=/run/network true
# It asks the machine's resolver. The place asks it where that one listens on the machine's loopback.
cp /etc/resolv.conf /run/machine_resolv.conf
sed -E 's/^(nameserver[[:space:]]+)(127\..*|::1)$/\110.0.2.3/' /run/machine_resolv.conf >/etc/resolv.conf
unshare --mount sh -ec 'mount --bind /run/machine_resolv.conf /etc/resolv.conf
  exec slirp4netns --configure --mtu=65520 --netns-type=path /run/network eth0' >/dev/null 2>&1 &
slirp=$!
until nsenter --net=/run/network grep -q eth0: /proc/net/dev; do
  kill -0 "$slirp" || exit 75
  sleep 0.1
done

# What is below /sys/class/net is that of the namespace in which it was mounted.
mkdir /run/cgroup
mount --move /sys/fs/cgroup /run/cgroup
nsenter --net=/run/network mount -t sysfs sysfs /sys
mount --move /run/cgroup /sys/fs/cgroup

exec nsenter --net=/run/network sh scripts/src/place/inhabit.sh "$@"
