/** podman 4 with its CNI backend, as a real client of the links. */
import { afterAll, beforeAll, describe, expect } from "bun:test";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns, type Netns } from "../ffi/netns.ts";
import { layOut } from "../scripts/image.ts";
import { ROOT } from "../scripts/sources.ts";
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
  readonly host: Netns;
  /** Runs a program on that host. @throws {Error} with what it said, if it fails */
  run(...command: string[]): string;
}

function newPodman(): Podman {
  const resources = new DisposableStack();
  const directory = mkdtempSync(join(tmpdir(), "cni-podman-"));
  resources.defer(() => rmSync(directory, { recursive: true, force: true }));
  const host = resources.use(createNetns());
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
    const { exitCode, stdout, stderr } = host.run(() => Bun.spawnSync(command, { env, stdin: "ignore" }));
    if (exitCode !== 0) throw new Error(`${command.join(" ")} ended with ${exitCode}: ${stderr}`);
    return stdout.toString();
  };
  run("ip", "link", "set", "lo", "up");
  run(CNI, "install", join(directory, "bin"));
  return { directory, host, run, [Symbol.dispose]: () => resources.dispose() };
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

const PROGRAMS = ["podman", "runc", "busybox", "nft"];

describe("podman", () => {
  let podman: Podman;
  beforeAll(() => {
    if (PROGRAMS.every((program) => Bun.which(program))) importBusybox(podman = newPodman());
  });
  afterAll(() => podman?.[Symbol.dispose]());

  testWith(PROGRAMS, "runs a container with a published port that answers, and leaves nothing of it", () => {
    const { run, directory } = podman;
    const links = () => JSON.parse(run("ip", "-j", "link", "show", "type", "veth") || "[]").length as number;
    run(
      "podman",
      "run",
      "-d",
      "--name",
      "w1",
      "--network",
      "podtest",
      "-p",
      "8080:80",
      "web:1",
      "/bin/busybox",
      "httpd",
      "-f",
      "-p",
      "80",
      "-h",
      "/www",
    );
    const id = run("podman", "inspect", "-f", "{{.Id}}", "w1").trim();
    expect(run("busybox", "wget", "-qO-", "http://10.91.0.2/")).toBe("hello from the container\n");
    expect(run("busybox", "wget", "-qO-", "http://127.0.0.1:8080/")).toBe("hello from the container\n");
    expect(links()).toBe(1);
    expect(run("nft", "list", "ruleset")).toContain(`podtest ${id} eth0`);

    run("podman", "rm", "-f", "-t", "0", "w1");
    expect(links()).toBe(0);
    expect(run("nft", "list", "ruleset")).not.toContain(id);
    expect(readdirSync(join(directory, "networks/podtest")).filter((name) => name.startsWith("10."))).toEqual([]);
    expect(existsSync(`/var/lib/cni/results/podtest-${id}-eth0`)).toBe(false);
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
