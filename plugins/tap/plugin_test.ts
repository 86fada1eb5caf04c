import { expect } from "bun:test";
import { errorOf, type PluginStart, runPlugin, testWith } from "../../testing/binary.ts";
import { parseCidr, parseIp } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { IFF_MULTI_QUEUE, IFF_NO_PI, IFF_TAP, TUNSETIFF } from "../../ffi/route/uapi.ts";
import { type Descriptor, descriptor, readAvailable } from "../../ffi/sys/file.ts";
import { awaitReadable } from "../../ffi/sys/poll.ts";
import { sys } from "../../ffi/sys/libc.ts";
import { ping, runInNetns } from "../../testing/netns.ts";
import { type Sandbox, type SandboxCallOptions, sandboxTest } from "../../testing/sandbox.ts";
import { newFixedIpam } from "../../testing/fixed_ipam.ts";
import tap from "./plugin.ts";

const { fixed, counts } = newFixedIpam();
const ipam = (addresses: string[], gateways: string[] = [], more: object = {}) => ({
  type: "fixed",
  result: {
    ips: addresses.map((each, i) => ({
      address: parseCidr(each),
      ...gateways[i] && { gateway: parseIp(gateways[i]) },
    })),
    ...more,
  },
});

const tapTest = (name: string, body: (sandbox: Sandbox) => void) => sandboxTest(name, [fixed], body);

function ip(netns: Netns, line: string): string {
  return runInNetns(netns, "ip", ...line.split(" "));
}
// deno-lint-ignore no-explicit-any -- what ip(8) prints
const shown = (netns: Netns, line: string): any[] =>
  JSON.parse(runInNetns(netns, "ip", "-j", "-d", ...line.split(" ")));
const names = (netns: Netns): string[] => shown(netns, "link show").map(({ ifname }) => ifname).sort();
const linkOf = (netns: Netns, name: string) => shown(netns, `link show ${name}`)[0];
const tunOf = (netns: Netns) => linkOf(netns, "tap0").linkinfo.info_data;

const options = { ifname: "tap0" } satisfies SandboxCallOptions;
const add = ({ call }: Sandbox, config: object = {}, more: SandboxCallOptions = {}) =>
  call(tap, "ADD", config, { ...options, ...more });
const del = ({ call }: Sandbox, config: object = {}, more: SandboxCallOptions = {}) =>
  call(tap, "DEL", config, { ...options, ...more });

// linux/if_tun.h

/** Opens the tap as a program such as qemu does. */
function open(netns: Netns, flags = 0): Descriptor {
  return netns.run<Descriptor>(() => {
    const opened = descriptor(sys.open("/dev/net/tun", 2, 0));
    const request = new Uint8Array(40);
    request.set(new TextEncoder().encode("tap0"));
    new DataView(request.buffer).setUint16(16, IFF_TAP | IFF_NO_PI | flags, true);
    sys.ioctl(opened.fd, TUNSETIFF, request);
    return opened;
  });
}

tapTest("tap ADD makes a tap that stays and is up, and DEL removes it", (sandbox) => {
  const { container, host } = sandbox;
  const result = add(sandbox);
  const { address, flags } = linkOf(container, "tap0");
  expect(result as unknown).toEqual({ interfaces: [{ name: "tap0", mac: address, sandbox: container.path }] });
  expect(flags).toContain("UP");
  expect(tunOf(container)).toEqual({ type: "tap", pi: false, vnet_hdr: true, multi_queue: false, persist: true });
  expect(names(host)).toEqual(["lo"]);
  del(sandbox);
  expect(names(container)).toEqual(["lo"]);
});

tapTest("tap ADD heeds every key, also all of them together", (sandbox) => {
  const { container } = sandbox;
  const keys: [object, object, object][] = [
    [{ multiQueue: true }, {}, { multi_queue: true, numqueues: 0, numdisabled: 0 }],
    [{ mtu: 1400 }, { mtu: 1400 }, {}],
    [{ mac: "0A-00-00-00-00-01" }, { address: "0a:00:00:00:00:01" }, {}],
    [{ owner: 0 }, {}, { user: expect.anything() }],
    [{ owner: 4_000_000_000 }, {}, { user: expect.anything() }],
    [{ group: 1234 }, {}, { group: expect.anything() }],
  ];
  keys.push([
    Object.assign({}, ...keys.map(([config]) => config)),
    Object.assign({}, ...keys.map(([, wanted]) => wanted)),
    Object.assign({}, ...keys.map(([, , wanted]) => wanted)),
  ]);
  for (const [config, wanted, info] of keys) {
    const result = add(sandbox, config);
    expect(linkOf(container, "tap0")).toMatchObject(wanted);
    const plain = { type: "tap", pi: false, vnet_hdr: true, multi_queue: false, persist: true };
    expect(tunOf(container)).toEqual({ ...plain, ...info });
    sandbox.call(tap, "CHECK", { ...config, prevResult: { cniVersion: "1.1.0", ...result } }, options);
    del(sandbox, config);
  }
});

