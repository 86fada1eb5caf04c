/**
 * No ADD or DEL waits for a disk: what its files describe does not outlive the boot. A file has its name once it is whole, so that a process
 * which is killed leaves all of it or nothing. A power cut may damage any of them, and ends the boot: the next one recovers.
 *
 * Looked at on the compiled binary: by its system calls, and on damaged files under the id of another boot.
 *
 * @module
 */
import { O_CREAT } from "../ffi/sys/uapi.ts";
import { afterEach, beforeEach, describe, expect } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns, type Netns } from "../ffi/netns/netns.ts";
import { linkNames, type Namespaces, newNamespaces, runInNetns } from "../testing/netns.ts";
import { bytesOf, parseTrace, STRACE_COMMAND, type TracedCall } from "../scripts/src/harness/trace.ts";
import { DAMAGE_KINDS } from "../scripts/src/faults/file_damage.ts";
import { CNI_PROGRAM, CNI_UNDER_TEST, ENGINE_ENV, fullProgramLink, pluginLink, testWith } from "../testing/binary.ts";

/** A file that a process writes into, by whatever name. */
interface Written {
  /** Whether there was anything to write. */
  isWritten: boolean;
  hasName: boolean;
  /** Whether a kill could have left a part of it under its name. */
  isExposed: boolean;
}

/** `whole` if a file had all its content before it had this name. */
type Fate = "whole" | "piece by piece";

const pathsOf = ({ args }: TracedCall): string[] =>
  args.map((each) => bytesOf(each)).filter((bytes) => bytes !== undefined).map((bytes) =>
    new TextDecoder().decode(bytes)
  );

/** The files with content that got a name below `root`: each with its name, in the order in which they got them. */
function namings(calls: readonly TracedCall[], root: string): [name: string, fate: Fate][] {
  const open = new Map<string, Written>();
  const named = new Map<string, Written>();
  const found: [string, Written][] = [];
  const newFile = (): Written => ({ isWritten: false, hasName: false, isExposed: false });
  const give = (path: string, file: Written) => {
    named.set(path, file);
    // No reader looks for those, and who writes anew removes them first.
    if (!path.startsWith(`${root}/`) || path.endsWith(".tmp")) return;
    file.hasName = true;
    found.push([path.slice(root.length + 1), file]);
  };
  const act: Readonly<Record<string, (call: TracedCall, file: Written | undefined) => void>> = {
    open(call) {
      const [path = ""] = pathsOf(call);
      const flags = Number(call.args[call.name === "open" ? 1 : 2]);
      const existing = named.get(path);
      const file = existing ?? newFile();
      open.set(String(call.result), file);
      if (!existing && flags & O_CREAT) give(path, file);
    },
    write(_, file) {
      if (file) Object.assign(file, { isWritten: true, isExposed: file.hasName || file.isExposed });
    },
    link(call) {
      const [from = "", to = ""] = pathsOf(call);
      const file = named.get(from) ?? open.get(/^\/proc\/self\/fd\/(\d+)$/.exec(from)?.[1] ?? "");
      if (file) give(to, file);
    },
    rename(call) {
      act.link!(call, undefined);
      named.delete(pathsOf(call)[0] ?? "");
    },
    unlink: (call) => void named.delete(pathsOf(call)[0] ?? ""),
    close: ({ args: [fd = ""] }) => void open.delete(fd),
  };
  for (const call of calls) {
    // `openat`, `pwrite64`, `linkat`, `renameat2`
    const kind = /^p?(open|write|link|rename|unlink|close)(at)?v?(64|2)?$/.exec(call.name)?.[1];
    if (kind && !call.error) act[kind]!(call, open.get(call.args[0] ?? ""));
  }
  return found.filter(([, { isWritten }]) => isWritten).map(([path, { isExposed }]) => [
    // A number of the boot ends the second name of a reservation.
    path.replace(/:[0-9a-f]{8}$/, ":BOOT"),
    isExposed ? "piece by piece" : "whole",
  ]);
}

let root: string;
let namespaces: Namespaces;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "cni-durability-"));
  namespaces = newNamespaces();
});
afterEach(() => {
  namespaces[Symbol.dispose]();
  rmSync(root, { recursive: true });
});

/** Runs a command of the binary on the host, which must not wait for a disk. @returns the files that got names */
function traced(
  argv: readonly string[],
  start: { env?: Record<string, string>; stdin?: string } = {},
): [name: string, fate: Fate][] {
  const file = join(root, "trace");
  const { exitCode, stdout } = namespaces.host.run(() =>
    Bun.spawnSync([...STRACE_COMMAND, "-o", file, ...argv], {
      cwd: "/",
      env: { ...ENGINE_ENV, ...start.env },
      stdin: start.stdin === undefined ? "ignore" : Buffer.from(start.stdin),
    })
  );
  expect([exitCode, exitCode === 0 ? "" : stdout.toString()]).toEqual([0, ""]);
  const calls = parseTrace(readFileSync(file, "latin1"));
  expect(calls.map(({ name }) => name).filter((name) => /sync/.test(name))).toEqual([]);
  return namings(calls, root);
}

