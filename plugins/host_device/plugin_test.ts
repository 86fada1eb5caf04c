import { expect } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Netns } from "../../ffi/netns/netns.ts";
import { linkNames, runInNetns, runIp } from "../../testing/netns.ts";
import { requestTcp, serveTcp } from "../../testing/traffic.ts";
import { counts, DEVICE_MAC, deviceTest, giveAddresses, ipLinkShow } from "../../testing/host_device.ts";
import type { SandboxCallOptions } from "../../testing/sandbox.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";

const isUp = (netns: Netns, name: string): boolean => ipLinkShow(netns, name).flags.includes("UP");
const filesIn = (directory: string): string[] => readdirSync(directory);
const withRoutes = ({ result, ...rest }: ReturnType<typeof giveAddresses>, routes: object) => ({
  ...rest,
  result: { ...result, routes },
});

deviceTest(
  "the device is the container's until DEL, which gives it back as it was",
  ({ callPlugin, host, container, dataDir }) => {
    runIp(host, "link set nic0 up mtu 1400 txqueuelen 77 alias uplink");
    const result = callPlugin("ADD");
    expect(result as unknown).toEqual({ interfaces: [{ name: "net1", mac: DEVICE_MAC, sandbox: container.path }] });
    expect(linkNames(host)).toEqual(["lo"]);
    expect(ipLinkShow(container, "net1")).toMatchObject({ address: DEVICE_MAC, ifalias: "nic0", mtu: 1400 });
    expect(isUp(container, "net1")).toBe(true);
    expect(filesIn(dataDir)).toEqual(["c1:net1.json"]);

    runIp(container, "link set net1 down");
    runIp(container, "link set net1 mtu 1300 txqueuelen 5 address 0a:00:00:00:00:99 alias mine");
    callPlugin("DEL");
    expect(linkNames(container)).toEqual(["lo"]);
    expect(ipLinkShow(host, "nic0")).toMatchObject({ address: DEVICE_MAC, ifalias: "uplink", mtu: 1400, txqlen: 77 });
    expect(isUp(host, "nic0")).toBe(true);
    expect(filesIn(dataDir)).toEqual([]);
    callPlugin("DEL");
    expect(linkNames(host)).toEqual(["lo", "nic0"]);
  },
);

deviceTest("a device that was down comes back down, without an alias", ({ callPlugin, host }) => {
  callPlugin("ADD");
  callPlugin("DEL");
  expect(isUp(host, "nic0")).toBe(false);
  expect(ipLinkShow(host, "nic0").ifalias).toBeUndefined();
});

deviceTest("traffic passes by the addresses that IPAM gives", async ({ callPlugin, container, peerNetns }) => {
  const routes = [{ dst: "192.0.2.0/24", gw: "10.7.0.1" }, { dst: "198.51.100.0/24", gw: "10.7.0.1", table: 77 }];
  const config = { device: "nic0", ipam: withRoutes(giveAddresses("10.7.0.9/24", "fd07::9/64"), routes) };
  const result = callPlugin("ADD", config);
  expect(result.ips!.map((each) => [each.address as string, each.interface])).toEqual([
    ["10.7.0.9/24", 0],
    ["fd07::9/64", 0],
  ]);
  using server = serveTcp(peerNetns, "far");
  expect(await requestTcp(container, "10.7.0.1", server.port)).toBe("far 10.7.0.9");
  expect(await requestTcp(container, "fd07::1", server.port)).toBe("far fd07::9");
  const check = () => callPlugin("CHECK", { ...config, prevResult: { cniVersion: "1.1.0", ...result } });
  check();
  runIp(container, "route del 198.51.100.0/24 table 77");
  expect(check).toThrow("lacks the route to 198.51.100.0/24");
});

deviceTest(
  "a device without a carrier gets its addresses all the same",
  ({ callPlugin, container, peerNetns, log }) => {
    runIp(peerNetns, "link set far0 down");
    const routes = [{ dst: "2001:db8::/32", gw: "fd07::1" }];
    callPlugin("ADD", { device: "nic0", ipam: withRoutes(giveAddresses("10.7.0.9/24", "fd07::9/64"), routes) });
    expect(runIp(container, "addr show net1")).toContain("fd07::9/64");
    expect(runIp(container, "-6 route show 2001:db8::/32")).toContain("via fd07::1");
    expect(log.join()).toContain('"net1" has no carrier');
  },
);

