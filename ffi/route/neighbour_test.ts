import { expect } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { parseIp } from "../address.ts";
import { AF_INET, AF_INET6 } from "../sys/uapi.ts";
import { netnsTest, runInNetns, runIp } from "../../testing/netns.ts";
import * as link from "./link.ts";
import * as neighbour from "./neighbour.ts";

netnsTest("neighbours and their table are those that ip(8) shows", ({ host }) => {
  runIp(
    host,
    "link add v0 type veth peer name v1",
    "link set v1 up",
    "link set v0 up",
    "neigh add 10.1.0.2 lladdr 0a:00:00:00:00:01 dev v0 nud permanent",
    "neigh add 10.1.0.3 lladdr 0a:00:00:00:00:03 dev v0 nud stale",
    "neigh add fd00::2 lladdr 0a:00:00:00:00:02 dev v0 nud stale",
  );
  const { index } = link.get(host.route, "v0");
  const STATES: Readonly<Record<string, number>> = { PERMANENT: 0x80, STALE: 0x04 };
  const shown = (family: 4 | 6) =>
    JSON.parse(runInNetns(host, "ip", `-${family}`, "-j", "neigh", "show", "nud", "all", "dev", "v0")).filter((
      { state }: { state: string[] },
    ) => state[0]! in STATES).map((
      { dst, lladdr, state: [state] }: { dst: string; lladdr: string; state: string[] },
    ) => ({
      ...{ address: parseIp(dst), index, state: STATES[state!], mac: lladdr },
    }));
  const listed = (family: number) =>
    neighbour.list(host.route, family).filter((each) =>
      each.index === index && Object.values(STATES).includes(each.state)
    );
  expect(listed(AF_INET)).toEqual(shown(4));
  expect(listed(AF_INET)).toHaveLength(2);
  expect(listed(AF_INET6)).toEqual(shown(6));
  expect(neighbour.find(host.route, index, parseIp("fd00::2"))).toEqual(listed(AF_INET6)[0]!);
  expect(neighbour.find(host.route, index, parseIp("10.1.0.9"))).toBeUndefined();
  neighbour.remove(host.route, index, parseIp("10.1.0.2"));
  expect(listed(AF_INET).map(({ address }) => address)).toEqual([parseIp("10.1.0.3")]);

  const tables = runInNetns(host, "ip", "-s", "ntable", "show");
  for (const [family, name] of [[AF_INET, "arp_cache"], [AF_INET6, "ndisc_cache"]] as const) {
    const [, limit, entries] = new RegExp(`inet6? ${name} *\\n[^\\n]*thresh3 (\\d+)[^\\n]*\\n[^\\n]*entries (\\d+)`)
      .exec(tables) ?? [];
    const use = neighbour.findTableUse(host.route, family);
    expect(use?.limit).toBe(Number(limit));
    // Other namespaces change it meanwhile.
    expect(use?.entries).toBeGreaterThan(0);
    expect(Number(entries)).toBeGreaterThan(0);
    // Only the machine's first namespace has the file, which sums up all of them.
    const path = `/proc/net/stat/${name}`;
    if (existsSync(path)) expect(use?.refused).toBe(refusedByProcfs(path));
  }
});

/** A line for each processor, in hexadecimal. */
function refusedByProcfs(path: string): bigint {
  const [heading = "", ...lines] = readFileSync(path, "utf8").trim().split("\n");
  const column = heading.trim().split(/\s+/).indexOf("table_fulls");
  return lines.reduce((sum, line) => sum + BigInt(`0x${line.trim().split(/\s+/)[column]}`), 0n);
}
