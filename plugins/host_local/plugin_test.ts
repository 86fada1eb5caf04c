import { expect, test } from "bun:test";
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { newHostLocalNetwork } from "../../testing/host_local.ts";

const DUAL = { ranges: [[{ subnet: "10.1.2.0/24" }, { subnet: "10.2.2.0/24" }], [{ subnet: "fd00:1::/64" }]] };
const SMALL = { ranges: [[{ subnet: "10.0.0.0/29" }]] };

test("ADD gives one address per set, routes and name servers, and remembers them in the reference's form", () => {
  using net = newHostLocalNetwork(DUAL);
  const resolvConf = join(net.dataDir, "resolv.conf");
  writeFileSync(resolvConf, "nameserver 192.0.2.3\nsearch a b\n");
  const routes = [
    { dst: "0.0.0.0/0" },
    { dst: "192.0.2.0/24", gw: "10.1.2.9", mtu: 1400, advmss: 1360, priority: 7, table: 100, scope: 253 },
  ];
  expect<object>(net.call("ADD", { ipam: { routes, resolvConf } })).toEqual({
    cniVersion: "1.1.0",
    ips: [
      { address: "10.1.2.2/24", gateway: "10.1.2.1" },
      { address: "fd00:1::2/64", gateway: "fd00:1::1" },
    ],
    routes,
    dns: { nameservers: ["192.0.2.3"], search: ["a", "b"] },
  });
  expect(net.files()).toEqual({
    "10.1.2.2": "c1\r\neth0",
    "fd00:1::2": "c1\r\neth0",
    "last_reserved_ip.0": "10.1.2.2",
    "last_reserved_ip.1": "fd00:1::2",
    lock: "",
  });
  net.call("CHECK");
  net.call("DEL");
  expect(net.names()).toEqual(["last_reserved_ip.0", "last_reserved_ip.1", "lock"]);
  expect(net.log).toEqual([]);
});

test("ADD answers in the form of every version", () => {
  using net = newHostLocalNetwork(DUAL);
  expect<object>(net.call("ADD", { id: "a", config: { cniVersion: "0.2.0" } })).toEqual({
    cniVersion: "0.2.0",
    ip4: { ip: "10.1.2.2/24", gateway: "10.1.2.1" },
    ip6: { ip: "fd00:1::2/64", gateway: "fd00:1::1" },
    dns: {},
  });
  expect<object>(net.call("ADD", { id: "b", config: { cniVersion: "0.4.0" } })).toEqual({
    cniVersion: "0.4.0",
    ips: [
      { version: "4", address: "10.1.2.3/24", gateway: "10.1.2.1" },
      { version: "6", address: "fd00:1::3/64", gateway: "fd00:1::1" },
    ],
    dns: {},
  });
});

test("ADD goes on behind what was released", () => {
  using net = newHostLocalNetwork(SMALL);
  expect(net.add("a")).toBe("10.0.0.2");
  net.call("DEL", { id: "a" });
  expect(net.add("a")).toBe("10.0.0.3");
});

test("ADD of an attachment that has an address is refused and keeps that address", () => {
  using net = newHostLocalNetwork(SMALL);
  net.add("a");
  const refused = 'Cannot allocate an address: container "a", interface "eth0" holds 10.0.0.2 already';
  expect(() => net.add("a")).toThrow(refused);
  expect(() => net.add("a", { args: "IP=10.0.0.5" })).toThrow(refused);
  expect(net.add("a", { ifname: "eth1" })).toBe("10.0.0.3");
  expect(Object.keys(net.files()).sort()).toEqual(["10.0.0.2", "10.0.0.3", "last_reserved_ip.0", "lock"]);
});

