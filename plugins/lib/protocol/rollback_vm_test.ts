/** As `rollback_test.ts`, for kinds of links that not every machine's kernel has. Those on a master go the way of macvlan, which is tested there. */
import { expect, test } from "bun:test";
import * as link from "../../../ffi/route/link.ts";
import { runInNetns } from "../../../testing/netns.ts";
import dummy from "../../dummy/plugin.ts";
import { awaitLinkOperational } from "../links/configure_interface.ts";
import { dualStackFixedIpam, expectRollback, type RollbackCase } from "../../../testing/rollback.ts";
import vrf from "../../vrf/plugin.ts";

const VRF: RollbackCase = {
  plugin: vrf,
  prepare({ container }) {
    const ends = ["eth0", "far"];
    const set = (what: string) => ends.map((each) => `ip link set ${each} ${what}`);
    const lines = [
      ...["ip link add eth0 type veth peer name far", ...set("addrgenmode none"), ...set("up")],
      ...["ip addr add 10.5.0.2/24 dev eth0", "ip addr add fd05::2/64 dev eth0 nodad"],
      "ip route add default via 10.5.0.1",
    ];
    runInNetns(container, "sh", "-ec", lines.join("\n"));
    // What is compared must not change by itself.
    for (const each of ends) awaitLinkOperational(container, link.get(container.route, each));
    return { vrfname: "red", prevResult: { cniVersion: "1.1.0" } };
  },
};
const TASKS: readonly (readonly [string, RollbackCase])[] = [
  ["dummy", { plugin: dummy, prepare: () => dualStackFixedIpam() }],
  ["vrf", VRF],
];

test.each(TASKS)("%s: whichever message is not sent, the ADD that fails leaves nothing", (_, task) => {
  expect(expectRollback(task)).toBeGreaterThan(3);
});