deviceTest(
  "CHECK passes for a single address and without any, and notices what is gone",
  ({ callPlugin, container }) => {
    for (const more of [{}, { ipam: giveAddresses("10.7.0.9/32") }]) {
      const config = { device: "nic0", ...more };
      const result = callPlugin("ADD", config);
      const check = () => callPlugin("CHECK", { ...config, prevResult: { cniVersion: "1.1.0", ...result } });
      check();
      runIp(container, "link set net1 address 0a:00:00:00:00:99");
      expect(check).toThrow('MAC address of "net1"');
      runIp(container, "link set net1 down");
      runIp(container, "link set net1 name other");
      expect(check).toThrow('"net1" is missing');
      callPlugin("DEL", config);
      expect(() => callPlugin("CHECK", config)).toThrow("prevResult is missing");
    }
  },
);

deviceTest(
  "another interface of the container may have the device's name",
  ({ callPlugin, host, container, peerNetns }) => {
    runIp(container, "link add nic0 type veth peer name other");
    runIp(host, "link set nic0 up");
    callPlugin("ADD");
    expect(ipLinkShow(container, "net1").address).toBe(DEVICE_MAC);
    callPlugin("DEL");
    expect(ipLinkShow(host, "nic0").address).toBe(DEVICE_MAC);
    expect(isUp(host, "nic0")).toBe(true);
    expect(linkNames(container)).toEqual(["lo", "nic0", "other"]);
    expect(linkNames(peerNetns)).toContain("far0");
  },
);

deviceTest("the container's name may be that of an interface of the host", ({ callPlugin, host, container }) => {
  runIp(host, "link add eth0 type veth peer name eth0peer");
  callPlugin("ADD", { device: "nic0" }, { ifname: "eth0" });
  expect(ipLinkShow(container, "eth0").address).toBe(DEVICE_MAC);
  callPlugin("DEL", { device: "nic0" }, { ifname: "eth0" });
  expect(linkNames(host)).toEqual(["eth0", "eth0peer", "lo", "nic0"]);
  expect(ipLinkShow(host, "nic0").address).toBe(DEVICE_MAC);
});

deviceTest(
  "DEL fails while the host has another interface of that name, and succeeds later",
  ({ callPlugin, host, container }) => {
    callPlugin("ADD");
    runIp(host, "link add nic0 type veth peer name in-the-way");
    expect(() => callPlugin("DEL")).toThrow(
      'Cannot give device "nic0" back to the host: the host has another interface',
    );
    expect(ipLinkShow(container, "net1")).toMatchObject({ address: DEVICE_MAC, ifalias: "nic0" });
    expect(isUp(container, "net1")).toBe(true);
    runIp(host, "link del nic0");
    callPlugin("DEL");
    expect(ipLinkShow(host, "nic0").address).toBe(DEVICE_MAC);
  },
);

deviceTest("a refused ADD leaves the device where and how it was", ({ callPlugin, host, container, dataDir }) => {
  runIp(host, "link set nic0 up alias uplink");
  const before = ipLinkShow(host, "nic0");
  const refused = (config: object, message: string) => {
    expect(() => callPlugin("ADD", { device: "nic0", ...config })).toThrow(message);
    expect(ipLinkShow(host, "nic0")).toMatchObject({ address: DEVICE_MAC, ifalias: "uplink", txqlen: before.txqlen });
    expect(isUp(host, "nic0")).toBe(true);
    expect(filesIn(dataDir)).toEqual([]);
  };
  mkdirSync(dataDir, { recursive: true });
  refused({ ipam: { ...giveAddresses("10.7.0.9/24"), fail: true } }, "no address now");
  refused({ ipam: giveAddresses() }, "returned no address");
  refused({ ipam: giveAddresses("10.7.0.9/24", "10.7.0.9/24") }, 'add address 10.7.0.9/24 to "net1"');
  refused({ cniVersion: "0.2.0" }, "");
  expect(linkNames(container)).toEqual(["lo"]);
  runIp(container, "link add net1 type veth peer name other");
  refused({}, "the container has an interface of that name");
  expect(linkNames(container)).toEqual(["lo", "net1", "other"]);
});

