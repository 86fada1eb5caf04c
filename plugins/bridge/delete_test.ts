/** What DEL removes although little is as the ADD left it. */
import { expect } from "bun:test";
import { parseCidr } from "../../ffi/address.ts";
import { linkNames, runInNetns } from "../../testing/netns.ts";
import bridge from "./plugin.ts";
import { type Sandbox, sandboxTest } from "../../testing/sandbox.ts";
import { newFixedIpam } from "../../testing/fixed_ipam.ts";

const { fixed } = newFixedIpam();
const four = { type: "fixed", result: { ips: [{ address: parseCidr("10.1.2.2/24") }] } };
const bridgeTest = (name: string, body: (sandbox: Sandbox) => void) => sandboxTest(name, [fixed], body);

bridgeTest(
  "bridge DEL removes what the ADD was asked for, whatever the configuration asks for by now",
  ({ call, host }) => {
    const asked = { isGateway: true, ipMasq: true, macspoofchk: true, ipam: four };
    for (const known of [true, false]) {
      const prevResult = call(bridge, "ADD", asked);
      expect(runInNetns(host, "nft", "list", "ruleset").match(/"test c1 eth0"/g)).toHaveLength(3);
      call(bridge, "DEL", { ipam: four, ...known ? { prevResult } : {} });
      expect(runInNetns(host, "nft", "list", "ruleset")).not.toContain("test c1 eth0");
    }
    call(bridge, "ADD", asked);
    call(bridge, "GC", { ipam: four, "cni.dev/valid-attachments": [] });
    expect(runInNetns(host, "nft", "list", "ruleset")).not.toContain("test c1 eth0");
  },
);

bridgeTest("bridge DEL finds the host's end that was renamed or has left the bridge", ({ call, host }) => {
  for (const netns of [null, "/nonexistent"]) {
    const result = call(bridge, "ADD", { ipam: four });
    const { name } = result.interfaces![1]!;
    runInNetns(
      host,
      "sh",
      "-e",
      "-c",
      `ip link set ${name} down nomaster; ip link set ${name} name other0; ip link del cni0`,
    );
    call(bridge, "DEL", { ipam: four, prevResult: result }, { netns });
    expect(linkNames(host)).toEqual(["lo"]);
  }
});