tapTest("owner and group are numbers that the kernel keeps", (sandbox) => {
  add(sandbox, { owner: 4_000_000_000, group: 4_000_000_001 });
  expect(runInNetns(sandbox.container, "ip", "-N", "-d", "link", "show", "tap0")).toContain(
    "user 4000000000 group 4000000001",
  );
});

tapTest("the MAC address is the runtime's, else that of CNI_ARGS, else that of the configuration", (sandbox) => {
  const [first, second, third] = ["0a:00:00:00:00:01", "0a:00:00:00:00:02", "0a:00:00:00:00:03"];
  const env = { CNI_ARGS: `IgnoreUnknown=1;K8S=x;MAC=${second}` };
  const wanted: [object, SandboxCallOptions, string][] = [
    [{ mac: third, runtimeConfig: { mac: first } }, { env }, first],
    [{ mac: third, args: { cni: { mac: first } } }, { env }, second],
    [{ mac: third }, {}, third],
  ];
  for (const [config, more, mac] of wanted) {
    expect(add(sandbox, config, more).interfaces![0]!.mac as string).toBe(mac);
    del(sandbox, config, { env: { CNI_ARGS: "K8S=x" } });
  }
  expect(() => add(sandbox, {}, { env: { CNI_ARGS: "K8S=x" } })).toThrow("K8S");
});

tapTest("frames go to the program that opens the tap", (sandbox) => {
  const { container } = sandbox;
  add(sandbox, { ipam: ipam(["10.1.0.2/24"]), mac: "0a:00:00:00:00:01" });
  using opened = open(container);
  runInNetns(container, "sh", "-c", "busybox ping -c 1 -W 1 10.1.0.1 >/dev/null || :");
  for (;;) {
    expect(awaitReadable(opened.fd, 5000)).toBe(true);
    const frame = readAvailable(opened.fd).toHex();
    // ARP, from that address, who has 10.1.0.1
    if (!frame.startsWith("0806", 24) || !frame.includes("0a010001")) continue;
    expect(frame.slice(12, 24)).toBe("0a0000000001");
    return;
  }
});

tapTest("several threads may open a tap of several queues, and only that", (sandbox) => {
  add(sandbox, { multiQueue: true });
  {
    using _one = open(sandbox.container, IFF_MULTI_QUEUE);
    using _other = open(sandbox.container, IFF_MULTI_QUEUE);
  }
  del(sandbox);
  add(sandbox);
  using _one = open(sandbox.container);
  expect(() => open(sandbox.container)).toThrow("EBUSY");
});

tapTest("addresses and routes are usable before anything opens the tap", (sandbox) => {
  const { container } = sandbox;
  ip(container, "link set lo up");
  const routes = [{ dst: "0.0.0.0/0" }, { dst: "::/0" }, { dst: "192.0.2.0/24", table: 77 }];
  const config = { ipam: ipam(["10.1.0.2/24", "fd00:1::2/64", "10.1.9.9/32"], ["10.1.0.1", "fd00:1::1"], { routes }) };
  const result = add(sandbox, config);
  expect(result.ips!.map((each) => each.interface)).toEqual([0, 0, 0]);
  expect(shown(container, "route show default")[0]).toMatchObject({ gateway: "10.1.0.1", dev: "tap0" });
  expect(shown(container, "-6 route show default")[0]).toMatchObject({ gateway: "fd00:1::1", dev: "tap0" });
  expect(ip(container, "-6 addr show tentative")).toBe("");
  ping(container, "fd00:1::2");
  const check = () =>
    sandbox.call(tap, "CHECK", { ...config, prevResult: { cniVersion: "1.1.0", ...result } }, options);
  check();
  ip(container, "route del 192.0.2.0/24 table 77");
  expect(check).toThrow("lacks the route to 192.0.2.0/24");
});

tapTest("the tap becomes a port of a bridge of the container", (sandbox) => {
  const { container } = sandbox;
  const config = { bridge: "br1", ipam: ipam(["10.1.0.2/24"]) };
  expect(() => add(sandbox, config)).toThrow('Cannot find bridge "br1"');
  ip(container, "link add br1 type veth peer name br2");
  expect(() => add(sandbox, config)).toThrow('Cannot use "br1" as a bridge');
  ip(container, "link del br1");
  ip(container, "link add br1 up type bridge");
  const result = add(sandbox, config);
  expect(linkOf(container, "tap0").master).toBe("br1");
  const check = () =>
    sandbox.call(tap, "CHECK", { ...config, prevResult: { cniVersion: "1.1.0", ...result } }, options);
  check();
  ip(container, "link set tap0 nomaster");
  expect(check).toThrow('bridge of "tap0" is missing, expected "br1"');
  del(sandbox, config);
  expect(names(container)).toEqual(["br1", "lo"]);
});

