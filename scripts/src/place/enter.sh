#!/bin/sh
# Process 1 of a place: enter.sh CACHE ROOT GROUPS PLACE COMMAND…. Its mount namespace is its own, and what it mounts goes with it.

set -eu
# Of the files here, too: other users enter the root.
umask 022

checkout=$PWD
cache=$1
root=$2
groups=$3
place=$4
shift 4
# The process that waits for this one keeps the root in use.
exec 8<&-
mount=$cache/mount

# A root whose changes are in memory.
mount -t tmpfs -o mode=755,size=75% tmpfs "$mount"
mkdir "$mount/changes" "$mount/work" "$mount/root"
mount -t overlay -o "lowerdir=$root,upperdir=$mount/changes,workdir=$mount/work" overlay "$mount/root"
cd "$mount/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
if [ -d /sys/fs/cgroup ]; then mount --rbind /sys/fs/cgroup sys/fs/cgroup; fi
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs run
mkdir run/lock

mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/net dev/pts dev/shm dev/mqueue
for device in null zero full random urandom tty fuse kvm net/tun loop-control; do
  if [ -c "/dev/$device" ]; then cp -a "/dev/$device" "dev/$device"; fi
done
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t mqueue mqueue dev/mqueue

# The checkout, with what is built and installed in it. That of a worktree of git has its history elsewhere.
mkdir -p place/cni
mount --bind "$checkout" place/cni
# Its own path is a name of it, too: arguments may have it. The place's home is not the checkout.
if [ "$checkout" != /root ]; then
  mkdir -p ".$checkout"
  mount --bind "$checkout" ".$checkout"
fi
if [ -f "$checkout/.git" ]; then
  history=$(sed -n 's|^gitdir: \(.*\)/worktrees/[^/]*$|\1|p' "$checkout/.git")
  case $history in
    # That of a submodule knows the checkout by its path, which is another one here.
    '') ;;
    /*)
      mkdir -p ".$history"
      mount --bind "$history" ".$history"
      ;;
    *)
      mkdir -p "place/cni/$history"
      mount --bind "$checkout/$history" "place/cni/$history"
      ;;
  esac
fi

# What was downloaded before: packages of npm and Go, and kernels of virtual machines.
for pair in npm:root/.npm go:root/go go-build:root/.cache/go-build vm:place/cni/dist/vm; do
  mkdir -p "$cache/${pair%%:*}" "${pair#*:}"
  mount --bind "$cache/${pair%%:*}" "${pair#*:}"
done
# What scripts/kubernetes has built.
if [ -d /var/cache/cni-kubernetes ]; then
  mkdir -p var/cache/cni-kubernetes
  mount --bind /var/cache/cni-kubernetes var/cache/cni-kubernetes
fi
if [ -d /usr/local/go ]; then
  mkdir -p usr/local/go
  mount --bind /usr/local/go usr/local/go
  mount -o remount,bind,ro usr/local/go
fi

# The way to the archives is the machine's.
cat /etc/resolv.conf >etc/resolv.conf
mkdir -p usr/local/share/ca-certificates
if [ -d /usr/local/share/ca-certificates ]; then cp -r /usr/local/share/ca-certificates usr/local/share; fi
if [ -f /etc/ssl/certs/ca-certificates.crt ]; then cp /etc/ssl/certs/ca-certificates.crt etc/ssl/certs; fi
cp "$cache/apt.conf" etc/apt/apt.conf.d/99place
# What listens on the machine's loopback, such as a proxy, has another address in a network of the place's own.
loopback=127.0.0.1
if [ "$place" = bare ] && ! [ -c dev/net/tun ]; then
  echo "The place has this machine's network: there is no /dev/net/tun"
else
  set -- sh scripts/src/place/network.sh "$place" "$@"
  # That of slirp4netns.
  loopback=10.0.2.2
fi
from_here='s#(^|[/@])(127\.[0-9.]+|localhost|\[::1\])([^0-9A-Za-z.-]|$)#\1'$loopback'\3#g'
sed -i -E "$from_here" etc/apt/apt.conf.d/99* etc/apt/sources.list.d/*
hostname place
echo "127.0.0.1 localhost place" >etc/hosts

mkdir .machine
pivot_root . .machine
cd /
umount -l .machine
rmdir .machine

# Of the machine's environment, only what names another way to the archives, and what chooses tests.
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY npm_config_registry GOPROXY GOSUMDB TERM \
  TEST_PLUGINS FUZZ_RUNS FUZZ_SEED CNI_KILLS_S CNI_RANDOM_CLUSTERS CNI_RANDOM_SEED CNI_POLICY_PODS \
  CNI_FIRST_PACKETS SOURCE_DATE_EPOCH; do
  eval "value=\${$name-}"
  case $name in
    no_proxy | NO_PROXY) ;;
    *) value=$(printf '%s\n' "$value" | sed -E "$from_here") ;;
  esac
  [ -z "$value" ] || set -- "$name=$value" "$@"
done
cd /place/cni
certificates=/etc/ssl/certs/ca-certificates.crt
status=0
# Whoever owns the checkout, git reads it.
sh scripts/src/place/groups.sh "$groups" env -i CNI_PLACE="$place" HOME=/root LANG=C.UTF-8 \
  GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=/place/cni \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin \
  NODE_EXTRA_CA_CERTS=$certificates SSL_CERT_FILE=$certificates "$@" || status=$?
exit "$status"
