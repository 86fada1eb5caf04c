/** Containers by the names that engines gave them, from files that engines leave. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Args, createEntry } from "../../runtime/cache.ts";
import { newCliSandboxes } from "../../testing/cli.ts";

const { root, cni } = newCliSandboxes();
afterAll(() => rmSync(root, { recursive: true }));

/** As podman 4.3.1 wrote it, after `podman rename web renamed`. */
const PODMAN = readFileSync(join(import.meta.dir, "../../testdata/engines/podman-4.3.1-containers.json"), "utf8");
const [RENAMED = "", WEB2 = ""] = PODMAN.match(/(?<="id":")[0-9a-f]{64}/g)!;
const NERDCTL = "0123456789abcdef".repeat(4);
const POD = "fedcba9876543210".repeat(4);
const SECOND_POD = "f0".repeat(32);
const HOSTILE = "ab".repeat(32);
const CTR = "my-team-web9";

const files = join(root, "files");
const [conf, cache] = [join(root, "net.d"), join(root, "cache")];

/** The state of engines is what the directory has. */
const MOUNT = 'mount -t tmpfs tmpfs /var/lib && cp -r "$0/." /var/lib && exec "$@"';
const onHost = (...words: string[]) => cni(words, { wrapper: ["unshare", "-m", "sh", "-c", MOUNT, files] });
const run = (...words: string[]) => onHost(...words, "--conf-dir", conf, "--cache-dir", cache);

function attach(containerId: string, args: Args = [], ifname = "eth0"): void {
  const config = readFileSync(join(conf, "lan.conflist"), "utf8");
  createEntry(cache, {
    network: "lan",
    containerId,
    ifname,
    config,
    netns: `/gone/${ifname}`,
    args,
    capabilityArgs: {},
  });
}

function write(path: string, text: string): void {
  mkdirSync(join(files, path, ".."), { recursive: true });
  writeFileSync(join(files, path), text);
}

const STORAGE = "containers/storage/overlay-containers/containers.json";
const podArgs = (namespace: string, name: string): Args => [["K8S_POD_NAMESPACE", namespace], ["K8S_POD_NAME", name]];

beforeAll(() => {
  mkdirSync(conf);
  const ipam = { type: "static", addresses: [{ address: "10.9.0.2/24" }] };
  const plugins = [{ type: "bridge", bridge: "br9", ipam }];
  writeFileSync(join(conf, "lan.conflist"), JSON.stringify({ cniVersion: "1.0.0", name: "lan", plugins }));
  write(STORAGE, PODMAN);
  // The layout of nerdctl's docs/dir.md.
  write("nerdctl/1935db59/names/default/db", NERDCTL);
  attach(RENAMED, [["K8S_POD_NAME", "web"]]);
  attach(WEB2, [["K8S_POD_NAME", "web2"]]);
  attach(`default-${NERDCTL}`);
  attach(POD, podArgs("shop", "web"));
  attach(SECOND_POD, podArgs("shop", "cart"));
  attach(HOSTILE, podArgs("shop", "\u001b[2Jx\ny"));
  attach("c1");
  attach(CTR);
});

const listed = (...words: string[]): [name: string | undefined, id: string][] =>
  JSON.parse(run("run", "list", ...words, "--json").stdout)
    .map(({ name, containerId }: { name?: string; containerId: string }) => [name, containerId]);

test("cni run list shows names beside short ids, and both as JSON", () => {
  expect(listed()).toEqual([
    ["shop/\u001b[2Jx\ny", HOSTILE],
    ["renamed", RENAMED],
    ["web2", WEB2],
    [undefined, "c1"],
    [undefined, CTR],
    ["db", `default-${NERDCTL}`],
    ["shop/cart", SECOND_POD],
    ["shop/web", POD],
  ].sort(([, a], [, b]) => a! < b! ? -1 : 1) as [string | undefined, string][]);
  const { stdout } = run("run", "list");
  const rows = stdout.trimEnd().split("\n").map((line) => line.split(/ {2,}/).slice(0, 3));
  expect(rows).toContainEqual(["NETWORK", "NAME", "CONTAINER"]);
  expect(rows).toContainEqual(["lan", "db", "0123456789ab"]);
  expect(rows).toContainEqual(["lan", "shop/web", "fedcba987654"]);
  expect(rows).toContainEqual(["lan", "-", "c1"]);
  expect(rows).toContainEqual(["lan", "shop/?[2Jx?y", "abababababab"]);
});

test.each([
  ["renamed", RENAMED],
  ["db", `default-${NERDCTL}`],
  ["0123456789ab", `default-${NERDCTL}`],
  ["shop/web", POD],
  ["cart", SECOND_POD],
  ["fedcba98", POD],
  ["web9", CTR],
  ["my-team-w", CTR],
])("cni run list and show take %j for one container", (word, id) => {
  expect(listed(word).map(([, containerId]) => containerId)).toEqual([id]);
  const { separate } = JSON.parse(run("show", word, "--json").stdout);
  expect(separate.map(({ attachment }: { attachment: { containerId: string } }) => attachment.containerId)).toEqual([
    id,
  ]);
});

test("a name of several containers is refused with the candidates", () => {
  attach("d0".repeat(32), podArgs("test", "cart"));
  for (const command of [["run", "list"], ["show"]]) {
    const { exitCode, stderr } = run(...command, "cart");
    expect([exitCode, stderr]).toEqual([
      1,
      'cni: Cannot tell which container "cart" is: 2 containers have this name\n' +
      "     shop/cart (f0f0f0f0f0f0); test/cart (d0d0d0d0d0d0)\n",
    ]);
    expect(run(...command, "shop/cart").exitCode).toBe(0);
  }
  // Two ids begin with it, but a network may have been meant.
  expect(run("run", "list", "f").stderr).toStartWith('cni: Cannot find network "f"');
  expect(run("doctor", "f").stderr).toStartWith('cni: Cannot find network "f"');
  for (const command of [["run", "list"], ["doctor"]]) {
    const { exitCode, stderr } = run(...command, "shop/nobody");
    expect([exitCode, stderr]).toEqual([
      1,
      'cni: Cannot find "shop/nobody": there is no such file, and no container has this name\n' +
      '     "cni run list" lists containers\n',
    ]);
  }
});

test("cni network inspect and doctor name containers too", () => {
  const [network] = JSON.parse(run("network", "inspect", "lan", "--json").stdout);
  expect(network.attachments).toContainEqual(expect.objectContaining({ name: "shop/web", containerId: POD }));
  expect(run("network", "inspect", "lan").stdout).toMatch(/^db +0123456789ab +eth0/m);
  const { stdout } = run("doctor", "lan", "--look-only");
  expect(stdout).toContain('"eth0" of container "web2 (5748171c3fac)"');
});

test("cni run check and gc take names, and del goes by the id", () => {
  expect(run("run", "check", "lan", "shop/web").stderr).toContain(`container "${POD}"`);
  const gc = run("run", "gc", "lan", "--valid", "shop/web", "--valid", "db/eth0", "--valid", "c1", "--dry-run");
  expect(gc.exitCode).toBe(0);
  for (const kept of [POD, NERDCTL, '"c1"']) expect(gc.stderr).not.toContain(kept);
  expect(gc.stderr).toContain(`would report: Removed "eth0" of container "${RENAMED}"`);
  const del = run("run", "del", "lan", "--container-id", "web2", "--dry-run");
  expect(del.stdout).not.toContain(WEB2);
  expect(del.stderr).toContain(`"web2" is the name of a container, and DEL goes by the id: --container-id ${WEB2}`);
  // A word without an option is a namespace, which has another id.
  for (const [word, id] of [["web2", WEB2], ["shop/web", POD], ["web", POD]] as const) {
    const { stdout, stderr } = run("run", "del", "lan", word, "--dry-run");
    expect(stdout).not.toContain(id);
    expect(stderr).toContain(`"${word}" is the name of a container, and DEL goes by the id: --container-id ${id}`);
  }
});

test("a missing or broken state file is no error", () => {
  const broken = ["{", "[]", "null", '[{"id":1,"names":"x"},{"id":"c1","names":[]},7]', "\u0000"];
  for (const text of broken) {
    write(STORAGE, text);
    const { exitCode, stderr } = run("run", "list");
    expect([exitCode, stderr]).toEqual([0, ""]);
  }
  rmSync(join(files, "containers"), { recursive: true });
  writeFileSync(join(files, "containers"), "no directory");
  // Of the ADD.
  expect(listed("web2").map(([name]) => name)).toEqual(["web2"]);
});

test("shells offer names", () => {
  const { stdout } = onHost("complete-words", "fish", "--", "show", "--cache-dir", cache, "shop/");
  expect(stdout).toContain("shop/web\tfedcba987654\n");
});
