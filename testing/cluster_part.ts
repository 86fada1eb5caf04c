/** The cluster's part of a server on node a, which is told of nodes by the test itself. @module */
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseCidr, parseIp } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { DEFAULT_CLUSTER_SETTINGS } from "../cluster/network/settings.ts";
import type { ClusterNode } from "../cluster/node.ts";
import { ClusterPart, type ClusterPartOptions } from "../cluster/part.ts";
import { type ClusterStatus, findClusterStatus } from "../cluster/status.ts";
import { createEntry } from "../runtime/cache.ts";
import { runInNetns, runShellInNetns } from "./netns.ts";

/** Its InternalIP is 192.0.2.NUMBER, on the link of node a. */
export const clusterMember = (name: string, number: number, changes: Partial<ClusterNode> = {}): ClusterNode => ({
  uid: `uid-${name}`,
  name,
  createdAtMs: number,
  addresses: [parseIp(`192.0.2.${number}`)],
  podCidrs: [parseCidr(`10.244.${number}.0/24`)],
  ...changes,
});

export const PART_NETWORK = {
  cniVersion: "1.0.0",
  name: "pods",
  plugins: [{ type: "ptp", ipam: { type: "host-local" } }],
};

interface PartScene extends Disposable {
  readonly part: ClusterPart;
  readonly logged: readonly string[];
  run<T>(call: (part: ClusterPart) => T): T;
  take(...events: Parameters<ClusterPart["takeEvent"]>[]): void;
  status(): ClusterStatus;
  network(): { type: string; mtu?: number; ipam: { ranges: { subnet: string }[][] } } | undefined;
}

/** Node a, on a link with b and c. */
export function newPartScene(host: Netns, home: string, changes: Partial<ClusterPartOptions> = {}): PartScene {
  const paths = {
    stateDirectory: join(home, "run"),
    confDirectory: join(home, "net.d"),
    cacheDirectories: [join(home, "lib")],
  };
  for (const path of [paths.stateDirectory, paths.confDirectory, ...paths.cacheDirectories]) {
    mkdirSync(path, { recursive: true });
  }
  const logged: string[] = [];
  const network = { fileName: "10-pods.conflist", text: JSON.stringify(PART_NETWORK) };
  const options: ClusterPartOptions = {
    ...DEFAULT_CLUSTER_SETTINGS,
    what: "network",
    node: "a",
    apiServer: "https://192.0.2.9",
    setsCondition: false,
    network,
    pluginDirectories: [],
    ...paths,
    log: (message) => void logged.push(message),
    count: () => {},
    ...changes,
  };
  const part = host.run<ClusterPart>(() => new ClusterPart(options));
  return {
    part,
    logged,
    run: (call) => host.run(() => call(part) as never),
    take: (...events) =>
      host.run(() => {
        for (const event of events) part.takeEvent(...event);
        part.catchUp();
      }),
    status: () => findClusterStatus(paths.stateDirectory)!,
    network() {
      const path = join(paths.confDirectory, network.fileName);
      return existsSync(path) ? JSON.parse(readFileSync(path, "utf8")).plugins[0] : undefined;
    },
    [Symbol.dispose]: () => part[Symbol.dispose](),
  };
}

export function addPartUplink(host: Netns, mtu = 1500): void {
  runShellInNetns(
    host,
    `ip link set lo up; ip link add eth0 mtu ${mtu} type veth peer name port0; ip link set port0 up; ip link set eth0 up`,
    "ip addr add 192.0.2.1/24 dev eth0; ip route add default via 192.0.2.254",
  );
}

export const clusterRoutes = (host: Netns): string[] =>
  runInNetns(host, "ip", "route", "show", "proto", "67", "type", "unicast").split("\n").filter((line) => line !== "")
    .map((line) => line.split(" ")[0]!);

/** The host's end of a pod's interface, and the entry of its ADD. */
export function addStoredPod(host: Netns, home: string, containerId: string, ip: string, network = "pods"): void {
  runShellInNetns(host, `ip link add ${containerId} type veth peer name eth0-${containerId}`);
  createEntry(join(home, "lib"), {
    network,
    containerId,
    ifname: "eth0",
    config: "",
    args: [],
    capabilityArgs: {},
    result: { cniVersion: "1.0.0", interfaces: [{ name: containerId }], ips: [{ address: `${ip}/24` }] },
  });
}

export const linkMtu = (host: Netns, name: string): number =>
  JSON.parse(runInNetns(host, "ip", "-j", "link", "show", name))[0].mtu;
