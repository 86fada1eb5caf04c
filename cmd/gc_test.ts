/** `cni run gc` that does not come to its end. */
import { afterAll, expect, test } from "bun:test";
import { readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createNetns } from "../ffi/netns.ts";
import { lockFile } from "../ffi/sys/lock.ts";
import { inNetns, newNamespaces } from "../ffi/testing.ts";
import { newRunBenches } from "./testing_run.ts";

const { root, bench: newBench } = newRunBenches();
afterAll(() => rmSync(root, { recursive: true }));

test("what a killed gc has not come to is removed by the next one", () => {
  using scope = new DisposableStack();
  const { host } = scope.use(newNamespaces());
  const bench = newBench(host);
  const containers = ["c1", "c2", "c3"];
  bench.plugin("fragile", '[ "$CNI_COMMAND" != ADD ] || exec echo "{}"');
  const ipam = { type: "host-local", dataDir: join(bench.cache, "../ipam"), ranges: [[{ subnet: "10.9.0.0/24" }]] };
  const own = { type: "bridge", bridge: "br9", ipMasq: true, ipam };
  const list = { cniVersion: "1.1.0", name: "web", plugins: [{ type: "fragile" }, own] };
  writeFileSync(join(bench.conf, "web.conflist"), JSON.stringify(list));
  for (const id of containers) {
    const { path } = scope.use(createNetns());
    expect(bench.run(`add web ${path} --container-id ${id}`)).toMatchObject({ exitCode: 0 });
  }
  expect(bench.reservations("web")).toHaveLength(3);

  // It is called last; by then the addresses are given back, and c1 is through.
  bench.plugin("fragile", '[ "$CNI_COMMAND $CNI_CONTAINERID" != "DEL c2" ] || kill -9 $PPID');
  expect(bench.run("gc web --all").exitCode).not.toBe(0);
  expect(bench.reservations("web")).toEqual([]);
  expect(bench.entries().sort()).toEqual(containers.map((id) => `web-${id}-eth0`));

  bench.plugin("fragile", `echo "$CNI_COMMAND $CNI_CONTAINERID" >>${bench.cache}/calls`);
  expect(bench.run("gc web --all")).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  expect(inNetns(host, "cat", `${bench.cache}/calls`)).toBe("DEL c1\nDEL c2\nDEL c3\nGC \n");
  expect(bench.entries()).toEqual([]);
  expect(inNetns(host, "ip", "-br", "link")).not.toContain("veth");
  expect(inNetns(host, "nft", "list", "ruleset")).not.toContain("10.9.0.");
});

test("gc leaves alone who was attached after it was started, and could not be on its list", async () => {
  using scope = new DisposableStack();
  const { host } = scope.use(newNamespaces());
  const bench = newBench(host);
  bench.network("web");
  const attach = (id: string) => {
    const { path } = scope.use(createNetns());
    expect(bench.run(`add web ${path} --container-id ${id}`)).toMatchObject({ exitCode: 0 });
    return path;
  };
  attach("c1");
  // As an ADD does that goes on.
  const busy = lockFile(join(bench.cache, ".gc.lock"), { timeoutMs: 0, shared: true });
  const command = bench.command("gc web --all");
  const child = host.run(() => ({ gc: Bun.spawn(command, { stdin: "ignore", stdout: "pipe", stderr: "pipe" }) }));
  const { ino } = statSync(join(bench.cache, ".gc.lock"));
  while (!new RegExp(`-> FLOCK .*:${ino} `).test(readFileSync("/proc/locks", "utf8"))) await Bun.sleep(2);
  // It is let by, since gc cannot go on.
  const path = attach("c2");
  busy[Symbol.dispose]();
  expect(await child.gc.exited).toBe(0);
  expect(bench.entries()).toEqual(["web-c2-eth0"]);
  expect(bench.reservations("web")).toHaveLength(1);
  expect(bench.run(`check web ${path} --container-id c2`)).toMatchObject({ exitCode: 0 });
  expect(bench.run("gc web --all")).toMatchObject({ exitCode: 0 });
  expect(bench.entries()).toEqual([]);
});
