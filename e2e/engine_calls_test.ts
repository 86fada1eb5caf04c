/** The compiled binary as container engines and scripts use it: chains by exec and by `cni run`, and what each process touches. */
import { expect, test } from "bun:test";
import {
  copyFileSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns, type Netns } from "../ffi/netns/netns.ts";
import { addDefaultRoute, newNamespaces, runInNetns } from "../testing/netns.ts";
import { CNI_PROGRAM, CNI_UNDER_TEST, finishedProcess, pluginLink, SERVER_ENV, testWith } from "../testing/binary.ts";
import { straced } from "../testing/strace.ts";

/** A host, a container and a directory, all of the test's own. */
interface Node extends Disposable {
  readonly host: Netns;
  readonly container: Netns;
  readonly directory: string;
}

function newNode(): Node {
  const resources = new DisposableStack();
  const { host, container } = resources.use(newNamespaces());
  const directory = mkdtempSync(join(tmpdir(), "cni-engine-"));
  resources.defer(() => rmSync(directory, { recursive: true, force: true }));
  return { host, container, directory, [Symbol.dispose]: () => resources.dispose() };
}

function network(directory: string, more: object = {}) {
  const ipam = {
    type: "host-local",
    dataDir: join(directory, "networks"),
    ranges: [[{ subnet: "10.55.0.0/24" }], [{ subnet: "fd55::/64" }]],
  };
  return {
    cniVersion: "1.0.0",
    name: "engine",
    plugins: [
      { type: "bridge", bridge: "engine0", isDefaultGateway: true, ipMasq: true, ipam },
      { type: "portmap", capabilities: { portMappings: true } },
    ],
    ...more,
  };
}

