/** As `address_claim_test.ts`, on a kernel that has VRFs. */
import { expect } from "bun:test";
import { parseCidr } from "../../../ffi/address.ts";
import { newFixedIpam } from "../../../testing/fixed_ipam.ts";
import { runShellInNetns } from "../../../testing/netns.ts";
import { nftListRuleset } from "../../../testing/ruleset.ts";
import { sandboxTest } from "../../../testing/sandbox.ts";
import bridge from "../../bridge/plugin.ts";

const { fixed } = newFixedIpam();
const ipam = { type: "fixed", result: { ips: [{ address: parseCidr("10.1.2.2/24") }] } };

sandboxTest("containers in different VRFs have one address, and in one VRF they do not", [fixed], (sandbox) => {
  const { host, call, newContainer } = sandbox;
  const lines = [
    "ip link add red type vrf table 10; ip link set red up",
    "ip link add blue type vrf table 20; ip link set blue up",
    ...[["br0", "red"], ["br1", "blue"], ["br2", "red"]].map(([name, vrf]) =>
      `ip link add ${name} type bridge; ip link set ${name} up master ${vrf}`
    ),
  ];
  runShellInNetns(host, lines.join("\n"));
  const config = (n: number) => ({ name: `net${n}`, bridge: `br${n}`, isGateway: true, ipMasq: true, ipam });
  const attachments = [0, 1, 2].map((n) => ({ containerId: `c${n}`, netns: newContainer() }));
  const results = [0, 1].map((n) => call(bridge, "ADD", config(n), attachments[n]!));
  expect(() => call(bridge, "ADD", config(2), attachments[2]!)).toThrow(
    'Cannot give the container 10.1.2.2: container "c0" (network "net0", interface "eth0") has it in VRF "red"',
  );
  const check = (n: number) =>
    call(bridge, "CHECK", { ...config(n), prevResult: { cniVersion: "1.1.0", ...results[n] } }, attachments[n]!);
  check(0);
  check(1);
  call(bridge, "DEL", config(0), attachments[0]!);
  check(1);
  call(bridge, "DEL", config(1), attachments[1]!);
  expect(nftListRuleset(host)).not.toContain("elements");
});
