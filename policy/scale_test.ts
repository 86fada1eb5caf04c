/** What 10,000 policies and 15,000 pods cost the process that follows them. */
import { describe, expect } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { currentNetns } from "../ffi/netns/netns.ts";
import { ApiServer } from "../testing/api_server.ts";
import { testWith } from "../testing/binary.ts";
import { useDirectory } from "../testing/directory.ts";
import type { PolicyCost } from "../testing/followed_policies.ts";
import { until } from "../testing/netns.ts";
import { MEASURED_NODE, newPolicyPod, policyCluster, type PolicyClusterSize } from "../testing/policy_cluster.ts";

const EVENTS = 1000;
const PODS = 15_000;

describe("10,000 policies and 15,000 pods of 3 kB", () => {
  const directory = useDirectory("cni-scale-");

  async function measure(size: PolicyClusterSize): Promise<[PolicyCost, PolicyCost]> {
    using host = currentNetns();
    const objects = policyCluster(size);
    using server = new ApiServer(host, { address: "127.0.0.1", directory, token: "t1", objects });
    writeFileSync(join(directory, "token"), "t1");
    const program = join(import.meta.dir, "../testing/followed_policies.ts");
    const words = [server.url, directory, MEASURED_NODE, `${EVENTS}`];
    const follower = Bun.spawn([process.execPath, program, ...words], { stderr: "inherit" });
    await until(() => server.watchCount === 3);
    for (let event = 0; event < EVENTS; event++) {
      server.put(newPolicyPod(200 + event % size.pods, size.namespaces, 1_000_000 + event));
      if (event % 20 === 0) await Bun.sleep(1);
    }
    const text = await new Response(follower.stdout).text();
    return text.trim().split("\n").map((line) => JSON.parse(line)) as [PolicyCost, PolicyCost];
  }

  testWith(
    ["openssl"],
    "take at most 150 MB, at most ten seconds, and a changed pod a millisecond",
    async () => {
      const [lists, events] = await measure({ policies: 10_000, pods: PODS, namespaces: 100 });
      console.log(JSON.stringify({ lists, events }));
      expect(lists.pods).toBe(PODS);
      expect(lists.ms).toBeLessThan(10_000);
      expect(Math.max(lists.peakKb, events.peakKb)).toBeLessThan(150_000);
      expect(events.changes).toBe(EVENTS);
      expect(events.processorMs / EVENTS).toBeLessThan(1);
    },
    300_000,
  );
});