/** An engine's call of one plugin. */
function exec(plugin: string, command: string, config: object): [name: string, fate: Fate][] {
  const env = { CNI_COMMAND: command, CNI_CONTAINERID: "c1", CNI_NETNS: namespaces.container.path };
  const stdin = JSON.stringify({ cniVersion: "1.1.0", name: "exec", type: plugin, ...config });
  return traced([fullProgramLink(plugin)], { env, stdin });
}

const ipam = (network: string) => ({
  ipam: { type: "host-local", dataDir: join(root, "ipam"), ranges: [[{ subnet: `${network}/24` }]] },
});
const tuning = () => ({ dataDir: join(root, "tuning"), sysctl: { "net.ipv4.conf.IFNAME.arp_filter": "1" }, mtu: 1400 });

/** Of a network with one reservation. */
const reservation = (network: string, address: string): readonly [string, Fate][] => [
  [`ipam/.${network}.index`, "piece by piece"], // void until its first page is written, which is the last one
  [`ipam/${network}/${address}`, "whole"],
  [`ipam/${network}/last_reserved_ip.0`, "whole"],
  [`ipam/${network}/.c1:eth0:BOOT`, "whole"],
];
describe("files of state are whole before they have their names, and nothing waits for the disk:", () => {
  testWith(["strace"], "cni run", () => {
    const plugins = [
      { type: "bridge", bridge: "br0", isGateway: true, ipMasq: true, ...ipam("10.9.1.0") },
      { type: "tuning", ...tuning() },
      { type: "portmap", capabilities: { portMappings: true } },
      { type: "firewall" },
    ];
    const file = join(root, "run.conflist");
    writeFileSync(file, JSON.stringify({ cniVersion: "1.1.0", name: "run", plugins }));
    const run = (verb: string) => {
      const ports = JSON.stringify({ portMappings: [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }] });
      const directories = ["--cache-dir", join(root, "cache"), "--plugin-dir", join(root, "none")];
      const words = [namespaces.container.path, "--container-id", "c1", "--cap-args", ports, ...directories];
      return traced([CNI_PROGRAM, "run", verb, file, ...words]);
    };
    expect(run("add")).toEqual([
      ["cache/results/run-c1-eth0", "whole"], // before all that it is to undo
      ...reservation("run", "10.9.1.2"),
      ["tuning/c1_eth0.json", "whole"],
      ["cache/results/run-c1-eth0", "whole"], // with the result
    ]);
    expect(run("del")).toEqual([]);
  });

  testWith(["strace"], "host-local", () => {
    expect(exec("host-local", "ADD", ipam("10.9.2.0"))).toEqual([...reservation("exec", "10.9.2.2")]);
    expect(exec("host-local", "DEL", ipam("10.9.2.0"))).toEqual([]);
  });

  testWith(["strace", "ip"], "tuning", () => {
    runInNetns(namespaces.container, ..."ip link add eth0 type veth peer name other".split(" "));
    const prevResult = { cniVersion: "1.1.0", interfaces: [{ name: "eth0", sandbox: namespaces.container.path }] };
    expect(exec("tuning", "ADD", { ...tuning(), prevResult })).toEqual([["tuning/c1_eth0.json", "whole"]]);
    expect(exec("tuning", "DEL", { ...tuning(), prevResult })).toEqual([]);
  });

  testWith(["strace", "ip"], "host-device", () => {
    runInNetns(namespaces.host, ..."ip link add device0 type veth peer name far0".split(" "));
    const config = { device: "device0", dataDir: join(root, "devices") };
    expect(exec("host-device", "ADD", config)).toEqual([
      ["devices/c1:eth0.json", "whole"],
      ["devices/c1:eth0.json", "whole"], // with its number in the container
    ]);
    expect(exec("host-device", "DEL", config)).toEqual([]);
  });
});

/** As the kernel has it; the one of the machine that runs the test is another. */
const NEXT_BOOT = "22222222-2222-4222-8222-222222222222\n";

/** Has commands see another boot. */
function inNextBoot(): readonly string[] {
  const file = join(root, "boot_id");
  writeFileSync(file, NEXT_BOOT);
  return ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"', file];
}

