# What dockerd makes for its own network, one more, and a container with a published port.

dockerd --ip6tables --experimental --ipv6 --fixed-cidr-v6 fd17::/64 --storage-driver vfs \
  --cgroup-parent /record-rulesets >/tmp/dockerd.log 2>&1 &
dockerd=$!
until docker version >/dev/null 2>&1; do
  kill -0 $dockerd || { cat /tmp/dockerd.log >&2; exit 1; }
  sleep 0.1
done
tar -C /bin -c busybox | docker import - busybox >/dev/null
docker network create --ipv6 --subnet 172.18.0.0/16 --subnet fd18::/64 --opt com.docker.network.bridge.name=br-web web >/dev/null
docker run --detach --name web --network web --publish 8081:80 busybox /busybox sleep 1000 >/dev/null
save_iptables docker docker.io
docker rm --force web >/dev/null
kill $dockerd
wait $dockerd || :
# The control groups are the machine's.
find /sys/fs/cgroup -depth -path '*/record-rulesets*' -type d -exec rmdir {} +
