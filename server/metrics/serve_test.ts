import { expect, test } from "bun:test";
import { sys } from "../../ffi/sys/libc.ts";
import { sendReport } from "../reports.ts";
import { newMetricsRegistry } from "./registry.ts";
import { readReports } from "./serve.ts";

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

function pipe(): Int32Array {
  const ends = new Int32Array(2);
  sys.pipe2(ends, 0);
  return ends;
}