/** Damages each file below a directory, once under all its names. */
function damageFiles(directory: string, kind: string): void {
  const damaged = new Set<number>();
  for (const entry of readdirSync(directory, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (!entry.isFile() || damaged.has(statSync(path).ino)) continue;
    damaged.add(statSync(path).ino);
    writeFileSync(path, DAMAGE_KINDS[kind]!(readFileSync(path)));
  }
}

/** Runs a command that must succeed. @returns what it printed */
function succeed(host: Netns, argv: readonly string[], env = {}, stdin = ""): { stdout: string; stderr: string } {
  const { exitCode, stdout, stderr } = host.run(() =>
    Bun.spawnSync([...argv], { cwd: "/", env: { ...ENGINE_ENV, ...env }, stdin: Buffer.from(stdin) })
  );
  expect([exitCode, exitCode === 0 ? "" : `${stdout}${stderr}`]).toEqual([0, ""]);
  return { stdout: stdout.toString(), stderr: stderr.toString() };
}

describe.each(Object.keys(DAMAGE_KINDS))("after a power cut that left all files %s,", (kind) => {
  testWith(["unshare", "mount"], "ADD, DEL and GC name and remove them, and every address can be had again", () => {
    using resources = new DisposableStack();
    const state = join(root, "state");
    const file = join(root, "net.conflist");
    const ranges = [[{ subnet: "10.9.3.0/29" }]];
    const plugins = [
      {
        type: "bridge",
        bridge: "br0",
        isGateway: true,
        ipMasq: true,
        ipam: { type: "host-local", dataDir: state, ranges },
      },
      { type: "tuning", dataDir: join(state, "tuning"), mtu: 1400 },
    ];
    writeFileSync(file, JSON.stringify({ cniVersion: "1.1.0", name: "net", plugins }));
    const argv = (
      verb: string,
      words: readonly string[],
    ) => [CNI_UNDER_TEST, "run", verb, file, ...words, "--cache-dir", state];
    const idWords = (id: string, netns: Netns) => [netns.path, "--container-id", id];
    for (const id of ["c1", "c2", "c3"]) {
      succeed(namespaces.host, argv("add", idWords(id, resources.use(createNetns()))));
    }
    damageFiles(state, kind);

    const host = resources.use(createNetns());
    const call = (verb: string, ...words: string[]) => succeed(host, [...inNextBoot(), ...argv(verb, words)]);
    const add = (id: string) => {
      const { stdout, stderr } = call("add", ...idWords(id, resources.use(createNetns())));
      return { address: JSON.parse(stdout).ips[0].address as string, stderr };
    };
    const first = add("new0");
    expect(first.stderr).toContain(`${state}/net/last_reserved_ip.0`);
    const { stderr } = call("del", "/run/netns/absent", "--container-id", "c1");
    for (const path of ["results/net-c1-eth0", "tuning/c1_eth0.json"]) expect(stderr).toContain(`${state}/${path}`);
    // Its file is as damaged; of this one the same id comes again.
    const again = add("c2");
    for (const path of ["results/net-c2-eth0", "tuning/c2_eth0.json"]) {
      expect(again.stderr).toContain(`${state}/${path}`);
    }
    expect(call("gc", "--valid", "new0/eth0", "--valid", "c2/eth0").stderr).toContain(`${state}/results/net-c3-eth0`);
    const addresses = [first.address, again.address, ...["new1", "new2", "new3"].map((id) => add(id).address)];
    expect(addresses.sort()).toEqual([2, 3, 4, 5, 6].map((last) => `10.9.3.${last}/29`));
    for (const id of ["new0", "new1", "new2", "new3", "c2"]) call("del", "/run/netns/absent", "--container-id", id);
    const left = readdirSync(state, { recursive: true }).map(String).sort();
    expect(left.filter((name) => /eth0|\/10\./.test(name))).toEqual([]);
  });

  testWith(["unshare", "mount", "ip"], "host-device takes and gives back a device of the same name", () => {
    const dataDir = join(root, "devices");
    const stdin = JSON.stringify({
      cniVersion: "1.1.0",
      name: "exec",
      type: "host-device",
      device: "device0",
      dataDir,
    });
    const call = (host: Netns, command: string, prefix: readonly string[] = []) => {
      const env = { CNI_COMMAND: command, CNI_CONTAINERID: "c1", CNI_NETNS: namespaces.container.path };
      return succeed(host, [...prefix, pluginLink("host-device")], env, stdin);
    };
    const addDevice = (host: Netns) => runInNetns(host, ..."ip link add device0 type veth peer name far0".split(" "));
    addDevice(namespaces.host);
    call(namespaces.host, "ADD");
    damageFiles(dataDir, kind);
    runInNetns(namespaces.container, ..."ip link del eth0".split(" "));

    using host = createNetns();
    addDevice(host);
    expect(call(host, "ADD", inNextBoot()).stderr).toContain(`${dataDir}/c1:eth0.json`);
    call(host, "DEL", inNextBoot());
    expect([linkNames(host), readdirSync(dataDir)]).toEqual([expect.arrayContaining(["device0"]), []]);
  });
});
