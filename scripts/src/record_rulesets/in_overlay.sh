#!/bin/sh
# in_overlay.sh DIRECTORY, in a mount namespace of its own: installs the programs and records what each makes.

set -eu

here=$(dirname -- "$0")
recordings=$1

mount --make-rprivate /
stage=$(mktemp -d)
trap 'umount -R -l "$stage"; rmdir "$stage"' EXIT
mount -t tmpfs none "$stage"
mkdir "$stage/upper" "$stage/work" "$stage/root"
root=$stage/root
mount -t overlay none -o "lowerdir=/,upperdir=$stage/upper,workdir=$stage/work" "$root"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
for directory in proc run tmp var/lib/docker; do mkdir -p "$root/$directory"; done
mount -t proc none "$root/proc"
for directory in run tmp; do mount -t tmpfs none "$root/$directory"; done

# What is installed is not started.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
export DEBIAN_FRONTEND=noninteractive
chroot "$root" apt-get -qq update
chroot "$root" apt-get -qq -y --no-install-recommends install docker.io ufw firewalld dbus iptables nftables busybox-static >/dev/null
cp "$here"/dockerd.sh "$here"/ufw.sh "$here"/firewalld.sh "$root/tmp"
# The containers of Docker need a root that is none of an overlay's.
mount -t tmpfs none "$root/var/lib/docker"

# A host with an uplink, in namespaces of its own.
cat >"$root/tmp/host.sh" <<'EOF'
ip link set lo up
ip link add up0 type veth peer name up1
ip addr add 192.0.2.1/24 dev up0
ip link set up0 up
version() { dpkg-query -W -f='${Package} ${Version}' "$1"; }
# Without dates, packets and bytes.
save_iptables() {
  for family in iptables ip6tables; do
    { echo "# $(version "$2"), $($family --version)"; $family-save | sed -e '/^#/d' -e 's/\[[0-9]*:[0-9]*\]/[0:0]/'; } >"/tmp/$1.$family"
  done
}
save_nft() {
  { echo "# $(version "$2"), $(nft --version)"; nft -s list ruleset; } >"/tmp/$1.nft"
}
EOF
for program in dockerd ufw firewalld; do
  chroot "$root" unshare --net --pid --fork --mount-proc sh -eu -c ". /tmp/host.sh; . /tmp/$program.sh"
done
cp "$root"/tmp/*.iptables "$root"/tmp/*.ip6tables "$root"/tmp/*.nft "$recordings"