deviceTest(
  "devices are found by hardware address, in any spelling, below what has the same",
  ({ callPlugin, host, container }) => {
    runIp(host, "link add br0 type bridge");
    runIp(host, `link set br0 address ${DEVICE_MAC}`);
    callPlugin("ADD", { hwaddr: "0A-00-00-00-00-11" });
    expect(ipLinkShow(container, "net1").ifalias).toBe("nic0");
    expect(() => callPlugin("ADD", { hwaddr: "0a:00:00:00:00:12" }, { ifname: "net2" })).toThrow(
      "a device with MAC address",
    );
    callPlugin("DEL", { hwaddr: "0A-00-00-00-00-11" });
    runIp(host, `link add twin address ${DEVICE_MAC} type veth peer name far1`);
    expect(() => callPlugin("ADD", { hwaddr: DEVICE_MAC })).toThrow(/"nic0" and "twin"|"twin" and "nic0"/);
  },
);

deviceTest("devices are found by another of their names", ({ callPlugin, host, container }) => {
  runIp(host, "link property add dev nic0 altname enp-a-long-name-of-a-device");
  callPlugin("ADD", { device: "enp-a-long-name-of-a-device" });
  expect(ipLinkShow(container, "net1").ifalias).toBe("nic0");
  callPlugin("DEL", { device: "enp-a-long-name-of-a-device" });
  expect(ipLinkShow(host, "nic0").altnames).toEqual(["enp-a-long-name-of-a-device"]);
});

/** A device of a made-up sysfs: there is no PCI device in a namespace of a test. */
function fakeDevice(
  sysfs: string,
  bus: string,
  id: string,
  { nets = [] as string[], driver = "", below = "" },
): string {
  const device = join(sysfs, "devices", `${bus}0`, id);
  for (const each of nets) mkdirSync(join(device, below, "net", each), { recursive: true });
  mkdirSync(device, { recursive: true });
  mkdirSync(join(sysfs, "bus", bus, "devices"), { recursive: true });
  if (driver) symlinkSync(`../../../bus/${bus}/drivers/${driver}`, join(device, "driver"));
  symlinkSync(`../../../devices/${bus}0/${id}`, join(sysfs, "bus", bus, "devices", id));
  return device;
}

deviceTest("devices are found by their place in sysfs", ({ callPlugin, container, sysfs }) => {
  fakeDevice(sysfs, "pci", "0000:00:04.0", { nets: ["nic0"], driver: "e1000" });
  fakeDevice(sysfs, "pci", "0000:00:05.0", { nets: ["nic0"], below: "virtio3", driver: "virtio-pci" });
  fakeDevice(sysfs, "auxiliary", "mlx5_core.sf.4", { nets: ["nic0"] });
  symlinkSync("../devices/pci0", join(sysfs, "bus/link"));
  const found: [object, string?][] = [
    [{ pciBusID: "0000:00:04.0" }, "0000:00:04.0"],
    [{ pciBusID: "0000:00:05.0" }, "0000:00:05.0"],
    [{ device: "other", runtimeConfig: { deviceID: "0000:00:04.0" } }, "0000:00:04.0"],
    [{ pciBusID: "0000:00:09.0", runtimeConfig: { deviceID: "mlx5_core.sf.4" } }],
    [{ kernelpath: "/sys/devices/pci0/0000:00:04.0" }],
    [{ kernelpath: "/sys/devices/../devices/pci0/0000:00:05.0" }],
  ];
  for (const [config, pciID] of found) {
    const { interfaces } = callPlugin("ADD", config);
    expect(interfaces!.map((each) => each.pciID)).toEqual([pciID as string]);
    expect(ipLinkShow(container, "net1")).toMatchObject({ ifalias: "nic0", address: DEVICE_MAC });
    callPlugin("DEL", config);
  }
  expect(callPlugin("ADD", { cniVersion: "1.0.0", pciBusID: "0000:00:04.0" }).interfaces![0]).not.toHaveProperty(
    "pciID",
  );
});

