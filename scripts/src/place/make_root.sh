#!/bin/sh
# Makes the Debian of places, from the archives of this machine: make_root.sh CACHE ROOT. Run in namespaces by
# scripts/place, so that what mmdebstrap mounts and starts goes with it.

set -eu

cache=$1
root=$2
release=bookworm

# The machine's archives, without a change to its lists, caches and packages.
separate_apt() {
  mkdir -p "$cache/make/lists/partial" "$cache/make/archives/partial"
  command=$1
  shift
  "$command" -o Dir::State::Lists="$cache/make/lists" -o Dir::Cache="$cache/make" -o APT::Sandbox::User=root "$@"
}

# The line of this machine's source of a part of Debian's archive, if it has one: source_line debian-security bookworm-security
source_line() {
  # shellcheck disable=SC2016 # apt's variable
  separate_apt apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep "/$1/\$" | sort -u |
    sed -n "1s|.*|deb & $2 main|p"
}

find_mmdebstrap() {
  command -v mmdebstrap && return
  (
    cd "$cache/make"
    separate_apt apt-get -qq download mmdebstrap >&2
    dpkg-deb --fsys-tarfile mmdebstrap_*.deb | tar -x ./usr/bin/mmdebstrap
  )
  echo "$cache/make/usr/bin/mmdebstrap"
}

echo "Making a Debian for tests in $cache (once, about 2 minutes, 2.5 GB); this machine keeps its packages"
# Those of other lists of packages, unless somebody is in one.
for old in "$cache"/root "$cache"/root-*; do
  [ ! -d "$old" ] || flock --nonblock "$old" rm -rf "$old" || :
done
rm -rf --one-file-system "$cache/make" "$cache/root.new"
mkdir -p "$cache/make"
# Without lists, apt does not say where they come from.
separate_apt apt-get -qq update >&2
mmdebstrap=$(find_mmdebstrap)
{
  source_line debian $release
  source_line debian $release-updates
  source_line debian-security $release-security
} >"$cache/sources.list"
names=$(sed 's/#.*//' scripts/src/place/packages | xargs | tr ' ' ,)
# A directory that is left after an interruption is removed by the next try, without what may be mounted there.
"$mmdebstrap" --quiet --mode=root --variant=minbase --include="$names" --aptopt="$cache/apt.conf" \
  --aptopt='APT::Install-Recommends "false"' --dpkgopt=force-unsafe-io \
  "$release" "$cache/root.new" "$cache/sources.list" >&2
rm -rf --one-file-system "$cache/make"
mv "$cache/root.new" "$root"
