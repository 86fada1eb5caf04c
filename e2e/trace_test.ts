/** `CNI_TRACE` for calls by engines, and `--trace` of the command line: what a trace says of a call, and what it leaves alone. */
import { expect } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Namespaces, newNamespaces } from "../testing/netns.ts";
import { CNI_UNDER_TEST, errorOf, finishedProcess, runPlugin, SERVER_ENV, testWith } from "../testing/binary.ts";
import { straced } from "../testing/strace.ts";

interface TraceNode extends Namespaces {
  readonly directory: string;
  readonly env: Record<string, string>;
  read(name: string): string;
  /** A configuration of `bridge`, whose state is in the directory. */
  bridgeConfig(more?: object): string;
  /** Calls `bridge` in the directory. */
  bridge(command: string, trace: Record<string, string>, stdin?: string): ReturnType<typeof runPlugin>;
}

function newTraceNode(): TraceNode {
  using resources = new DisposableStack();
  const namespaces = resources.use(newNamespaces());
  const directory = mkdtempSync(join(tmpdir(), "cni-trace-"));
  resources.defer(() => rmSync(directory, { recursive: true, force: true }));
  const env = { CNI_CONTAINERID: "c1", CNI_NETNS: namespaces.container.path, CNI_IFNAME: "eth0" };
  const bridgeConfig = (more: object = {}) =>
    JSON.stringify({
      ...{ cniVersion: "1.1.0", name: "traced", type: "bridge", bridge: "traced0", isGateway: true, ipMasq: true },
      ipam: { type: "host-local", dataDir: join(directory, "ipam"), ranges: [[{ subnet: "10.56.0.0/24" }]], ...more },
    });
  const owned = resources.move();
  return {
    ...{ ...namespaces, directory, env, bridgeConfig },
    read: (name) => readFileSync(join(directory, name), "utf8"),
    bridge: (command, trace, stdin = bridgeConfig()) =>
      namespaces.host.run(() =>
        runPlugin("bridge", { cwd: directory, stdin, env: { ...env, CNI_COMMAND: command, ...trace } })
      ),
    [Symbol.dispose]: () => owned.dispose(),
  };
}

testWith(["ip"], "an engine's call writes its trace to a file in the caller's directory, and answers as ever", () => {
  using node = newTraceNode();
  const { exitCode, stdout, stderr } = node.bridge("ADD", { CNI_TRACE: "trace" });
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
  expect(JSON.parse(stdout).ips[0].address).toBe("10.56.0.2/24");
  const trace = node.read("trace");
  expect(trace).toMatch(/^trace of bridge ADD: [\d.]+ ms, after [\d.]+ ms of start-up$/m);
  expect(trace).toMatch(/ bridge ADD network=traced containerId=c1 ifname=eth0$/m);
  expect(trace).toMatch(/ {4}host-local ADD network=traced containerId=c1 ifname=eth0$/m);
  expect(trace).toMatch(/find link "traced0"\n.*RTM_GETLINK name=traced0 .*in host\n +answers: 0$/m);
  expect(trace).toMatch(/add link "traced0"\n.*RTM_NEWLINK name=traced0 .*info\.kind=bridge .*in host$/m);
  expect(trace).toContain(`RTM_GETLINK name=eth0 extMask=8 in ${node.container.path}`);
  expect(trace).toMatch(/RTM_NEWADDR .*prefixLength=24 .*local=10\.56\.0\.2 /);
  expect(trace).toMatch(/nft transaction in host\n[^]* NFT_MSG_NEWSETELEM family=1 table=cni set=masquerade4 /);
  expect(trace).toMatch(/sysctl net\/ipv4\/.*: open, read, write 1$/m);
  expect(trace).toContain(`file ${node.directory}/ipam/traced/10.56.0.2: create`);

  expect(node.bridge("DEL", { CNI_TRACE: "trace" }).exitCode).toBe(0);
  expect(node.read("trace").startsWith(trace)).toBe(true);
  expect(node.read("trace")).toMatch(/^trace of bridge DEL: [^]* RTM_DELLINK /m);
});

