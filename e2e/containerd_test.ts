/** containerd 1.6 with `ctr run --cni`, as a real client of the links. */
import { describe, expect } from "bun:test";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { requestTcp, requestUdp, serveTcpAndUdp } from "../testing/traffic.ts";
import { testWith } from "../testing/binary.ts";
import { CONTAINERD_PROGRAMS } from "../testing/containerd.ts";
import { useContainerd } from "../testing/engines.ts";
import { cleanNodeState, nodeState } from "../testing/node.ts";

const NETWORK = {
  cniVersion: "1.0.0",
  name: "ctrtest",
  plugins: [
    {
      type: "bridge",
      bridge: "ctrtest0",
      isDefaultGateway: true,
      ipMasq: true,
      ipam: { type: "host-local", ranges: [[{ subnet: "10.93.0.0/24" }], [{ subnet: "fd93::/64" }]] },
    },
    { type: "portmap", capabilities: { portMappings: true } },
    { type: "firewall" },
    { type: "tuning", sysctl: { "net.ipv4.conf.IFNAME.log_martians": "1" } },
  ],
};

describe("containerd", () => {
  const used = useContainerd(NETWORK);

  testWith(
    CONTAINERD_PROGRAMS,
    "attaches containers that reach each other and the world, and detaches them",
    async () => {
      const { node, containerd } = used;
      const { outside, host } = node;
      expect(nodeState(node)).toEqual(cleanNodeState());
      {
        using a = await containerd.run("a");
        using b = await containerd.run("b");
        expect(a.addresses("eth0").concat(b.addresses("eth0"))).toEqual([
          ...["10.93.0.2/24", "fd93::2/64"],
          ...["10.93.0.3/24", "fd93::3/64"],
        ]);
        expect(containerd.ctr("task", "exec", "--exec-id", "x", "a", "/bin/busybox", "ping", "-c", "1", "10.93.0.1"))
          .toContain("1 packets received");
        expect(containerd.ctr("task", "exec", "--exec-id", "y", "a", "/bin/busybox", "ip", "route")).toStartWith(
          "default via 10.93.0.1 dev eth0",
        );
        using _b = await serveTcpAndUdp(b.netns, "b");
        using _outside = await serveTcpAndUdp(outside, "outside");
        expect(await requestTcp(a.netns, "10.93.0.3", 80)).toBe("b 10.93.0.2");
        expect(await requestUdp(a.netns, "fd93::3", 53)).toBe("b fd93::2");
        expect(await requestTcp(host, "10.93.0.3", 80)).toBe("b 10.93.0.1");
        expect(await requestTcp(a.netns, "192.0.2.2", 80)).toBe("outside 192.0.2.1");
        expect(await a.kill()).toBe("");
        expect(JSON.stringify(nodeState(node))).not.toContain("cni-test-a");
        expect(await requestTcp(host, "10.93.0.3", 80)).toBe("b 10.93.0.1");
        expect(await b.kill()).toBe("");
      }
      expect(nodeState(node)).toEqual(cleanNodeState("ctrtest0"));
      expect(containerd.ctr("container", "ls", "-q")).toBe("");
    },
  );

  testWith(CONTAINERD_PROGRAMS, "shows why it cannot run a container, of which nothing is left", async () => {
    const { node, containerd } = used;
    const network = structuredClone(NETWORK);
    const tiny = { subnet: "10.93.0.0/24", rangeStart: "10.93.0.9", rangeEnd: "10.93.0.9" };
    Object.assign(network, { name: "tiny" });
    network.plugins[0]!.ipam!.ranges = [[tiny]];
    // It takes the first.
    const path = join(node.networks, "10-tiny.conflist");
    using cleanup = new DisposableStack();
    cleanup.defer(() => rmSync(path));
    writeFileSync(path, JSON.stringify(network));
    using a = await containerd.run("a");
    const before = nodeState(node);
    const message = await containerd.run("b").then(() => "", (error) => error.message);
    expect(message).toContain('ctr run failed: ctr: plugin type="bridge" failed (add): ');
    expect(message).toContain("10.93.0.9");
    expect(nodeState(node)).toEqual(before);
    await a.kill();
    expect(nodeState(node)).toEqual(cleanNodeState("ctrtest0"));
  });

  // Later ones tell the plugins.
  const isOld = Bun.which("ctr") !== null && Bun.spawnSync(["ctr", "--version"]).stdout.toString().includes(" 1.6.");
  testWith(
    isOld ? CONTAINERD_PROGRAMS : ["ctr of containerd 1.6"],
    "forgets whom it detached from itself: cni run finds them",
    async () => {
      const { node, containerd } = used;
      const cni = (...words: string[]) => node.run("/opt/cni/bin/cni", "run", ...words);
      using kept = containerd.runDetached("kept");
      {
        using lost = containerd.runDetached("lost");
        for (const words of [["task", "kill", "-s", "KILL"], ["task", "rm", "-f"], ["container", "rm"]]) {
          containerd.ctr(...words, "lost");
        }
        // Nobody has told the plugins.
        expect(JSON.stringify(nodeState(node))).toContain(`ctrtest-${lost.id}-eth0`);
        expect(JSON.parse(cni("list", "--json"))).toMatchObject([
          { containerId: kept.id, state: "attached" },
          { containerId: lost.id, state: "gone" },
        ]);
      }
      cni("gc", "ctrtest", "--valid", `${kept.id}/eth0`);
      expect(JSON.stringify(nodeState(node))).not.toContain("cni-test-lost");
      using _kept = await serveTcpAndUdp(kept.netns, "kept");
      expect(await requestTcp(node.host, kept.ip, 80)).toBe("kept 10.93.0.1");
      containerd.ctr("task", "rm", "-f", "kept");
      containerd.ctr("container", "rm", "kept");
      cni("del", "ctrtest", "--container-id", kept.id);
      expect(nodeState(node)).toEqual(cleanNodeState("ctrtest0"));
    },
  );
});
