/** `cni run restore` on a node whose containers podman and containerd started: what their libcni remembers is enough. */
import { describe, expect } from "bun:test";
import { askTcp, askUdp, SHORTLY_MS } from "../testing/traffic.ts";
import { CNI, testWith } from "../testing/binary.ts";
import { ENGINE_PROGRAMS, engines } from "../testing/engines.ts";
import { nothingLeft, serve, tracesOn } from "../testing/node.ts";

describe("restoring what engines attached", () => {
  const both = engines();

  testWith(
    ENGINE_PROGRAMS,
    "what a flush interrupts goes on after it, without a container being restarted",
    async () => {
      const { node, podman, containerd } = both;
      const { outside, run } = node;
      using p = podman.start("p", "-p", "8080:80", "-p", "5353:53/udp");
      using c = await containerd.run("c");
      using _p = await serve(p.netns, "p");
      using _outside = await serve(outside, "outside");
      const reached = async (patience?: number) => [
        await askTcp(outside, "192.0.2.1", 8080, patience),
        await askTcp(p.netns, "192.0.2.2", 80, patience),
        await askTcp(c.netns, "192.0.2.2", 80, patience),
      ];
      const all = ["p 192.0.2.2", "outside 192.0.2.1", "outside 192.0.2.1"];
      expect(await reached()).toEqual(all);
      run("nft", "flush", "ruleset");
      expect(await reached(SHORTLY_MS)).toEqual([undefined, undefined, undefined]);
      const { attachments, problems } = JSON.parse(run(CNI, "run", "restore"));
      expect(problems).toEqual([]);
      const stateOf = ({ containerId, state }: { containerId: string; state: string }) => `${containerId} ${state}`;
      expect(attachments.map(stateOf).sort()).toEqual([`${c.id} restored`, `${p.id} restored`].sort());
      expect(await reached()).toEqual(all);
      expect(await askUdp(outside, "192.0.2.1", 5353)).toBe("p 192.0.2.2");
      const before = run("nft", "-a", "-s", "list", "ruleset");
      expect(JSON.parse(run(CNI, "run", "restore", "podman")).attachments.map(stateOf).sort())
        .toEqual([`${c.id} whole`, `${p.id} whole`].sort());
      expect(run("nft", "-a", "-s", "list", "ruleset")).toBe(before);
      podman.podman("rm", "-f", "-t", "0", "p");
      await c.kill();
      expect(tracesOn(node)).toEqual(nothingLeft("cni-podman0"));
    },
  );
});