interface Ended {
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** What containerd sets: its arguments are in no order, its keys in capitals. */
const CONTAINERD_ARGS =
  "K8S_POD_UID=u;IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_INFRA_CONTAINER_ID=pod1;K8S_POD_NAME=web";
const CONTAINERD_PORTS = { portMappings: [{ HostPort: 8080, ContainerPort: 80, Protocol: "tcp", HostIP: "" }] };

function variables(command: string, container: string, ifname = "eth0"): Record<string, string> {
  return {
    CNI_COMMAND: command,
    CNI_CONTAINERID: "pod1",
    CNI_NETNS: container,
    CNI_IFNAME: ifname,
    CNI_ARGS: CONTAINERD_ARGS,
    CNI_PATH: join(pluginLink("host-local"), ".."),
    PATH: "/usr/sbin:/usr/bin:/sbin:/bin",
    ...SERVER_ENV,
  };
}

function request(list: { name: string; cniVersion: string }, plugin: object, prevResult?: unknown): string {
  const rest = {
    name: list.name,
    cniVersion: list.cniVersion,
    runtimeConfig: CONTAINERD_PORTS,
    ...prevResult ? { prevResult } : {},
  };
  return JSON.stringify({ ...plugin, ...rest });
}

/** Calls one plugin by its link. */
function exec(host: Netns, type: string, env: Record<string, string>, stdin: string): Ended {
  for (const name of ["bridge", "host-local", "loopback", "portmap"]) pluginLink(name);
  const child = host.run(() => Bun.spawnSync([pluginLink(type)], { env, stdin: Buffer.from(stdin), cwd: "/" }));
  return finishedProcess(child);
}

/** The chain, plugin by plugin. */
function execChain(
  node: Node,
  list: ReturnType<typeof network>,
  command: "ADD" | "DEL",
  netns: string,
  prevResult?: unknown,
): unknown {
  let result = prevResult;
  for (const plugin of command === "ADD" ? list.plugins : list.plugins.toReversed()) {
    const ended = exec(node.host, plugin.type, variables(command, netns), request(list, plugin, result));
    expect(ended).toMatchObject({ exitCode: 0, stderr: "" });
    if (command === "ADD") result = JSON.parse(ended.stdout);
    else expect(ended.stdout).toBe("");
  }
  return result;
}

/** Without what differs from run to run: MAC addresses, names of veths, paths of namespaces, counters of the kernel. */
const settled = (text: string): string =>
  text.replace(/([0-9a-f]{2}:){5}[0-9a-f]{2}/g, "MAC").replace(/veth[0-9a-f]{8}/g, "VETH").replace(
    /\/proc\/\d+\/fd\/\d+/g,
    "NETNS",
  );

const ruleset = (host: Netns): string => runInNetns(host, "nft", "list", "ruleset");
const veths = (host: Netns): number =>
  JSON.parse(runInNetns(host, "ip", "-j", "link", "show", "type", "veth") || "[]").length;

testWith(
  ["nft", "ip"],
  "a chain by exec with containerd's spelling and arguments; DEL without a namespace leaves nothing",
  () => {
    using node = newNode();
    const list = network(node.directory);
    const result = execChain(node, list, "ADD", node.container.path) as {
      ips: { interface: number }[];
      interfaces: { name: string }[];
    };
    for (const ip of result.ips) expect(result.interfaces[ip.interface]?.name).toBe("eth0");
    expect(ruleset(node.host)).toContain('tcp . 8080 comment "engine pod1 eth0 #veth" : 10.55.0.2 . 80');
    execChain(node, list, "DEL", "", result);
    expect(veths(node.host)).toBe(0);
    expect(ruleset(node.host)).not.toContain("pod1");
    execChain(node, list, "DEL", "", result);
  },
);

testWith(["nft"], "`cni run` and the chain by exec give the same result and the same rules", () => {
  using byExec = newNode();
  using byRun = newNode();
  const result = execChain(byExec, network(byExec.directory), "ADD", byExec.container.path);
  const file = join(byRun.directory, "engine.conflist");
  writeFileSync(file, JSON.stringify(network(byRun.directory)));
  const printed = run(byRun, "add", file, "--cap-args", JSON.stringify(CONTAINERD_PORTS));
  expect(settled(printed)).toBe(`${settled(JSON.stringify(result, null, 4))}\n`);
  expect(settled(ruleset(byRun.host))).toBe(settled(ruleset(byExec.host)));
});

function runArguments({ container, directory }: Node, verb: string, file: string): string[] {
  const options = [
    "--container-id",
    "pod1",
    "--cache-dir",
    join(directory, "cache"),
    "--plugin-dir",
    join(directory, "bin"),
  ];
  return [CNI_UNDER_TEST, "run", verb, file, container.path, ...options];
}

function run(node: Node, verb: string, file: string, ...more: string[]): string {
  const child = node.host.run(() => Bun.spawnSync([...runArguments(node, verb, file), ...more], { stdin: "ignore" }));
  expect({ exitCode: child.exitCode, stderr: child.stderr.toString() }).toEqual({ exitCode: 0, stderr: "" });
  return child.stdout.toString();
}

testWith(["nft"], "a DEL that names fewer ports than the ADD leaves none, by exec and by `cni run`", () => {
  const ports = [{ hostPort: 8081, containerPort: 80 }, { hostPort: 9090, containerPort: 90, protocol: "udp" }];
  for (const [first, second] of [[ports, ports.slice(0, 1)], [ports, ports.slice(1)], [ports.slice(1), ports]]) {
    using byExec = newNode();
    const list = network(byExec.directory);
    const prevResult = execChain(byExec, list, "ADD", byExec.container.path);
    for (const [command, portMappings] of [["ADD", first], ["DEL", second]] as const) {
      const { name, cniVersion } = list;
      const config = { name, cniVersion, type: "portmap", runtimeConfig: { portMappings }, prevResult };
      const env = { ...variables(command, byExec.container.path), CNI_CONTAINERID: "pod2" };
      expect(exec(byExec.host, "portmap", env, JSON.stringify(config))).toMatchObject({ exitCode: 0, stderr: "" });
    }
    expect(ruleset(byExec.host)).not.toContain("pod2");

    using byRun = newNode();
    const file = join(byRun.directory, "engine.conflist");
    writeFileSync(file, JSON.stringify(network(byRun.directory)));
    run(byRun, "add", file, "--cap-args", JSON.stringify({ portMappings: first }));
    const command = [...runArguments(byRun, "del", file), "--cap-args", JSON.stringify({ portMappings: second })];
    const { exitCode, stderr } = byRun.host.run(() => Bun.spawnSync(command, { stdin: "ignore" }));
    expect([exitCode, stderr.toString()]).toEqual([0, expect.stringContaining("Using the arguments that")]);
    expect(ruleset(byRun.host)).not.toContain("pod1");
  }
});

testWith(["nft"], "`cni run del` with --publish succeeds, also once no plugin of the network publishes ports", () => {
  using node = newNode();
  const file = join(node.directory, "engine.conflist");
  const { plugins: [bridge], ...rest } = network(node.directory);
  writeFileSync(file, JSON.stringify(network(node.directory)));
  run(node, "add", file, "--publish", "8081:80");
  expect(ruleset(node.host)).toContain("pod1");
  writeFileSync(file, JSON.stringify({ ...rest, plugins: [bridge] }));
  const [, , , ...words] = runArguments(node, "del", file);
  const publish = [...words, "--publish", "8081:80", "--mac", "0a:58:0a:01:00:02"];
  const unheard = expect.stringContaining("Cannot use --publish with network");
  const start = (...argv: string[]) => {
    const { exitCode, stdout, stderr } = node.host.run(() =>
      Bun.spawnSync([CNI_UNDER_TEST, "run", ...argv], { stdin: "ignore" })
    );
    return { exitCode, stdout: stdout.toString(), stderr: stderr.toString() };
  };
  const derived = start("derive", ...publish, "--command", "DEL");
  expect([derived.exitCode, derived.stderr]).toEqual([0, unheard]);
  expect(JSON.parse(derived.stdout)[0].request.runtimeConfig.portMappings).toMatchObject([{ hostPort: 8081 }]);
  expect(start("check", ...publish)).toEqual({ exitCode: 1, stdout: "", stderr: unheard });
  expect(start("del", ...publish)).toEqual({ exitCode: 0, stdout: "", stderr: unheard });
  expect(ruleset(node.host)).not.toContain("pod1");
  expect(veths(node.host)).toBe(0);
  expect(start("del", ...publish)).toEqual({ exitCode: 0, stdout: "", stderr: unheard });
});

/** Files that a whole ADD may open, besides those of the test's directory. */
const NEEDED = [
  /^\/etc\/ld\.so\.|\/ld-linux[^/]*$/, // the loader: beside the program, or the host's
  /\/cni-lib$/, // an installation waits until nobody loads these libraries
  /\/(libc|libm|libdl|libpthread)\.so\.\d$/,
  /^\/proc\/(self|thread-self|\d+)\//, // the runtime looks at its limits, we at namespaces
  /^\/proc\/sys\/(vm|net)\//,
  /^\/proc\/sys\/kernel\/random\/boot_id$/, // whether an index is of this boot
  /^\/sys\/(fs\/cgroup|devices\/system\/(cpu|node)|kernel\/mm)\b/,
  /^\/(etc\/localtime|usr\/share\/zoneinfo.*)$/,
  /^\/dev\/null$/,
  /^\/var\/lib\/cni\/results$/, // the first ADD with ports: the ruleset may have forgotten some
];

testWith(
  ["strace"],
  "a whole ADD, CHECK and DEL by `cni run` is one process, and opens no file that it does not need",
  () => {
    using node = newNode();
    const { host, directory } = node;
    addDefaultRoute(host);
    const file = join(directory, "engine.conflist");
    writeFileSync(file, JSON.stringify(network(directory, { cniVersion: "1.1.0" })));
    for (const verb of ["add", "check", "del"]) {
      const trace = join(directory, `${verb}.trace`);
      const traced = straced(trace, "trace=execve,execveat,fork,vfork,open,openat,openat2,creat");
      const more = ["--cap-args", JSON.stringify(CONTAINERD_PORTS)];
      const child = host.run(() =>
        Bun.spawnSync([...traced, CNI_PROGRAM, ...runArguments(node, verb, file).slice(1), ...more], {
          stdin: "ignore",
        })
      );
      expect({ verb, exitCode: child.exitCode, stderr: child.stderr.toString() }).toEqual({
        verb,
        exitCode: 0,
        stderr: "",
      });
      const lines = readFileSync(trace, "utf8").split("\n");
      expect(lines.filter((line) => /^\d+ +(execve|execveat|fork|vfork)/.test(line))).toHaveLength(1);
      const opened = lines.flatMap((line) => /open(?:at|at2)?\((?:AT_FDCWD, )?"([^"]*)"/.exec(line)?.[1] ?? []);
      expect(opened.length).toBeGreaterThan(10);
      const odd = opened.filter((path) => !path.startsWith(directory) && !NEEDED.some((known) => known.test(path)));
      expect({ verb, odd: [...new Set(odd)] }).toEqual({ verb, odd: [] });
    }
  },
);

test("the interfaces lo and eth0 of one pod are added at the same time, as containerd does", async () => {
  using node = newNode();
  const { host, container, directory } = node;
  const list = network(directory);
  const loopback = JSON.stringify({ cniVersion: "0.3.1", name: "cni-loopback", type: "loopback" });
  for (let round = 0; round < 5; round++) {
    const start = (type: string, ifname: string, stdin: string) =>
      host.run(() => ({
        child: Bun.spawn([pluginLink(type)], {
          env: variables("ADD", container.path, ifname),
          stdin: Buffer.from(stdin),
          stdout: "pipe",
        }),
      })).child;
    const both = [start("loopback", "lo", loopback), start("bridge", "eth0", request(list, list.plugins[0]!))];
    const [lo, eth0] = await Promise.all(
      both.map(async (child) => JSON.parse(await new Response(child.stdout).text())),
    );
    expect(lo.ips.map((ip: { version: string }) => ip.version)).toEqual(["4", "6"]);
    expect(lo.interfaces[lo.ips[0].interface].name).toBe("lo");
    expect(eth0.ips).toHaveLength(2);
    expect(exec(host, "bridge", variables("DEL", container.path), request(list, list.plugins[0]!, eth0))).toMatchObject(
      { exitCode: 0 },
    );
  }
});

test("50 pods are attached at once on a host that has nothing yet; all of it is made once", async () => {
  using node = newNode();
  const { host, directory } = node;
  const list = network(directory);
  const bridge = list.plugins[0]!;
  using containers = new DisposableStack();
  const pods = Array.from({ length: 50 }, (_, i) => ({ id: `pod${i}`, netns: containers.use(createNetns()) }));
  pluginLink("host-local");
  const env = ({ id, netns }: typeof pods[number], command: string) => ({
    ...variables(command, netns.path),
    CNI_CONTAINERID: id,
  });
  const children = pods.map((pod) =>
    host.run(() => ({
      child: Bun.spawn([pluginLink("bridge")], {
        env: env(pod, "ADD"),
        stdin: Buffer.from(request(list, bridge)),
        stdout: "pipe",
      }),
    })).child
  );
  const answers = await Promise.all(children.map(async (child) => JSON.parse(await new Response(child.stdout).text())));
  const addresses = answers.flatMap(({ ips }) => ips?.map((ip: { address: string }) => ip.address));
  expect(answers.filter(({ code }) => code !== undefined)).toEqual([]);
  expect(new Set(addresses).size).toBe(100);
  expect(veths(host)).toBe(50);
  expect(
    JSON.parse(runInNetns(host, "ip", "-j", "addr", "show", "engine0"))[0].addr_info.filter((each: { scope: string }) =>
      each.scope === "global"
    ),
  )
    .toHaveLength(2);
  expect(ruleset(host).split(/comment "engine pod\d+ eth0"/).length - 1).toBe(100);
});

test("the binary is a plugin by symbolic link, hard link, copy, a name found in PATH, and `cni plugin`", () => {
  using node = newNode();
  const { directory } = node;
  const places = ["symbolic", "hard", "copied"].map((name) => join(directory, name));
  for (const place of places) mkdirSync(place);
  symlinkSync(CNI_PROGRAM, join(places[0]!, "portmap"));
  // A hard link needs the same file system.
  const beside = mkdtempSync(join(CNI_PROGRAM, "../links-"));
  linkSync(CNI_PROGRAM, join(beside, "portmap"));
  copyFileSync(CNI_PROGRAM, join(places[2]!, "portmap"));
  const env = { CNI_COMMAND: "VERSION" };
  const ways: [string[], Record<string, string>][] = [
    [[join(places[0]!, "portmap")], env],
    [[join(beside, "portmap")], env],
    [[join(places[2]!, "portmap")], env],
    [["portmap"], { ...env, PATH: places[0]! }],
    [[CNI_PROGRAM, "plugin", "portmap"], env],
  ];
  for (const [command, environment] of ways) {
    const child = Bun.spawnSync(command, { env: environment, stdin: Buffer.from('{"cniVersion":"0.4.0"}'), cwd: "/" });
    expect(JSON.parse(child.stdout.toString())).toMatchObject({ cniVersion: "0.4.0" });
    const about = Bun.spawnSync(command, { env: { ...environment, CNI_COMMAND: "" }, stdin: "ignore", cwd: "/" });
    expect(about.stderr.toString()).toStartWith("CNI portmap plugin v");
    expect([about.stdout.toString(), about.exitCode]).toEqual(["", 0]);
  }
  rmSync(beside, { recursive: true });
});

testWith(["/usr/lib/cni/host-local", "strace"], "an administrator's plugin wins over the one that is built in", () => {
  using node = newNode();
  const { host, container, directory } = node;
  const bin = join(directory, "bin");
  mkdirSync(bin);
  symlinkSync("/usr/lib/cni/host-local", join(bin, "host-local"));
  const trace = join(directory, "trace");
  const file = join(directory, "engine.conflist");
  writeFileSync(file, JSON.stringify(network(directory)));
  const command = [CNI_PROGRAM, ...runArguments({ ...node, container }, "add", file).slice(1)];
  const child = host.run(() => Bun.spawnSync([...straced(trace, "trace=execve"), ...command], { stdin: "ignore" }));
  expect({ exitCode: child.exitCode, stderr: child.stderr.toString() }).toEqual({ exitCode: 0, stderr: "" });
  const programs = [...readFileSync(trace, "utf8").matchAll(/execve\("([^"]+)".* = 0$/gm)].map(([, path]) => path);
  expect(programs).toEqual([CNI_PROGRAM, join(bin, "host-local")]);
  run(node, "del", file);
});

test("a result that cannot be written takes the attachment back", () => {
  using node = newNode();
  const { host, directory } = node;
  const file = join(directory, "engine.conflist");
  writeFileSync(file, JSON.stringify(network(directory)));
  const child = host.run(() =>
    Bun.spawnSync(["sh", "-c", '"$@" >/dev/full', "sh", ...runArguments(node, "add", file)])
  );
  expect([child.exitCode, child.stderr.toString()]).toEqual([1, expect.stringContaining("No space left on device")]);
  expect(veths(host)).toBe(0);
  expect(readdirSync(join(directory, "cache/results"))).toEqual([]);
});
