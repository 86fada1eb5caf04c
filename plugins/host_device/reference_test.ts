import { expect } from "bun:test";
import { linkNames, shown } from "../../testing/netns.ts";
import { type Bench, benchIn, fixed, ipam, linkOf, MAC } from "../../testing/host_device.ts";
import { newSandbox, type Sandbox } from "../../testing/sandbox.ts";
import { callReference, referenceTest } from "../../testing/reference.ts";

/** A sandbox in which Debian's plugin works as well; it has not our test's IPAM plugin. */
function peerTest(name: string, body: (bench: Bench) => void): void {
  referenceTest("host-device")(name, () => {
    using sandbox = newSandbox([fixed]);
    body(benchIn(sandbox));
  });
}

/** What is to be the same, whoever did it. */
function picture({ host, container }: Sandbox): unknown {
  return [host, container].map((netns) =>
    shown(netns, "addr", "show").map(({ ifname, address, mtu, flags, ifalias, addr_info, linkinfo }) => ({
      ifname,
      address,
      mtu,
      // The kernel hears of the carrier a moment later.
      flags: flags.filter((each: string) => each !== "NO-CARRIER"),
      ifalias,
      kind: linkinfo?.info_kind,
      addresses: addr_info.filter(({ scope }: { scope: string }) => scope === "global")
        .map(({ local, prefixlen, broadcast }: Record<string, string>) => [local, prefixlen, broadcast]),
    }))
  );
}

const STATIC = { type: "static", addresses: [{ address: "10.7.0.9/24" }, { address: "10.7.0.10/32" }] };

peerTest("the reference answers and does the same, and each takes back what the other gave", (bench) => {
  const { host, container, far, ask } = bench;
  const configs = [{ device: "nic0" }, { hwaddr: MAC }];
  for (const config of configs.map((each) => ({ ...each, cniVersion: "1.0.0" }))) {
    const theirs = callReference(bench, "host-device", "ADD", config, { ifname: "net1" });
    const after = picture(bench);
    ask("DEL", config);
    expect(linkNames(container)).toEqual(["lo"]);
    expect(linkOf(host, "nic0").ifalias).toBeUndefined();
    const own = ask("ADD", config);
    expect(own as unknown).toEqual(theirs);
    expect(picture(bench)).toEqual(after);
    expect(callReference(bench, "host-device", "DEL", config, { ifname: "net1" })).toEqual({});
    expect(linkOf(host, "nic0").address).toBe(MAC);
    ask("DEL", config);
    expect(linkNames(host)).toEqual(["lo", "nic0"]);
  }
  expect(linkNames(far)).toContain("far0");
});

peerTest("with IPAM the reference leaves the same addresses", (bench) => {
  const config = { device: "nic0", ipam: STATIC, cniVersion: "1.0.0" };
  const theirs = callReference(bench, "host-device", "ADD", config, { ifname: "net1" }) as { ips: object[] };
  const after = picture(bench);
  expect(callReference(bench, "host-device", "DEL", config, { ifname: "net1" })).toEqual({});
  const own = bench.ask("ADD", { ...config, ipam: ipam("10.7.0.9/24", "10.7.0.10/32") });
  expect(own as unknown).toEqual(theirs);
  expect(picture(bench)).toEqual(after);
});