testWith([], "on stderr, stdout stays one document, and a failed ADD shows what was undone", () => {
  using node = newTraceNode();
  const config = node.bridgeConfig({ routes: [{ dst: "192.0.2.0/24", gw: "203.0.113.1" }] });
  const finished = node.bridge("ADD", { CNI_TRACE: "stderr" }, config);
  expect(errorOf(finished).msg).toContain("203.0.113.1");
  const undone = finished.stderr.slice(finished.stderr.indexOf("undo: undo what was done"));
  expect(undone).toMatch(/undo: host-local DEL network=traced/);
  expect(undone).toContain(`file ${node.directory}/ipam/traced/10.56.0.2: remove`);
  expect(undone).toMatch(/RTM_DELLINK name=veth/);
  expect(finished.stderr).toMatch(/failed: Cannot carry out RTM_NEWROUTE: Network is unreachable/);
});

testWith(["mkfifo", "sh"], "a trace that cannot be written is a note, and the call goes on", () => {
  using node = newTraceNode();
  Bun.spawnSync(["sh", "-ec", "mkfifo pipe; mkfifo unread; ln -s /dev/null link"], {
    cwd: node.directory,
  });
  const reasons = {
    "absent/trace": "No such file or directory (ENOENT)",
    pipe: "No such device or address (ENXIO, symbolic links and pipes are refused)",
    unread: "No such device or address (ENXIO, symbolic links and pipes are refused)",
    link: "Too many levels of symbolic links (ELOOP, symbolic links and pipes are refused)",
  };
  for (const [name, reason] of Object.entries(reasons)) {
    const message = `No trace (CNI_TRACE): Cannot write a trace to "${node.directory}/${name}": ${reason}\n`;
    const trace = { CNI_TRACE: name };
    expect(node.bridge("STATUS", trace)).toEqual({ exitCode: 0, stdout: "", stderr: `bridge STATUS: ${message}` });
    const argv = [CNI_UNDER_TEST, "run", "gc", "default", "--all", "--cache-dir", node.directory];
    const start = { cwd: node.directory, env: { ...SERVER_ENV, ...trace } };
    const { exitCode, stderr } = node.host.run(() => finishedProcess(Bun.spawnSync(argv, start)));
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: `cni run gc: ${message}` });
  }
});

/** Trace Event Format, "JSON Array Format", with complete events (`X`) and metadata (`M`). */
interface ChromeEvent {
  readonly ph: string;
  readonly name: string;
  readonly cat: string;
  readonly ts: number;
  readonly dur: number;
  readonly pid: number;
  readonly tid: number;
}

/** What viewers need: known phases, numbers, and events of a thread that do not cross each other. */
function expectChromeEvents(events: readonly ChromeEvent[]): void {
  const slack = 1;
  const open: ChromeEvent[] = [];
  for (const event of events) {
    expect([typeof event.name, typeof event.pid, typeof event.tid]).toEqual(["string", "number", "number"]);
    if (event.ph === "M") continue;
    expect(event.ph).toBe("X");
    expect([typeof event.cat, typeof event.ts, typeof event.dur]).toEqual(["string", "number", "number"]);
    while (open.length > 0 && open.at(-1)!.ts + open.at(-1)!.dur <= event.ts + slack) open.pop();
    if (open.length > 0) expect(event.ts + event.dur).toBeLessThanOrEqual(open.at(-1)!.ts + open.at(-1)!.dur + slack);
    open.push(event);
  }
}

testWith(
  [],
  "the chrome format of two calls is an array without its last bracket, which the format makes optional",
  () => {
    using node = newTraceNode();
    const trace = { CNI_TRACE: "trace.json", CNI_TRACE_FORMAT: "chrome" };
    for (const command of ["ADD", "DEL"]) expect(node.bridge(command, trace).exitCode).toBe(0);
    const events: ChromeEvent[] = JSON.parse(`${node.read("trace.json")}]`);
    expectChromeEvents(events);
    expect(events.filter(({ ph }) => ph === "M").map(({ name }) => name)).toEqual(["process_name", "process_name"]);
    expect(events.filter(({ cat }) => cat === "plugin").map(({ name }) => name)).toEqual([
      ...["bridge ADD", "host-local ADD", "bridge DEL", "host-local DEL"],
    ]);
  },
);