deviceTest("what sysfs has no interface for is refused with the reason", ({ callPlugin, sysfs, host }) => {
  fakeDevice(sysfs, "pci", "0000:00:04.0", { driver: "e1000" });
  fakeDevice(sysfs, "pci", "0000:00:05.0", {});
  mkdirSync(join(sysfs, "elsewhere/net/nic0"), { recursive: true });
  const refused: [object, string, number][] = [
    [{}, "device must be given", 7],
    [{ pciBusID: "0000:00:04.0" }, 'an interface of PCI device "0000:00:04.0"', 999],
    [{ pciBusID: "0000:00:05.0" }, 'an interface of PCI device "0000:00:05.0"', 999],
    [{ pciBusID: "0000:00:06.0" }, 'PCI device "0000:00:06.0"', 999],
    [{ device: "nic0", runtimeConfig: { deviceID: "absent" } }, 'device "absent"', 999],
    [{ kernelpath: "/sys/devices/absent" }, '"/sys/devices/absent"', 999],
    [{ kernelpath: "/sys/devices/../elsewhere" }, "kernelpath must be", 7],
    [{ kernelpath: "/sys/class/net/nic0" }, "kernelpath must be", 7],
    [{ pciBusID: "../../elsewhere" }, "pciBusID must be", 7],
    [{ runtimeConfig: { deviceID: ".." } }, "runtimeConfig.deviceID must be", 7],
    [{ device: "absent" }, 'device "absent"', 999],
    [{ device: "lo" }, 'Cannot move device "lo"', 7],
  ];
  for (const [config, message, code] of refused) {
    const error = errorOfCall(() => callPlugin("ADD", config));
    expect(error.message).toContain(message);
    expect([config, error.code]).toEqual([config, code]);
  }
  expect(linkNames(host)).toEqual(["lo", "nic0"]);
});

deviceTest("a device that a program drives has addresses and no link", ({ callPlugin, sysfs, container, dataDir }) => {
  for (const [i, driver] of ["vfio-pci", "uio_pci_generic", "igb_uio"].entries()) {
    const id = `0000:00:0${i}.0`;
    fakeDevice(sysfs, "pci", id, { driver });
    for (const chosen of [{ pciBusID: id }, { runtimeConfig: { deviceID: id } }]) {
      const config = { ...chosen, ipam: giveAddresses("10.7.0.9/24"), dns: { nameservers: ["10.7.0.1"] } };
      const result = callPlugin("ADD", config);
      expect(result as unknown).toEqual({
        interfaces: [{ name: "net1", sandbox: container.path, pciID: id }],
        ips: [{ address: "10.7.0.9/24", interface: 0 }],
        dns: { nameservers: ["10.7.0.1"] },
      });
      expect(linkNames(container)).toEqual(["lo"]);
      const checks = counts.check;
      callPlugin("CHECK", { ...config, prevResult: { cniVersion: "1.1.0", ...result } });
      expect(counts.check).toBe(checks + 1);
      // What the container has made up for itself is none of ours.
      runIp(container, "link add net1 type veth peer name other");
      runIp(container, "link set net1 alias stolen");
      const deleted = counts.del;
      callPlugin("DEL", config);
      expect(counts.del).toBe(deleted + 1);
      expect(linkNames(container)).toEqual(["lo", "net1", "other"]);
      runIp(container, "link del net1");
      expect(callPlugin("ADD", { ...chosen, cniVersion: "1.0.0" }) as unknown).toEqual({
        interfaces: [{ name: "net1", sandbox: container.path }],
      });
    }
  }
  expect(() => filesIn(dataDir)).toThrow("ENOENT");
});

deviceTest("DEL succeeds and releases the address whatever is gone", ({ callPlugin, host, container }) => {
  const config = { device: "nic0", ipam: giveAddresses("10.7.0.9/24") };
  const gone: [string, () => void, SandboxCallOptions][] = [
    ["all", () => runIp(container, "link del net1"), {}],
    ["the namespace", () => runIp(container, "link del net1"), { netns: "/run/netns/never" }],
    ["the name of the namespace", () => runIp(container, "link del net1"), { netns: null }],
  ];
  for (const [what, take, options] of gone) {
    callPlugin("ADD", config);
    take();
    for (const rest of [config, { pciBusID: "0000:00:09.0", ipam: config.ipam }, { ipam: config.ipam }]) {
      const released = counts.del;
      callPlugin("DEL", rest, options);
      expect([what, counts.del]).toEqual([what, released + 1]);
    }
    const far = runIp(host, "-o link show");
    expect(far).not.toContain("nic0");
    runIp(host, `link add nic0 address ${DEVICE_MAC} type veth peer name peer0`);
  }
});

deviceTest(
  "the container cannot choose which link goes to the host, nor its name there",
  ({ callPlugin, host, container }) => {
    callPlugin("ADD");
    runIp(container, "link set net1 down");
    runIp(container, "link set net1 name hidden alias eth0");
    runIp(container, "link add net1 type veth peer name other");
    runIp(container, "link set net1 alias nic0");
    callPlugin("DEL");
    expect(ipLinkShow(host, "nic0").address).toBe(DEVICE_MAC);
    expect(linkNames(host)).toEqual(["lo", "nic0"]);
    expect(linkNames(container)).toEqual(["lo", "net1", "other"]);
    // Nor does a second DEL take what is there by now.
    runIp(container, "link set net1 alias wlan0");
    callPlugin("DEL");
    expect(linkNames(host)).toEqual(["lo", "nic0"]);
  },
);

