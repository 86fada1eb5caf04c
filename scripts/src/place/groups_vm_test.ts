/** Debian's kernel mounts the second version of control groups, with all controllers. */
import { expect, test } from "bun:test";
import { REPOSITORY_ROOT } from "../repository.ts";

const SCRIPT = `
  mkdir -p /sys/fs/cgroup
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
  echo +memory >/sys/fs/cgroup/cgroup.subtree_control
  unshare --mount sh scripts/src/place/groups.sh cni-place.1 true
  sh scripts/src/place/remove_groups.sh cni-place.1
  unshare --mount sh scripts/src/place/groups.sh cni-place.1 sh -ec '
    grep -c " / /sys/fs/cgroup " /proc/self/mountinfo
    mkdir /sys/fs/cgroup/container
    cat /sys/fs/cgroup/container/cgroup.controllers'
  ls -d /sys/fs/cgroup/cni-place.1/container
  sh scripts/src/place/remove_groups.sh cni-place.1
  ls -d /sys/fs/cgroup/cni-place.1 2>/dev/null || echo gone`;

test("containers of a place get the controllers of its machine, below groups of its own", () => {
  const { stdout, stderr } = Bun.spawnSync(["unshare", "--mount", "sh", "-ec", SCRIPT], {
    cwd: REPOSITORY_ROOT,
    stderr: "pipe",
  });
  expect([stderr.toString(), ...stdout.toString().trim().split("\n")]).toEqual([
    "",
    "1",
    "memory",
    "/sys/fs/cgroup/cni-place.1/container",
    "gone",
  ]);
});
