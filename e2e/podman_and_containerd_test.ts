/** podman and containerd on one node, with the same links, the same network and the same state. */
import { describe, expect } from "bun:test";
import { renameSync } from "node:fs";
import { join } from "node:path";
import { requestTcp, serveTcpAndUdp } from "../testing/traffic.ts";
import { CNI_UNDER_TEST, testWith } from "../testing/binary.ts";
import { ENGINE_PROGRAMS, useEngines } from "../testing/engines.ts";
import { cleanNodeState, nodeState, type RunningContainer } from "../testing/node.ts";

describe("podman and containerd side by side", () => {
  const both = useEngines();

  /** Everybody calls everybody. */
  async function expectTalk(containers: Readonly<Record<string, RunningContainer>>) {
    using stack = new DisposableStack();
    for (const [name, { netns }] of Object.entries(containers)) stack.use(await serveTcpAndUdp(netns, name));
    for (const caller of Object.values(containers)) {
      for (const [name, called] of Object.entries(containers)) {
        expect(await requestTcp(caller.netns, called.ip, 80)).toBe(`${name} ${caller.ip}`);
      }
    }
  }

  testWith(ENGINE_PROGRAMS, "their containers talk, and the end of one's is not that of the other's", async () => {
    const { node, podman, containerd } = both;
    const { outside } = node;
    using p = podman.start("p", "-p", "8080:80");
    using c = await containerd.run("c");
    using d = await containerd.run("d");
    await expectTalk({ p, c, d });
    await c.kill();
    await expectTalk({ p, d });
    {
      using _p = await serveTcpAndUdp(p.netns, "p");
      expect(await requestTcp(outside, "192.0.2.1", 8080)).toBe("p 192.0.2.2");
      expect(await requestTcp(d.netns, "192.0.2.1", 8080)).toBe("p 10.88.0.1");
    }
    podman.podman("rm", "-f", "-t", "0", "p");
    using q = podman.start("q");
    await expectTalk({ d, q });
    podman.podman("rm", "-f", "-t", "0", "q");
    using _outside = await serveTcpAndUdp(outside, "outside");
    expect(await requestTcp(d.netns, "192.0.2.2", 80)).toBe("outside 192.0.2.1");
    await d.kill();
    expect(nodeState(node)).toEqual(cleanNodeState("cni-podman0"));
  });

  testWith(
    ENGINE_PROGRAMS,
    "all at once they get addresses of their own, also where the host drops, and leave nothing",
    async () => {
      const { node, podman, containerd } = both;
      // As Docker leaves a host.
      node.run("iptables", "-P", "FORWARD", "DROP");
      const before = nodeState(node);
      const names = [1, 2, 3];
      const starting = names.map((n) =>
        node.start("podman", "run", "-d", "--name", `p${n}`, "-p", `${8080 + n}:80`, "web:1").exited
      );
      using stack = new DisposableStack();
      const attended = await Promise.all(names.map((n) => containerd.run(`c${n}`)));
      expect(await Promise.all(starting)).toEqual([0, 0, 0]);
      const all = [...names.map((n) => podman.container(`p${n}`)), ...attended];
      for (const each of all) stack.use(each);
      expect(new Set(all.map(({ ip }) => ip)).size).toBe(6);
      await expectTalk(Object.fromEntries(all.map((each) => [each.id, each])));
      stack.use(await serveTcpAndUdp(node.outside, "outside"));
      for (const { netns } of all) expect(await requestTcp(netns, "192.0.2.2", 80)).toBe("outside 192.0.2.1");
      const ending = node.start("podman", "rm", "-f", "-a", "-t", "0").exited;
      expect(await Promise.all(attended.map((each) => each.kill()))).toEqual(["", "", ""]);
      expect(await ending).toBe(0);
      expect(nodeState(node)).toEqual({ ...before, links: ["lo", "up0", "cni-podman0"] });
      expect(before).toMatchObject({ iptables: expect.stringContaining(":FORWARD DROP") });
    },
  );

  testWith(
    ENGINE_PROGRAMS,
    "both use a network that cni network created, and it goes when they no longer do",
    async () => {
      const { node, podman, containerd } = both;
      const network = (...words: string[]) => node.run(CNI_UNDER_TEST, "network", ...words);
      const before = nodeState(node);
      expect(network("create", "web")).toBe("/etc/cni/net.d/88-web.conflist\n");
      const [inspected] = JSON.parse(podman.podman("network", "inspect", "web"));
      const [{ subnet, gateway }] = inspected.subnets;
      expect(inspected).toMatchObject({
        ...{ name: "web", driver: "bridge", network_interface: "cni-web", internal: false, ipv6_enabled: false },
      });
      expect(JSON.parse(network("ls", "--json"))).toContainEqual(expect.objectContaining({
        ...{ name: "web", attachments: 0 },
        pools: [{ subnets: [subnet], gateways: [gateway], used: 0, free: 253 }],
      }));
      {
        // ctr uses the network that sorts first.
        using _ = hiddenFile(join(node.networks, "87-podman-bridge.conflist"));
        using p = podman.start("p", "--network", "web", "-p", "8080:80");
        using c = await containerd.run("c");
        await expectTalk({ p, c });
        {
          using _p = await serveTcpAndUdp(p.netns, "p");
          expect(await requestTcp(node.outside, "192.0.2.1", 8080)).toBe("p 192.0.2.2");
        }
        const [{ attachments }] = JSON.parse(network("inspect", "web", "--json"));
        expect(attachments).toContainEqual(expect.objectContaining({
          ...{ containerId: p.id, state: "attached", portMappings: [expect.objectContaining({ hostPort: 8080 })] },
        }));
        expect(attachments).toContainEqual(expect.objectContaining({ containerId: c.id, state: "attached" }));
        expect(() => network("rm", "web")).toThrow(`container "${c.id}" uses it`);
        await c.kill();
        podman.podman("rm", "-f", "-t", "0", "p");
      }
      expect(network("prune", "--yes")).toContain('web: removed the bridge "cni-web"');
      expect(nodeState(node)).toEqual(before);
      expect(podman.podman("network", "ls", "--format", "{{.Name}}")).toBe("podman\n");
    },
  );
});

/** Renamed until the scope ends. */
function hiddenFile(path: string): Disposable {
  renameSync(path, `${path}.hidden`);
  return { [Symbol.dispose]: () => renameSync(`${path}.hidden`, path) };
}