deviceTest(
  "where nothing is written down, DEL takes what leads to the host, and nothing that the container made",
  (bench) => {
    const { callPlugin, host, container, log } = bench;
    runIp(container, "link add net1 address 0a:00:00:00:00:66 type veth peer name other");
    runIp(container, "link set net1 alias wlan0");
    const configs = [{ pciBusID: "0000:00:09.0" }, { kernelpath: "/sys/devices/x" }, { hwaddr: DEVICE_MAC }, {}];
    for (const config of [...configs, { hwaddr: "0a:00:00:00:00:66" }]) {
      callPlugin("DEL", config);
      expect(linkNames(host)).toEqual(["lo", "nic0"]);
    }
    expect(log).toEqual([
      expect.stringContaining('Device "wlan0" is not given back: container "c1" has a device of kind "veth"'),
    ]);
    // As the reference plugin leaves it.
    runIp(container, "link del net1");
    runIp(host, `link add net1 address 0a:00:00:00:00:66 netns ${container.path} type veth peer name far1`);
    runIp(container, "link set net1 alias wlan0");
    callPlugin("DEL", { hwaddr: "0a:00:00:00:00:66" });
    expect(linkNames(host)).toEqual(["far1", "lo", "nic0", "wlan0"]);
  },
);

deviceTest("DEL leaves alone what another container has that came to the path of the namespace", (bench) => {
  const { callPlugin, host, container, newContainer, dataDir } = bench;
  callPlugin("ADD", undefined, { netns: newContainer() });
  // The first device ended with its namespace, and there is another of its name.
  runIp(bench.peerNetns, "link del far0");
  runIp(host, `link add nic0 address ${DEVICE_MAC} type veth peer name peer0`);
  callPlugin("ADD", undefined, { containerId: "c2" });
  expect(filesIn(dataDir)).toHaveLength(2);
  for (const _ of ["what it had", "nothing is known"]) {
    callPlugin("DEL");
    expect(linkNames(container)).toEqual(["lo", "net1"]);
    expect(linkNames(host)).toEqual(["lo", "peer0"]);
  }
  expect(filesIn(dataDir)).toEqual(["c2:net1.json"]);
  callPlugin("DEL", undefined, { containerId: "c2" });
  expect(linkNames(host)).toEqual(["lo", "nic0", "peer0"]);
});

deviceTest(
  "a namespace whose number was another's is not taken for that",
  ({ callPlugin, container, host, dataDir }) => {
    callPlugin("ADD");
    const path = join(dataDir, "c1:net1.json");
    const saved = JSON.parse(readFileSync(path, "utf8"));
    expect(saved.netns).toEqual({ path: container.path, identity: container.identity, cookie: container.cookie });
    const as = (cookie?: string) =>
      writeFileSync(path, JSON.stringify({ ...saved, netns: { ...saved.netns, cookie } }));
    as("1");
    callPlugin("DEL");
    expect(linkNames(container)).toEqual(["lo", "net1"]);
    // As it was written before.
    as();
    callPlugin("DEL");
    expect([linkNames(host), linkNames(container)]).toEqual([["lo", "nic0"], ["lo"]]);
  },
);

deviceTest(
  "DEL without a namespace finds the one that it was, if that is there",
  ({ callPlugin, host, container, dataDir }) => {
    for (const netns of [null, "/nonexistent"]) {
      callPlugin("ADD");
      callPlugin("DEL", undefined, { netns });
      expect([linkNames(host), linkNames(container)]).toEqual([["lo", "nic0"], ["lo"]]);
      expect(filesIn(dataDir)).toEqual([]);
    }
  },
);

deviceTest(
  "a device that is sought is not made of another that has its name as alias while a container has it",
  (bench) => {
    const { callPlugin, host } = bench;
    runIp(host, "link add nic1 type veth peer name far1");
    runIp(host, "link set far1 alias nic0");
    callPlugin("ADD");
    expect(() => callPlugin("ADD", { device: "nic7" }, { ifname: "net2" })).toThrow('Cannot find device "nic7"');
    expect(linkNames(host)).toEqual(["far1", "lo", "nic1"]);
  },
);

