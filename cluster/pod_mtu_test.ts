import { expect } from "bun:test";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import { RTM_NEWLINK } from "../ffi/route/uapi.ts";
import { createEntry } from "../runtime/cache.ts";
import { useDirectory } from "../testing/directory.ts";
import { watchedNetns } from "../testing/netlink.ts";
import { netnsTest, runInNetns, runShellInNetns } from "../testing/netns.ts";
import { setPodMtu } from "./pod_mtu.ts";
import { listPods } from "./pods.ts";

const root = useDirectory("cni-pod-mtu-");

function addEntry(directory: string, network: string, hostName: string, name: string, netns: string): void {
  createEntry(directory, {
    ...{ network, containerId: "c1", ifname: name, config: "", netns, args: [], capabilityArgs: {} },
    result: { cniVersion: "1.0.0", interfaces: [{ name: hostName }, { name, sandbox: netns }] },
  });
}

const mtuOf = (netns: Netns, name: string): number =>
  JSON.parse(runInNetns(netns, "ip", "-j", "link", "show", name))[0].mtu;

netnsTest(
  "both ends of the interfaces of a network get the MTU; a container that is gone is left out",
  ({ host, container }) => {
    const directory = join(root, "cache");
    mkdirSync(directory, { recursive: true });
    for (const [name, peer] of [["veth1", "eth0"], ["veth2", "net1"]] as const) {
      runInNetns(host, "ip", "link", "add", name, "mtu", "1500", "type", "veth", "peer", "name", peer, "mtu", "1500");
      host.run(() => Bun.spawnSync(["ip", "link", "set", peer, "netns", container.path]));
    }
    addEntry(directory, "pods", "veth1", "eth0", container.path);
    addEntry(directory, "other", "veth2", "net1", container.path);
    addEntry(directory, "pods", "veth9", "eth9", "/run/netns/absent");
    setPodMtu(host, listPods([directory], "pods"), 1450, failTest);
    expect([mtuOf(host, "veth1"), mtuOf(container, "eth0")]).toEqual([1450, 1450]);
    expect([mtuOf(host, "veth2"), mtuOf(container, "net1")]).toEqual([1500, 1500]);
  },
);

netnsTest(
  "a link that goes at the last moment, or that cannot have the MTU, keeps no other from it",
  ({ host, container }) => {
    const directory = join(root, "changing");
    mkdirSync(directory, { recursive: true });
    runShellInNetns(
      host,
      "ip link add veth1 type veth peer name peer1",
      `ip link add veth3 type veth peer name eth0 netns ${container.path}`,
    );
    addEntry(directory, "pods", "veth1", "eth1", "/run/netns/absent");
    addEntry(directory, "pods", "veth3", "eth0", container.path);
    const pods = listPods([directory], "pods");
    let isGone = false;
    const onSend = (request: Uint8Array) => {
      const isChange = new DataView(request.buffer, request.byteOffset).getUint16(4, true) === RTM_NEWLINK;
      if (!isChange || isGone) return;
      isGone = true;
      runInNetns(host, "ip", "link", "del", "veth1");
    };
    setPodMtu(watchedNetns(host, { onSend }), pods, 1450, failTest);
    expect([isGone, mtuOf(host, "veth3"), mtuOf(container, "eth0")]).toEqual([true, 1450, 1450]);
    const log: string[] = [];
    setPodMtu(host, pods, 70_000, (message) => void log.push(message));
    expect(log).toEqual(Array(2).fill(expect.stringMatching(/^Container c1 keeps its MTU: .*EINVAL/)));
  },
);

function failTest(message: string): never {
  throw new Error(message);
}
