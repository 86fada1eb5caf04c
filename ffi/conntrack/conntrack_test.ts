import { expect } from "bun:test";
import { parseIp } from "../address.ts";
import { IPPROTO_UDP } from "../sys/uapi.ts";
import { netnsTest, runInNetns, runShellInNetns } from "../../testing/netns.ts";
import { listTrackedFlows } from "../../testing/tracked_flows.ts";
import { deleteFlows, deleteFlowsInPieces, listFlows, setFlowMarks } from "./conntrack.ts";

const add = (source: string, destination: string, port: number, replySource: string) =>
  `conntrack -I -p udp -s ${source} -d ${destination} --sport 4000 --dport ${port} -r ${replySource} -q ${source} --reply-port-src ${port} --reply-port-dst 4000 -t 60`;

const FLOWS = [
  add("192.0.2.1", "198.51.100.1", 53, "10.1.0.2"),
  add("192.0.2.2", "198.51.100.2", 53, "10.1.0.3"),
  add("192.0.2.3", "198.51.100.1", 54, "10.1.0.2"),
  add("2001:db8::1", "2001:db8::2", 53, "fd00::2"),
];

netnsTest("listFlows() and deleteFlows() concern the connections described and no others", ({ host }) => {
  for (const flow of FLOWS) runInNetns(host, "sh", "-c", `${flow} 2>&1`);
  const nl = host.nft;
  const udp4 = { family: 4, protocol: IPPROTO_UDP } as const;
  expect(listFlows(nl, udp4)).toHaveLength(3);
  expect(listFlows(nl, { family: 4, protocol: 6 })).toEqual([]);
  expect(listFlows(nl, { family: 6, protocol: IPPROTO_UDP, originalPort: 53 })).toEqual([{
    protocol: 17,
    source: parseIp("2001:db8::1"),
    sourcePort: 4000,
    destination: parseIp("2001:db8::2"),
    destinationPort: 53,
    replySource: parseIp("fd00::2"),
    replySourcePort: 53,
  }]);
  expect(deleteFlows(nl, { ...udp4, originalPort: 53, originalAddress: parseIp("198.51.100.2") })).toBe(1);
  expect(
    deleteFlows(nl, { ...udp4, replySource: parseIp("10.1.0.2") }, ({ destinationPort }) => destinationPort === 54),
  ).toBe(1);
  const udp6 = { family: 6, protocol: IPPROTO_UDP } as const;
  for (const ends of [{ originalAddress: parseIp("2001:db8::2") }, { replySource: parseIp("fd00::2") }]) {
    expect(listFlows(nl, { ...udp6, ...ends })).toHaveLength(1);
  }
  for (const ends of [{ originalAddress: parseIp("2001:db8::9") }, { replySource: parseIp("fd00::9") }]) {
    expect(listFlows(nl, { ...udp6, ...ends })).toEqual([]);
  }
  const left = runInNetns(host, "sh", "-c", "conntrack -L -f ipv4 2>/dev/null");
  expect(left.trim().split("\n")).toHaveLength(1);
  expect(left).toContain("dst=198.51.100.1 sport=4000 dport=53 [UNREPLIED] src=10.1.0.2");
  expect(deleteFlows(nl, udp4)).toBe(1);
  expect(deleteFlows(nl, udp4)).toBe(0);
});

netnsTest("setFlowMarks() changes bits of some flows", ({ host }) => {
  for (const flow of FLOWS) runInNetns(host, "sh", "-c", `${flow} -m 5 2>&1`);
  // 192.0.2.N comes before 2001:db8::1.
  const list = () => listTrackedFlows(host).toSorted((a, b) => a.source < b.source ? -1 : 1);
  const marks = () => list().map(({ mark }) => mark);
  expect(marks()).toEqual([5, 5, 5, 5]);
  setFlowMarks(host.nft, [list()[1]!, list()[3]!], { mark: 0x1000_0000, mask: 0x1000_0000 });
  expect(marks()).toEqual([5, 0x1000_0005, 5, 0x1000_0005]);
  // As conntrack(8) sees it.
  expect(runInNetns(host, "sh", "-c", "conntrack -L -m 268435461 2>/dev/null").trim().split("\n")).toHaveLength(2);
  const [ended, living] = list();
  expect(deleteFlows(host.nft, { family: 4, protocol: IPPROTO_UDP }, ({ source }) => source === ended!.source)).toBe(1);
  // One that has ended meanwhile is passed over.
  setFlowMarks(host.nft, [ended!, living!], { mark: 0, mask: 0x1000_0000 });
  expect(marks()).toEqual([5, 5, 0x1000_0005]);
});

netnsTest("flows without ports are marked and deleted too", ({ host }) => {
  runShellInNetns(
    host,
    "ip link set lo up; nft 'table inet t { chain o { type filter hook output priority 0; ct state new accept; }; }'",
    "busybox ping -c 1 127.0.0.1; busybox ping -c 1 ::1",
  );
  const list = () =>
    listTrackedFlows(host).filter(({ source }) => ["127.0.0.1", "::1"].includes(source))
      .toSorted((a, b) => a.protocol - b.protocol);
  expect(list().map(({ protocol, mark }) => [protocol, mark])).toEqual([[1, 0], [58, 0]]);
  setFlowMarks(host.nft, list(), { mark: 0x1000_0000, mask: 0x1000_0000 });
  expect(list().map(({ mark }) => mark)).toEqual([0x1000_0000, 0x1000_0000]);
  for (const _ of deleteFlowsInPieces(host.nft, new Set([parseIp("127.0.0.1"), parseIp("::1")])));
  expect(list()).toEqual([]);
});

netnsTest("flows of an address that is given up while they are deleted stay", ({ host }) => {
  for (const flow of FLOWS) runInNetns(host, "sh", "-c", `${flow} 2>&1`);
  const ips = new Set([parseIp("192.0.2.1"), parseIp("192.0.2.3")]);
  const pieces = deleteFlowsInPieces(host.nft, ips);
  pieces.next();
  ips.delete(parseIp("192.0.2.3"));
  for (const _ of pieces);
  expect(listTrackedFlows(host).map(({ source }) => `${source}`).sort()).toEqual([
    "192.0.2.2",
    "192.0.2.3",
    "2001:db8::1",
  ]);
});

/** Some are found in a flow's bytes, more are decoded. */
for (const others of [0, 20]) {
  netnsTest(`deleteFlowsInPieces() deletes what an address and ${others} others began or answer`, ({ host }) => {
    for (const flow of FLOWS) runInNetns(host, "sh", "-c", `${flow} 2>&1`);
    const left = () => listTrackedFlows(host).map(({ source }) => `${source}`).sort();
    const deleteFlowsWith = (ip: string) => {
      const ips = [ip, ...Array.from({ length: others }, (_, i) => `10.9.0.${i}`)];
      for (const _ of deleteFlowsInPieces(host.nft, new Set(ips.map(parseIp))));
    };
    // A destination alone, and the first bytes of an address, mean nothing.
    for (const ip of ["198.51.100.1", "2001:db8::2", "192.0.2.9"]) deleteFlowsWith(ip);
    expect(left()).toEqual(["192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1"]);
    deleteFlowsWith("10.1.0.2");
    expect(left()).toEqual(["192.0.2.2", "2001:db8::1"]);
    deleteFlowsWith("2001:db8::1");
    expect(left()).toEqual(["192.0.2.2"]);
    deleteFlowsWith("192.0.2.2");
    expect(left()).toEqual([]);
  });
}