deviceTest("a device that cannot be had back does not keep another from being found", (bench) => {
  const { callPlugin, host, container, log } = bench;
  runIp(host, "link add nic1 type veth peer name far1");
  callPlugin("ADD", { device: "nic1" }, { ifname: "net2" });
  callPlugin("ADD");
  // As the kernel does it when a namespace dies; both names are taken or free.
  for (const [name, stray] of [["net1", "dev1"], ["net2", "dev2"]] as const) {
    runIp(container, `link set ${name} down`);
    runIp(container, `link set ${name} name ${stray}`);
    runIp(container, `link set ${stray} netns ${host.path}`);
  }
  runIp(host, "link add nic0 type veth peer name other");
  callPlugin("ADD", { device: "nic1" }, { containerId: "c2" });
  expect(linkNames(host)).toEqual(["dev1", "far1", "lo", "nic0", "other"]);
  expect(log.join()).toContain('Cannot give device "nic0" back to the host');
});

deviceTest("what a killed ADD or DEL has begun, the next DEL ends", (bench) => {
  const { callPlugin, host, container, peerNetns, dataDir } = bench;
  const prepare = () => {
    runIp(host, "link set nic0 up alias uplink");
    callPlugin("ADD");
  };
  const state = (name: string) => join(dataDir, name);
  // In the middle of the way back: down, under its own name.
  prepare();
  runIp(container, "link set net1 down");
  runIp(container, "link set net1 name nic0");
  callPlugin("DEL");
  expect([isUp(host, "nic0"), ipLinkShow(host, "nic0").ifalias]).toEqual([true, "uplink"]);

  // Moved, and not yet written down where to.
  prepare();
  const { inside: _, ...rest } = JSON.parse(runInNetns(host, "cat", state("c1:net1.json")));
  writeFileSync(state("c1:net1.json"), JSON.stringify(rest));
  callPlugin("DEL");
  expect([isUp(host, "nic0"), ipLinkShow(host, "nic0").ifalias]).toEqual([true, "uplink"]);

  // Written down, and not yet moved.
  mkdirSync(dataDir, { recursive: true });
  writeFileSync(state("c1:net1.json"), JSON.stringify(rest));
  callPlugin("DEL");
  expect(linkNames(host)).toEqual(["lo", "nic0"]);
  expect([isUp(host, "nic0"), filesIn(dataDir)]).toEqual([true, []]);

  // What is written down is lost: the alias tells the name, and the other end whether it is the host's.
  runIp(peerNetns, `link set far0 netns ${host.path}`);
  prepare();
  for (const text of ["{", JSON.stringify({ ...rest, before: { name: "../x", isUp: true } })]) {
    writeFileSync(state("c1:net1.json"), text);
  }
  callPlugin("DEL");
  expect(linkNames(host)).toEqual(["far0", "lo", "nic0"]);
});

deviceTest(
  "GC puts back what dead containers have, and leaves the living alone",
  ({ callPlugin, host, container, newContainer }) => {
    const living = newContainer();
    runIp(host, "link add nic1 type veth peer name far1");
    callPlugin("ADD");
    callPlugin("ADD", { device: "nic1" }, { containerId: "c2", netns: living });
    callPlugin("GC", {
      "cni.dev/valid-attachments": [{ containerID: "c1", ifname: "net1" }, { containerID: "c2", ifname: "net1" }],
    });
    expect(linkNames(host)).toEqual(["far1", "lo"]);
    callPlugin("GC", { name: "other", "cni.dev/valid-attachments": [] });
    expect(linkNames(host)).toEqual(["far1", "lo"]);
    callPlugin("GC", { "cni.dev/valid-attachments": [{ containerID: "c2", ifname: "net1" }] });
    expect(linkNames(host)).toEqual(["far1", "lo", "nic0"]);
    expect(linkNames(container)).toEqual(["lo"]);
    expect(linkNames(living)).toEqual(["lo", "net1"]);
  },
);

deviceTest(
  "GC puts back what seems to be of the future, as the clock was set back since",
  ({ callPlugin, host, dataDir }) => {
    callPlugin("ADD");
    utimesSync(join(dataDir, "c1:net1.json"), 4e9, 4e9);
    callPlugin("GC", { "cni.dev/valid-attachments": [] });
    expect([linkNames(host), filesIn(dataDir)]).toEqual([["lo", "nic0"], []]);
  },
);

deviceTest("STATUS needs no device, but to be told which", ({ callPlugin }) => {
  callPlugin("STATUS", { device: "absent" });
  callPlugin("STATUS", { capabilities: { deviceID: true } });
  expect(() => callPlugin("STATUS", {})).toThrow("device must be given");
});
