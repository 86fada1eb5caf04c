import { expect } from "bun:test";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { createEntry } from "../runtime/cache.ts";
import { useDirectory } from "../testing/directory.ts";
import { netnsTest, runInNetns } from "../testing/netns.ts";
import { setPodMtu } from "./pod_mtu.ts";

const root = useDirectory("cni-pod-mtu-");

netnsTest(
  "both ends of the interfaces of a network get the MTU; a container that is gone is left out",
  ({ host, container }) => {
    const directory = join(root, "cache");
    mkdirSync(directory, { recursive: true });
    for (const [name, peer] of [["veth1", "eth0"], ["veth2", "net1"]] as const) {
      runInNetns(host, "ip", "link", "add", name, "mtu", "1500", "type", "veth", "peer", "name", peer, "mtu", "1500");
      host.run(() => Bun.spawnSync(["ip", "link", "set", peer, "netns", container.path]));
    }
    const add = (network: string, hostName: string, name: string, netns: string) =>
      createEntry(directory, {
        ...{ network, containerId: "c1", ifname: name, config: "", netns, args: [], capabilityArgs: {} },
        result: { cniVersion: "1.0.0", interfaces: [{ name: hostName }, { name, sandbox: netns }] },
      });
    add("pods", "veth1", "eth0", container.path);
    add("other", "veth2", "net1", container.path);
    add("pods", "veth9", "eth9", "/run/netns/absent");
    setPodMtu(host, "pods", 1450, [directory]);
    const mtuOf = (netns: typeof host, name: string) =>
      JSON.parse(runInNetns(netns, "ip", "-j", "link", "show", name))[0].mtu;
    expect([mtuOf(host, "veth1"), mtuOf(container, "eth0")]).toEqual([1450, 1450]);
    expect([mtuOf(host, "veth2"), mtuOf(container, "net1")]).toEqual([1500, 1500]);
  },
);
