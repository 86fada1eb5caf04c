/** What results of 0.1.0 and 0.2.0 cannot hold, several addresses of one family, by the reference and by the compiled binary. */
import { expect } from "bun:test";
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  type ComparisonHost,
  comparisonTest,
  newComparisonHost,
  ourPlugins,
  type PluginSet,
  referencePlugins,
} from "../../testing/reference_host.ts";
import { ipShow } from "../../testing/netns.ts";

const SIDES = [referencePlugins, ourPlugins];
const ADDRESSES = ["10.1.0.2/24", "10.2.0.2/24", "fd00:1::2/64", "fd00:2::2/64"];
const SUBNETS = ["10.1.0.0/24", "10.2.0.0/24", "fd00:1::/64", "fd00:2::/64"];
const staticIpam = { type: "static", addresses: ADDRESSES.map((address) => ({ address })) };
const CASES = {
  "addresses of static": { type: "static", config: { ipam: staticIpam } },
  "ips of args": { type: "static", config: { ipam: { type: "static" }, args: { cni: { ips: ADDRESSES } } } },
  "ips of runtimeConfig": { type: "static", config: { ipam: { type: "static" }, runtimeConfig: { ips: ADDRESSES } } },
  "ranges of host-local": {
    type: "host-local",
    config: { ipam: { type: "host-local", dataDir: "$DIR", ranges: SUBNETS.map((subnet) => [{ subnet }]) } },
  },
};

for (const [name, { type, config }] of Object.entries(CASES)) {
  comparisonTest(`several addresses of one family are refused in 0.1.0 and 0.2.0 only: ${name}`, () => {
    for (const cniVersion of ["0.1.0", "0.2.0", "0.3.0", "0.3.1"]) {
      const answers = SIDES.map((side) => {
        using world = newComparisonHost();
        const { succeeded, answer } = world.tryCall(side, "ADD", { cniVersion, ...config }, { type });
        expect(world.reserved()).toEqual(succeeded && type === "host-local" ? expect.any(Array) : []);
        return succeeded ? answer : "refused";
      });
      expect([cniVersion, answers[1]]).toEqual([cniVersion, answers[0]]);
      expect(answers[0] === "refused").toBe(cniVersion < "0.3.0");
    }
  });
}

/** An IPAM plugin of others, which answers in a newer form. */
function writeForeignIpam({ directory }: ComparisonHost): string {
  const path = join(directory, "foreign");
  const ips = ADDRESSES.map((address) => ({ address }));
  writeFileSync(
    path,
    `#!/bin/sh\n[ "$CNI_COMMAND" != ADD ] || echo '${JSON.stringify({ cniVersion: "1.0.0", ips })}'\n`,
  );
  chmodSync(path, 0o755);
  return directory;
}

function attachBy(side: PluginSet, cniVersion: string) {
  using world = newComparisonHost();
  const env = { CNI_PATH: writeForeignIpam(world) };
  const config = { cniVersion, ipam: { type: "foreign" } };
  const added = world.tryCall(side, "ADD", config, { env });
  const { addr_info } = ipShow(world.container, "addr", "show", "eth0")[0];
  const addresses = addr_info.filter(({ scope }: { scope: string }) => scope === "global")
    .map(({ local, prefixlen }: { local: string; prefixlen: number }) => `${local}/${prefixlen}`).sort();
  const deleted = world.tryCall(side, "DEL", config, { env });
  return { answer: added.succeeded ? added.answer : "refused", addresses, deleted: deleted.succeeded };
}

comparisonTest(
  "the container has all addresses of another IPAM plugin, the result names the first of each family",
  () => {
    for (const cniVersion of ["0.1.0", "0.2.0"]) {
      const [reference, own] = SIDES.map((side) => attachBy(side, cniVersion));
      expect(own).toEqual(reference!);
      expect(own).toEqual({
        answer: { cniVersion, ip4: { ip: ADDRESSES[0] }, ip6: { ip: ADDRESSES[2] }, dns: {} },
        addresses: ADDRESSES,
        deleted: true,
      });
    }
  },
);