test("ADD honours an address from CNI_ARGS, args and runtimeConfig", () => {
  using net = newHostLocalNetwork(DUAL);
  expect(net.add("a", { args: "IgnoreUnknown=1;K8S_POD_NAME=x;IP=10.1.2.50/24" })).toBe("10.1.2.50");
  expect(net.add("b", { config: { args: { cni: { ips: ["10.2.2.60"] } } } })).toBe("10.2.2.60");
  const { ips } = net.call("ADD", {
    id: "c",
    args: "IP=10.1.2.70",
    config: { runtimeConfig: { ips: ["fd00:1::70/64"] } },
  });
  expect<(string | undefined)[] | undefined>(ips?.map(({ address }) => address)).toEqual([
    "10.1.2.70/24",
    "fd00:1::70/64",
  ]);
  // Where a request was met, the next one goes on.
  expect(net.add("d")).toBe("10.1.2.71");
});

test("ADD that fails releases nothing of others and nothing of before", () => {
  using net = newHostLocalNetwork({ ranges: [[{ subnet: "10.0.0.0/29" }], [{ subnet: "10.0.1.0/30" }]] });
  net.add("a");
  const before = net.files();
  expect(() => net.add("b")).toThrow("all addresses of range set 10.0.1.1-10.0.1.2 are in use (1)");
  expect(() => net.add("a", { args: "IP=10.0.0.2" })).toThrow("holds 10.0.0.2 already");
  expect(net.files()).toEqual(before);
});

test("ADD recovers what a crash left and says so", () => {
  using net = newHostLocalNetwork(SMALL);
  mkdirSync(net.directory);
  for (let i = 2; i <= 6; i++) writeFileSync(join(net.directory, `10.0.0.${i}`), "");
  writeFileSync(join(net.directory, "last_reserved_ip.0"), "");
  expect(net.add("a")).toBe("10.0.0.2");
  expect(net.log).toHaveLength(6);
  expect(net.log[0]).toMatch(/^host-local: Recovered address 10\.0\.0\.\d: ".*" named no container, it is empty$/);
});

test("ADD needs ranges, and CNI_ARGS that it understands", () => {
  using net = newHostLocalNetwork({});
  expect(() => net.add("a")).toThrow(
    'Cannot use network "net": ipam.ranges must be a list of at least one range set: got nothing',
  );
  expect(() => net.add("a", { ipam: SMALL, args: "FOO=bar" })).toThrow('Cannot use CNI_ARGS: unknown args ["FOO=bar"]');
  expect(() => net.add("a", { ipam: { ...SMALL, resolvConf: "/nonexistent" } })).toThrow('Cannot open "/nonexistent"');
  const pipe = join(net.dataDir, "pipe");
  Bun.spawnSync(["mkfifo", pipe]);
  // Open for writing, so that more may come.
  const writer = openSync(pipe, "r+");
  expect(() => net.add("a", { ipam: { ...SMALL, resolvConf: pipe } })).toThrow(`Cannot read "${pipe}"`);
  closeSync(writer);
  expect(existsSync(net.directory)).toBe(false);
});

test("DEL releases what this interface of this container holds, and nothing else", () => {
  using net = newHostLocalNetwork(DUAL);
  net.add("a");
  net.add("a", { ifname: "eth1" });
  net.add("ab");
  net.call("DEL", { id: "a" });
  net.call("DEL", { id: "unknown" });
  expect(Object.keys(net.files()).filter((name) => name.startsWith("10."))).toEqual(["10.1.2.3", "10.1.2.4"]);
});

test("DEL releases what old versions wrote", () => {
  using net = newHostLocalNetwork(SMALL);
  mkdirSync(net.directory);
  writeFileSync(join(net.directory, "10.0.0.2"), "a");
  writeFileSync(join(net.directory, "10.0.0.3"), "  b\n");
  net.call("DEL", { id: "a" });
  expect(net.names()).toEqual(["10.0.0.3", "lock"]);
});

test("DEL works whatever the configuration says by now, and twice", () => {
  using net = newHostLocalNetwork(SMALL);
  for (const ipam of [{ ranges: [] }, { ranges: [[{ subnet: "10.0.0.9/29" }]] }, { subnet: "nonsense" }]) {
    net.add("a");
    net.call("DEL", { id: "a", ipam, args: "FOO=bar;;" });
    net.call("DEL", { id: "a", ipam });
    expect(Object.keys(net.files())).toEqual(["last_reserved_ip.0", "lock"]);
  }
});

