/** ADD undoes what it did whatever it fails at, and a DEL cleans up where nobody knows what was done. */
import { expect, test } from "bun:test";
import { useDirectory } from "../../../testing/directory.ts";
import { runInNetns } from "../../../testing/netns.ts";
import bridge from "../../bridge/plugin.ts";
import hostDevice from "../../host_device/plugin.ts";
import {
  dualStackFixedIpam,
  expectCleanDel,
  expectRollback,
  expectSecondDel,
  type RollbackCase,
} from "../../../testing/rollback.ts";
import macvlan from "../../macvlan/plugin.ts";
import ptp from "../../ptp/plugin.ts";
import tap from "../../tap/plugin.ts";

const directory = useDirectory("cni-rollback-");

/** Links whose state changes no more: nobody is at the other end. */
const cable = (name: string) => `ip link add ${name} type veth peer name far`;

/** A DEL leaves the bridge to other containers, so that no state after it is the one before. */
const BRIDGE: readonly [string, RollbackCase] = [
  "bridge",
  {
    plugin: bridge,
    hasRules: true,
    prepare: () => ({ ...dualStackFixedIpam(), isDefaultGateway: true, ipMasq: true, macspoofchk: true, mtu: 1400 }),
  },
];

const TASKS: readonly (readonly [string, RollbackCase])[] = [
  ["ptp", { plugin: ptp, hasRules: true, prepare: () => ({ ...dualStackFixedIpam(), ipMasq: true, mtu: 1400 }) }],
  [
    "macvlan",
    {
      plugin: macvlan,
      prepare({ host }) {
        runInNetns(host, "sh", "-ec", cable("up0"));
        return { ...dualStackFixedIpam(), master: "up0", mac: "0a:00:00:00:00:07" };
      },
    },
  ],
  [
    "macvlan passthru",
    {
      plugin: macvlan,
      prepare({ container }) {
        runInNetns(container, "sh", "-ec", cable("up0"));
        return {
          ...dualStackFixedIpam(),
          master: "up0",
          linkInContainer: true,
          mode: "passthru",
          mac: "0a:00:00:00:00:07",
        };
      },
    },
  ],
  [
    "tap",
    {
      plugin: tap,
      prepare({ container }) {
        runInNetns(container, "ip", "link", "add", "br1", "address", "0a:00:00:00:00:09", "type", "bridge");
        return { ...dualStackFixedIpam(), mtu: 1400, bridge: "br1", owner: 7 };
      },
    },
  ],
  [
    "host-device",
    {
      plugin: hostDevice,
      prepare({ host }) {
        runInNetns(host, "sh", "-ec", `${cable("nic0")}; ip link set nic0 mtu 1400 alias uplink`);
        return { ...dualStackFixedIpam(4), device: "nic0", dataDir: directory };
      },
    },
  ],
];

test.each([BRIDGE, ...TASKS])("%s: whichever message is not sent, the ADD that fails leaves nothing", (_, task) => {
  expect(expectRollback(task)).toBeGreaterThan(4);
});

test.each(TASKS)("%s: whichever message of a DEL is not sent, the next one cleans up", (_, task) => {
  expect(expectSecondDel(task)).toBeGreaterThan(0);
});

test.each(TASKS)("%s: whichever answer is lost, a DEL cleans up", (_, task) => {
  expect(expectCleanDel(task)).toBeGreaterThan(4);
});