const cniRun = (node: TraceNode, ...words: readonly string[]) =>
  node.host.run(() =>
    finishedProcess(Bun.spawnSync(
      [CNI_UNDER_TEST, "run", ...words, "--cache-dir", join(node.directory, "cache"), "--plugin-dir", ":"],
      { cwd: node.directory, env: { PATH: process.env["PATH"], ...SERVER_ENV }, stdout: "pipe", stderr: "pipe" },
    ))
  );

testWith([], "the command line takes options: a timeline, sums, or a file for viewers that replaces another", () => {
  using node = newTraceNode();
  writeFileSync(
    join(node.directory, "n.conflist"),
    JSON.stringify({
      ...{ cniVersion: "1.1.0", name: "n", plugins: [JSON.parse(node.bridgeConfig()), { type: "tuning", mtu: 1400 }] },
    }),
  );
  const path = join(node.directory, "trace.json");
  writeFileSync(path, "old");
  const netns = node.container.path;
  const added = cniRun(node, "add", "./n.conflist", netns, "--trace-file", "trace.json", "--trace-format", "chrome");
  expect({ ...added, stdout: "" }).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  expectChromeEvents(JSON.parse(readFileSync(path, "utf8")));

  const checked = cniRun(node, "check", "./n.conflist", netns, "--timing");
  expect(checked.exitCode).toBe(0);
  const table = checked.stderr.slice(checked.stderr.indexOf("PLUGIN (ms)"));
  const [header = "", ...rows] = table.trimEnd().split("\n");
  expect(header.split(/ {2,}/)).toEqual(expect.arrayContaining(["PLUGIN (ms)", "TOTAL", "NETLINK", "OWN WORK"]));
  const totals = new Map(rows.map((row) => row.split(/ {2,}/)).map(([name, total]) => [name, Number(total)] as const));
  const { all = 0, "start-up": _, ...parts } = Object.fromEntries(totals);
  expect(Object.keys(parts)).toEqual(
    expect.arrayContaining(["runtime", "bridge CHECK", "host-local CHECK", "tuning CHECK"]),
  );
  expect(Object.values(parts).reduce((sum, ms) => sum + ms, 0)).toBeCloseTo(all, 1);

  const deleted = cniRun(node, "del", "./n.conflist", netns, "--trace");
  expect(deleted).toMatchObject({ exitCode: 0, stdout: "" });
  expect(deleted.stderr).toMatch(/^trace of cni run del: /m);
  expect(cniRun(node, "del", "./n.conflist", netns).stderr).not.toContain("trace of");
});

testWith(["strace"], "what the kernel was asked is what strace sees", () => {
  using node = newTraceNode();
  const strace = straced(join(node.directory, "strace"), "trace=unlink,linkat,rename,mkdir,sendto,socket");
  const env = {
    ...node.env,
    CNI_COMMAND: "ADD",
    CNI_TRACE: join(node.directory, "trace.json"),
    CNI_TRACE_FORMAT: "chrome",
  };
  const stdin = node.bridgeConfig();
  const { exitCode } = node.host.run(() => runPlugin("bridge", { wrapper: strace, env, stdin, inOwnProcess: true }));
  expect(exitCode).toBe(0);
  const seen = node.read("strace");
  const events: (ChromeEvent & { readonly args: { readonly details?: string[] } })[] = JSON.parse(
    `${node.read("trace.json")}]`,
  );
  const count = (...kinds: string[]) => events.filter(({ cat }) => kinds.includes(cat)).length;
  const netlinkSockets = new Set(Array.from(seen.matchAll(/socket\(AF_NETLINK.* = (\d+)/g), ([, fd]) => fd));
  const sends = Array.from(seen.matchAll(/sendto\((\d+),/g), ([, fd]) => fd).filter((fd) => netlinkSockets.has(fd));
  expect(count("netlink", "nft")).toBe(sends.length);
  const actions = events.flatMap(({ cat, args }) => cat === "file" ? args.details ?? [] : []);
  const made = actions.filter((action) => action === "create directory").length;
  expect(made).toBe([...seen.matchAll(/mkdir\("[^"]+", \d+\) += 0/g)].length);
  const renamed = actions.filter((action) => action.startsWith("rename to ")).length;
  expect(renamed).toBe([...seen.matchAll(/rename\(/g)].length);
});