test("DEL and GC of a network that has no files leave it so", () => {
  using net = newHostLocalNetwork(SMALL);
  net.call("DEL");
  net.call("GC", { config: { "cni.dev/valid-attachments": [] } });
  expect(existsSync(net.directory)).toBe(false);
});

test("CHECK compares reservations with prevResult", () => {
  using net = newHostLocalNetwork(DUAL);
  const { ips } = net.call("ADD");
  const check = (addresses: string[]) => () => {
    const prevResult = { cniVersion: "1.1.0", ips: addresses.map((address) => ({ address })) };
    net.call("CHECK", { config: { prevResult } });
  };
  const own = ips!.map(({ address }) => `${address}`);
  check([...own, "172.16.0.1/16"])();
  expect(check(own.slice(0, 1))).toThrow(
    'Check failed: prevResult lacks address fd00:1::2, which container "c1", interface "eth0" holds',
  );
  expect(check([...own, "10.1.2.9/24"])).toThrow(
    'Check failed: address 10.1.2.9 of prevResult is not reserved for container "c1", interface "eth0"',
  );
  expect(() => net.call("CHECK", { id: "c2" })).toThrow(
    `Check failed: container "c2", interface "eth0" holds no address in "${net.directory}"`,
  );
});

test("GC releases what is not on the list and nothing else", () => {
  using net = newHostLocalNetwork(DUAL);
  for (const id of ["a", "b", "c"]) net.add(id);
  net.add("a", { ifname: "eth1" });
  writeFileSync(join(net.directory, "10.1.2.100"), "a");
  writeFileSync(join(net.directory, "10.1.2.101"), "z");
  writeFileSync(join(net.directory, "README"), "c");
  mkdirSync(join(net.directory, "10.1.2.102"));
  const valid = [{ containerID: "a", ifname: "eth0" }, { containerID: "b", ifname: "eth0" }];
  net.call("GC", { config: { "cni.dev/valid-attachments": valid } });
  const kept = [
    ".a:eth0",
    ".b:eth0",
    "10.1.2.100",
    "10.1.2.102",
    "10.1.2.2",
    "10.1.2.3",
    "README",
    "fd00:1::2",
    "fd00:1::3",
    "last_reserved_ip.0",
    "last_reserved_ip.1",
    "lock",
  ];
  expect(net.names()).toEqual(kept);
  const said = net.log.splice(0).filter((line) => line.includes("Removed the reservation of "));
  expect(said.map((line) => line.replace(/^.* of /, "")).sort()).toEqual([
    '10.1.2.101 by container "z"',
    '10.1.2.4 by container "c", interface "eth0"',
    '10.1.2.5 by container "a", interface "eth1"',
    'fd00:1::4 by container "c", interface "eth0"',
    'fd00:1::5 by container "a", interface "eth1"',
  ]);
  net.call("GC", { config: { "cni.dev/valid-attachments": valid } });
  expect(net.names()).toEqual(kept);
  expect(net.log).toEqual([expect.stringContaining('/10.1.2.102": the address counts as reserved')]);
  net.call("GC", { config: { "cni.dev/valid-attachments": [] } });
  expect(net.names()).toEqual(["10.1.2.102", "README", "last_reserved_ip.0", "last_reserved_ip.1", "lock"]);
});

test("GC spares a reservation that is newer than the list it was called with, but none of a time to come", () => {
  using net = newHostLocalNetwork(SMALL);
  const before = BigInt(Date.now() - 1000) * 1_000_000n;
  net.add("a");
  net.call("GC", { config: { "cni.dev/valid-attachments": [] }, snapshotTime: before });
  expect(net.names()).toContain("10.0.0.2");
  // The clock was set back since.
  const tomorrow = new Date(Date.now() + 86_400_000);
  utimesSync(join(net.directory, "10.0.0.2"), tomorrow, tomorrow);
  net.call("GC", { config: { "cni.dev/valid-attachments": [] }, snapshotTime: before });
  expect(net.names()).not.toContain("10.0.0.2");
});

