#!/bin/sh
# Run in a place by enter.sh: sees that the archives of Debian and npm can be reached, and fetches npm's packages once.

set -eu

apt-get -qq -o APT::Update::Error-Mode=any update
cmp -s package-lock.json ~/.npm/prepared-lock.json || {
  # shellcheck disable=SC1091 # it goes by the name of the script that sources it
  sh -c '. scripts/setup' scripts/place
  cp package-lock.json ~/.npm/prepared-lock.json
}
