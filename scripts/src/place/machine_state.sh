#!/bin/sh
# Prints what tests must not change on the machine of the person who runs them: its packages, files, links, routes,
# parameters of the kernel, rules and programs. What the kernel counts or chooses by itself is left out.

set -u

# What is random or a counter, and what depends on free memory or on the last process.
volatile='/proc/sys/(fs/(dentry-state|file-nr|inode-|aio-nr|quota)|kernel/(random/|ns_last_pid|pty/nr|spl)|net/netfilter/nf_conntrack_count|vm/(stat_refresh|compact_memory|drop_caches))'
dpkg -l 2>/dev/null
for directory in /etc /usr /var/lib; do
  find "$directory" -xdev -printf '%p %m %s %T@ %l\n' 2>/dev/null
done | sort
ls /sys/class/net
cat /proc/net/route /proc/net/ipv6_route /proc/net/ip_tables_names /proc/net/ip6_tables_names 2>/dev/null | cut -f 1-4
nft list ruleset 2>/dev/null | sed 's/ packets [0-9]* bytes [0-9]*//'
find /proc/sys -type f -perm -u+r 2>/dev/null | grep -Ev "$volatile" | sort |
  while read -r file; do
    value=$(cat "$file" 2>/dev/null) || continue
    echo "$file $value"
  done
find /run /var/run /tmp -maxdepth 1 2>/dev/null | sort
# By name: their numbers change with each run.
cat /proc/[0-9]*/comm 2>/dev/null | grep -Ev '^(kworker|sh|cat|sort|find|machine_state)' | sort -u
