import { expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { StatusFile } from "../../cluster/status_file.ts";
import { ownIdentity } from "../../ffi/sys/process_identity.ts";
import { sys } from "../../ffi/sys/libc.ts";
import { useDirectory } from "../../testing/directory.ts";
import type { PartSettings } from "../part_settings.ts";
import { sendReport } from "../reports.ts";
import { newMetricsRegistry } from "./registry.ts";
import { findPartObstacle, readReports } from "./serve.ts";

const root = useDirectory("cni-metrics-");

test("a line whose beginning an earlier process took is passed over", async () => {
  const registry = newMetricsRegistry();
  const [reader = 0, writer = 0] = pipe();
  const rest = new TextEncoder().encode('1}\n"labels":{},"count":7}\n');
  sys.write(writer, rest, rest.length);
  sendReport(writer, { counter: "cni_restores_total", count: 3 });
  sys.close(writer);
  await readReports(reader, registry);
  expect((await registry.format("")).text).toContain("\ncni_restores_total 3\n");
});

test("a metric that nobody has set is not 0", async () => {
  const registry = newMetricsRegistry();
  const values = async () => (await registry.format("")).text.match(/^cni_cluster_heard_timestamp_seconds .*$/gm);
  expect(await values()).toBeNull();
  registry.set("cni_cluster_heard_timestamp_seconds", [{ value: 5 }]);
  expect(await values()).toEqual(["cni_cluster_heard_timestamp_seconds 5"]);
  registry.set("cni_cluster_heard_timestamp_seconds", []);
  expect(await values()).toBeNull();
});

test("parts are ready when they say so themselves, not when those of an earlier server have said so", () => {
  const directory = mkdtempSync(join(root, "server-"));
  const settings = { directory, cluster: {}, policy: {} } as PartSettings;
  const find = () => findPartObstacle(settings);
  const say = (part: string, status: object) =>
    new StatusFile(join(directory, part), () => {}).write(status, undefined);
  const leave = (part: string) => {
    const process = { ...ownIdentity(), startTicks: 1 };
    mkdirSync(join(directory, part), { recursive: true });
    writeFileSync(join(directory, part, "status.json"), JSON.stringify({ isSynced: true, problems: ["old"], process }));
  };
  expect(find()).toBe("not in step with the cluster yet");
  leave("cluster");
  leave("policy");
  expect(find()).toBe("not in step with the cluster yet");
  say("cluster", { isSynced: false, problems: ["one", "two"] });
  expect(find()).toBe("not in step with the cluster yet; one; two");
  say("cluster", { isSynced: true, problems: ["one"] });
  expect(find()).toBe("policies are not in force yet");
  expect(findPartObstacle({ directory, cluster: settings.cluster! })).toBeUndefined();
  say("policy", { isSynced: true, problems: [] });
  expect(find()).toBeUndefined();
  leave("cluster");
  expect(find()).toBe("not in step with the cluster yet");
  expect(findPartObstacle({ directory })).toBeUndefined();
});

function pipe(): Int32Array {
  const ends = new Int32Array(2);
  sys.pipe2(ends, 0);
  return ends;
}
