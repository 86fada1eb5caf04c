/**
 * The measurement behind `scripts/bench`: every row runs its sides in turn, so that a machine whose speed drifts slows all of them, and
 * prints medians and the ratio of medians.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { cpus, release, tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns, type Netns } from "../ffi/netns.ts";
import { ROOT } from "./sources.ts";

const RUNS = Number(process.argv[2] ?? 30);
const WARM_UP = 3;
const REFERENCE = "/usr/lib/cni";
const CNI = join(ROOT, "dist/cni");

using resources = new DisposableStack();
const state = mkdtempSync(join(tmpdir(), "cni-bench-"));
resources.defer(() => rmSync(state, { recursive: true, force: true }));
const LINKS = join(state, "bin");
must(["/bin/mkdir", LINKS]);
must([CNI, "install", LINKS]);

function must(command: string[], options: { env?: Record<string, string>; stdin?: string } = {}): string {
  const child = Bun.spawnSync(command, {
    env: { ...process.env, ...options.env },
    stdin: Buffer.from(options.stdin ?? ""),
  });
  if (child.exitCode !== 0) {
    throw new Error(`${command.join(" ")} ended with ${child.exitCode}: ${child.stdout}${child.stderr}`);
  }
  return child.stdout.toString();
}

/** One way of doing the job: attaches and detaches one container. Each gives the milliseconds it took. */
interface Side {
  readonly name: string;
  add(container: Netns, id: string): number;
  del(container: Netns, id: string): number;
}

const mapping = { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }] };

/** A network of the bench, whose bridge and state no other side shares. */
function network(name: string, ipMasq: boolean, withPortmap: boolean) {
  const ipam = {
    type: "host-local",
    dataDir: join(state, name),
    ranges: [[{ subnet: "10.66.0.0/16" }]],
    routes: [{ dst: "0.0.0.0/0" }],
  };
  const bridge = { type: "bridge", bridge: name, isGateway: true, ipMasq, ipam };
  const portmap = { type: "portmap", capabilities: { portMappings: true } };
  return { cniVersion: "1.0.0", name, plugins: withPortmap ? [bridge, portmap] : [bridge] };
}

/** Runs `call` on a host and gives the milliseconds that it took. */
function timed(host: Netns, call: () => void): number {
  return host.run(() => {
    const start = performance.now();
    call();
    return performance.now() - start;
  });
}

/** Plugin by plugin, as container engines do: the request on stdin, the result of the one before it inside. */
function byExec(name: string, directory: string, list: ReturnType<typeof network>): Side {
  const host = resources.use(createNetns());
  const results = new Map<string, unknown>();
  const call = (command: string, container: Netns, id: string, plugin: object, prevResult: unknown) => {
    const request = {
      ...plugin,
      name: list.name,
      cniVersion: list.cniVersion,
      runtimeConfig: mapping,
      ...prevResult ? { prevResult } : {},
    };
    const env = {
      CNI_COMMAND: command,
      CNI_CONTAINERID: id,
      CNI_NETNS: container.path,
      CNI_IFNAME: "eth0",
      CNI_PATH: directory,
    };
    return must([join(directory, (plugin as { type: string }).type)], { env, stdin: JSON.stringify(request) });
  };
  return {
    name,
    add: (container, id) =>
      timed(host, () => {
        let result: unknown;
        for (const plugin of list.plugins) result = JSON.parse(call("ADD", container, id, plugin, result));
        results.set(id, result);
      }),
    del: (container, id) =>
      timed(host, () => {
        for (const plugin of [...list.plugins].reverse()) call("DEL", container, id, plugin, results.get(id));
      }),
  };
}

/** The whole list by one process of ours. */
function byRun(name: string, list: ReturnType<typeof network>): Side {
  const host = resources.use(createNetns());
  const file = join(state, `${list.name}.conflist`);
  writeFileSync(file, JSON.stringify(list));
  const cni = (verb: string, container: Netns, id: string) => {
    const options = [
      "--container-id",
      id,
      "--cache-dir",
      join(state, "cache"),
      "--plugin-dir",
      LINKS,
      "--cap-args",
      JSON.stringify(mapping),
    ];
    must([CNI, "run", verb, file, container.path, ...options]);
  };
  return {
    name,
    add: (container, id) => timed(host, () => cni("add", container, id)),
    del: (container, id) => timed(host, () => cni("del", container, id)),
  };
}

const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[values.length >> 1];
const ms = (value: number): string => value.toFixed(1);

/** Prints a row: what, ours, the other, and how often ours fits into the other. */
function row(what: string, ours: readonly number[], theirs: readonly number[]): void {
  const [a, b] = [median(ours), median(theirs)];
  console.log(`| ${what} | ${ms(a)} | ${ms(b)} | ${(b / a).toFixed(1)} × |`);
}

function compareStart(): void {
  const env = { CNI_COMMAND: "VERSION" };
  const commands = { ours: [join(LINKS, "bridge")], go: [join(REFERENCE, "bridge")], nothing: ["/bin/true"] };
  const times = { ours: [] as number[], go: [] as number[], nothing: [] as number[] };
  for (let i = -WARM_UP; i < RUNS * 3; i++) {
    for (const side of ["ours", "go", "nothing"] as const) {
      const start = performance.now();
      must(commands[side], { env, stdin: '{"cniVersion":"1.0.0"}' });
      if (i >= 0) times[side].push(performance.now() - start);
    }
  }
  row("answer VERSION, against a Go plugin", times.ours, times.go);
  row("answer VERSION, against /bin/true", times.ours, times.nothing);
}

/** Attaches and detaches containers with each side in turn. */
function compare(what: string, ours: Side, theirs: Side): void {
  const times = [ours, theirs].map((side) => ({ side, add: [] as number[], del: [] as number[] }));
  for (let i = -WARM_UP; i < RUNS; i++) {
    for (const { side, add, del } of times) {
      using container = createNetns();
      const [up, down] = [side.add(container, `bench${i + WARM_UP}`), side.del(container, `bench${i + WARM_UP}`)];
      if (i < 0) continue;
      add.push(up);
      del.push(down);
    }
  }
  const [a, b] = times;
  row(`${what}: ADD`, a.add, b.add);
  row(`${what}: DEL`, a.del, b.del);
}

const date = new Date().toISOString().slice(0, 10);
console.log(
  `${date}, ${cpus().length} × ${cpus()[0].model.trim()}, Linux ${release()}, median of ${RUNS} interleaved runs\n`,
);
console.log("| what | cni, ms | reference, ms | ratio |");
console.log("|---|--:|--:|--:|");
compareStart();
const reference = (name: string, ipMasq: boolean, withPortmap: boolean) =>
  byExec("reference", REFERENCE, network(name, ipMasq, withPortmap));
const exec = (name: string, ipMasq: boolean, withPortmap: boolean) =>
  byExec("cni", LINKS, network(name, ipMasq, withPortmap));
compare("bridge + host-local", exec("a1", false, false), reference("a2", false, false));
compare("the same with ipMasq", exec("b1", true, false), reference("b2", true, false));
compare("the same with portmap, plugin by plugin", exec("c1", true, true), reference("c2", true, true));
compare(
  "the same with portmap, by `cni run`",
  byRun("cni run", network("d1", true, true)),
  reference("d2", true, true),
);
