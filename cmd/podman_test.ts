/** podman 4 with its CNI backend, as a real client of the links. */
import { afterAll, beforeAll, describe, expect } from "bun:test";
import {
  copyFileSync,
  existsSync,
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
import { createNetns, type Netns } from "../ffi/netns.ts";
import { layOut } from "../scripts/image.ts";
import { ROOT } from "../scripts/sources.ts";
import { createEntry, findEntry, removeEntry } from "./runtime/cache.ts";
import { CNI, testWith } from "./testing.ts";

const NETWORK = {
  cniVersion: "0.4.0",
  name: "podtest",
  plugins: [
    {
      type: "bridge",
      bridge: "podtest0",
      isGateway: true,
      ipMasq: true,
      ipam: { type: "host-local", routes: [{ dst: "0.0.0.0/0" }], ranges: [[{ subnet: "10.91.0.0/24" }]] },
    },
    { type: "portmap", capabilities: { portMappings: true } },
  ],
};

/** A podman whose images, containers and networks are all in one directory, and whose host is a namespace of the test. */
interface Podman extends Disposable {
  readonly directory: string;
  /** What it sees as /var/lib/cni, where libcni remembers attachments. */
  readonly cache: string;
  readonly host: Netns;
  /** Runs a program on that host. @throws {Error} with what it said, if it fails */
  run(...command: string[]): string;
}

async function newPodman(): Promise<Podman> {
  const resources = new DisposableStack();
  const directory = mkdtempSync(join(tmpdir(), "cni-podman-"));
  resources.defer(() => rmSync(directory, { recursive: true, force: true }));
  const host = resources.use(createNetns());
  const cache = join(directory, "cni");
  mkdirSync(cache);
  const mounts = resources.use(await newMounts(cache));
  writeFileSync(join(directory, "containers.conf"), containersConf(directory));
  writeFileSync(
    join(directory, "storage.conf"),
    `[storage]\ndriver = "vfs"\ngraphroot = "${directory}/storage"\nrunroot = "${directory}/run"\n`,
  );
  mkdirSync(join(directory, "net.d"));
  writeFileSync(join(directory, "net.d/podtest.conflist"), JSON.stringify(withState(directory)));
  const env = {
    ...process.env,
    CONTAINERS_CONF: join(directory, "containers.conf"),
    CONTAINERS_STORAGE_CONF: join(directory, "storage.conf"),
  };
  const run = (...command: string[]) => {
    const { exitCode, stdout, stderr } = host.run(() =>
      Bun.spawnSync([...mounts.enter, ...command], { env, stdin: "ignore" })
    );
    if (exitCode !== 0) throw new Error(`${command.join(" ")} ended with ${exitCode}: ${stderr}`);
    return stdout.toString();
  };
  run("ip", "link", "set", "lo", "up");
  run(CNI, "install", join(directory, "bin"));
  return { directory, cache, host, run, [Symbol.dispose]: () => resources.dispose() };
}

/** Mounts that nobody else sees, with `cache` in the place of /var/lib/cni. They last as long as the process that holds them. */
async function newMounts(cache: string): Promise<Disposable & { enter: string[] }> {
  const script = 'mkdir -p /var/lib/cni && mount --bind "$1" /var/lib/cni && echo ready && exec sleep infinity';
  const holder = Bun.spawn(["unshare", "-m", "sh", "-c", script, "sh", cache], { stdin: "ignore", stdout: "pipe" });
  const { value } = await holder.stdout.getReader().read();
  if (new TextDecoder().decode(value) !== "ready\n") throw new Error("Cannot mount anything here");
  return { enter: ["nsenter", `--mount=/proc/${holder.pid}/ns/mnt`], [Symbol.dispose]: () => holder.kill() };
}

const containersConf = (directory: string) => `
[containers]
default_ulimits = ["nofile=20000:20000","nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "${directory}/tmp"
[network]
network_backend = "cni"
cni_plugin_dirs = ["${directory}/bin"]
network_config_dir = "${directory}/net.d"
`;

/** host-local's reservations belong to the test as well. */
function withState(directory: string): object {
  const [bridge, portmap] = NETWORK.plugins;
  return {
    ...NETWORK,
    plugins: [{ ...bridge, ipam: { ...bridge.ipam, dataDir: join(directory, "networks") } }, portmap],
  };
}

/** An image that holds busybox and a page. */
function importBusybox({ directory, run }: Podman): void {
  const root = join(directory, "root");
  for (const each of ["bin", "www", "etc", "proc", "sys", "dev", "tmp"]) {
    mkdirSync(join(root, each), { recursive: true });
  }
  copyFileSync("/bin/busybox", join(root, "bin/busybox"));
  symlinkSync("busybox", join(root, "bin/sh"));
  writeFileSync(join(root, "www/index.html"), "hello from the container\n");
  run("tar", "-C", root, "-cf", join(directory, "root.tar"), ".");
  run("podman", "import", join(directory, "root.tar"), "web:1");
}

const PROGRAMS = ["podman", "runc", "busybox", "nft", "nsenter", "unshare"];

/** Keys in their order, and which values are text, whatever the values; without what only newer libcni writes. */
function shapeOf(text: string): string {
  const { netns: _, ...node } = JSON.parse(text);
  return JSON.stringify(
    node,
    (key, value) => typeof value === "string" ? "" : key === "hostPort" ? 0 : key === "cniArgs" ? [] : value,
  );
}

describe("podman", () => {
  let podman: Podman;
  beforeAll(async () => {
    if (PROGRAMS.every((program) => Bun.which(program))) importBusybox(podman = await newPodman());
  });
  afterAll(() => podman?.[Symbol.dispose]());

  const links = () => JSON.parse(podman.run("ip", "-j", "link", "show", "type", "veth") || "[]").length as number;
  /** Starts a container with a web server. @returns its id */
  const start = (name: string, port: number): string => {
    const published = ["--network", "podtest", "-p", `${port}:80`];
    const server = ["/bin/busybox", "httpd", "-f", "-p", "80", "-h", "/www"];
    return podman.run("podman", "run", "-d", "--name", name, ...published, "web:1", ...server).trim();
  };

  testWith(PROGRAMS, "runs a container with a published port that answers, and leaves nothing of it", () => {
    const { run, directory, cache } = podman;
    const id = start("w1", 8080);
    expect(run("busybox", "wget", "-qO-", "http://10.91.0.2/")).toBe("hello from the container\n");
    expect(run("busybox", "wget", "-qO-", "http://127.0.0.1:8080/")).toBe("hello from the container\n");
    expect(links()).toBe(1);
    expect(run("nft", "list", "ruleset")).toContain(`podtest ${id} eth0`);

    run("podman", "rm", "-f", "-t", "0", "w1");
    expect(links()).toBe(0);
    expect(run("nft", "list", "ruleset")).not.toContain(id);
    expect(readdirSync(join(directory, "networks/podtest")).filter((name) => name.startsWith("10."))).toEqual([]);
    expect(existsSync(join(cache, `results/podtest-${id}-eth0`))).toBe(false);
  });

  /** Runs the runtime where podman runs, without a configuration, as a node would after podman's was removed. */
  const cni = (...argv: string[]) =>
    podman.run(CNI, "run", ...argv, "--conf-dir", "/nonexistent", "--plugin-dir", join(podman.directory, "bin"));

  testWith(
    PROGRAMS,
    "is followed by cni run, which reads what it remembered, byte by byte, checks it and detaches it",
    () => {
      const { run, directory, cache } = podman;
      const id = start("w2", 8082);
      const key = { network: "podtest", containerId: id, ifname: "eth0" };
      const entry = findEntry(cache, key)!;
      // A copy: matchers are put into what they were compared with.
      expect(structuredClone(entry)).toMatchObject({
        ...key,
        netns: expect.stringMatching(/^\/run\/netns\//),
        config: readFileSync(join(directory, "net.d/podtest.conflist"), "utf8"),
        args: expect.arrayContaining([["IgnoreUnknown", "1"], ["K8S_POD_NAME", "w2"]]),
        capabilityArgs: { portMappings: [{ hostPort: 8082, containerPort: 80, protocol: "tcp" }] },
        result: { cniVersion: "0.4.0" },
      });
      const copies = join(directory, "copies");
      // This libcni does not write the namespace down, ours does.
      const { netns, ...written } = entry;
      createEntry(copies, written);
      const [ours, theirs] = [copies, cache].map((each) =>
        readFileSync(join(each, `results/podtest-${id}-eth0`), "utf8")
      );
      expect(ours).toBe(theirs);

      expect(JSON.parse(cni("list", "--json"))).toMatchObject([{ ...key, state: "attached", netns: netns! }]);
      cni("check", "podtest", netns!, "--container-id", id);
      cni("del", "podtest", "--container-id", id);
      expect(links()).toBe(0);
      expect(run("nft", "list", "ruleset")).not.toContain(id);
      expect(readdirSync(join(cache, "results"))).toEqual([]);
      run("podman", "rm", "-f", "-t", "0", "w2");
    },
  );

  testWith(PROGRAMS, "detaches by what cni run wrote, configuration and result included", () => {
    const { run, directory, cache } = podman;
    const id = start("w3", 8083);
    const key = { network: "podtest", containerId: id, ifname: "eth0" };
    const entry = findEntry(cache, key)!;
    const record = join(directory, "record");
    writeFileSync(join(directory, "bin/rec"), `#!/bin/sh\ncat >>${record}; echo "$CNI_COMMAND" >>${record}\n`, {
      mode: 0o755,
    });
    const list = JSON.parse(entry.config);
    const config = JSON.stringify({ ...list, plugins: [...list.plugins, { type: "rec", "<&>": "é" }] });
    removeEntry(cache, key);
    createEntry(cache, { ...entry, config });
    run("podman", "rm", "-f", "-t", "0", "w3");
    const [document, command] = readFileSync(record, "utf8").split(/(?<=\})(?=DEL\n$)/);
    expect(command).toBe("DEL\n");
    expect(JSON.parse(document!)).toMatchObject({ type: "rec", "<&>": "é", prevResult: entry.result as object });
    expect(links()).toBe(0);
    expect(run("nft", "list", "ruleset")).not.toContain(id);
    expect(readdirSync(join(cache, "results"))).toEqual([]);
  });

  testWith(PROGRAMS, "remembers the same things in the same order as cni run", () => {
    const { run, directory, cache } = podman;
    const id = start("w4", 8084);
    using container = createNetns();
    const portMappings = [{ hostPort: 8085, containerPort: 80, protocol: "tcp" }];
    const capabilities = JSON.stringify({ portMappings, aliases: { podtest: ["x"] } });
    run(
      ...[CNI, "run", "add", join(directory, "net.d/podtest.conflist"), container.path, "--container-id", "ours"],
      ...[
        "--plugin-dir",
        join(directory, "bin"),
        "--args",
        "IgnoreUnknown=1;K8S_POD_NAME=x",
        "--cap-args",
        capabilities,
      ],
    );
    const [theirs, ours] = [id, "ours"].map((each) =>
      shapeOf(readFileSync(join(cache, `results/podtest-${each}-eth0`), "utf8"))
    );
    expect(ours).toBe(theirs!);
    cni("del", "podtest", "--container-id", "ours");
    run("podman", "rm", "-f", "-t", "0", "w4");
    expect(readdirSync(join(cache, "results"))).toEqual([]);
  });

  testWith(PROGRAMS, "builds the image of the Containerfile, in which the chain attaches a container", () => {
    const { run, directory } = podman;
    layOut(join(directory, "context/dist/image"), CNI);
    run("podman", "build", "-q", "-t", "cni:test", "-f", join(ROOT, "Containerfile"), join(directory, "context"));
    expect(run("podman", "run", "--rm", "--network", "none", "cni:test", "--version")).toMatch(/^cni v\d/);

    using container = createNetns();
    const network = join(directory, "thin.conflist");
    writeFileSync(network, JSON.stringify({ ...NETWORK, name: "thin", cniVersion: "1.1.0" }));
    const capabilities = JSON.stringify({ portMappings: [{ hostPort: 8081, containerPort: 80, protocol: "tcp" }] });
    const cni = (verb: string) =>
      run(
        ...[
          "podman",
          "run",
          "--rm",
          "--privileged",
          "--network",
          "host",
          "--pid",
          "host",
          "--env",
          "PATH=/nonexistent",
        ],
        ...["-v", `${network}:/thin.conflist:ro`, "-v", `${join(directory, "thin-state")}:/var/lib/cni`],
        ...[
          "cni:test",
          "run",
          verb,
          "/thin.conflist",
          container.path,
          "--container-id",
          "thin1",
          "--cap-args",
          capabilities,
        ],
      );
    mkdirSync(join(directory, "thin-state"));
    expect(JSON.parse(cni("add")).ips).toMatchObject([{ address: "10.91.0.2/24" }]);
    expect(run("nft", "list", "ruleset")).toContain("thin thin1 eth0");
    cni("check");
    cni("del");
    expect(run("nft", "list", "ruleset")).not.toContain("thin1");
  });
});
