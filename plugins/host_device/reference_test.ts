import { expect } from "bun:test";
import { ipShow, linkNames, runIp } from "../../testing/netns.ts";
import {
  DEVICE_MAC,
  type DeviceSandbox,
  fixed,
  giveAddresses,
  ipLinkShow,
  newDeviceSandbox,
} from "../../testing/host_device.ts";
import { newSandbox, type Sandbox } from "../../testing/sandbox.ts";
import { callReference, referenceTest } from "../../testing/reference.ts";

/** A sandbox in which Debian's plugin works as well; it has not our test's IPAM plugin. */
function peerTest(name: string, body: (bench: DeviceSandbox) => void): void {
  referenceTest("host-device")(name, () => {
    using sandbox = newSandbox([fixed]);
    body(newDeviceSandbox(sandbox));
  });
}

/** What is to be the same, whoever did it. */
function picture({ host, container }: Sandbox): unknown {
  return [host, container].map((netns) =>
    ipShow(netns, "addr", "show").map(({ ifname, address, mtu, flags, ifalias, addr_info, linkinfo }) => ({
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
  const { host, container, peerNetns, callPlugin } = bench;
  // The reference writes nothing down: that the other end is on the host shows whose the device is.
  runIp(peerNetns, `link set far0 netns ${host.path}`);
  const configs = [{ device: "nic0" }, { hwaddr: DEVICE_MAC }];
  for (const config of configs.map((each) => ({ ...each, cniVersion: "1.0.0" }))) {
    const theirs = callReference(bench, "host-device", "ADD", config, { ifname: "net1" });
    const after = picture(bench);
    callPlugin("DEL", config);
    expect(linkNames(container)).toEqual(["lo"]);
    expect(ipLinkShow(host, "nic0").ifalias).toBeUndefined();
    const own = callPlugin("ADD", config);
    expect(own as unknown).toEqual(theirs);
    expect(picture(bench)).toEqual(after);
    expect(callReference(bench, "host-device", "DEL", config, { ifname: "net1" })).toEqual({});
    expect(ipLinkShow(host, "nic0").address).toBe(DEVICE_MAC);
    callPlugin("DEL", config);
    expect(linkNames(host)).toEqual(["far0", "lo", "nic0"]);
  }
});

peerTest("with IPAM the reference leaves the same addresses", (bench) => {
  const config = { device: "nic0", ipam: STATIC, cniVersion: "1.0.0" };
  const theirs = callReference(bench, "host-device", "ADD", config, { ifname: "net1" }) as { ips: object[] };
  const after = picture(bench);
  expect(callReference(bench, "host-device", "DEL", config, { ifname: "net1" })).toEqual({});
  const own = bench.callPlugin("ADD", { ...config, ipam: giveAddresses("10.7.0.9/24", "10.7.0.10/32") });
  expect(own as unknown).toEqual(theirs);
  expect(picture(bench)).toEqual(after);
});

peerTest("the reference and this program give back a device that depends on no other, whoever took it", (bench) => {
  const { host, container, callPlugin } = bench;
  runIp(host, "link add d0 type ifb");
  const config = { device: "d0", cniVersion: "1.0.0" };
  const reference = (verb: "ADD" | "DEL") => callReference(bench, "host-device", verb, config, { ifname: "net1" });
  const own = (verb: "ADD" | "DEL") => void callPlugin(verb, config);
  for (const [add, del] of [[reference, reference], [reference, own], [own, reference], [own, own]] as const) {
    add("ADD");
    expect(linkNames(container)).toEqual(["lo", "net1"]);
    del("DEL");
    expect([linkNames(host), linkNames(container)]).toEqual([["d0", "lo", "nic0"], ["lo"]]);
    // What the reference gave back is still in our records.
    own("DEL");
    expect(linkNames(host)).toEqual(["d0", "lo", "nic0"]);
  }
});
