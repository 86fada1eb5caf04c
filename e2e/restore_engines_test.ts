/** `cni run restore` on a node whose containers podman and containerd started: what their libcni remembers is enough. */
import { describe, expect } from "bun:test";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, requestUdp, serveTcpAndUdp } from "../testing/traffic.ts";
import { CNI_UNDER_TEST, testWith } from "../testing/binary.ts";
import { ENGINE_PROGRAMS, useEngines } from "../testing/engines.ts";
import { cleanNodeState, nodeState } from "../testing/node.ts";

describe("restoring what engines attached", () => {
  const both = useEngines();

  testWith(
    ENGINE_PROGRAMS,
    "what a flush interrupts goes on after it, without a container being restarted",
    async () => {
      const { node, podman, containerd } = both;
      const { outside, run } = node;
      using p = podman.start("p", "-p", "8080:80", "-p", "5353:53/udp");
      using c = await containerd.run("c");
      using _p = await serveTcpAndUdp(p.netns, "p");
      using _outside = await serveTcpAndUdp(outside, "outside");
      const reached = async (patience?: number) => [
        await requestTcp(outside, "192.0.2.1", 8080, patience),
        await requestTcp(p.netns, "192.0.2.2", 80, patience),
        await requestTcp(c.netns, "192.0.2.2", 80, patience),
      ];
      const all = ["p 192.0.2.2", "outside 192.0.2.1", "outside 192.0.2.1"];
      expect(await reached()).toEqual(all);
      run("nft", "flush", "ruleset");
      expect(await reached(NO_ANSWER_TIMEOUT_MS)).toEqual([undefined, undefined, undefined]);
      const { attachments, problems } = JSON.parse(run(CNI_UNDER_TEST, "run", "restore"));
      expect(problems).toEqual([]);
      const stateOf = ({ containerId, state }: { containerId: string; state: string }) => `${containerId} ${state}`;
      expect(attachments.map(stateOf).sort()).toEqual([`${c.id} restored`, `${p.id} restored`].sort());
      expect(await reached()).toEqual(all);
      expect(await requestUdp(outside, "192.0.2.1", 5353)).toBe("p 192.0.2.2");
      const before = run("nft", "-a", "-s", "list", "ruleset");
      expect(JSON.parse(run(CNI_UNDER_TEST, "run", "restore", "podman")).attachments.map(stateOf).sort())
        .toEqual([`${c.id} whole`, `${p.id} whole`].sort());
      expect(run("nft", "-a", "-s", "list", "ruleset")).toBe(before);
      podman.podman("rm", "-f", "-t", "0", "p");
      await c.kill();
      expect(nodeState(node)).toEqual(cleanNodeState("cni-podman0"));
    },
  );
});
