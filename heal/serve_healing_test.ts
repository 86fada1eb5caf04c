/** The process that puts rules back, from its sources. */
import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns } from "../ffi/netns/netns.ts";
import { loadPlugins } from "../plugins/registry.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import { testWith } from "../testing/binary.ts";
import { runInNetns, until } from "../testing/netns.ts";
import { Runtime } from "../runtime/runtime.ts";

await loadPlugins();

const SCRIPT = `
  const [cacheDirectory] = process.argv.slice(-1);
  const { findModel, loadPlugins, pluginNames } = await import("${import.meta.dir}/../plugins/registry.ts");
  const { printStderr } = await import("${import.meta.dir}/../ffi/sys/stdio.ts");
  const { serveHealing } = await import("${import.meta.dir}/serve_healing.ts");
  await loadPlugins();
  // Their files are open already when there are no more descriptors: a compiled program has them in its memory.
  pluginNames().forEach(findModel);
  const env = { DBUS_SYSTEM_BUS_ADDRESS: "unix:path=/nonexistent/bus" };
  const options = { env, cacheDirectories: [cacheDirectory], pluginDirectories: [], healLinks: false };
  serveHealing({ ...options, lifetime: 0, tellWork() {}, log: printStderr, count: () => {} });
`;

test("rules come back each time, until the end of its lifetime", async () => {
  using resources = new DisposableStack();
  const directory = mkdtempSync(join(tmpdir(), "cni-healing-"));
  resources.defer(() => rmSync(directory, { recursive: true }));
  const [host, container] = [resources.use(createNetns()), resources.use(createNetns())];
  const runtime = new Runtime({ env: {}, cacheDirectory: directory, pluginDirectories: [], log: () => {} });
  const ipam = { type: "host-local", dataDir: join(directory, "ipam"), ranges: [[{ subnet: "10.7.0.0/24" }]] };
  const plugins = [{ type: "bridge", isGateway: true, ipMasq: true, ipam }];
  const network = parseNetworkConfigList(JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins }));
  host.run(() => void runtime.add(network, { containerId: "c1", ifname: "eth0", netns: container.path }));
  const healer = host.run(() => ({
    child: Bun.spawn([process.execPath, "-e", SCRIPT, directory], { stdin: "pipe", stderr: "pipe", stdout: "ignore" }),
  })).child;
  resources.defer(() => healer.kill("SIGKILL"));
  const isWhole = () => runInNetns(host, "nft", "list", "ruleset").includes("web c1 eth0");
  for (let i = 0; i < 2; i++) {
    runInNetns(host, "nft", "flush", "ruleset");
    await until(isWhole);
  }
  healer.stdin.end();
  expect(await healer.exited).toBe(0);
  const lines = (await new Response(healer.stderr).text()).trimEnd().split("\n");
  expect(lines.at(-1)).toMatch(
    /^Restored rules of 1 attachment after changes by "nft" \(process [\d, ]+\): masquerading of /,
  );
});

testWith(["prlimit"], "a process that can open nothing at first watches as soon as it can", async () => {
  using host = createNetns();
  const limits = "{ ...HEALING_LIMITS, firstRetryMs: 20, longestRetryMs: 20 }";
  const script = SCRIPT.replace("lifetime: 0,", `lifetime: 0, limits: ${limits},`).replace(
    "serveHealing({",
    `const { HEALING_LIMITS } = await import("${import.meta.dir}/limits.ts");
  const { forbidDescriptors } = await import("${import.meta.dir}/../testing/descriptor_limit.ts");
  // The descriptor for signals comes first.
  forbidDescriptors(1);
  serveHealing({`,
  );
  const argv = [process.execPath, "-e", script, "/nonexistent"];
  const healer =
    host.run(() => ({ child: Bun.spawn(argv, { stdin: "pipe", stderr: "pipe", stdout: "ignore" }) })).child;
  const lines = healer.stderr.pipeThrough(new TextDecoderStream()).getReader();
  expect((await lines.read()).value).toMatch(/^Cannot watch the rules of attachments: .*EMFILE.*\n$/);
  // Several tries, which are not told.
  await Bun.sleep(100);
  expect(Bun.spawnSync(["prlimit", "--pid", `${healer.pid}`, "--nofile=1024:"])).toMatchObject({ exitCode: 0 });
  expect((await lines.read()).value).toBe("Watching the rules of attachments again\n");
  healer.stdin.end();
  expect(await healer.exited).toBe(0);
});

testWith(["setpriv"], "without the right to hear of changes, the process says so and waits for its end", async () => {
  const bounded = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"];
  const argv = [...bounded, process.execPath, "-e", SCRIPT, "/nonexistent"];
  using host = createNetns();
  const healer =
    host.run(() => ({ child: Bun.spawn(argv, { stdin: "pipe", stderr: "pipe", stdout: "ignore" }) })).child;
  const { value } = await healer.stderr.getReader().read();
  expect(new TextDecoder().decode(value)).toMatch(/^Cannot watch the rules of attachments: .*EPERM/);
  healer.stdin.end();
  expect(await healer.exited).toBe(0);
});
