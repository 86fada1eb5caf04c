/**
 * What must outlast a power cut is on disk as a whole before it has its name; what is a hint only, or describes what no reboot survives,
 * waits for no disk. Looked at on the compiled binary, by its system calls.
 *
 * Directories are not synced, and nothing promises it: a power cut may take away a whole file, beside the attachment that it is of.
 *
 * @module
 */
import { afterEach, beforeEach, describe, expect } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Namespaces, newNamespaces, runInNetns } from "../testing/netns.ts";
import { bytesOf, parseTrace, STRACE_COMMAND, type TracedCall } from "../scripts/src/bench/trace.ts";
import { CNI_PROGRAM, ENGINE_ENV, pluginLink, testWith } from "../testing/binary.ts";

const O_CREAT = 0o100;

/** A file that a process writes into, by whatever name. */
interface Written {
  /** Whether there was anything to write. */
  isWritten: boolean;
  /** Whether some of it may not be on disk. */
  isDirty: boolean;
  hasName: boolean;
  /** Whether a power cut could have left a part of it under its name. */
  isExposed: boolean;
}

/** `synced` if a file was on disk before it had this name. */
type Fate = "synced" | "not synced";

const pathsOf = ({ args }: TracedCall): string[] =>
  args.map((each) => bytesOf(each)).filter((bytes) => bytes !== undefined).map((bytes) =>
    new TextDecoder().decode(bytes)
  );

/** The files with content that got a name below `root`: each with its name, in the order in which they got them. */
function namings(trace: string, root: string): [name: string, fate: Fate][] {
  const open = new Map<string, Written>();
  const named = new Map<string, Written>();
  const found: [string, Written][] = [];
  const newFile = (): Written => ({ isWritten: false, isDirty: false, hasName: false, isExposed: false });
  const give = (path: string, file: Written) => {
    named.set(path, file);
    // No reader looks for those, and who writes anew removes them first.
    if (!path.startsWith(`${root}/`) || path.endsWith(".tmp")) return;
    file.hasName = true;
    file.isExposed ||= file.isDirty;
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
      if (file) Object.assign(file, { isWritten: true, isDirty: true, isExposed: file.hasName || file.isExposed });
    },
    sync(_, file) {
      if (file) file.isDirty = false;
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
  for (const call of parseTrace(trace)) {
    // `openat`, `pwrite64`, `fdatasync`, `linkat`, `renameat2`
    const kind = /^f?(?:data)?p?(open|write|sync|link|rename|unlink|close)(at)?v?(64|2)?$/.exec(call.name)?.[1];
    if (kind && !call.error) act[kind]!(call, open.get(call.args[0] ?? ""));
  }
  return found.filter(([, { isWritten }]) => isWritten).map(([path, { isExposed }]) => [
    // A number of the boot ends the second name of a reservation.
    path.replace(/:[0-9a-f]{8}$/, ":BOOT"),
    isExposed ? "not synced" : "synced",
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

/** Runs a command of the binary on the host. @returns the files that got names, and what it printed */
function traced(argv: readonly string[], start: { env?: Record<string, string>; stdin?: string } = {}) {
  const file = join(root, "trace");
  const { exitCode, stdout } = namespaces.host.run(() =>
    Bun.spawnSync([...STRACE_COMMAND, "-o", file, ...argv], {
      cwd: "/",
      env: { ...ENGINE_ENV, ...start.env },
      stdin: start.stdin === undefined ? "ignore" : Buffer.from(start.stdin),
    })
  );
  expect([exitCode, exitCode === 0 ? "" : stdout.toString()]).toEqual([0, ""]);
  return { files: namings(readFileSync(file, "latin1"), root), stdout: stdout.toString() };
}

/** An engine's call of one plugin. */
function exec(plugin: string, command: string, config: object): [name: string, fate: Fate][] {
  const env = { CNI_COMMAND: command, CNI_CONTAINERID: "c1", CNI_NETNS: namespaces.container.path };
  const stdin = JSON.stringify({ cniVersion: "1.1.0", name: "exec", type: plugin, ...config });
  return traced([pluginLink(plugin)], { env, stdin }).files;
}

const ipam = (network: string) => ({
  ipam: { type: "host-local", dataDir: join(root, "ipam"), ranges: [[{ subnet: `${network}/24` }]] },
});
const tuning = () => ({ dataDir: join(root, "tuning"), sysctl: { "net.ipv4.conf.IFNAME.arp_filter": "1" }, mtu: 1400 });

/** Of a network with one reservation. */
const reservation = (network: string, address: string): readonly [string, Fate][] => [
  [`ipam/.${network}.index`, "not synced"], // believed in the boot alone in which it was written
  [`ipam/${network}/${address}`, "synced"],
  [`ipam/${network}/last_reserved_ip.0`, "not synced"], // where to go on, and no more
  [`ipam/${network}/.c1:eth0:BOOT`, "synced"],
];
describe("files of state are on disk before they have their names, but for hints and what no reboot survives:", () => {
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
      return traced([CNI_PROGRAM, "run", verb, file, ...words]).files;
    };
    expect(run("add")).toEqual([
      ["cache/results/run-c1-eth0", "synced"], // before all that it is to undo
      ...reservation("run", "10.9.1.2"),
      ["tuning/c1_eth0.json", "not synced"], // describes a link
      ["cache/results/run-c1-eth0", "synced"], // with the result
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
    expect(exec("tuning", "ADD", { ...tuning(), prevResult })).toEqual([["tuning/c1_eth0.json", "not synced"]]);
    expect(exec("tuning", "DEL", { ...tuning(), prevResult })).toEqual([]);
  });

  testWith(["strace", "ip"], "host-device", () => {
    runInNetns(namespaces.host, ..."ip link add device0 type veth peer name far0".split(" "));
    const config = { device: "device0", dataDir: join(root, "devices") };
    // Where to bring back a device that the next boot puts where it belongs.
    expect(exec("host-device", "ADD", config)).toEqual([
      ["devices/c1:eth0.json", "not synced"],
      ["devices/c1:eth0.json", "not synced"], // with its number in the container
    ]);
    expect(exec("host-device", "DEL", config)).toEqual([]);
  });
});