tapTest("CHECK of a tap without addresses notices what has changed", (sandbox) => {
  const { container } = sandbox;
  const config = { mtu: 1400, owner: 7, mac: "0a:00:00:00:00:01" };
  const prevResult = { cniVersion: "1.1.0", ...add(sandbox, config) };
  const check = () => sandbox.call(tap, "CHECK", { ...config, prevResult }, options);
  check();
  const changes: [string, string, string][] = [
    ["link set tap0 mtu 1300", "link set tap0 mtu 1400", 'MTU of "tap0"'],
    ["link set tap0 address 0a:00:00:00:00:02", "link set tap0 address 0a:00:00:00:00:01", 'MAC address of "tap0"'],
    ["link del tap0", "tuntap add mode tap user 8 name tap0", '"tap0" is missing'],
    ["link set tap0 mtu 1400 address 0a:00:00:00:00:01", "link del tap0", 'owner of "tap0"'],
    ["tuntap add mode tap multi_queue user 7 name tap0", "link del tap0", "MAC address"],
    ["link add tap0 mtu 1400 address 0a:00:00:00:00:01 type veth", "link del tap0", 'kind of "tap0"'],
  ];
  for (const [change, back, message] of changes) {
    ip(container, change);
    expect(check, change).toThrow(message);
    ip(container, back);
  }
});

tapTest("CHECK leaves alone an owner and a group that the configuration does not name", (sandbox) => {
  const { container } = sandbox;
  const prevResult = { cniVersion: "1.1.0", ...add(sandbox, { owner: 7, group: 8 }) };
  const check = (config: object) => () => sandbox.call(tap, "CHECK", { ...config, prevResult }, options);
  expect(tunOf(container)).toMatchObject({ user: expect.anything(), group: expect.anything() });
  for (const config of [{}, { owner: 7 }, { group: 8 }]) expect(check(config), JSON.stringify(config)).not.toThrow();
  expect(check({ owner: 8 })).toThrow('owner of "tap0" is 7, expected 8');
  expect(check({ group: 7 })).toThrow('group of "tap0" is 8, expected 7');
});

tapTest("dns comes from the configuration if it says some, else from IPAM", (sandbox) => {
  const addresses = ipam(["10.1.0.2/24"], [], { dns: { nameservers: ["10.1.0.1"] } });
  expect(add(sandbox, { ipam: addresses }).dns).toEqual({ nameservers: ["10.1.0.1"] });
  del(sandbox, { ipam: addresses });
  expect(add(sandbox, { ipam: addresses, dns: { domain: "a.example" } }).dns).toEqual({ domain: "a.example" });
});

tapTest("a refused ADD leaves nothing, and what was there as it was", (sandbox) => {
  const { container } = sandbox;
  const refusals: [object, string][] = [
    [{ ipam: { ...ipam(["10.1.0.2/24"]), fail: true } }, "no address now"],
    [{ ipam: ipam([]) }, "returned no address"],
    [{ ipam: ipam(["10.1.0.2/24", "10.1.0.2/24"]) }, "10.1.0.2/24"],
    [{ cniVersion: "0.2.0" }, ""],
    [{ mtu: 60 }, "tap0"],
  ];
  for (const [config, message] of refusals) {
    expect(() => add(sandbox, config)).toThrow(message);
    expect(names(container)).toEqual(["lo"]);
  }
  for (const line of ["tuntap add mode tap name tap0", "link add tap0 type veth peer name other"]) {
    ip(container, line);
    const before = ip(container, "-d link show tap0");
    expect(() => add(sandbox, {})).toThrow("the container has an interface of that name");
    expect(ip(container, "-d link show tap0")).toBe(before);
    ip(container, "link del tap0");
  }
});

tapTest("DEL releases the address whatever is gone, and takes only a tap", (sandbox) => {
  const { container } = sandbox;
  const config = { bridge: "gone", ipam: ipam(["10.1.0.2/24"]) };
  for (const netns of [container, null, "/run/netns/never"]) {
    const released = counts.del;
    del(sandbox, config, { netns });
    expect(counts.del).toBe(released + 1);
  }
  ip(container, "link add tap0 type veth peer name other");
  del(sandbox, config);
  expect(names(container)).toEqual(["lo", "other", "tap0"]);
});

tapTest("an SELinux context is refused where there is no SELinux, and nothing is left", (sandbox) => {
  expect(() => add(sandbox, { selinuxContext: "system_u:system_r:none_t:s0" })).toThrow("SELinux context");
  expect(names(sandbox.container)).toEqual(["lo"]);
});

testWith(["unshare", "mount"], "STATUS tells whether the driver is there", () => {
  const start: PluginStart = {
    env: { CNI_COMMAND: "STATUS" },
    stdin: JSON.stringify({ cniVersion: "1.1.0", name: "net", type: "tap" }),
  };
  expect(runPlugin("tap", start)).toMatchObject({ exitCode: 0, stdout: "" });
  const script = 'mount -t tmpfs none /dev/net && exec "$@"';
  const wrapper = ["unshare", "--mount", "sh", "-c", script, "sh"];
  expect(errorOf(runPlugin("tap", { ...start, wrapper }))).toMatchObject({
    code: 50,
    msg: expect.stringContaining('"/dev/net/tun" is missing'),
  });
});
