/** A container may put a link of its own in the place of a device; DEL does not take that to the host. */
import { expect } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import { DEVICE_MAC, type DeviceSandbox, deviceTest } from "../../testing/host_device.ts";
import * as link from "../../ffi/route/link.ts";
import { linkNames, runIp } from "../../testing/netns.ts";

const filesIn = (directory: string): string[] => existsSync(directory) ? readdirSync(directory) : [];
const NOT_GIVEN_BACK = (kind: string) =>
  expect.stringContaining(
    `Device "nic0" is not given back: container "c1" has a device of kind "${kind}" in its place`,
  );

/** Makes a veth pair with the name, number, address and alias of the device; its other end gets `peer`. */
function replaceDevice({ container }: DeviceSandbox, peer = " index 102"): void {
  const { index } = link.get(container.route, "net1");
  runIp(
    container,
    "link del net1",
    `link add net1 index ${index} address ${DEVICE_MAC} type veth peer name fake0${peer}`,
  );
  runIp(container, "link set net1 alias nic0");
}

/** Ends the attachment by each of the ways there are. */
const ENDINGS: Readonly<Record<string, (bench: DeviceSandbox) => void>> = {
  "DEL": ({ callPlugin }) => callPlugin("DEL"),
  "DEL without the namespace": ({ callPlugin }) => callPlugin("DEL", undefined, { netns: null }),
  "GC": ({ callPlugin }) => callPlugin("GC", { "cni.dev/valid-attachments": [] }),
};

for (const [how, end] of Object.entries(ENDINGS)) {
  deviceTest(`${how} leaves alone a veth that the container made in the place of a device`, (bench) => {
    const { callPlugin, host, container, dataDir, log } = bench;
    callPlugin("ADD");
    replaceDevice(bench);
    end(bench);
    expect([linkNames(host), linkNames(container)]).toEqual([["lo"], ["fake0", "lo", "net1"]]);
    expect([filesIn(dataDir), log]).toEqual([[], [NOT_GIVEN_BACK("veth")]]);
  });
}

deviceTest(
  "nor does the number of the other end, in a namespace of the container's own, make it the device",
  (bench) => {
    const { callPlugin, host, container, newContainer, log } = bench;
    callPlugin("ADD");
    const { linkIndex } = link.get(container.route, "net1");
    replaceDevice(bench, ` index ${linkIndex} netns ${newContainer().path}`);
    expect(link.get(container.route, "net1").linkIndex).toBe(linkIndex!);
    callPlugin("DEL");
    expect([linkNames(host), log]).toEqual([["lo"], [NOT_GIVEN_BACK("veth")]]);
  },
);

deviceTest("a device of which the other end is on the host comes back, and one that replaced it does not", (bench) => {
  const { callPlugin, host, container, peerNetns, log } = bench;
  runIp(peerNetns, `link set far0 netns ${host.path}`);
  callPlugin("ADD");
  callPlugin("DEL");
  expect([linkNames(host), log]).toEqual([["far0", "lo", "nic0"], []]);
  callPlugin("ADD");
  replaceDevice(bench);
  callPlugin("DEL");
  expect([linkNames(host), linkNames(container), log]).toEqual([["lo"], ["fake0", "lo", "net1"], [
    NOT_GIVEN_BACK("veth"),
  ]]);
});

deviceTest("a macvlan on a device of the host comes back, and one on a device of the container does not", (bench) => {
  const { callPlugin, host, container, log } = bench;
  runIp(host, "link add mac0 link nic0 type macvlan");
  const config = { device: "mac0" };
  callPlugin("ADD", config);
  callPlugin("DEL", config);
  expect([linkNames(host), log]).toEqual([["lo", "mac0", "nic0"], []]);
  callPlugin("ADD", config);
  const { index } = link.get(container.route, "net1");
  runIp(container, "link del net1", "link add a0 index 100 type veth peer name b0 index 101");
  runIp(container, `link add net1 index ${index} link a0 type macvlan`, "link set net1 alias mac0");
  callPlugin("DEL", config);
  expect([linkNames(host), linkNames(container)]).toEqual([["lo", "nic0"], ["a0", "b0", "lo", "net1"]]);
  expect(log).toEqual([expect.stringContaining('Device "mac0" is not given back')]);
});

// Without a peer and a lower device.
for (
  const [kind, words] of [["ifb", "type ifb"], ["tun", ""], ["vxlan", "type vxlan id 5 dstport 4789"]] as const
) {
  for (const [how, end] of Object.entries(ENDINGS)) {
    deviceTest(`${how} gives back a device of kind ${kind}, which depends on no other`, (bench) => {
      const { host, container, dataDir, log } = bench;
      if (kind === "tun") runIp(host, "tuntap add d0 mode tap");
      else runIp(host, `link add d0 ${words}`);
      const config = { device: "d0" };
      bench.callPlugin("ADD", config);
      expect(linkNames(container)).toEqual(["lo", "net1"]);
      end({ ...bench, callPlugin: (verb, more, options) => bench.callPlugin(verb, { ...config, ...more }, options) });
      expect([linkNames(host), linkNames(container)]).toEqual([["d0", "lo", "nic0"], ["lo"]]);
      expect([filesIn(dataDir), log]).toEqual([[], []]);
    });
  }
}