test("STATUS tells whether an ADD would get an address", () => {
  using net = newHostLocalNetwork({ ranges: [[{ subnet: "10.0.0.0/29" }], [{ subnet: "10.0.1.0/30" }]] });
  net.call("STATUS");
  expect(readdirSync(net.dataDir)).toEqual([]);
  net.add("a");
  const names = net.names();
  expect(() => net.call("STATUS")).toThrow(
    expect.objectContaining({
      code: 50,
      message: "Cannot allocate an address: all addresses of range set 10.0.1.1-10.0.1.2 are in use (1)",
    }),
  );
  expect(net.names()).toEqual(names);
  net.call("DEL", { id: "a" });
  net.call("STATUS");
});

test("STATUS fails without a range, as every ADD would, unless the runtime is to give it", () => {
  using net = newHostLocalNetwork({ ranges: [] });
  for (const capabilities of [undefined, {}, { ipRanges: false }, { ips: true }]) {
    expect(() => net.call("STATUS", { config: { capabilities } })).toThrow(
      "ipam.ranges must be a list of at least one range set: got nothing",
    );
  }
  net.call("STATUS", { config: { capabilities: { ipRanges: true } } });
});

test("STATUS tells when reservations cannot be written", () => {
  using net = newHostLocalNetwork(SMALL);
  writeFileSync(net.directory, "not a directory");
  expect(() => net.call("STATUS")).toThrow(
    expect.objectContaining({
      code: 50,
      message: expect.stringMatching(/^Cannot reserve addresses: Cannot .*\(ENOTDIR\)/),
    }),
  );
  rmSync(net.directory);
});

test("random ADD, DEL and GC agree with a model", () => {
  const container = fc.record({
    id: fc.constantFrom("a", "b", "c", "d", "ab"),
    ifname: fc.constantFrom("eth0", "net1"),
  });
  const step = fc.oneof(
    { weight: 5, arbitrary: fc.record({ verb: fc.constant("ADD" as const), container }) },
    { weight: 4, arbitrary: fc.record({ verb: fc.constant("DEL" as const), container }) },
    { weight: 1, arbitrary: fc.record({ verb: fc.constant("GC" as const), container }) },
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
      using net = newHostLocalNetwork(SMALL);
      const model = newModel();
      for (const { verb, container: { id, ifname } } of steps) {
        const key = `${id} ${ifname}`;
        if (verb === "DEL") {
          net.call("DEL", { id, ifname });
          model.held.delete(key);
        } else if (verb === "GC") {
          net.call("GC", { config: { "cni.dev/valid-attachments": [{ containerID: id, ifname }] } });
          for (const each of model.held.keys()) if (each !== key) model.held.delete(each);
        } else {
          const wanted = model.add(key);
          if (wanted) expect(net.add(id, { ifname })).toBe(wanted);
          else expect(() => net.add(id, { ifname })).toThrow("Cannot allocate an address");
        }
        if (existsSync(net.directory)) expect(reservations(net.files())).toEqual(Object.fromEntries(model.held));
      }
    }),
    { numRuns: 60 },
  );
});

/** 10.0.0.2 to 10.0.0.6 as a list that is turned. */
function newModel() {
  const held = new Map<string, string>();
  let next = 0;
  return {
    held,
    add(key: string): string | undefined {
      if (held.has(key)) return undefined;
      for (let i = 0; i < 5; i++) {
        const address = `10.0.0.${2 + (next + i) % 5}`;
        if ([...held.values()].includes(address)) continue;
        next = (next + i + 1) % 5;
        held.set(key, address);
        return address;
      }
      return undefined;
    },
  };
}

function reservations(files: Record<string, string>): Record<string, string> {
  const addresses = Object.entries(files).filter(([name]) => name.startsWith("10."));
  return Object.fromEntries(addresses.map(([name, content]) => [content.replace("\r\n", " "), name]));
}
