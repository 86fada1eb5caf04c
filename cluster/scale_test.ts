/** What 5,000 nodes cost the process that follows them. */
import { describe, expect } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { currentNetns } from "../ffi/netns/netns.ts";
import { ApiServer } from "../testing/api_server.ts";
import { testWith } from "../testing/binary.ts";
import { newNode } from "../testing/cluster_nodes.ts";
import { useDirectory } from "../testing/directory.ts";
import type { Cost } from "../testing/followed_nodes.ts";
import { until } from "../testing/netns.ts";

const PROGRAMS = ["openssl"];
const EVENTS = 2000;

describe("5,000 nodes of 10 kB", () => {
  const directory = useDirectory("cni-scale-");

  /** Follows so many nodes, and then events of which each changes what `change` says. */
  async function measure(count: number, change: (index: number) => ReturnType<typeof newNode>): Promise<[Cost, Cost]> {
    using host = currentNetns();
    const objects = Array.from({ length: count }, (_, index) => newNode(index));
    using server = new ApiServer(host, { address: "127.0.0.1", directory, token: "t1", objects });
    writeFileSync(join(directory, "token"), "t1");
    const program = join(import.meta.dir, "../testing/followed_nodes.ts");
    const follower = Bun.spawn([process.execPath, program, server.url, directory, `${EVENTS}`], { stderr: "inherit" });
    await until(() => server.watchCount === 1);
    for (let event = 0; event < EVENTS; event++) {
      server.put(change(event % count));
      // As many at once as 5,000 nodes send in a second at most.
      if (event % 100 === 0) await Bun.sleep(1);
    }
    return (await new Response(follower.stdout).text()).trim().split("\n").map((line) => JSON.parse(line)) as [
      Cost,
      Cost,
    ];
  }

  testWith(
    PROGRAMS,
    "take at most 60 MB more than three, and an event 0.3 ms, or 1 ms if it changes something",
    async () => {
      const few = await measure(3, (index) => newNode(index));
      const [list, unchanged] = await measure(5000, (index) => newNode(index));
      const address = { addresses: [{ type: "InternalIP", address: "192.0.2.1" }] };
      const [, changed] = await measure(5000, (index) => newNode(index, { status: address }));
      console.log(JSON.stringify({ few, list, unchanged, changed }));
      expect(list.nodes).toBe(5000);
      expect(list.privateKb - few[0].privateKb).toBeLessThan(60_000);
      expect(changed.privateKb - few[1].privateKb).toBeLessThan(60_000);
      expect(unchanged.processorMs / EVENTS).toBeLessThan(0.3);
      expect(changed.processorMs / EVENTS).toBeLessThan(1);
    },
    120_000,
  );
});
