import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createNetns, type Netns, openNetns } from "../ffi/netns/netns.ts";
import { modifiedBeforeBoot } from "../ffi/sys/boot.ts";
import { useDirectory } from "../testing/directory.ts";
import { netnsTest, newNamespaces, runInNetns } from "../testing/netns.ts";
import type { CacheEntry } from "./cache.ts";
import { netnsGoneReason } from "./netns_gone.ts";

const directory = useDirectory("cni-ended-");

const MAC = { inside: "0a:58:00:00:00:02", outside: "0a:58:00:00:00:03", bridge: "0a:58:00:00:00:04" };

/** A cable from a bridge on the host into the container, and what an ADD would have said of it. */
function attached(host: Netns, container: Netns): CacheEntry {
  runInNetns(host, "ip", "link", "add", "br0", "address", MAC.bridge, "type", "bridge");
  runInNetns(
    host,
    "ip",
    "link",
    "add",
    "veth0",
    "address",
    MAC.outside,
    "type",
    "veth",
    "peer",
    "eth0",
    "address",
    MAC.inside,
  );
  runInNetns(host, "ip", "link", "set", "veth0", "master", "br0");
  move(host, "eth0", container);
  const interfaces = [
    { name: "br0", mac: MAC.bridge },
    { name: "veth0", mac: MAC.outside },
    { name: "eth0", mac: MAC.inside.toUpperCase(), sandbox: container.path },
  ];
  return entry(container.path, { cniVersion: "1.1.0", interfaces });
}

const entry = (netns: string, result?: object): CacheEntry => ({
  network: "web",
  containerId: "c1",
  ifname: "eth0",
  config: "",
  netns,
  args: [],
  capabilityArgs: {},
  ...(result && { result }),
});

function move(from: Netns, name: string, to: Netns): void {
  runInNetns(from, "ip", "link", "set", name, "netns", to.path);
}

netnsTest("netnsGoneReason() finds no reason while the interface is there", ({ host, container }) => {
  expect(netnsGoneReason(attached(host, container), { host, openNetns })).toBeUndefined();
});

netnsTest("netnsGoneReason() finds no reason when the interface has another name", ({ host, container }) => {
  const known = attached(host, container);
  runInNetns(container, "ip", "link", "set", "eth0", "name", "net0");
  expect(netnsGoneReason(known, { host, openNetns })).toBeUndefined();
});

netnsTest(
  "netnsGoneReason() finds no reason when an interface of that name has another address",
  ({ host, container }) => {
    const known = attached(host, container);
    runInNetns(host, "ip", "link", "del", "veth0");
    runInNetns(container, "ip", "link", "add", "eth0", "type", "bridge");
    expect(netnsGoneReason(known, { host, openNetns })).toBeUndefined();
  },
);

netnsTest(
  "netnsGoneReason() finds no reason while the host's end is there, wherever the container's went",
  ({ host, container }) => {
    const known = attached(host, container);
    using elsewhere = createNetns();
    move(container, "eth0", elsewhere);
    expect(netnsGoneReason(known, { host, openNetns })).toBeUndefined();
    runInNetns(host, "ip", "link", "set", "veth0", "name", "veth1");
    expect(netnsGoneReason(known, { host, openNetns })).toBeUndefined();
    runInNetns(host, "ip", "link", "set", "veth1", "address", MAC.bridge);
    expect(netnsGoneReason(known, { host, openNetns })).toBe(`namespace "${container.path}" is another one now`);
  },
);

netnsTest(
  "netnsGoneReason() finds that a namespace is another one, although the bridge is there",
  ({ host, container }) => {
    const known = attached(host, container);
    runInNetns(host, "ip", "link", "del", "veth0");
    // A port of another container, whose address the bridge may show as its own.
    runInNetns(host, "ip", "link", "add", "veth7", "address", MAC.bridge, "type", "veth", "peer", "veth8");
    expect(netnsGoneReason(known, { host, openNetns })).toBe(`namespace "${container.path}" is another one now`);
  },
);

netnsTest("netnsGoneReason() finds nothing in loopback, which is everywhere", ({ host, container }) => {
  const interfaces = [{ name: "lo", mac: "00:00:00:00:00:00", sandbox: container.path }];
  expect(netnsGoneReason({ ...entry(container.path, { interfaces }), ifname: "lo" }, { host, openNetns }))
    .toBeUndefined();
});

