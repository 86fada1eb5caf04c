/** The image of a release, as podman loads and runs it: to install plugins, as `cni run` and as the server. */
import { afterAll, beforeAll, describe, expect } from "bun:test";
import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { imageArchive } from "../scripts/src/release/image.ts";
import { hostLibraries } from "../scripts/src/image/main.ts";
import { CNI_PROGRAM, testWith } from "../testing/binary.ts";
import { newTestNode, type TestNode } from "../testing/node.ts";
import { newPodman, PODMAN_PROGRAMS } from "../testing/podman.ts";

const PROGRAMS = [...PODMAN_PROGRAMS, "ldd"];
const SOURCE = { version: "7.8.9", time: 1e9, commit: "0123456789abcdef0123456789abcdef01234567" };
const OTHER = process.arch === "x64" ? "arm64" : "x64";
const NETWORK = {
  cniVersion: "1.1.0",
  name: "lan",
  plugins: [{
    type: "bridge",
    bridge: "lan0",
    isGateway: true,
    ipam: { type: "host-local", ranges: [[{ subnet: "10.94.0.0/24" }]] },
  }],
};

describe("the image", () => {
  const resources = new DisposableStack();
  let node: TestNode;
  let image = "";
  const run = (options: readonly string[], ...words: string[]) =>
    node.run("podman", "run", "--rm", "--network", "host", ...options, image, ...words);

  beforeAll(async () => {
    if (!PROGRAMS.every((program) => Bun.which(program))) return;
    node = resources.use(await newTestNode());
    resources.use(newPodman(node));
    const libraries = hostLibraries(CNI_PROGRAM);
    const parts = [
      { processor: process.arch as "x64", program: readFileSync(CNI_PROGRAM), libraries },
      { processor: OTHER, program: Buffer.from("a program for another processor"), libraries: [] },
    ] as const;
    const archive = join(node.directory, "image.tar");
    // podman names the image by its path, which must have no capital letters.
    const layout = "/run/layout";
    writeFileSync(archive, imageArchive(parts, { LICENSE: "text" }, SOURCE, 1));
    node.run("mkdir", layout);
    node.run("tar", "-C", layout, "-xf", archive);
    image = `oci:${layout}:v7.8.9`;
    // Each run from the layout would copy it again.
    image = node.run("podman", "pull", "-q", image).trim();
  });
  afterAll(() => resources.dispose());

  testWith(PROGRAMS, "is that of this processor, and says what it is", () => {
    const [inspected] = JSON.parse(node.run("podman", "image", "inspect", image));
    expect(inspected.Architecture).toBe(process.arch === "x64" ? "amd64" : "arm64");
    expect(inspected.Created).toBe("2001-09-09T01:46:40Z");
    expect(inspected.Labels).toMatchObject({
      "org.opencontainers.image.version": "7.8.9",
      "org.opencontainers.image.revision": SOURCE.commit,
    });
    expect(run([], "--version")).toMatch(/^cni v\d/);
    const loaded = node.run("podman", "load", "--quiet", "--input", join(node.directory, "image.tar"));
    expect(loaded).toContain("Loaded image: localhost/cni:v7.8.9\n");
  });

  testWith(PROGRAMS, "installs plugins on the host, which run there", () => {
    const bin = join(node.directory, "installed");
    mkdirSync(bin);
    run(["-v", `${bin}:/host/opt/cni/bin`], "install", "--copy", "--no-shim", "/host/opt/cni/bin");
    expect(statSync(join(bin, "bridge")).ino).toBe(statSync(join(bin, "cni")).ino);
    expect(readFileSync(join(bin, "cni")).equals(readFileSync(CNI_PROGRAM))).toBe(true);
    expect(node.run("env", "CNI_COMMAND=VERSION", join(bin, "bridge"))).toContain('"supportedVersions"');
    run(["-v", `${bin}:/host/opt/cni/bin`], "install", "--copy", "/host/opt/cni/bin");
    expect(statSync(join(bin, "bridge")).size).toBeLessThan(16 * 1024);
  });

  testWith(PROGRAMS, "attaches a container of the host, with cni run", () => {
    node.run(CNI_PROGRAM, "netns", "add", "web");
    const [config, state] = [join(node.directory, "lan.conflist"), join(node.directory, "lan-state")];
    writeFileSync(config, JSON.stringify(NETWORK));
    mkdirSync(state);
    const options = ["--privileged", "--pid", "host"];
    const mounts = ["-v", `${config}:/etc/cni/net.d/lan.conflist:ro`, "-v", `${state}:/var/lib/cni`];
    const names = ["-v", "/run/netns:/run/netns"];
    const cni = (verb: string) =>
      run([...options, ...mounts, ...names], "run", verb, "lan", "/run/netns/web", "--container-id", "c1");
    expect(JSON.parse(cni("add")).ips).toMatchObject([{ address: "10.94.0.2/24" }]);
    cni("check");
    expect(node.run("ip", "-o", "link", "show", "master", "lan0")).toContain("veth");
    cni("del");
    expect(node.run("ip", "-o", "link", "show", "master", "lan0")).toBe("");
  });

  testWith(PROGRAMS, "serves calls of shims", async () => {
    node.run("podman", "run", "-d", "--name", "serve", "--privileged", "--network", "host", image, "serve");
    const inside = (...words: string[]) => node.run("podman", "exec", "serve", ...words);
    // Its workers are warm then.
    const log = node.start("podman", "logs", "-f", "serve");
    for await (const output of log.stderr) if (Buffer.from(output).includes("Listening")) break;
    inside("/opt/cni/bin/cni", "serve", "--check");
    inside("/opt/cni/bin/cni", "install", "/shims");
    inside("/shims/cni", "run", "status", "default");
    const status = JSON.parse(inside("/opt/cni/bin/cni", "serve", "--status", "--json"));
    expect(status.served).toBe(1);
  }, 180_000);
});
