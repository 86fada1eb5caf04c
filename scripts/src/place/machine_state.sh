#!/bin/sh
# Prints what tests must not change on the machine of the person who runs them: its packages, files, mounts, links, addresses,
# routes, rules, parameters of the kernel, control groups, and programs. What the kernel counts or chooses by itself is left out.

set -u

volatile='/proc/sys/(fs/(dentry-state|file-nr|inode-|aio-nr|quota)|kernel/(random/|ns_last_pid|pty/nr|perf_|hung_task_detect)|net/netfilter/nf_conntrack_count|vm/(stat_refresh|compact_memory|drop_caches))'
# Programs that tests start.
programs='cni|bun|deno|qemu|slirp4netns|dockerd|containerd|podman|conmon|crun|runc|firewalld|dbus-daemon|dnsmasq|kea-|etcd|prometheus'

dpkg -l 2>/dev/null
for directory in /etc /usr /var/lib; do
  find "$directory" -xdev -printf '%p %m %s %T@ %l\n' 2>/dev/null
done | sort
find /tmp /run /opt -maxdepth 1 -name '*cni*' | sort
ls /run/netns 2>/dev/null
cut -d ' ' -f 4,5 /proc/self/mountinfo | sort
for link in /sys/class/net/*; do
  echo "$link $(cat "$link/address" "$link/flags" "$link/mtu" 2>/dev/null | tr '\n' ' ')"
done
cat /proc/net/fib_trie
# Without temporary addresses, which come and go.
awk '$5 !~ /[13579bdf]$/ { print $1, $3, $6 }' /proc/net/if_inet6 2>/dev/null
ip rule show 2>/dev/null
# Without counters.
awk '{ print $1, $2, $5, $NF }' /proc/net/ipv6_route 2>/dev/null | sort
cat /proc/net/ip_tables_names /proc/net/ip6_tables_names 2>/dev/null
nft list ruleset 2>/dev/null | sed 's/ packets [0-9]* bytes [0-9]*//'
find /proc/sys -type f -perm -u+r 2>/dev/null | grep -Ev "$volatile" | sort |
  while read -r file; do
    value=$(cat "$file" 2>/dev/null) || continue
    echo "$file $value"
  done
find /sys/fs/cgroup -type d 2>/dev/null | grep -E '/(cni-|k8s\.io)' | sort
cat /proc/[0-9]*/comm 2>/dev/null | grep -E "^($programs)" | sort