netnsTest("netnsGoneReason() goes by the cookie of the namespace, where it is remembered", ({ host, container }) => {
  const known = attached(host, container);
  const reasonOf = (cookie: string | undefined, { result }: CacheEntry = known) =>
    netnsGoneReason({ ...entry(container.path, result as object), ...cookie && { netnsCookie: cookie } }, {
      host,
      openNetns,
    });
  const reason = `namespace "${container.path}" is another one now`;
  // Only the path is taken.
  expect([reasonOf("1"), reasonOf(container.cookie)]).toEqual([undefined, undefined]);
  runInNetns(host, "ip", "link", "del", "veth0");
  expect([reasonOf("1"), reasonOf(container.cookie)]).toEqual([reason, undefined]);
  // Another's, of the same name.
  runInNetns(container, "ip", "link", "add", "eth0", "type", "bridge");
  expect([reasonOf("1"), reasonOf(undefined)]).toEqual([reason, undefined]);
  // An ADD that was killed, or still runs.
  const unfinished = [undefined, container.cookie, "1"].map((cookie) => reasonOf(cookie, entry(container.path)));
  expect(unfinished).toEqual([undefined, undefined, reason]);
  expect(reasonOf("1", entry(container.path, {}))).toBeUndefined();
});

netnsTest(
  "netnsGoneReason() knows a namespace that is older than its entry, although its interface was deleted",
  ({ host, container }) => {
    const known = attached(host, container);
    runInNetns(host, "ip", "link", "del", "veth0");
    using younger = createNetns();
    const now = BigInt(Date.now()) * 1_000_000n;
    const minute = 60_000_000_000n;
    const reasonOf = (netns: Netns, time: bigint) =>
      netnsGoneReason({ ...known, netns: netns.path, written: { times: { mtime: time, ctime: time } } }, {
        host,
        openNetns,
      });
    expect(reasonOf(container, now + minute)).toBeUndefined();
    expect(reasonOf(younger, now - minute)).toBe(`namespace "${younger.path}" is another one now`);
    // ctr and nerdctl name the process, for which the kernel keeps no inode.
    const process = container.run(() => ({ child: Bun.spawn(["sleep", "60"]) })).child;
    using resources = new DisposableStack();
    resources.defer(() => process.kill());
    using ofProcess = openNetns(`/proc/${process.pid}/ns/net`);
    expect(reasonOf(ofProcess, now + minute)).toBeUndefined();
    expect(reasonOf(ofProcess, now - minute)).toBe(`namespace "${ofProcess.path}" is another one now`);
  },
);

netnsTest("netnsGoneReason() finds no reason where there is nothing to go by", ({ host, container }) => {
  const { path } = container;
  const unknown = [
    entry(path),
    entry(path, {}),
    entry(path, { interfaces: [{ name: "veth0" }] }),
    entry(path, { interfaces: 5 }),
    entry(path, { cniVersion: "9.9.9" }),
    entry("", {}),
  ];
  for (const each of unknown) expect(netnsGoneReason(each, { host, openNetns })).toBeUndefined();
});

test("netnsGoneReason() finds that a namespace is gone, and that its file was left", () => {
  using kernel = newNamespaces();
  const file = join(directory, "file");
  writeFileSync(file, "");
  const { host } = kernel;
  const reasonOf = (path: string) => netnsGoneReason(entry(path), { host, openNetns });
  expect(reasonOf(join(directory, "absent"))).toBe(`namespace "${directory}/absent" is gone`);
  expect(reasonOf(join(file, "below"))).toBe(`namespace "${file}/below" is gone`);
  for (const path of [file, "/proc/self/ns/uts"]) {
    expect(reasonOf(path)).toBe(`"${path}" is no network namespace any more`);
  }
});

netnsTest(
  "netnsGoneReason() finds that an attachment is of an earlier boot, whatever is at its path by now",
  ({ host, container }) => {
    const known = attached(host, container);
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    const reasonOf = (written: CacheEntry["written"]) =>
      netnsGoneReason({ ...known, ...written && { written } }, { host, openNetns });
    const reason = "it was attached before the last start of the machine";
    expect(reasonOf({ boot })).toBeUndefined();
    expect(reasonOf({ boot: boot.replace(/^./, (digit) => digit === "0" ? "1" : "0") })).toBe(reason);
    const old = { mtime: 0n, ctime: 0n };
    // In a container, /dev is younger than the boot, and nothing tells that a file is older.
    expect(reasonOf({ times: old })).toBe(modifiedBeforeBoot()(old) ? reason : undefined);
    const today = BigInt(Date.now()) * 1_000_000n;
    for (const [modified, changed] of [[today, today], [0n, today], [today, 0n]] as const) {
      expect(reasonOf({ times: { mtime: modified, ctime: changed } })).toBeUndefined();
    }
    expect(netnsGoneReason({ ...entry(""), written: { boot: "another" } }, { host, openNetns })).toBe(reason);
  },
);
